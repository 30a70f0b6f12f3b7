//! The keys of messages appended lately, so that the index needn't read the log again for what was just written.
//!
//! Complete from `from` to the log's end, as long as an index takes them; when they get too many they are dropped, and the
//! index reads the log up to where they begin again.

use crate::properties::{java_hash, Keys};

/// More than come between two turns of the index, and while it forces a full file; in 24 MiB.
const KEYS_MAX: usize = 1 << 20;

/// What an index entry is made of.
#[derive(Clone, Copy)]
pub struct Key {
    pub hash: i32,
    pub position: u64,
    pub timestamp: i64,
}

#[derive(Default)]
pub struct RecentKeys {
    wanted: bool,
    from: u64,
    keys: Vec<Key>,
    last: Prefix,
}

/// How the last unique key began, and the hash of that: those of one client differ in their ends only.
#[derive(Default)]
struct Prefix {
    text: [u8; PREFIX],
    before: i32,
    hash: i32,
}

const PREFIX: usize = 24;

impl Prefix {
    /// `java_hash`.
    #[inline]
    fn hash(&mut self, before: i32, key: &[u8]) -> i32 {
        let Some((text, rest)) = key.split_first_chunk() else { return java_hash(before, key) };
        if *text != self.text || before != self.before {
            if !text.is_ascii() {
                return java_hash(before, key);
            }
            *self = Self { text: *text, before, hash: java_hash(before, text) };
        }
        java_hash(self.hash, rest)
    }
}

impl RecentKeys {
    /// Begin to collect, or end it; `end` is the log's.
    pub fn collect(&mut self, wanted: bool, end: u64) {
        *self = Self { wanted, from: end, ..Self::default() };
    }

    /// Note the keys of a record that was appended at `position` and ends at `end`.
    #[inline]
    pub fn note(&mut self, topic_hash: i32, keys: &Keys<'_>, position: u64, end: u64, timestamp: i64) {
        if !self.wanted {
            return;
        }
        if self.keys.len() >= KEYS_MAX {
            self.collect(true, end);
            return;
        }
        if let Some(key) = keys.unique_key {
            let hash = self.last.hash(topic_hash, key);
            self.keys.push(Key { hash, position, timestamp });
        }
        if keys.keys.is_some() || keys.tags.is_some() {
            let others = Keys { unique_key: None, ..*keys };
            hashes(topic_hash, &others).for_each(|hash| self.keys.push(Key { hash, position, timestamp }));
        }
    }

    /// Where they begin; an index that isn't there yet reads the log.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Hand over the keys of the records below `limit`, at which a record ends, for the memory of those taken before.
    pub fn take(&mut self, limit: u64, taken: &mut Vec<Key>) {
        taken.clear();
        taken.shrink_to(2 * self.keys.len());
        let count = self.keys.partition_point(|key| key.position < limit);
        taken.extend_from_slice(&self.keys[count..]);
        self.keys.truncate(count);
        std::mem::swap(&mut self.keys, taken);
        self.from = self.from.max(limit);
    }
}

/// The hash that all keys of a topic begin with.
pub fn topic_hash(topic: &[u8]) -> i32 {
    java_hash(java_hash(0, topic), b"#")
}

/// The hashes a record is found by, in Apache's order.
pub fn hashes<'k>(topic_hash: i32, keys: &Keys<'k>) -> impl Iterator<Item = i32> + use<'k> {
    let words = keys.keys.into_iter().flat_map(|keys| keys.split(|&byte| byte == b' '));
    let words = keys.unique_key.into_iter().chain(words.filter(|word| !word.is_empty()));
    let tags = keys.tags.into_iter().map(move |tags| java_hash(java_hash(topic_hash, b"T#"), tags));
    words.map(move |word| java_hash(topic_hash, word)).chain(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_by_prefix_are_those_of_the_whole() {
        let mut prefix = Prefix::default();
        let keys = ["", "short", "7F00000100001EF018B4AAC2000001", "7F00000100001EF018B4AAC2000002", &"\0".repeat(30)];
        let others = ["a".repeat(23) + "\u{e9}x", "a".repeat(24), "a".repeat(24) + "\u{e9}"];
        for key in keys.into_iter().chain(others.iter().map(String::as_str)) {
            for before in [0, 7, 7, 0] {
                assert_eq!(prefix.hash(before, key.as_bytes()), java_hash(before, key.as_bytes()), "{key:?} {before}");
            }
        }
    }
}
