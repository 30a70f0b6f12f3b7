//! The log read piece by piece, and what is wrong with it: for checks, dumps, repair and the scrub.
//!
//! Reading is by `pread` into one window, not by a map: a bad sector is an error that can be told here, and a SIGBUS there; and
//! a log of any size costs the same memory. Where no record is, the next whole one in the file is searched for, so that
//! one damaged record hides no other.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::{fadvise, Advice};

use crate::{
    error::{At, Result},
    log_directories::LogDirectories,
    record::{self, int_at, long_at, Crc, Found, Record, BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SIZE_MIN},
    recover::is_zero,
};

/// Bytes read at a time by who reads on, and by who looks up single records.
pub const WINDOW: usize = 1 << 20;
pub const WINDOW_SMALL: usize = 4 << 10;
/// No record is larger: bodies are bounded by the frame they travel in, 16 MiB.
pub const RECORD_MAX: usize = 32 << 20;
const PAGE: usize = 4096;

/// Something that isn't as it should be; `at` is a byte of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: &'static str,
    pub path: PathBuf,
    pub at: u64,
    /// So many neighbours (bytes of the log, entries of a queue) have the same fault.
    pub count: u64,
    pub expected: String,
    pub found: String,
    pub queue: Option<(String, i32)>,
}

/// Faults with a bound: those over it are counted.
pub struct Faults {
    pub list: Vec<Fault>,
    pub more: u64,
}

impl Faults {
    const MAX: usize = 1000;

    pub fn new() -> Self {
        Self { list: Vec::new(), more: 0 }
    }

    pub fn push(&mut self, fault: Fault) {
        if self.list.len() < Self::MAX {
            self.list.push(fault);
        } else {
            self.more += 1;
        }
    }
}

/// What a step has read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Where to go on.
    pub next: u64,
    pub records: u64,
    /// Nothing was found from `next` to the end of the file: zeros, or a tail that was told as a fault.
    pub ended: bool,
}

/// The bytes around the place at hand.
struct Window {
    file: Option<(u64, File)>,
    size: usize,
    at: u64,
    bytes: Vec<u8>,
    unreadable: Vec<(u64, String)>,
}

pub struct Walk {
    log: LogDirectories,
    file_size: u64,
    check_crc: bool,
    window: Window,
}

impl Walk {
    pub fn new(log: LogDirectories, file_size: u64, window: usize, check_crc: bool) -> Self {
        let window = Window { file: None, size: window, at: 0, bytes: Vec::new(), unreadable: Vec::new() };
        Self { log, file_size, check_crc, window }
    }

    /// Hand the whole records of one log file, from `position` on, to `each`, until one ends at or behind `to`.
    pub fn step(
        &mut self,
        position: u64,
        to: u64,
        faults: &mut Faults,
        mut each: impl FnMut(&Record<'_>, &mut Faults) -> Result<()>,
    ) -> Result<Step> {
        let base = position - position % self.file_size;
        let path = self.log.path(base);
        let end = base + self.file_size;
        let mut step = Step { next: position, ..Step::default() };
        while step.next < to.min(end) && !step.ended {
            let rest = (end - step.next) as usize;
            let data = self.window.record(&path, base, step.next, rest)?;
            match record::find_in(data, step.next, rest, Crc::Ignored) {
                Found::Record(record)
                    if record::is_torn(&record, (step.next - base) as usize + record.size, &data[record.size..]) =>
                {
                    faults.push(fault(
                        "torn",
                        &path,
                        step.next - base,
                        record.size,
                        "properties",
                        "zeros at their end",
                    ));
                    step.ended = true;
                }
                Found::Record(record) => {
                    let crc = if self.check_crc { record::body_crc(record.body) } else { record.body_crc };
                    if crc != record.body_crc {
                        let (expected, found) = (format!("CRC {:#010x}", record.body_crc), format!("{crc:#010x}"));
                        let mut fault = fault("crc", &path, step.next - base, record.size, &expected, &found);
                        fault.queue = Some((String::from_utf8_lossy(record.topic).into_owned(), record.queue_id));
                        faults.push(fault);
                    }
                    each(&record, faults)?;
                    step.next += record.size as u64;
                    step.records += 1;
                }
                Found::Blank => step.next = end,
                // A record may end exactly at the end of a file that another store wrote.
                Found::Nothing if rest < BLANK_SIZE => step.next = end,
                Found::Nothing => {
                    let (expected, found) = diagnosis(data, step.next, rest);
                    self.nothing(&path, base, &mut step, (&expected, &found), faults)?;
                }
            }
            self.window.tell_unreadable(&path, faults);
        }
        Ok(step)
    }

    /// No record begins at `step.next`: go to the next one of the file, or find out what its end looks like.
    fn nothing(
        &mut self,
        path: &Path,
        base: u64,
        step: &mut Step,
        (expected, found): (&str, &str),
        faults: &mut Faults,
    ) -> Result<()> {
        let at = step.next - base;
        let file = self.window.open(path, base)?;
        if is_zero(file, at, self.file_size).unwrap_or(false) {
            step.ended = true;
            return Ok(());
        }
        match self.search(base, step.next + 1)? {
            Some(next) => {
                faults.push(fault("record", path, at, (next - step.next) as usize, expected, found));
                step.next = next;
            }
            None => {
                faults.push(fault("tail", path, at, (self.file_size - at) as usize, expected, found));
                step.ended = true;
            }
        }
        Ok(())
    }

    /// The next place of the file at `base`, from `from` on, where a whole record or the blank begins.
    pub fn search(&mut self, base: u64, from: u64) -> Result<Option<u64>> {
        const FIRST: [u8; 3] = [MAGIC_V1.to_be_bytes()[0], MAGIC_V2.to_be_bytes()[0], MAGIC_BLANK.to_be_bytes()[0]];
        let path = self.log.path(base);
        let end = base + self.file_size;
        let mut position = from;
        while position + (BLANK_SIZE as u64) <= end {
            let rest = (end - position) as usize;
            let data = self.window.get(&path, base, position, BLANK_SIZE, rest)?;
            let candidates = &data[4..data.len() - 3];
            match candidates.iter().position(|byte| FIRST.contains(byte)) {
                None => position += candidates.len() as u64,
                Some(distance) => {
                    position += distance as u64;
                    let rest = (end - position) as usize;
                    let data = self.window.record(&path, base, position, rest)?;
                    if record::find_in(data, position, rest, Crc::Ignored) != Found::Nothing {
                        return Ok(Some(position));
                    }
                    position += 1;
                }
            }
        }
        Ok(None)
    }

    /// The record at `position`, if a whole one is there.
    pub fn record(&mut self, position: u64) -> Option<Record<'_>> {
        let base = position - position % self.file_size;
        let path = self.log.path(base);
        let rest = (base + self.file_size - position) as usize;
        let data = self.window.record(&path, base, position, rest).ok()?;
        match record::find_in(data, position, rest, Crc::Ignored) {
            Found::Record(record) => Some(record),
            _ => None,
        }
    }
}

impl Window {
    fn open(&mut self, path: &Path, base: u64) -> Result<&File> {
        if self.file.as_ref().is_none_or(|(other, _)| *other != base) {
            let file = File::open(path).at("open", path)?;
            // What is read is asked for in large pieces already, and what is behind isn't anybody's need.
            let _ = fadvise(&file, 0, None, Advice::Random);
            self.bytes.clear();
            self.file = Some((base, file));
        }
        match &self.file {
            Some((_, file)) => Ok(file),
            None => unreachable!("it was opened above"),
        }
    }

    /// Bytes from `position` on, all of the record there if one is.
    fn record(&mut self, path: &Path, base: u64, position: u64, rest: usize) -> Result<&[u8]> {
        let head = self.get(path, base, position, SIZE_MIN, rest)?;
        let size = int_at(head, 0).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let is_record = matches!(int_at(head, 4), Some(MAGIC_V1 | MAGIC_V2))
            && (SIZE_MIN..=RECORD_MAX.min(rest)).contains(&size)
            && long_at(head, 28) == Some(position as i64);
        // With what is behind it, which tells a torn record.
        self.get(path, base, position, if is_record { size + BLANK_SIZE } else { SIZE_MIN }, rest)
    }

    /// At least `wanted` bytes from `position` on, fewer only at the end of the file, of which `rest` bytes are left.
    fn get(&mut self, path: &Path, base: u64, position: u64, wanted: usize, rest: usize) -> Result<&[u8]> {
        let wanted = wanted.min(rest);
        self.open(path, base)?;
        let end = self.at + self.bytes.len() as u64;
        if position < self.at || position + wanted as u64 > end {
            self.bytes.resize(wanted.max(self.size).min(rest), 0);
            self.at = position;
            self.fill(position - base);
        }
        Ok(&self.bytes[(position - self.at) as usize..])
    }

    /// Read the window; what can't be read, or isn't there, is zero.
    fn fill(&mut self, at: u64) {
        let Some((_, file)) = &self.file else { return };
        if read_all(file, &mut self.bytes, at).is_ok() {
            return;
        }
        let mut from = 0;
        while from < self.bytes.len() {
            let to = (from + PAGE - (at as usize + from) % PAGE).min(self.bytes.len());
            if let Err(error) = read_all(file, &mut self.bytes[from..to], at + from as u64) {
                self.bytes[from..to].fill(0);
                self.unreadable.push((at + from as u64, error.to_string()));
            }
            from = to;
        }
    }

    fn tell_unreadable(&mut self, path: &Path, faults: &mut Faults) {
        for (at, error) in self.unreadable.drain(..) {
            faults.push(fault("unreadable", path, at, PAGE, "bytes", &error));
        }
    }
}

pub fn read_all(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => {
                bytes[read..].fill(0);
                break;
            }
            Ok(size) => read += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub fn fault(kind: &'static str, path: &Path, at: u64, count: usize, expected: &str, found: &str) -> Fault {
    let (expected, found) = (expected.to_owned(), found.to_owned());
    Fault { kind, path: path.to_owned(), at, count: count as u64, expected, found, queue: None }
}

/// Why no record begins here: what should be there, and what is.
fn diagnosis(data: &[u8], position: u64, rest: usize) -> (String, String) {
    let (size, magic) = (int_at(data, 0).unwrap_or(0), int_at(data, 4).unwrap_or(0));
    if magic == MAGIC_BLANK {
        return (format!("a blank of {rest} bytes"), format!("one of {size}"));
    }
    if !matches!(magic, MAGIC_V1 | MAGIC_V2) {
        return (format!("magic {MAGIC_V1:#010x} or {MAGIC_V2:#010x}"), format!("{magic:#010x}"));
    }
    if !(SIZE_MIN as i64..=RECORD_MAX.min(rest) as i64).contains(&i64::from(size)) {
        return (format!("a size of {SIZE_MIN} to {}", RECORD_MAX.min(rest)), format!("{size}"));
    }
    match long_at(data, 28) {
        Some(found) if found != position as i64 => (format!("position {position}"), format!("{found}")),
        _ => (format!("lengths of body, topic and properties that make {size} bytes"), "others".to_owned()),
    }
}
