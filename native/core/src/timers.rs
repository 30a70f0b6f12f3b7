//! Timers: messages of the queue of timers on their way through the wheel (TimerMessageStore.java; see `timer_log` and
//! `timer_wheel` for the files).
//!
//! A message that is to be delivered later lies in the timer topic's queue. `enqueue` reads that queue and gives each message
//! a unit in the timer log, which is linked into the slot of its time. When that has come, `open_slot` collects the units of
//! the slot, and `due` hands their messages out, less those that another one in the slot deletes.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

use pyo3::{prelude::*, types::PyBytes};

use crate::{
    error::{value, At, Error, Result},
    get::{self, status, Request},
    mapped_file::MappedFile,
    properties,
    record::{self, Record},
    store::{Open, Store},
    timer_log::{TimerLog, Unit, DELETE, ROLL, USUAL},
    timer_wheel::{write_pages, Slot, TimerWheel, SLOTS},
};

pub const TOPIC: &str = "rmq_sys_wheel_timer";
/// Milliseconds.
const STEP_MAX: i64 = 1000;
const LOOKED_AT_MAX: u64 = 1024;

/// What a message in the timer topic says about itself.
struct Wish<'r> {
    due: i64,
    real_topic: &'r [u8],
    deletes: Option<&'r [u8]>,
    unique_key: &'r [u8],
    /// How often it was stored anew.
    rolls: u32,
}

impl<'r> Wish<'r> {
    fn of(record: &Record<'r>) -> Option<Self> {
        let mut due = None;
        let mut wish = Self { due: 0, real_topic: b"", deletes: None, unique_key: b"", rolls: 0 };
        for (name, value) in properties::items(record.properties) {
            match name {
                b"TIMER_OUT_MS" => due = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
                b"TIMER_DEL_UNIQKEY" => wish.deletes = Some(value),
                b"REAL_TOPIC" => wish.real_topic = value,
                b"UNIQ_KEY" => wish.unique_key = value,
                b"TIMER_ROLL_TIMES" => {
                    wish.rolls = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                }
                _ => {}
            }
        }
        // A time is at least 0 and far from the end of numbers, or it couldn't be counted with.
        wish.due = due.filter(|due| (0..=i64::MAX / 4).contains(due))?;
        (!wish.real_topic.is_empty()).then_some(wish)
    }

    /// How a message that deletes this one names it.
    fn name(&self) -> Vec<u8> {
        [self.real_topic, b"+", self.unique_key].concat()
    }

    /// What only the copies of this message have in common that were stored anew `rolls` times.
    fn copy(&self, rolls: u32) -> Vec<u8> {
        let (due, rolls, kind) = (self.due.to_be_bytes(), rolls.to_be_bytes(), [u8::from(self.deletes.is_some())]);
        [&due[..], &rolls, &kind, &self.name()].concat()
    }
}

/// A slot whose messages are being handed out.
struct Opened {
    time: i64,
    /// Positions of units: those that delete, then the others, the oldest first.
    units: Vec<u64>,
    next: usize,
    /// Units of the last batch.
    handed: Vec<u64>,
    /// What is deleted, by whom (their topics), and whether it was there.
    deleted: HashMap<Vec<u8>, (String, bool)>,
    delete_units: usize,
}

struct Wheel {
    log: TimerLog,
    wheel: TimerWheel,
    /// Steps.
    window: i64,
    opened: Option<Opened>,
    /// Whether the files that were found make no log.
    damaged: bool,
    /// Whether the wheel's file was found whole.
    intact: bool,
    /// Positions of messages that came late and still waited when `late` looked, before all was made anew.
    late: HashSet<i64>,
    /// When the queue is read again: copies in whose place another came, how many of each, and the end of what was looked at.
    replaced: HashMap<Vec<u8>, u32>,
    replaced_end: u64,
}

/// By real topic, how many more messages are pending.
type Counts = Vec<(String, i64)>;

/// A message to be put where it belongs.
struct Item {
    record: Vec<u8>,
    write_time: i64,
    rolls: bool,
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Timers {
    shared: Arc<Open>,
    /// Locked before the store's state.
    inner: Mutex<Wheel>,
    /// One flush at a time.
    flushing: Mutex<()>,
}

impl Timers {
    fn inner(&self) -> MutexGuard<'_, Wheel> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue_from(
        &self,
        offset: u64,
        count_max: u64,
        limit: u64,
        (read_time, write_time): (i64, i64),
        delivered: (u64, i64),
    ) -> Result<(u64, u64, u64, Counts)> {
        let mut inner = self.inner();
        let got = get::get(&self.shared, &request(offset, count_max, limit))?;
        if got.status == status::NO_MATCHED_LOGIC_QUEUE {
            return Ok((offset, 0, 0, Vec::new()));
        }
        let mut counts = HashMap::<&[u8], i64>::new();
        let (mut next, mut placed, mut unreadable) = (got.next, 0, 0);
        let mut failed = None;
        'runs: for run in &got.runs {
            let mut rest = got.bytes(run);
            while let Some(record) = record::decode(rest) {
                rest = &rest[record.size..];
                let at = record.queue_offset as u64;
                let Some(wish) = Wish::of(&record) else {
                    unreadable += 1;
                    continue;
                };
                let was_read = at < delivered.0 && wish.due < delivered.1;
                if was_read && !inner.late.contains(&record.position) {
                    continue;
                }
                if inner.is_replaced(at, &wish) {
                    continue;
                }
                match inner.place(&record, &wish, read_time, write_time) {
                    Ok(Some(weight)) => {
                        inner.late.remove(&record.position);
                        *counts.entry(wish.real_topic).or_default() += i64::from(weight);
                    }
                    // It has to wait for its slot, and with it all behind it.
                    Ok(None) => {
                        next = at;
                        break 'runs;
                    }
                    Err(error) => {
                        (next, failed) = (at, Some(error));
                        break 'runs;
                    }
                }
                placed += 1;
            }
        }
        if next >= inner.replaced_end {
            inner.replaced = HashMap::new();
        }
        match failed.filter(|_| next == offset) {
            Some(error) => Err(error),
            None => {
                Ok((next, placed, unreadable, counts.into_iter().map(|(topic, count)| (text(topic), count)).collect()))
            }
        }
    }
}

#[pymethods]
impl Timers {
    #[new]
    #[pyo3(signature = (store, wheel, log_directory, *, file_size, step_ms, window))]
    fn new(
        py: Python<'_>,
        store: &Store,
        wheel: PathBuf,
        log_directory: PathBuf,
        file_size: u64,
        step_ms: i64,
        window: i64,
    ) -> Result<Self> {
        if !(1..=STEP_MAX).contains(&step_ms) || !(1..=SLOTS / 2).contains(&window) {
            return value(format!("a wheel can't have steps of {step_ms} ms and a window of {window} steps"));
        }
        let shared = Arc::clone(&store.shared);
        let inner = py.detach(|| {
            let (log, damaged) = TimerLog::open(log_directory, file_size)?;
            let (wheel, intact) = TimerWheel::open(wheel, step_ms)?;
            Ok::<_, Error>(Wheel::new(log, wheel, window, damaged, intact))
        })?;
        Ok(Self { shared, inner: Mutex::new(inner), flushing: Mutex::new(()) })
    }

    fn recover(&self, py: Python<'_>, flushed: u64, read_time: i64) -> Result<(u64, Option<u64>, bool)> {
        py.detach(|| {
            let (log_min, log_max) = {
                let state = self.shared.state();
                (state.log.min().min(state.log.max()), state.log.max())
            };
            let mut inner = self.inner();
            let (end, agrees) = inner.recover(flushed, read_time, |unit| {
                let is_gone = (unit.position as u64) < log_min;
                is_gone || ((unit.position as u64) < log_max && stored(&self.shared, unit).is_some())
            })?;
            let last = inner.log.before(end).and_then(|position| inner.log.unit(position));
            let offset = last.and_then(|unit| {
                let (file, at, _) = stored(&self.shared, &unit)?;
                Some(record::decode(file.read(at))?.queue_offset as u64 + 1)
            });
            Ok((end, offset, agrees))
        })
    }

    fn late(&self, py: Python<'_>, read_time: i64) -> Option<i64> {
        py.detach(|| {
            let mut inner = self.inner();
            inner.late = inner.late(read_time);
            let dues = inner.late.iter().filter_map(|&position| {
                let (file, at, _) = self.shared.state().record_at(position as u64)?;
                Some(Wish::of(&record::decode(file.read(at))?)?.due)
            });
            dues.min()
        })
    }

    fn remake(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.inner().remake())
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (offset, count_max, limit, *, read_time, write_time, delivered))]
    fn enqueue(
        &self,
        py: Python<'_>,
        offset: u64,
        count_max: u64,
        limit: u64,
        read_time: i64,
        write_time: i64,
        delivered: (u64, i64),
    ) -> Result<(u64, u64, u64, Counts)> {
        py.detach(|| self.enqueue_from(offset, count_max, limit, (read_time, write_time), delivered))
    }

    fn look_ahead(&self, py: Python<'_>, offset: u64, end: u64, limit: u64) -> Result<()> {
        py.detach(|| {
            let (mut offset, mut replaced) = (offset, HashMap::<Vec<u8>, u32>::new());
            while offset < end {
                let got = get::get(&self.shared, &request(offset, LOOKED_AT_MAX, limit))?;
                for run in &got.runs {
                    let mut rest = got.bytes(run);
                    while let Some(record) = record::decode(rest) {
                        rest = &rest[record.size..];
                        let wish = Wish::of(&record).filter(|wish| wish.rolls > 0 && !wish.unique_key.is_empty());
                        if let Some(wish) = wish {
                            *replaced.entry(wish.copy(wish.rolls - 1)).or_default() += 1;
                        }
                    }
                }
                if got.status == status::NO_MATCHED_LOGIC_QUEUE || got.next <= offset {
                    break;
                }
                offset = got.next;
            }
            let mut inner = self.inner();
            (inner.replaced, inner.replaced_end) = (replaced, end);
            Ok(())
        })
    }

    fn count(&self, time: i64) -> i32 {
        self.inner().wheel.slot(time).map_or(0, |slot| slot.count)
    }

    fn count_between(&self, from_time: i64, to_time: i64) -> Option<i64> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (mut count, mut time) = (0, inner.wheel.next(from_time, to_time));
        while time < to_time {
            count += inner.wheel.slot(time).map_or(0, |slot| i64::from(slot.count));
            time = inner.wheel.next(time + inner.wheel.step, to_time);
        }
        Some(count)
    }

    fn next_time(&self, from_time: i64, to_time: i64) -> i64 {
        self.inner().wheel.next(from_time, to_time)
    }

    fn open_slot(&self, py: Python<'_>, time: i64) -> (usize, bool) {
        py.detach(|| self.inner().open(time))
    }

    #[allow(clippy::type_complexity)]
    fn due<'py>(
        &self,
        py: Python<'py>,
        count_max: usize,
        bytes_max: usize,
    ) -> (Vec<(Bound<'py, PyBytes>, i64, bool)>, bool, u64, Counts) {
        let (items, done, lost, counts) = py.detach(|| self.inner().due(&self.shared, count_max, bytes_max));
        let records = items.iter().map(|item| (PyBytes::new(py, &item.record), item.write_time, item.rolls));
        (records.collect(), done, lost, counts)
    }

    fn give_back(&self, py: Python<'_>, undelivered: usize, write_time: i64) -> Result<()> {
        py.detach(|| self.inner().give_back(undelivered, write_time))
    }

    fn erase(&self, py: Python<'_>, from_time: i64, to_time: i64) {
        py.detach(|| self.inner().wheel.erase(from_time, to_time));
    }

    fn flush(&self, py: Python<'_>) -> Result<u64> {
        py.detach(|| {
            let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut inner = self.inner();
            let (files, end) = (inner.log.unforced(), inner.log.end());
            let (pages, path) = (inner.wheel.take_dirty(), inner.wheel.path.clone());
            drop(inner);
            let forced = files
                .iter()
                .try_for_each(|(file, from, to)| file.sync(*from, *to).at("sync", &file.path).map_err(Error::of_sync));
            let written = forced.and_then(|()| write_pages(&path, &pages));
            let mut inner = self.inner();
            match written {
                Ok(()) => inner.log.set_forced(end),
                Err(_) => inner.wheel.put_back_dirty(&pages),
            }
            written.map(|()| end)
        })
    }

    fn delete_below(&self, py: Python<'_>, position: u64) -> Result<Vec<String>> {
        let paths = py.detach(|| self.inner().log.delete_below(position))?;
        Ok(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }
}

impl Wheel {
    fn new(log: TimerLog, wheel: TimerWheel, window: i64, damaged: bool, intact: bool) -> Self {
        Self {
            log,
            wheel,
            window,
            opened: None,
            damaged,
            intact,
            late: HashSet::new(),
            replaced: HashMap::new(),
            replaced_end: 0,
        }
    }

    /// Find the log's end, and bring the wheel to it: (end, whether they agree). At the end, units without a message (a power
    /// cut, with async flush) are cut off. Where they don't agree only the queue tells what waits: all is to be made anew.
    fn recover(&mut self, flushed: u64, read_time: i64, has_message: impl Fn(&Unit) -> bool) -> Result<(u64, bool)> {
        self.log.tidy()?;
        let known = flushed <= self.log.end() && self.log.min() <= flushed;
        let start = if known { self.log.base_of(flushed) } else { self.log.min() };
        let mut end = self.log.scan(start, |_, _| {});
        while let Some(before) =
            self.log.before(end).filter(|&at| !self.log.unit(at).is_some_and(|unit| has_message(&unit)))
        {
            end = before;
        }
        self.log.cut(end, if known { flushed } else { 0 })?;
        let agrees = !self.damaged && self.agrees(start, flushed, end, read_time);
        if agrees {
            self.link_from(start, flushed, read_time);
        }
        Ok((end, agrees))
    }

    /// Begin anew, with nothing.
    fn remake(&mut self) -> Result<()> {
        self.opened = None;
        self.log.clear()?;
        self.wheel.clear();
        (self.damaged, self.intact) = (false, true);
        Ok(())
    }

    /// Positions of messages that may wait in slots behind their times, as they came to the wheel late. That they were due
    /// before `read_time` doesn't say they were delivered.
    fn late(&self, read_time: i64) -> HashSet<i64> {
        // They got the slot that was read next, or the one behind it.
        let is_late = |unit: &Unit| unit.time() >= read_time && i64::from(unit.delay) <= STEP_MAX;
        self.log.units().filter(is_late).map(|unit| unit.position).collect()
    }

    /// Whether the wheel leads to units that there are, and to all those that were flushed with it.
    fn agrees(&self, start: u64, flushed: u64, end: u64, read_time: i64) -> bool {
        if !self.intact {
            // It was never written. An empty one agrees.
            return flushed == 0 && start == 0 && !self.wheel.path.exists();
        }
        if flushed > end || !self.wheel.fits(read_time) {
            return false;
        }
        let there = self.log.min() as i64..end as i64;
        if !self.wheel.pending(read_time).all(|(_, slot)| there.contains(&slot.first) && there.contains(&slot.last)) {
            return false;
        }
        let mut agrees = true;
        self.log.scan(start, |position, unit| {
            if position < flushed && unit.time() >= read_time {
                agrees &=
                    self.wheel.slot(unit.time()).is_some_and(|slot| slot.last >= position as i64 || slot.last == -1);
            }
        });
        agrees
    }

    /// Link the units from `start` on that are pending and aren't linked. Those below `flushed` were, before their slot was
    /// emptied.
    fn link_from(&mut self, start: u64, flushed: u64, read_time: i64) {
        let wheel = &mut self.wheel;
        self.log.scan(start, |position, unit| {
            let time = unit.time();
            let is_new = |slot: Slot| slot.last < position as i64 && (slot.last >= 0 || position >= flushed);
            if time >= read_time && wheel.slot(time).is_none_or(is_new) {
                wheel.link(time, position, unit.weight(), unit.previous < 0);
            }
        });
    }

    /// Whether a message was stored anew, behind this copy of it: each later copy takes the place of one.
    fn is_replaced(&mut self, at: u64, wish: &Wish<'_>) -> bool {
        if self.replaced.is_empty() || at >= self.replaced_end {
            return false;
        }
        match self.replaced.get_mut(&wish.copy(wish.rolls)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Give a message a unit: how much it weighs; None when the wheel has no slot for it yet.
    fn place(&mut self, record: &Record<'_>, wish: &Wish<'_>, read_time: i64, write_time: i64) -> Result<Option<i32>> {
        let step = self.wheel.step;
        let window = self.window * step;
        let (mut time, mut magic) = (wish.due, USUAL);
        if wish.due - write_time >= window {
            magic |= ROLL;
            // The last way is not to be a short one.
            let is_last = wish.due - write_time - window < self.window / 3 * step;
            time = write_time + if is_last { self.window / 2 * step } else { window };
        }
        if wish.deletes.is_some() {
            magic |= DELETE;
        }
        // What is late goes into the next slot that is read.
        time = time.max(read_time).div_euclid(step) * step;
        if time.saturating_sub(read_time) >= (SLOTS - 1) * step {
            return Ok(None);
        }
        let (write_time, delay) = match i32::try_from(time - write_time) {
            Ok(delay) => (write_time, delay),
            Err(_) => (time, 0),
        };
        let unit = Unit {
            previous: -1,
            magic,
            write_time,
            delay,
            position: record.position,
            size: record.size as i32,
            topic_hash: properties::java_hash(0, wish.real_topic),
        };
        self.append(unit).map(Some)
    }

    /// Append a unit to the chain of its slot: how much it weighs.
    fn append(&mut self, mut unit: Unit) -> Result<i32> {
        let time = unit.time();
        unit.previous = self.wheel.slot(time).map_or(-1, |slot: Slot| slot.last);
        let position = self.log.append(&unit)?;
        self.wheel.link(time, position, unit.weight(), unit.previous < 0);
        Ok(unit.weight())
    }

    /// Positions of the units of a slot that delete, and of the others, the oldest first; and whether all of them were there.
    fn chain(&self, time: i64) -> (Vec<u64>, Vec<u64>, bool) {
        let (mut deletes, mut others) = (Vec::new(), Vec::new());
        let mut at = self.wheel.slot(time).map_or(-1, |slot| slot.last);
        let mut whole = true;
        while let Ok(position) = u64::try_from(at) {
            let Some(unit) = self.log.unit(position).filter(|unit| unit.previous < at) else {
                whole = false;
                break;
            };
            if unit.deletes() { &mut deletes } else { &mut others }.push(position);
            at = unit.previous;
        }
        deletes.reverse();
        others.reverse();
        (deletes, others, whole)
    }

    fn open(&mut self, time: i64) -> (usize, bool) {
        let (mut units, others, whole) = self.chain(time);
        let delete_units = units.len();
        units.extend(others);
        let count = units.len();
        let (handed, deleted) = (Vec::new(), HashMap::new());
        self.opened = Some(Opened { time, units, next: 0, handed, deleted, delete_units });
        (count, whole)
    }

    /// The next messages of the slot that is open: (messages, whether these are the last, how many aren't in the commit log,
    /// corrections of the counts).
    fn due(&mut self, shared: &Open, count_max: usize, bytes_max: usize) -> (Vec<Item>, bool, u64, Counts) {
        let (mut items, mut lost, mut counts) = (Vec::new(), 0, HashMap::<String, i64>::new());
        let Some(opened) = &mut self.opened else { return (items, true, 0, Vec::new()) };
        opened.handed.clear();
        let (mut bytes, mut looked_at) = (0, 0);
        // Deleted ones cost time too.
        while opened.next < opened.units.len()
            && items.len() < count_max
            && bytes < bytes_max
            && looked_at < 10 * count_max
        {
            let position = opened.units[opened.next];
            opened.next += 1;
            looked_at += 1;
            let Some(unit) = self.log.unit(position) else { continue };
            let Some((file, at, size)) = stored(shared, &unit) else {
                lost += 1;
                continue;
            };
            let Some(record) = record::decode(file.read(at)) else { continue };
            let Some(wish) = Wish::of(&record) else { continue };
            if unit.deletes() {
                if let Some(name) = wish.deletes {
                    opened.deleted.insert(name.to_vec(), (text(wish.real_topic), false));
                }
                continue;
            }
            if !opened.deleted.is_empty() {
                let name = wish.name();
                // Brokers before 5.5 put the topic before the key.
                let found = if opened.deleted.contains_key(&name) { &name[..] } else { wish.unique_key };
                if let Some((_, was_there)) = opened.deleted.get_mut(found) {
                    *was_there = true;
                    continue;
                }
            }
            let (write_time, rolls) = (unit.write_time, unit.rolls());
            bytes += size;
            opened.handed.push(position);
            items.push(Item { record: record.bytes.to_vec(), write_time, rolls });
        }
        let done = opened.next == opened.units.len();
        if done {
            // What deleted nothing was counted all the same.
            for (topic, was_there) in opened.deleted.values_mut() {
                if !std::mem::replace(was_there, true) {
                    *counts.entry(topic.clone()).or_default() += 1;
                }
            }
        }
        (items, done, lost, counts.into_iter().collect())
    }

    /// Put what is left of the open slot, and the last `undelivered` messages handed out, into a chain of their own, with all
    /// that delete: at the next start nothing is delivered twice.
    fn give_back(&mut self, undelivered: usize, write_time: i64) -> Result<()> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        let handed = &opened.handed[opened.handed.len().saturating_sub(undelivered)..];
        let rest = &opened.units[opened.next.max(opened.delete_units)..];
        let units = opened.units[..opened.delete_units].iter().chain(handed).chain(rest);
        let units: Vec<Unit> = units.filter_map(|&position| self.log.unit(position)).collect();
        let mut slot: Option<Slot> = None;
        if !handed.is_empty() || !rest.is_empty() {
            for unit in units {
                let delay = i32::try_from(opened.time - write_time);
                let (write_time, delay) = delay.map_or((opened.time, 0), |delay| (write_time, delay));
                let previous = slot.map_or(-1, |slot| slot.last);
                // If there is no room the slot stays as it is, and is delivered once more.
                let last = self.log.append(&Unit { previous, write_time, delay, ..unit })? as i64;
                let (first, count) = slot.map_or((last, 0), |slot| (slot.first, slot.count));
                slot = Some(Slot { first, last, count: count + unit.weight() });
            }
        }
        match slot {
            Some(slot) => self.wheel.set(opened.time, slot),
            None => self.wheel.erase(opened.time, opened.time + 1),
        }
        Ok(())
    }
}

/// Units of the wheel's slots from a time on, the earliest first, and how many more there are: (time of the slot, position in
/// the commit log, size, when it was written, flags). For a store that nobody has open.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn pending_timers(
    py: Python<'_>,
    wheel: PathBuf,
    log_directory: PathBuf,
    file_size: u64,
    step_ms: i64,
    from_time: i64,
    count_max: usize,
) -> Result<(Vec<(i64, u64, i32, i64, i32)>, u64)> {
    if !(1..=STEP_MAX).contains(&step_ms) {
        return value(format!("a wheel can't have steps of {step_ms} ms"));
    }
    py.detach(|| {
        let (log, damaged) = TimerLog::open(log_directory, file_size)?;
        let (wheel, intact) = TimerWheel::open(wheel, step_ms)?;
        let wheel = Wheel::new(log, wheel, 1, damaged, intact);
        let (mut units, mut more) = (Vec::new(), 0);
        for (time, _) in wheel.wheel.pending(from_time) {
            let (deletes, others, _) = wheel.chain(time);
            for unit in deletes.iter().chain(&others).filter_map(|&position| wheel.log.unit(position)) {
                if units.len() < count_max {
                    units.push((time, unit.position as u64, unit.size, unit.write_time, unit.magic));
                } else {
                    more += 1;
                }
            }
        }
        Ok((units, more))
    })
}

/// What gets messages of the queue of timers, of records that end at or below `limit`.
fn request(offset: u64, count_max: u64, limit: u64) -> Request<'static> {
    let (offset, bytes_max) = (offset as i64, u64::MAX >> 1);
    Request { topic: TOPIC, queue_id: 0, offset, count_max, bytes_max, limit, tags: None, filter: None, far: None }
}

/// Where the message of a unit lies.
fn stored(shared: &Open, unit: &Unit) -> Option<(Arc<MappedFile>, usize, usize)> {
    shared.state().record_at(unit.position as u64).filter(|&(_, _, size)| size == unit.size as usize)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const STEP: i64 = 1000;
    const START: i64 = 1_700_000_000_000;
    const FILE_SIZE: u64 = 52 * 7 + 16 + 5;

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            use std::sync::atomic::{AtomicU64, Ordering};
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("rockmq-timers-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn opened(directory: &Path) -> Wheel {
        let (log, damaged) = TimerLog::open(directory.join("timerlog"), FILE_SIZE).unwrap();
        let (wheel, intact) = TimerWheel::open(directory.join("timerwheel"), STEP).unwrap();
        Wheel::new(log, wheel, 100, damaged, intact)
    }

    /// What `Timers::flush` does.
    fn flush(wheel: &mut Wheel) -> u64 {
        let pages = wheel.wheel.take_dirty();
        write_pages(&wheel.wheel.path, &pages).unwrap();
        wheel.log.set_forced(wheel.log.end());
        wheel.log.end()
    }

    fn unit(slot: i64, position: i64, magic: i32) -> Unit {
        let delay = (slot * STEP) as i32;
        Unit { previous: -1, magic, write_time: START, delay, position, size: 100, topic_hash: 7 }
    }

    /// Positions of the messages of a slot, those that delete first.
    fn messages(wheel: &Wheel, slot: i64) -> Vec<i64> {
        let (deletes, others, whole) = wheel.chain(START + slot * STEP);
        assert!(whole);
        deletes.iter().chain(&others).map(|&at| wheel.log.unit(at).unwrap().position).collect()
    }

    type Model = BTreeMap<i64, (Vec<i64>, Vec<i64>)>;

    fn check(wheel: &Wheel, model: &Model) {
        let expected: BTreeMap<i64, Vec<i64>> =
            model.iter().map(|(&slot, (deletes, others))| (slot, [&deletes[..], &others[..]].concat())).collect();
        let found: BTreeMap<i64, Vec<i64>> = wheel
            .wheel
            .pending(START)
            .map(|(time, _)| (time - START) / STEP)
            .map(|slot| (slot, messages(wheel, slot)))
            .collect();
        assert_eq!(found, expected);
        for (&slot, (deletes, others)) in model {
            let count = wheel.wheel.slot(START + slot * STEP).unwrap().count;
            assert_eq!(count, others.len() as i32 - deletes.len() as i32);
        }
    }

    #[derive(Debug, Clone)]
    enum Act {
        Add(i64, bool),
        Flush,
        /// Read the first slot; true: erase it too.
        Read(bool),
        /// End as if killed, with the wheel's file as it was last flushed; or without the file.
        Kill(bool),
        Close(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            8 => (0..6i64, any::<bool>()).prop_map(|(slot, deletes)| Act::Add(slot, deletes)),
            1 => Just(Act::Flush),
            1 => any::<bool>().prop_map(Act::Read),
            1 => any::<bool>().prop_map(Act::Kill),
            1 => (0..4usize).prop_map(Act::Close),
        ];
        vec(act, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

        /// Wheel and log against a map, over kills, lost wheels, and stops in the middle of a slot.
        #[test]
        fn slots_hold_what_was_put_into_them(acts in acts()) {
            let directory = Directory::new();
            let mut wheel = opened(&directory.0);
            wheel.recover(0, START, |_| true).unwrap();
            let (mut model, mut flushed, mut read_time, mut position) = (Model::new(), 0, START, 0);
            for act in acts {
                match act {
                    Act::Add(slot, deletes) => {
                        let slot = slot.max((read_time - START) / STEP);
                        position += 100;
                        wheel.append(unit(slot, position, if deletes { USUAL | DELETE } else { USUAL })).unwrap();
                        let entry = model.entry(slot).or_default();
                        if deletes { &mut entry.0 } else { &mut entry.1 }.push(position);
                    }
                    Act::Flush => flushed = flush(&mut wheel),
                    Act::Read(erase) => {
                        let Some((slot, _)) = model.pop_first() else { continue };
                        let before = read_time;
                        read_time = START + (slot + 1) * STEP;
                        flushed = flush(&mut wheel);
                        if erase {
                            wheel.wheel.erase(before, read_time);
                        }
                    }
                    Act::Kill(loses_wheel) => {
                        drop(wheel);
                        if loses_wheel {
                            let _ = fs::remove_file(directory.0.join("timerwheel"));
                        }
                        wheel = opened(&directory.0);
                        let (end, agrees) = wheel.recover(flushed, read_time, |_| true).unwrap();
                        prop_assert!(end >= flushed);
                        prop_assert!(agrees || loses_wheel);
                        if !agrees {
                            wheel.remake().unwrap();
                            for (&slot, (deletes, others)) in &model {
                                for (positions, magic) in [(deletes, USUAL | DELETE), (others, USUAL)] {
                                    for &position in positions {
                                        wheel.append(unit(slot, position, magic)).unwrap();
                                    }
                                }
                            }
                        }
                        flushed = flush(&mut wheel);
                    }
                    Act::Close(delivered) => {
                        let Some((&slot, _)) = model.first_key_value() else { continue };
                        let (count, whole) = wheel.open(START + slot * STEP);
                        prop_assert!(whole);
                        let (deletes, others) = model.get_mut(&slot).unwrap();
                        prop_assert_eq!(count, deletes.len() + others.len());
                        let delivered = delivered.min(others.len());
                        let opened = wheel.opened.as_mut().unwrap();
                        opened.next = deletes.len() + delivered;
                        wheel.give_back(0, START).unwrap();
                        others.drain(..delivered);
                        if others.is_empty() {
                            model.remove(&slot);
                        }
                        flushed = flush(&mut wheel);
                    }
                }
                if read_time == START {
                    check(&wheel, &model);
                }
                for &slot in model.keys() {
                    let expected = &model[&slot];
                    prop_assert_eq!(messages(&wheel, slot), [&expected.0[..], &expected.1[..]].concat());
                }
            }
        }

        /// Whatever lies in the files, opening them ends, and what is pending can be read.
        #[test]
        fn damaged_files_are_found_out(
            slots in vec(0..6i64, 1..40),
            wheel_damage in vec((0..8usize, any::<u8>()), 0..6),
            log_damage in vec((0..FILE_SIZE as usize, any::<u8>()), 0..6),
            cut in 0..3usize,
        ) {
            let directory = Directory::new();
            let mut wheel = opened(&directory.0);
            for (number, &slot) in slots.iter().enumerate() {
                wheel.append(unit(slot, number as i64 * 100, USUAL)).unwrap();
            }
            let flushed = flush(&mut wheel);
            let place = (START / STEP).rem_euclid(SLOTS) as u64 * 32;
            drop(wheel);
            use std::os::unix::fs::FileExt;
            let file = fs::OpenOptions::new().write(true).open(directory.0.join("timerwheel")).unwrap();
            for (at, byte) in wheel_damage {
                file.write_all_at(&[byte], place + 8 + at as u64 * 4).unwrap();
            }
            let logs: Vec<_> = fs::read_dir(directory.0.join("timerlog")).unwrap().map(|entry| entry.unwrap().path()).collect();
            for (at, byte) in log_damage {
                let file = fs::OpenOptions::new().write(true).open(&logs[at % logs.len()]).unwrap();
                file.write_all_at(&[byte], at as u64).unwrap();
            }
            match cut {
                1 => fs::remove_file(&logs[0]).unwrap(),
                2 => fs::OpenOptions::new().write(true).open(&logs[0]).unwrap().set_len(100).unwrap(),
                _ => {}
            }
            let mut wheel = opened(&directory.0);
            let (end, agrees) = wheel.recover(flushed, START, |_| true).unwrap();
            prop_assert!(end <= wheel.log.end());
            if !agrees {
                wheel.remake().unwrap();
            }
            for (time, _) in wheel.wheel.pending(START).collect::<Vec<_>>() {
                let (deletes, others, _) = wheel.chain(time);
                prop_assert!(deletes.len() + others.len() <= slots.len());
            }
            wheel.append(unit(3, 1, USUAL)).unwrap();
            let (_, others, _) = wheel.chain(START + 3 * STEP);
            prop_assert_eq!(wheel.log.unit(*others.last().unwrap()).unwrap().position, 1);
        }
    }
}
