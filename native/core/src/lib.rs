//! RockMQ's native core: what happens once per message. The contract is `rockmq/_core.pyi`.
//!
//! Bytes in, values out: `frame`, `json`, `header`, `properties`, `record`, `columns`. Files: `mapped_file`, `log_directories`, `commit_log`,
//! `consume_queue`, `queue_files`, `index_file`, `recover`. What is in them: `walk`, `check_queues`, `check_index`,
//! `check`, `rebuild`, `scrub`. Both together: `state`, `get`, `filter`, `pull`, `send`, `delays`,
//! `transactions`, `half_messages`, `recent_keys`, `index`. Python:
//! `python`, `lane`, `reactor`, `flusher`, `store`, `message_index` and this file. Messages for later, with their files:
//! `timers`, `timer_log`, `timer_wheel`.

mod batch_queue;
mod batch_replay;
mod check;
mod check_index;
mod check_queues;
mod columns;
mod commit_log;
mod consume_queue;
mod delays;
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
mod properties;
mod pull;
mod python;
mod queue_files;
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
mod topic_bytes;
mod transactions;
mod unique_key;
mod walk;

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyString, PyTuple},
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
fn decode_records<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    columns::records(py, Bytes::of(data)?.as_slice())
}

#[pyfunction]
fn decode_columns<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    columns::columns(py, Bytes::of(data)?.as_slice())
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
    module.add_class::<rebuild::Rebuild>()?;
    module.add_class::<reactor::Reactor>()?;
    module.add_class::<reactor::Transport>()?;
    module.add_class::<message_index::Index>()?;
    module.add_class::<store::Slice>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<timers::Timers>()?;
    module.add_class::<transactions::Transactions>()?;
    module.add_function(wrap_pyfunction!(rebuild::exchange, module)?)?;
    module.add_function(wrap_pyfunction!(timers::pending_timers, module)?)?;
    module.add_function(wrap_pyfunction!(encode_frame, module)?)?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_columns, module)?)
}
