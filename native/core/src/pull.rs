//! The head of the answer to a pull that found messages.

use crate::{
    frame,
    get::Got,
    header::{self, write_integer, Ours, RESPONSE},
};

/// A frame up to its body, which is what was found.
pub fn head(got: &Got, serializer: u8, opaque: i32, broker: i64) -> Result<Vec<u8>, String> {
    let mut digits = Vec::with_capacity(80);
    let mut ends = [0; 4];
    for (end, value) in ends.iter_mut().zip([broker, got.next as i64, got.min as i64, got.max as i64]) {
        write_integer(&mut digits, value);
        *end = digits.len();
    }
    let names = ["suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"];
    let starts = [0, ends[0], ends[1], ends[2]];
    let fields =
        names.iter().zip(starts.iter().zip(&ends)).map(|(name, (&start, &end))| (name.as_bytes(), &digits[start..end]));
    let body_size = got.runs.iter().map(|run| run.size).sum();
    let mut out = Vec::with_capacity(320);
    let start = frame::begin(&mut out, serializer);
    let ours = Ours { code: 0, opaque, flag: RESPONSE, remark: Some("FOUND") };
    header::write(&mut out, serializer, &ours, fields)?;
    if frame::end(&mut out, start, body_size) {
        return Ok(out);
    }
    Err(format!("{body_size} bytes of messages are over what a frame can hold"))
}
