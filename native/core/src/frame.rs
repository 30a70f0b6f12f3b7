//! Frames: how a byte stream is cut.
//!
//! ```text
//!     0  i32  length of everything after this word: 4 + header + body
//!     4  u8   serializer of the header: 0 JSON, 1 ROCKETMQ
//!     5  u24  header length
//!     8       header, then body up to the end
//! ```
//!
//! A stream has no marks to find the next frame by, so a length that can't be true ends the connection: every later byte
//! would be read as something it isn't.

use crate::header;

/// The words before the header.
pub const HEAD: usize = 8;
/// The header length is a 24-bit number.
pub const HEADER_MAX: usize = 0x00FF_FFFF;

#[derive(Debug, PartialEq, Eq)]
pub enum Cut<'a> {
    /// The frame isn't whole yet; its size is known once its first word is there.
    More,
    Whole {
        serializer: u8,
        header: &'a [u8],
        body: &'a [u8],
        size: usize,
    },
    /// Why this stream can't be trusted any longer.
    Bad(String),
}

/// Look at the frame `data` starts with. Lengths are judged as soon as they are there, so that a lie isn't waited for.
pub fn cut(data: &[u8], frame_size_max: usize) -> Cut<'_> {
    let Some(length) = word(data, 0) else { return Cut::More };
    let bound = frame_size_max.saturating_sub(4);
    if length < 4 || length as usize > bound {
        return Cut::Bad(format!("frame length {} is not within 4 … {bound}", length as i32));
    }
    let Some(second) = word(data, 4) else { return Cut::More };
    let serializer = (second >> 24) as u8;
    if serializer != header::JSON && serializer != header::ROCKETMQ {
        return Cut::Bad(format!("serializer {serializer} is neither 0 (JSON) nor 1 (ROCKETMQ)"));
    }
    let (length, header_length) = (length as usize, second as usize & HEADER_MAX);
    if header_length > length - 4 {
        return Cut::Bad(format!("header length {header_length} is over {}, what the frame length leaves", length - 4));
    }
    let size = 4 + length;
    match data.get(HEAD..size) {
        None => Cut::More,
        Some(rest) => {
            let (header, body) = rest.split_at(header_length);
            Cut::Whole { serializer, header, body, size }
        }
    }
}

/// The whole size of the frame `data` starts with, once its first word is there. Only for data `cut` has accepted.
pub fn size(data: &[u8]) -> Option<usize> {
    word(data, 0).map(|length| 4 + length as usize)
}

/// Start a frame in `out`; `end` completes it.
pub fn begin(out: &mut Vec<u8>, serializer: u8) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, serializer, 0, 0, 0]);
    start
}

/// Fill in the lengths of the frame whose header ends at the end of `out` and whose body of `body_size` bytes follows.
/// False, and a frame that must not be sent, when they don't fit.
#[must_use]
pub fn end(out: &mut [u8], start: usize, body_size: usize) -> bool {
    let header_length = out.len() - start - HEAD;
    let Some(length) = header_length.checked_add(body_size + 4).filter(|&length| length <= i32::MAX as usize) else {
        return false;
    };
    if header_length > HEADER_MAX {
        return false;
    }
    out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    out[start + 5..start + 8].copy_from_slice(&(header_length as u32).to_be_bytes()[1..]);
    true
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at + 4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_frame_is_cut_at_its_end() {
        let data = [0, 0, 0, 7, 1, 0, 0, 2, b'h', b'd', b'b', 9];
        assert_eq!(cut(&data, 11), Cut::Whole { serializer: 1, header: b"hd", body: b"b", size: 11 });
        assert!(matches!(cut(&data, 10), Cut::Bad(_)));
        for end in 0..11 {
            assert_eq!(cut(&data[..end], 11), Cut::More);
        }
    }

    #[test]
    fn lengths_that_cannot_be_true_are_refused() {
        for data in [
            [0, 0, 0, 3, 0, 0, 0, 0],
            [255, 255, 255, 255, 0, 0, 0, 0],
            [0, 0, 0, 8, 2, 0, 0, 0],
            [0, 0, 0, 8, 0, 0, 0, 5],
        ] {
            assert!(matches!(cut(&data, 1 << 24), Cut::Bad(_)), "{data:?}");
        }
    }
}
