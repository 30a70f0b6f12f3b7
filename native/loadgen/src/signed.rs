//! Requests signed with a key, for brokers that ask who somebody is.
//!
//! A signature is HMAC-SHA1, in Base64, of the values of all fields but itself in the order of their names, and the body. It
//! is made anew for each request, since each has another unique key.

use base64ct::{Base64, Encoding};
use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::wire::{Fields, Frame, Places, Serializer, Template, OPAQUE_BASE};

/// As long as a signature, and no other field contains it.
const MARK: &str = "~signature~signature~signat~";

#[derive(Clone, Default)]
pub struct Key {
    pub access: String,
    pub secret: String,
}

/// A request, signed if there is a key.
pub fn template(key: Option<&Key>, serializer: Serializer, code: i32, fields: &Fields, body: &[u8]) -> Template {
    let Some(key) = key else { return Template::new(Frame::request(serializer, code, OPAQUE_BASE, fields, body)) };
    let mut fields = fields.to_vec();
    fields.push(("AccessKey", key.access.as_str().into()));
    fields.sort_by_key(|field| field.0);
    let mut content: Vec<u8> = fields.iter().flat_map(|field| field.1.bytes()).collect();
    content.extend_from_slice(body);
    fields.push(("Signature", MARK.into()));
    let frame = Frame::request(serializer, code, OPAQUE_BASE, &fields, body);
    let mark = frame.bytes.windows(MARK.len()).position(|bytes| bytes == MARK.as_bytes());
    let signing = Hmac::new_from_slice(key.secret.as_bytes()).expect("keys of any size are taken");
    let places = Places::of(&content);
    Template::signed(frame, Signature { content, places, signing, at: mark.expect("it was put there") })
}

/// What a template needs to sign its requests.
pub struct Signature {
    content: Vec<u8>,
    places: Places,
    signing: Hmac<Sha1>,
    /// Where it goes in the frame.
    at: usize,
}

impl Signature {
    /// Write the signature of the request with this topic, whose unique keys follow `unique`.
    pub fn patch(&self, frame: &mut [u8], topic: usize, mut unique: u64) {
        let mut content = self.content.clone();
        self.places.patch(&mut content, topic, &mut unique);
        let mut signing = self.signing.clone();
        signing.update(&content);
        let digest = signing.finalize().into_bytes();
        Base64::encode(&digest, &mut frame[self.at..self.at + MARK.len()]).expect("it has that size");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{batch_body, properties, topic_name};

    /// Values of a binary header in the order of their names, and the signature.
    fn read(frame: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let header = 8 + 21..8 + (u32::from_be_bytes(frame[4..8].try_into().unwrap()) & 0xFF_FFFF) as usize;
        let body = &frame[header.end..];
        let (mut rest, mut fields, mut signature) = (&frame[header], Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (name, behind) = rest[2..].split_at(usize::from(rest[1]));
            let size = u32::from_be_bytes(behind[..4].try_into().unwrap()) as usize;
            let (value, behind) = behind[4..].split_at(size);
            if name == b"Signature" {
                signature = value.to_vec();
            } else {
                fields.push((name, value));
            }
            rest = behind;
        }
        fields.sort();
        let content = fields.iter().flat_map(|field| field.1).chain(body).copied().collect();
        (content, signature)
    }

    #[test]
    fn each_request_has_its_signature() {
        let key = Key { access: "me".into(), secret: "12345678".into() };
        let fields = [("i", properties(&[]).into()), ("b", topic_name("Orders", 1000).into())];
        let batch = batch_body(b"x", 2, &properties(&[]));
        let template = template(Some(&key), Serializer::Binary, 320, &fields, &batch);
        let (mut unique, mut seen) = (7, Vec::new());
        for topic in 0..3 {
            let mut frame = Vec::new();
            template.append_to(&mut frame, OPAQUE_BASE, topic, &mut unique);
            let (content, signature) = read(&frame);
            let signing = Hmac::<Sha1>::new_from_slice(b"12345678").unwrap().chain_update(content);
            let mut expected = [0; MARK.len()];
            Base64::encode(&signing.finalize().into_bytes(), &mut expected).unwrap();
            assert_eq!(signature, expected);
            assert!(!seen.contains(&signature));
            seen.push(signature);
        }
        assert_eq!(unique, 7 + 3 * 3);
    }
}
