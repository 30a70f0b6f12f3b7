//! The properties text of a message: `key 0x01 value 0x02 …`, the last 0x02 optional.
//!
//! Java reads it segment by segment and passes over a segment without 0x01, with an empty key or an empty value. Of a key
//! that comes twice the last value counts. We read by the same rules, since what a peer sees is what counts.

use crate::json::{find_either, marks_in_short};

pub const NAME_END: u8 = 1;
pub const VALUE_END: u8 = 2;
/// The length of the text is an i16 in a record.
pub const SIZE_MAX: usize = i16::MAX as usize;

pub fn items(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let name_end = find_either(rest, NAME_END, VALUE_END)?;
            let (name, behind) = (&rest[..name_end], &rest[name_end + 1..]);
            if rest[name_end] == VALUE_END {
                rest = behind;
                continue;
            }
            let value_end = find_either(behind, VALUE_END, VALUE_END).unwrap_or(behind.len());
            rest = behind.get(value_end + 1..).unwrap_or_default();
            if !name.is_empty() && value_end > 0 {
                return Some((name, &behind[..value_end]));
            }
        }
        None
    })
}

/// What messages are found by.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'p> {
    pub unique_key: Option<&'p [u8]>,
    /// Separated by spaces.
    pub keys: Option<&'p [u8]>,
    pub tags: Option<&'p [u8]>,
}

impl<'p> Keys<'p> {
    /// Take a segment in.
    #[inline]
    fn note(&mut self, segment: &'p [u8]) {
        let (place, value) = match segment.first() {
            Some(b'U') => (&mut self.unique_key, segment.strip_prefix(b"UNIQ_KEY\x01")),
            Some(b'K') => (&mut self.keys, segment.strip_prefix(b"KEYS\x01")),
            Some(b'T') => (&mut self.tags, segment.strip_prefix(b"TAGS\x01")),
            _ => return,
        };
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            *place = Some(value);
        }
    }
}

/// What the store has to know of a message's properties.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Known<'p> {
    pub keys: Keys<'p>,
    /// The delay level asked for.
    pub delay: Option<&'p [u8]>,
    /// Whether it is to be half a transaction (TRAN_MSG).
    pub is_half: bool,
    /// Whether it is one of those of a key, which are consumed in order (__SHARDINGKEY).
    pub is_fifo: bool,
    /// Whether it says a time in a way that means nothing here, but that Apache calls a delay all the same.
    pub is_timed: bool,
    /// Asks for something that Python decides about.
    pub special: bool,
}

pub fn inspect(text: &[u8]) -> Known<'_> {
    let mut known = Known::default();
    for (name, value) in items(text) {
        match name {
            b"UNIQ_KEY" => known.keys.unique_key = Some(value),
            b"KEYS" => known.keys.keys = Some(value),
            b"TAGS" => known.keys.tags = Some(value),
            b"TRAN_MSG" => known.is_half = value.eq_ignore_ascii_case(b"true"),
            b"DELAY" => known.delay = Some(value),
            b"__SHARDINGKEY" => known.is_fifo = true,
            b"__STARTDELIVERTIME" => known.is_timed = true,
            b"POP_CK" | b"__CRC32#" | b"MSG_REGION" | b"TRACE_ON" | b"CLUSTER" => known.special = true,
            _ => {
                known.special |=
                    name.starts_with(b"TIMER_") || name.starts_with(b"INNER_") || name.starts_with(b"__RMQ.TRANSIENT.");
            }
        }
    }
    known
}

/// What may be a property each, name and value not taken apart.
pub fn segments(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = find_either(rest, VALUE_END, VALUE_END).unwrap_or(rest.len());
        let segment = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(segment)
    })
}

/// The keys, for who wants nothing else: only the segments that hold them are taken apart.
pub fn keys(text: &[u8]) -> Keys<'_> {
    let mut keys = Keys::default();
    match marks_in_short(text, VALUE_END) {
        None => segments(text).for_each(|segment| keys.note(segment)),
        Some(mut ends) => {
            let mut from = 0;
            while ends != 0 {
                let end = ends.trailing_zeros() as usize;
                keys.note(&text[from..end]);
                (from, ends) = (end + 1, ends & (ends - 1));
            }
            keys.note(&text[from..]);
        }
    }
    keys
}

/// Offset of the first message of an inner batch and how many they are, as its record says (INNER_BASE, INNER_NUM).
pub fn inner_batch(text: &[u8]) -> Option<(i64, i16)> {
    fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
        std::str::from_utf8(value).ok()?.parse().ok()
    }
    let (mut base, mut count) = (None, None);
    for (name, value) in items(text) {
        match name {
            b"INNER_BASE" => base = number(value),
            b"INNER_NUM" => count = number(value).filter(|&count: &i16| count > 0),
            _ => {}
        }
    }
    base.zip(count)
}

/// The tags code of a queue entry: Java's `String.hashCode` of the whole TAGS value, sign-extended; 0 without TAGS.
pub fn tags_code(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(0, tags)))
}

/// Java's `String.hashCode` of a text that begins with one whose hash is `before` (0: nothing) and goes on with `text`.
#[inline]
pub fn java_hash(before: i32, text: &[u8]) -> i32 {
    // Eight at a time: a multiplication waits for the one before it.
    let pieces = text.chunks_exact(8);
    let rest = pieces.remainder();
    let (mut hash, mut seen) = (before, 0);
    for piece in pieces {
        let letters = u64::from_be_bytes(piece.try_into().unwrap_or_default());
        seen |= letters;
        hash = hash.wrapping_mul(POWER_4.wrapping_mul(POWER_4)).wrapping_add(hash_of_eight(letters));
    }
    for &byte in rest {
        seen |= u64::from(byte);
        hash = hash.wrapping_mul(31).wrapping_add(i32::from(byte));
    }
    if seen & 0x8080_8080_8080_8080 == 0 {
        hash
    } else {
        java_hash_of_units(before, text)
    }
}

/// Of a text that isn't ASCII.
#[cold]
fn java_hash_of_units(before: i32, text: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(before, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

const POWER_4: i32 = 31 * 31 * 31 * 31;

/// The hash of eight ASCII letters: of pairs, then of fours, side by side in one word, without a carry between them.
fn hash_of_eight(letters: u64) -> i32 {
    let pairs = ((letters >> 8) & 0x00FF_00FF_00FF_00FF) * 31 + (letters & 0x00FF_00FF_00FF_00FF);
    let fours = ((pairs >> 16) & 0x0000_FFFF_0000_FFFF) * (31 * 31) + (pairs & 0x0000_FFFF_0000_FFFF);
    ((fours >> 32) as i32).wrapping_mul(POWER_4).wrapping_add(fours as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_segments_are_passed_over() {
        let text = b"a\x01b\x02\x02x\x02\x01v\x02k\x01\x02c\x01d\x01e\x02a\x01z";
        let read: Vec<_> = items(text).collect();
        assert_eq!(read, [(&b"a"[..], &b"b"[..]), (b"c", b"d\x01e"), (b"a", b"z")]);
    }

    #[test]
    fn keys_alone_are_what_inspection_finds() {
        for text in [
            "",
            "TAGS\u{1}a",
            "x\u{1}y\u{2}TAGS\u{1}a\u{1}b\u{2}TAGS\u{1}\u{2}",
            "TAGS\u{2}TAGS\u{1}c\u{2}d",
            "xTAGS\u{1}a\u{2}",
            "UNIQ_KEY\u{1}k\u{2}KEYS\u{1}a b\u{2}\u{2}TAGSx\u{1}a\u{2}U\u{1}k\u{2}KEYS\u{2}TAGS",
        ] {
            assert_eq!(keys(text.as_bytes()), inspect(text.as_bytes()).keys, "{text:?}");
            // As long as a vector is, and some of them.
            for size in 0..70 {
                let longer = [text, "\u{2}WAIT\u{1}", &"x".repeat(size), "\u{2}TAGS\u{1}t"].concat();
                assert_eq!(keys(longer.as_bytes()), inspect(longer.as_bytes()).keys, "{longer:?}");
            }
        }
    }

    #[test]
    fn hashes_are_javas() {
        assert_eq!(tags_code(Some(b"TagA")), 2_598_919);
        assert_eq!(tags_code(Some("标签".as_bytes())), 857_175);
        assert_eq!(tags_code(Some(b"polygenelubricants")), i64::from(i32::MIN));
        assert_eq!(tags_code(None), 0);
        let one_by_one = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            text.encode_utf16().fold(7, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
        };
        for text in ["~".repeat(40), "7F00000100002A139A55".into(), "ascii, then \u{e9}".into(), "\u{ff}".repeat(8)] {
            for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
                assert_eq!(java_hash(7, &text.as_bytes()[..end]), one_by_one(&text.as_bytes()[..end]), "{text} {end}");
            }
        }
    }

    #[test]
    fn special_properties_are_seen() {
        for text in ["POP_CK\u{1}3", "TIMER_DELAY_MS\u{1}1", "INNER_NUM\u{1}1", "__RMQ.TRANSIENT.x\u{1}1"] {
            assert!(inspect(text.as_bytes()).special, "{text}");
        }
        let known =
            inspect(b"TRAN_MSG\x01false\x02DELAY\x01\x02TAGS\x01a\x02UNIQ_KEY\x01u\x02TAGS\x01b\x02POP_CK_OFFSET\x011");
        let keys = Keys { unique_key: Some(b"u"), keys: None, tags: Some(b"b") };
        assert_eq!(known, Known { keys, ..Known::default() });
        assert!(inspect(b"TRAN_MSG\x01false\x02TRAN_MSG\x01TRUE").is_half);
        assert!(!inspect(b"TRAN_MSG\x01true\x02TRAN_MSG\x01false").is_half);
        assert_eq!(inspect(b"DELAY\x011\x02a\x01b\x02DELAY\x012").delay, Some(&b"2"[..]));
    }
}
