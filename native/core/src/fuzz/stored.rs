//! Records: of the log, and of the answer to a pull.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{damaged, inputs};
use crate::{
    half_messages::{immunity_asked, Half, HALF_TOPIC},
    properties,
    record::{self, Crc, Found, Message, BORN_V6, INNER_BATCH, MAGIC_BLANK, MAGIC_V2, STORE_V6, TOPIC_V1_MAX},
};

#[derive(Debug, Clone)]
pub struct Fields {
    pub topic: String,
    pub queue_id: i32,
    pub properties: Vec<u8>,
    body: Vec<u8>,
    hosts: (bool, bool),
    sys_flag: i32,
    times: (i64, i64),
    crc_property: bool,
}

impl Fields {
    pub fn encode(&self, queue_offset: i64, position: u64) -> Vec<u8> {
        let host = |v6| if v6 { &[7; 20][..] } else { &[10, 0, 0, 1, 0, 0, 42, 159] };
        let properties = [&self.properties[..]];
        let message = Message {
            queue_id: self.queue_id,
            flag: 5,
            sys_flag: self.sys_flag,
            born_timestamp: self.times.0,
            born_host: host(self.hosts.0),
            store_timestamp: self.times.1,
            store_host: host(self.hosts.1),
            reconsume_times: 1,
            prepared_transaction_offset: 0,
            body: &self.body,
            topic: self.topic.as_bytes(),
            properties: &properties,
            crc_property: self.crc_property,
        };
        let mut out = vec![0; message.size()];
        message.encode(&mut out, queue_offset, position);
        out
    }
}

pub fn record() -> impl Strategy<Value = Fields> {
    record_of(prop_oneof![4 => "[ABC]", 1 => "é{1,2}", 1 => "t{126,130}"])
}

pub fn record_of(topic: impl Strategy<Value = String>) -> impl Strategy<Value = Fields> {
    let properties = prop_oneof![
        2 => Just(""),
        2 => Just("TAGS\u{1}a\u{2}KEYS\u{1}k l\u{2}"),
        2 => Just("UNIQ_KEY\u{1}U\u{2}x"),
        1 => Just("INNER_NUM\u{1}3\u{2}INNER_BASE\u{1}4\u{2}"),
        1 => Just("INNER_MULTI_DISPATCH\u{1}%LMQ%a,%LMQ%b\u{2}INNER_MULTI_QUEUE_OFFSET\u{1}0,1\u{2}"),
    ];
    let times = (any::<i64>(), 1_700_000_000_000..1_700_000_100_000i64);
    let sys_flag = prop_oneof![3 => Just(0), 1 => Just(INNER_BATCH), 1 => any::<i32>()];
    let crc_property = any::<bool>();
    (topic, 0..2i32, properties, vec(any::<u8>(), 0..40), any::<(bool, bool)>(), sys_flag, times, crc_property)
        .prop_map(|(topic, queue_id, properties, body, hosts, sys_flag, times, crc_property)| Fields {
            topic,
            queue_id,
            properties: properties.as_bytes().to_vec(),
            body,
            hosts,
            sys_flag,
            times,
            crc_property,
        })
}

#[test]
fn records_are_read_or_refused() {
    let records = vec(record(), 1..4).prop_map(|records| {
        let mut out = Vec::new();
        for (number, record) in records.iter().enumerate() {
            out.extend(record.encode(number as i64, out.len() as u64));
        }
        out
    });
    damaged(inputs(), records, |data| super::within(0, || read_all(data)));
}

fn read_all(data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let rest = &data[at..];
        let Some(record) = record::decode(rest) else {
            let is_blank = record::int_at(rest, 4) == Some(MAGIC_BLANK)
                && record::int_at(rest, 0) == i32::try_from(rest.len()).ok();
            let expected = if is_blank { Found::Blank } else { Found::Nothing };
            assert!(record::find(rest, at as u64, Crc::Ignored) == expected);
            return;
        };
        assert!(rest.len() >= record.size && record.bytes.len() == record.size);
        let is_here = record.position == at as i64;
        assert!((record::find(rest, at as u64, Crc::Ignored) == Found::Record(record)) == is_here);
        let is_right = is_here && record.body_crc == record::body_crc(record.body);
        assert!((record::find(rest, at as u64, Crc::Body) == Found::Record(record)) == is_right);
        if record::find(rest, at as u64, Crc::Property) == Found::Record(record) {
            let (before, property) = record.bytes.split_at(record.size - 20);
            let digits = property[9..19].iter().rev().fold(0, |crc, digit| crc * 10 + i64::from(digit - b'0'));
            assert!(is_here && property.starts_with(b"__CRC32#") && digits == i64::from(record::body_crc(before)));
        }
        assert!(record::is_record(rest, record.size, record.position as u64));
        assert_eq!(record::store_timestamp(rest), Some(record.store_timestamp));
        if record.properties.ends_with(&[0]) {
            assert!(record::is_torn(&record, record.size, &[]));
        }
        record::is_torn(&record, at + record.size, &rest[record.size..]);
        assert_eq!(record.born_host.len(), if record.sys_flag & BORN_V6 == 0 { 8 } else { 20 });
        assert_eq!(record.store_host.len(), if record.sys_flag & STORE_V6 == 0 { 8 } else { 20 });
        again(&record);
        at += record.size;
    }
}

#[test]
fn half_messages_are_read_or_refused() {
    let names =
        vec!["PGROUP", "REAL_TOPIC", "REAL_QID", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS", "x"];
    let said = vec((select(names), "[0-9]{0,25}|-?[0-9x]{1,3}"), 0..8);
    let halves = (record(), said).prop_map(|(mut fields, said)| {
        (fields.topic, fields.queue_id) = (HALF_TOPIC.to_owned(), 0);
        let said: Vec<_> = said.iter().map(|(name, value)| format!("{name}\u{1}{value}\u{2}")).collect();
        fields.properties = said.concat().into_bytes();
        fields.encode(7, 0)
    });
    damaged(inputs(), halves, |data| {
        let Some(half) = super::within(0, || Half::read(data)) else { return };
        assert!(half.root <= half.record.queue_offset as u64 && half.real_queue_id >= -1);
        assert!(!half.is_overdue(i64::MIN, 0));
        super::within(0, || immunity_asked(half.record.properties));
        let mut committed = Vec::with_capacity(half.record.properties.len() + 1);
        super::within(0, || half.write_committed(&mut committed));
        let kept = properties::items(record::without_crc(half.record.properties));
        let kept = kept.filter(|(name, _)| ![&b"REAL_TOPIC"[..], b"REAL_QID", b"TRAN_MSG"].contains(name));
        assert!(properties::items(&committed).eq(kept));
    });
}

/// Encoded, it is what was decoded; but the CRC is that of the body, and the layout the one for its topic.
fn again(record: &record::Record<'_>) {
    let is_v2 = record::int_at(record.bytes, 4) == Some(MAGIC_V2);
    if is_v2 != (record.topic.len() > TOPIC_V1_MAX) {
        return;
    }
    let properties = [record.properties];
    let message = Message {
        queue_id: record.queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        store_timestamp: record.store_timestamp,
        store_host: record.store_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: record.prepared_transaction_offset,
        body: record.body,
        topic: record.topic,
        properties: &properties,
        crc_property: false,
    };
    assert_eq!(message.size(), record.size);
    let mut out = [0; 1024];
    let Some(out) = out.get_mut(..record.size) else { return };
    message.encode(out, record.queue_offset, record.position as u64);
    assert!(out[..8] == record.bytes[..8] && out[12..] == record.bytes[12..]);
}
