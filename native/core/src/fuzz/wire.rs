//! Frames, headers, properties, batches.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{damaged, inputs};
use crate::{
    frame::{self, Cut},
    header::{self, Header, Ours, JSON, ROCKETMQ},
    properties, record,
};

const FRAME_SIZE_MAX: usize = 1 << 16;
/// A header's own lists and error texts.
const OVERHEAD: usize = 4096;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "",
            "topic",
            "queueId",
            "-1",
            "0",
            "2147483648",
            "TRUE",
            "ключ",
            "\u{1}\u{2}",
            "\"\\/\u{1f}",
            "😀"
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ]
}

fn header() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ours = (any::<i32>(), any::<i32>(), any::<i32>(), proptest::option::of(text()));
    (0..2u8, ours, vec((text(), text()), 0..8)).prop_map(|(serializer, (code, opaque, flag, remark), fields)| {
        let mut out = Vec::new();
        let ours = Ours { code, opaque, flag, remark: remark.as_deref() };
        let fields = fields.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        header::write(&mut out, serializer, &ours, fields).unwrap();
        (serializer, out)
    })
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    vec((header(), vec(any::<u8>(), 0..20)), 1..4).prop_map(|frames| {
        let mut out = Vec::new();
        for ((serializer, text), body) in frames {
            let start = frame::begin(&mut out, serializer);
            out.extend_from_slice(&text);
            assert!(frame::end(&mut out[start..], 0, body.len()));
            out.extend_from_slice(&body);
        }
        out
    })
}

#[test]
fn frames_are_cut_or_refused() {
    damaged(inputs(), frames(), |data| {
        let mut at = 0;
        while let Cut::Whole { serializer, header, body, size } = frame::cut(&data[at..], FRAME_SIZE_MAX) {
            let mut again = Vec::new();
            frame::begin(&mut again, serializer);
            again.extend_from_slice(header);
            assert!(frame::end(&mut again, 0, body.len()));
            again.extend_from_slice(body);
            assert_eq!(again, &data[at..at + size]);
            assert_eq!(frame::size(&data[at..]), Some(size));
            assert_eq!(frame::cut(&data[at..at + size - 1], FRAME_SIZE_MAX), Cut::More);
            at += size;
        }
        if let Cut::Bad(reason) = frame::cut(&data[at..], FRAME_SIZE_MAX) {
            // By its first two words, whatever follows.
            assert_eq!(frame::cut(&data[at..data.len().min(at + 8)], FRAME_SIZE_MAX), Cut::Bad(reason));
        }
    });
}

#[test]
fn headers_are_read_or_refused() {
    let one = header().prop_map(|(serializer, text)| [vec![serializer], text].concat());
    damaged(inputs(), one, |data| {
        let Some((serializer, text)) = data.split_first() else { return };
        let serializer = serializer & 1;
        let mut header = Header::default();
        // Each field costs at least five bytes of text, and a list that grows is taken twice.
        let read = super::within(OVERHEAD + 32 * text.len(), || header.read(serializer, text));
        if let Err(reason) = read {
            assert!(reason.len() < 300);
            return;
        }
        let remark = header.remark(text).map(String::from_utf8_lossy);
        let ours = Ours { code: header.code, opaque: header.opaque, flag: header.flag, remark: remark.as_deref() };
        let mut fields: Vec<_> =
            header.fields(text).filter_map(|(key, value)| value.map(|value| (key, value))).collect();
        for other in [JSON, ROCKETMQ] {
            // Empty is null there, and keys are short.
            if other == ROCKETMQ {
                fields.retain(|(key, value)| !key.is_empty() && !value.is_empty() && key.len() <= 0x7FFF);
            }
            let mut written = Vec::new();
            header::write(&mut written, other, &ours, fields.iter().copied()).unwrap();
            let mut again = Header::default();
            again.read(other, &written).unwrap();
            let code = if other == ROCKETMQ { i32::from(header.code as i16) } else { header.code };
            assert_eq!((again.code, again.opaque, again.flag), (code, header.opaque, header.flag));
            assert_eq!(again.remark(&written).unwrap_or_default(), remark.as_deref().unwrap_or_default().as_bytes());
            let read: Vec<_> = again.fields(&written).map(|(key, value)| (key, value.unwrap())).collect();
            assert_eq!(read, fields);
        }
    });
}

fn properties_text() -> impl Strategy<Value = Vec<u8>> {
    let name = select(vec!["UNIQ_KEY", "KEYS", "TAGS", "TRAN_MSG", "DELAY", "TIMER_OUT_MS", "a", "ключ", ""]);
    let value = prop_oneof![Just("true".to_owned()), Just(String::new()), "[a-zé😀\u{1}]{0,9}"];
    vec((name, value), 0..6).prop_map(|pairs| {
        pairs.iter().flat_map(|(name, value)| format!("{name}\u{1}{value}\u{2}").into_bytes()).collect()
    })
}

#[test]
fn properties_are_what_java_sees() {
    damaged(inputs(), properties_text(), |text| {
        let expected: Vec<_> = text
            .split(|&byte| byte == properties::VALUE_END)
            .filter_map(|item| {
                let end = item.iter().position(|&byte| byte == properties::NAME_END)?;
                Some((&item[..end], &item[end + 1..]))
            })
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .collect();
        let last = |name: &[u8]| expected.iter().rev().find(|(other, _)| *other == name).map(|(_, value)| *value);
        super::within(0, || assert!(properties::items(text).eq(expected.iter().copied())));
        let keys = super::within(0, || properties::keys(text));
        assert_eq!((keys.unique_key, keys.keys, keys.tags), (last(b"UNIQ_KEY"), last(b"KEYS"), last(b"TAGS")));
        let known = properties::inspect(text);
        assert_eq!((known.keys, known.delay), (keys, last(b"DELAY")));
        assert_eq!(known.special, properties::items(text).any(|(name, _)| is_special(name)));
        assert_eq!(known.is_half, last(b"TRAN_MSG").is_some_and(|value| value.eq_ignore_ascii_case(b"true")));
        let tags = String::from_utf8_lossy(keys.tags.unwrap_or_default());
        let hash = tags.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
        assert_eq!(properties::tags_code(keys.tags), i64::from(hash));
        assert_eq!(properties::java_hash(7, text), {
            let text = String::from_utf8_lossy(text);
            text.encode_utf16().fold(7i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
        });
    });
}

fn is_special(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let words = ["POP_CK", "__CRC32#", "MSG_REGION", "TRACE_ON", "CLUSTER"];
    words.contains(&name.as_ref())
        || ["TIMER_", "INNER_", "__RMQ.TRANSIENT."].iter().any(|start| name.starts_with(start))
}

#[test]
fn batches_are_cut_or_refused() {
    let message = (any::<i32>(), vec(any::<u8>(), 0..30), properties_text());
    let batch = vec(message, 0..4).prop_map(|messages| {
        let mut out = Vec::new();
        for (flag, body, properties) in messages {
            out.extend_from_slice(&((22 + body.len() + properties.len()) as i32).to_be_bytes());
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(&flag.to_be_bytes());
            out.extend_from_slice(&(body.len() as i32).to_be_bytes());
            out.extend_from_slice(&body);
            out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
            out.extend_from_slice(&properties);
        }
        out
    });
    damaged(inputs(), batch, |data| {
        let mut at = 0;
        for inner in super::within(OVERHEAD + 64 * data.len(), || record::batch(data).collect::<Vec<_>>()) {
            let Ok(inner) = inner else {
                assert!(inner.unwrap_err().contains(&format!("at byte {at}:")));
                return;
            };
            let mut again = data[at..at + 12].to_vec();
            again.extend_from_slice(&inner.flag.to_be_bytes());
            again.extend_from_slice(&(inner.body.len() as i32).to_be_bytes());
            again.extend_from_slice(inner.body);
            again.extend_from_slice(&(inner.properties.len() as i16).to_be_bytes());
            again.extend_from_slice(inner.properties);
            assert_eq!(again, &data[at..at + again.len()]);
            assert!(!record::is_like_torn(inner.properties));
            at += again.len();
        }
        assert_eq!(at, data.len());
    });
}
