//! The little of X.509 that rustls leaves to us: whose certificate it is, for a line in the log, and one that a server makes for
//! itself. DER is tag, length, content; what isn't as it should be is nobody's.

use std::{borrow::Cow, fmt::Write};

use ring::{
    rand::SystemRandom,
    signature::{EcdsaKeyPair, KeyPair, ECDSA_P256_SHA256_ASN1_SIGNING},
};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0C;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
const DNS_NAME: u8 = 0x82;

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1D, 0x11];
const EC_PUBLIC_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7];
const ECDSA_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2];
/// The parts of a name that are told, by the last byte of 2.5.4.x.
const PARTS: [(u8, &str); 4] = [(3, "CN"), (11, "OU"), (10, "O"), (6, "C")];
const TEXT_MAX: usize = 64;
/// Over it no further part is told.
const TOLD_MAX: usize = 300;

/// Whose certificate it says it is: serial number and name.
pub fn who(certificate: &[u8]) -> String {
    read_who(certificate).unwrap_or_else(|| "a certificate that can't be read".into())
}

/// The public key in it (SubjectPublicKeyInfo).
pub fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, rest) = serial_and_subject(certificate)?;
    let (_, _, rest) = item(rest)?;
    let (_, _, after) = item(rest)?;
    Some(&rest[..rest.len() - after.len()])
}

fn read_who(certificate: &[u8]) -> Option<String> {
    let (serial, rest) = serial_and_subject(certificate)?;
    let (_, mut subject, _) = item(rest)?;
    let mut told = String::from("serial number ");
    for byte in &serial[..serial.len().min(20)] {
        let _ = write!(told, "{byte:02x}");
    }
    while let Some((_, set, next)) = item(subject) {
        if told.len() > TOLD_MAX {
            told.push_str(", …");
            break;
        }
        subject = next;
        let (_, pair, _) = item(set)?;
        let (_, kind, value) = item(pair)?;
        let (_, value, _) = item(value)?;
        let part = PARTS.iter().find(|(last, _)| kind == [0x55, 4, *last]);
        if let Some((_, name)) = part {
            let _ = write!(told, ", {name}=\"{}\"", printable(value));
        }
    }
    Some(told)
}

/// A certificate's serial number, and what begins with its subject.
fn serial_and_subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, certificate, _) = item(certificate)?;
    let (_, signed, _) = item(certificate)?;
    let (tag, mut serial, mut rest) = item(signed)?;
    if tag == VERSION {
        (_, serial, rest) = item(rest)?;
    }
    // Algorithm of the signature, issuer, validity.
    for _ in 0..3 {
        (_, _, rest) = item(rest)?;
    }
    Some((serial, rest))
}

/// As it may stand in a log, in quotes: a peer has written it.
fn printable(value: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(&value[..value.len().min(TEXT_MAX)]);
    let is_strange = |letter: char| letter.is_control() || letter == '"';
    match text.contains(is_strange) {
        true => text.chars().map(|letter| if is_strange(letter) { '?' } else { letter }).collect(),
        false => text,
    }
}

/// Tag and content of what `data` begins with, and what follows it.
fn item(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = data.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7F))?;
        if !(1..=4).contains(&digits.len()) {
            return None;
        }
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A certificate that nobody has signed but its own key, for ever, and that key (PKCS #8).
pub fn self_signed() -> Result<(Vec<u8>, Vec<u8>), ring::error::Unspecified> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random)
        .map_err(|_| ring::error::Unspecified)?;
    let algorithm = der(SEQUENCE, &[&der(OID, &[ECDSA_SHA256])]);
    let common_name = der(SEQUENCE, &[&der(OID, &[COMMON_NAME]), &der(UTF8, &[b"rockmq, self-signed"])]);
    let name = der(SEQUENCE, &[&der(SET, &[&common_name])]);
    let begin = der(GENERALIZED_TIME, &[b"20000101000000Z"]);
    let end = der(GENERALIZED_TIME, &[b"99991231235959Z"]); // RFC 5280, 4.1.2.5: it doesn't end
    let kind = der(SEQUENCE, &[&der(OID, &[EC_PUBLIC_KEY]), &der(OID, &[P256])]);
    let public = der(SEQUENCE, &[&kind, &der(BIT_STRING, &[&[0], pair.public_key().as_ref()])]);
    let names = der(SEQUENCE, &[&der(DNS_NAME, &[b"localhost"])]);
    let extension = der(SEQUENCE, &[&der(OID, &[ALTERNATIVE_NAMES]), &der(OCTET_STRING, &[&names])]);
    let signed = der(
        SEQUENCE,
        &[
            &der(VERSION, &[&der(INTEGER, &[&[2]])]),
            &der(INTEGER, &[&[1]]),
            &algorithm,
            &name,
            &der(SEQUENCE, &[&begin, &end]),
            &name,
            &public,
            &der(EXTENSIONS, &[&der(SEQUENCE, &[&extension])]),
        ],
    );
    let signature = pair.sign(&random, &signed)?;
    let certificate = der(SEQUENCE, &[&signed, &algorithm, &der(BIT_STRING, &[&[0], signature.as_ref()])]);
    Ok((certificate, key.as_ref().to_vec()))
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match length {
        0..0x80 => out.push(length as u8),
        0x80..0x100 => out.extend_from_slice(&[0x81, length as u8]),
        _ => out.extend_from_slice(&[0x82, (length >> 8) as u8, length as u8]),
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn our_own_is_told_by_its_name() {
        let (certificate, _) = self_signed().expect("randomness");
        assert_eq!(who(&certificate), "serial number 01, CN=\"rockmq, self-signed\"");
    }

    #[test]
    fn a_name_of_many_parts_is_told_in_part() {
        let part = der(SEQUENCE, &[&der(OID, &[COMMON_NAME]), &der(UTF8, &[b"a\", serial number 02"])]);
        let name = vec![der(SET, &[&part]); 1000].concat();
        let before = [der(INTEGER, &[&[1]]), [SEQUENCE, 0].repeat(3)].concat();
        let subject = [vec![SEQUENCE, 0x82, (name.len() >> 8) as u8, name.len() as u8], name].concat();
        let told = who(&der(SEQUENCE, &[&der(SEQUENCE, &[&before, &subject])]));
        assert!(told.starts_with("serial number 01, CN=\"a?, serial number 02\", CN="), "{told}");
        assert!(told.ends_with(", …") && told.len() < 400, "{told}");
    }

    #[test]
    fn the_key_of_a_certificate_is_cut_out() {
        let (certificate, key) = self_signed().expect("randomness");
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key, &SystemRandom::new()).expect("a key");
        let cut = public_key(&certificate).expect("a certificate");
        assert!(cut.ends_with(pair.public_key().as_ref()));
        assert_eq!(item(cut).map(|(tag, _, rest)| (tag, rest.len())), Some((SEQUENCE, 0)));
    }

    proptest! {
        #[test]
        fn damaged_ones_are_somebodys_or_nobodys(at in 0usize..400, byte in any::<u8>(), end in 0usize..500) {
            let (mut certificate, _) = self_signed().expect("randomness");
            let size = certificate.len();
            certificate[at % size] = byte;
            prop_assert!(who(&certificate[..end.min(size)]).len() < 1000);
        }
    }
}
