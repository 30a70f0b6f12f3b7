//! The JSON of a header: a scanner for exactly what peers write, and the writer of strings.
//!
//! Peers write one object of scalars with one object of strings inside. The scanner walks it once, left to right, and
//! copies only strings that hold escapes. Anything nested deeper is passed over, to a bound. It is lenient where the Java
//! peer's parser is: control characters may stand in strings, numbers and booleans may stand for strings.

/// A text of a header: where it stands there, or in the arena when it had escapes to be undone. Plain numbers, so that
/// the list of a header's fields can be used again for the next header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    at: u32,
    size: u32,
}

impl Piece {
    /// Says that a piece lies in the arena; a header is at most 24 bits long.
    const IN_ARENA: u32 = 1 << 31;

    #[inline]
    pub fn plain(at: usize, size: usize) -> Self {
        Self { at: at as u32, size: size as u32 }
    }

    fn undone(at: usize, size: usize) -> Self {
        Self { at: at as u32 | Self::IN_ARENA, size: size as u32 }
    }

    /// Its bytes, given the header and the arena it was made from.
    #[inline]
    pub fn of<'t>(self, text: &'t [u8], arena: &'t [u8]) -> &'t [u8] {
        let place = if self.at & Self::IN_ARENA == 0 { text } else { arena };
        let at = (self.at & !Self::IN_ARENA) as usize;
        place.get(at..at + self.size as usize).unwrap_or_default()
    }
}

/// How deep values nobody asked for may nest.
pub const DEPTH_MAX: usize = 32;

pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    arena: &'a mut Vec<u8>,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a [u8], arena: &'a mut Vec<u8>) -> Self {
        Self { text, at: 0, arena }
    }

    pub fn bytes(&self, piece: Piece) -> &[u8] {
        piece.of(self.text, self.arena)
    }

    /// Walk an object: `member` gets each key, and must take the value behind it.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, Piece) -> Result<(), String>) -> Result<(), String> {
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
    #[inline]
    pub fn scalar(&mut self) -> Result<Option<Piece>, String> {
        match self.peek() {
            Some(b'"') => self.string().map(Some),
            Some(b'-' | b'0'..=b'9') => self.number().map(Some),
            Some(b't') => self.literal(b"true").map(Some),
            Some(b'f') => self.literal(b"false").map(Some),
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
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[inline]
    fn take(&mut self, byte: u8) -> Result<(), String> {
        if self.text.get(self.at) == Some(&byte) || self.peek() == Some(byte) {
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

    fn literal(&mut self, word: &[u8]) -> Result<Piece, String> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(Piece::plain(self.at - word.len(), word.len()));
        }
        Err(self.unexpected("a value"))
    }

    fn number(&mut self) -> Result<Piece, String> {
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
        Ok(Piece::plain(start, self.at - start))
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
    #[inline]
    fn string(&mut self) -> Result<Piece, String> {
        let start = self.at + 1;
        let rest = &self.text[start..];
        match find_either(rest, b'"', b'\\') {
            Some(size) if rest[size] == b'"' => {
                self.at = start + size + 1;
                Ok(Piece::plain(start, size))
            }
            Some(size) => {
                self.at = start + size;
                self.escaped(start)
            }
            None => {
                self.at = self.text.len();
                Err(self.unexpected("'\"'"))
            }
        }
    }

    /// The rest of a string whose first escape is under the cursor.
    fn escaped(&mut self, start: usize) -> Result<Piece, String> {
        let first = self.arena.len();
        self.arena.extend_from_slice(&self.text[start..self.at]);
        loop {
            let rest = &self.text[self.at..];
            let plain = find_either(rest, b'"', b'\\').unwrap_or(rest.len());
            self.arena.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match rest.get(plain) {
                None => return Err(self.unexpected("'\"'")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Piece::undone(first, self.arena.len() - first));
                }
                Some(_) => self.escape()?,
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        // The separators of properties: by far the most frequent escapes.
        if let Some([b'\\', b'u', b'0', b'0', b'0', digit @ b'0'..=b'9']) = self.text[self.at..].first_chunk() {
            self.arena.push(digit - b'0');
            self.at += 6;
            return Ok(());
        }
        self.at += 1;
        let byte = match self.text.get(self.at) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        self.arena.push(byte);
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<(), String> {
        let unit = self.unit()?;
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
        self.arena.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
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

/// The first place of one of two bytes, looked for in as large pieces as there are: most of a header is inside strings.
#[inline]
pub fn find_either(text: &[u8], one: u8, other: u8) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if let Some(last) = text.len().checked_sub(16) {
        let mut at = 0;
        while at < last {
            match marks(&text[at..], one, other) {
                Some(0) => at += 16,
                found => return found.map(|marks| at + marks.trailing_zeros() as usize),
            }
        }
        // The last piece begins in the one before it.
        return marks(&text[last..], one, other)
            .filter(|&marks| marks != 0)
            .map(|marks| last + marks.trailing_zeros() as usize);
    }
    find_in_words(text, one, other)
}

/// A bit for each of the first 16 bytes of `text`: whether it is one of two.
#[cfg(target_arch = "x86_64")]
#[inline]
fn marks(text: &[u8], one: u8, other: u8) -> Option<u32> {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8};
    let piece: &[u8; 16] = text.first_chunk()?;
    // SAFETY: SSE2 is a part of x86_64, and the load, which needs no alignment, reads the 16 bytes of `piece`.
    let marks = unsafe {
        let piece = _mm_loadu_si128(piece.as_ptr().cast());
        let (ones, others) = (_mm_set1_epi8(one as i8), _mm_set1_epi8(other as i8));
        _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(piece, ones), _mm_cmpeq_epi8(piece, others)))
    };
    Some(marks as u32)
}

/// For a text of 16 to 64 bytes, bit n says whether byte n is the wanted one; None for others, which `find_either` looks through.
#[inline]
pub fn marks_in_short(text: &[u8], wanted: u8) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if (16..=64).contains(&text.len()) {
        let last = text.len() - 16;
        let mut found = u64::from(marks(&text[last..], wanted, wanted)?) << last;
        for at in (0..last).step_by(16) {
            found |= u64::from(marks(&text[at..], wanted, wanted)?) << at;
        }
        return Some(found);
    }
    None
}

/// `find_either` by eights.
#[inline]
fn find_in_words(text: &[u8], one: u8, other: u8) -> Option<usize> {
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
        let mut arena = Vec::new();
        let mut scanner = Scanner::new(text.as_bytes(), &mut arena);
        let value = scanner.scalar()?;
        scanner.end()?;
        Ok(value.map(|piece| scanner.bytes(piece).to_vec()))
    }

    #[test]
    fn the_first_of_two_bytes_is_found() {
        for size in 0..70 {
            let text = vec![b'x'; size];
            assert_eq!(find_either(&text, 1, 0), None);
            for first in 0..size {
                for second in [first, size - 1] {
                    let mut text = text.clone();
                    (text[second], text[first]) = (1, 0);
                    assert_eq!(find_either(&text, 1, 0), Some(first), "{size} {first} {second}");
                    assert_eq!(find_in_words(&text, 0, 1), Some(first), "{size} {first} {second}");
                }
            }
        }
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
