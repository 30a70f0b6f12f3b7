//! What is sent: messages one by one or in batches, and pulls that follow their offsets.

use std::borrow::Cow;

use crate::engine::{Slot, Workload, HOUSEKEEPING_OPAQUE};
use crate::options::Options;
use crate::wire::{
    batch_body, count_records, json_escape, properties, topic_name, Frame, Reply, Serializer, Template, OPAQUE_BASE,
};

/// From a topic to the next one: a prime, so that all come about, and neighbours in time aren't neighbours in memory.
const TOPIC_STRIDE: usize = 7919;
const SEND_MESSAGE: i32 = 10;
const UPDATE_AND_CREATE_TOPIC: i32 = 17;
const SEND_MESSAGE_V2: i32 = 310;
const SEND_BATCH_MESSAGE: i32 = 320;
const PULL_MESSAGE: i32 = 11;
const HEART_BEAT: i32 = 34;
const PULL_NOT_FOUND: i32 = 19;
const PULL_RETRY_IMMEDIATELY: i32 = 20;
const PULL_OFFSET_MOVED: i32 = 21;
/// May wait for messages; the subscription is the one of the heartbeat.
const PULL_SYS_FLAG: &str = "2";

/// Sends, round robin over the topics and then over the queues, across all connections.
pub struct Sends {
    by_queue: Vec<Template>,
    topics: usize,
    next: usize,
    unique: u64,
    messages: u64,
}

impl Sends {
    pub fn new(options: &Options, now_ms: u64) -> Self {
        let by_queue = (0..options.queues).map(|queue| Template::new(send_frame(options, queue, now_ms))).collect();
        // Runs one after the other must not repeat keys, so the clock is their high half.
        let (topics, messages) = (options.topics, options.batch.max(1) as u64);
        Self { by_queue, topics, next: 0, unique: now_ms << 24, messages }
    }
}

fn send_frame(options: &Options, queue: usize, now_ms: u64) -> Frame {
    let values = [
        ("a", "producerGroup", Cow::from("rockmq_loadgen")),
        ("b", "topic", topic_name(&options.topic, options.topics).into()),
        ("c", "defaultTopic", "TBW102".into()),
        ("d", "defaultTopicQueueNums", options.queues.to_string().into()),
        ("e", "queueId", queue.to_string().into()),
        ("f", "sysFlag", "0".into()),
        ("g", "bornTimestamp", now_ms.to_string().into()),
        ("h", "flag", "0".into()),
        ("i", "properties", properties().into()),
        ("j", "reconsumeTimes", "0".into()),
        ("k", "unitMode", "false".into()),
        ("m", "batch", (options.batch > 0).to_string().into()),
    ];
    let body = body(options.size);
    let (code, body) = match options.batch {
        0 => (options.code, body),
        count => (SEND_BATCH_MESSAGE, batch_body(&body, count)),
    };
    let long = code == SEND_MESSAGE;
    let fields: Vec<_> = values.map(|(short, name, value)| (if long { name } else { short }, value)).into();
    Frame::request(options.serializer, code, OPAQUE_BASE, &fields, &body)
}

/// Printable and without a pattern that a compressing disk could use.
fn body(size: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'!' + (state >> 32) as u8 % 90
    };
    (0..size).map(|_| next()).collect()
}

pub fn default_code() -> i32 {
    SEND_MESSAGE_V2
}

pub fn is_send_code(code: i32) -> bool {
    matches!(code, SEND_MESSAGE | SEND_MESSAGE_V2)
}

impl Workload for Sends {
    fn request(&mut self, _: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        let (round, topic) = (self.next / self.topics, self.next % self.topics * TOPIC_STRIDE % self.topics);
        self.by_queue[round % self.by_queue.len()].append_to(out, opaque, topic, &mut self.unique);
        self.next += 1;
    }

    fn accepted(&mut self, _: &mut Slot, _: &Reply) -> Result<u64, String> {
        Ok(self.messages)
    }

    fn refused(&mut self, _: &mut Slot, _: &Reply) -> bool {
        false
    }

    fn heartbeat(&self, _: usize) -> Option<Frame> {
        None
    }
}

/// Makes topics.
pub struct Topics {
    template: Template,
    next: usize,
}

impl Topics {
    pub fn new(options: &Options) -> Self {
        let queues = options.queues.to_string();
        let fields = [
            ("defaultTopic", Cow::from("TBW102")),
            ("order", "false".into()),
            ("perm", "6".into()),
            ("readQueueNums", queues.as_str().into()),
            ("topic", topic_name(&options.topic, options.topics).into()),
            ("topicFilterType", "SINGLE_TAG".into()),
            ("topicSysFlag", "0".into()),
            ("writeQueueNums", queues.as_str().into()),
        ];
        let frame = Frame::request(Serializer::Json, UPDATE_AND_CREATE_TOPIC, OPAQUE_BASE, &fields, b"");
        Self { template: Template::new(frame), next: 0 }
    }
}

impl Workload for Topics {
    fn request(&mut self, _: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        self.template.append_to(out, opaque, self.next, &mut 0);
        self.next += 1;
    }

    fn accepted(&mut self, _: &mut Slot, _: &Reply) -> Result<u64, String> {
        Ok(1)
    }

    fn refused(&mut self, _: &mut Slot, _: &Reply) -> bool {
        false
    }

    fn heartbeat(&self, _: usize) -> Option<Frame> {
        None
    }
}

/// Pulls. Each slot reads one queue from its start to its end, and then again.
pub struct Pulls {
    serializer: Serializer,
    group: String,
    topic: String,
    queues: usize,
    count_max: String,
    bytes_max: Option<String>,
    sub_version: String,
}

impl Pulls {
    pub fn new(options: &Options, now_ms: u64) -> Self {
        Self {
            serializer: options.serializer,
            group: options.group.clone(),
            topic: options.topic.clone(),
            queues: options.queues,
            count_max: options.pull_max.to_string(),
            bytes_max: options.max_bytes.map(|bytes| bytes.to_string()),
            sub_version: now_ms.to_string(),
        }
    }
}

impl Workload for Pulls {
    fn request(&mut self, slot: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        let mut fields = vec![
            ("commitOffset", Cow::from("0")),
            ("consumerGroup", self.group.as_str().into()),
            ("expressionType", "TAG".into()),
            ("maxMsgNums", self.count_max.as_str().into()),
            ("queueId", (slot.index % self.queues).to_string().into()),
            ("queueOffset", slot.offset.to_string().into()),
            ("subVersion", self.sub_version.as_str().into()),
            ("suspendTimeoutMillis", "15000".into()),
            ("sysFlag", PULL_SYS_FLAG.into()),
            ("topic", self.topic.as_str().into()),
        ];
        if let Some(bytes_max) = &self.bytes_max {
            fields.push(("maxMsgBytes", bytes_max.as_str().into()));
        }
        out.extend_from_slice(&Frame::request(self.serializer, PULL_MESSAGE, opaque, &fields, b"").bytes);
    }

    fn accepted(&mut self, slot: &mut Slot, reply: &Reply) -> Result<u64, String> {
        let count = count_records(reply.body)?;
        if reply.next_begin_offset - slot.offset != count as i64 {
            let next = reply.next_begin_offset;
            return Err(format!("{count} messages from offset {}, but nextBeginOffset {next}", slot.offset));
        }
        let at_end = reply.next_begin_offset >= reply.max_offset;
        slot.offset = if at_end { reply.min_offset } else { reply.next_begin_offset };
        Ok(count)
    }

    fn refused(&mut self, slot: &mut Slot, reply: &Reply) -> bool {
        match reply.code {
            PULL_NOT_FOUND => slot.offset = reply.min_offset.max(0),
            PULL_OFFSET_MOVED | PULL_RETRY_IMMEDIATELY => slot.offset = reply.next_begin_offset.max(0),
            _ => return false,
        }
        true
    }

    fn heartbeat(&self, connection: usize) -> Option<Frame> {
        let (group, topic, version) = (json_escape(&self.group), json_escape(&self.topic), &self.sub_version);
        let subscription = format!(
            r#"{{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":{version},"tagsSet":[],"topic":"{topic}"}}"#
        );
        let consumer = format!(
            r#"{{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"{group}","messageModel":"CLUSTERING","subscriptionDataSet":[{subscription}],"unitMode":false}}"#
        );
        let body = format!(
            r#"{{"clientID":"127.0.0.1@loadgen{}#{connection}","consumerDataSet":[{consumer}],"producerDataSet":[]}}"#,
            std::process::id()
        );
        Some(Frame::request(self.serializer, HEART_BEAT, HOUSEKEEPING_OPAQUE, &[], body.as_bytes()))
    }
}
