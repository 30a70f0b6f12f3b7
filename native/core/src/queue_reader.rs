//! The messages of one queue of a store that nobody need have opened, checked one by one; writes nothing.
//!
//! Reading is by `pread`, not by a map: a file that was cut short or a bad sector is an error that can be told here, and a
//! SIGBUS there. Records that lie together are read together. Pages that weren't in memory before are let go of afterwards,
//! so that a broker beside us keeps its own.

use std::{
    collections::{btree_map::Entry as Slot, BTreeMap},
    fs::File,
    io,
    path::PathBuf,
    sync::Mutex,
};

use memmap2::{MmapOptions, MmapRaw};
use pyo3::{prelude::*, types::PyBytes};
use rustix::fs::{fadvise, Advice};

use crate::{
    batch_queue::Unit,
    check::{check_sizes, lock},
    consume_queue::{self, Entry},
    error::{self, At, Result},
    filter::Filter,
    light,
    log_directories::LogDirectories,
    mapped_file,
    queue_files::{self, QueueFiles},
    record::{self, Crc, Record},
    recover::is_zero,
    walk::{read_all, RECORD_MAX},
};

/// Bytes of log read at a time, unless a record is larger.
const SPAN_MAX: u64 = 1 << 20;
/// Records that lie no further apart are read together: so much costs less than another call.
const GAP_MAX: u64 = 16 << 10;
/// Log files opened ahead.
const HELD_MAX: usize = 256;
/// Bytes of a record up to its store timestamp, with the longer host.
const HEAD: usize = 76;
const BORN_HOST_AT: usize = 48;
const SYS_FLAG_AT: usize = 36;

/// What a queue says of a record: where it is, and which offsets it has.
#[derive(Clone, Copy)]
struct Place {
    entry: Entry,
    first: u64,
    next: u64,
}

struct LogFile {
    path: PathBuf,
    file: File,
    /// Only to ask which pages are in memory.
    map: Option<MmapRaw>,
}

struct Reader {
    files: QueueFiles,
    is_batch: bool,
    topic: String,
    id: i32,
    log: LogDirectories,
    log_file_size: u64,
    /// By first position.
    held: BTreeMap<u64, LogFile>,
    span: Vec<u8>,
}

/// What `read` has found. `gone` is the position of the record at `next`, whose log file isn't there.
struct Found {
    next: u64,
    records: Vec<u8>,
    faults: Vec<String>,
    gone: Option<u64>,
}

struct Wanted<'w> {
    offset: u64,
    end: u64,
    count_max: u64,
    bytes_max: usize,
    tags: Option<&'w [i32]>,
    filter: Option<&'w Filter>,
}

impl Reader {
    /// Places from number `index` on, `count` at most: as many as lie in one file.
    fn places(&self, index: u64, count: u64) -> Result<Vec<Place>> {
        let bytes = self.files.read(&self.topic, self.id, index, count);
        let bytes = bytes.at("read a queue in", &self.files.directory(&self.topic, self.id))?;
        let units = bytes.chunks_exact(self.files.unit as usize);
        Ok(if self.is_batch {
            let place = |unit: Unit| Place { entry: unit.entry, first: unit.first as u64, next: unit.next() };
            units.map_while(Unit::read).map(place).collect()
        } else {
            let place = |(entry, first): (Entry, u64)| Place { entry, first, next: first + 1 };
            units.map_while(Entry::read).take_while(|entry| entry.is_used()).zip(index..).map(place).collect()
        })
    }

    /// The first number of low..high whose place isn't `before`; they run from those that are to those that aren't.
    fn search(&self, (mut low, mut high): (u64, u64), before: impl Fn(Option<Place>) -> Result<bool>) -> Result<u64> {
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.places(middle, 1)?.first().copied())? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Numbers that the queue's last files, as far as none is missing between them, have room for.
    fn room(&self) -> Result<(u64, u64)> {
        let mut bases = queue_files::bases(&self.files.directory(&self.topic, self.id))?;
        bases.sort_unstable();
        let Some(&last) = bases.last() else { return Ok((0, 0)) };
        let mut first = last;
        for &base in bases.iter().rev().skip(1) {
            if base + self.files.file_size != first {
                break;
            }
            first = base;
        }
        Ok((first / self.files.unit, (last + self.files.file_size) / self.files.unit))
    }

    /// Offsets of the first message at or above `log_min`, and behind the last one that ends at or below `limit`.
    fn bounds(&self, log_min: u64, limit: u64) -> Result<(u64, u64)> {
        let (low, high) = self.room()?;
        let end = self.search((low, high), |place| {
            Ok(place.is_some_and(|place| !place.entry.is_real() || place.entry.end() <= limit))
        })?;
        let begin = self.search((low, end), |place| {
            Ok(place.is_none_or(|place| !place.entry.is_real() || (place.entry.position as u64) < log_min))
        })?;
        let last = if end > low { self.places(end - 1, 1)?.first().map(|last| last.next) } else { None };
        let next = last.unwrap_or(if self.is_batch { 0 } else { low });
        let first = if begin < end { self.places(begin, 1)?.first().map(|first| first.first) } else { None };
        Ok((first.unwrap_or(next), next))
    }

    /// The number of the place that holds an offset.
    fn index(&self, offset: u64) -> Result<u64> {
        if !self.is_batch {
            return Ok(offset);
        }
        self.search(self.room()?, |place| Ok(place.is_some_and(|place| place.next <= offset)))
    }

    /// The first offset of begin..end that was stored at `timestamp` or later, `end` if none was.
    fn offset_by_time(&self, timestamp: i64, begin: u64, end: u64) -> Result<u64> {
        let numbers = (self.index(begin)?, self.index(end)?);
        let found = self.search(numbers, |place| match place {
            Some(place) => Ok(self.stored(place.entry)? < timestamp),
            None => Ok(true),
        })?;
        let place = if found < numbers.1 { self.places(found, 1)?.first().copied() } else { None };
        Ok(place.map_or(end, |place| place.first.clamp(begin, end)))
    }

    /// When a record was stored: long ago if its log file isn't there, and never yet if the log ends before.
    fn stored(&self, entry: Entry) -> Result<i64> {
        if !entry.is_real() {
            return Ok(i64::MIN);
        }
        let position = entry.position as u64;
        let at = position % self.log_file_size;
        let path = self.log.path(position - at);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(i64::MIN),
            other => other.at("open", &path)?,
        };
        let mut head = [0; HEAD];
        read_all(&file, &mut head, at).at("read", &path)?;
        if !record::is_record(&head, entry.size as usize, position) {
            let rest = self.log_file_size - at;
            let is_last = !self.log.path(position + rest).exists();
            if is_last && is_zero(&file, at, rest).at("read", &path)? {
                return Ok(i64::MAX);
            }
            return error::store(format!(
                "{}, byte {at}: no record of {} bytes begins there",
                path.display(),
                entry.size
            ));
        }
        let is_v6 = record::int_at(&head, SYS_FLAG_AT).is_some_and(|flags| flags & record::BORN_V6 != 0);
        Ok(record::long_at(&head, BORN_HOST_AT + if is_v6 { 20 } else { 8 }).unwrap_or(i64::MIN))
    }

    /// Open the log files that have these messages, some of them if they are many, so that they may be deleted meanwhile.
    fn hold(&mut self, offset: u64, end: u64) -> Result<()> {
        let numbers = (self.index(offset)?, self.index(end)?);
        let real = self.search(numbers, |place| Ok(place.is_none_or(|place| !place.entry.is_real())))?;
        let first = self.places(real.min(numbers.1.saturating_sub(1)), 1)?;
        let last = self.places(numbers.1.saturating_sub(1), 1)?;
        let (Some(first), Some(last)) = (first.first(), last.first()) else { return Ok(()) };
        if !first.entry.is_real() || !last.entry.is_real() {
            return Ok(());
        }
        let base = |entry: Entry| entry.position as u64 - entry.position as u64 % self.log_file_size;
        for base in (base(first.entry)..=base(last.entry)).step_by(self.log_file_size as usize).take(HELD_MAX) {
            self.open(base)?;
        }
        Ok(())
    }

    /// Have the log file at `base` open; false if it isn't there.
    fn open(&mut self, base: u64) -> Result<bool> {
        let Slot::Vacant(slot) = self.held.entry(base) else { return Ok(true) };
        let path = self.log.path(base);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.at("open", &path)?,
        };
        // What is read is asked for in large pieces already, and what is behind isn't ours to bring into memory.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let map = MmapOptions::new().map_raw_read_only(&file).ok();
        slot.insert(LogFile { path, file, map });
        Ok(true)
    }

    fn read(&mut self, wanted: &Wanted<'_>) -> Result<Found> {
        let index = self.index(wanted.offset)?;
        let places = self.places(index, wanted.count_max)?;
        let mut found = Found { next: wanted.offset, records: Vec::new(), faults: Vec::new(), gone: None };
        let places = places.split_at(places.partition_point(|place| place.first < wanted.end)).0;
        let mut at = 0;
        while at < places.len() && found.records.len() < wanted.bytes_max {
            let count = self.together(&places[at..], wanted.tags);
            let group = &places[at..at + count];
            if let Some(gone) = self.read_group(group, wanted, &mut found)? {
                (found.next, found.gone) = (gone.first.max(found.next), Some(gone.entry.position as u64));
                break;
            }
            found.next = found.next.max(group[count - 1].next);
            at += count;
        }
        Ok(found)
    }

    /// How many of these places are read by one call.
    fn together(&self, places: &[Place], tags: Option<&[i32]>) -> usize {
        let mut span: Option<(u64, u64)> = None;
        for (number, place) in places.iter().enumerate() {
            if !is_wanted(place, tags) {
                continue;
            }
            let (begin, end) = (place.entry.position as u64, place.entry.end());
            span = match span {
                None => Some((begin, end)),
                Some((first, last))
                    if begin >= last
                        && begin - last <= GAP_MAX
                        && end - first <= SPAN_MAX
                        && begin / self.log_file_size == first / self.log_file_size =>
                {
                    Some((first, end))
                }
                Some(_) => return number,
            };
        }
        places.len()
    }

    /// Read the records of a group; the place whose log file isn't there, if so.
    fn read_group(&mut self, group: &[Place], wanted: &Wanted<'_>, found: &mut Found) -> Result<Option<Place>> {
        let records = group.iter().filter(|place| is_wanted(place, wanted.tags));
        let Some(&first) = records.clone().next() else { return Ok(None) };
        let begin = first.entry.position as u64;
        let base = begin - begin % self.log_file_size;
        if !self.open(base)? {
            return Ok(Some(first));
        }
        self.held = self.held.split_off(&base); // those before are done with
        let Some(log) = self.held.get(&base) else { return Ok(Some(first)) };
        let end = records.clone().map(|place| place.entry.end()).max().unwrap_or(begin);
        let size = end.min(base + self.log_file_size) - begin;
        if size > SPAN_MAX.max(RECORD_MAX as u64) {
            found.faults.push(told(log, begin - base, &first, &format!("the queue says that it has {size} bytes")));
            return Ok(None);
        }
        self.span.resize(size as usize, 0);
        let at = (begin - base) as usize;
        let resident = log.map.as_ref().map(|map| mapped_file::resident(map, at, at + size as usize));
        read_all(&log.file, &mut self.span, at as u64).at("read", &log.path)?;
        if let Some(resident) = resident {
            // Only advice: what the kernel keeps does no harm.
            let _ = mapped_file::let_go(&log.file, at, &resident);
        }
        for place in records {
            let from = (place.entry.position as u64 - begin) as usize;
            let to = from + place.entry.size as usize;
            match self.checked(self.span.get(from..to).unwrap_or_default(), place) {
                Ok(record) => {
                    if wanted.filter.is_none_or(|filter| filter.matches(record.properties)) {
                        found.records.extend_from_slice(record.bytes);
                    }
                }
                Err(fault) => found.faults.push(told(log, place.entry.position as u64 - base, place, &fault)),
            }
        }
        Ok(None)
    }

    /// The record that the queue leads to, if it is what it should be.
    fn checked<'r>(&self, data: &'r [u8], place: &Place) -> std::result::Result<Record<'r>, String> {
        let Some(record) = record::decode(data).filter(|record| record.size == data.len()) else {
            return Err(format!("no whole record of {} bytes", place.entry.size));
        };
        if record.position != place.entry.position {
            return Err(format!("the record there says that it is at position {}", record.position));
        }
        if !record.passes(Crc::Body) {
            return Err("the body fails its CRC".to_owned());
        }
        if record::without_crc(record.properties).len() != record.properties.len() && !record.passes(Crc::Property) {
            return Err("the record fails its CRC".to_owned());
        }
        // Light queues hold messages of other topics.
        let is_own = record.topic == self.topic.as_bytes() && record.queue_id == self.id;
        if !self.topic.starts_with(light::PREFIX) && (!is_own || record.queue_offset != place.first as i64) {
            let topic = String::from_utf8_lossy(record.topic);
            return Err(format!("a record of offset {} of queue {topic}/{}", record.queue_offset, record.queue_id));
        }
        Ok(record)
    }
}

fn is_wanted(place: &Place, tags: Option<&[i32]>) -> bool {
    place.entry.is_real() && tags.is_none_or(|tags| place.entry.may_have(tags))
}

fn told(log: &LogFile, at: u64, place: &Place, what: &str) -> String {
    format!("{}, byte {at}, where offset {} should be: {what}", log.path.display(), place.first)
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct QueueReader {
    reader: Mutex<Reader>,
}

#[pymethods]
impl QueueReader {
    #[new]
    #[pyo3(signature = (log_directories, queues, topic, queue_id, *, log_file_size, queue_file_size, is_batch))]
    fn new(
        log_directories: Vec<PathBuf>,
        queues: PathBuf,
        topic: String,
        queue_id: i32,
        log_file_size: u64,
        queue_file_size: u64,
        is_batch: bool,
    ) -> Result<Self> {
        let files = if is_batch {
            check_sizes(log_file_size, consume_queue::UNIT as u64, queue_file_size)?;
            QueueFiles::batch(queues, queue_file_size)
        } else {
            check_sizes(log_file_size, queue_file_size, crate::batch_queue::UNIT as u64)?;
            QueueFiles::simple(queues, queue_file_size)
        };
        let log = LogDirectories::new(log_directories, Vec::new())?;
        let (held, span) = (BTreeMap::new(), Vec::new());
        let reader = Reader { files, is_batch, topic, id: queue_id, log, log_file_size, held, span };
        Ok(Self { reader: Mutex::new(reader) })
    }

    fn bounds(&self, py: Python<'_>, log_min: u64, limit: u64) -> Result<(u64, u64)> {
        py.detach(|| lock(&self.reader).bounds(log_min, limit))
    }

    fn offset_by_time(&self, py: Python<'_>, timestamp: i64, begin: u64, end: u64) -> Result<u64> {
        py.detach(|| lock(&self.reader).offset_by_time(timestamp, begin, end))
    }

    fn hold(&self, py: Python<'_>, offset: u64, end: u64) -> Result<()> {
        py.detach(|| lock(&self.reader).hold(offset, end))
    }

    #[pyo3(signature = (offset, end, *, count_max, bytes_max, tag_codes = None, filter = None))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        end: u64,
        count_max: u64,
        bytes_max: usize,
        tag_codes: Option<Vec<i32>>,
        filter: Option<&Filter>,
    ) -> Result<(u64, Bound<'py, PyBytes>, Vec<String>, Option<u64>)> {
        let wanted = Wanted { offset, end, count_max, bytes_max, tags: tag_codes.as_deref(), filter };
        let found = py.detach(|| lock(&self.reader).read(&wanted))?;
        Ok((found.next, PyBytes::new(py, &found.records), found.faults, found.gone))
    }
}
