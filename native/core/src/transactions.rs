//! The transactions of a broker: those that are pending, how the last ones ended, and what op messages have yet to tell.
//!
//! Half messages and decisions that need no decision of the broker's are carried out here; Python does the rest with the
//! same table (`rockmq/broker/transactions.py`, which tells what the states are).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use pyo3::prelude::*;

use crate::{
    error::Result,
    frame,
    half_messages::{self, Half, HALF_TOPIC, OP_TOPIC},
    header::{self, integer, write_integer, Header, Ours, ONE_WAY, RESPONSE},
    properties::{self, Keys},
    record::{self, Message},
    send::{Arrival, Stored},
    state::{check_properties_size, Appended, Config, State},
    store::{Open, Store},
    traffic::Kind,
};

const END_TRANSACTION: i32 = 37;

/// How a transaction ended; Python has one more number.
const COMMITTED: u8 = 0;
const ROLLED_BACK: u8 = 1;

/// Pending transactions looked at by a call of `due`.
const LOOKED_AT_MAX: usize = 4096;

/// A transaction whose producer hasn't decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub root: u64,
    /// Of its last half message.
    pub position: u64,
    pub since: i64,
    /// Milliseconds.
    pub immunity: i64,
    /// False for one found at the start, until it is known that no earlier life of the broker has finished it.
    pub sure: bool,
}

#[derive(Default)]
pub struct Bounds {
    /// Whether transactions are begun.
    pub begins: bool,
    /// The least immunity (ms).
    pub time_out: i64,
    pub pending_max: usize,
    pub recent_max: usize,
    /// Bytes of an op message.
    pub op_size_max: usize,
}

#[derive(Default)]
pub struct Table {
    pub bounds: Bounds,
    /// By the queue offset of their last half message.
    pending: BTreeMap<u64, Pending>,
    /// That offset of those that were written again, by root. Of the others it is the root.
    moved: HashMap<u64, u64>,
    recent: HashMap<u64, u8>,
    /// Roots of the recent ones, the oldest first.
    recent_order: VecDeque<u64>,
    /// Half messages that are finished, which no op message tells yet.
    untold: VecDeque<u64>,
    /// Bytes that these will have in op messages.
    untold_size: usize,
    /// (offset of an op message, largest offset in it) of those that may still be of interest.
    told: VecDeque<(u64, u64)>,
}

impl Table {
    /// The immunity (ms) of a half message that may be begun with these properties; None when that is for Python to say.
    pub fn immunity_asked(&self, properties: &[u8]) -> Option<i64> {
        let is_taken = self.bounds.begins && self.pending.len() < self.bounds.pending_max;
        let seconds = half_messages::immunity_asked(properties).filter(|_| is_taken)?;
        Some((seconds * 1000).max(self.bounds.time_out))
    }

    /// The offset of the last half message, and what is pending there.
    pub fn find(&self, root: u64) -> Option<(u64, Pending)> {
        let offset = self.moved.get(&root).copied().unwrap_or(root);
        self.pending.get(&offset).filter(|pending| pending.root == root).map(|&pending| (offset, pending))
    }

    /// A half message was stored. An earlier one of the same transaction is finished.
    pub fn add(&mut self, offset: u64, pending: Pending) {
        self.forget(pending.root);
        if offset != pending.root {
            self.moved.insert(pending.root, offset);
        }
        self.pending.insert(offset, pending);
    }

    /// The half message of a pending transaction is finished, whatever becomes of the transaction.
    pub fn forget(&mut self, root: u64) {
        if let Some((offset, _)) = self.find(root) {
            self.pending.remove(&offset);
            self.moved.remove(&root);
            self.untold.push_back(offset);
            self.untold_size += told_size(offset);
        }
    }

    pub fn finish(&mut self, root: u64, outcome: u8) {
        self.forget(root);
        self.remember(root, outcome);
    }

    pub fn remember(&mut self, root: u64, outcome: u8) {
        if self.recent.insert(root, outcome).is_none() {
            self.recent_order.push_back(root);
        }
        if self.recent_order.len() > self.bounds.recent_max {
            let oldest = self.recent_order.pop_front();
            oldest.and_then(|root| self.recent.remove(&root));
        }
    }

    /// Whether op messages are to be written: of all, or only those that are as long as they may be.
    fn is_to_be_told(&self, all: bool) -> bool {
        self.untold_size > 0 && (all || self.untold_size >= self.bounds.op_size_max)
    }

    /// The body of the next op message, how many it tells of, and the largest of these.
    fn next_op(&self) -> (Vec<u8>, usize, u64) {
        let (mut body, mut count, mut largest) = (Vec::new(), 0, 0);
        for &offset in &self.untold {
            if count > 0 && body.len() + told_size(offset) > self.bounds.op_size_max {
                break;
            }
            write_integer(&mut body, offset as i64);
            body.push(b',');
            count += 1;
            largest = largest.max(offset);
        }
        (body, count, largest)
    }

    fn note_told(&mut self, count: usize, op_offset: u64, largest: u64) {
        self.untold_size -= self.untold.drain(..count).map(told_size).sum::<usize>();
        self.told.push_back((op_offset, largest));
    }
}

/// Bytes of an offset in an op message.
fn told_size(offset: u64) -> usize {
    offset.checked_ilog10().unwrap_or(0) as usize + 2
}

/// What op messages were written: the end of the last one, 0 for none, and whether somebody waits for them.
#[derive(Default)]
struct Told {
    end: u64,
    watched: bool,
}

/// Write the op messages of the untold.
fn tell(state: &mut State, config: &Config, now: i64, all: bool) -> Result<Told> {
    let mut told = Told::default();
    while state.transactions.is_to_be_told(all) {
        let (body, count, largest) = state.transactions.next_op();
        let mut key = Vec::new();
        state.unique_keys.next(now, &mut key);
        let message = Message {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: now,
            born_host: &config.store_host,
            store_timestamp: now,
            store_host: &config.store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            topic: OP_TOPIC.as_bytes(),
            properties: &[b"TAGS\x01d\x02UNIQ_KEY\x01", &key, b"\x02"],
            crc_property: config.append_crc_property,
        };
        let keys = Keys { unique_key: Some(&key), keys: None, tags: Some(b"d") };
        let appended = state.append(None, &message, &keys, Kind::Inner)?;
        state.transactions.note_told(count, appended.queue_offset, largest);
        told = Told { end: appended.end, watched: told.watched || appended.watched };
    }
    Ok(told)
}

/// Whether a header is that of a decision about a transaction.
pub fn is_end(header: &Header) -> bool {
    header.flag & RESPONSE == 0 && header.code == END_TRANSACTION
}

struct End<'h> {
    group: &'h [u8],
    offset: u64,
    position: u64,
    commits: bool,
    /// Whether it answers a question of the broker's.
    was_asked: bool,
}

impl<'h> End<'h> {
    fn read(header: &'h Header, text: &'h [u8]) -> Option<Self> {
        let (mut group, mut message_id): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        let (mut offset, mut position, mut decision, mut was_asked) = (None, None, None, false);
        for (key, value) in header.fields(text) {
            match key {
                b"producerGroup" => group = value,
                b"tranStateTableOffset" => offset = value.and_then(integer),
                b"commitLogOffset" => position = value.and_then(integer),
                b"commitOrRollback" => decision = value.and_then(integer),
                b"msgId" => message_id = value,
                b"fromTransactionCheck" => was_asked = value.map_or(Some(false), truth)?,
                b"lo" | b"nsd" | b"oway" => drop(value.map_or(Some(false), truth)?),
                _ => {}
            }
        }
        message_id?;
        Some(Self {
            group: group?,
            offset: offset?.try_into().ok()?,
            position: position?.try_into().ok()?,
            commits: match i32::try_from(decision?).ok()? {
                record::TRANSACTION_COMMIT => true,
                record::TRANSACTION_ROLLBACK => false,
                _ => return None,
            },
            was_asked,
        })
    }
}

fn truth(text: &[u8]) -> Option<bool> {
    match text {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// End a transaction that is pending for certain, if that needs no decision of Python's, with the reply to `replies`. None
/// when it is still as it was, or has ended and that couldn't be told.
pub fn end(state: &mut State, config: &Config, arrival: &Arrival<'_>, replies: &mut Vec<u8>) -> Option<Stored> {
    let &Arrival { header, text, now, .. } = arrival;
    let wanted = End::read(header, text)?;
    let (file, at, _) = state.record_at(wanted.position)?;
    let half = Half::read(file.read(at))?;
    let (last_offset, pending) = state.transactions.find(half.root).filter(|(_, pending)| pending.sure)?;
    if (half.record.queue_offset as u64, half.group) != (wanted.offset, wanted.group)
        || (!wanted.was_asked && half.is_overdue(now, state.transactions.bounds.time_out))
        || !state.is_appendable()
    {
        return None;
    }
    // Of a topic that was deleted nothing is counted, which Python knows for certain.
    state.queues.topic(half.real_topic)?;
    let mut stored = Stored { end: 0, arrivals: Vec::new() };
    if wanted.commits && last_offset == wanted.offset {
        commit(state, config, &half, now, &mut stored)?;
    } else if wanted.commits {
        let (file, at, _) = state.record_at(pending.position)?;
        commit(state, config, &Half::read(file.read(at))?, now, &mut stored)?;
    }
    state.transactions.finish(half.root, if wanted.commits { COMMITTED } else { ROLLED_BACK });
    let seconds = now.saturating_sub(half.record.born_timestamp).max(0) as u64 / 1000;
    state.traffic.note_end(half.real_topic, wanted.commits, seconds);
    let is_awaited = header.flag & ONE_WAY == 0;
    // A rollback is nowhere but in op messages, so whoever hears of it has it there.
    match tell(state, config, now, is_awaited && !wanted.commits) {
        Ok(told) => {
            stored.end = stored.end.max(told.end);
            if told.watched {
                stored.arrivals.push((OP_TOPIC.to_owned(), 0));
            }
        }
        // Python hears of the same error when it says so again.
        Err(_) if is_awaited && !wanted.commits => return None,
        // What is untold stays so until the next try, whose error is told.
        Err(_) => {}
    }
    if is_awaited {
        write_reply(header, replies)?;
    }
    Some(stored)
}

/// Append a message to where its half message says that it belongs. None when that is for Python to do or to refuse.
fn commit(state: &mut State, config: &Config, half: &Half<'_>, now: i64, stored: &mut Stored) -> Option<()> {
    let topic = state.queues.topic(half.real_topic)?;
    let slot = topic.slot(half.real_queue_id);
    if half.is_special || !(0..topic.ordinary?.write_queues).contains(&half.real_queue_id) {
        return None;
    }
    let mut text = Vec::with_capacity(half.record.properties.len());
    half.write_committed(&mut text);
    let message = Message {
        queue_id: half.real_queue_id,
        flag: half.record.flag,
        sys_flag: half.record.sys_flag & !record::TRANSACTION | record::TRANSACTION_COMMIT,
        born_timestamp: half.record.born_timestamp,
        born_host: half.record.born_host,
        store_timestamp: now,
        store_host: &config.store_host,
        reconsume_times: half.record.reconsume_times,
        prepared_transaction_offset: half.record.position,
        body: half.record.body,
        topic: half.real_topic,
        properties: &[&text],
        crc_property: config.append_crc_property,
    };
    check_properties_size(message.properties_size()).ok().filter(|()| !record::is_like_torn(&text))?;
    let Appended { end, watched, .. } = state.append(slot, &message, &properties::keys(&text), Kind::Inner).ok()?;
    stored.end = end;
    if watched {
        stored.arrivals.push((String::from_utf8_lossy(half.real_topic).into_owned(), half.real_queue_id));
    }
    Some(())
}

fn write_reply(header: &Header, out: &mut Vec<u8>) -> Option<()> {
    let start = frame::begin(out, header.serializer);
    let ours = Ours { code: 0, opaque: header.opaque, flag: RESPONSE, remark: None };
    header::write(out, header.serializer, &ours, std::iter::empty()).ok()?;
    frame::end(&mut out[start..], 0, 0).then_some(())
}

/// (root, offset, position, since, immunity, whether it is sure).
type Row = (u64, u64, u64, i64, i64, bool);

fn row((offset, pending): (u64, Pending)) -> Row {
    let Pending { root, position, since, immunity, sure } = pending;
    (root, offset, position, since, immunity, sure)
}

/// The table as Python sees it.
#[pyclass(frozen, module = "rockmq._core")]
pub struct Transactions {
    shared: Arc<Open>,
}

#[pymethods]
impl Transactions {
    #[new]
    #[pyo3(signature = (store, *, begins, time_out_ms, pending_max, recent_max, op_size_max))]
    fn new(
        store: &Bound<'_, Store>,
        begins: bool,
        time_out_ms: i64,
        pending_max: usize,
        recent_max: usize,
        op_size_max: usize,
    ) -> Self {
        let shared = Arc::clone(&store.get().shared);
        let bounds = Bounds { begins, time_out: time_out_ms, pending_max, recent_max, op_size_max };
        shared.state().transactions = Table { bounds, ..Table::default() };
        Self { shared }
    }

    fn __len__(&self) -> usize {
        self.shared.state().transactions.pending.len()
    }

    fn get(&self, root: u64) -> Option<Row> {
        self.shared.state().transactions.find(root).map(row)
    }

    fn add(&self, root: u64, offset: u64, position: u64, since: i64, immunity_ms: i64, sure: bool) {
        let pending = Pending { root, position, since, immunity: immunity_ms, sure };
        self.shared.state().transactions.add(offset, pending);
    }

    fn confirm(&self, root: u64) {
        let mut state = self.shared.state();
        if let Some((offset, _)) = state.transactions.find(root) {
            state.transactions.pending.entry(offset).and_modify(|pending| pending.sure = true);
        }
    }

    fn forget(&self, root: u64) {
        self.shared.state().transactions.forget(root);
    }

    fn finish(&self, root: u64, outcome: u8) {
        self.shared.state().transactions.finish(root, outcome);
    }

    fn remember(&self, root: u64, outcome: u8) {
        self.shared.state().transactions.remember(root, outcome);
    }

    fn outcome(&self, root: u64) -> Option<u8> {
        self.shared.state().transactions.recent.get(&root).copied()
    }

    fn due(&self, begin: u64, end: u64, now: i64, carry_below: i64, count_max: usize) -> (Vec<Row>, u64) {
        let state = self.shared.state();
        let (mut found, mut next) = (Vec::new(), end);
        for (number, (&offset, &pending)) in state.transactions.pending.range(begin..end.max(begin)).enumerate() {
            if number == LOOKED_AT_MAX || found.len() == count_max {
                next = offset;
                break;
            }
            if now.saturating_sub(pending.since) > pending.immunity || (offset as i64) < carry_below {
                found.push(row((offset, pending)));
            }
        }
        (found, next)
    }

    fn topics(&self, begin: u64, count_max: usize) -> (Vec<(String, u64)>, Option<u64>) {
        let state = self.shared.state();
        let (mut counts, mut next) = (HashMap::<Vec<u8>, u64>::new(), None);
        for (number, (&offset, pending)) in state.transactions.pending.range(begin..).enumerate() {
            if number == count_max {
                next = Some(offset);
                break;
            }
            let Some((file, at, _)) = state.record_at(pending.position) else { continue };
            let topic = Half::read(file.read(at)).map(|half| half.real_topic.to_vec());
            *counts.entry(topic.unwrap_or_default()).or_default() += 1;
        }
        let named = counts.into_iter().map(|(topic, count)| (String::from_utf8_lossy(&topic).into_owned(), count));
        (named.collect(), next)
    }

    #[getter]
    fn oldest(&self) -> Option<i64> {
        self.shared.state().transactions.pending.values().map(|pending| pending.since).min()
    }

    #[getter]
    fn untold(&self) -> usize {
        self.shared.state().transactions.untold.len()
    }

    fn tell(&self, now: i64) -> Result<(u64, bool)> {
        let told = tell(&mut self.shared.state(), &self.shared.config, now, true)?;
        Ok((told.end, told.watched))
    }

    fn note_told(&self, op_offset: u64, largest: u64) {
        self.shared.state().transactions.note_told(0, op_offset, largest);
    }

    #[getter]
    fn progress(&self) -> (u64, u64) {
        let mut state = self.shared.state();
        let end = |topic| state.queues.existing(topic, 0).map_or(0, |queue| queue.next);
        let (half_end, op_end) = (end(HALF_TOPIC), end(OP_TOPIC));
        let table = &mut state.transactions;
        let half = table.pending.first_key_value().map_or(half_end, |(&offset, _)| offset);
        while table.told.front().is_some_and(|&(_, largest)| largest < half) {
            table.told.pop_front();
        }
        (half, table.told.front().map_or(op_end, |&(op, _)| op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(root: u64) -> Pending {
        Pending { root, position: 100 * root, since: 0, immunity: 0, sure: true }
    }

    #[test]
    fn a_transaction_is_found_by_its_root_wherever_its_last_half_message_is() {
        let mut table =
            Table { bounds: Bounds { recent_max: 2, op_size_max: 4, ..Bounds::default() }, ..Table::default() };
        for root in 0..4 {
            table.add(root, pending(root));
        }
        table.add(12, pending(1));
        assert_eq!(table.find(1), Some((12, pending(1))));
        assert_eq!(table.find(12), None, "that is no root");
        assert_eq!(table.untold, [1]);
        table.finish(1, COMMITTED);
        table.finish(0, ROLLED_BACK);
        table.finish(3, COMMITTED);
        assert_eq!((table.find(1), table.pending.len(), table.moved.len()), (None, 1, 0));
        assert_eq!((table.recent.get(&1), table.recent.get(&0), table.recent.get(&3)), (None, Some(&1), Some(&0)));
        assert_eq!((&table.untold, table.untold_size), (&VecDeque::from([1, 12, 0, 3]), 9));
        assert_eq!(table.next_op(), (b"1,".to_vec(), 1, 1));
        table.note_told(1, 0, 1);
        assert_eq!(table.next_op(), (b"12,".to_vec(), 1, 12));
        table.note_told(1, 1, 12);
        assert_eq!(table.next_op(), (b"0,3,".to_vec(), 2, 3));
        assert_eq!(table.untold_size, 4);
    }

    #[test]
    fn what_is_pending_takes_little_memory() {
        const COUNT: u64 = 100_000;
        let mut table = Table::default();
        crate::fuzz::within(COUNT as usize * 110, || (0..COUNT).for_each(|root| table.add(root, pending(root))));
        assert_eq!(table.pending.len() as u64, COUNT);
    }

    #[test]
    fn sizes_in_op_messages_are_those_written() {
        for offset in [0, 9, 10, 99, 100, i64::MAX as u64] {
            assert_eq!(told_size(offset), format!("{offset},").len());
        }
    }
}
