//! Light queues (LMQ; LmqDispatch.java, MultiDispatchUtils.java): queues `%LMQ%…/0` that a message is in beside its own. It
//! says so in two properties:
//!
//! ```text
//!     INNER_MULTI_DISPATCH      %LMQ%a,%LMQ%b     names, from whoever sends it
//!     INNER_MULTI_QUEUE_OFFSET  7,0               the index in each, from the broker
//! ```
//!
//! What the second says is believed when queues are made again, so nobody else may write it.

use crate::{
    consume_queue::Entry,
    delays::SCHEDULE_TOPIC,
    error::{value, Result},
    properties,
    record::{Message, Record, TOPIC_MAX},
    replay::INDEX_MAX,
    state::{check_properties_size, Appended, State},
    traffic::Kind,
};

pub const PREFIX: &str = "%LMQ%";
pub const NAMES: &[u8] = b"INNER_MULTI_DISPATCH";
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
    let (names, indexes) = (apart(names), apart(indexes));
    if names.len() != indexes.len() || is_exempt(record.topic) {
        return Vec::new();
    }
    let index = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok().filter(|&index| index <= INDEX_MAX as u64);
    let light = names.into_iter().zip(indexes).filter(|(name, _)| name.starts_with(PREFIX.as_bytes()));
    light.filter_map(|(name, text)| Some((name, index(text)?))).collect()
}

/// The parts of a text between commas. Java's split has no empty ones at the end.
fn apart(value: Option<&[u8]>) -> Vec<&[u8]> {
    let text = value.unwrap_or_default();
    let end = text.iter().rposition(|&byte| byte != b',').map_or(0, |last| last + 1);
    text[..end].split(|&byte| byte == b',').collect()
}

fn is_exempt(topic: &[u8]) -> bool {
    let mut prefixes = [&b"%RETRY%"[..], b"%DLQ%", b"rmq_sys_"].into_iter();
    topic == SCHEDULE_TOPIC.as_bytes() || prefixes.any(|prefix| topic.starts_with(prefix))
}

/// The light queues that a message to `topic` asks for by its property INNER_MULTI_DISPATCH.
pub fn wanted(topic: &[u8], names: Option<&[u8]>) -> Vec<String> {
    if names.is_none_or(<[u8]>::is_empty) || is_exempt(topic) {
        return Vec::new();
    }
    apart(names).into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Whether properties speak of light queues.
pub fn is_meant(properties: &[u8]) -> bool {
    properties::segments(properties).any(|segment| segment.starts_with(NAMES) || segment.starts_with(INDEXES))
}

/// Append one record that is in light queues too; `properties` name them already, all of them in `names`.
pub fn append(
    state: &mut State,
    message: &Message<'_>,
    properties: &[u8],
    names: &[String],
    size_max: usize,
    kind: Kind,
) -> Result<Appended> {
    if state.batch_queues.has_topic(message.topic) {
        return value("a message to a topic with batch queues can't be in light queues");
    }
    if properties.last() != Some(&properties::VALUE_END) {
        return value("properties don't end with a separator");
    }
    let (mut indexes, mut slots) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    for name in names {
        let slot = match name {
            _ if !name.starts_with(PREFIX) => {
                return value(format!("light queue '{name}' doesn't begin with {PREFIX}"))
            }
            _ if name.as_bytes() == message.topic => return value(format!("light queue '{name}' is the topic itself")),
            // Apache counts for such a name, in memory only, but has no queue.
            _ if name.contains('/') => None,
            _ => match state.queues.slot_or_new(name.as_bytes(), 0) {
                None => {
                    return value(format!(
                        "light queue '{name}' can't be made: it can't name a directory (at most {TOPIC_MAX} bytes), or \
                         there are maxLmqConsumeQueueNum of them"
                    ))
                }
                slot => slot,
            },
        };
        indexes.push(slot.and_then(|slot| state.queues.queue(slot)).map_or(0, |queue| queue.next).to_string());
        slots.extend(slot.filter(|slot| !slots.contains(slot)));
    }
    let told = format!("INNER_MULTI_QUEUE_OFFSET\x01{}\x02", indexes.join(","));
    let pieces = [properties, told.as_bytes()];
    let message = Message { properties: &pieces, ..*message };
    check_properties_size(message.properties_size())?;
    if message.size() > size_max {
        return value(format!("the record is {} bytes, in light queues it may be {size_max}", message.size()));
    }
    let keys = properties::keys(properties);
    let mut appended = state.append(None, &message, &keys, kind)?;
    let size = (appended.end - appended.position) as i32;
    let entry = Entry { position: appended.position as i64, size, tags: properties::tags_code(keys.tags) };
    for slot in slots {
        // Whoever waits there is told by name.
        appended.watched |= state.queues.push(slot, &[entry]);
        state.queues.relieve(slot);
    }
    Ok(appended)
}
