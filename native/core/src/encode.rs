//! Arrow columns as the bodies of client batches: the way back of `columns`.
//!
//! Each row becomes a message with its properties, joins the batch of its queue, and has an id. What is wrong with a row is
//! told, and the row left out; what is wrong with the columns themselves is an error.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
};

use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyTuple},
};

use crate::{
    error::{value, Result},
    json::find_either,
    properties::{java_hash, NAME_END, SIZE_MAX, VALUE_END},
    python::{contiguous, slice_of},
    unique_key::write_hex,
};

/// Bytes of a message in a batch besides body and properties.
pub const OVERHEAD: usize = 22;
/// Queues of one call: each has a place in memory.
const QUEUES_MAX: usize = 1 << 16;
/// Not to be sent.
const NOWHERE: i32 = -1;

/// The buffers of an Arrow text or binary column, as Python hands them over: validity bitmap, offsets, data, and the number
/// of the first row.
pub struct Buffers {
    validity: Option<PyUntypedBuffer>,
    offsets: PyUntypedBuffer,
    data: Option<PyUntypedBuffer>,
    first: usize,
}

type Given<'py> = (Option<Bound<'py, PyAny>>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, usize);

impl Buffers {
    pub fn of(column: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (validity, offsets, data, first): Given<'_> = column.extract()?;
        let buffer = |object: Bound<'_, PyAny>| contiguous(PyUntypedBuffer::get(&object)?);
        Ok(Self {
            validity: validity.map(buffer).transpose()?,
            offsets: buffer(offsets)?,
            data: data.map(buffer).transpose()?,
            first,
        })
    }

    fn column(&self) -> Column<'_> {
        Column {
            validity: self.validity.as_ref().map(slice_of),
            offsets: slice_of(&self.offsets),
            data: self.data.as_ref().map_or(&[], slice_of),
            first: self.first,
        }
    }
}

#[derive(Clone, Copy)]
struct Column<'a> {
    validity: Option<&'a [u8]>,
    offsets: &'a [u8],
    data: &'a [u8],
    first: usize,
}

impl<'a> Column<'a> {
    /// What stands in a row, None for null.
    fn get(&self, row: usize) -> Result<Option<&'a [u8]>> {
        let Some((start, end)) = self.span(row)? else { return Ok(None) };
        match self.data.get(start..end) {
            Some(bytes) => Ok(Some(bytes)),
            None => value(format!("row {row} of a column reaches from byte {start} to {end} of {}", self.data.len())),
        }
    }

    /// Where it stands.
    fn span(&self, row: usize) -> Result<Option<(usize, usize)>> {
        let at = self.first.saturating_add(row);
        // Offsets tell how many rows there are; a bitmap may have bits to spare.
        let (start, end) = match (int_at(self.offsets, at), int_at(self.offsets, at.saturating_add(1))) {
            (Some(start), Some(end)) if 0 <= start && start <= end => (start as usize, end as usize),
            (Some(start), Some(end)) => return value(format!("row {row} of a column reaches from {start} to {end}")),
            _ => return value(format!("a column has no row {row}")),
        };
        match self.validity.map(|validity| validity.get(at / 8)) {
            Some(None) => value(format!("a column has no row {row}")),
            Some(Some(byte)) if byte >> (at % 8) & 1 == 0 => Ok(None),
            _ => Ok(Some((start, end))),
        }
    }
}

fn int_at(numbers: &[u8], at: usize) -> Option<i32> {
    let bytes = numbers.get(at.checked_mul(4)?..)?.first_chunk()?;
    Some(i32::from_ne_bytes(*bytes))
}

/// Java's hash of the text in each row, 0 for null.
pub fn java_hashes<'py>(py: Python<'py>, column: &Bound<'py, PyAny>, rows: usize) -> PyResult<Bound<'py, PyBytes>> {
    let buffers = Buffers::of(column)?;
    let column = buffers.column();
    let mut hashes = Vec::new();
    for row in 0..rows {
        let hash = column.get(row)?.map_or(0, |text| java_hash(0, text));
        hashes.extend_from_slice(&hash.to_ne_bytes());
    }
    Ok(PyBytes::new(py, &hashes))
}

/// What happens to a property of a row's own whose name isn't only the user's.
#[derive(Clone, Copy)]
enum Reserved {
    LeftOut,
    Refused,
    /// The column of that number says it, unless that is null.
    Column(usize),
}

/// What makes messages of rows.
pub struct Encoder<'a> {
    body: Column<'a>,
    columns: Vec<(&'a str, Column<'a>)>,
    /// Of the properties of a row: where they stand among names and values.
    own: Option<(Column<'a>, Column<'a>, Column<'a>)>,
    reserved: HashMap<&'a [u8], Reserved>,
    size_max: usize,
    batch_bytes: usize,
    /// What ids begin from, and the number of the first row.
    ids: Option<(&'a [u8], usize)>,
}

/// The batches, (queue, messages, body), and what is wrong with rows.
#[derive(Default)]
pub struct Encoded {
    pub batches: Vec<(usize, usize, Vec<u8>)>,
    pub faults: Vec<(usize, String)>,
    ids: Vec<u8>,
    id_ends: Vec<u8>,
}

impl Encoder<'_> {
    /// `queues` has a number for each row.
    pub fn encode(&self, queues: &[u8]) -> Result<Encoded> {
        let mut open: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut encoded = Encoded { id_ends: vec![0; 4], ..Encoded::default() };
        let mut text = Vec::new();
        for row in 0..queues.len() / 4 {
            let queue = int_at(queues, row).unwrap_or(NOWHERE);
            if queue != NOWHERE {
                let Some(queue) = usize::try_from(queue).ok().filter(|&queue| queue < QUEUES_MAX) else {
                    return value(format!("row {row} can't go to queue {queue}: expected -1 … {}", QUEUES_MAX - 1));
                };
                match self.message(row, &mut text, &mut encoded.ids)? {
                    Ok(body) => {
                        if open.len() <= queue {
                            open.resize_with(queue + 1, Default::default);
                        }
                        let (count, batch) = &mut open[queue];
                        if *count > 0 && batch.len() + OVERHEAD + body.len() + text.len() > self.batch_bytes {
                            encoded.batches.push((queue, *count, std::mem::take(batch)));
                            *count = 0;
                        }
                        *count += 1;
                        write(batch, body, &text);
                    }
                    Err(fault) => encoded.faults.push((row, fault)),
                }
            }
            encoded.id_ends.extend_from_slice(&(encoded.ids.len() as i32).to_ne_bytes());
        }
        let last = open.into_iter().enumerate().filter(|(_, (count, _))| *count > 0);
        encoded.batches.extend(last.map(|(queue, (count, batch))| (queue, count, batch)));
        Ok(encoded)
    }

    /// The body of a row; its properties go to `text`, and its id to `ids`. Or what is wrong with it.
    fn message(&self, row: usize, text: &mut Vec<u8>, ids: &mut Vec<u8>) -> Result<std::result::Result<&[u8], String>> {
        let body = match self.body.get(row)? {
            None => return Ok(Err("the body is null".into())),
            Some([]) => return Ok(Err("the body is empty".into())),
            Some(body) => body,
        };
        text.clear();
        if let Some(fault) = self.properties(row, text)? {
            return Ok(Err(fault));
        }
        if let Some((seed, first)) = self.ids {
            let start = ids.len();
            let size = text.len() + body.len();
            // A hash of 64 bits alone has a chance to be another row's; with a checksum that has nothing to do with it there
            // is none to speak of. A second such hash costs as much as all else that is done here.
            let mut hasher = DefaultHasher::new();
            let mut checksum = crc32fast::Hasher::new();
            for part in [seed, text, body] {
                hasher.write_usize(part.len());
                hasher.write(part);
                checksum.update(part);
            }
            write_hex(ids, &hasher.finish().to_be_bytes());
            write_hex(ids, &checksum.finalize().to_be_bytes());
            write_hex(ids, &(size as u32).to_be_bytes());
            ids.extend_from_slice(format!("-{:X}", first.saturating_add(row)).as_bytes());
            pair(text, b"UNIQ_KEY", &ids[start..]);
        }
        if text.len() > SIZE_MAX {
            return Ok(Err(format!("its properties take {} bytes, the bound is {SIZE_MAX}", text.len())));
        }
        let size = OVERHEAD + body.len() + text.len();
        if size > self.size_max {
            return Ok(Err(format!("it takes {size} bytes, the bound is {}", self.size_max)));
        }
        Ok(Ok(body))
    }

    fn properties(&self, row: usize, text: &mut Vec<u8>) -> Result<Option<String>> {
        if let Some((rows, names, values)) = &self.own {
            if let Some((start, end)) = rows.span(row)? {
                for at in start..end {
                    let name = names.get(at)?.unwrap_or_default();
                    match self.reserved.get(name) {
                        Some(Reserved::LeftOut) => continue,
                        Some(Reserved::Refused) => return Ok(Some(format!("{} is for brokers", quoted(name)))),
                        Some(&Reserved::Column(number)) if self.columns[number].1.get(row)?.is_some() => continue,
                        _ => {}
                    }
                    if name.is_empty() {
                        return Ok(Some("a property has no name".into()));
                    }
                    if let Some(fault) = add(text, name, values.get(at)?) {
                        return Ok(Some(fault));
                    }
                }
            }
        }
        for (name, column) in &self.columns {
            if let Some(fault) = add(text, name.as_bytes(), column.get(row)?) {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }
}

/// Add a property. Readers take an empty one for none, so it is none.
fn add(text: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) -> Option<String> {
    let value = value.filter(|value| !value.is_empty())?;
    if [name, value].iter().any(|part| find_either(part, NAME_END, VALUE_END).is_some()) {
        return Some(format!("{} holds a separator (0x01 or 0x02)", quoted(name)));
    }
    pair(text, name, value);
    None
}

fn pair(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.push(NAME_END);
    text.extend_from_slice(value);
    text.push(VALUE_END);
}

fn quoted(name: &[u8]) -> String {
    format!("property {:?}", String::from_utf8_lossy(&name[..name.len().min(100)]))
}

/// A message as a part of a batch. Its size has a bound that fits into the fields.
fn write(batch: &mut Vec<u8>, body: &[u8], properties: &[u8]) {
    batch.extend_from_slice(&((OVERHEAD + body.len() + properties.len()) as i32).to_be_bytes());
    batch.extend_from_slice(&[0; 12]); // neither magic nor CRC nor flag
    batch.extend_from_slice(&(body.len() as i32).to_be_bytes());
    batch.extend_from_slice(body);
    batch.extend_from_slice(&(properties.len() as i16).to_be_bytes());
    batch.extend_from_slice(properties);
}

pub type Batch<'py> = (usize, usize, Bound<'py, PyBytes>);
pub type Batches<'py> = (Vec<Batch<'py>>, Vec<(usize, String)>, Bound<'py, PyTuple>);

/// What `_core.encode_columns` takes, and what it gives.
#[allow(clippy::too_many_arguments)]
pub fn batches<'py>(
    py: Python<'py>,
    queues: &Bound<'py, PyAny>,
    body: &Bound<'py, PyAny>,
    columns: Vec<(String, Bound<'py, PyAny>)>,
    own: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    left_out: Vec<String>,
    refused: Vec<String>,
    size_max: usize,
    batch_bytes: usize,
    ids: Option<(Vec<u8>, usize)>,
) -> PyResult<Batches<'py>> {
    if i32::try_from(size_max).is_err() {
        return Err(PyValueError::new_err(format!("size_max is {size_max}: expected {} at most", i32::MAX)));
    }
    let queues = contiguous(PyUntypedBuffer::get(queues)?)?;
    let body = Buffers::of(body)?;
    let buffers: Vec<Buffers> = columns.iter().map(|(_, column)| Buffers::of(column)).collect::<PyResult<_>>()?;
    let own = match &own {
        Some((rows, names, values)) => Some((Buffers::of(rows)?, Buffers::of(names)?, Buffers::of(values)?)),
        None => None,
    };
    let mut reserved: HashMap<&[u8], Reserved> = HashMap::new();
    reserved.extend(left_out.iter().map(|name| (name.as_bytes(), Reserved::LeftOut)));
    reserved.extend(refused.iter().map(|name| (name.as_bytes(), Reserved::Refused)));
    reserved.extend(columns.iter().enumerate().map(|(number, (name, _))| (name.as_bytes(), Reserved::Column(number))));
    let encoder = Encoder {
        body: body.column(),
        columns: columns.iter().zip(&buffers).map(|((name, _), each)| (name.as_str(), each.column())).collect(),
        own: own.as_ref().map(|(rows, names, values)| (rows.column(), names.column(), values.column())),
        reserved,
        size_max,
        batch_bytes,
        ids: ids.as_ref().map(|(seed, first)| (seed.as_slice(), *first)),
    };
    let encoded = encoder.encode(slice_of(&queues))?;
    let bodies = encoded.batches.iter().map(|(queue, count, body)| (*queue, *count, PyBytes::new(py, body)));
    let text = (py.None(), PyBytes::new(py, &encoded.id_ends), PyBytes::new(py, &encoded.ids)).into_pyobject(py)?;
    Ok((bodies.collect(), encoded.faults, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Texts {
        validity: Vec<u8>,
        offsets: Vec<u8>,
        data: Vec<u8>,
    }

    impl Texts {
        fn of(rows: &[Option<&str>]) -> Self {
            let mut texts = Self { validity: vec![0; rows.len().div_ceil(8)], offsets: vec![0; 4], data: Vec::new() };
            for (row, text) in rows.iter().enumerate() {
                if let Some(text) = text {
                    texts.validity[row / 8] |= 1 << (row % 8);
                    texts.data.extend_from_slice(text.as_bytes());
                }
                texts.offsets.extend_from_slice(&(texts.data.len() as i32).to_ne_bytes());
            }
            texts
        }

        fn column(&self, first: usize) -> Column<'_> {
            Column { validity: Some(&self.validity), offsets: &self.offsets, data: &self.data, first }
        }
    }

    fn numbers(rows: &[i32]) -> Vec<u8> {
        rows.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn encoder(body: Column<'_>) -> Encoder<'_> {
        Encoder {
            body,
            columns: Vec::new(),
            own: None,
            reserved: HashMap::new(),
            size_max: 1000,
            batch_bytes: 60,
            ids: None,
        }
    }

    #[test]
    fn rows_join_the_batch_of_their_queue_as_long_as_it_has_room() {
        let bodies = Texts::of(&["skipped", "one", "two", "three", "four"].map(Some));
        let encoded = encoder(bodies.column(1)).encode(&numbers(&[2, 0, 2, 2])).unwrap();
        let found: Vec<_> = encoded.batches.iter().map(|(queue, count, body)| (*queue, *count, body.len())).collect();
        // three and four go together with one only if 22 + 3 + 22 + 5 + 22 + 4 fit into 60.
        assert_eq!(found, [(2, 2, 52), (0, 1, 25), (2, 1, 26)]);
        assert_eq!(&encoded.batches[0].2[20..23], b"one");
        assert_eq!(&encoded.batches[0].2[45..50], b"three");
        assert!(encoded.faults.is_empty());
    }

    #[test]
    fn a_row_that_cannot_be_sent_says_why_and_the_others_go() {
        let long = "x".repeat(999);
        let bodies = Texts::of(&[None, Some(""), Some(&long), Some("b"), Some("b"), Some("b")]);
        let tags = Texts::of(&[None, None, None, Some("a\u{1}"), Some("t"), Some("t")]);
        let mut encoder = encoder(bodies.column(0));
        encoder.columns.push(("TAGS", tags.column(0)));
        let encoded = encoder.encode(&numbers(&[0, 0, 0, 0, 0, NOWHERE])).unwrap();
        let faults: Vec<_> = encoded.faults.iter().map(|(row, fault)| (*row, fault.as_str())).collect();
        assert_eq!(
            faults,
            [
                (0, "the body is null"),
                (1, "the body is empty"),
                (2, "it takes 1021 bytes, the bound is 1000"),
                (3, "property \"TAGS\" holds a separator (0x01 or 0x02)"),
            ]
        );
        assert_eq!(encoded.batches.len(), 1);
        assert_eq!(&encoded.batches[0].2[21..], b"\x00\x07TAGS\x01t\x02");
    }

    #[test]
    fn properties_of_a_row_come_with_the_columns() {
        let bodies = Texts::of(&[Some("b"), Some("b"), Some("b")]);
        let (names, values) = (
            Texts::of(&["user", "TAGS", "CLUSTER", "void", "TAGS", "DELAY"].map(Some)),
            Texts::of(&[Some("u"), Some("from map"), Some("c"), None, Some("from map"), Some("3")]),
        );
        let tags = Texts::of(&[Some("t"), None, None]);
        let rows = numbers(&[0, 4, 5, 6]);
        let mut encoder = encoder(bodies.column(0));
        encoder.own =
            Some((Column { validity: None, offsets: &rows, data: &[], first: 0 }, names.column(0), values.column(0)));
        encoder.columns.push(("TAGS", tags.column(0)));
        encoder.reserved.insert(b"CLUSTER", Reserved::LeftOut);
        encoder.reserved.insert(b"DELAY", Reserved::Refused);
        encoder.reserved.insert(b"TAGS", Reserved::Column(0));
        let encoded = encoder.encode(&numbers(&[0, 1, 2])).unwrap();
        assert_eq!(encoded.faults, [(2, "property \"DELAY\" is for brokers".to_owned())]);
        assert_eq!(&encoded.batches[0].2[23..], b"user\x01u\x02TAGS\x01t\x02");
        assert_eq!(&encoded.batches[1].2[23..], b"TAGS\x01from map\x02");
    }

    #[test]
    fn ids_come_from_what_is_sent_and_from_the_seed() {
        let bodies = Texts::of(&["same", "same", "other"].map(Some));
        let ids = |seed: &'static [u8]| {
            let mut encoder = encoder(bodies.column(0));
            encoder.ids = Some((seed, 15));
            let encoded = encoder.encode(&numbers(&[0, 0, 0])).unwrap();
            String::from_utf8(encoded.ids).unwrap()
        };
        let found = ids(b"job");
        let (one, two, three) = (&found[..34], &found[34..69], &found[69..]);
        assert_eq!(one[..32], two[..32]);
        assert_ne!(two[..32], three[..32]);
        assert_eq!([&one[32..], &two[32..], &three[32..]], ["-F", "-10", "-11"]);
        assert_eq!(found, ids(b"job"));
        assert_ne!(found[..32], ids(b"another")[..32]);
    }

    #[test]
    fn columns_that_are_too_short_are_an_error() {
        let bodies = Texts::of(&[Some("one")]);
        assert!(encoder(bodies.column(0)).encode(&numbers(&[0, 0])).is_err());
        assert!(encoder(bodies.column(usize::MAX)).encode(&numbers(&[0])).is_err());
        assert!(encoder(bodies.column(0)).encode(&numbers(&[QUEUES_MAX as i32])).is_err());
        let offsets = numbers(&[3, 1]);
        let backwards = Column { validity: None, offsets: &offsets, data: b"abc", first: 0 };
        assert!(encoder(backwards).encode(&numbers(&[0])).is_err());
        let beyond = numbers(&[0, 4]);
        let beyond = Column { validity: None, offsets: &beyond, data: b"abc", first: 0 };
        assert!(encoder(beyond).encode(&numbers(&[0])).is_err());
    }
}
