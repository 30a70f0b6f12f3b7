//! RockMQ's native core: what happens once per message. The contract is `rockmq/_core.pyi`.
//!
//! Bytes in, values out: `frame`, `json`, `header`, `properties`, `record`, `columns`, `encode`. Files: `mapped_file`, `log_directories`, `commit_log`,
//! `consume_queue`, `queue_files`, `index_file`, `recover`. What is in them: `walk`, `check_queues`, `check_batches`, `check_index`,
//! `check`, `rebuild`, `scrub`, `queue_reader`. Both together: `state`, `get`, `filter`, `pull`, `send`, `delays`,
//! `transactions`, `half_messages`, `recent_keys`, `index`, `traffic`. Python:
//! `python`, `lane`, `reactor`, `tls`, `x509`, `flusher`, `store`, `message_index` and this file. Messages for later, with their files:
//! `timers`, `timer_log`, `timer_wheel`.

mod batch_queue;
mod batch_replay;
mod check;
mod check_batches;
mod check_index;
mod check_queues;
mod columns;
mod commit_log;
mod consume_queue;
mod delays;
mod encode;
mod error;
mod filter;
mod flusher;
mod frame;
#[cfg(test)]
mod fuzz;
mod get;
mod half_messages;
mod header;
mod index;
mod index_file;
mod json;
mod lane;
mod light;
mod log_directories;
mod mapped_file;
mod message_index;
mod objects;
mod properties;
mod pull;
mod python;
mod queue_files;
mod queue_reader;
mod reactor;
mod rebuild;
mod recent_keys;
mod record;
mod recover;
mod replay;
mod scrub;
mod send;
mod state;
mod store;
mod timer_log;
mod timer_wheel;
mod timers;
mod tls;
mod topic_bytes;
mod traffic;
mod transactions;
mod unique_key;
mod vouchers;
mod walk;
mod x509;

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use crate::{header::Ours, python::Bytes};

#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn encode_frame<'py>(
    py: Python<'py>,
    serializer: u8,
    code: i32,
    opaque: i32,
    flag: i32,
    remark: Option<&str>,
    fields: &Bound<'py, PyDict>,
    body: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let mut texts: Vec<(Bound<'_, PyString>, Bound<'_, PyString>)> = Vec::with_capacity(fields.len());
    for (key, value) in fields {
        texts.push((key.cast_into()?, value.cast_into()?));
    }
    let mut pairs = Vec::with_capacity(texts.len());
    for (key, value) in &texts {
        pairs.push((key.to_str()?.as_bytes(), value.to_str()?.as_bytes()));
    }
    let mut out = Vec::with_capacity(256 + if body.len() < 1 << 20 { body.len() } else { 0 });
    let start = frame::begin(&mut out, serializer);
    header::write(&mut out, serializer, &Ours { code, opaque, flag, remark }, pairs.into_iter())
        .map_err(PyValueError::new_err)?;
    if !frame::end(&mut out, start, body.len()) {
        return Err(PyValueError::new_err(format!(
            "header of {} and body of {} bytes are over what a frame can hold",
            out.len() - frame::HEAD,
            body.len()
        )));
    }
    out.extend_from_slice(body);
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
fn encode_batch<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    objects::batch(messages)
}

#[pyfunction]
fn encode_bodies<'py>(
    bodies: &Bound<'py, PyAny>,
    prefix: &str,
    first: u64,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyList>)> {
    objects::bare_batch(bodies, prefix, first)
}

#[pyfunction]
fn decode_records<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    objects::records(py, Bytes::of(data)?.as_slice())
}

#[pyfunction]
fn decode_messages<'py>(
    data: &Bound<'py, PyAny>,
    broker_name: &Bound<'py, PyString>,
    make: &Bound<'py, PyAny>,
    check_crc: bool,
) -> PyResult<(Vec<Bound<'py, PyAny>>, i32)> {
    objects::messages(Bytes::of(data)?.as_slice(), broker_name, make, check_crc)
}

#[pyfunction]
#[pyo3(signature = (data, names = None))]
fn decode_columns<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    names: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyDict>> {
    columns::columns(py, Bytes::of(data)?.as_slice(), names.as_deref())
}

#[pyfunction]
#[pyo3(signature = (queues, body, columns, properties, *, left_out, refused, size_max, batch_bytes, ids=None))]
#[allow(clippy::too_many_arguments)]
fn encode_columns<'py>(
    py: Python<'py>,
    queues: &Bound<'py, PyAny>,
    body: &Bound<'py, PyAny>,
    columns: Vec<(String, Bound<'py, PyAny>)>,
    properties: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    left_out: Vec<String>,
    refused: Vec<String>,
    size_max: usize,
    batch_bytes: usize,
    ids: Option<(Vec<u8>, usize)>,
) -> PyResult<encode::Batches<'py>> {
    encode::batches(py, queues, body, columns, properties, left_out, refused, size_max, batch_bytes, ids)
}

#[pyfunction]
fn java_hashes<'py>(py: Python<'py>, column: &Bound<'py, PyAny>, rows: usize) -> PyResult<Bound<'py, PyBytes>> {
    encode::java_hashes(py, column, rows)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("StoreError", module.py().get_type::<python::StoreError>())?;
    module.add("StoreFull", module.py().get_type::<python::StoreFull>())?;
    module.add_class::<check::Check>()?;
    module.add_class::<check::LogReader>()?;
    module.add_class::<filter::Filter>()?;
    module.add_class::<flusher::Flusher>()?;
    module.add_class::<lane::Lane>()?;
    module.add_class::<queue_reader::QueueReader>()?;
    module.add_class::<rebuild::Rebuild>()?;
    module.add_class::<reactor::Reactor>()?;
    module.add_class::<reactor::Transport>()?;
    module.add_class::<message_index::Index>()?;
    module.add_class::<store::Slice>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<timers::Timers>()?;
    module.add_class::<tls::Tls>()?;
    module.add_class::<transactions::Transactions>()?;
    module.add_function(wrap_pyfunction!(rebuild::exchange, module)?)?;
    module.add_function(wrap_pyfunction!(timers::pending_timers, module)?)?;
    module.add_function(wrap_pyfunction!(encode_frame, module)?)?;
    module.add_function(wrap_pyfunction!(encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(encode_bodies, module)?)?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_messages, module)?)?;
    module.add_function(wrap_pyfunction!(decode_columns, module)?)?;
    module.add_function(wrap_pyfunction!(encode_columns, module)?)?;
    module.add_function(wrap_pyfunction!(java_hashes, module)?)
}
