//! Stored records as Python tuples, or as the buffers of Arrow columns.
//!
//! Arrow's text and binary columns are an offset per row (and one more), the bytes, and a bitmap of what isn't null, least
//! significant bit first, absent when nothing is null. Numbers are in native byte order. A map column is offsets over two
//! further columns, keys and values.

use std::{
    borrow::Cow,
    collections::HashMap,
    net::{Ipv6Addr, SocketAddrV6},
};

use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyString, PyTuple},
};

use crate::{
    error::{value, Result},
    properties,
    record::{self, Record},
    unique_key::write_hex,
};

/// Over this many properties a record's are told apart by a table.
const LINEAR_MAX: usize = 32;

/// Cut `data` into records; each is handed to `each`.
fn walk<'d>(data: &'d [u8], mut each: impl FnMut(&Record<'d>) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < data.len() {
        let Some(record) = record::decode(&data[at..]) else {
            return value(format!("no whole record at byte {at}"));
        };
        each(&record)?;
        at += record.size;
    }
    Ok(())
}

pub fn records<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let mut records = Vec::new();
    walk(data, |record| {
        records.push(*record);
        Ok(())
    })?;
    records.iter().map(|record| tuple(py, record)).collect()
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
        PyString::new(py, &String::from_utf8_lossy(record.topic)).into_any(),
        PyBytes::new(py, record.properties).into_any(),
    ];
    PyTuple::new(py, fields)
}

pub fn columns<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let mut columns = Columns::new();
    walk(data, |record| columns.push(record))?;
    columns.into_dict(py)
}

struct Columns<'d> {
    rows: u64,
    /// The properties of the row at hand, and the host whose address was written last: memory to use again.
    items: Vec<(&'d [u8], &'d [u8])>,
    host: (&'d [u8], String),
    longs: [(&'static str, Vec<u8>); 4],
    ints: [(&'static str, Vec<u8>); 4],
    topic: TextColumn,
    message_id: TextColumn,
    keys: TextColumn,
    tags: TextColumn,
    sharding_key: TextColumn,
    born_host: TextColumn,
    body: TextColumn,
    property_offsets: Vec<u8>,
    property_keys: TextColumn,
    property_values: TextColumn,
}

impl<'d> Columns<'d> {
    fn new() -> Self {
        let numbers = |name| (name, Vec::new());
        Self {
            rows: 0,
            items: Vec::new(),
            host: (b"", String::new()),
            longs: ["queueOffset", "commitLogOffset", "bornTimestamp", "storeTimestamp"].map(numbers),
            ints: ["queueId", "flag", "sysFlag", "reconsumeTimes"].map(numbers),
            topic: TextColumn::new(),
            message_id: TextColumn::new(),
            keys: TextColumn::new(),
            tags: TextColumn::new(),
            sharding_key: TextColumn::new(),
            born_host: TextColumn::new(),
            body: TextColumn::new(),
            property_offsets: vec![0; 4],
            property_keys: TextColumn::new(),
            property_values: TextColumn::new(),
        }
    }

    fn push(&mut self, record: &Record<'d>) -> Result<()> {
        self.rows += 1;
        let longs = [record.queue_offset, record.position, record.born_timestamp, record.store_timestamp];
        for ((_, column), number) in self.longs.iter_mut().zip(longs) {
            column.extend_from_slice(&number.to_ne_bytes());
        }
        let ints = [record.queue_id, record.flag, record.sys_flag, record.reconsume_times];
        for ((_, column), number) in self.ints.iter_mut().zip(ints) {
            column.extend_from_slice(&number.to_ne_bytes());
        }
        self.topic.text(record.topic)?;
        self.body.push(Some(record.body))?;
        if self.host.0 != record.born_host {
            self.host = (record.born_host, address(record.born_host));
        }
        self.born_host.push(Some(self.host.1.as_bytes()))?;
        self.push_properties(record)
    }

    fn push_properties(&mut self, record: &Record<'d>) -> Result<()> {
        last_values(record.properties, &mut self.items);
        let (mut unique_key, mut keys, mut tags, mut sharding_key) = (None, None, None, None);
        for &(name, value) in &self.items {
            match name {
                b"UNIQ_KEY" => unique_key = Some(value),
                b"KEYS" => keys = Some(value),
                b"TAGS" => tags = Some(value),
                b"__SHARDINGKEY" => sharding_key = Some(value),
                _ => {}
            }
            self.property_keys.text(name)?;
            self.property_values.text(value)?;
        }
        self.property_offsets.extend_from_slice(&(self.property_keys.rows as i32).to_ne_bytes());
        match unique_key {
            Some(key) => self.message_id.text(key)?,
            None => {
                let mut id = Vec::with_capacity(56);
                write_hex(&mut id, record.store_host);
                write_hex(&mut id, &record.position.to_be_bytes());
                self.message_id.push(Some(&id))?;
            }
        }
        for (column, value) in [(&mut self.keys, keys), (&mut self.tags, tags), (&mut self.sharding_key, sharding_key)]
        {
            match value {
                Some(value) => column.text(value)?,
                None => column.push(None)?,
            }
        }
        Ok(())
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("rows", PyBytes::new(py, &self.rows.to_ne_bytes()))?;
        for (name, column) in self.longs.iter().chain(&self.ints) {
            dict.set_item(name, PyBytes::new(py, column))?;
        }
        dict.set_item("propertiesOffsets", PyBytes::new(py, &self.property_offsets))?;
        for (name, column) in [
            ("topic", &self.topic),
            ("msgId", &self.message_id),
            ("keys", &self.keys),
            ("tags", &self.tags),
            ("shardingKey", &self.sharding_key),
            ("bornHost", &self.born_host),
            ("body", &self.body),
            ("propertiesKeys", &self.property_keys),
            ("propertiesValues", &self.property_values),
        ] {
            dict.set_item(name, column.to_tuple(py)?)?;
        }
        Ok(dict)
    }
}

struct TextColumn {
    rows: usize,
    has_nulls: bool,
    validity: Vec<u8>,
    offsets: Vec<u8>,
    data: Vec<u8>,
}

impl TextColumn {
    fn new() -> Self {
        Self { rows: 0, has_nulls: false, validity: Vec::new(), offsets: vec![0; 4], data: Vec::new() }
    }

    /// Text has to be UTF-8, whatever a peer has stored.
    fn text(&mut self, value: &[u8]) -> Result<()> {
        match String::from_utf8_lossy(value) {
            Cow::Borrowed(_) => self.push(Some(value)),
            Cow::Owned(text) => self.push(Some(text.as_bytes())),
        }
    }

    fn push(&mut self, value: Option<&[u8]>) -> Result<()> {
        if self.rows % 8 == 0 {
            self.validity.push(0);
        }
        match (value, self.validity.last_mut()) {
            (Some(bytes), Some(last)) => {
                *last |= 1 << (self.rows % 8);
                self.data.extend_from_slice(bytes);
            }
            _ => self.has_nulls = true,
        }
        let Ok(end) = i32::try_from(self.data.len()) else {
            return crate::error::value("a column has over 2 GiB; decode fewer records at a time");
        };
        self.offsets.extend_from_slice(&end.to_ne_bytes());
        self.rows += 1;
        Ok(())
    }

    fn to_tuple<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let validity = self.has_nulls.then(|| PyBytes::new(py, &self.validity));
        (validity, PyBytes::new(py, &self.offsets), PyBytes::new(py, &self.data)).into_pyobject(py)
    }
}

/// Properties in the order of their first coming, with the value that came last.
fn last_values<'d>(text: &'d [u8], values: &mut Vec<(&'d [u8], &'d [u8])>) {
    values.clear();
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (name, value) in properties::items(text) {
        let place = if values.len() <= LINEAR_MAX {
            values.iter().position(|&(other, _)| other == name)
        } else {
            if places.is_empty() {
                places.extend(values.iter().enumerate().map(|(place, &(name, _))| (name, place)));
            }
            places.get(name).copied()
        };
        match place {
            Some(place) => values[place].1 = value,
            None => {
                if !places.is_empty() {
                    places.insert(name, values.len());
                }
                values.push((name, value));
            }
        }
    }
}

/// A host as "ip:port", "[ip]:port" for IPv6.
fn address(host: &[u8]) -> String {
    let (ip, port) = host.split_at(host.len().saturating_sub(4));
    let port = record::int_at(port, 0).unwrap_or(0);
    match (<[u8; 4]>::try_from(ip), <[u8; 16]>::try_from(ip)) {
        (Ok([a, b, c, d]), _) => format!("{a}.{b}.{c}.{d}:{port}"),
        (_, Ok(ip)) => SocketAddrV6::new(Ipv6Addr::from(ip), port as u16, 0, 0).to_string(),
        _ => String::new(),
    }
}
