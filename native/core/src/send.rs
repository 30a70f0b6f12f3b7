//! The sends that need no decision: what makes a SEND_MESSAGE ordinary, what is stored for it, and its reply.
//!
//! One with a delay level is ordinary too: it is parked, as the hook of Python's does (`rockmq/broker/delays.py`). So is one
//! that begins a transaction: it becomes a half message, as `prepare` in `rockmq/broker/transactions.py` makes it.
//!
//! Requests 10 (long names), 310 and 320 (letters a … n) carry the same header. Whether the body is a batch is told by the
//! field `batch` (m) alone, as in Apache. All that isn't ordinary is left to Python, which has words for what is wrong.

use crate::{
    consume_queue::{Entry, Ordinary},
    delays::{self, SCHEDULE_TOPIC},
    frame,
    half_messages::{self, HALF_TOPIC},
    header::{integer, write_integer, Header, JSON, ONE_WAY, OUR_LANGUAGE, OUR_VERSION, RESPONSE},
    json::write_escaped,
    properties::{self, Keys, Known},
    record::{self, Message},
    state::{Config, State},
    traffic::Kind,
    transactions::Pending,
    unique_key::{self, hex_of_long, write_hex},
    vouchers::Vouchers,
};

const SEND_MESSAGE: i32 = 10;
const SEND_MESSAGE_V2: i32 = 310;
const SEND_BATCH_MESSAGE: i32 = 320;

/// The header's fields by their letter in V2.
const FIELDS: usize = 14;

/// Whether a header is that of a send request at all.
pub fn is_send(header: &Header) -> bool {
    header.flag & RESPONSE == 0 && matches!(header.code, SEND_MESSAGE | SEND_MESSAGE_V2 | SEND_BATCH_MESSAGE)
}

struct Send<'h> {
    topic: &'h [u8],
    queue_id: i32,
    sys_flag: i32,
    born_timestamp: i64,
    flag: i32,
    properties: &'h [u8],
    reconsume_times: i32,
    is_batch: bool,
}

impl<'h> Send<'h> {
    fn read(header: &'h Header, text: &'h [u8]) -> Option<Self> {
        let mut fields: [Option<&[u8]>; FIELDS] = [None; FIELDS];
        for (key, value) in header.fields(text) {
            let letter = if header.code == SEND_MESSAGE { letter_of(key) } else { letter(key) };
            if let Some(letter) = letter {
                fields[letter] = value;
            }
        }
        let [group, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, properties, reconsume, _, _, batch, _] =
            fields;
        // Java's broker falls over requests that lack one of these.
        group?;
        default_topic?;
        int(default_queues?)?;
        Some(Self {
            topic: topic?,
            queue_id: int(queue_id?)?,
            sys_flag: int(sys_flag?)?,
            born_timestamp: integer(born?)?,
            flag: int(flag?)?,
            properties: properties.unwrap_or_default(),
            reconsume_times: reconsume.map_or(Some(0), int)?,
            is_batch: batch.is_some_and(|batch| batch.eq_ignore_ascii_case(b"true")),
        })
    }

    fn is_ordinary(&self, ordinary: Ordinary, body: &[u8], config: &Config) -> bool {
        (0..ordinary.write_queues).contains(&self.queue_id)
            && self.sys_flag & record::INNER_BATCH == 0
            && !body.is_empty()
            && body.len() <= config.max_message_size
            && !self.topic.starts_with(b"%RETRY%")
            && !self.topic.starts_with(b"%DLQ%")
            && std::str::from_utf8(self.properties).is_ok()
            && !record::is_like_torn(self.properties)
    }
}

fn int(text: &[u8]) -> Option<i32> {
    integer(text).and_then(|value| i32::try_from(value).ok())
}

fn letter(key: &[u8]) -> Option<usize> {
    match key {
        [letter @ b'a'..=b'n'] => Some(usize::from(letter - b'a')),
        _ => None,
    }
}

fn letter_of(key: &[u8]) -> Option<usize> {
    Some(match key {
        b"producerGroup" => 0,
        b"topic" => 1,
        b"defaultTopic" => 2,
        b"defaultTopicQueueNums" => 3,
        b"queueId" => 4,
        b"sysFlag" => 5,
        b"bornTimestamp" => 6,
        b"flag" => 7,
        b"properties" => 8,
        b"reconsumeTimes" => 9,
        b"batch" => 12,
        _ => return None,
    })
}

/// Texts that are the same for every send.
pub struct Fixed {
    /// What the broker adds to the properties of a message.
    properties: Vec<u8>,
    reply_json: Vec<u8>,
    reply_binary: Vec<u8>,
}

impl Fixed {
    pub fn new(config: &Config) -> Self {
        let (region, trace_on) = (config.region.as_bytes(), if config.trace_on { &b"true"[..] } else { b"false" });
        let mut properties = Vec::new();
        for (name, value) in
            [(&b"MSG_REGION"[..], region), (b"TRACE_ON", trace_on), (b"CLUSTER", config.cluster.as_bytes())]
        {
            properties.extend_from_slice(name);
            properties.push(properties::NAME_END);
            properties.extend_from_slice(value);
            properties.push(properties::VALUE_END);
        }
        let mut reply_json = format!(
            "{{\"code\":0,\"flag\":1,\"language\":\"PYTHON\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":{OUR_VERSION},\
             \"extFields\":{{\"MSG_REGION\":\""
        )
        .into_bytes();
        write_escaped(&mut reply_json, region);
        reply_json.extend_from_slice(b"\",\"TRACE_ON\":\"");
        reply_json.extend_from_slice(trace_on);
        reply_json.extend_from_slice(b"\",\"msgId\":\"");
        let mut reply_binary = Vec::new();
        for (key, value) in [(&b"MSG_REGION"[..], region), (b"TRACE_ON", trace_on)] {
            write_field(&mut reply_binary, key, |out| out.extend_from_slice(value));
        }
        Self { properties, reply_json, reply_binary }
    }
}

/// Digits of message ids a connection keeps room for.
const MESSAGE_IDS_KEPT: usize = 4 << 10;

/// What a lane lends for a chunk of sends.
pub struct Scratch {
    unique_key: Vec<u8>,
    /// Where a message belongs that is parked, or half a transaction; empty for others.
    real: Vec<u8>,
    message_id: Vec<u8>,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            unique_key: Vec::with_capacity(unique_key::SIZE_MAX + 16),
            real: Vec::new(),
            message_id: Vec::with_capacity(64),
        }
    }

    /// Give memory back that a large batch took.
    pub fn shrink(&mut self) {
        self.message_id.clear();
        self.message_id.shrink_to(MESSAGE_IDS_KEPT);
    }
}

/// The frame of a send, where it came from, and when.
pub struct Arrival<'a> {
    pub header: &'a Header,
    /// What the header was read from.
    pub text: &'a [u8],
    pub body: &'a [u8],
    pub peer: &'a [u8],
    pub now: i64,
}

pub struct Stored {
    /// Position behind the record or records; 0 when there is none.
    pub end: u64,
    /// (topic, queue id) of watched queues that got messages.
    pub arrivals: Vec<(String, i32)>,
}

/// Append a send if it is an ordinary one, and vouched for where that is needed, with its reply to `replies`. None when
/// nothing was done.
pub fn store(
    state: &mut State,
    config: &Config,
    fixed: &Fixed,
    scratch: &mut Scratch,
    vouchers: Option<&mut Vouchers>,
    arrival: &Arrival<'_>,
    replies: &mut Vec<u8>,
) -> Option<Stored> {
    let &Arrival { header, text, body, peer, now } = arrival;
    let send = Send::read(header, text)?;
    let topic = state.queues.topic(send.topic)?;
    let (ordinary, slot) = (topic.ordinary?, topic.slot(send.queue_id));
    if !send.is_ordinary(ordinary, body, config) {
        return None;
    }
    let known = properties::inspect(send.properties);
    if known.special {
        return None;
    }
    let level = match known.delay {
        None => 0,
        // Of a batch it is for Python to say that it can't be, and of half a transaction whether.
        Some(_) if send.is_batch || known.is_half => return None,
        Some(text) => state.delay_levels.asked(text)?,
    };
    let immunity = match send.sys_flag & record::TRANSACTION {
        0 | record::TRANSACTION_PREPARED if known.is_half && !send.is_batch => {
            Some(state.transactions.immunity_asked(send.properties)?)
        }
        0 if !known.is_half => None,
        _ => return None,
    };
    if vouchers.is_some_and(|vouchers| !vouchers.admit(send.topic, header, text, body)) {
        return None;
    }
    let (topic, queue_id, slot) = match level {
        _ if immunity.is_some() => (HALF_TOPIC.as_bytes(), 0, None),
        0 => (send.topic, send.queue_id, slot),
        _ => (SCHEDULE_TOPIC.as_bytes(), level as i32 - 1, None),
    };
    let message = Message {
        queue_id,
        flag: send.flag,
        sys_flag: send.sys_flag & !record::TRANSACTION | if ordinary.multi_tag { record::MULTI_TAGS } else { 0 },
        born_timestamp: send.born_timestamp,
        born_host: peer,
        store_timestamp: now,
        store_host: &config.store_host,
        reconsume_times: send.reconsume_times,
        prepared_transaction_offset: 0,
        body,
        topic,
        properties: &[],
        crc_property: config.append_crc_property,
    };
    scratch.unique_key.clear();
    scratch.message_id.clear();
    let appended = if send.is_batch {
        if send.topic.len() > record::TOPIC_V1_MAX {
            return None;
        }
        let appended = state.append_batch(&message, body, kind(&known)).ok()?;
        write_message_ids(&mut scratch.message_id, &config.store_host, &state.batch);
        appended
    } else {
        let appended = store_single(state, fixed, scratch, slot, &message, &send, known)?;
        write_message_id(&mut scratch.message_id, &config.store_host, appended.position as i64);
        appended
    };
    if let Some(immunity) = immunity {
        let (position, since) = (appended.position, send.born_timestamp.min(now));
        let pending = Pending { root: appended.queue_offset, position, since, immunity, sure: true };
        state.transactions.add(appended.queue_offset, pending);
    }
    if header.flag & ONE_WAY == 0 {
        let reply = Reply {
            opaque: header.opaque,
            message_id: &scratch.message_id,
            queue_id: send.queue_id,
            queue_offset: appended.queue_offset,
            transaction_id: known.keys.unique_key.or(made_key(&scratch.unique_key)),
        };
        reply.write(header.serializer, fixed, replies);
    }
    let mut arrivals = Vec::new();
    if appended.watched {
        arrivals.push((String::from_utf8_lossy(topic).into_owned(), queue_id));
    }
    Some(Stored { end: appended.end, arrivals })
}

/// What metrics call a message (BrokerMetricsManager.getMessageType).
fn kind(known: &Known<'_>) -> Kind {
    match known {
        Known { is_half: true, .. } => Kind::Transaction,
        Known { is_fifo: true, .. } => Kind::Fifo,
        Known { delay: Some(_), .. } | Known { is_timed: true, .. } => Kind::Delay,
        _ => Kind::Normal,
    }
}

const KEY_NAME: &[u8] = b"UNIQ_KEY\x01";

fn store_single(
    state: &mut State,
    fixed: &Fixed,
    scratch: &mut Scratch,
    slot: Option<usize>,
    message: &Message<'_>,
    send: &Send<'_>,
    known: Known<'_>,
) -> Option<crate::state::Appended> {
    let given = send.properties;
    let separator: &[u8] = if matches!(given.last(), None | Some(&properties::VALUE_END)) { b"" } else { b"\x02" };
    if known.keys.unique_key.is_none() {
        scratch.unique_key.extend_from_slice(KEY_NAME);
        state.unique_keys.next(message.store_timestamp, &mut scratch.unique_key);
        scratch.unique_key.push(properties::VALUE_END);
    }
    let unique_key = known.keys.unique_key.or(made_key(&scratch.unique_key));
    scratch.real.clear();
    if known.is_half {
        half_messages::write_transaction_id(&mut scratch.real, unique_key?);
    }
    if message.topic != send.topic {
        delays::write_real(&mut scratch.real, send.topic, send.queue_id);
    }
    let pieces = [given, separator, &scratch.unique_key, &fixed.properties, &scratch.real];
    let message = Message { properties: &pieces, ..*message };
    let size_max = if known.is_half { half_messages::PROPERTIES_MAX } else { properties::SIZE_MAX };
    if message.properties_size() > size_max {
        return None;
    }
    state.append(slot, &message, &Keys { unique_key, ..known.keys }, kind(&known)).ok()
}

/// The value of a key this module has made.
fn made_key(property: &[u8]) -> Option<&[u8]> {
    property.strip_prefix(KEY_NAME)?.strip_suffix(&[properties::VALUE_END])
}

fn write_message_id(out: &mut Vec<u8>, store_host: &[u8], position: i64) {
    write_hex(out, store_host);
    write_hex(out, &position.to_be_bytes());
}

fn write_message_ids(out: &mut Vec<u8>, store_host: &[u8], entries: &[Entry]) {
    let size = 2 * store_host.len();
    let mut id = Vec::with_capacity(size + 17);
    write_hex(&mut id, store_host);
    id.extend_from_slice(&[b','; 17]);
    let start = out.len();
    out.resize(start + entries.len() * id.len(), 0);
    for (place, entry) in out[start..].chunks_exact_mut(id.len()).zip(entries) {
        place.copy_from_slice(&id);
        place[size..size + 16].copy_from_slice(&hex_of_long(entry.position));
    }
    out.pop();
}

struct Reply<'r> {
    opaque: i32,
    message_id: &'r [u8],
    queue_id: i32,
    queue_offset: u64,
    transaction_id: Option<&'r [u8]>,
}

impl Reply<'_> {
    fn write(&self, serializer: u8, fixed: &Fixed, out: &mut Vec<u8>) {
        let start = frame::begin(out, serializer);
        match serializer {
            JSON => self.write_json(fixed, out),
            _ => self.write_binary(fixed, out),
        }
        if !frame::end(&mut out[start..], 0, 0) {
            // More message ids than a header can hold, which takes half a million messages in one batch and a far larger
            // maxMessageSize than Apache's. They are stored; the client times out.
            out.truncate(start);
        }
    }

    fn write_json(&self, fixed: &Fixed, out: &mut Vec<u8>) {
        out.extend_from_slice(&fixed.reply_json);
        out.extend_from_slice(self.message_id);
        out.extend_from_slice(b"\",\"queueId\":\"");
        write_integer(out, i64::from(self.queue_id));
        out.extend_from_slice(b"\",\"queueOffset\":\"");
        write_integer(out, self.queue_offset as i64);
        if let Some(transaction_id) = self.transaction_id {
            out.extend_from_slice(b"\",\"transactionId\":\"");
            write_escaped(out, transaction_id);
        }
        out.extend_from_slice(b"\"},\"opaque\":");
        write_integer(out, i64::from(self.opaque));
        out.push(b'}');
    }

    fn write_binary(&self, fixed: &Fixed, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0, OUR_LANGUAGE]);
        out.extend_from_slice(&(OUR_VERSION as i16).to_be_bytes());
        out.extend_from_slice(&self.opaque.to_be_bytes());
        out.extend_from_slice(&RESPONSE.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&fixed.reply_binary);
        write_field(out, b"msgId", |out| out.extend_from_slice(self.message_id));
        write_field(out, b"queueId", |out| write_integer(out, i64::from(self.queue_id)));
        write_field(out, b"queueOffset", |out| write_integer(out, self.queue_offset as i64));
        if let Some(transaction_id) = self.transaction_id {
            write_field(out, b"transactionId", |out| out.extend_from_slice(transaction_id));
        }
        let size = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
}

fn write_field(out: &mut Vec<u8>, key: &[u8], write_value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&(key.len() as i16).to_be_bytes());
    out.extend_from_slice(key);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write_value(out);
    let size = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}
