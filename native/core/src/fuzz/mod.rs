//! Every decoder of the core, given damaged input: no panic, no memory that the input doesn't pay for, and an answer that is
//! right as far as it can be told another way.
//!
//! proptest makes valid values; each is damaged many times by `Damage`. `ROCKMQ_FUZZ_INPUTS` is how many inputs a decoder
//! gets, `ROCKMQ_FUZZ_SEED` what a run begins with; a failure tells its seed and the input.

mod files;
mod stored;
mod wire;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    env, panic,
};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// Inputs made of one valid value, and how many of those are left as they are.
const INPUTS_PER_VALUE: usize = 200;
const WHOLE_PER_VALUE: usize = 5;

/// How many inputs a decoder gets.
fn inputs() -> usize {
    setting("ROCKMQ_FUZZ_INPUTS").unwrap_or(100_000) as usize
}

/// Give `check` so many inputs that damage makes of valid bytes.
fn damaged(inputs: usize, valid: impl Strategy<Value = Vec<u8>>, check: impl Fn(&[u8])) {
    run(inputs.div_ceil(INPUTS_PER_VALUE), 20, (valid, any::<u64>().no_shrink()), |(valid, seed)| {
        let mut damage = Damage { state: seed };
        for number in 0..INPUTS_PER_VALUE {
            let input = if number < WHOLE_PER_VALUE { valid.clone() } else { damage.of(&valid) };
            if panic::catch_unwind(panic::AssertUnwindSafe(|| check(&input))).is_err() {
                return Err(TestCaseError::fail(format!("input \"{}\"", input.escape_ascii())));
            }
        }
        Ok(())
    });
}

/// Give `check` so many values as they are.
fn undamaged<S: Strategy>(inputs: usize, values: S, check: impl Fn(S::Value)) {
    run(inputs, 1000, values, |value| {
        check(value);
        Ok(())
    });
}

fn run<S: Strategy>(cases: usize, shrinks: u32, values: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seed = setting("ROCKMQ_FUZZ_SEED").unwrap_or_else(any_seed);
    let config =
        Config { cases: cases as u32, failure_persistence: None, max_shrink_iters: shrinks, ..Config::default() };
    let bytes: Vec<u8> = seed.to_be_bytes().repeat(2);
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &bytes));
    if let Err(error) = runner.run(&values, test) {
        panic!("ROCKMQ_FUZZ_SEED={seed}: {error}");
    }
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn any_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() & 0xFFFF_FFFF
}

/// Makes bytes wrong the way disks, peers and liars do. `tests/support/damage.py` does the same for Python.
struct Damage {
    state: u64,
}

impl Damage {
    fn of(&mut self, valid: &[u8]) -> Vec<u8> {
        if self.below(50) == 0 {
            return (0..self.below(100)).map(|_| self.next() as u8).collect();
        }
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(3) {
            self.once(&mut bytes, valid);
        }
        bytes
    }

    fn once(&mut self, bytes: &mut Vec<u8>, valid: &[u8]) {
        if bytes.is_empty() {
            bytes.push(self.next() as u8);
            return;
        }
        let at = self.below(bytes.len());
        let size = self.below(bytes.len() - at + 1).min(64);
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.next() as u8,
            2 => bytes.truncate(at),
            3 => self.length(&mut bytes[at..]),
            4 => drop(bytes.splice(at..at, bytes[at..at + size].to_vec())),
            5 => drop(bytes.drain(at..at + size)),
            6 => bytes[at..at + size].fill(0),
            _ => {
                let from = self.below(valid.len().max(1));
                let piece = &valid[from.min(valid.len())..(from + size).min(valid.len())];
                drop(bytes.splice(at..at + size, piece.iter().copied()));
            }
        }
    }

    /// A number that is extreme, or nearly right.
    fn length(&mut self, bytes: &mut [u8]) {
        let width = [1, 2, 4, 8][self.below(4)].min(bytes.len());
        let all = bytes.len() as u64;
        let choices = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 63, all, all - 1, all + 1, 0x7FFF_FFFF, 0x8000_0000];
        let number = choices[self.below(choices.len())];
        // The upper end of a number that is to be extreme in any width, the lower of one that is a length.
        let all_bytes = number.to_be_bytes();
        let upper = self.below(2) == 0;
        bytes[..width].copy_from_slice(if upper { &all_bytes[..width] } else { &all_bytes[8 - width..] });
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

/// The system's memory, counted by thread.
struct Counting;

#[global_allocator]
static MEMORY: Counting = Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

fn count(size: usize) {
    TAKEN.set(TAKEN.get().saturating_add(size));
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Run something that may take so much memory and no more.
pub fn within<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    let before = TAKEN.get();
    let result = run();
    let taken = TAKEN.get() - before;
    assert!(taken <= bytes, "{taken} bytes of memory were taken, the bound is {bytes}");
    result
}
