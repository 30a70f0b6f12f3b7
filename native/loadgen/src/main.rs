//! A load generator for RocketMQ brokers that costs little CPU itself, so that two cores are enough to measure one.

mod channel;
mod control;
mod engine;
mod failure;
mod latency;
mod options;
mod poller;
mod signed;
mod stats;
mod stub;
mod wire;
mod work;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::{Errors, Outcome, Plan};
use failure::Failure;
use options::{Mode, Options, HELP};
use wire::{json_escape, Serializer};
use work::{Pops, Pulls, Sends, Topics, Transactions};

fn main() -> ExitCode {
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => execute(options),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("rockmq-loadgen: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn execute(mut options: Options) -> Result<ExitCode, Failure> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    match options.mode {
        Mode::Probe => {
            let (at, tries) = control::probe(&options, now_ms)?;
            println!(r#"{{"mode":"probe","accepted_monotonic_ns":{at},"tries":{tries}}}"#);
            return Ok(ExitCode::SUCCESS);
        }
        mode if mode.is_loopback() => options.address = stub::start(&options)?,
        _ => {}
    }
    measure(&options, now_ms)
}

fn measure(options: &Options, now_ms: u64) -> Result<ExitCode, Failure> {
    let per_request = options.batch.max(1) as u64;
    let plan = Plan {
        address: options.address,
        connections: options.connections,
        window: options.window,
        tls: options.tls,
        warmup: options.warmup,
        measured: options.seconds,
        requests: match options.mode {
            Mode::Preload => Some(options.messages.div_ceil(per_request)),
            Mode::Topic => Some(options.topics as u64),
            _ => None,
        },
        silence: options.silence,
        server_pids: options.server_pids.clone(),
    };
    // A message that is delayed isn't in its topic yet.
    let delayed = options.properties.iter().any(|(key, _)| key == "DELAY" || key.starts_with("TIMER_"));
    let checks_totals = matches!(options.mode, Mode::Send | Mode::Preload) && options.topics == 1 && !delayed;
    let before = if checks_totals { control::stored_messages(options)? } else { 0 };
    let outcome = match options.mode {
        Mode::Topic => engine::run(plan, &mut Topics::new(options))?,
        Mode::Transact => engine::run(plan, &mut Transactions::new(options, now_ms))?,
        Mode::Pop => engine::run(plan, &mut Pops::new(options, now_ms))?,
        Mode::Latency => latency::run(options, now_ms)?,
        mode if mode.pulls() => engine::run(plan, &mut Pulls::new(options, now_ms))?,
        _ => engine::run(plan, &mut Sends::new(options, now_ms))?,
    };
    let stored = match checks_totals {
        true => Some(control::settled_messages(options, before + outcome.all_messages as i64)? - before),
        false => None,
    };
    println!("{}", report(options, &outcome, stored));
    // A refused or unanswered send may still have been stored; an accepted one must have been.
    let doubtful = (outcome.all_errors.total() + outcome.unanswered) * per_request;
    if let Some(stored) = stored {
        let accepted = outcome.all_messages as i64;
        if !(accepted..=accepted + doubtful as i64).contains(&stored) {
            return Err(Failure::Protocol(format!("{accepted} messages accepted but {stored} stored")));
        }
    }
    if outcome.messages == 0 {
        return Err(Failure::Refused(format!("nothing was accepted: {}", errors(&outcome.all_errors))));
    }
    if options.mode == Mode::Topic && doubtful > 0 {
        return Err(Failure::Refused(format!("not all topics were made: {}", errors(&outcome.all_errors))));
    }
    Ok(ExitCode::SUCCESS)
}

fn report(options: &Options, outcome: &Outcome, stored: Option<i64>) -> String {
    let micros = |value: u64| format!("{:.1}", value as f64 / 1e3);
    let per_message = |cpu: Duration| cpu.as_secs_f64() * 1e6 / (outcome.messages.max(1)) as f64;
    let quantile = |share| micros(outcome.latency.quantile(share));
    let cores = |cpu: Duration| cpu.as_secs_f64() / outcome.seconds;
    let server = outcome.clocks.server;
    let others = outcome.clocks.machine.saturating_sub(outcome.clocks.own + server.unwrap_or_default());
    let or_null = |text: Option<String>| text.unwrap_or_else(|| "null".into());
    let fields = [
        ("mode", format!("\"{}\"", options.mode.name())),
        ("serializer", format!("\"{}\"", if options.serializer == Serializer::Json { "json" } else { "binary" })),
        ("conns", options.connections.to_string()),
        ("window", options.window.to_string()),
        ("size", options.size.to_string()),
        ("batch", options.batch.to_string()),
        ("queues", options.queues.to_string()),
        ("pull_max", if options.mode.pulls() { options.pull_max.to_string() } else { "null".into() }),
        ("seconds", format!("{:.3}", outcome.seconds)),
        ("requests", outcome.requests.to_string()),
        ("messages", outcome.messages.to_string()),
        ("messages_per_second", format!("{:.1}", outcome.messages as f64 / outcome.seconds)),
        ("mb_in_per_second", format!("{:.2}", outcome.bytes_in as f64 / 1e6 / outcome.seconds)),
        ("mb_out_per_second", format!("{:.2}", outcome.bytes_out as f64 / 1e6 / outcome.seconds)),
        ("p50_us", quantile(0.5)),
        ("p99_us", quantile(0.99)),
        ("p999_us", quantile(0.999)),
        ("max_us", micros(outcome.latency.max())),
        ("server_cpu_us_per_message", or_null(server.map(|cpu| format!("{:.4}", per_message(cpu))))),
        ("server_cores", or_null(server.map(|cpu| format!("{:.3}", cores(cpu))))),
        ("own_cpu_us_per_message", format!("{:.4}", per_message(outcome.clocks.own))),
        ("own_cores", format!("{:.3}", cores(outcome.clocks.own))),
        ("others_cores", or_null(server.map(|_| format!("{:.3}", cores(others))))),
        ("empty_pulls", outcome.empty.to_string()),
        ("errors", errors(&outcome.errors)),
        ("errors_with_warmup", errors(&outcome.all_errors)),
        ("unanswered", outcome.unanswered.to_string()),
        ("accepted_with_warmup", outcome.all_messages.to_string()),
        ("stored_with_warmup", or_null(stored.map(|count| count.to_string()))),
    ];
    let inner: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", inner.join(","))
}

fn errors(errors: &Errors) -> String {
    let each = errors.by_code.iter().map(|(code, (count, remark))| {
        // The remark is JSON text already when it came in a JSON header; escaping it again only costs backslashes.
        format!("\"{code}\":{{\"count\":{count},\"remark\":\"{}\"}}", json_escape(remark))
    });
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}
