//! What is sent: messages one by one or in batches, and pulls that follow their offsets.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::engine::{Slot, Workload, HOUSEKEEPING_OPAQUE};
use crate::options::Options;
use crate::signed;
use crate::wire::{
    batch_body, be32, count_records, each_record, json_escape, properties, topic_name, Frame, Reply, Serializer,
    Template,
};

/// From a topic to the next one: a prime, so that all come about, and neighbours in time aren't neighbours in memory.
const TOPIC_STRIDE: usize = 7919;
const SEND_MESSAGE: i32 = 10;
const UPDATE_AND_CREATE_TOPIC: i32 = 17;
const SEND_MESSAGE_V2: i32 = 310;
const SEND_BATCH_MESSAGE: i32 = 320;
const PULL_MESSAGE: i32 = 11;
const HEART_BEAT: i32 = 34;
const END_TRANSACTION: i32 = 37;
const POP_MESSAGE: i32 = 200_050;
const ACK_MESSAGE: i32 = 200_051;
const PULL_NOT_FOUND: i32 = 19;
const PULL_RETRY_IMMEDIATELY: i32 = 20;
const PULL_OFFSET_MOVED: i32 = 21;
const POLLING_FULL: i32 = 209;
const POLLING_TIMEOUT: i32 = 210;
/// May wait for messages; the subscription is the one of the heartbeat.
const PULL_SYS_FLAG: &str = "2";
/// As that, with the subscription in the pull.
const FILTERED_PULL_SYS_FLAG: &str = "6";
const ONEWAY: i32 = 2;
const COMMIT: &str = "8";
const PRODUCER_GROUP: &str = "rockmq_loadgen";

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
        let by_queue = (0..options.queues).map(|queue| send_template(options, queue, now_ms)).collect();
        // Runs one after the other must not repeat keys, so the clock is their high half.
        let (topics, messages) = (options.topics, options.batch.max(1) as u64);
        Self { by_queue, topics, next: 0, unique: now_ms << 24, messages }
    }
}

fn send_template(options: &Options, queue: usize, now_ms: u64) -> Template {
    let values = [
        ("a", "producerGroup", Cow::from(PRODUCER_GROUP)),
        ("b", "topic", topic_name(&options.topic, options.topics).into()),
        ("c", "defaultTopic", "TBW102".into()),
        ("d", "defaultTopicQueueNums", options.queues.to_string().into()),
        ("e", "queueId", queue.to_string().into()),
        ("f", "sysFlag", "0".into()),
        ("g", "bornTimestamp", now_ms.to_string().into()),
        ("h", "flag", "0".into()),
        ("i", "properties", properties(&options.properties).into()),
        ("j", "reconsumeTimes", "0".into()),
        ("k", "unitMode", "false".into()),
        ("m", "batch", (options.batch > 0).to_string().into()),
    ];
    let body = body(options.size);
    let (code, body) = match options.batch {
        0 => (options.code, body),
        count => (SEND_BATCH_MESSAGE, batch_body(&body, count, &properties(&options.properties))),
    };
    let long = code == SEND_MESSAGE;
    let fields: Vec<_> = values.map(|(short, name, value)| (if long { name } else { short }, value)).into();
    signed::template(options.key.as_ref(), options.serializer, code, &fields, &body)
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

    fn refused(&mut self, _: &mut Slot, _: &Reply) -> Option<u64> {
        None
    }

    fn heartbeat(&self, _: usize) -> Option<Frame> {
        None
    }
}

/// Transactions: each slot sends half a message, and commits it with the next request.
pub struct Transactions {
    sends: Sends,
    serializer: Serializer,
    /// By slot: queue offset and position of the half message to commit.
    stored: Vec<Option<(i64, i64)>>,
}

impl Transactions {
    pub fn new(options: &Options, now_ms: u64) -> Self {
        let mut options = options.clone();
        options.properties.push(("TRAN_MSG".into(), "true".into()));
        options.properties.push(("PGROUP".into(), PRODUCER_GROUP.into()));
        let slots = options.connections * options.window;
        Self { sends: Sends::new(&options, now_ms), serializer: options.serializer, stored: vec![None; slots] }
    }
}

impl Workload for Transactions {
    fn request(&mut self, slot: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        if let Some((queue_offset, position)) = self.stored[slot.index].take() {
            let fields = [
                ("commitLogOffset", Cow::from(position.to_string())),
                ("commitOrRollback", COMMIT.into()),
                ("fromTransactionCheck", "false".into()),
                ("msgId", "".into()),
                ("producerGroup", PRODUCER_GROUP.into()),
                ("tranStateTableOffset", queue_offset.to_string().into()),
                ("transactionId", "".into()),
            ];
            let commit = Frame::new(self.serializer, END_TRANSACTION, ONEWAY, HOUSEKEEPING_OPAQUE, &fields, b"");
            out.extend_from_slice(&commit.bytes);
        }
        self.sends.request(slot, opaque, out);
    }

    fn accepted(&mut self, slot: &mut Slot, reply: &Reply) -> Result<u64, String> {
        // The message's id ends with its position.
        let digits =
            reply.msg_id.len().checked_sub(16).and_then(|start| std::str::from_utf8(&reply.msg_id[start..]).ok());
        let position = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
        self.stored[slot.index] = Some((reply.queue_offset, position.ok_or("a send without a message id")?));
        Ok(1)
    }

    fn refused(&mut self, _: &mut Slot, _: &Reply) -> Option<u64> {
        None
    }

    fn heartbeat(&self, _: usize) -> Option<Frame> {
        None
    }
}

/// A message that isn't acknowledged yet: its handle, its queue and its offset there.
type Unacknowledged = (String, i32, i64);

/// Pops, each followed by an acknowledgement for each of its messages.
pub struct Pops {
    group: String,
    topic: String,
    queues: usize,
    count_max: String,
    /// By slot: what is to be acknowledged, and whether the request in flight is a pop.
    popped: Vec<(Vec<Unacknowledged>, bool)>,
}

impl Pops {
    pub fn new(options: &Options, now_ms: u64) -> Self {
        let slots = options.connections * options.window;
        Self {
            group: format!("{}_{now_ms}", options.group),
            topic: options.topic.clone(),
            queues: options.queues,
            count_max: options.pull_max.to_string(),
            popped: vec![(Vec::new(), false); slots],
        }
    }
}

impl Workload for Pops {
    fn request(&mut self, slot: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        let (waiting, pops) = &mut self.popped[slot.index];
        let next = waiting.pop();
        *pops = next.is_none();
        let (code, fields) = match next {
            Some((handle, queue, offset)) => {
                let fields = vec![
                    ("consumerGroup", Cow::from(self.group.as_str())),
                    ("extraInfo", handle.into()),
                    ("offset", offset.to_string().into()),
                    ("queueId", queue.to_string().into()),
                    ("topic", self.topic.as_str().into()),
                ];
                (ACK_MESSAGE, fields)
            }
            None => {
                let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
                let fields = vec![
                    ("bornTime", Cow::from(now_ms.to_string())),
                    ("consumerGroup", self.group.as_str().into()),
                    ("exp", "*".into()),
                    ("expType", "TAG".into()),
                    ("initMode", "0".into()),
                    ("invisibleTime", "60000".into()),
                    ("maxMsgNums", self.count_max.as_str().into()),
                    ("order", "false".into()),
                    ("pollTime", "15000".into()),
                    ("queueId", (slot.index % self.queues).to_string().into()),
                    ("topic", self.topic.as_str().into()),
                ];
                (POP_MESSAGE, fields)
            }
        };
        // The binary header has no room for such codes.
        out.extend_from_slice(&Frame::request(Serializer::Json, code, opaque, &fields, b"").bytes);
    }

    fn accepted(&mut self, slot: &mut Slot, reply: &Reply) -> Result<u64, String> {
        let (waiting, pops) = &mut self.popped[slot.index];
        if !*pops {
            return Ok(1);
        }
        let start = reply.start_offsets.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let start = String::from_utf8_lossy(start);
        let (pop_time, revive_queue) = (reply.pop_time, reply.revive_queue);
        each_record(reply.body, |record| {
            let queue = be32(record, 12).unwrap_or(-1);
            let offset = record.get(20..28).map_or(-1, |bytes| i64::from_be_bytes(bytes.try_into().unwrap()));
            let handle = format!("{start} {pop_time} 60000 {revive_queue} 0 broker {queue} {offset}");
            waiting.push((handle, queue, offset));
        })?;
        Ok(0)
    }

    fn refused(&mut self, _: &mut Slot, reply: &Reply) -> Option<u64> {
        matches!(reply.code, POLLING_FULL | POLLING_TIMEOUT | PULL_NOT_FOUND).then_some(0)
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
        let key = options.key.as_ref();
        Self { template: signed::template(key, Serializer::Json, UPDATE_AND_CREATE_TOPIC, &fields, b""), next: 0 }
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

    fn refused(&mut self, _: &mut Slot, _: &Reply) -> Option<u64> {
        None
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
    expression: Option<String>,
    expression_type: String,
    follow: bool,
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
            expression: options.expression.clone(),
            expression_type: options.expression_type.clone(),
            follow: options.follow,
            sub_version: now_ms.to_string(),
        }
    }
}

impl Pulls {
    fn go_on(&self, slot: &mut Slot, reply: &Reply) {
        let begins_again = reply.next_begin_offset >= reply.max_offset && !self.follow;
        slot.offset = if begins_again { reply.min_offset } else { reply.next_begin_offset };
    }
}

impl Workload for Pulls {
    fn request(&mut self, slot: &mut Slot, opaque: i32, out: &mut Vec<u8>) {
        let mut fields = vec![
            ("commitOffset", Cow::from("0")),
            ("consumerGroup", self.group.as_str().into()),
            ("expressionType", self.expression_type.as_str().into()),
            ("maxMsgNums", self.count_max.as_str().into()),
            ("queueId", (slot.index % self.queues).to_string().into()),
            ("queueOffset", slot.offset.to_string().into()),
            ("subVersion", self.sub_version.as_str().into()),
            ("suspendTimeoutMillis", "15000".into()),
            ("topic", self.topic.as_str().into()),
        ];
        match &self.expression {
            Some(expression) => {
                fields.push(("subscription", expression.as_str().into()));
                fields.push(("sysFlag", FILTERED_PULL_SYS_FLAG.into()));
            }
            None => fields.push(("sysFlag", PULL_SYS_FLAG.into())),
        }
        if let Some(bytes_max) = &self.bytes_max {
            fields.push(("maxMsgBytes", bytes_max.as_str().into()));
        }
        out.extend_from_slice(&Frame::request(self.serializer, PULL_MESSAGE, opaque, &fields, b"").bytes);
    }

    fn accepted(&mut self, slot: &mut Slot, reply: &Reply) -> Result<u64, String> {
        let count = count_records(reply.body)? as i64;
        let passed = reply.next_begin_offset - slot.offset;
        if passed < count || (passed > count && self.expression.is_none()) {
            let next = reply.next_begin_offset;
            return Err(format!("{count} messages from offset {}, but nextBeginOffset {next}", slot.offset));
        }
        self.go_on(slot, reply);
        Ok(passed as u64)
    }

    fn refused(&mut self, slot: &mut Slot, reply: &Reply) -> Option<u64> {
        match reply.code {
            PULL_NOT_FOUND if self.follow => {}
            PULL_NOT_FOUND => slot.offset = reply.min_offset.max(0),
            PULL_OFFSET_MOVED => slot.offset = reply.next_begin_offset.max(0),
            PULL_RETRY_IMMEDIATELY => {
                let passed = (reply.next_begin_offset - slot.offset).max(0);
                self.go_on(slot, reply);
                return Some(passed as u64);
            }
            _ => return None,
        }
        Some(0)
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
