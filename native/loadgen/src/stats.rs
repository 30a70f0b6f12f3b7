//! Latency buckets and CPU clocks.

use std::fs;
use std::time::Duration;

const PRECISION_BITS: u32 = 7;
const BUCKETS: usize = (64 - PRECISION_BITS as usize + 1) << PRECISION_BITS;

/// Counts by nanoseconds: exact below 128, then 128 buckets for each doubling, so a value is off by less than 0.8 %.
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0, max: 0 }
    }

    pub fn record(&mut self, value: u64) {
        self.counts[Self::bucket(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// The value at or below which `share` of the records lie, as the top of its bucket.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::top(bucket).min(self.max);
            }
        }
        self.max
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    fn bucket(value: u64) -> usize {
        let shift = (u64::BITS - (value | 1).leading_zeros()).saturating_sub(PRECISION_BITS + 1);
        ((shift as usize) << PRECISION_BITS) + (value >> shift) as usize
    }

    fn top(bucket: usize) -> u64 {
        let shift = (bucket >> PRECISION_BITS).saturating_sub(1) as u32;
        let mantissa = (bucket - ((shift as usize) << PRECISION_BITS)) as u64;
        ((mantissa + 1) << shift) - 1
    }
}

/// CPU clocks at one moment: of the servers (reaped children too), of this process, of the whole machine.
#[derive(Clone, Copy, Default)]
pub struct Clocks {
    pub server: Option<Duration>,
    pub own: Duration,
    pub machine: Duration,
}

impl Clocks {
    pub fn read(server_pids: &[u32]) -> Result<Self, String> {
        let mut server = Duration::ZERO;
        for pid in server_pids {
            server += process_cpu(&pid.to_string())?;
        }
        Ok(Self { server: (!server_pids.is_empty()).then_some(server), own: own_cpu(), machine: machine_busy()? })
    }

    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            server: self.server.zip(earlier.server).map(|(now, then)| now.saturating_sub(then)),
            own: self.own.saturating_sub(earlier.own),
            machine: self.machine.saturating_sub(earlier.machine),
        }
    }
}

fn process_cpu(pid: &str) -> Result<Duration, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("server process {pid}: {path}: {error}"))?;
    // The command name may hold blanks and brackets, so count from its last bracket: field 3 comes first there.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = fields.get(11..15).ok_or_else(|| format!("{path} is too short"))?;
    Ok(from_ticks(ticks.iter().filter_map(|field| field.parse::<u64>().ok()).sum()))
}

fn machine_busy() -> Result<Duration, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
    let line = text.lines().next().unwrap_or("");
    // user nice system idle iowait irq softirq: all but idle and iowait is work.
    let ticks = line.split_whitespace().skip(1).take(7).filter_map(|field| field.parse::<u64>().ok());
    Ok(from_ticks(ticks.enumerate().filter(|(i, _)| !matches!(i, 3 | 4)).map(|(_, value)| value).sum()))
}

fn from_ticks(ticks: u64) -> Duration {
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_millis(ticks * 1000 / per_second)
}

fn own_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The clock that Python calls `time.monotonic_ns()`.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for value in (0..63).flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3]) {
            let bucket = Histogram::bucket(value);
            assert!(bucket >= last && bucket < BUCKETS);
            assert!(Histogram::top(bucket) >= value, "{value}");
            assert!(Histogram::top(bucket) - value <= value / 64, "{value}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::new();
        (1..=10_000).for_each(|value| histogram.record(value * 1000));
        assert!(histogram.quantile(0.5).abs_diff(5_000_000) < 50_000);
        assert!(histogram.quantile(0.99).abs_diff(9_900_000) < 99_000);
        assert_eq!(histogram.quantile(1.0), 10_000_000);
    }
}
