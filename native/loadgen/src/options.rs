//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use crate::failure::Failure;
use crate::signed::Key;
use crate::wire::{Serializer, TOPICS_MAX};
use crate::work::{default_code, is_send_code};

pub const HELP: &str = "\
rockmq-loadgen MODE [--option value ...]

Loads a RocketMQ broker with frames encoded beforehand and prints one JSON object.

modes
  send           closed loop of sends
  pull           closed loop of pulls; each slot reads one queue to its end, then again
  preload        --messages sends as fast as they are accepted, then stop
  transact       closed loop of transactions: half a message, and a commit when that is stored
  pop            closed loop of pops, each message acknowledged by itself before the next pop; by a new group, from the start
  latency        one message at a time, to a consumer whose pull waits: from the send to the message's arrival there
  topic          create the topic, or all --topics of them, with --queues queues each
  probe          try to send one message until it is accepted, at most --seconds
  loopback-pull  pulls against a stub in this process: the limit of loopback and generator
  loopback-send  sends against such a stub
options (default)
  --address HOST:PORT (127.0.0.1:10911)   --topic NAME (LOADGEN)      --queues N (4)
  --topics N (1): as many of them, named NAME_000000 and so on; sends go to all in turn, and nobody counts what is stored
  --conns N (8)         --window N (1): requests in flight on each connection
  --size BYTES (128)    --batch N (0: single messages)                --code 310|10 (310)
  --serializer json|binary (binary)       --pull-max N (32)           --max-bytes N: field maxMsgBytes of pulls
  --group NAME (rockmq_loadgen)           --messages N (preload)
  --property KEY=VALUE: more of each message, may be said several times
  --expression TEXT, --expression-type TAG|SQL92 (TAG): filter of pulls; what is passed over counts as pulled
  --follow true: pulls wait at the end of their queue instead of beginning again
  --access-key NAME, --secret-key TEXT: sign what is asked; of send, preload, topic and probe
  --seconds S (10)      --warmup S (2)    --silence S (40): give up when nothing is answered for so long
  --tls true: with TLS, whoever the server says it is; what is counted before and after is asked for in the clear
  --server-pid PID[,PID ...]: report CPU of these processes
exit codes
  0 done   1 usage   2 connection   3 the server broke the protocol or totals don't match   4 silence   5 refused
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Send,
    Pull,
    Preload,
    Transact,
    Pop,
    Latency,
    Topic,
    Probe,
    LoopbackPull,
    LoopbackSend,
}

impl Mode {
    const ALL: [(&'static str, Self); 10] = [
        ("send", Self::Send),
        ("pull", Self::Pull),
        ("preload", Self::Preload),
        ("transact", Self::Transact),
        ("pop", Self::Pop),
        ("latency", Self::Latency),
        ("topic", Self::Topic),
        ("probe", Self::Probe),
        ("loopback-pull", Self::LoopbackPull),
        ("loopback-send", Self::LoopbackSend),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    pub fn pulls(self) -> bool {
        matches!(self, Self::Pull | Self::LoopbackPull)
    }

    pub fn is_loopback(self) -> bool {
        matches!(self, Self::LoopbackPull | Self::LoopbackSend)
    }
}

#[derive(Clone)]
pub struct Options {
    pub mode: Mode,
    pub address: SocketAddr,
    pub topic: String,
    pub queues: usize,
    pub topics: usize,
    pub connections: usize,
    pub window: usize,
    pub tls: bool,
    pub size: usize,
    pub batch: usize,
    pub code: i32,
    pub serializer: Serializer,
    pub pull_max: usize,
    pub max_bytes: Option<usize>,
    pub group: String,
    pub properties: Vec<(String, String)>,
    pub expression: Option<String>,
    pub expression_type: String,
    pub follow: bool,
    pub key: Option<Key>,
    pub messages: u64,
    pub seconds: Duration,
    pub warmup: Duration,
    pub silence: Duration,
    pub server_pids: Vec<u32>,
}

impl Options {
    /// None when help was asked for.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, Failure> {
        let mode = match arguments.next().as_deref() {
            None | Some("help" | "-h" | "--help") => return Ok(None),
            Some(name) => Mode::ALL
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, mode)| *mode)
                .ok_or_else(|| Failure::Usage(format!("unknown mode {name}")))?,
        };
        let mut options = Self {
            mode,
            address: SocketAddr::from(([127, 0, 0, 1], 10911)),
            topic: "LOADGEN".into(),
            queues: 4,
            topics: 1,
            connections: 8,
            window: 1,
            tls: false,
            size: 128,
            batch: 0,
            code: default_code(),
            serializer: Serializer::Binary,
            pull_max: 32,
            max_bytes: None,
            group: "rockmq_loadgen".into(),
            properties: Vec::new(),
            expression: None,
            expression_type: "TAG".into(),
            follow: false,
            key: None,
            messages: 0,
            seconds: Duration::from_secs(10),
            warmup: Duration::from_secs(2),
            silence: Duration::from_secs(40),
            server_pids: Vec::new(),
        };
        while let Some(name) = arguments.next() {
            if matches!(name.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            let value = arguments.next().ok_or_else(|| Failure::Usage(format!("{name} needs a value")))?;
            options.set(&name, &value)?;
        }
        let half = options.key.as_ref().is_some_and(|key| key.access.is_empty() || key.secret.is_empty());
        if half {
            return Err(Failure::Usage("--access-key and --secret-key go together".into()));
        }
        if options.key.is_some() && !matches!(mode, Mode::Send | Mode::Preload | Mode::Topic | Mode::Probe) {
            return Err(Failure::Usage(format!("{} isn't signed", mode.name())));
        }
        if mode == Mode::Preload && options.messages == 0 {
            return Err(Failure::Usage("preload needs --messages".into()));
        }
        Ok(Some(options))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let bad = || Failure::Usage(format!("{name} can't be {value:?}"));
        let count = |max: usize| value.parse().ok().filter(|count| (1..=max).contains(count)).ok_or_else(bad);
        let time = || value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(bad);
        match name {
            "--address" => self.address = value.parse().map_err(|_| bad())?,
            "--topic" => self.topic = value.into(),
            "--group" => self.group = value.into(),
            "--property" => {
                let (key, text) =
                    value.split_once('=').filter(|(key, text)| !key.is_empty() && !text.is_empty()).ok_or_else(bad)?;
                self.properties.push((key.into(), text.into()));
            }
            "--expression" => self.expression = Some(value.into()),
            "--expression-type" => self.expression_type = value.into(),
            "--follow" => self.follow = value.parse().map_err(|_| bad())?,
            "--tls" => self.tls = value.parse().map_err(|_| bad())?,
            "--access-key" => self.key.get_or_insert_default().access = value.into(),
            "--secret-key" => self.key.get_or_insert_default().secret = value.into(),
            "--queues" => self.queues = count(1024)?,
            "--topics" => self.topics = count(TOPICS_MAX)?,
            "--conns" => self.connections = count(10_000)?,
            "--window" => self.window = count(65_536)?,
            "--size" => self.size = count(4 << 20)?,
            "--batch" => self.batch = count(100_000)?,
            "--pull-max" => self.pull_max = count(100_000)?,
            "--max-bytes" => self.max_bytes = Some(count(1 << 30)?),
            "--messages" => self.messages = count(usize::MAX)? as u64,
            "--code" => self.code = value.parse().ok().filter(|code| is_send_code(*code)).ok_or_else(bad)?,
            "--serializer" => {
                self.serializer = match value {
                    "json" => Serializer::Json,
                    "binary" => Serializer::Binary,
                    _ => return Err(bad()),
                }
            }
            "--seconds" => self.seconds = time()?,
            "--warmup" => self.warmup = time()?,
            "--silence" => self.silence = time()?,
            "--server-pid" => {
                self.server_pids = value.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
            }
            _ => return Err(Failure::Usage(format!("unknown option {name}"))),
        }
        Ok(())
    }
}
