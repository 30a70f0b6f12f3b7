//! Light queues (LMQ; LmqDispatch.java, MultiDispatchUtils.java): queues `%LMQ%…/0` that a message is in beside its own. It
//! says so in two properties:
//!
//! ```text
//!     INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b     names, from whoever sends it
//!     INNER_MULTI_QUEUE_OFFSET  7,0               the index in each, from the broker
//! ```
//!
//! What the second says is believed when queues are made again, so nobody else may write it.

use crate::{check_queues::SCHEDULE_TOPIC, properties, record::Record, replay::INDEX_MAX};

pub const PREFIX: &str = "%LMQ%";
const NAMES: &[u8] = b"INNER_MULTI_DISPATCH";
const INDEXES: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";

/// The light queues that a record has entries in, and at which index. None for topics of retries and of the system.
pub fn queues<'r>(record: &Record<'r>) -> Vec<(&'r [u8], u64)> {
    let (mut names, mut indexes) = (None, None);
    for (name, value) in properties::items(record.properties) {
        match name {
            NAMES => names = Some(value),
            INDEXES => indexes = Some(value),
            _ => {}
        }
    }
    let apart = |value: Option<&'r [u8]>| value.map_or(Vec::new(), |value| value.split(|&byte| byte == b',').collect());
    let (names, indexes) = (apart(names), apart(indexes));
    let is_exempt = [&b"%RETRY%"[..], b"%DLQ%", b"rmq_sys_"].iter().any(|prefix| record.topic.starts_with(prefix));
    if names.len() != indexes.len() || is_exempt || record.topic == SCHEDULE_TOPIC.as_bytes() {
        return Vec::new();
    }
    let index = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok().filter(|&index| index <= INDEX_MAX as u64);
    let light = names.into_iter().zip(indexes).filter(|(name, _)| name.starts_with(PREFIX.as_bytes()));
    light.filter_map(|(name, text)| Some((name, index(text)?))).collect()
}

/// Whether properties speak of light queues.
pub fn is_meant(properties: &[u8]) -> bool {
    properties::segments(properties).any(|segment| segment.starts_with(NAMES) || segment.starts_with(INDEXES))
}
