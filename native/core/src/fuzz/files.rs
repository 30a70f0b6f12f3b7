//! Whole files: a log with its queues, which is recovered; and an index.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use proptest::{collection::vec, option, prelude::*};

use super::{
    damaged, inputs,
    stored::{record, record_of, Fields},
    undamaged,
};
use crate::{
    batch_queue::{self, Unit},
    batch_replay::Named,
    check_batches::BatchCheck,
    check_index::IndexCheck,
    check_queues::QueueCheck,
    consume_queue::{Entry, UNIT},
    delays::Levels,
    index::Files,
    index_file::{Header, IndexFile, Layout, Wanted},
    light,
    log_directories::LogDirectories,
    mapped_file,
    queue_files::QueueFiles,
    record::{self, Crc, Found, MAGIC_BLANK},
    recover::Before,
    replay,
    state::{Config, Shared},
    walk::{Faults, Walk, WINDOW},
};

const LOG_FILE: usize = 1024;
const LOG_FILES: usize = 2;
const QUEUE_FILE: usize = 10 * UNIT;
const QUEUES: [(&str, i32); 4] = [("A", 0), ("A", 1), ("B", 0), ("B", 1)];
/// The topic that has a batch queue, and the size of its file.
const BATCH_TOPIC: &str = "C";
const BATCH_FILE: usize = 10 * batch_queue::UNIT;
const BATCHES: usize = LOG_FILES * LOG_FILE + QUEUES.len() * QUEUE_FILE;
const ALL: usize = BATCHES + BATCH_FILE;
/// Of each store that is recovered.
const KNOWN: Before = Before {
    start: 0,
    had_queues: true,
    had_batch_queues: false,
    had_light_queues: false,
    named: Named { topics: Vec::new(), at: None },
};
/// Windows, blocks of zeros and of entries, whatever the files say.
const OVERHEAD: usize = 8 << 20;

/// A directory for one test; in memory, if there is such a place.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { env::temp_dir() };
        let path = root.join(format!("rockmq-fuzz-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn config(&self) -> Config {
        Config {
            log: LogDirectories::new(vec![self.0.join("commitlog")], Vec::new()).unwrap(),
            consume_queue: self.0.join("consumequeue"),
            log_file_size: LOG_FILE as u64,
            queue_file_size: QUEUE_FILE as u64,
            batch_queue_file_size: BATCH_FILE as u64,
            store_host: vec![10, 0, 0, 1, 0, 0, 42, 159],
            max_message_size: 1 << 16,
            region: "R".to_owned(),
            trace_on: true,
            cluster: "C".to_owned(),
            append_crc_property: false,
            light_queues_max: 10,
            delay_levels: Levels::default(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files of a store, one behind the other: its log, the queues of `QUEUES`, and the batch queue.
fn image(records: &[Fields]) -> Vec<u8> {
    image_with(records, &[])
}

/// `wrong` are the offsets that records say they have, where they aren't the right ones.
fn image_with(records: &[Fields], wrong: &[Option<u64>]) -> Vec<u8> {
    let mut image = vec![0; ALL];
    let (mut position, mut offsets) = (0, [0; QUEUES.len()]);
    let (mut units, mut batch_offset) = (0, 0);
    for (number, fields) in records.iter().enumerate() {
        let size = fields.encode(0, 0).len();
        let left = LOG_FILE - position % LOG_FILE;
        if size + record::BLANK_SIZE > left {
            image[position..position + 4].copy_from_slice(&(left as i32).to_be_bytes());
            image[position + 4..position + 8].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
            position += left;
        }
        if position + size + record::BLANK_SIZE > LOG_FILES * LOG_FILE {
            break;
        }
        let queue = QUEUES.iter().position(|&(topic, id)| topic == fields.topic && id == fields.queue_id);
        let is_batch = (fields.topic.as_str(), fields.queue_id) == (BATCH_TOPIC, 0);
        let offset = if is_batch { batch_offset } else { queue.map_or(0, |queue| offsets[queue]) };
        let said = wrong.get(number).copied().flatten().unwrap_or(offset as u64);
        let bytes = fields.encode(said as i64, position as u64);
        image[position..position + size].copy_from_slice(&bytes);
        if let (Some(queue), Some(record)) =
            (queue, record::decode(&bytes).filter(|one| record::is_queued(one.sys_flag)))
        {
            let entry = Entry { position: position as i64, size: size as i32, tags: record::tags_code(&record) };
            let at = LOG_FILES * LOG_FILE + queue * QUEUE_FILE + offset * UNIT;
            image[at..at + UNIT].copy_from_slice(&entry.bytes());
            offsets[queue] += 1;
        }
        let unit = record::decode(&bytes).filter(|_| is_batch && units < BATCH_FILE / batch_queue::UNIT);
        if let Some(unit) = unit.and_then(|record| Unit::of(&record)).filter(|unit| unit.first as usize >= batch_offset)
        {
            let at = BATCHES + units * batch_queue::UNIT;
            image[at..at + batch_queue::UNIT].copy_from_slice(&unit.bytes());
            (units, batch_offset) = (units + 1, unit.next() as usize);
        }
        position += size;
    }
    image
}

fn write(config: &Config, image: &[u8]) {
    // Without a directory for batch queues, recovery takes up those that inner batches tell of, which the next one then knows.
    let batches = config.batch_files();
    for root in [&config.log.writable[0], &config.consume_queue, &batches.root] {
        let _ = fs::remove_dir_all(root);
        fs::create_dir_all(root).unwrap();
    }
    let (log, queues) = image.split_at(LOG_FILES * LOG_FILE);
    let (queues, units) = queues.split_at(BATCHES - LOG_FILES * LOG_FILE);
    fs::create_dir_all(batches.root.join(BATCH_TOPIC)).unwrap();
    if units.iter().any(|&byte| byte != 0) {
        let directory = batches.directory(BATCH_TOPIC, 0);
        fs::create_dir_all(&directory).unwrap();
        fs::write(mapped_file::path(&directory, 0), units).unwrap();
    }
    for (number, bytes) in log.chunks(LOG_FILE).enumerate() {
        fs::write(config.log.path((number * LOG_FILE) as u64), bytes).unwrap();
    }
    for ((topic, id), bytes) in QUEUES.iter().zip(queues.chunks(QUEUE_FILE)) {
        // A queue that was never written has no file.
        if bytes.iter().any(|&byte| byte != 0) {
            let directory = config.consume_queue.join(topic).join(id.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(mapped_file::path(&directory, 0), bytes).unwrap();
        }
    }
}

/// Where the log ends, and how many records it has, read from the bytes alone.
fn end_of(log: &[u8]) -> (u64, u64) {
    let (mut at, mut records) = (0, 0);
    while at < log.len() {
        let file = &log[at..(at / LOG_FILE + 1) * LOG_FILE];
        match record::find(file, at as u64, Crc::Body) {
            Found::Record(record) if !record::is_torn(&record, at % LOG_FILE + record.size, &file[record.size..]) => {
                at += record.size;
                records += 1;
            }
            Found::Blank => at += file.len(),
            _ => break,
        }
    }
    (at as u64, records)
}

#[test]
fn stores_are_recovered_to_what_is_whole() {
    let scratch = Scratch::new("store");
    // A recovery reads dozens of files; records and frames by themselves get all inputs.
    let records = vec((record(), option::weighted(0.1, 0..12u64)), 0..14).prop_map(|records| {
        let (records, wrong): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        image_with(&records, &wrong)
    });
    damaged(inputs() / 10, records, |bytes| recovers_for_good(&scratch, bytes));
}

/// Offsets that are wrong, and queues that are, in every combination, which damage of bytes hardly ever makes.
#[test]
fn queues_with_wrong_offsets_are_recovered_for_good() {
    let scratch = Scratch::new("offsets");
    // Short ones, for a log of many records.
    let topic = prop_oneof![9 => "[ABC]", 1 => "é"];
    let records = vec((record_of(topic), option::weighted(0.3, 0..10u64)), 0..14);
    let entries = vec(option::weighted(0.1, 0..4u8), QUEUES.len() * QUEUE_FILE / UNIT);
    undamaged(inputs() / 10, (records, entries, any::<bool>()), |(records, entries, is_lost)| {
        let (records, wrong): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        let mut image = image_with(&records, &wrong);
        let queues = &mut image[LOG_FILES * LOG_FILE..];
        if is_lost {
            queues.fill(0);
        }
        for (entry, kind) in queues.chunks_mut(UNIT).zip(entries) {
            match kind {
                Some(0) => entry.fill(0),
                Some(1) => entry.copy_from_slice(&Entry::BLANK.bytes()),
                Some(2) => entry[7] ^= 1,
                Some(_) => entry[0] = 0x80,
                None => {}
            }
        }
        recovers_for_good(&scratch, &image);
    });
}

fn recovers_for_good(scratch: &Scratch, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.resize(ALL, 0);
    let (log, config) = (&bytes[..LOG_FILES * LOG_FILE], scratch.config());
    write(&config, &bytes);
    let (directories, queues, batches) = (config.log.clone(), config.consume_queue.clone(), config.batch_files().root);
    walk_through(&config, log);

    let expected = end_of(log);
    let shared = super::within(OVERHEAD, || {
        let shared = Shared::open(config).unwrap();
        assert_eq!(shared.log_files().unwrap().len(), LOG_FILES);
        assert_eq!(shared.recover(&KNOWN, Crc::Body).unwrap(), expected);
        shared
    });
    entries_lead_to_records(&shared);
    units_lead_to_records(&shared);
    shared.close().unwrap();
    let stored = || [files_in(&directories.writable[0]), files_in(&queues), files_in(&batches)];
    let left = stored();

    // What was recovered is whole, so recovering it again changes nothing. Only zeros at the end of properties, which no
    // message of ours has, are taken for torn ones once there are zeros behind them.
    let log: Vec<u8> = left[0].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let whole = end_of(&log[..log.len().min(LOG_FILES * LOG_FILE)]);
    assert!(whole == expected || ends_in_zero(&log, expected.0));
    let again = Shared::open(scratch.config()).unwrap();
    assert_eq!(again.recover(&KNOWN, Crc::Body).unwrap(), whole);
    again.close().unwrap();
    let now = stored();
    for (before, after) in left.iter().zip(&now).filter(|_| whole == expected) {
        let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(names(before), names(after));
        for ((path, before), (_, after)) in before.iter().zip(after) {
            assert!(before == after, "{}: {before:?}, then {after:?}", path.display());
        }
    }
}

fn ends_in_zero(log: &[u8], end: u64) -> bool {
    log[..end as usize].last() == Some(&0)
}

/// A walk for checks goes through a damaged log to its end, and sees all that recovery sees.
fn walk_through(config: &Config, log: &[u8]) {
    let mut faults = Faults::new();
    let files = QueueFiles::simple(config.consume_queue.clone(), QUEUE_FILE as u64);
    let mut queues =
        QueueCheck::new(files, (config.log.clone(), LOG_FILE as u64), 0, config.delay_levels.clone()).unwrap();
    let mut batches = BatchCheck::new(config.batch_files(), 0).unwrap();
    super::within(OVERHEAD, || {
        let mut walk = Walk::new(config.log.clone(), LOG_FILE as u64, WINDOW, true);
        let (mut seen, expected) = (0, end_of(log).1);
        for file in 0..LOG_FILES {
            let (mut at, end) = ((file * LOG_FILE) as u64, ((file + 1) * LOG_FILE) as u64);
            while at < end {
                let step = walk.step(at, end, &mut faults, |record, faults| {
                    if batches.takes(record) {
                        batches.put(record, faults);
                    } else {
                        queues.put(record, faults);
                    }
                    Ok(())
                });
                let step = step.unwrap();
                seen += step.records;
                assert!(step.next > at || step.ended);
                at = if step.ended { end } else { step.next };
            }
        }
        assert!(seen >= expected);
        queues.finish(None, &mut faults).unwrap();
        batches.finish(None, &mut faults).unwrap();
    });
}

/// Every entry of every queue leads to a record of that queue and place, or says that it leads nowhere.
fn entries_lead_to_records(shared: &Shared) {
    let mut entries = Vec::new();
    let state = shared.state();
    for slot in state.queues.slots() {
        let Some(queue) = state.queues.queue(slot).filter(|queue| queue.exists) else { continue };
        assert!(queue.min <= queue.next);
        assert!(queue.next - queue.min < 1000);
        for index in queue.min..queue.next {
            let entry = state.queues.entry(queue, index).unwrap();
            entries.push((queue.topic.clone(), queue.id, index, entry));
        }
    }
    drop(state);
    for (topic, id, index, entry) in entries.into_iter().filter(|(.., entry)| entry.is_real()) {
        let (file, at, size) = shared.state().record_at(entry.position as u64).unwrap();
        let record = record::decode(&file.read(at)[..size]).unwrap();
        assert_eq!(record.size, entry.size as usize);
        if topic.starts_with(light::PREFIX) {
            assert!(id == 0 && light::queues(&record).contains(&(topic.as_bytes(), index)));
        } else {
            assert_eq!((record.topic, record.queue_id), (topic.as_bytes(), id));
            assert_eq!(record.queue_offset as u64, index);
        }
    }
}

/// Every unit of every batch queue is that of the record it leads to, and they are in order.
fn units_lead_to_records(shared: &Shared) {
    let views = shared.state().batch_queues.views();
    for view in views {
        assert!(view.min <= view.next && view.end - view.begin < 1000);
        let mut before = 0;
        for index in view.begin..view.end {
            let unit = view.unit(index).unwrap().unwrap();
            let (file, at, size) = shared.state().record_at(unit.entry.position as u64).unwrap();
            let record = record::decode(&file.read(at)[..size]).unwrap();
            assert_eq!(record.topic, view.topic.as_bytes());
            let expected = Unit::of(&record).unwrap();
            assert_eq!(
                (unit.first, unit.count, unit.entry.size),
                (expected.first, expected.count, expected.entry.size)
            );
            assert!(unit.first as u64 >= before);
            before = unit.next();
        }
        assert!(view.begin == view.end || view.next == before);
    }
}

/// All files below a directory with what is in them.
fn files_in(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<_> =
        mapped_file_paths(directory).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    for (_, inner) in replay::directories(directory).unwrap() {
        found.extend(files_in(&inner));
    }
    found.sort_unstable();
    found
}

fn mapped_file_paths(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).collect()
}

const INDEX: Layout = Layout { slots: 3, entries: 8 };

/// An index file with entries for a log, and that log in front of it.
fn index_image(records: &[Fields]) -> Vec<u8> {
    let scratch = Scratch::new("index-valid");
    let path = scratch.0.join("20260101000000000");
    let _ = fs::remove_file(&path);
    let mut image = image(records);
    let mut file = IndexFile::create(path.clone(), INDEX, None).unwrap();
    let mut at = 0;
    while let Some(record) = record::decode(&image[at..LOG_FILE]).filter(|record| record.position == at as i64) {
        for hash in crate::index::key_hashes(&record) {
            if !file.is_full() {
                file.put(hash, record.position, record.store_timestamp).unwrap();
            }
        }
        at += record.size;
    }
    image.truncate(LOG_FILE);
    image.extend_from_slice(&fs::read(path).unwrap());
    image
}

#[test]
fn index_files_are_read_or_refused() {
    let scratch = Scratch::new("index");
    let config = scratch.config();
    let directory = scratch.0.join("index");
    let path = directory.join("20260101000000000");
    damaged(inputs(), vec(record(), 1..8).prop_map(|records| index_image(&records)), |bytes| {
        let (log, index) = bytes.split_at(bytes.len().min(LOG_FILE));
        let mut log = log.to_vec();
        log.resize(ALL, 0);
        write(&config, &log);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, index).unwrap();

        super::within(OVERHEAD, || {
            let mut faults = Faults::new();
            let log = (config.log.clone(), LOG_FILE as u64);
            IndexCheck::new(&directory, INDEX, log, 0, None).unwrap().step(i64::MAX as u64, &mut faults).unwrap();
            let header = IndexFile::inspect(&path, INDEX).unwrap();
            assert_eq!(header.is_some(), is_whole(index));
            if header.is_some() {
                chains_end(IndexFile::open(path.clone(), INDEX).unwrap());
            }
        });
        follows_the_log(scratch.config(), &directory);
    });
}

/// Whether header, first and last entry of an index file agree.
fn is_whole(index: &[u8]) -> bool {
    let Some(header) = Header::read(index).filter(|_| index.len() as u64 == INDEX.size()) else { return false };
    let position = |number| record::long_at(index, INDEX.entry_at(number) + 4);
    header.next <= INDEX.entries
        && (0..=INDEX.slots.min(header.next - 1)).contains(&header.used_slots)
        && (header.next == 1
            || (position(1) == Some(header.begin_position) && position(header.next - 1) == Some(header.end_position)))
}

fn chains_end(mut file: IndexFile) {
    for hash in 0..5 {
        for (begin, end) in [(i64::MIN, i64::MAX), (0, 0), (1_700_000_000_000, 1_700_000_050_000)] {
            let mut found = Vec::new();
            file.find(&Wanted { hash, begin, end, count_max: 64 }, &mut found);
            assert!(found.len() < INDEX.entries as usize);
        }
    }
    let (count, is_all) = file.count_last(file.header.end_position);
    assert!(count < file.header.next as usize && (count + 1 == file.header.next as usize) == is_all);
    if file.is_full() {
        return;
    }
    let timestamp = file.header.begin_timestamp;
    file.put(2, 77, timestamp).unwrap();
    let mut found = Vec::new();
    file.find(&Wanted { hash: 2, begin: i64::MIN, end: i64::MAX, count_max: 1 }, &mut found);
    assert_eq!(found, [77]);
    assert_eq!(Header::read(&fs::read(&file.path).unwrap()), Some(file.header));
}

/// The index of a store takes the file up or throws it away, and goes on to the end of the log.
fn follows_the_log(config: Config, directory: &Path) {
    let shared = Shared::open(config).unwrap();
    let (end, _) = shared.recover(&KNOWN, Crc::Body).unwrap();
    super::within(OVERHEAD, || {
        let mut files = Files::open(directory.to_owned(), INDEX, None, &shared).unwrap();
        files.catch_up(&shared, end, u64::MAX, "20260101000000000").unwrap();
        assert_eq!(files.position(), end);
        let wanted = Wanted { hash: 0, begin: 0, end: i64::MAX, count_max: 64 };
        files.find("A", "k", false, &wanted).unwrap();
        files.close(&shared).unwrap();
    });
    shared.close().unwrap();
}
