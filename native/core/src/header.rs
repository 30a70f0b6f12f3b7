//! Headers in both serializers, read and written.
//!
//! JSON: `{"code":…,"language":"JAVA","version":…,"opaque":…,"flag":…,"remark":…,"extFields":{"key":"value",…}}`
//!
//! ROCKETMQ, integers big-endian:
//! ```text
//!     0  i16  code            3  i16  version        9  i32  flag
//!     2  u8   language        5  i32  opaque        13  i32  remark length, remark,
//!                                                       i32  extFields length, then entries that fill it exactly:
//!                                                            i16 key length, key, i32 value length, value
//! ```
//! A length of zero means null. A key may come twice; the last one counts (Java writes signed requests that way).

use crate::json::{self, Piece, Scanner};

pub const JSON: u8 = 0;
pub const ROCKETMQ: u8 = 1;

/// What we call ourselves on the wire.
pub const OUR_LANGUAGE: u8 = 3;
/// The version ordinal of Apache 5.3.3, whose behaviour we take for ourselves.
pub const OUR_VERSION: i32 = 479;

pub const RESPONSE: i32 = 1;
pub const ONE_WAY: i32 = 2;

/// Language names by their ordinal.
pub const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
];
const OTHER: u8 = 7;

/// What a connection keeps for its next header.
const FIELDS_KEPT: usize = 256;
const ARENA_KEPT: usize = 16 << 10;

/// What a header says; its texts stand in the bytes it was read from.
#[derive(Debug, Default)]
pub struct Header {
    pub code: i32,
    pub language: u8,
    pub version: i32,
    pub opaque: i32,
    pub flag: i32,
    pub serializer: u8,
    remark: Option<Piece>,
    /// In the order of arrival, repeated keys included; a value of None takes the key out again.
    fields: Vec<(Piece, Option<Piece>)>,
    /// Texts that had escapes.
    arena: Vec<u8>,
}

impl Header {
    /// Read `text` into this header, using its memory again. The error tells why it is no header.
    pub fn read(&mut self, serializer: u8, text: &[u8]) -> Result<(), String> {
        self.serializer = serializer;
        self.remark = None;
        self.fields.clear();
        self.arena.clear();
        match serializer {
            JSON => self.read_json(text),
            _ => self.read_binary(text),
        }
    }

    /// Give memory back that an unusual header took.
    pub fn shrink(&mut self) {
        if self.fields.capacity() > FIELDS_KEPT || self.arena.capacity() > ARENA_KEPT {
            *self = Self::default();
        }
    }

    /// The remark, given the text that was read.
    pub fn remark<'t>(&'t self, text: &'t [u8]) -> Option<&'t [u8]> {
        self.remark.map(|piece| piece.of(text, &self.arena))
    }

    /// The fields, given the text that was read.
    #[inline]
    pub fn fields<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (&'t [u8], Option<&'t [u8]>)> {
        let arena = &self.arena[..];
        self.fields.iter().map(move |(key, value)| (key.of(text, arena), value.map(|value| value.of(text, arena))))
    }

    fn read_json(&mut self, text: &[u8]) -> Result<(), String> {
        let Self { code, language, version, opaque, flag, remark, fields, arena, .. } = self;
        (*code, *language, *version, *opaque, *flag) = (0, OTHER, 0, 0, 0);
        let mut scanner = Scanner::new(text, arena);
        scanner.object(|scanner, key| {
            match scanner.bytes(key) {
                b"extFields" => {
                    fields.clear();
                    if scanner.is_object() {
                        scanner.object(|scanner, key| {
                            let value = scanner.scalar()?;
                            fields.push((key, value));
                            Ok(())
                        })?;
                    } else {
                        scanner.scalar()?;
                    }
                }
                b"remark" => *remark = scanner.scalar()?,
                b"language" => {
                    let name = scanner.scalar()?;
                    *language = language_of(name.map(|name| scanner.bytes(name)));
                }
                b"code" => *code = number("code", scanner)?,
                b"version" => *version = number("version", scanner)?,
                b"opaque" => *opaque = number("opaque", scanner)?,
                b"flag" => *flag = number("flag", scanner)?,
                _ => drop(scanner.scalar()?),
            }
            Ok(())
        })?;
        scanner.end()
    }

    fn read_binary(&mut self, text: &[u8]) -> Result<(), String> {
        let mut reader = Reader { text, at: 0 };
        self.code = i32::from(i16::from_be_bytes(reader.array("code")?));
        let [language] = reader.array("language")?;
        self.language = if usize::from(language) < LANGUAGES.len() { language } else { OTHER };
        self.version = i32::from(i16::from_be_bytes(reader.array("version")?));
        self.opaque = i32::from_be_bytes(reader.array("opaque")?);
        self.flag = i32::from_be_bytes(reader.array("flag")?);
        let remark = reader.long_text("remark")?;
        self.remark = (remark > 0).then(|| Piece::plain(reader.at - remark, remark));
        let length = i32::from_be_bytes(reader.array("extFields")?);
        let left = text.len() - reader.at;
        if length < 0 || length as usize != left {
            return Err(format!("extFields length {length} is not {left}, what the header length leaves"));
        }
        let mut at = reader.at;
        while at < text.len() {
            let Some((key, value)) = entry(&text[at..]) else {
                reader.at = at;
                return Err(reader.entry_error());
            };
            let value_at = at + 2 + key + 4;
            if key > 0 {
                self.fields.push((Piece::plain(at + 2, key), (value > 0).then(|| Piece::plain(value_at, value))));
            }
            at = value_at + value;
        }
        Ok(())
    }
}

/// The sizes of key and value of the entry that `rest` starts with.
#[inline]
fn entry(rest: &[u8]) -> Option<(usize, usize)> {
    let (size, behind) = rest.split_first_chunk()?;
    // A negative length becomes one that no header has.
    let key = i16::from_be_bytes(*size) as usize;
    let (size, behind) = behind.get(key..)?.split_first_chunk()?;
    let value = i32::from_be_bytes(*size) as usize;
    (value <= behind.len()).then_some((key, value))
}

fn language_of(name: Option<&[u8]>) -> u8 {
    let Some(name) = name else { return OTHER };
    let ordinal = match LANGUAGES.iter().position(|language| language.as_bytes() == name) {
        Some(ordinal) => ordinal as i64,
        // Some peers write the ordinal in place of the name.
        None => integer(name).unwrap_or(i64::from(OTHER)),
    };
    if (0..LANGUAGES.len() as i64).contains(&ordinal) {
        ordinal as u8
    } else {
        OTHER
    }
}

fn number(name: &str, scanner: &mut Scanner<'_>) -> Result<i32, String> {
    let Some(piece) = scanner.scalar()? else { return Ok(0) };
    let text = scanner.bytes(piece);
    let value = integer(text).and_then(|value| i32::try_from(value).ok());
    value.ok_or_else(|| {
        format!("{name} '{}' is not a 32-bit integer", String::from_utf8_lossy(&text[..text.len().min(40)]))
    })
}

/// A decimal integer with an optional sign, as Java's `parseLong` takes it.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Collected as a negative number, because the least i64 has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative {
        Some(value)
    } else {
        value.checked_neg()
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self, name: &str) -> Result<[u8; N], String> {
        self.bytes(name, N).map(|bytes| bytes.try_into().unwrap_or([0; N]))
    }

    /// The size of a text that was passed over.
    fn long_text(&mut self, name: &str) -> Result<usize, String> {
        let length = i32::from_be_bytes(self.array(name)?);
        self.text(name, length)
    }

    /// What is wrong with the entry under the cursor.
    #[cold]
    fn entry_error(&mut self) -> String {
        let key = self.array("extFields key").map(|size| i32::from(i16::from_be_bytes(size)));
        let key = key.and_then(|length| self.text("extFields key", length));
        match key.and_then(|_| self.long_text("extFields value")) {
            Ok(_) => "extFields entry doesn't fit".to_owned(),
            Err(error) => error,
        }
    }

    fn text(&mut self, name: &str, length: i32) -> Result<usize, String> {
        match usize::try_from(length) {
            Ok(length) => self.bytes(name, length).map(|_| length),
            Err(_) => Err(format!("{name} length {length} is negative")),
        }
    }

    fn bytes(&mut self, name: &str, length: usize) -> Result<&'a [u8], String> {
        let rest = &self.text[self.at..];
        let Some(bytes) = rest.get(..length) else {
            return Err(format!("{name} takes {length} bytes, over {}, what the header length leaves", rest.len()));
        };
        self.at += length;
        Ok(bytes)
    }
}

/// What a header we write says, apart from its fields.
pub struct Ours<'a> {
    pub code: i32,
    pub opaque: i32,
    pub flag: i32,
    pub remark: Option<&'a str>,
}

/// Append a header of ours. The error names what doesn't fit.
pub fn write<'f>(
    out: &mut Vec<u8>,
    serializer: u8,
    ours: &Ours<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> Result<(), String> {
    match serializer {
        JSON => {
            write_json(out, ours, fields);
            Ok(())
        }
        ROCKETMQ => write_binary(out, ours, fields),
        _ => Err(format!("serializer {serializer} is neither 0 (JSON) nor 1 (ROCKETMQ)")),
    }
}

fn write_json<'f>(out: &mut Vec<u8>, ours: &Ours<'_>, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
    out.extend_from_slice(b"{\"code\":");
    write_integer(out, i64::from(ours.code));
    out.extend_from_slice(b",\"flag\":");
    write_integer(out, i64::from(ours.flag));
    out.extend_from_slice(b",\"language\":\"PYTHON\",\"opaque\":");
    write_integer(out, i64::from(ours.opaque));
    if let Some(remark) = ours.remark {
        out.extend_from_slice(b",\"remark\":\"");
        json::write_escaped(out, remark.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    write_integer(out, i64::from(OUR_VERSION));
    // Java clients look fields up without asking whether there are any.
    out.extend_from_slice(b",\"extFields\":{");
    for (number, (key, value)) in fields.enumerate() {
        out.extend_from_slice(if number == 0 { b"\"" } else { b",\"" });
        json::write_escaped(out, key);
        out.extend_from_slice(b"\":\"");
        json::write_escaped(out, value);
        out.push(b'"');
    }
    out.extend_from_slice(b"}}");
}

fn write_binary<'f>(
    out: &mut Vec<u8>,
    ours: &Ours<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> Result<(), String> {
    // Codes over 32767 lose their upper bits here, in Java as well.
    out.extend_from_slice(&(ours.code as i16).to_be_bytes());
    out.push(OUR_LANGUAGE);
    out.extend_from_slice(&(OUR_VERSION as i16).to_be_bytes());
    out.extend_from_slice(&ours.opaque.to_be_bytes());
    out.extend_from_slice(&ours.flag.to_be_bytes());
    let remark = ours.remark.unwrap_or("");
    out.extend_from_slice(&length(remark.len(), "remark")?.to_be_bytes());
    out.extend_from_slice(remark.as_bytes());
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    for (key, value) in fields {
        let Ok(key_length) = i16::try_from(key.len()) else {
            return Err(format!("a key of {} bytes is over {}", key.len(), i16::MAX));
        };
        out.extend_from_slice(&key_length.to_be_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(&length(value.len(), "value")?.to_be_bytes());
        out.extend_from_slice(value);
    }
    let size = length(out.len() - start - 4, "extFields")?;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    Ok(())
}

fn length(size: usize, name: &str) -> Result<i32, String> {
    i32::try_from(size).map_err(|_| format!("{name} of {size} bytes is over {}", i32::MAX))
}

pub fn write_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(serializer: u8) {
        let fields: [(&[u8], &[u8]); 2] = [(b"topic", "T\u{1}é\"".as_bytes()), (b"k", b"v")];
        let mut out = Vec::new();
        let ours = Ours { code: 17, opaque: -5, flag: 1, remark: Some("no \"route\"") };
        write(&mut out, serializer, &ours, fields.into_iter()).unwrap();
        let mut header = Header::default();
        header.read(serializer, &out).unwrap();
        assert_eq!((header.code, header.opaque, header.flag, header.version), (17, -5, 1, 479));
        assert_eq!(LANGUAGES[header.language as usize], "PYTHON");
        assert_eq!(header.remark(&out), Some("no \"route\"".as_bytes()));
        let read: Vec<_> = header.fields(&out).map(|(key, value)| (key, value.unwrap())).collect();
        assert_eq!(read, fields);
        // No cut of a header is a header, and none panics.
        for end in 0..out.len() {
            assert!(Header::default().read(serializer, &out[..end]).is_err(), "{serializer} {end}");
        }
    }

    #[test]
    fn headers_read_back() {
        round(JSON);
        round(ROCKETMQ);
    }

    #[test]
    fn integers() {
        for value in [0, 7, -7, i64::MIN, i64::MAX, 1234567890] {
            let mut out = Vec::new();
            write_integer(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(integer(&out), Some(value));
        }
        for text in ["", "-", "+", "1a", " 1", "9223372036854775808", "1.0"] {
            assert_eq!(integer(text.as_bytes()), None);
        }
        assert_eq!(integer(b"+5"), Some(5));
    }
}
