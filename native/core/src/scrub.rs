//! A look at the cold part of the log, all files but the one written now, while the broker runs.
//!
//! It reads through the page cache, but leaves it as it was: pages that weren't in memory before are let go of afterwards,
//! and those that were stay. So nobody's hot pages make room for it.

use std::{fs::File, sync::Arc};

use crate::{
    error::Result,
    mapped_file::{self, PAGE},
    state::Shared,
    walk::{Faults, Walk},
};

/// Check the records from `position` on, some `bytes_max` of log; where to go on, `position` itself when no cold file is
/// there. A position below the log's first is taken for that.
pub fn scrub(shared: &Shared, position: u64, bytes_max: u64) -> Result<(u64, Faults)> {
    let mut faults = Faults::new();
    let (position, file, at, last) = {
        let state = shared.state();
        let position = position.max(state.log.min());
        let last = state.log.bases().last().copied().unwrap_or(0);
        match state.log.locate(position).filter(|_| position < last) {
            Some((file, at)) => (position, Arc::clone(file), at, last),
            None => return Ok((position, faults)),
        }
    };
    let window = bytes_max.clamp(PAGE as u64, 16 << 20) as usize;
    let resident = file.resident(at, at + 2 * window);
    let end = file.base + file.size() as u64;
    let mut walk = Walk::new(shared.config.log.clone(), shared.config.log_file_size, window, true);
    let result = walk.step(position, last.min(position + window as u64), &mut faults, |_, _| Ok(()));
    // What can't be opened was deleted.
    if let Ok(handle) = File::open(&file.path) {
        let _ = mapped_file::let_go(&handle, at, &resident);
    }
    match result {
        Ok(step) => Ok((if step.ended { end } else { step.next }, faults)),
        // Deleted with the oldest files meanwhile.
        Err(_) if shared.state().log.min() > file.base => Ok((shared.state().log.min(), Faults::new())),
        Err(error) => Err(error),
    }
}
