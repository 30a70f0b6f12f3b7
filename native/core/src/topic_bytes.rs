//! How many bytes of the log belong to which topic, from the queues: an entry tells position and size of its record.
//!
//! Counting holds the state no longer than for a step of one queue, and reads files without it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    consume_queue::{Entry, Queue, Queues, Topic, UNIT},
    error::{At, Result},
    queue_files::QueueFiles,
    state::Shared,
};

/// Entries read at a time.
const BLOCK: u64 = 4096;

/// Bytes of the records between two positions, by topic. What readers can't reach any more isn't counted.
pub fn count(shared: &Shared, from: u64, to: u64) -> Result<BTreeMap<Arc<str>, u64>> {
    let mut counted = BTreeMap::new();
    let slots = shared.state().queues.slots();
    for slot in slots {
        let (topic, id, serial, mut index) = {
            let state = shared.state();
            let queue = state.queues.queue(slot);
            let Some(queue) = queue.filter(|queue| queue.exists && queue.last_end > from) else { continue };
            (Arc::clone(&queue.topic), queue.id, queue.serial, first_at(&state.queues, queue, from))
        };
        let mut bytes = 0;
        'queue: loop {
            let entries = match step(shared, slot, serial, index) {
                Step::Gone => break,
                Step::Entries(entries) => entries,
                Step::Read(files, count) => {
                    let entries = files.read(&topic, id, index, count);
                    entries.at("read a queue in", &files.directory(&topic, id))?
                }
            };
            if entries.is_empty() {
                break;
            }
            for entry in entries.chunks_exact(UNIT).filter_map(Entry::read).filter(|entry| entry.is_real()) {
                if entry.position as u64 >= to {
                    break 'queue;
                }
                bytes += entry.size as u64;
            }
            index += (entries.len() / UNIT) as u64;
        }
        if bytes > 0 {
            *counted.entry(topic).or_insert(0) += bytes;
        }
    }
    Ok(counted)
}

/// Let the queues of a topic begin with their first message at or above `position`.
pub fn raise_min(shared: &Shared, topic: &str, position: u64) {
    let slots: Vec<_> = shared.state().queues.topic(topic.as_bytes()).into_iter().flat_map(Topic::slots).collect();
    for slot in slots {
        let mut state = shared.state();
        let is_same = state.queues.queue(slot).is_some_and(|queue| &*queue.topic == topic);
        if is_same && state.queues.raise_min(slot, position) {
            state.queues.queue_mut(slot).into_iter().for_each(|queue| queue.is_hiding = true);
        }
    }
}

enum Step {
    /// The queue has ended, or was deleted.
    Gone,
    Entries(Vec<u8>),
    /// So many entries have to be read from files.
    Read(Arc<QueueFiles>, u64),
}

fn step(shared: &Shared, slot: usize, serial: u64, index: u64) -> Step {
    let state = shared.state();
    match state.queues.queue(slot).filter(|queue| queue.serial == serial && index < queue.next) {
        None => Step::Gone,
        Some(queue) if index < queue.tail_start() => {
            Step::Read(Arc::clone(&state.queues.files), BLOCK.min(queue.tail_start() - index))
        }
        Some(queue) => {
            let entries = (index..queue.next).map_while(|index| queue.cached(index));
            Step::Entries(entries.flat_map(Entry::bytes).collect())
        }
    }
}

/// The first entry that readers can reach at or above `position`.
fn first_at(queues: &Queues, queue: &Queue, position: u64) -> u64 {
    if queue.min_position >= position {
        return queue.min;
    }
    let is_below = |entry: Entry| !entry.is_real() || (entry.position as u64) < position;
    // Mostly it is among the newest, which are in memory.
    let tail = queue.tail_start().max(queue.min);
    let from = if queue.cached(tail).is_some_and(is_below) { tail } else { queue.min };
    queues.search_from(queue, from, is_below)
}
