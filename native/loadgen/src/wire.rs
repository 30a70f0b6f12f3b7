//! Frames of the remoting protocol, as far as a load generator needs them.
//!
//! ```text
//! 0  u32 length of everything behind this word
//! 4  u8  serializer (0 JSON, 1 ROCKETMQ)   5  u24 header length
//! 8  header, then body
//! ```
//! Requests are encoded once as a [`Template`]; per request only the opaque and the unique keys are written over.

use std::borrow::Cow;

use crate::signed::Signature;

pub const HEAD_SIZE: usize = 8;
pub const FRAME_SIZE_MAX: usize = 64 << 20;
const VERSION: i16 = 479;
/// Ten digits in every JSON header, so that patching never changes a length.
pub const OPAQUE_BASE: i32 = 1_000_000_000;
pub const OPAQUE_SPAN: u32 = 1 << 29;
/// Stands where the unique digits of a UNIQ_KEY go; no other field contains it.
const UNIQUE_MARK: &[u8; 16] = b"~unique~unique~~";
/// Stands where the number of a topic goes, when there are many.
const TOPIC_MARK: &str = "~topic";
/// As many have six digits.
pub const TOPICS_MAX: usize = 1_000_000;
const RECORD_MAGIC_V1: i32 = -626_843_481;
const RECORD_MAGIC_V2: i32 = -626_843_477;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serializer {
    Json,
    Binary,
}

pub type Fields<'a> = [(&'a str, Cow<'a, str>)];

pub struct Frame {
    pub bytes: Vec<u8>,
    opaque_at: usize,
    serializer: Serializer,
}

impl Frame {
    pub fn request(serializer: Serializer, code: i32, opaque: i32, fields: &Fields, body: &[u8]) -> Self {
        Self::new(serializer, code, 0, opaque, fields, body)
    }

    pub fn new(serializer: Serializer, code: i32, flag: i32, opaque: i32, fields: &Fields, body: &[u8]) -> Self {
        let (header, opaque_at) = match serializer {
            Serializer::Json => json_header(code, flag, opaque, fields),
            Serializer::Binary => binary_header(code, flag, opaque, fields),
        };
        let mut bytes = Vec::with_capacity(HEAD_SIZE + header.len() + body.len());
        bytes.extend_from_slice(&(4 + header.len() as u32 + body.len() as u32).to_be_bytes());
        let kind = u32::from(serializer == Serializer::Binary) << 24;
        bytes.extend_from_slice(&(kind | header.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        Self { bytes, opaque_at: HEAD_SIZE + opaque_at, serializer }
    }

    pub fn patch_opaque(&self, bytes: &mut [u8], opaque: i32) {
        match self.serializer {
            Serializer::Binary => bytes[self.opaque_at..self.opaque_at + 4].copy_from_slice(&opaque.to_be_bytes()),
            Serializer::Json => {
                let mut rest = opaque;
                for at in (self.opaque_at..self.opaque_at + 10).rev() {
                    bytes[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
    }
}

fn json_header(code: i32, flag: i32, opaque: i32, fields: &Fields) -> (Vec<u8>, usize) {
    let mut text = format!("{{\"code\":{code},\"extFields\":{{");
    for (i, (key, value)) in fields.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        text.push_str(&format!("{comma}\"{key}\":\"{}\"", json_escape(value)));
    }
    text.push_str(&format!("}},\"flag\":{flag},\"language\":\"JAVA\",\"opaque\":"));
    let opaque_at = text.len();
    text.push_str(&format!("{opaque},\"serializeTypeCurrentRPC\":\"JSON\",\"version\":{VERSION}}}"));
    (text.into_bytes(), opaque_at)
}

fn binary_header(code: i32, flag: i32, opaque: i32, fields: &Fields) -> (Vec<u8>, usize) {
    let mut ext = Vec::new();
    for (key, value) in fields {
        ext.extend_from_slice(&(key.len() as i16).to_be_bytes());
        ext.extend_from_slice(key.as_bytes());
        ext.extend_from_slice(&(value.len() as i32).to_be_bytes());
        ext.extend_from_slice(value.as_bytes());
    }
    let mut header = Vec::with_capacity(21 + ext.len());
    header.extend_from_slice(&(code as i16).to_be_bytes());
    header.push(0); // language JAVA
    header.extend_from_slice(&VERSION.to_be_bytes());
    header.extend_from_slice(&opaque.to_be_bytes());
    header.extend_from_slice(&flag.to_be_bytes());
    header.extend_from_slice(&0i32.to_be_bytes()); // remark
    header.extend_from_slice(&(ext.len() as i32).to_be_bytes());
    header.extend_from_slice(&ext);
    (header, 5)
}

pub fn json_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// A request encoded once; copying it and writing over a few digits makes the next request.
pub struct Template {
    frame: Frame,
    places: Places,
    signature: Option<Signature>,
}

impl Template {
    pub fn new(frame: Frame) -> Self {
        Self { places: Places::of(&frame.bytes), frame, signature: None }
    }

    pub fn signed(frame: Frame, signature: Signature) -> Self {
        Self { signature: Some(signature), ..Self::new(frame) }
    }

    pub fn append_to(&self, out: &mut Vec<u8>, opaque: i32, topic: usize, unique: &mut u64) {
        let start = out.len();
        out.extend_from_slice(&self.frame.bytes);
        let bytes = &mut out[start..];
        self.frame.patch_opaque(bytes, opaque);
        if let Some(signature) = &self.signature {
            signature.patch(bytes, topic, *unique);
        }
        self.places.patch(bytes, topic, unique);
    }
}

/// Where unique keys and numbers of topics go in bytes that have marks there.
pub struct Places {
    unique_at: Vec<usize>,
    topic_at: Vec<usize>,
}

impl Places {
    pub fn of(bytes: &[u8]) -> Self {
        let places = |mark: &[u8]| {
            let starts = bytes.windows(mark.len()).enumerate();
            starts.filter(|(_, bytes)| *bytes == mark).map(|(at, _)| at).collect()
        };
        Self { unique_at: places(UNIQUE_MARK), topic_at: places(TOPIC_MARK.as_bytes()) }
    }

    pub fn patch(&self, bytes: &mut [u8], topic: usize, unique: &mut u64) {
        for &at in &self.topic_at {
            let mut rest = topic;
            for digit in bytes[at..at + TOPIC_MARK.len()].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        for &at in &self.unique_at {
            *unique += 1;
            for (i, digit) in bytes[at..at + 16].iter_mut().enumerate() {
                *digit = b"0123456789ABCDEF"[(*unique >> (60 - 4 * i)) as usize & 15];
            }
        }
    }
}

/// The name of a topic, or of all of them if there are many.
pub fn topic_name(name: &str, topics: usize) -> String {
    if topics > 1 {
        format!("{name}_{TOPIC_MARK}")
    } else {
        name.into()
    }
}

/// What a Java producer puts into every message, a 32-digit client id and the wish to wait for the flush, and `more` of it.
pub fn properties(more: &[(String, String)]) -> String {
    let process = std::process::id() & 0xFFFF;
    let mark = std::str::from_utf8(UNIQUE_MARK).unwrap();
    let more: String = more.iter().map(|(key, value)| format!("{key}\x01{value}\x02")).collect();
    format!("UNIQ_KEY\x017F000001{process:04X}18B4{mark}\x02WAIT\x01true\x02{more}")
}

/// The body of SEND_BATCH_MESSAGE: `size magic crc flag bodyLength body propertiesLength properties`, repeated.
pub fn batch_body(body: &[u8], count: usize, properties: &str) -> Vec<u8> {
    let size = 22 + body.len() + properties.len();
    let mut out = Vec::with_capacity(size * count);
    for _ in 0..count {
        out.extend_from_slice(&(size as i32).to_be_bytes());
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&(body.len() as i32).to_be_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
        out.extend_from_slice(properties.as_bytes());
    }
    out
}

#[derive(Default, Debug)]
pub struct Reply<'a> {
    pub code: i32,
    pub flag: i32,
    pub opaque: i32,
    pub remark: &'a [u8],
    pub next_begin_offset: i64,
    pub min_offset: i64,
    pub max_offset: i64,
    /// `offset` of the offset queries, -1 when absent.
    pub offset: i64,
    /// Of a send: where it went.
    pub queue_offset: i64,
    pub msg_id: &'a [u8],
    /// Of a pop: what makes the handles of its messages.
    pub pop_time: i64,
    pub revive_queue: i64,
    pub start_offsets: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    pub fn is_response(&self) -> bool {
        self.flag & 1 == 1
    }

    /// Read a whole frame (with its first word).
    pub fn parse(frame: &'a [u8]) -> Result<Self, String> {
        let word = be32(frame, 4).ok_or("frame shorter than its head")? as u32;
        let header_size = (word & 0xFF_FFFF) as usize;
        let header = frame.get(HEAD_SIZE..HEAD_SIZE + header_size).ok_or("header longer than its frame")?;
        let mut reply = Reply {
            next_begin_offset: -1,
            min_offset: -1,
            max_offset: -1,
            offset: -1,
            queue_offset: -1,
            pop_time: -1,
            revive_queue: -1,
            body: &frame[HEAD_SIZE + header_size..],
            ..Reply::default()
        };
        match word >> 24 {
            0 => Json { text: header, at: 0 }.header(&mut reply).ok_or("malformed JSON header")?,
            1 => reply.binary(header).ok_or("malformed binary header")?,
            kind => return Err(format!("unknown serializer {kind}")),
        }
        Ok(reply)
    }

    fn binary(&mut self, header: &'a [u8]) -> Option<()> {
        self.code = i32::from(i16::from_be_bytes(header.get(0..2)?.try_into().ok()?));
        self.opaque = be32(header, 5)?;
        self.flag = be32(header, 9)?;
        let remark_size = be32(header, 13)? as usize;
        self.remark = header.get(17..17usize.checked_add(remark_size)?)?;
        let mut at = 17 + remark_size;
        let end = at.checked_add(4)?.checked_add(be32(header, at)? as usize)?;
        at += 4;
        while at < end {
            let key_size = i16::from_be_bytes(header.get(at..at + 2)?.try_into().ok()?) as usize;
            let key = header.get(at + 2..at + 2 + key_size)?;
            at += 2 + key_size;
            let value_size = be32(header, at)? as usize;
            let value = header.get(at + 4..(at + 4).checked_add(value_size)?)?;
            at += 4 + value_size;
            self.field(key, value);
        }
        (at == header.len()).then_some(())
    }

    fn field(&mut self, key: &[u8], value: &'a [u8]) {
        let slot = match key {
            b"msgId" => return self.msg_id = value,
            b"startOffsetInfo" => return self.start_offsets = value,
            b"queueOffset" => &mut self.queue_offset,
            b"popTime" => &mut self.pop_time,
            b"reviveQid" => &mut self.revive_queue,
            b"nextBeginOffset" => &mut self.next_begin_offset,
            b"minOffset" => &mut self.min_offset,
            b"maxOffset" => &mut self.max_offset,
            b"offset" => &mut self.offset,
            _ => return,
        };
        *slot = number(value).unwrap_or(-1);
    }
}

/// Just enough JSON for a header: one object of scalars and one object of scalars inside it.
struct Json<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Json<'a> {
    fn header(mut self, reply: &mut Reply<'a>) -> Option<()> {
        self.object(&mut |json, key| {
            match key {
                b"extFields" if json.peek()? == b'{' => json.object(&mut |json, key| {
                    reply.field(key, json.scalar()?);
                    Some(())
                })?,
                b"code" => reply.code = number(json.scalar()?)? as i32,
                b"opaque" => reply.opaque = number(json.scalar()?)? as i32,
                b"flag" => reply.flag = number(json.scalar()?)? as i32,
                b"remark" => reply.remark = json.scalar()?,
                _ => {
                    json.scalar()?;
                }
            }
            Some(())
        })
    }

    fn object(&mut self, each: &mut dyn FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let key = self.scalar()?;
            self.expect(b':')?;
            each(self, key)?;
            if self.peek()? == b'}' {
                return self.expect(b'}');
            }
            self.expect(b',')?;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.text[self.at])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// A string without its quotes (escapes left as they are), a number, true, false or null.
    fn scalar(&mut self) -> Option<&'a [u8]> {
        if self.peek()? != b'"' {
            let start = self.at;
            while !matches!(self.text.get(self.at)?, b',' | b'}' | b' ') {
                self.at += 1;
            }
            return Some(&self.text[start..self.at]);
        }
        let start = self.at + 1;
        self.at = start;
        loop {
            match self.text.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(&self.text[start..self.at - 1])
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub fn be32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Count stored messages back to back by walking their sizes; every record must be whole and have the right magic.
pub fn count_records(body: &[u8]) -> Result<u64, String> {
    let mut count = 0;
    each_record(body, |_| count += 1)?;
    Ok(count)
}

/// Call `each` with every stored message of a body, as `count_records` counts them.
pub fn each_record(body: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let mut at = 0usize;
    while at < body.len() {
        let size = be32(body, at).ok_or("record cut in its size")?;
        let magic = be32(body, at + 4).ok_or("record cut in its magic")?;
        if magic != RECORD_MAGIC_V1 && magic != RECORD_MAGIC_V2 {
            return Err(format!("record with magic {magic:#x} at byte {at} of {}", body.len()));
        }
        if size < 8 || size as usize > body.len() - at {
            return Err(format!("record of {size} bytes at byte {at} of {}", body.len()));
        }
        each(&body[at..at + size as usize]);
        at += size as usize;
    }
    Ok(())
}

/// Stored messages with nothing in them but size and magic, for the loopback stub.
pub fn fake_records(count: usize, size: usize) -> Vec<u8> {
    let mut out = vec![0; count * size];
    for record in out.chunks_exact_mut(size) {
        record[..4].copy_from_slice(&(size as i32).to_be_bytes());
        record[4..8].copy_from_slice(&RECORD_MAGIC_V1.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_headers_are_read_back() {
        for serializer in [Serializer::Json, Serializer::Binary] {
            let fields = [("nextBeginOffset", Cow::from("77")), ("minOffset", "3".into()), ("x", "a\"\\\x01".into())];
            let frame = Frame::new(serializer, 19, 1, OPAQUE_BASE + 5, &fields, b"body");
            let reply = Reply::parse(&frame.bytes).unwrap();
            assert_eq!((reply.code, reply.flag, reply.opaque), (19, 1, OPAQUE_BASE + 5));
            assert_eq!((reply.next_begin_offset, reply.min_offset, reply.max_offset), (77, 3, -1));
            assert_eq!(reply.body, b"body");
        }
    }

    #[test]
    fn a_template_is_patched_in_place() {
        for serializer in [Serializer::Json, Serializer::Binary] {
            let fields = [("b", Cow::from(topic_name("Orders", 1000))), ("i", properties(&[]).into())];
            let batch = batch_body(b"x", 2, &properties(&[]));
            let template = Template::new(Frame::request(serializer, 310, OPAQUE_BASE, &fields, &batch));
            assert_eq!(template.places.unique_at.len(), 3);
            let (mut out, mut unique) = (Vec::new(), 0xAB);
            template.append_to(&mut out, OPAQUE_BASE + 1_234_567, 42, &mut unique);
            assert_eq!(Reply::parse(&out).unwrap().opaque, OPAQUE_BASE + 1_234_567);
            assert_eq!(unique, 0xAE);
            assert!(out.windows(20).any(|w| w == b"18B400000000000000AC"));
            assert!(out.windows(13).any(|w| w == b"Orders_000042"));
        }
    }

    #[test]
    fn apache_reply_with_null_remark_and_nested_quotes() {
        let header =
            br#"{"code":2,"extFields":{},"flag":1,"language":"JAVA","opaque":9,"remark":"a \"}\" b","version":513}"#;
        let mut frame = ((4 + header.len()) as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&(header.len() as u32).to_be_bytes());
        frame.extend_from_slice(header);
        let reply = Reply::parse(&frame).unwrap();
        assert_eq!((reply.code, reply.opaque, reply.remark), (2, 9, &br#"a \"}\" b"#[..]));
        assert!(Reply::parse(&frame[..frame.len() - 3]).is_err());
    }

    #[test]
    fn records_are_counted_and_a_torn_one_is_told() {
        let body = fake_records(5, 100);
        assert_eq!(count_records(&body), Ok(5));
        assert!(count_records(&body[..450]).is_err());
    }
}
