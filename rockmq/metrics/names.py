"""Every metric there is, once: name, type, labels, meaning, and the class of Apache's that has it.

Names, labels and ranges of Apache's metrics are those that the Prometheus exporter of its broker 5.5.0 shows, which puts a
metric's unit behind its name. It adds the label `otel_scope_name` to each, which isn't here.
"""

from rockmq.metrics import loop_lag
from rockmq.metrics.samples import Metric

_BROKER = "BrokerMetricsManager"
_STORE = "DefaultStoreMetricsManager"
_REMOTING = "RemotingMetricsManager"

_IN = ("is_system", "message_type", "topic")
_OUT = ("consumer_group", "is_retry", "is_system", "topic")
_ON_DISK = ("storage_medium", "storage_type")
SIZES = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
CREATE_MS = (10, 100, 1000, 3000, 5000)
DELAY_SECONDS = (60, 600, 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600)
LATENCY_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
TIMER_BOUNDS_SECONDS = (5, 60, 300, 900, 3600, 14400, 28800, 86400)

PERMISSION = Metric("rocketmq_broker_permission", "gauge", "What the broker allows: 4 read, 2 write, 6 both.", (), _BROKER)
TOPICS = Metric("rocketmq_topic_number", "gauge", "Topics, those of the system too.", (), _BROKER)
GROUPS = Metric("rocketmq_consumer_group_number", "gauge", "Groups that have a configuration.", (), _BROKER)

MESSAGES_IN = Metric(
    "rocketmq_messages_in_total",
    "counter",
    "Messages stored for producers, where they were stored first: those that wait for a time, and halves of transactions, "
    "in the system's topics. What a delay level delivers counts once more, for its topic.",
    _IN,
    _BROKER,
)
BYTES_IN = Metric("rocketmq_throughput_in_total", "counter", "Bytes of their records.", _IN, _BROKER)
MESSAGE_SIZE = Metric(
    "rocketmq_message_size", "histogram", "Bytes of a record; of a batch the mean, once.", _IN, _BROKER, SIZES
)
MESSAGES_OUT = Metric(
    "rocketmq_messages_out_total",
    "counter",
    "Messages given to consumers. `is_retry` is there for pops only; pulls of retry topics don't count.",
    _OUT,
    _BROKER,
)
BYTES_OUT = Metric("rocketmq_throughput_out_total", "counter", "Bytes of their records.", _OUT, _BROKER)

PRODUCERS = Metric(
    "rocketmq_producer_connections",
    "gauge",
    "Producers by heartbeat; one of two groups counts twice.",
    ("language", "protocol_type", "version"),
    _BROKER,
)
CONSUMERS = Metric(
    "rocketmq_consumer_connections",
    "gauge",
    "Members of groups; `consume_mode` is push, pull or pop.",
    ("consume_mode", "consumer_group", "is_system", "language", "protocol_type", "version"),
    _BROKER,
)

LAG = Metric(
    "rocketmq_consumer_lag_messages",
    "gauge",
    "Messages that a group with members hasn't acknowledged. Without an offset of the group: 0.",
    _OUT,
    "ConsumerLagCalculator",
)
LAG_MS = Metric(
    "rocketmq_consumer_lag_latency_milliseconds",
    "gauge",
    "Age of the oldest of them; 0 without any.",
    _OUT,
    "ConsumerLagCalculator",
)
IN_FLIGHT = Metric(
    "rocketmq_consumer_inflight_messages",
    "gauge",
    "Messages that the group has got and not acknowledged.",
    _OUT,
    "ConsumerLagCalculator",
)
QUEUEING_MS = Metric(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "gauge",
    "Age of the oldest message that the group hasn't got; 0 without any.",
    _OUT,
    "ConsumerLagCalculator",
)
READY = Metric(
    "rocketmq_consumer_ready_messages", "gauge", "Messages that the group hasn't got.", _OUT, "ConsumerLagCalculator"
)
DEAD_LETTERS = Metric(
    "rocketmq_send_to_dlq_messages_total",
    "counter",
    "Messages that became dead letters.",
    ("consumer_group", "is_system", "topic"),
    _BROKER,
)

HALVES = Metric(
    "rocketmq_half_messages", "gauge", "Transactions whose producer hasn't decided.", ("topic",), "TransactionMetrics"
)
COMMITTED = Metric("rocketmq_commit_messages_total", "counter", "Transactions committed.", ("topic",), _BROKER)
ROLLED_BACK = Metric("rocketmq_rollback_messages_total", "counter", "Transactions rolled back.", ("topic",), _BROKER)
COMMIT_TIME = Metric(
    "rocketmq_finish_message_latency_milliseconds",
    "histogram",
    "Time from a transaction's beginning to its commit: in seconds, whatever Apache's name says.",
    ("topic",),
    _BROKER,
    (5, 60, 600, 3600, 12 * 3600, 24 * 3600),
)

CREATE_TOPIC = Metric(
    "rocketmq_topic_create_execution_time_milliseconds",
    "histogram",
    "Time that requests to create or change a topic took.",
    ("invocation_status", "is_system"),
    _BROKER,
    CREATE_MS,
)
CREATE_GROUP = Metric(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "histogram",
    "The same for groups.",
    ("invocation_status",),
    _BROKER,
    CREATE_MS,
)
REQUESTS = Metric(
    "rocketmq_rpc_latency_milliseconds",
    "histogram",
    "Time from a request's arrival to its answer. Sends and decisions that the core's lanes answer aren't among them: see "
    "rockmq_lane_requests_total.",
    ("is_long_polling", "protocol_type", "request_code", "response_code", "result"),
    _REMOTING,
    LATENCY_MS,
)

STORAGE = Metric("rocketmq_storage_size_bytes", "gauge", "Bytes used of the disk that the store is on.", _ON_DISK, _STORE)
FLUSH_BEHIND = Metric(
    "rocketmq_storage_flush_behind_bytes", "gauge", "Bytes of the log that aren't forced to disk.", _ON_DISK, _STORE
)
DISPATCH_BEHIND = Metric(
    "rocketmq_storage_dispatch_behind_bytes",
    "gauge",
    "Bytes of the log that aren't in their queues: always 0, as a record's queue entry is written with it.",
    _ON_DISK,
    _STORE,
)
RESERVE_TIME = Metric(
    "rocketmq_storage_message_reserve_time_milliseconds", "gauge", "Age of the log's first message.", _ON_DISK, _STORE
)

TIMER_BEHIND = Metric(
    "rocketmq_timer_enqueue_lag", "gauge", "Messages for a time that aren't in the wheel yet.", _ON_DISK, _STORE
)
TIMER_BEHIND_MS = Metric(
    "rocketmq_timer_enqueue_latency_milliseconds", "gauge", "Age of the first of them.", _ON_DISK, _STORE
)
TIMER_DUE = Metric(
    "rocketmq_timer_dequeue_lag", "gauge", "Messages that wait in the wheel, due or not, as in Apache.", _ON_DISK, _STORE
)
TIMER_LATE_MS = Metric(
    "rocketmq_timer_dequeue_latency_milliseconds",
    "gauge",
    "How far the wheel is behind the clock: in seconds, whatever Apache's name says.",
    _ON_DISK,
    _STORE,
)
TIMING = Metric("rocketmq_timing_messages", "gauge", "Messages that wait for their time.", (*_ON_DISK, "topic"), _STORE)
TIMER_IN = Metric("rocketmq_timer_enqueue_total", "counter", "Messages put into the wheel.", (*_ON_DISK, "topic"), _STORE)
TIMER_OUT = Metric("rocketmq_timer_dequeue_total", "counter", "Messages whose time has come.", (*_ON_DISK, "topic"), _STORE)
TIMER_SNAPSHOT = Metric(
    "rocketmq_timer_message_snapshot",
    "gauge",
    "Messages in the wheel that are due in so many seconds, and not within the bound before. "
    "A scrape that finds the wheel at work for long goes without.",
    (*_ON_DISK, "timer_bound_s"),
    _STORE,
)
TIMER_DELAYS = Metric(
    "rocketmq_delay_message_latency_seconds",
    "histogram",
    "The delay that messages for a time were sent with.",
    (*_ON_DISK, "topic"),
    _STORE,
    DELAY_SECONDS,
)

READY_STATE = Metric("rockmq_ready", "gauge", "1 when /readyz says so, else 0.")
BUILD = Metric("rockmq_build_info", "gauge", "Always 1; `version` is RockMQ's.", ("version",))
LOG_MESSAGES = Metric("rockmq_log_messages_total", "counter", "Messages written to the log, by whomever.")
LOG_BYTES = Metric("rockmq_log_bytes_total", "counter", "Bytes written to the log.")
FLUSH_LAG = Metric(
    "rockmq_flush_lag_seconds", "gauge", "Age of what was stored last when the log was last forced, if it isn't."
)
WAITERS = Metric(
    "rockmq_durability_waiters",
    "gauge",
    "Answers that wait until their messages are on disk, in `core` (of a chunk of sends each) and in `python`.",
    ("place",),
)
LANE = Metric(
    "rockmq_lane_requests_total",
    "counter",
    "Requests answered, by the `core`'s lanes alone, or by `python`.",
    ("by",),
)
TURNS = Metric("rockmq_reactor_turns_total", "counter", "How often the core's reactor was asked for sockets that are ready.")
REFUSALS = Metric(
    "rockmq_refusals_total",
    "counter",
    "Requests answered with an error, by its code: `flow_control` (a quota), `system_busy`, `service_not_available` (the "
    "disk), `no_permission` and so on. That nothing was found is no error, nor is it that a topic has no route.",
    ("response_code",),
)
LOOP_LAG = Metric(
    "rockmq_event_loop_lag_seconds",
    "histogram",
    f"How late the event loop comes to what is due, every {loop_lag.PERIOD_SECONDS} s.",
    bounds=loop_lag.BOUNDS_SECONDS,
)
CONNECTIONS = Metric("rockmq_connections", "gauge", "Open connections.")
PARKED = Metric("rockmq_parked_requests", "gauge", "Pulls and pops that wait for messages.")
POPPED = Metric("rockmq_popped_messages", "gauge", "Messages popped and not acknowledged, but for those popped in order.")
DISK_TOTAL = Metric(
    "rockmq_disk_total_bytes",
    "gauge",
    "Size of the disk that a directory of the store is on. A disk that fails has no figures.",
    ("path",),
)
DISK_FREE = Metric("rockmq_disk_free_bytes", "gauge", "What is free there.", ("path",))
DISK_RATIO = Metric(
    "rockmq_disk_used_ratio", "gauge", "Use of that disk as retention counts it: 0.9 is 90%, rounded up.", ("path",)
)
DISK_WARNING = Metric("rockmq_disk_warning_ratio", "gauge", "The use over which no messages are taken.")
TAKES = Metric("rockmq_takes_messages", "gauge", "1 when messages are taken, 0 when they are refused.")
SCRUBBED = Metric("rockmq_scrub_bytes_total", "counter", "Bytes of old log files that were read again and checked.")
SCRUB_FAULTS = Metric("rockmq_scrub_faults_total", "counter", "Damaged places found by that.")
SCRUB_ROUND = Metric(
    "rockmq_scrub_last_round_timestamp_seconds", "gauge", "When all old files were last read through; 0: never."
)
DROPPED = Metric(
    "rockmq_metrics_dropped_series",
    "gauge",
    "Series of this scrape over metricsOtelCardinalityLimit: counted together, or left out if they are gauges.",
)

BROKERS = Metric("rockmq_namesrv_brokers", "gauge", "Addresses of brokers that are registered.", ("cluster",))
ROUTED_TOPICS = Metric("rockmq_namesrv_topics", "gauge", "Topics that have a route.")
EXPIRED = Metric("rockmq_namesrv_expired_brokers_total", "counter", "Brokers forgotten because they fell silent.")

BROKER = (
    PERMISSION, TOPICS, GROUPS, MESSAGES_IN, BYTES_IN, MESSAGE_SIZE, MESSAGES_OUT, BYTES_OUT, PRODUCERS, CONSUMERS, LAG,
    LAG_MS, IN_FLIGHT, QUEUEING_MS, READY, DEAD_LETTERS, HALVES, COMMITTED, ROLLED_BACK, COMMIT_TIME, CREATE_TOPIC,
    CREATE_GROUP, REQUESTS, STORAGE, FLUSH_BEHIND, DISPATCH_BEHIND, RESERVE_TIME, TIMER_BEHIND, TIMER_BEHIND_MS, TIMER_DUE,
    TIMER_LATE_MS, TIMING, TIMER_IN, TIMER_OUT, TIMER_SNAPSHOT, TIMER_DELAYS, READY_STATE, BUILD, LOG_MESSAGES, LOG_BYTES,
    FLUSH_LAG, WAITERS, LANE, TURNS, REFUSALS, LOOP_LAG, CONNECTIONS, PARKED, POPPED, DISK_TOTAL, DISK_FREE, DISK_RATIO,
    DISK_WARNING, TAKES, SCRUBBED, SCRUB_FAULTS, SCRUB_ROUND,
)  # fmt: skip
NAMESRV = (BROKERS, ROUTED_TOPICS, EXPIRED, REQUESTS, REFUSALS, LOOP_LAG, CONNECTIONS, TURNS, READY_STATE, BUILD)
ALL = tuple(dict.fromkeys((*BROKER, *NAMESRV, DROPPED)))
