//! `Store` and `Slice` as Python sees them: arguments in, values out, and the GIL let go of around waits for the disk.

use std::{
    ffi::c_int,
    path::PathBuf,
    ptr,
    sync::{atomic::Ordering, Arc},
};

use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::{
    batch_replay::Named,
    check::{told, Told},
    delays::{self, Delivered, Levels, Wanted},
    error::{value, Error, Result},
    filter::Filter,
    get::{self, Far, Got, Request, Run},
    light,
    log_directories::LogDirectories,
    pull,
    record::{self, Crc, Message},
    recover::Before,
    scrub,
    send::Fixed,
    state::{check_message, check_properties_size, Appended, Config, Shared},
    topic_bytes,
    traffic::{Count, Ends, Histogram, Kind, Topic},
};

/// Runs at least this long are handed out as pieces of the map; shorter ones cost less to copy than to send apart.
const SLICE_MIN: usize = 16 << 10;

/// (topic, queue id) of each.
type Queues = Vec<(String, i32)>;
/// (position, why) of each.
type PassedOver = Vec<(u64, String)>;
/// (serializer, opaque, broker to suggest, the one to suggest far behind).
type Reply = (u8, i32, i64, i64);
/// (sum, how many in each range).
type Told7 = (u64, [u64; 7]);
/// (topic, (kind, messages, bytes, sizes) of each kind, (committed, rolled back, latencies)).
type TopicTraffic = (Option<String>, Vec<(u8, u64, u64, Told7)>, Option<(u64, u64, Told7)>);
/// (status, next, min, max, count, buffers, behind).
type Read<'py> = (u8, u64, u64, u64, u64, Bound<'py, PyList>, u64);

#[pyclass(frozen, module = "rockmq._core")]
pub struct Store {
    pub shared: Arc<Open>,
}

/// The store and the texts made once for it.
pub struct Open {
    shared: Shared,
    pub fixed: Fixed,
}

impl std::ops::Deref for Open {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (log_directories, consume_queue, *, log_file_size, queue_file_size, store_host, max_message_size, region, trace_on, cluster, append_crc_property = false, batch_queue_file_size = 13_800_000, light_queues_max = 0, read_only_log_directories = Vec::new(), delay_levels = Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        log_directories: Vec<PathBuf>,
        consume_queue: PathBuf,
        log_file_size: u64,
        queue_file_size: u64,
        store_host: Vec<u8>,
        max_message_size: usize,
        region: String,
        trace_on: bool,
        cluster: String,
        append_crc_property: bool,
        batch_queue_file_size: u64,
        light_queues_max: usize,
        read_only_log_directories: Vec<PathBuf>,
        delay_levels: Vec<i64>,
    ) -> Result<Self> {
        let max_message_size = max_message_size.min(i32::MAX as usize);
        let config = Config {
            log: LogDirectories::new(log_directories, read_only_log_directories)?,
            consume_queue,
            log_file_size,
            queue_file_size,
            batch_queue_file_size,
            store_host,
            max_message_size,
            region,
            trace_on,
            cluster,
            append_crc_property,
            light_queues_max,
            delay_levels: Levels::new(delay_levels)?,
        };
        let fixed = Fixed::new(&config);
        Ok(Self { shared: Arc::new(Open { shared: Shared::open(config)?, fixed }) })
    }

    fn files(&self, py: Python<'_>) -> Result<Vec<(u64, i64)>> {
        py.detach(|| self.shared.log_files())
    }

    #[pyo3(signature = (start, check_crc, *, by_property = false, had_queues = true, had_batch_queues = false, had_light_queues = false, batch_topics = Vec::new(), batch_topics_at = None))]
    #[allow(clippy::too_many_arguments)]
    fn recover(
        &self,
        py: Python<'_>,
        start: u64,
        check_crc: bool,
        by_property: bool,
        had_queues: bool,
        had_batch_queues: bool,
        had_light_queues: bool,
        batch_topics: Vec<String>,
        batch_topics_at: Option<i64>,
    ) -> Result<(u64, u64)> {
        let crc = match (check_crc, by_property) {
            (false, _) => Crc::Ignored,
            (true, false) => Crc::Body,
            (true, true) => Crc::Property,
        };
        let named = Named { topics: batch_topics, at: batch_topics_at };
        let before = Before { start, had_queues, had_batch_queues, had_light_queues, named };
        py.detach(|| self.shared.recover(&before, crc))
    }

    #[getter]
    fn recovery(&self) -> (u64, u64) {
        let progress = &self.shared.recovery;
        (progress.read.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed))
    }

    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.shared.close())
    }

    fn set_ordinary(&self, topic: &str, write_queues: i32, multi_tag: bool) -> Result<()> {
        self.shared.set_ordinary(topic, write_queues, multi_tag)
    }

    fn set_batch(&self, py: Python<'_>, topic: &str) -> Result<()> {
        py.detach(|| self.shared.set_batch(topic))
    }

    fn clear_ordinary(&self, topic: &str) {
        self.shared.state().queues.set_ordinary(topic, None);
    }

    fn set_log_targets(&self, directories: Vec<PathBuf>) -> Result<()> {
        if directories.is_empty() {
            return value("there is no directory that log files may be made in");
        }
        let mut state = self.shared.state();
        state.log.set_targets(directories);
        // Elsewhere there may be room.
        state.full = None;
        Ok(())
    }

    fn set_writable(&self, writable: bool) {
        self.shared.state().set_writable(writable);
    }

    #[pyo3(signature = (topic, queue_id, body, properties, *, now, born_host, born_timestamp, flag=0, sys_flag=0, reconsume_times=0, prepared_transaction_offset=0, light_queues=Vec::new(), kind=4))]
    #[allow(clippy::too_many_arguments)]
    fn append(
        &self,
        topic: &str,
        queue_id: i32,
        body: &[u8],
        properties: &[u8],
        now: i64,
        born_host: &[u8],
        born_timestamp: i64,
        flag: i32,
        sys_flag: i32,
        reconsume_times: i32,
        prepared_transaction_offset: i64,
        light_queues: Vec<String>,
        kind: u8,
    ) -> Result<(u64, u64, u64, bool)> {
        check_message(topic, queue_id, properties, born_host)?;
        let kind = kind_of(kind)?;
        let message = Message {
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp: now,
            store_host: &self.shared.config.store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic: topic.as_bytes(),
            properties: &[properties],
            crc_property: self.shared.config.append_crc_property,
        };
        check_properties_size(message.properties_size())?;
        let mut state = self.shared.state();
        let appended = if !light_queues.is_empty() {
            light::append(&mut state, &message, properties, &light_queues, self.shared.config.max_message_size, kind)
        } else if state.batch_queues.has_topic(topic.as_bytes()) {
            state.append_unit(&message, properties, kind)
        } else if sys_flag & record::INNER_BATCH == record::INNER_BATCH {
            return value(format!("an inner batch, but the topic {topic} has no batch queues"));
        } else {
            state.append(None, &message, &crate::properties::keys(properties), kind)
        };
        let Appended { position, end, queue_offset, watched } = appended?;
        Ok((position, end - position, queue_offset, watched))
    }

    #[pyo3(signature = (topic, queue_id, body, *, now, born_host, born_timestamp, sys_flag=0, reconsume_times=0, kind=4))]
    #[allow(clippy::too_many_arguments)]
    fn append_batch(
        &self,
        topic: &str,
        queue_id: i32,
        body: &[u8],
        now: i64,
        born_host: &[u8],
        born_timestamp: i64,
        sys_flag: i32,
        reconsume_times: i32,
        kind: u8,
    ) -> Result<(Vec<u64>, u64, u64, bool)> {
        check_message(topic, queue_id, b"", born_host)?;
        let kind = kind_of(kind)?;
        let common = Message {
            queue_id,
            flag: 0,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp: now,
            store_host: &self.shared.config.store_host,
            reconsume_times,
            prepared_transaction_offset: 0,
            body: b"",
            topic: topic.as_bytes(),
            properties: &[],
            crc_property: self.shared.config.append_crc_property,
        };
        let mut state = self.shared.state();
        let appended = if state.batch_queues.has_topic(topic.as_bytes()) {
            state.append_units(&common, body, kind)
        } else {
            state.append_batch(&common, body, kind)
        };
        let Appended { end, queue_offset, watched, .. } = appended?;
        let positions = state.batch.iter().map(|entry| entry.position as u64).collect();
        Ok((positions, end, queue_offset, watched))
    }

    #[pyo3(signature = (level, offset, *, now, limit, count_max, bytes_max))]
    #[allow(clippy::too_many_arguments)]
    fn deliver(
        &self,
        py: Python<'_>,
        level: usize,
        offset: u64,
        now: i64,
        limit: u64,
        count_max: u64,
        bytes_max: u64,
    ) -> Result<(u64, u64, Option<i64>, Queues, PassedOver)> {
        let wanted = Wanted { level, offset, now, limit, count_max, bytes_max };
        let Delivered { next, end, due, arrivals, passed_over } =
            py.detach(|| delays::deliver(&self.shared, &wanted))?;
        Ok((next, end, due, arrivals, passed_over))
    }

    #[getter]
    fn min_position(&self) -> u64 {
        self.shared.state().log.min()
    }

    #[getter]
    fn max_position(&self) -> u64 {
        self.shared.state().log.max()
    }

    #[getter]
    fn flushed_position(&self) -> u64 {
        self.shared.state().log.flushed()
    }

    #[getter]
    fn appended(&self) -> (u64, u64) {
        self.shared.state().appended
    }

    fn note_end(&self, topic: &str, is_committed: bool, seconds: u64) {
        self.shared.state().traffic.note_end(topic.as_bytes(), is_committed, seconds);
    }

    fn traffic(&self, begin: usize, count_max: usize) -> Vec<TopicTraffic> {
        // Copied first, as Python objects aren't made under the lock.
        let topics = self.shared.state().traffic.topics(begin, count_max).to_vec();
        topics.iter().map(told_traffic).collect()
    }

    #[getter]
    fn delivered(&self) -> (u64, u64) {
        self.shared.state().traffic.delivered
    }

    #[getter]
    fn taken(&self) -> u64 {
        self.shared.state().traffic.taken
    }

    fn take_arrivals(&self, count_max: usize) -> Vec<(Option<String>, u64, u64)> {
        let arrivals = self.shared.state().traffic.take_arrivals(count_max);
        arrivals.into_iter().map(|(topic, messages, bytes)| (topic.as_deref().map(text), messages, bytes)).collect()
    }

    #[getter]
    fn forced_until(&self) -> i64 {
        self.shared.state().forced_until
    }

    fn request_flush(&self) {
        self.shared.flush_signal.ask();
    }

    fn flush(&self, py: Python<'_>) -> Result<u64> {
        py.detach(|| self.shared.flush())
    }

    fn flush_queues(&self, py: Python<'_>, force: bool) -> Result<(u64, i64)> {
        py.detach(|| self.shared.flush_queues(force))
    }

    #[getter]
    fn has_next_file(&self) -> bool {
        self.shared.state().log.has_next_file()
    }

    fn prepare_next_file(&self, py: Python<'_>) -> Result<bool> {
        py.detach(|| self.shared.prepare_next_file())
    }

    fn tend_files(&self, py: Python<'_>, read_ahead: bool, sparing: bool, warm: bool, lock: bool) -> Result<()> {
        py.detach(|| self.shared.tend_files(read_ahead, sparing, warm, lock))
    }

    fn delete_files_below(&self, py: Python<'_>, position: u64) -> Result<Vec<String>> {
        let paths = py.detach(|| self.shared.delete_files_below(position))?;
        Ok(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    fn count_bytes(&self, py: Python<'_>, start: u64, end: u64) -> Result<Vec<(String, u64)>> {
        let counted = py.detach(|| topic_bytes::count(&self.shared, start, end))?;
        Ok(counted.into_iter().map(|(topic, bytes)| (topic.to_string(), bytes)).collect())
    }

    fn raise_min(&self, py: Python<'_>, topic: &str, position: u64) {
        py.detach(|| topic_bytes::raise_min(&self.shared, topic, position));
    }

    #[getter]
    fn lowest_position(&self, py: Python<'_>) -> Result<u64> {
        py.detach(|| {
            let state = self.shared.state();
            let lowest = state.queues.lowest_position().into_iter().chain(state.batch_queues.lowest_position()?).min();
            Ok(lowest.unwrap_or(state.log.max()))
        })
    }

    fn scrub(&self, py: Python<'_>, position: u64, bytes_max: u64) -> Result<(u64, Vec<Told>, u64)> {
        let (next, faults) = py.detach(|| scrub::scrub(&self.shared, position, bytes_max))?;
        let (list, more) = told(faults);
        Ok((next, list, more))
    }

    #[getter]
    fn has_queues(&self) -> bool {
        self.shared.state().queues.iter().next().is_some()
    }

    #[getter]
    fn has_batch_queues(&self) -> bool {
        self.shared.state().batch_queues.has_queues()
    }

    fn queues(&self) -> Vec<(String, i32, u64, u64)> {
        let state = self.shared.state();
        let simple = state.queues.iter().map(|queue| (queue.topic.to_string(), queue.id, queue.min, queue.next));
        simple.chain(state.batch_queues.bounds()).collect()
    }

    fn queue_bounds(&self, topic: &str, queue_id: i32) -> Option<(u64, u64)> {
        let state = self.shared.state();
        let simple = state.queues.existing(topic, queue_id).map(|queue| (queue.min, queue.next));
        simple.or_else(|| state.batch_queues.existing(topic, queue_id).map(|view| (view.min, view.next)))
    }

    fn forget_queues(&self, topic: &str) -> Result<()> {
        self.shared.forget_queues(topic)
    }

    fn delete_forgotten(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.shared.delete_forgotten())
    }

    #[pyo3(signature = (topic, queue_id, offset, count_max, bytes_max, limit, tag_codes, filter = None, reply = None, far = None))]
    #[allow(clippy::too_many_arguments)]
    fn get<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        queue_id: i32,
        offset: i64,
        count_max: u64,
        bytes_max: u64,
        limit: u64,
        tag_codes: Option<&Bound<'py, PyAny>>,
        filter: Option<&Filter>,
        reply: Option<Reply>,
        far: Option<(u64, u64, u64)>,
    ) -> PyResult<Read<'py>> {
        let tags = tag_codes.map(tags_of).transpose()?;
        let far = far.map(|(behind, count_max, bytes_max)| Far { behind, count_max, bytes_max });
        let tags = tags.as_deref();
        let request = Request { topic, queue_id, offset, count_max, bytes_max, limit, tags, filter, far };
        let got = match filter {
            Some(_) => py.detach(|| get::get(&self.shared, &request))?,
            None => get::get(&self.shared, &request)?,
        };
        let head = match reply.filter(|_| got.count > 0) {
            Some((serializer, opaque, broker, slow_broker)) => {
                let broker = if far.is_some_and(|far| got.behind > far.behind) { slow_broker } else { broker };
                pull::head(&got, serializer, opaque, broker).map_err(Error::Value)?
            }
            None => Vec::new(),
        };
        Ok((got.status, got.next, got.min, got.max, got.count, buffers(py, &head, &got)?, got.behind))
    }

    fn entries(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: i32,
        offset: u64,
        count_max: u64,
        limit: u64,
    ) -> Result<Vec<(u64, i64, i32, i64)>> {
        let found = py.detach(|| get::entries(&self.shared, topic, queue_id, offset, count_max, limit))?;
        Ok(found.into_iter().map(|(offset, entry)| (offset, entry.position, entry.size, entry.tags)).collect())
    }

    fn read<'py>(&self, py: Python<'py>, position: u64) -> Option<Bound<'py, PyBytes>> {
        let (file, at, size) = self.shared.state().record_at(position)?;
        Some(PyBytes::new(py, &file.read(at)[..size]))
    }

    fn first_timestamp(&self) -> Option<i64> {
        let state = self.shared.state();
        let (file, at, _) = state.record_at(state.log.min())?;
        record::store_timestamp(file.read(at))
    }

    fn store_timestamp(&self, topic: &str, queue_id: i32, offset: i64) -> i64 {
        get::store_timestamp(&self.shared, topic, queue_id, offset)
    }

    fn offset_by_time(&self, topic: &str, queue_id: i32, timestamp: i64, upper: bool) -> u64 {
        get::offset_by_time(&self.shared, topic, queue_id, timestamp, upper)
    }

    fn watch(&self, topic: &str, queue_id: i32) -> Result<()> {
        self.shared.watch(topic, queue_id)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kind_of(number: u8) -> Result<Kind> {
    let Some(&kind) = Kind::ALL.get(usize::from(number)) else {
        return value(format!("there is no kind {number} of messages"));
    };
    Ok(kind)
}

fn told_traffic(topic: &Topic) -> TopicTraffic {
    let told = |histogram: &Histogram| (histogram.sum, histogram.counts);
    let name = topic.name.as_deref().map(text);
    let counts = topic.counts.iter().zip(Kind::ALL).filter(|&(_, kind)| kind != Kind::Inner);
    let counts = counts.filter_map(|(count, kind)| {
        let Count { messages, bytes, sizes } = count.as_deref()?;
        Some((kind as u8, *messages, *bytes, told(sizes)))
    });
    let ends = topic.ends.as_deref();
    let ends = ends.map(|Ends { committed, rolled_back, latencies }| (*committed, *rolled_back, told(latencies)));
    (name, counts.collect(), ends)
}

/// Codes as Java compares them: whatever is behind the lower 32 bits is cut off.
fn tags_of(codes: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
    codes.try_iter()?.map(|code| Ok(code?.extract::<i64>()? as i32)).collect()
}

/// A head and runs as Python objects: long runs as they lie in the map, the rest copied together.
fn buffers<'py>(py: Python<'py>, head: &[u8], got: &Got) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let (mut head, mut rest) = (head, &got.runs[..]);
    while !head.is_empty() || !rest.is_empty() {
        let count = rest.iter().take_while(|run| run.size < SLICE_MIN).count();
        let (short, behind) = rest.split_at(count);
        if !head.is_empty() || count > 0 {
            list.append(joined(py, head, short, got)?)?;
            head = &[];
        }
        rest = behind;
        if let Some((long, behind)) = rest.split_first() {
            list.append(Slice { file: Arc::clone(&got.files[long.file]), at: long.at, size: long.size })?;
            rest = behind;
        }
    }
    Ok(list)
}

fn joined<'py>(py: Python<'py>, head: &[u8], runs: &[Run], got: &Got) -> PyResult<Bound<'py, PyBytes>> {
    let size = head.len() + runs.iter().map(|run| run.size).sum::<usize>();
    // SAFETY: without a source the object's bytes are left for us to fill, and nobody else has it before we return. The
    // pieces below are as long as `size` together, so every byte is written, and none behind them.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(ptr::null(), size as ffi::Py_ssize_t);
        let bytes = Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>();
        let mut place = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>();
        for piece in std::iter::once(head).chain(runs.iter().map(|run| got.bytes(run))) {
            ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len());
            place = place.add(piece.len());
        }
        Ok(bytes)
    }
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Slice {
    file: Arc<crate::mapped_file::MappedFile>,
    at: usize,
    size: usize,
}

#[pymethods]
impl Slice {
    fn __len__(&self) -> usize {
        self.size
    }

    /// # Safety
    /// Called by Python, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let slice = slf.get();
        let bytes = &slice.file.read(slice.at)[..slice.size];
        let pointer = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the bytes are final (`MappedFile::read`) and stay mapped as long as this slice holds its file; the view
        // holds a reference to the slice. It is marked read-only, so that nobody writes through the pointer.
        let result = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer, slice.size as isize, 1, flags) };
        if result != 0 {
            // SAFETY: the view isn't null.
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}
