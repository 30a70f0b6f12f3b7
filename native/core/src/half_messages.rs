//! Transactions as they lie in the log (TransactionalMessageBridge.java). `rockmq/broker/half_messages.py` tells the formats.

use crate::{
    properties,
    record::{self, Record},
};

pub const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
pub const OP_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Over it Python judges whether a half message can be written again; it has the exact bound.
pub const PROPERTIES_MAX: usize = properties::SIZE_MAX - 256;

const TRANSACTION_ID: &[u8] = b"__transactionId__";
const IMMUNITY: &[u8] = b"CHECK_IMMUNITY_TIME_IN_SECONDS";
const FIRST_OFFSET: &[u8] = b"TRAN_PREPARED_QUEUE_OFFSET";
const IMMUNITY_DIGITS_MAX: usize = 9;

/// The immunity (s) that a send with TRAN_MSG asks for, 0 for none. None for one that Python decides about, or refuses.
pub fn immunity_asked(text: &[u8]) -> Option<i64> {
    let (mut has_group, mut seconds) = (false, 0);
    for (name, value) in properties::items(text) {
        match name {
            b"PGROUP" => has_group = true,
            IMMUNITY if value.len() <= IMMUNITY_DIGITS_MAX => seconds = digits(value)? as i64,
            IMMUNITY | TRANSACTION_ID | FIRST_OFFSET | b"REAL_TOPIC" | b"REAL_QID" | b"TRANSACTION_CHECK_TIMES" => {
                return None
            }
            _ => {}
        }
    }
    has_group.then_some(seconds)
}

pub fn write_transaction_id(out: &mut Vec<u8>, unique_key: &[u8]) {
    write_property(out, TRANSACTION_ID, unique_key);
}

fn write_property(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.push(properties::NAME_END);
    out.extend_from_slice(value);
    out.push(properties::VALUE_END);
}

/// A stored half message.
pub struct Half<'r> {
    pub record: Record<'r>,
    /// The transaction's number: the queue offset of its first half message.
    pub root: u64,
    pub group: &'r [u8],
    pub real_topic: &'r [u8],
    /// -1 for one that no queue has.
    pub real_queue_id: i32,
    /// Seconds, if its producer has said.
    immunity: Option<i64>,
    /// Whether its commit goes elsewhere first, or to light queues as well.
    pub is_special: bool,
}

impl<'r> Half<'r> {
    /// The half message that `data` starts with; None when there is none.
    pub fn read(data: &'r [u8]) -> Option<Self> {
        let record = record::decode(data)?;
        if (record.topic, record.queue_id) != (HALF_TOPIC.as_bytes(), 0) {
            return None;
        }
        let offset = u64::try_from(record.queue_offset).ok()?;
        let (group, real_topic): (&[u8], &[u8]) = Default::default();
        let mut half =
            Self { record, root: offset, group, real_topic, real_queue_id: 0, immunity: None, is_special: false };
        for (name, value) in properties::items(record.properties) {
            match name {
                b"PGROUP" => half.group = value,
                b"REAL_TOPIC" => half.real_topic = value,
                b"REAL_QID" => half.real_queue_id = digits(value).map_or(0, |id| i32::try_from(id).unwrap_or(-1)),
                FIRST_OFFSET => half.root = digits(value).unwrap_or(offset).min(offset),
                IMMUNITY => half.immunity = Some(digits(value).map_or(0, |seconds| seconds.min(1 << 40) as i64)),
                b"DELAY" => half.is_special = true,
                _ => half.is_special |= name.starts_with(b"TIMER_") || name.starts_with(b"INNER_"),
            }
        }
        Some(half)
    }

    /// Whether a decision comes too late for a producer that has set the time of its first check, `time_out` (ms) at least.
    pub fn is_overdue(&self, now: i64, time_out: i64) -> bool {
        let since = self.record.born_timestamp.min(self.record.store_timestamp);
        self.immunity.is_some_and(|seconds| now.saturating_sub(since) > (seconds * 1000).max(time_out))
    }

    /// Write the properties of the message that is committed.
    pub fn write_committed(&self, out: &mut Vec<u8>) {
        for (name, value) in properties::items(record::without_crc(self.record.properties)) {
            if !matches!(name, b"REAL_TOPIC" | b"REAL_QID" | b"TRAN_MSG") {
                write_property(out, name, value);
            }
        }
    }
}

/// A number from 0 on; None for other texts, and over 64 bits.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_decides_about_is_no_ordinary_half_message() {
        for (text, asked) in [
            ("PGROUP\u{1}g\u{2}", Some(0)),
            ("TRAN_MSG\u{1}true\u{2}CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}060\u{2}PGROUP\u{1}g", Some(60)),
            ("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}999999999\u{2}PGROUP\u{1}g", Some(999_999_999)),
            ("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}0999999999\u{2}PGROUP\u{1}g", None),
            ("CHECK_IMMUNITY_TIME_IN_SECONDS\u{1}+6\u{2}PGROUP\u{1}g", None),
            ("PGROUP\u{1}g\u{2}REAL_QID\u{1}1", None),
            ("PGROUP\u{1}g\u{2}__transactionId__\u{1}1", None),
            ("PGROUP\u{1}\u{2}", None),
            ("", None),
        ] {
            assert_eq!(immunity_asked(text.as_bytes()), asked, "{text:?}");
        }
    }
}
