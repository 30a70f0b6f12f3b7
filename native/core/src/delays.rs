//! Delay levels (ScheduleMessageService.java). A parked message lies in queue `level - 1` of one topic. It says in its
//! properties which level it has and where it really belongs:
//!
//! ```text
//!     DELAY  3    REAL_TOPIC  orders    REAL_QID  5
//! ```
//!
//! The queue entry holds in the tags code's place when it is due: its store time and what the level means. When it is due, it
//! is stored once more where it belongs, with the same properties.

use std::sync::Arc;

use crate::{
    consume_queue::{Entry, UNIT},
    error::{store, value, At, Error, Result},
    half_messages::HALF_TOPIC,
    header::write_integer,
    light,
    mapped_file::MappedFile,
    properties,
    record::{self, Message, Record},
    state::{check_message, check_properties_size, Shared, State},
    traffic::Kind,
};

pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Milliseconds that each level means, the first level's first.
#[derive(Debug, Default, Clone)]
pub struct Levels(Vec<i64>);

impl Levels {
    pub fn new(levels: Vec<i64>) -> Result<Self> {
        match levels.iter().find(|&&delay| delay < 0) {
            Some(delay) => value(format!("delay_levels has a delay of {delay} ms")),
            None => Ok(Self(levels)),
        }
    }

    fn delay(&self, level: usize) -> Option<i64> {
        self.0.get(level.checked_sub(1)?).copied()
    }

    /// The level that a send asks for, 0 for none. None for what isn't to be stored as given: no number, or over the last.
    pub fn asked(&self, text: &[u8]) -> Option<usize> {
        let level: i32 = std::str::from_utf8(text).ok()?.parse().ok()?;
        usize::try_from(level.max(0)).ok().filter(|&level| level <= self.0.len())
    }

    /// When a parked message is due; None when its properties, in pieces, name no level. A level over the last one is that.
    pub fn due(&self, properties: &[&[u8]], store_timestamp: i64) -> Option<i64> {
        let items = properties.iter().flat_map(|piece| properties::items(piece));
        let (_, level) = items.filter(|(name, _)| *name == b"DELAY").last()?;
        let level: i32 = std::str::from_utf8(level).ok()?.parse().ok()?;
        let delay = self.delay(usize::try_from(level).ok()?.min(self.0.len()))?;
        Some(store_timestamp.saturating_add(delay))
    }

    /// The tags code of a stored record's queue entry.
    pub fn tags_code(&self, record: &Record<'_>) -> i64 {
        let is_parked = record.topic == SCHEDULE_TOPIC.as_bytes();
        let due = if is_parked { self.due(&[record.properties], record.store_timestamp) } else { None };
        due.unwrap_or_else(|| record::tags_code(record))
    }
}

/// The properties that say where a parked message belongs.
pub fn write_real(out: &mut Vec<u8>, topic: &[u8], queue_id: i32) {
    out.extend_from_slice(b"REAL_TOPIC\x01");
    out.extend_from_slice(topic);
    out.extend_from_slice(b"\x02REAL_QID\x01");
    write_integer(out, i64::from(queue_id));
    out.push(properties::VALUE_END);
}

/// Whether a tags code is a time: hashes are below, and so are extension addresses.
pub fn is_time(tags: i64) -> bool {
    tags > i64::from(i32::MAX)
}

/// What to deliver: of this level, from this entry on, as far as it lies below `limit` in the log.
pub struct Wanted {
    pub level: usize,
    pub offset: u64,
    pub now: i64,
    pub limit: u64,
    pub count_max: u64,
    pub bytes_max: u64,
}

#[derive(Default)]
pub struct Delivered {
    /// The entry to go on with.
    pub next: u64,
    /// Behind the last record appended, 0 when there was none.
    pub end: u64,
    /// When to go on; None when no entry is left.
    pub due: Option<i64>,
    /// (topic, queue id) of watched queues that got messages.
    pub arrivals: Vec<(String, i32)>,
    /// Where in the log messages are that can't be delivered, and why.
    pub passed_over: Vec<(u64, String)>,
}

/// Store the parked messages of a level that are due where they belong. An error is one before anything was done.
pub fn deliver(shared: &Shared, wanted: &Wanted) -> Result<Delivered> {
    let levels = &shared.config.delay_levels;
    let Some(delay) = levels.delay(wanted.level) else {
        return value(format!("there is no level {} among {}", wanted.level, levels.0.len()));
    };
    let id = wanted.level as i32 - 1;
    let (first, entries) = entries(shared, id, wanted)?;
    let mut done = Delivered { next: first, ..Delivered::default() };
    let mut bytes = 0;
    let mut state = shared.state();
    for entry in &entries {
        if !entry.is_real() {
            done.next += 1;
            continue;
        }
        let position = entry.position as u64;
        let Some((file, at)) = locate(&state, *entry) else {
            done.passed_over.push((position, "no record is there any more".to_owned()));
            done.next += 1;
            continue;
        };
        let data = file.read(at);
        let stored = record::store_timestamp(data).unwrap_or(0);
        let due = if is_time(entry.tags) { entry.tags } else { stored.saturating_add(delay) };
        // It can't be due later, unless the clock has gone back since.
        if due > wanted.now && due - wanted.now <= delay {
            done.due = Some(due);
            return Ok(done);
        }
        bytes += entry.size as u64;
        if bytes > wanted.bytes_max && done.next > first {
            done.due = Some(wanted.now);
            return Ok(done);
        }
        match restore(shared, &mut state, data, (id, wanted.now), &mut done.arrivals) {
            Ok(end) => done.end = end,
            Err(Error::Value(why)) => done.passed_over.push((position, why)),
            // What was done counts; who goes on hears of it.
            Err(_) if done.next > first => {
                done.due = Some(wanted.now);
                return Ok(done);
            }
            Err(error) => return Err(error),
        }
        done.next += 1;
    }
    if entries.len() as u64 == wanted.count_max {
        done.due = Some(wanted.now);
    }
    Ok(done)
}

/// Append a parked record to where it says it belongs (ScheduleMessageService.messageTimeUp); where it ends there.
fn restore(
    shared: &Shared,
    state: &mut State,
    data: &[u8],
    (id, now): (i32, i64),
    arrivals: &mut Vec<(String, i32)>,
) -> Result<u64> {
    let Some(record) = record::decode(data) else { return value("its parts don't make its size") };
    if (record.topic, record.queue_id) != (SCHEDULE_TOPIC.as_bytes(), id) {
        return value(format!("it is of {}/{}", String::from_utf8_lossy(record.topic), record.queue_id));
    }
    let text = record::without_crc(record.properties);
    let (mut topic, mut queue_id, mut light) = (None, None, None);
    for (name, value) in properties::items(text) {
        match name {
            b"REAL_TOPIC" => topic = std::str::from_utf8(value).ok(),
            b"REAL_QID" => queue_id = std::str::from_utf8(value).ok().and_then(|id| id.parse().ok()),
            light::NAMES => light = Some(value),
            _ => {}
        }
    }
    let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
        return value("it has no REAL_TOPIC or REAL_QID that can be read");
    };
    // A half message belongs to its transaction only (Apache drops such, too).
    if topic == SCHEDULE_TOPIC || topic == HALF_TOPIC {
        return value(format!("it says that it belongs to {topic}"));
    }
    check_message(topic, queue_id, text, record.born_host)?;
    let message = Message {
        queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        store_timestamp: now,
        store_host: &shared.config.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: 0,
        body: record.body,
        topic: topic.as_bytes(),
        properties: &[text],
        crc_property: shared.config.append_crc_property,
    };
    check_properties_size(message.properties_size())?;
    let names = if shared.config.light_queues_max > 0 { light::wanted(topic.as_bytes(), light) } else { Vec::new() };
    let in_light = match names.is_empty() {
        true => None,
        false => match light::append(state, &message, text, &names, shared.config.max_message_size, Kind::Delay) {
            // Without them, as they can't be had any more: its own queue has it at least.
            Err(Error::Value(_)) => None,
            appended => Some(appended?),
        },
    };
    let appended = match in_light {
        Some(appended) => appended,
        None if state.batch_queues.has_topic(topic.as_bytes()) => state.append_unit(&message, text, Kind::Delay)?,
        None => state.append(None, &message, &properties::keys(text), Kind::Delay)?,
    };
    state.traffic.delivered.0 += 1;
    state.traffic.delivered.1 += appended.end - appended.position;
    if appended.watched {
        arrivals.push((topic.to_owned(), queue_id));
        arrivals.extend(names.into_iter().map(|name| (name, 0)));
    }
    Ok(appended.end)
}

/// The log file that holds an entry's record, and where in it.
fn locate(state: &State, entry: Entry) -> Option<(Arc<MappedFile>, usize)> {
    let (file, at) = state.log.locate(entry.position as u64)?;
    let is_there = record::is_record(file.read(at), entry.size as usize, entry.position as u64);
    (is_there && entry.size as usize <= file.read(at).len()).then(|| (Arc::clone(file), at))
}

/// Entries of a level from the one wanted on, or the queue's first, and the index of the first of them.
fn entries(shared: &Shared, id: i32, wanted: &Wanted) -> Result<(u64, Vec<Entry>)> {
    let (mut first, mut entries) = (wanted.offset, Vec::new());
    loop {
        let (files, index, count) = {
            let state = shared.state();
            let Some(queue) = state.queues.existing(SCHEDULE_TOPIC, id) else { break };
            if entries.is_empty() {
                first = wanted.offset.max(queue.min);
            }
            let index = first + entries.len() as u64;
            let count = (wanted.count_max - entries.len() as u64).min(queue.next.saturating_sub(index));
            if count == 0 {
                break;
            }
            if index >= queue.tail_start() {
                entries.extend((index..index + count).map_while(|index| queue.cached(index)));
                break;
            }
            (Arc::clone(&state.queues.files), index, count.min(queue.tail_start() - index))
        };
        let block = files.read(SCHEDULE_TOPIC, id, index, count);
        let block = block.at("read a queue in", &files.directory(SCHEDULE_TOPIC, id))?;
        if block.is_empty() {
            let directory = files.directory(SCHEDULE_TOPIC, id);
            return store(format!("{} has no file with entry {index} any more", directory.display()));
        }
        entries.extend(block.chunks_exact(UNIT).filter_map(Entry::read));
    }
    let readable = entries.iter().position(|entry| entry.is_real() && entry.end() > wanted.limit);
    entries.truncate(readable.unwrap_or(entries.len()));
    Ok((first, entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_due_time_is_of_the_level() {
        let levels = Levels::new(vec![1000, 5000]).unwrap();
        for (properties, due) in [
            (&[&b"a\x01b\x02DELAY\x011\x02"[..]][..], Some(1_100)),
            (&[b"DELAY\x011\x02", b"DELAY\x01+2"], Some(5_100)),
            (&[b"DELAY\x0199\x02"], Some(5_100)),
            (&[b"DELAY\x010\x02"], None),
            (&[b"DELAY\x01-1\x02"], None),
            (&[b"DELAY\x01soon\x02"], None),
            (&[b"DELAY\x012147483648\x02"], None),
            (&[b"XDELAY\x011\x02"], None),
            (&[], None),
        ] {
            assert_eq!(levels.due(properties, 100), due, "{properties:?}");
        }
        assert_eq!(Levels::default().due(&[b"DELAY\x011"], 100), None);
        let asked = ["0", "-7", "1", "+2", "3", "x", "", "2147483648"].map(|text| levels.asked(text.as_bytes()));
        assert_eq!(asked, [Some(0), Some(0), Some(1), Some(2), None, None, None, None]);
        assert!(Levels::new(vec![1, -1]).is_err());
    }
}
