//! UNIQ_KEY for messages whose client gave none: upper-case hexadecimal digits of
//!
//! `IP (4 or 16 bytes), i16 process id, i32 number of this run, i32 ms since the month began, i16 counter`
//!
//! Admin tools read the time back to know where to search, and take the month of their local time for it, as Java does.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    mem::MaybeUninit,
    process,
};

/// Digits of a key with an IPv6 address.
pub const SIZE_MAX: usize = 56;

pub struct UniqueKeys {
    prefix: Vec<u8>,
    month: std::ops::Range<i64>,
    counter: u16,
}

impl UniqueKeys {
    pub fn new(ip: &[u8]) -> Self {
        let mut prefix = Vec::with_capacity(SIZE_MAX);
        write_hex(&mut prefix, ip);
        write_hex(&mut prefix, &(process::id() as u16).to_be_bytes());
        // Java takes the hash of a class loader: a number that differs between processes.
        write_hex(&mut prefix, &(RandomState::new().build_hasher().finish() as u32).to_be_bytes());
        Self { prefix, month: 0..0, counter: 0 }
    }

    pub fn next(&mut self, now: i64, out: &mut Vec<u8>) {
        if !self.month.contains(&now) {
            self.month = month_of(now);
        }
        out.extend_from_slice(&self.prefix);
        write_hex(out, &((now - self.month.start) as u32).to_be_bytes());
        write_hex(out, &self.counter.to_be_bytes());
        self.counter = self.counter.wrapping_add(1);
    }
}

pub fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    // By fours, each half a word of digits: pushing digit by digit costs more than the digits.
    for piece in bytes.chunks(4) {
        let mut four = [0; 4];
        four[..piece.len()].copy_from_slice(piece);
        out.extend_from_slice(&hex(four)[..2 * piece.len()]);
    }
}

/// The 16 digits of eight bytes.
pub fn hex_of_long(value: i64) -> [u8; 16] {
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&hex(((value >> 32) as u32).to_be_bytes()));
    digits[8..].copy_from_slice(&hex((value as u32).to_be_bytes()));
    digits
}

/// The digits of four bytes, all at once in one word.
fn hex(bytes: [u8; 4]) -> [u8; 8] {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from(u32::from_be_bytes(bytes));
    let pairs = (word | word << 16) & 0x0000_FFFF_0000_FFFF;
    let bytes = (pairs | pairs << 8) & 0x00FF_00FF_00FF_00FF;
    let digits = (bytes | bytes << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // 6 more leads those from 10 on over 16.
    let letters = (digits + 6 * ONES) >> 4 & ONES;
    (digits + u64::from(b'0') * ONES + letters * u64::from(b'A' - b'0' - 10)).to_be_bytes()
}

/// The local month that holds `now`, in milliseconds. Time zones are a matter of the C library.
fn month_of(now: i64) -> std::ops::Range<i64> {
    let seconds: libc::time_t = now.div_euclid(1000);
    let mut time = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call; localtime_r fills `time` in when it returns non-null, and only then
    // is it read.
    let mut time = unsafe {
        if libc::localtime_r(&seconds, time.as_mut_ptr()).is_null() {
            return now..now + 1;
        }
        time.assume_init()
    };
    (time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec, time.tm_isdst) = (1, 0, 0, 0, -1);
    // SAFETY: mktime reads and normalizes the valid `tm` it is given; a month of 12 is the next January.
    let start = unsafe { libc::mktime(&mut time) };
    (time.tm_mon, time.tm_isdst) = (time.tm_mon + 1, -1);
    // SAFETY: as above.
    let end = unsafe { libc::mktime(&mut time) };
    start.saturating_mul(1000)..end.saturating_mul(1000).max(now.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_each_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        for size in [0, 1, 3, 4, 5, 8, 256] {
            let mut out = Vec::new();
            write_hex(&mut out, &bytes[256 - size..]);
            let digits: String = bytes[256 - size..].iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(String::from_utf8(out).unwrap(), digits);
        }
    }

    #[test]
    fn keys_differ_and_hold_the_time() {
        let mut keys = UniqueKeys::new(&[127, 0, 0, 1]);
        let now = 1_700_000_000_000;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        keys.next(now, &mut first);
        keys.next(now + 5, &mut second);
        assert_eq!((first.len(), &first[..8]), (32, &b"7F000001"[..]));
        let time = |key: &[u8]| u32::from_str_radix(std::str::from_utf8(&key[20..28]).unwrap(), 16).unwrap();
        assert_eq!(time(&second) - time(&first), 5);
        assert!(i64::from(time(&first)) < 31 * 24 * 3_600_000);
        assert_eq!((&first[28..], &second[28..]), (&b"0000"[..], &b"0001"[..]));
    }
}
