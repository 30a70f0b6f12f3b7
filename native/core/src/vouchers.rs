//! Who may send to which topic over a connection, so that of each send only the signature is left to be checked.
//!
//! Where a guard decides over requests (`rockmq/auth/guard.py`) no send is the core's before Python has let one with the same
//! code, access key and topic through, over the same connection, and vouched for more of them. That is all a guard's answer
//! depends on, but for its rules; when these change Python ends all vouchers at once, by counting up what all connections look
//! at. No is never kept: what isn't vouched for, and what isn't signed as it should be, is left to Python.
//!
//! A signature is HMAC-SHA1, in Base64, of the values of all fields but itself in the order of their names, and the body
//! (`rockmq/auth/signature.py`).

use std::sync::{
    atomic::{AtomicU64, Ordering},
    Arc,
};

use base64ct::{Base64, Encoding};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use smallvec::SmallVec;
use subtle::ConstantTimeEq;

use crate::header::Header;

/// Vouchers of one connection; the oldest goes for one more.
pub const VOUCHERS_MAX: usize = 64;
/// Bytes of an access key or a topic, which a voucher holds on to.
const NAME_SIZE_MAX: usize = 255;
/// Fields of a header that are put in order here. Java writes those of a signed request twice.
const FIELDS_MAX: usize = 64;
const SIGNATURE_SIZE: usize = 28;

/// How often the rules of a server have changed.
pub type Changes = Arc<AtomicU64>;

/// The vouchers of a connection.
pub struct Vouchers {
    changes: Changes,
    /// What `changes` was when these were given.
    seen: u64,
    kept: Vec<Voucher>,
}

struct Voucher {
    code: i32,
    access_key: Vec<u8>,
    topic: Vec<u8>,
    /// Has taken the secret in already.
    signing: Hmac<Sha1>,
}

impl Voucher {
    fn is_for(&self, code: i32, access_key: &[u8], topic: &[u8]) -> bool {
        self.code == code && self.access_key == access_key && self.topic == topic
    }
}

impl Vouchers {
    pub fn new(changes: Changes) -> Self {
        Self { changes, seen: 0, kept: Vec::new() }
    }

    /// Let sends with this code of this access key to this topic through that are signed with the secret.
    pub fn add(&mut self, code: i32, access_key: &[u8], topic: &[u8], secret: &[u8]) {
        self.forget_outdated();
        if access_key.len() > NAME_SIZE_MAX || topic.len() > NAME_SIZE_MAX {
            return;
        }
        let Ok(signing) = Hmac::new_from_slice(secret) else { return };
        self.kept.retain(|each| !each.is_for(code, access_key, topic));
        if self.kept.len() == VOUCHERS_MAX {
            self.kept.remove(0);
        }
        self.kept.push(Voucher { code, access_key: access_key.into(), topic: topic.into(), signing });
    }

    /// Whether a send to this topic, with this header and body, is one of those.
    pub fn admit(&mut self, topic: &[u8], header: &Header, text: &[u8], body: &[u8]) -> bool {
        self.forget_outdated();
        if self.kept.is_empty() {
            return false;
        }
        let Some(fields) = in_order(header, text) else { return false };
        let value = |name: &[u8]| fields.iter().find(|field| field.0 == name).map(|field| field.1);
        let (Some(access_key), Some(given)) = (value(ACCESS_KEY), value(SIGNATURE)) else { return false };
        let Some(voucher) = self.kept.iter().find(|each| each.is_for(header.code, access_key, topic)) else {
            return false;
        };
        let mut signing = voucher.signing.clone();
        for (name, value) in &fields {
            if *name != SIGNATURE {
                signing.update(value);
            }
        }
        signing.update(body);
        let mut expected = [0; SIGNATURE_SIZE];
        // Takes as long for a wrong signature as for the right one.
        Base64::encode(&signing.finalize().into_bytes(), &mut expected)
            .is_ok_and(|expected| expected.as_bytes().ct_eq(given).into())
    }

    fn forget_outdated(&mut self) {
        let changes = self.changes.load(Ordering::Relaxed);
        if changes != self.seen {
            self.seen = changes;
            self.kept.clear();
        }
    }
}

const ACCESS_KEY: &[u8] = b"AccessKey";
const SIGNATURE: &[u8] = b"Signature";

type Fields<'t> = SmallVec<[(&'t [u8], &'t [u8]); FIELDS_MAX]>;

/// The fields as Python has them, in the order of their names: of one that comes twice the last value, which may be that it
/// has none. None for many fields, and for what isn't UTF-8, which is signed otherwise than it is written.
fn in_order<'t>(header: &'t Header, text: &'t [u8]) -> Option<Fields<'t>> {
    let mut fields = Fields::new();
    for (name, value) in header.fields(text) {
        let value = value.unwrap_or_default();
        if fields.len() == FIELDS_MAX || !is_text(name) || !is_text(value) {
            return None;
        }
        fields.push((name, value));
    }
    fields.sort_by_key(|field| field.0); // which leaves those with the same name in the order they came in
    fields.dedup_by(|later, kept| {
        later.0 == kept.0 && {
            kept.1 = later.1;
            true
        }
    });
    Some(fields)
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{write, Ours, JSON, ROCKETMQ};

    const SEND: i32 = 310;
    /// AclSigner.calSignature("RocketMQ", "12345678") gives this.
    const SIGNED: &[u8] = b"IUc8rrO/0gDch8CjObLQsW2rsiA=";

    fn vouchers() -> (Changes, Vouchers) {
        let changes = Changes::default();
        (Arc::clone(&changes), Vouchers::new(changes))
    }

    fn admits(vouchers: &mut Vouchers, topic: &[u8], fields: &[(&[u8], &[u8])], body: &[u8]) -> bool {
        let both = [JSON, ROCKETMQ].map(|serializer| {
            let mut text = Vec::new();
            let ours = Ours { code: SEND, opaque: 1, flag: 0, remark: None };
            write(&mut text, serializer, &ours, fields.iter().copied()).unwrap();
            let mut header = Header::default();
            header.read(serializer, &text).unwrap();
            vouchers.admit(topic, &header, &text, body)
        });
        assert_eq!(both[0], both[1]);
        both[0]
    }

    #[test]
    fn only_what_is_signed_and_vouched_for() {
        let (changes, mut vouchers) = vouchers();
        let good: [(&[u8], &[u8]); 4] = [(b"b", b"cket"), (SIGNATURE, SIGNED), (ACCESS_KEY, b"Ro"), (b"z", b"M")];
        assert!(!admits(&mut vouchers, b"cket", &good, b"Q"));
        vouchers.add(SEND, b"Ro", b"other", b"12345678");
        vouchers.add(SEND, b"other", b"cket", b"12345678");
        vouchers.add(SEND + 10, b"Ro", b"cket", b"12345678");
        assert!(!admits(&mut vouchers, b"cket", &good, b"Q"));
        vouchers.add(SEND, b"Ro", b"cket", b"12345679");
        assert!(!admits(&mut vouchers, b"cket", &good, b"Q"));
        vouchers.add(SEND, b"Ro", b"cket", b"12345678");
        assert!(admits(&mut vouchers, b"cket", &good, b"Q"));
        assert!(!admits(&mut vouchers, b"cket", &good, b"q"));
        assert!(!admits(&mut vouchers, b"cke", &good, b"Q"));
        for lacking in 0..good.len() {
            let mut fields = good.to_vec();
            fields.remove(lacking);
            assert!(!admits(&mut vouchers, b"cket", &fields, b"Q"));
        }
        changes.fetch_add(1, Ordering::Relaxed);
        assert!(!admits(&mut vouchers, b"cket", &good, b"Q"));
        vouchers.add(SEND, b"Ro", b"cket", b"12345678");
        assert!(admits(&mut vouchers, b"cket", &good, b"Q"));
    }

    #[test]
    fn the_last_of_those_with_one_name_counts() {
        let (_, mut vouchers) = vouchers();
        vouchers.add(SEND, b"Ro", b"T", b"12345678");
        let good: [(&[u8], &[u8]); 3] = [(ACCESS_KEY, b"Ro"), (SIGNATURE, SIGNED), (b"z", b"cketM")];
        for (name, value) in good {
            for other in [&b"x"[..], b"IUc8rrO/0gDch8CjObLQsW2rsiB="] {
                let mut before = good.to_vec();
                before.insert(0, (name, other));
                assert!(admits(&mut vouchers, b"T", &before, b"Q"));
                let mut behind = good.to_vec();
                behind.push((name, other));
                assert!(!admits(&mut vouchers, b"T", &behind, b"Q"));
                behind.push((name, value));
                assert!(admits(&mut vouchers, b"T", &behind, b"Q"));
            }
        }
    }

    #[test]
    fn everything_has_a_bound() {
        let (_, mut vouchers) = vouchers();
        for number in 0..=VOUCHERS_MAX {
            for _ in 0..2 {
                vouchers.add(SEND, b"k", number.to_string().as_bytes(), b"secret");
            }
        }
        assert_eq!(vouchers.kept.len(), VOUCHERS_MAX);
        assert_eq!(vouchers.kept[0].topic, b"1");
        for (access_key, topic) in [(vec![b'k'; NAME_SIZE_MAX + 1], vec![]), (vec![], vec![b't'; NAME_SIZE_MAX + 1])] {
            vouchers.add(SEND, &access_key, &topic, b"secret");
        }
        assert_eq!(vouchers.kept[0].topic, b"1");

        vouchers.add(SEND, b"Ro", b"T", b"12345678");
        let good: [(&[u8], &[u8]); 3] = [(ACCESS_KEY, b"Ro"), (b"z", b"cketMQ"), (SIGNATURE, SIGNED)];
        let mut fields = good.to_vec();
        fields.resize(FIELDS_MAX, (SIGNATURE, SIGNED));
        assert!(admits(&mut vouchers, b"T", &fields, b""));
        fields.push((SIGNATURE, SIGNED));
        assert!(!admits(&mut vouchers, b"T", &fields, b""));
    }

    #[test]
    fn what_python_reads_otherwise_is_left_to_it() {
        let (_, mut vouchers) = vouchers();
        vouchers.add(SEND, b"Ro", b"T", b"12345678");
        // As "RocketMQ" is signed, with one byte that is no character.
        let mut signing = Hmac::<Sha1>::new_from_slice(b"12345678").unwrap();
        signing.update(b"Rocket\xFFM");
        let mut signature = [0; SIGNATURE_SIZE];
        Base64::encode(&signing.finalize().into_bytes(), &mut signature).unwrap();
        let fields: [(&[u8], &[u8]); 3] = [(ACCESS_KEY, b"Ro"), (b"z", b"cket\xFFM"), (SIGNATURE, &signature)];
        assert!(!admits(&mut vouchers, b"T", &fields, b""));
    }
}
