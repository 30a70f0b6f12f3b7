//! The stored record, which is also the element of a pull response. Integers are big-endian and signed.
//!
//! ```text
//!     0  i32  total size           28  i64  position of this record
//!     4  i32  magic                36  i32  sysFlag
//!     8  i32  body CRC             40  i64  born timestamp
//!    12  i32  queue id             48       born host, 8 or 20 bytes (sysFlag 0x10)
//!    16  i32  flag                +0   i64  store timestamp
//!    20  i64  queue offset        +8        store host, 8 or 20 bytes (sysFlag 0x20)
//!    then i32 reconsume times, i64 prepared transaction offset, i32 body length, body,
//!    topic length (i8 in V1, i16 in V2), topic, i16 properties length, properties
//! ```
//!
//! The body CRC is CRC-32 & 0x7FFFFFFF of the body as stored. V2 exists for topics over 127 bytes. A blank, `i32 rest of
//! file, i32 magic`, fills a file whose rest is too small; every file keeps room for one.
//!
//! The last 20 bytes may be a CRC of all before them: the property `__CRC32#`, CRC-32 & 0x7FFFFFFF in ten decimal digits,
//! the least significant one first.

use crate::{error, json::find_either, light, properties};

pub const MAGIC_V1: i32 = 0xDAA3_20A7u32 as i32;
pub const MAGIC_V2: i32 = 0xDAA3_20ABu32 as i32;
pub const MAGIC_BLANK: i32 = 0xCBD4_3194u32 as i32;
pub const BLANK_SIZE: usize = 8;

/// The longest topic whose length fits V1's i8.
pub const TOPIC_V1_MAX: usize = 127;
/// A queue's directory has the topic's name, and file systems end names here.
pub const TOPIC_MAX: usize = 255;

pub const BORN_V6: i32 = 0x10;
pub const STORE_V6: i32 = 0x20;
pub const MULTI_TAGS: i32 = 0x2;
pub const TRANSACTION: i32 = 0xC;
pub const TRANSACTION_PREPARED: i32 = 4;
pub const TRANSACTION_COMMIT: i32 = 8;
pub const TRANSACTION_ROLLBACK: i32 = 12;
/// Need-unwrap and inner-batch: one record that is many messages, in a batch queue.
pub const INNER_BATCH: i32 = 0xC0;

const CRC_NAME: &[u8; 9] = b"__CRC32#\x01";
const CRC_DIGITS: usize = 10;
/// Bytes of the property that holds the CRC of the whole record.
const CRC_PROPERTY: usize = CRC_NAME.len() + CRC_DIGITS + 1;

/// What of a record is checked before it counts as whole, besides its structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crc {
    Ignored,
    Body,
    /// The property over the whole record; without it no record is whole.
    Property,
}

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// As many zeros in a row aren't taken in properties.
const ZEROS_MAX: usize = 16;

const SYS_FLAG_AT: usize = 36;
const BORN_HOST_AT: usize = 48;
/// If the born host is an IPv4 address.
const STORE_HOST_AT: usize = BORN_HOST_AT + 8 + 8;
/// Where the body is but for the hosts.
pub const BODY_AT: usize = BORN_HOST_AT + 8 + 4 + 8 + 4;
/// All fields of fixed width in V1, hosts apart.
const FIXED: usize = 4 * 5 + 8 * 2 + 4 + 8 + 8 + 4 + 8 + 4 + 1 + 2;
/// No record is shorter: both hosts are at least 8 bytes.
pub const SIZE_MIN: usize = FIXED + 16;

/// A record to be written. Properties are given in pieces, to be stored one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct Message<'m> {
    pub queue_id: i32,
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'m [u8],
    pub store_timestamp: i64,
    pub store_host: &'m [u8],
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'m [u8],
    pub topic: &'m [u8],
    pub properties: &'m [&'m [u8]],
    /// Whether a property with the CRC of the whole record is put behind the others.
    pub crc_property: bool,
}

impl Message<'_> {
    pub fn size(&self) -> usize {
        let topic = self.topic.len() + usize::from(self.topic.len() > TOPIC_V1_MAX);
        FIXED + self.born_host.len() + self.store_host.len() + self.body.len() + topic + self.properties_size()
    }

    /// Bytes of the properties as they are stored.
    pub fn properties_size(&self) -> usize {
        let size = self.properties.iter().map(|piece| piece.len()).sum::<usize>();
        size + self.separator().len() + if self.crc_property { CRC_PROPERTY } else { 0 }
    }

    fn separator(&self) -> &'static [u8] {
        let last = self.properties.iter().rev().find_map(|piece| piece.last());
        separator(self.crc_property, last)
    }

    /// Prepared and rolled back messages have no place in a queue.
    pub fn is_queued(&self) -> bool {
        is_queued(self.sys_flag)
    }

    /// Write into `out`, which is exactly `size` bytes long.
    pub fn encode(&self, out: &mut [u8], queue_offset: i64, position: u64) {
        let v2 = self.topic.len() > TOPIC_V1_MAX;
        let mut sys_flag = self.sys_flag & !(BORN_V6 | STORE_V6);
        if self.born_host.len() > 8 {
            sys_flag |= BORN_V6;
        }
        if self.store_host.len() > 8 {
            sys_flag |= STORE_V6;
        }
        let size = out.len() as i32;
        let (out, crc) = out.split_at_mut(out.len() - if self.crc_property { CRC_PROPERTY } else { 0 });
        let mut writer = Writer { out: &mut *out };
        writer.int(size);
        writer.int(if v2 { MAGIC_V2 } else { MAGIC_V1 });
        writer.int(body_crc(self.body));
        writer.int(self.queue_id);
        writer.int(self.flag);
        writer.long(queue_offset);
        writer.long(position as i64);
        writer.int(sys_flag);
        writer.long(self.born_timestamp);
        writer.bytes(self.born_host);
        writer.long(self.store_timestamp);
        writer.bytes(self.store_host);
        writer.int(self.reconsume_times);
        writer.long(self.prepared_transaction_offset);
        writer.int(self.body.len() as i32);
        writer.bytes(self.body);
        if v2 {
            writer.short(self.topic.len() as i16);
        } else {
            writer.bytes(&[self.topic.len() as u8]);
        }
        writer.bytes(self.topic);
        writer.short(self.properties_size() as i16);
        for piece in self.properties {
            writer.bytes(piece);
        }
        writer.bytes(self.separator());
        debug_assert!(writer.out.is_empty());
        if self.crc_property {
            write_crc(out, crc);
        }
    }
}

/// The properties of a record without the CRC of the whole of it.
pub fn without_crc(properties: &[u8]) -> &[u8] {
    match properties.split_last_chunk::<CRC_PROPERTY>() {
        Some((before, last)) if last.starts_with(CRC_NAME) => before,
        _ => properties,
    }
}

/// What goes between properties that end in `last` and the one with the CRC.
fn separator(crc_property: bool, last: Option<&u8>) -> &'static [u8] {
    match last {
        Some(&last) if crc_property && last != properties::VALUE_END => &[properties::VALUE_END],
        _ => &[],
    }
}

/// Write the property that holds the CRC of `record`, which is all before it.
fn write_crc(record: &[u8], out: &mut [u8]) {
    let mut rest = body_crc(record) as u32;
    let (name, digits) = out.split_at_mut(CRC_NAME.len());
    name.copy_from_slice(CRC_NAME);
    for digit in &mut digits[..CRC_DIGITS] {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits[CRC_DIGITS] = properties::VALUE_END;
}

/// Records that differ in what the messages of a client batch differ in: the rest is encoded once.
pub struct Pattern {
    /// A record without body and properties.
    bytes: Vec<u8>,
    body_at: usize,
    crc_property: bool,
}

impl Pattern {
    pub fn new(common: &Message<'_>) -> Self {
        let empty = Message { body: &[], properties: &[], crc_property: false, ..*common };
        let mut bytes = vec![0; empty.size()];
        empty.encode(&mut bytes, 0, 0);
        let body_at = BODY_AT + common.born_host.len() + common.store_host.len();
        Self { bytes, body_at, crc_property: common.crc_property }
    }

    pub fn size(&self, inner: &Inner<'_>) -> usize {
        self.bytes.len() + inner.body.len() + self.properties_size(inner)
    }

    pub fn properties_size(&self, inner: &Inner<'_>) -> usize {
        let separator = separator(self.crc_property, inner.properties.last());
        inner.properties.len() + separator.len() + if self.crc_property { CRC_PROPERTY } else { 0 }
    }

    /// Write the record of a message into `out`, which is exactly `size` bytes long.
    pub fn encode(&self, inner: &Inner<'_>, out: &mut [u8], queue_offset: i64, position: u64) {
        let size = out.len() as i32;
        let (head, tail) = self.bytes.split_at(self.body_at);
        let (topic, _) = tail.split_at(tail.len() - 2);
        let (out, crc) = out.split_at_mut(out.len() - if self.crc_property { CRC_PROPERTY } else { 0 });
        let mut writer = Writer { out: &mut *out };
        writer.int(size);
        writer.bytes(&head[4..8]);
        writer.int(body_crc(inner.body));
        writer.bytes(&head[12..16]);
        writer.int(inner.flag);
        writer.long(queue_offset);
        writer.long(position as i64);
        writer.bytes(&head[SYS_FLAG_AT..head.len() - 4]);
        writer.int(inner.body.len() as i32);
        writer.bytes(inner.body);
        writer.bytes(topic);
        writer.short(self.properties_size(inner) as i16);
        writer.bytes(inner.properties);
        writer.bytes(separator(self.crc_property, inner.properties.last()));
        debug_assert!(writer.out.is_empty());
        if self.crc_property {
            write_crc(out, crc);
        }
    }
}

pub fn is_queued(sys_flag: i32) -> bool {
    !matches!(sys_flag & TRANSACTION, TRANSACTION_PREPARED | TRANSACTION_ROLLBACK)
}

pub fn body_crc(body: &[u8]) -> i32 {
    (crc32fast::hash(body) & 0x7FFF_FFFF) as i32
}

/// Writes from left to right into a slice that was measured before.
struct Writer<'o> {
    out: &'o mut [u8],
}

impl Writer<'_> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let (head, rest) = std::mem::take(&mut self.out).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.out = rest;
    }

    #[inline]
    fn short(&mut self, value: i16) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    fn int(&mut self, value: i32) {
        self.bytes(&value.to_be_bytes());
    }

    #[inline]
    fn long(&mut self, value: i64) {
        self.bytes(&value.to_be_bytes());
    }
}

/// A record that was read; its lengths add up to its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'r> {
    pub bytes: &'r [u8],
    pub size: usize,
    pub body_crc: i32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub position: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'r [u8],
    pub store_timestamp: i64,
    pub store_host: &'r [u8],
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'r [u8],
    pub topic: &'r [u8],
    pub properties: &'r [u8],
}

impl Record<'_> {
    pub fn is_inner_batch(&self) -> bool {
        self.sys_flag & INNER_BATCH == INNER_BATCH
    }

    pub fn passes(&self, crc: Crc) -> bool {
        match crc {
            Crc::Ignored => true,
            Crc::Body => self.body_crc == body_crc(self.body),
            Crc::Property => match self.bytes.split_last_chunk::<CRC_PROPERTY>() {
                Some((before, stored)) if self.properties.len() >= CRC_PROPERTY => {
                    let mut expected = [0; CRC_PROPERTY];
                    write_crc(before, &mut expected);
                    *stored == expected
                }
                _ => false,
            },
        }
    }
}

/// Cut `data` into records; each is handed to `each`.
pub fn walk<'d>(data: &'d [u8], mut each: impl FnMut(&Record<'d>) -> error::Result<()>) -> error::Result<()> {
    let mut at = 0;
    while at < data.len() {
        let Some(record) = decode(&data[at..]) else {
            return error::value(format!("no whole record at byte {at}"));
        };
        each(&record)?;
        at += record.size;
    }
    Ok(())
}

/// Read the record that `data` starts with; None when there is no whole record.
pub fn decode(data: &[u8]) -> Option<Record<'_>> {
    let size = usize::try_from(int_at(data, 0)?).ok()?;
    let v2 = match int_at(data, 4)? {
        MAGIC_V1 => false,
        MAGIC_V2 => true,
        _ => return None,
    };
    // Every length below is looked up inside this piece, so that none can lead out of the record.
    let record = data.get(..size)?;
    let sys_flag = int_at(record, SYS_FLAG_AT)?;
    let mut reader = Reader { rest: record.get(BORN_HOST_AT..)? };
    let born_host = reader.bytes(host_size(sys_flag, BORN_V6))?;
    let store_timestamp = reader.long()?;
    let store_host = reader.bytes(host_size(sys_flag, STORE_V6))?;
    let reconsume_times = reader.int()?;
    let prepared_transaction_offset = reader.long()?;
    let body_size = usize::try_from(reader.int()?).ok()?;
    let body = reader.bytes(body_size)?;
    let topic_size = if v2 { reader.short()? } else { i16::from(reader.bytes(1)?[0] as i8) };
    let topic = reader.bytes(usize::try_from(topic_size).ok()?)?;
    let properties_size = usize::try_from(reader.short()?).ok()?;
    let properties = reader.bytes(properties_size)?;
    if !reader.rest.is_empty() {
        return None;
    }
    Some(Record {
        bytes: record,
        size,
        body_crc: int_at(record, 8)?,
        queue_id: int_at(record, 12)?,
        flag: int_at(record, 16)?,
        queue_offset: long_at(record, 20)?,
        position: long_at(record, 28)?,
        sys_flag,
        born_timestamp: long_at(record, 40)?,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        topic,
        properties,
    })
}

/// What the log holds at a position, by what stands at the start of `data`.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'r> {
    Record(Record<'r>),
    /// The rest of the file is blank.
    Blank,
    /// The log ends here.
    Nothing,
}

/// Read the log at `position`, trusting nothing: a tail that a crash left may look like records of another place. `data`
/// is the rest of the file.
pub fn find(data: &[u8], position: u64, crc: Crc) -> Found<'_> {
    find_in(data, position, data.len(), crc)
}

/// The same when `data` may end before the file does, of which there are `rest` bytes from `position` on.
pub fn find_in(data: &[u8], position: u64, rest: usize, crc: Crc) -> Found<'_> {
    if int_at(data, 4) == Some(MAGIC_BLANK) {
        return if int_at(data, 0) == i32::try_from(rest).ok() { Found::Blank } else { Found::Nothing };
    }
    match decode(data) {
        Some(record) if record.position == position as i64 && record.passes(crc) => Found::Record(record),
        _ => Found::Nothing,
    }
}

/// Whether a record that ends at `end` of its file looks as if a part of it never reached the disk. The CRC covers the body
/// only. Of fields, topic and properties a crash may leave zeros, from any byte on (the kernel may have written the page while it was
/// being filled) up to where a sector ends, or the record. `is_like_torn` sees to it that nobody's message looks so.
pub fn is_torn(record: &Record<'_>, end: usize, behind: &[u8]) -> bool {
    let (topic, properties) = (record.topic, record.properties);
    if has_torn_fields(record, end - record.size) {
        return true;
    }
    let begin = end - properties.len();
    let mut boundaries = ((begin / SECTOR + 1) * SECTOR..=end).step_by(SECTOR);
    if topic.contains(&0)
        || boundaries.any(|at| is_zero(&properties[(at - begin).saturating_sub(ZEROS_MAX)..at - begin]))
    {
        return true;
    }
    // What stands behind in the next sector may have reached the disk without this one.
    let same_sector = (SECTOR - end % SECTOR) % SECTOR;
    properties.last() == Some(&0) && is_zero(&behind[..behind.len().min(BLANK_SIZE).min(same_sector)])
}

/// Whether a sector ends among the fields before the body, and in front of that are zeros where no broker has written any: all
/// of the store time, or the port it listens at. Nothing tells of earlier fields, which may be zero. An IPv6 address may be
/// nearly so, and isn't looked at.
fn has_torn_fields(record: &Record<'_>, begin: usize) -> bool {
    let boundary = SECTOR - begin % SECTOR;
    (STORE_HOST_AT..=BODY_AT + 16).contains(&boundary)
        && record.sys_flag & (BORN_V6 | STORE_V6) == 0
        && is_zero(&record.bytes[(boundary - ZEROS_MAX).min(STORE_HOST_AT + 6)..boundary])
}

/// Properties that could be taken for torn ones, and so aren't stored.
pub fn is_like_torn(properties: &[u8]) -> bool {
    // Zeros are rare.
    find_either(properties, 0, 0).is_some()
        && (properties.first() == Some(&0)
            || properties.last() == Some(&0)
            || properties.windows(ZEROS_MAX).any(is_zero))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The store timestamp of the record at the start of `data`, which need not be there with its body.
pub fn store_timestamp(data: &[u8]) -> Option<i64> {
    let sys_flag = int_at(data, SYS_FLAG_AT)?;
    long_at(data, BORN_HOST_AT + host_size(sys_flag, BORN_V6))
}

/// The properties text of a whole record, without looking at the rest of it.
pub fn properties(record: &[u8]) -> Option<&[u8]> {
    let sys_flag = int_at(record, SYS_FLAG_AT)?;
    let body_at = BODY_AT + host_size(sys_flag, BORN_V6) + host_size(sys_flag, STORE_V6);
    let body_size = usize::try_from(int_at(record, body_at - 4)?).ok()?;
    let mut reader = Reader { rest: record.get(body_at.checked_add(body_size)?..)? };
    let topic_size = match int_at(record, 4)? {
        MAGIC_V2 => reader.short()?,
        _ => i16::from(reader.bytes(1)?[0] as i8),
    };
    reader.bytes(usize::try_from(topic_size).ok()?)?;
    let size = usize::try_from(reader.short()?).ok()?;
    reader.bytes(size)
}

/// Whether `data` starts with a record of `size` bytes that says it is at `position`.
pub fn is_record(data: &[u8], size: usize, position: u64) -> bool {
    int_at(data, 0) == i32::try_from(size).ok()
        && matches!(int_at(data, 4), Some(MAGIC_V1 | MAGIC_V2))
        && long_at(data, 28) == Some(position as i64)
}

fn host_size(sys_flag: i32, v6: i32) -> usize {
    if sys_flag & v6 == 0 {
        8
    } else {
        20
    }
}

/// One message of a client batch: `i32 total, i32 magic, i32 crc, i32 flag, i32 body length, body, i16 properties length,
/// properties`. The first three words are ignored, as Java does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner<'b> {
    pub flag: i32,
    pub body: &'b [u8],
    pub properties: &'b [u8],
}

/// Cut a batch body; the error tells which field of which message doesn't fit.
pub fn batch(body: &[u8]) -> impl Iterator<Item = Result<Inner<'_>, String>> {
    let mut reader = Reader { rest: body };
    let mut number = 0;
    std::iter::from_fn(move || {
        if reader.rest.is_empty() {
            return None;
        }
        let at = body.len() - reader.rest.len();
        let inner = reader.inner();
        let inner = inner.and_then(|inner| refused_in_batch(inner.properties).map_or(Ok(inner), Err));
        let inner = inner.map_err(|field| format!("batch message {number} at byte {at}: {field} can't be"));
        if inner.is_err() {
            reader.rest = &[];
        }
        number += 1;
        Some(inner)
    })
}

/// What can't be in the properties of a message of a batch, None for nearly all of them.
fn refused_in_batch(properties: &[u8]) -> Option<&'static str> {
    // One look for both: zeros are rare, and an M in properties other than INNER_MULTI….
    match find_either(properties, 0, b'M') {
        None => None,
        Some(_) if is_like_torn(properties) => Some("properties"),
        // Apache stores such as given, and believes then what the sender says of light queues.
        Some(_) if light::is_meant(properties) => Some("properties that speak of light queues"),
        Some(_) => None,
    }
}

/// The messages of a body that `batch` has cut without an error.
pub fn checked_batch(body: &[u8]) -> impl Iterator<Item = Inner<'_>> {
    let mut reader = Reader { rest: body };
    std::iter::from_fn(move || reader.inner().ok())
}

struct Reader<'r> {
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    #[inline]
    fn bytes(&mut self, size: usize) -> Option<&'r [u8]> {
        let (head, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(head)
    }

    fn short(&mut self) -> Option<i16> {
        self.bytes(2).map(|bytes| i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn int(&mut self) -> Option<i32> {
        let value = int_at(self.rest, 0)?;
        self.rest = &self.rest[4..];
        Some(value)
    }

    fn long(&mut self) -> Option<i64> {
        let value = long_at(self.rest, 0)?;
        self.rest = &self.rest[8..];
        Some(value)
    }

    fn inner(&mut self) -> Result<Inner<'r>, &'static str> {
        self.bytes(12).ok_or("total, magic or CRC")?;
        let flag = self.int().ok_or("flag")?;
        let body_size = self.int().and_then(|size| usize::try_from(size).ok()).ok_or("body length")?;
        let body = self.bytes(body_size).ok_or("body")?;
        let properties_size = self.short().and_then(|size| usize::try_from(size).ok()).ok_or("properties length")?;
        let properties = self.bytes(properties_size).ok_or("properties")?;
        Ok(Inner { flag, body, properties })
    }
}

#[inline]
pub fn int_at(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..at + 4).map(|bytes| i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[inline]
pub fn long_at(data: &[u8], at: usize) -> Option<i64> {
    data.get(at..at + 8)?.try_into().ok().map(i64::from_be_bytes)
}

/// The tags code of a stored record.
pub fn tags_code(record: &Record<'_>) -> i64 {
    properties::tags_code(properties::keys(record.properties).tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'m>(topic: &'m [u8], host: &'m [u8], properties: &'m [&'m [u8]]) -> Message<'m> {
        Message {
            queue_id: 3,
            flag: -7,
            sys_flag: 0x401,
            born_timestamp: 1_700_000_000_000,
            born_host: host,
            store_timestamp: 1_700_000_000_001,
            store_host: &[10, 0, 0, 1, 0, 0, 42, 159],
            reconsume_times: 2,
            prepared_transaction_offset: 77,
            body: b"hello",
            topic,
            properties,
            crc_property: false,
        }
    }

    #[test]
    fn records_read_back_and_no_cut_of_one_does() {
        for (topic, host) in [(vec![b'T'; 5], vec![1; 8]), (vec![b't'; 128], vec![2; 20])] {
            let message = message(&topic, &host, &[b"TAGS\x01TagA\x02", b"k\x01v\x02"]);
            let mut out = vec![0; message.size()];
            message.encode(&mut out, 9, 4096);
            let record = decode(&out).unwrap();
            assert_eq!((record.size, record.queue_offset, record.position), (out.len(), 9, 4096));
            assert_eq!((record.topic, record.born_host, record.body), (&topic[..], &host[..], &b"hello"[..]));
            assert_eq!(record.properties, b"TAGS\x01TagA\x02k\x01v\x02");
            assert_eq!(store_timestamp(&out), Some(1_700_000_000_001));
            assert!(is_record(&out, out.len(), 4096));
            for end in 0..out.len() {
                assert_eq!(decode(&out[..end]), None);
            }
            assert!(matches!(find(&out, 4096, Crc::Body), Found::Record(_)));
            assert_eq!(find(&out, 4097, Crc::Body), Found::Nothing);
            let body_at = out.len() - message.properties_size() - 2 - topic.len() - 2;
            out[body_at - usize::from(topic.len() > 127)] ^= 1;
            assert_eq!(find(&out, 4096, Crc::Body), Found::Nothing);
        }
    }

    #[test]
    fn no_flipped_bit_passes_the_crc_of_the_whole_record() {
        for (given, stored) in [(&b""[..], &b""[..]), (b"k\x01v", b"k\x01v\x02"), (b"k\x01v\x02", b"k\x01v\x02")] {
            let pieces = [given, b""];
            let message = Message { crc_property: true, ..message(b"Topic", &[1; 8], &pieces) };
            let mut out = vec![0; message.size()];
            message.encode(&mut out, 9, 4096);
            let (before, property) = out.split_at(out.len() - 20);
            let digits: String = format!("{:010}", body_crc(before)).chars().rev().collect();
            assert_eq!(property, [b"__CRC32#\x01", digits.as_bytes(), b"\x02"].concat());
            let record = decode(&out).unwrap();
            assert_eq!(record.properties, [stored, property].concat());
            assert!(matches!(find(&out, 4096, Crc::Property), Found::Record(_)));
            let mut as_batch = vec![0; out.len()];
            let inner = Inner { flag: -7, body: b"hello", properties: given };
            Pattern::new(&message).encode(&inner, &mut as_batch, 9, 4096);
            assert_eq!(as_batch, out);
            for bit in 0..out.len() * 8 {
                let mut damaged = out.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(find(&damaged, 4096, Crc::Property), Found::Nothing, "bit {bit}");
            }
        }
        let without = message(b"Topic", &[1; 8], &[b"k\x01v\x02"]);
        let mut out = vec![0; without.size()];
        without.encode(&mut out, 9, 4096);
        assert_eq!(find(&out, 4096, Crc::Property), Found::Nothing);
    }

    #[test]
    fn flipped_bits_never_panic() {
        let message = message(b"Topic", &[1; 8], &[b"a\x01b"]);
        let mut out = vec![0; message.size()];
        message.encode(&mut out, 0, 0);
        for bit in 0..out.len() * 8 {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Some(record) = decode(&damaged) {
                assert_eq!(record.size, damaged.len());
            }
        }
    }

    #[test]
    fn batches_are_cut_or_refused() {
        let one = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\x02hi\0\x03a\x01b";
        let two = [&one[..], &one[..]].concat();
        let inner = Inner { flag: 5, body: b"hi", properties: b"a\x01b" };
        assert_eq!(batch(&two).collect::<Result<Vec<_>, _>>().unwrap(), [inner, inner]);
        for end in 1..one.len() {
            assert!(batch(&two[..one.len() + end]).collect::<Result<Vec<_>, _>>().is_err());
        }
    }
}
