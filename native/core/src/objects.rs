//! Stored records as Python objects: tuples of what is in them, or messages as clients see them.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};
use smallvec::SmallVec;

use crate::{
    properties,
    record::{self, Crc, Record},
};

/// Bytes of a message in a batch besides body and properties.
const BATCH_OVERHEAD: usize = 22;
/// What stands around the unique id among the properties.
const UNIQ_KEY: &[u8] = b"UNIQ_KEY\x01";
const END: &[u8] = b"\x02";
/// Hex digits of the number in a unique id.
const DIGITS: usize = 12;

pub fn records<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    all(data)?.iter().map(|record| tuple(py, record)).collect()
}

fn tuple<'py>(py: Python<'py>, record: &Record<'_>) -> PyResult<Bound<'py, PyTuple>> {
    // More elements than tuples have in Rust.
    let fields: [Bound<'py, PyAny>; 16] = [
        record.size.into_pyobject(py)?.into_any(),
        record.body_crc.into_pyobject(py)?.into_any(),
        record.queue_id.into_pyobject(py)?.into_any(),
        record.flag.into_pyobject(py)?.into_any(),
        record.queue_offset.into_pyobject(py)?.into_any(),
        record.position.into_pyobject(py)?.into_any(),
        record.sys_flag.into_pyobject(py)?.into_any(),
        record.born_timestamp.into_pyobject(py)?.into_any(),
        PyBytes::new(py, record.born_host).into_any(),
        record.store_timestamp.into_pyobject(py)?.into_any(),
        PyBytes::new(py, record.store_host).into_any(),
        record.reconsume_times.into_pyobject(py)?.into_any(),
        record.prepared_transaction_offset.into_pyobject(py)?.into_any(),
        PyBytes::new(py, record.body).into_any(),
        text(py, record.topic).into_any(),
        PyBytes::new(py, record.properties).into_any(),
    ];
    PyTuple::new(py, fields)
}

/// The messages that `make` makes of the records, bodies as they were stored, and all their flags together.
pub fn messages<'py>(
    data: &[u8],
    broker_name: &Bound<'py, PyString>,
    make: &Bound<'py, PyAny>,
    check_crc: bool,
) -> PyResult<(Vec<Bound<'py, PyAny>>, i32)> {
    let py = make.py();
    let records = all(data)?;
    let (mut topics, mut born_hosts, mut store_hosts) = (Last::new(), Last::new(), Last::new());
    let (mut born_timestamps, mut store_timestamps, mut sizes) = (Last::new(), Last::new(), Last::new());
    let mut properties = Properties::new();
    let mut flags = 0;
    let messages = records.iter().map(|record| {
        if check_crc && !record.passes(Crc::Body) {
            let text = format!("body of the message at position {} fails its CRC", record.position);
            return Err(PyValueError::new_err(text));
        }
        flags |= record.sys_flag;
        let fields: [Bound<'py, PyAny>; 16] = [
            topics.get(record.topic, |bytes| Ok(text(py, bytes).into_any()))?,
            broker_name.clone().into_any(),
            record.queue_id.into_pyobject(py)?.into_any(),
            record.queue_offset.into_pyobject(py)?.into_any(),
            record.position.into_pyobject(py)?.into_any(),
            PyBytes::new(py, record.body).into_any(),
            properties.dict(py, record.properties)?.into_any(),
            record.flag.into_pyobject(py)?.into_any(),
            record.sys_flag.into_pyobject(py)?.into_any(),
            born_timestamps.get(record.born_timestamp, |time| Ok(time.into_pyobject(py)?.into_any()))?,
            born_hosts.get(record.born_host, |bytes| Ok(PyBytes::new(py, bytes).into_any()))?,
            store_timestamps.get(record.store_timestamp, |time| Ok(time.into_pyobject(py)?.into_any()))?,
            store_hosts.get(record.store_host, |bytes| Ok(PyBytes::new(py, bytes).into_any()))?,
            record.reconsume_times.into_pyobject(py)?.into_any(),
            record.prepared_transaction_offset.into_pyobject(py)?.into_any(),
            sizes.get(record.size, |size| Ok(size.into_pyobject(py)?.into_any()))?,
        ];
        make.call1(PyTuple::new(py, fields)?)
    });
    let messages = messages.collect::<PyResult<_>>()?;
    Ok((messages, flags))
}

/// The body of a batch, from flag, body and properties of each message; in place of the properties it may have its unique id.
pub fn batch<'py>(messages: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    for message in messages.try_iter()? {
        let (flag, body, properties): (i32, Bound<'py, PyBytes>, Bound<'py, PyAny>) = message?.extract()?;
        match properties.cast::<PyBytes>() {
            Ok(properties) => part(&mut out, flag, body.as_bytes(), &[properties.as_bytes()])?,
            Err(_) => {
                let id = properties.cast::<PyString>()?.to_str()?.as_bytes();
                part(&mut out, flag, body.as_bytes(), &[UNIQ_KEY, id, END])?;
            }
        }
    }
    Ok(PyBytes::new(messages.py(), &out))
}

/// As `batch`, of messages that are nothing but a body: each gets an id, `prefix` and 12 hex digits that count from `first`.
pub fn bare_batch<'py>(
    bodies: &Bound<'py, PyAny>,
    prefix: &str,
    first: u64,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyList>)> {
    let py = bodies.py();
    let ids = PyList::empty(py);
    let mut id = [prefix.as_bytes(), &[0; DIGITS]].concat();
    let mut out = Vec::new();
    for (number, body) in (first..).zip(bodies.try_iter()?) {
        for (at, digit) in id[prefix.len()..].iter_mut().rev().enumerate() {
            *digit = b"0123456789ABCDEF"[(number >> (4 * at)) as usize & 15];
        }
        part(&mut out, 0, body?.cast::<PyBytes>()?.as_bytes(), &[UNIQ_KEY, &id, END])?;
        ids.append(text(py, &id))?;
    }
    Ok((PyBytes::new(py, &out), ids))
}

/// A message of a batch, with the pieces of its properties.
fn part(out: &mut Vec<u8>, flag: i32, body: &[u8], properties: &[&[u8]]) -> PyResult<()> {
    let length = properties.iter().map(|piece| piece.len()).sum::<usize>();
    let size = i32::try_from(BATCH_OVERHEAD + body.len() + length);
    let (Ok(size), Ok(properties_size)) = (size, i16::try_from(length)) else {
        let text = format!("a batch can't hold {} bytes of body and {length} of properties", body.len());
        return Err(PyValueError::new_err(text));
    };
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&[0; 8]); // neither magic nor CRC
    out.extend_from_slice(&flag.to_be_bytes());
    out.extend_from_slice(&(body.len() as i32).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&properties_size.to_be_bytes());
    properties.iter().for_each(|piece| out.extend_from_slice(piece));
    Ok(())
}

fn all(data: &[u8]) -> PyResult<Vec<Record<'_>>> {
    let mut records = Vec::new();
    record::walk(data, |record| {
        records.push(*record);
        Ok(())
    })?;
    Ok(records)
}

/// Text of a peer, whatever it has stored.
fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, &String::from_utf8_lossy(bytes))
}

/// The object that was made last: neighbouring records often say the same.
struct Last<'py, T>(Option<(T, Bound<'py, PyAny>)>);

impl<'py, T: Copy + PartialEq> Last<'py, T> {
    fn new() -> Self {
        Self(None)
    }

    fn get(&mut self, value: T, make: impl FnOnce(T) -> PyResult<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        match &self.0 {
            Some((last, object)) if *last == value => Ok(object.clone()),
            _ => {
                let object = make(value)?;
                self.0 = Some((value, object.clone()));
                Ok(object)
            }
        }
    }
}

/// Makes dictionaries of properties. Most records have the names of one before, in the same order, and many of its values:
/// then what is different is set in a copy, which costs a third.
struct Properties<'d, 'py> {
    names: Names<'d, 'py>,
    patterns: Vec<Pattern<'d, 'py>>,
}

struct Pattern<'d, 'py> {
    items: Items<'d>,
    dict: Bound<'py, PyDict>,
}

/// Names and values.
type Items<'d> = SmallVec<[(&'d [u8], &'d [u8]); 8]>;

impl Pattern<'_, '_> {
    fn has_names_of(&self, items: &Items<'_>) -> bool {
        self.items.len() == items.len() && self.items.iter().zip(items).all(|(own, other)| own.0 == other.0)
    }
}

impl<'d, 'py> Properties<'d, 'py> {
    const PATTERNS_MAX: usize = 4;

    fn new() -> Self {
        Self { names: Names(Vec::new()), patterns: Vec::new() }
    }

    fn dict(&mut self, py: Python<'py>, properties: &'d [u8]) -> PyResult<Bound<'py, PyDict>> {
        let items: Items<'_> = properties::items(properties).collect();
        let pattern = self.patterns.iter().find(|pattern| pattern.has_names_of(&items));
        let dict = pattern.map_or_else(|| Ok(PyDict::new(py)), |pattern| pattern.dict.copy())?;
        for (at, (name, value)) in items.iter().enumerate() {
            if pattern.is_none_or(|pattern| pattern.items[at].1 != *value) {
                dict.set_item(self.names.get(py, name), text(py, value))?;
            }
        }
        // With a name that comes twice it would be the last value that counts, not the one that is different.
        if pattern.is_none() && dict.len() == items.len() && self.patterns.len() < Self::PATTERNS_MAX {
            self.patterns.push(Pattern { items, dict: dict.copy()? });
        }
        Ok(dict)
    }
}

/// Names of properties that have come before; few of them are different.
struct Names<'d, 'py>(Vec<(&'d [u8], Bound<'py, PyString>)>);

impl<'d, 'py> Names<'d, 'py> {
    const MAX: usize = 16;

    fn get(&mut self, py: Python<'py>, name: &'d [u8]) -> Bound<'py, PyString> {
        if let Some((_, known)) = self.0.iter().find(|(other, _)| *other == name) {
            return known.clone();
        }
        let made = text(py, name);
        if self.0.len() < Self::MAX {
            self.0.push((name, made.clone()));
        }
        made
    }
}
