//! Stored records as the buffers of Arrow columns.
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
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};

use crate::{
    error::{self, Result},
    properties,
    record::{self, Record},
    unique_key::write_hex,
};

/// Over this many properties a record's are told apart by a table.
const LINEAR_MAX: usize = 32;

/// The columns of all records, or those of these names; `rows` is always there.
pub fn columns<'py>(py: Python<'py>, data: &[u8], names: Option<&[String]>) -> PyResult<Bound<'py, PyDict>> {
    if let Some(other) = names.and_then(|names| names.iter().find(|name| !NAMES.contains(&name.as_str()))) {
        return Err(PyValueError::new_err(format!("there is no column '{other}'")));
    }
    let mut columns = Columns::new(|name| names.is_none_or(|names| names.iter().any(|other| other == name)));
    record::walk(data, |record| columns.push(record))?;
    columns.into_dict(py)
}

const LONGS: [&str; 4] = ["queueOffset", "commitLogOffset", "bornTimestamp", "storeTimestamp"];
const INTS: [&str; 4] = ["queueId", "flag", "sysFlag", "reconsumeTimes"];
const NAMES: [&str; 16] = [
    LONGS[0],
    LONGS[1],
    LONGS[2],
    LONGS[3],
    INTS[0],
    INTS[1],
    INTS[2],
    INTS[3],
    "topic",
    "msgId",
    "keys",
    "tags",
    "shardingKey",
    "bornHost",
    "body",
    "properties",
];

/// Columns that nobody wants are None.
struct Columns<'d> {
    rows: u64,
    /// The properties of the row at hand, and the host whose address was written last: memory to use again.
    items: Vec<(&'d [u8], &'d [u8])>,
    host: (&'d [u8], String),
    longs: [Option<Vec<u8>>; 4],
    ints: [Option<Vec<u8>>; 4],
    topic: Option<TextColumn>,
    message_id: Option<TextColumn>,
    keys: Option<TextColumn>,
    tags: Option<TextColumn>,
    sharding_key: Option<TextColumn>,
    born_host: Option<TextColumn>,
    body: Option<TextColumn>,
    properties: Option<MapColumn>,
    reads_properties: bool,
}

impl<'d> Columns<'d> {
    fn new(is_wanted: impl Fn(&str) -> bool) -> Self {
        let numbers = |name| is_wanted(name).then(Vec::new);
        let text = |name| is_wanted(name).then(TextColumn::new);
        Self {
            rows: 0,
            items: Vec::new(),
            host: (b"", String::new()),
            longs: LONGS.map(numbers),
            ints: INTS.map(numbers),
            topic: text("topic"),
            message_id: text("msgId"),
            keys: text("keys"),
            tags: text("tags"),
            sharding_key: text("shardingKey"),
            born_host: text("bornHost"),
            body: text("body"),
            properties: is_wanted("properties").then(MapColumn::new),
            reads_properties: ["msgId", "keys", "tags", "shardingKey"].into_iter().any(&is_wanted),
        }
    }

    fn push(&mut self, record: &Record<'d>) -> Result<()> {
        self.rows += 1;
        let longs = [record.queue_offset, record.position, record.born_timestamp, record.store_timestamp];
        for (column, number) in self.longs.iter_mut().zip(longs) {
            if let Some(column) = column {
                column.extend_from_slice(&number.to_ne_bytes());
            }
        }
        let ints = [record.queue_id, record.flag, record.sys_flag, record.reconsume_times];
        for (column, number) in self.ints.iter_mut().zip(ints) {
            if let Some(column) = column {
                column.extend_from_slice(&number.to_ne_bytes());
            }
        }
        if let Some(topic) = &mut self.topic {
            topic.text(record.topic)?;
        }
        if let Some(body) = &mut self.body {
            body.push(Some(record.body))?;
        }
        if let Some(born_host) = &mut self.born_host {
            if self.host.0 != record.born_host {
                self.host = (record.born_host, address(record.born_host));
            }
            born_host.push(Some(self.host.1.as_bytes()))?;
        }
        if let Some(properties) = &mut self.properties {
            last_values(record.properties, &mut self.items);
            properties.push(&self.items)?;
        }
        if self.reads_properties {
            self.push_known(record)?;
        }
        Ok(())
    }

    /// The columns that are properties of their own.
    fn push_known(&mut self, record: &Record<'d>) -> Result<()> {
        let (mut unique_key, mut keys, mut tags, mut sharding_key) = (None, None, None, None);
        for (name, value) in properties::items(record.properties) {
            match name {
                b"UNIQ_KEY" => unique_key = Some(value),
                b"KEYS" => keys = Some(value),
                b"TAGS" => tags = Some(value),
                b"__SHARDINGKEY" => sharding_key = Some(value),
                _ => {}
            }
        }
        match (&mut self.message_id, unique_key) {
            (Some(column), Some(key)) => column.text(key)?,
            (Some(column), None) => {
                let mut id = Vec::with_capacity(56);
                write_hex(&mut id, record.store_host);
                write_hex(&mut id, &record.position.to_be_bytes());
                column.push(Some(&id))?;
            }
            (None, _) => {}
        }
        for (column, value) in [(&mut self.keys, keys), (&mut self.tags, tags), (&mut self.sharding_key, sharding_key)]
        {
            match (column, value) {
                (Some(column), Some(value)) => column.text(value)?,
                (Some(column), None) => column.push(None)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("rows", PyBytes::new(py, &self.rows.to_ne_bytes()))?;
        let numbers = LONGS.into_iter().zip(&self.longs).chain(INTS.into_iter().zip(&self.ints));
        for (name, column) in numbers.filter_map(|(name, column)| column.as_ref().map(|column| (name, column))) {
            dict.set_item(name, PyBytes::new(py, column))?;
        }
        let texts = [
            ("topic", &self.topic),
            ("msgId", &self.message_id),
            ("keys", &self.keys),
            ("tags", &self.tags),
            ("shardingKey", &self.sharding_key),
            ("bornHost", &self.born_host),
            ("body", &self.body),
        ];
        for (name, column) in
            texts.into_iter().filter_map(|(name, column)| column.as_ref().map(|column| (name, column)))
        {
            dict.set_item(name, column.to_tuple(py)?)?;
        }
        if let Some(map) = &self.properties {
            dict.set_item("propertiesOffsets", PyBytes::new(py, &map.offsets))?;
            dict.set_item("propertiesKeys", map.keys.to_tuple(py)?)?;
            dict.set_item("propertiesValues", map.values.to_tuple(py)?)?;
        }
        Ok(dict)
    }
}

struct MapColumn {
    offsets: Vec<u8>,
    keys: TextColumn,
    values: TextColumn,
}

impl MapColumn {
    fn new() -> Self {
        Self { offsets: vec![0; 4], keys: TextColumn::new(), values: TextColumn::new() }
    }

    fn push(&mut self, items: &[(&[u8], &[u8])]) -> Result<()> {
        for (name, value) in items {
            self.keys.text(name)?;
            self.values.text(value)?;
        }
        self.offsets.extend_from_slice(&(self.keys.rows as i32).to_ne_bytes());
        Ok(())
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
            return error::value("a column has over 2 GiB; decode fewer records at a time");
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
