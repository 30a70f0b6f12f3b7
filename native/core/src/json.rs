//! The JSON of a header: a scanner for exactly what peers write, and the writer of strings.
//!
//! Peers write one object of scalars with one object of strings inside. The scanner walks it once, left to right, and
//! copies only strings that hold escapes. Anything nested deeper is passed over, to a bound. It is lenient where the Java
//! peer's parser is: control characters may stand in strings, numbers and booleans may stand for strings.

use std::borrow::Cow;

pub type Text<'a> = Cow<'a, [u8]>;

/// How deep values nobody asked for may nest.
pub const DEPTH_MAX: usize = 32;

pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Walk an object: `member` gets each key, and must take the value behind it.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, Text<'a>) -> Result<(), String>) -> Result<(), String> {
        self.take(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key"));
            }
            let key = self.string()?;
            self.take(b':')?;
            member(self, key)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("',' or '}'")),
            }
        }
    }

    /// A scalar as text, numbers and booleans as they are written; None for null and for values with a structure.
    pub fn scalar(&mut self) -> Result<Option<Text<'a>>, String> {
        match self.peek() {
            Some(b'"') => self.string().map(Some),
            Some(b'-' | b'0'..=b'9') => self.number().map(|number| Some(Cow::Borrowed(number))),
            Some(b't') => self.literal(b"true").map(|text| Some(Cow::Borrowed(text))),
            Some(b'f') => self.literal(b"false").map(|text| Some(Cow::Borrowed(text))),
            _ => self.skip(0).map(|()| None),
        }
    }

    pub fn is_object(&mut self) -> bool {
        self.peek() == Some(b'{')
    }

    /// Only white space may follow.
    pub fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    fn skip(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("JSON nests deeper than {DEPTH_MAX}"));
        }
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            Some(b't') => self.literal(b"true").map(|_| ()),
            Some(b'f') => self.literal(b"false").map(|_| ()),
            Some(b'n') => self.literal(b"null").map(|_| ()),
            Some(b'{') => self.object(|scanner, _| scanner.skip(depth + 1)),
            Some(b'[') => {
                self.at += 1;
                if self.peek() == Some(b']') {
                    self.at += 1;
                    return Ok(());
                }
                loop {
                    self.skip(depth + 1)?;
                    match self.peek() {
                        Some(b',') => self.at += 1,
                        Some(b']') => {
                            self.at += 1;
                            return Ok(());
                        }
                        _ => return Err(self.unexpected("',' or ']'")),
                    }
                }
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// The next byte that isn't white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.unexpected(&format!("'{}'", byte as char)))
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> String {
        match self.text.get(self.at) {
            None => format!("JSON header ends at byte {} where {wanted} should be", self.at),
            Some(&byte) => {
                format!("JSON header has '{}' at byte {} where {wanted} should be", byte.escape_ascii(), self.at)
            }
        }
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<&'static [u8], String> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(word);
        }
        Err(self.unexpected("a value"))
    }

    fn number(&mut self) -> Result<&'a [u8], String> {
        let start = self.at;
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), String> {
        let start = self.at;
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(())
    }

    /// The string that starts at the quote under the cursor.
    fn string(&mut self) -> Result<Text<'a>, String> {
        let start = self.at + 1;
        match find_either(&self.text[start..], b'"', b'\\') {
            None => {
                self.at = self.text.len();
                Err(self.unexpected("'\"'"))
            }
            Some(length) => {
                self.at = start + length;
                if self.text[self.at] == b'"' {
                    self.at += 1;
                    return Ok(Cow::Borrowed(&self.text[start..start + length]));
                }
                self.escaped(start).map(Cow::Owned)
            }
        }
    }

    /// The rest of a string whose first escape is under the cursor.
    fn escaped(&mut self, start: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity((self.text.len() - start).min(2 * (self.at - start) + 64));
        out.extend_from_slice(&self.text[start..self.at]);
        loop {
            let rest = &self.text[self.at..];
            let plain = find_either(rest, b'"', b'\\').unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match rest.get(plain) {
                None => return Err(self.unexpected("'\"'")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(_) => self.escape(&mut out)?,
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        self.at += 1;
        let byte = match self.text.get(self.at) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode_escape(out),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        out.push(byte);
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let unit = self.unit()?;
        // The separators of properties: by far the most frequent escapes.
        if unit < 0x80 {
            out.push(unit as u8);
            return Ok(());
        }
        let mut point = u32::from(unit);
        if (0xD800..0xDC00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
            let mark = self.at;
            self.at += 1;
            let low = self.unit()?;
            if (0xDC00..0xE000).contains(&low) {
                point = 0x10000 + ((u32::from(unit) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
            } else {
                self.at = mark;
            }
        }
        // Half a surrogate pair is no character; UTF-8 can't hold it.
        let character = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Four hexadecimal digits behind the 'u' under the cursor.
    fn unit(&mut self) -> Result<u16, String> {
        let mut unit = 0;
        for _ in 0..4 {
            self.at += 1;
            let digit = self.text.get(self.at).and_then(|&byte| (byte as char).to_digit(16));
            unit = unit << 4 | digit.ok_or_else(|| self.unexpected("a hexadecimal digit"))? as u16;
        }
        self.at += 1;
        Ok(unit)
    }
}

/// The first place of one of two bytes, looked for eight at a time: most of a header is inside strings.
#[inline]
pub fn find_either(text: &[u8], one: u8, other: u8) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let (ones, others) = (ONES * u64::from(one), ONES * u64::from(other));
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut words = text.chunks_exact(8);
    let mut at = 0;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        // Marks may be wrong behind a right one, never before.
        let marks = zeros(word ^ ones) | zeros(word ^ others);
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    words.remainder().iter().position(|&byte| byte == one || byte == other).map(|place| at + place)
}

/// Append `text` as a JSON string without its quotes.
pub fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut done = 0;
    for (at, &byte) in text.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text[done..at]);
        done = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&text[done..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Result<Option<Vec<u8>>, String> {
        let mut scanner = Scanner::new(text.as_bytes());
        let value = scanner.scalar()?.map(Cow::into_owned);
        scanner.end()?;
        Ok(value)
    }

    #[test]
    fn scalars_come_as_text() {
        for (text, value) in
            [("\"a\"", "a"), (" -1.5e+3 ", "-1.5e+3"), ("true", "true"), ("\"\\u0001\\n\\/\"", "\u{1}\n/")]
        {
            assert_eq!(scan(text).unwrap().unwrap(), value.as_bytes());
        }
        assert_eq!(scan("\"x\\ud83d\\ude00\\u00e9\"").unwrap().unwrap(), "x😀é".as_bytes());
        assert_eq!(scan("\"\\ud83d\\u0041\\ude00\"").unwrap().unwrap(), "\u{FFFD}A\u{FFFD}".as_bytes());
        assert_eq!(scan("{\"a\":[1,{}],\"b\":null}").unwrap(), None);
        assert_eq!(scan("null").unwrap(), None);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "", "\"", "\"\\", "\"\\u12", "\"\\x\"", "-", "1.", "1e", "01", "tru", "[1", "[1,]", "{\"a\"}", "{a:1}",
            "nul", "1 2", "\u{1}",
        ] {
            assert!(scan(text).is_err(), "{text}");
        }
        assert!(scan(&"[".repeat(100_000)).unwrap_err().contains("deeper"));
    }

    #[test]
    fn bytes_are_found_wherever_they_are() {
        for size in 0..40 {
            for at in 0..size {
                let mut text = vec![b'"' ^ 1; size];
                assert_eq!(find_either(&text, b'"', b'\\'), None);
                text[at..].fill(b'"');
                assert_eq!(find_either(&text, b'"', b'\\'), Some(at));
                text[at] = b'\\';
                assert_eq!(find_either(&text, b'"', b'\\'), Some(at));
            }
        }
    }

    #[test]
    fn written_strings_read_back() {
        let text = "a\"b\\c\u{1}\u{1f}é😀";
        let mut out = vec![b'"'];
        write_escaped(&mut out, text.as_bytes());
        out.push(b'"');
        assert_eq!(scan(std::str::from_utf8(&out).unwrap()).unwrap().unwrap(), text.as_bytes());
    }
}
