"""The broker's options (BrokerConfig.java, MessageStoreConfig.java, NettyServerConfig.java; store spec, section 8).

Defaults are Apache's unless `apache` says what that is; a comment says why.
"""

import ipaddress
import os
import re
import socket
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import field
from msgspec.structs import force_setattr

from rockmq.base import address
from rockmq.base.errors import ConfigError
from rockmq.config import inert
from rockmq.config.access import Access
from rockmq.config.inert import Foreign
from rockmq.config.key import Key, Options, Role, declare
from rockmq.config.logs import Logs
from rockmq.config.metrics import BrokerMetricsOptions
from rockmq.config.tls import Tls

INT_MAX = 2**31 - 1
QUEUE_ENTRY_SIZE = 20
BATCH_QUEUE_UNIT_SIZE = 46
TIMER_WINDOW_MAX = 7 * 86_400 - 60
"""Steps: half of the wheel, less some that stay blank."""
REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000

_ILLEGAL = re.compile(r"[\s:;,@#/\"'\\]")


DELAY_LEVELS_MAX = 1000
DELAY_MS_MAX = 100 * 365 * 86_400_000
_DELAY = re.compile(r"([0-9]{1,12})([smhd])")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class BrokerRole(StrEnum):
    """Whom a broker's group consists of."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class Flush(StrEnum):
    """When a send is acknowledged."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


def default_broker_name() -> str:
    """The host name, with what no topic name may hold made `_`: the broker's name is also the name of a topic."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", socket.gethostname()) or "DEFAULT_BROKER"


class Identity(Options, frozen=True, kw_only=True):
    broker_cluster_name: Annotated[str, Key("Name of the cluster this broker belongs to.")] = "DefaultCluster"
    broker_name: Annotated[
        str, Key("Name of this broker; master and slaves of a group share it.", default="the host's name")
    ] = field(default_factory=default_broker_name)
    broker_id: Annotated[int, Key("0 is the master of its group.", ge=0, le=2**63 - 1)] = 0
    broker_role: Annotated[
        BrokerRole, Key("SYNC_MASTER starts too, and says that there is no slave to wait for; SLAVE isn't built yet.")
    ] = BrokerRole.ASYNC_MASTER
    # Clients ask for it: with a SYNC_MASTER that doesn't tell it they would expect a copy on a slave, as in 4.x.
    in_sync_replicas: Annotated[
        int,
        Key("Brokers that have a message when its send is acknowledged; more than one isn't built yet.", ge=0, le=INT_MAX),
    ] = 1
    broker_ip1: Annotated[str | None, Key("Host or address that clients are told.", default="found out")] = field(
        default=None, name="brokerIP1"
    )
    broker_ip2: Annotated[str | None, Key("Host or address that slaves are told.", default="`brokerIP1`")] = field(
        default=None, name="brokerIP2"
    )
    namesrv_addr: Annotated[str, Key("Name servers, host:port, separated by `;`.", default="`$NAMESRV_ADDR`")] = field(
        default_factory=lambda: os.environ.get("NAMESRV_ADDR", "")  # as in Java and in its container images
    )
    region_id: Annotated[str, Key("Region that send results carry.")] = "DefaultRegion"
    trace_on: Annotated[bool, Key("Whether send results ask clients to trace.")] = True

    def __post_init__(self) -> None:
        for key, name in (("brokerClusterName", self.broker_cluster_name), ("brokerName", self.broker_name)):
            if not name or len(name) > 127 or _ILLEGAL.search(name):
                raise ConfigError(
                    f"{key}={name}: expected 1 to 127 characters, none of them a blank, quote or one of : ; , @ # / \\"
                )
        if self.broker_role is BrokerRole.SLAVE:
            raise ConfigError(f"brokerRole=SLAVE: {inert.REPLICATION}")
        if self.in_sync_replicas > 1:
            raise ConfigError(
                f"inSyncReplicas={self.in_sync_replicas}: a send is acknowledged when it is on this broker's disk; "
                f"waiting for others is {inert.REPLICATION}"
            )
        if self.broker_id != 0:
            raise ConfigError(f"brokerId={self.broker_id}: only 0, a master's; {inert.REPLICATION}")
        for key, host in (("brokerIP1", self.broker_ip1), ("brokerIP2", self.broker_ip2)):
            if host is not None:
                _check_host(key, host)
        for each in address.split_list(self.namesrv_addr):
            try:
                address.split(each)
            except ConfigError as error:
                raise ConfigError(f"namesrvAddr={self.namesrv_addr}: {error}") from None


class Network(Options, frozen=True, kw_only=True):
    listen_port: Annotated[int, Key("Port for clients; two below it is the fast port.", ge=0, le=65535)] = 10911
    bind_address: Annotated[str, Key("Local address to listen on.")] = "0.0.0.0"
    # Beyond Apache: behind a port mapping the port clients must use isn't the one that is bound.
    advertised_port: (
        Annotated[int, Key("Port that clients are told.", default="`listenPort`", apache=None, ge=1, le=65535)] | None
    ) = None
    server_channel_max_idle_time_seconds: Annotated[
        int, Key("A connection silent for so long is closed.", unit="seconds", ge=1, le=INT_MAX)
    ] = 120
    server_socket_backlog: Annotated[int, Key("Connections waiting to be accepted.", ge=1, le=65535)] = 1024
    client_send_quota: Annotated[
        int,
        Key(
            "What a connection may send a second; over it nothing is read from it. 0: no bound.",
            unit="bytes",
            apache=None,
            ge=0,
        ),
    ] = 0
    connections_max: Annotated[
        int, Key("Open connections; over it new ones are refused.", apache=None, ge=1, le=INT_MAX)
    ] = 50_000


class Registration(Options, frozen=True, kw_only=True):
    register_name_server_period: Annotated[
        int, Key("Time between registrations, made 10000 to 60000.", unit="ms", ge=0, le=INT_MAX)
    ] = 30_000
    register_broker_timeout_mills: Annotated[int, Key("Wait for a name server's answer.", unit="ms", ge=1, le=INT_MAX)] = (
        24_000
    )
    compressed_register: Annotated[bool, Key("Compress registrations.")] = False

    def __post_init__(self) -> None:
        period = max(REGISTER_PERIOD_MS_MIN, min(self.register_name_server_period, REGISTER_PERIOD_MS_MAX))
        force_setattr(self, "register_name_server_period", period)


class Topics(Options, frozen=True, kw_only=True):
    auto_create_topic_enable: Annotated[bool, Key("Create a topic when it is first sent to.", reload=True)] = True
    auto_create_subscription_group: Annotated[bool, Key("Create a group when it first consumes.", reload=True)] = True
    default_topic_queue_nums: Annotated[int, Key("Queues of a topic created so.", ge=1, le=65536)] = 8
    broker_permission: Annotated[int, Key("What this broker allows: 4 read, 2 write, 6 both.", reload=True, ge=0, le=7)] = 6
    cluster_topic_enable: Annotated[bool, Key("Make the topic named like the cluster usable.")] = True
    broker_topic_enable: Annotated[bool, Key("Make the topic named like the broker usable.")] = True
    trace_topic_enable: Annotated[bool, Key("Create the trace topic.")] = False
    msg_trace_topic_name: Annotated[str, Key("Name of the trace topic.")] = "RMQ_SYS_TRACE_TOPIC"
    store_reply_message_enable: Annotated[bool, Key("Store replies to requests too, in the reply topic.")] = True


class Consumers(Options, frozen=True, kw_only=True):
    flush_consumer_offset_interval: Annotated[
        int, Key("Time between saves of consumer offsets.", unit="ms", ge=1, le=INT_MAX)
    ] = 5_000
    long_polling_enable: Annotated[bool, Key("Let a pull wait for messages as long as the client asks.", reload=True)] = True
    short_polling_time_mills: Annotated[
        int, Key("How long a pull waits when long polling is off.", reload=True, unit="ms", ge=0, le=INT_MAX)
    ] = 1_000
    notify_consumer_ids_changed_enable: Annotated[
        bool, Key("Tell a group's members when one comes or goes.", reload=True)
    ] = True
    channel_expired_timeout: Annotated[
        int, Key("A client without heartbeat for so long is forgotten.", unit="ms", ge=1, le=2**63 - 1)
    ] = 120_000
    suspended_pulls_max: Annotated[int, Key("Pulls that may wait at once.", apache=None, ge=0, le=INT_MAX)] = 100_000
    slave_read_enable: Annotated[
        bool,
        Key(
            "Suggest to clients whether to pull from the master or from a slave, as their group is configured.", reload=True
        ),
    ] = False
    disable_consume_if_consumer_read_slowly: Annotated[
        bool, Key("Switch consumeEnable off for a group that is too far behind, until an operator switches it on.")
    ] = False
    consumer_fallbehind_threshold: Annotated[
        int, Key("How far behind the log's end a group is too far behind.", unit="bytes", ge=0, le=2**63 - 1)
    ] = 16 << 30
    # Apache's 32 is the default of its clients too, and silently cuts down those that ask for more.
    max_transfer_count_on_message_in_memory: Annotated[
        int, Key("Messages in one pull.", reload=True, apache="32", ge=1, le=65536)
    ] = 1024
    max_transfer_bytes_on_message_in_memory: Annotated[
        int, Key("Bytes in one pull when the client states none.", reload=True, unit="bytes", ge=1, le=16_000_000)
    ] = 262_144


class RequestModes(StrEnum):
    """How clients that let the broker share out queues get their messages."""

    PULL = "PULL"
    POP = "POP"


class Pop(Options, frozen=True, kw_only=True):
    # In Apache's broker only if enablePopMessageThreshold says so; without a bound a consumer that acknowledges nothing
    # takes the broker's memory.
    pop_inflight_message_threshold: Annotated[
        int, Key("Messages of a queue that a group may have popped and not acknowledged.", ge=1, le=1_000_000)
    ] = 10_000
    pop_from_retry_probability: Annotated[
        int, Key("How often a pop looks for messages to be retried first.", unit="%", ge=0, le=100)
    ] = 20
    default_message_request_mode: Annotated[
        RequestModes, Key("How groups get messages that nobody set a mode for.", reload=True)
    ] = RequestModes.PULL
    default_pop_share_queue_num: Annotated[
        int, Key("Neighbours a client pops together with; below 1: all.", reload=True, ge=-1, le=INT_MAX)
    ] = -1
    server_load_balancer_enable: Annotated[bool, Key("Share queues out among clients that ask for their share.")] = True


class Filters(Options, frozen=True, kw_only=True):
    enable_property_filter: Annotated[bool, Key("Let consumers filter messages by SQL92 expressions.")] = False
    filter_support_retry: Annotated[
        bool, Key("Filter a retry topic that is subscribed to by SQL92 by the expressions for the topics of origin.")
    ] = False
    filter_data_clean_time_span: Annotated[
        int, Key("Expressions of groups without members are forgotten after so long.", unit="ms", ge=0, le=2**63 - 1)
    ] = 86_400_000
    expect_consumer_num_use_filter: Annotated[
        int, Key("Groups that filter a topic, for which the bloom bits are dimensioned.", ge=1, le=10_000)
    ] = 32
    max_error_rate_of_bloom_filter: Annotated[
        int, Key("Messages that bloom bits let through wrongly.", unit="%", ge=1, le=99)
    ] = 20
    python_filters: Annotated[
        str, Key("Functions that consumers may filter by, `name=module:function`, separated by `;`.", apache=None)
    ] = ""

    def __post_init__(self) -> None:
        if self.python_filters and not self.enable_property_filter:
            raise ConfigError(f"pythonFilters={self.python_filters}: needs enablePropertyFilter=true")


class Hooks(Options, frozen=True, kw_only=True):
    """Functions of the operator's own. With a send hook each send is handled in Python, and none by the core alone."""

    send_hooks: Annotated[
        str, Key("Functions that are told of each send, `name=module:function`, separated by `;`.", apache=None)
    ] = ""
    consume_hooks: Annotated[str, Key("The same for messages that consumers get and give back.", apache=None)] = ""


class Store(Options, frozen=True, kw_only=True):
    store_path_root_dir: Annotated[str, Key("Directory of the store.", path=True)] = field(
        default_factory=lambda: os.path.join(os.path.expanduser("~"), "store")
    )
    store_path_commit_log: Annotated[
        str | None,
        Key("Directory of the log, or several, separated by `,`.", path=True, default="`commitlog` in the store"),
    ] = None
    read_only_commit_log_store_paths: Annotated[
        str | None, Key("Directories, separated by `,`, whose log files are used, and that get no new ones.", path=True)
    ] = None
    mapped_file_size_commit_log: Annotated[int, Key("Size of a log file.", unit="bytes", ge=1024, le=INT_MAX)] = (
        1_073_741_824
    )
    mapped_file_size_consume_queue: Annotated[
        int, Key("Size of a queue file, rounded up to whole entries of 20.", unit="bytes", ge=1, le=INT_MAX - 19)
    ] = 6_000_000
    mapper_file_size_batch_consume_queue: Annotated[
        int, Key("Size of a file of a batch queue, a multiple of 46.", unit="bytes", ge=46, le=INT_MAX)
    ] = 13_800_000
    # Apache's default, ASYNC_FLUSH, acknowledges messages that a power cut loses. Ours doesn't.
    flush_disk_type: Annotated[Flush, Key("When a send is acknowledged.", apache="ASYNC_FLUSH")] = Flush.SYNC_FLUSH
    sync_flush_timeout: Annotated[int, Key("Wait for the disk at a send.", unit="ms", ge=1, le=INT_MAX)] = 5_000
    flush_interval_commit_log: Annotated[
        int, Key("Time between flushes of the log with ASYNC_FLUSH.", unit="ms", ge=1, le=INT_MAX)
    ] = 500
    flush_interval_consume_queue: Annotated[int, Key("Time between writes of the queues.", unit="ms", ge=1, le=INT_MAX)] = (
        1_000
    )
    flush_consume_queue_thorough_interval: Annotated[
        int, Key("Time between writes that are forced to disk.", unit="ms", ge=1, le=INT_MAX)
    ] = 60_000
    # Bounded by the frame a message travels in.
    max_message_size: Annotated[int, Key("Largest message body.", unit="bytes", ge=1, le=16_777_216)] = 4_194_304
    check_crc_on_recover: Annotated[bool, Key("Check bodies when the log is read after a crash.")] = field(
        default=True, name="checkCRCOnRecover"
    )
    enabled_append_prop_crc: Annotated[bool, Key("Store a CRC of the whole record with each message.")] = field(
        default=False, name="enabledAppendPropCRC"
    )
    force_verify_prop_crc: Annotated[
        bool, Key("Check that CRC, not the body's, when the log is read after a crash; without it no message is whole.")
    ] = field(default=False, name="forceVerifyPropCRC")

    message_index_enable: Annotated[bool, Key("Keep the index that messages are found by key in.")] = True
    max_hash_slot_num: Annotated[int, Key("Hash slots of an index file.", ge=1, le=INT_MAX)] = 5_000_000
    max_index_num: Annotated[int, Key("Entries of an index file; one isn't used.", ge=2, le=INT_MAX)] = 20_000_000
    max_msgs_num_batch: Annotated[int, Key("Messages that one query finds.", reload=True, ge=1, le=65536)] = 64
    default_query_max_num: Annotated[int, Key("The same for a unique key.", reload=True, ge=1, le=65536)] = 32
    access_message_in_memory_max_ratio: Annotated[
        int, Key("How much of the machine's memory the end of the log is taken to have there.", unit="%", ge=0, le=100)
    ] = 40
    # Apache's 8 and 64 KiB keep reads of the disk from holding up its threads. Who catches up needs 128 requests then
    # where one does here, and read-ahead and advice keep the disk ahead of them.
    max_transfer_count_on_message_in_disk: Annotated[
        int, Key("Messages in one answer from further behind.", reload=True, apache="8", ge=1, le=65536)
    ] = 1024
    max_transfer_bytes_on_message_in_disk: Annotated[
        int, Key("Bytes in one answer from there.", reload=True, apache="65536", unit="bytes", ge=1, le=16_000_000)
    ] = 8 << 20
    data_read_ahead_enable: Annotated[bool, Key("Let the kernel read the log ahead of who reads it.", reload=True)] = True
    warm_maped_file_enable: Annotated[bool, Key("Bring the next log file into memory before it is used.", reload=True)] = (
        False
    )
    # Apache has no key for this: there it is a part of warming.
    lock_log_in_memory: Annotated[
        bool, Key("Keep the log file in use and the next one from being swapped out.", apache=None)
    ] = False
    # Apache's has two keys: with one of them alone it writes offsets that nothing stands at.
    enable_lmq: Annotated[bool, Key("Let a message name light queues (`%LMQ%…`) to be in too.")] = False
    enable_multi_dispatch: Annotated[bool, Key("Belongs to enableLmq: both or neither.")] = False
    max_lmq_consume_queue_num: Annotated[int, Key("Light queues that there may be.", ge=1)] = 20_000
    message_delay_level: Annotated[
        str, Key("What each delay level means, the first one first: numbers with s, m, h or d, separated by blanks.")
    ] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flush_delay_offset_interval: Annotated[
        int, Key("Time between saves of how far delay levels are delivered.", unit="ms", ge=1, le=INT_MAX)
    ] = 10_000
    scrub_bytes_per_second: Annotated[
        int, Key("How fast old log files are read again and checked; 0: not.", unit="bytes", apache=None, ge=0, le=INT_MAX)
    ] = 8 << 20
    transient_store_pool_enable: Annotated[
        bool, Key("Accepted, but not needed here, which the start says (docs/adr/0005).")
    ] = False

    def __post_init__(self) -> None:
        entries = -(-self.mapped_file_size_consume_queue // QUEUE_ENTRY_SIZE)
        force_setattr(self, "mapped_file_size_consume_queue", entries * QUEUE_ENTRY_SIZE)
        if self.mapper_file_size_batch_consume_queue % BATCH_QUEUE_UNIT_SIZE:
            size = self.mapper_file_size_batch_consume_queue
            raise ConfigError(f"mapperFileSizeBatchConsumeQueue={size}: expected a multiple of {BATCH_QUEUE_UNIT_SIZE}")
        if not self.store_path_root_dir:
            raise ConfigError("storePathRootDir is empty: expected a directory")
        if not self.log_directories:
            raise ConfigError(
                f"readOnlyCommitLogStorePaths={self.read_only_commit_log_store_paths}: the log's next file has no place, "
                "expected storePathCommitLog to name another directory"
            )
        if self.enable_lmq != self.enable_multi_dispatch:
            alone = "enableLmq" if self.enable_lmq else "enableMultiDispatch"
            raise ConfigError(f"{alone}=true: light queues need both enableLmq and enableMultiDispatch")
        _delays(self.message_delay_level)
        index_size = 40 + 4 * self.max_hash_slot_num + 20 * self.max_index_num
        if index_size > INT_MAX:
            raise ConfigError(
                f"maxHashSlotNum={self.max_hash_slot_num} and maxIndexNum={self.max_index_num} make index files of "
                f"{index_size} bytes; the bound is {INT_MAX}"
            )

    @property
    def light_queues(self) -> bool:
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def delay_levels(self) -> list[int]:
        """Milliseconds of each delay level, the first one's first."""
        return _delays(self.message_delay_level)

    @property
    def log_directories(self) -> list[str]:
        """Where new files of the log are made, in the order in which they take turns."""
        read_only = {each.rstrip("/") for each in self.read_only_log_directories}
        listed = _directories(self.store_path_commit_log) or [os.path.join(self.store_path_root_dir, "commitlog")]
        return [each for each in listed if each.rstrip("/") not in read_only]

    @property
    def read_only_log_directories(self) -> list[str]:
        return _directories(self.read_only_commit_log_store_paths)


def _delays(text: str) -> list[int]:
    """Milliseconds of each level in `messageDelayLevel` (ScheduleMessageService.parseDelayLevel). Raises ConfigError."""
    found = []
    for word in text.split():
        match = _DELAY.fullmatch(word)
        delay = int(match[1]) * _UNIT_MS[match[2]] if match else -1
        if not 0 <= delay <= DELAY_MS_MAX:
            wanted = "a whole number with s, m, h or d behind it, at most 100 years"
            raise ConfigError(f"messageDelayLevel={text}: {word!r} is not {wanted}")
        found.append(delay)
    if not 0 < len(found) <= DELAY_LEVELS_MAX:
        raise ConfigError(f"messageDelayLevel={text}: expected 1 to {DELAY_LEVELS_MAX} levels, not {len(found)}")
    return found


class Retention(Options, frozen=True, kw_only=True):
    """When the log's oldest file is deleted, and when the disk is so full that no messages are taken.

    Apache makes the warning ratio at most 90 and the forced one at most 85, whatever the file says. Here they are what
    it says.
    """

    # Not while running: messages that wait longer for their time are stored anew by it.
    file_reserved_time: Annotated[int, Key("Age at which a log file expires.", unit="hours", ge=0, le=INT_MAX)] = 72
    delete_when: Annotated[
        str, Key("Hours of the day, separated by `;`, in which expired files are deleted.", reload=True)
    ] = "04"
    retention_bytes: (
        Annotated[
            int,
            Key(
                "Most bytes the log keeps, at any hour.",
                unit="bytes",
                reload=True,
                default="no bound",
                apache=None,
                ge=1,
                le=2**63 - 1,
            ),
        ]
        | None
    ) = None
    retention_bytes_per_topic: (
        Annotated[
            int,
            Key(
                "Most bytes of a topic, file by file of the log.",
                unit="bytes",
                default="no bound",
                apache=None,
                ge=1,
                le=2**63 - 1,
            ),
        ]
        | None
    ) = None
    retention_groups: Annotated[
        str,
        Key("Groups, separated by `;`, whose messages aren't deleted before they have got them.", apache=None),
    ] = ""
    retention_groups_bytes: (
        Annotated[
            int,
            Key(
                "Size of the log over which nothing is held for them.",
                unit="bytes",
                default="no bound",
                apache=None,
                ge=1,
                le=2**63 - 1,
            ),
        ]
        | None
    ) = None
    retention_groups_disk_ratio: Annotated[
        int,
        Key(
            "Use of the disk over which nothing is held for them; 100: all is, and a full disk refuses messages.",
            unit="%",
            apache=None,
            ge=1,
            le=100,
        ),
    ] = 80
    disk_max_used_space_ratio: Annotated[
        int, Key("Use of the disk over which expired files are deleted at any hour.", reload=True, unit="%", ge=1, le=100)
    ] = 75
    disk_space_clean_forcibly_ratio: Annotated[
        int,
        Key(
            "Use of the disk over which the oldest files are deleted though they haven't expired.",
            reload=True,
            unit="%",
            ge=1,
            le=100,
        ),
    ] = 85
    disk_space_warning_level_ratio: Annotated[
        int, Key("Use of the disk over which no messages are taken.", reload=True, unit="%", ge=1, le=100)
    ] = 90
    clean_file_forcibly_enable: Annotated[
        bool, Key("Whether a full disk may cost files that haven't expired.", reload=True)
    ] = True
    clean_resource_interval: Annotated[int, Key("Time between looks for files to delete.", unit="ms", ge=10, le=INT_MAX)] = (
        10_000
    )
    delete_file_batch_max: Annotated[int, Key("Log files deleted at one such look.", reload=True, ge=1, le=INT_MAX)] = 10
    delete_commit_log_files_interval: Annotated[
        int, Key("Pause between two of them.", reload=True, unit="ms", ge=0, le=INT_MAX)
    ] = 100

    def __post_init__(self) -> None:
        if not self.delete_hours:
            raise ConfigError("deleteWhen is empty: expected hours 0 to 23, separated by `;`")
        if self.held_groups and self.retention_bytes_per_topic is not None:
            raise ConfigError(
                f"retentionGroups={self.retention_groups}: can't be with retentionBytesPerTopic, which hides messages from "
                "groups before they are deleted"
            )

    @property
    def held_groups(self) -> list[str]:
        """`retentionGroups` as names."""
        return [each.strip() for each in self.retention_groups.split(";") if each.strip()]

    @property
    def delete_hours(self) -> frozenset[int]:
        """`deleteWhen` as numbers."""
        hours = [each.strip() for each in self.delete_when.split(";") if each.strip()]
        for each in hours:
            if not (each.isascii() and each.isdigit() and len(each) <= 2 and int(each) < 24):
                raise ConfigError(f"deleteWhen={self.delete_when}: {each!r} is no hour; expected 0 to 23, separated by `;`")
        return frozenset(map(int, hours))


class Timers(Options, frozen=True, kw_only=True):
    """Messages that are delivered at a time (TIMER_DELIVER_MS and its like), and those that take one back."""

    timer_wheel_enable: Annotated[bool, Key("Take messages that are to be delivered at a time.")] = True
    timer_precision_ms: Annotated[int, Key("Step of that time: 100, 200, 500 or 1000.", unit="ms")] = 1_000
    timer_max_delay_sec: Annotated[
        int, Key("How far ahead that time may be; a year at most.", reload=True, unit="seconds", ge=0, le=366 * 86_400)
    ] = 259_200
    timer_roll_window_slot: Annotated[
        int, Key("Steps after which a message that waits longer is stored anew.", ge=0, le=INT_MAX)
    ] = 172_800
    timer_flush_interval_ms: Annotated[
        int, Key("Time between saves of how far timers are.", unit="ms", ge=1, le=INT_MAX)
    ] = 1_000
    timer_stop_enqueue: Annotated[bool, Key("Leave new messages in the queue of timers.", reload=True)] = False
    timer_stop_dequeue: Annotated[bool, Key("Deliver none that is due.", reload=True)] = False
    timer_congest_num_each_slot: Annotated[
        int,
        Key(
            "Messages of one step, over which some, and over twice as many all, are refused.", reload=True, ge=0, le=INT_MAX
        ),
    ] = INT_MAX
    mapped_file_size_timer_log: Annotated[int, Key("Size of a file of the timer log.", unit="bytes", ge=128, le=INT_MAX)] = (
        104_857_600
    )
    recall_message_enable: Annotated[bool, Key("Let producers take messages back before they are delivered.")] = False
    append_topic_for_timer_delete_key: Annotated[
        bool, Key("Let a message that takes another back name it as Apache did before 5.5, with its topic.")
    ] = False
    allow_recall_when_broker_not_writeable: Annotated[bool, Key("Also if brokerPermission forbids to write.")] = True

    def __post_init__(self) -> None:
        if self.timer_precision_ms not in (100, 200, 500, 1000):
            raise ConfigError(f"timerPrecisionMs={self.timer_precision_ms}: expected 100, 200, 500 or 1000")
        if not 2 <= self.timer_roll_window_slot <= TIMER_WINDOW_MAX:
            force_setattr(self, "timer_roll_window_slot", TIMER_WINDOW_MAX)  # as Apache does


class Transactions(Options, frozen=True, kw_only=True):
    reject_transaction_message: Annotated[bool, Key("Refuse transactional messages.")] = False
    transaction_time_out: Annotated[
        int, Key("Age at which the producer of an undecided message is asked.", unit="ms", ge=0, le=2**63 - 1)
    ] = 6_000
    transaction_check_interval: Annotated[int, Key("Time between such questions.", unit="ms", ge=1, le=2**63 - 1)] = 30_000
    transaction_check_max: Annotated[
        int, Key("Questions after which a message is given up.", reload=True, ge=1, le=INT_MAX)
    ] = 15
    transaction_op_msg_max_size: Annotated[
        int, Key("Size at which the offsets of finished messages are written.", unit="bytes", ge=1, le=1 << 20)
    ] = 4_096
    transaction_op_batch_interval: Annotated[
        int, Key("Time after which they are written in any case.", unit="ms", ge=1, le=2**63 - 1)
    ] = 3_000


@declare
class BrokerOptions(Role, frozen=True, kw_only=True):
    foreign: ClassVar[Foreign] = inert.BROKER

    identity: Identity = field(default_factory=Identity)
    network: Network = field(default_factory=Network)
    registration: Registration = field(default_factory=Registration)
    topics: Topics = field(default_factory=Topics)
    consumers: Consumers = field(default_factory=Consumers)
    pop: Pop = field(default_factory=Pop)
    filters: Filters = field(default_factory=Filters)
    hooks: Hooks = field(default_factory=Hooks)
    store: Store = field(default_factory=Store)
    retention: Retention = field(default_factory=Retention)
    timers: Timers = field(default_factory=Timers)
    transactions: Transactions = field(default_factory=Transactions)
    access: Access = field(default_factory=Access)
    metrics: BrokerMetricsOptions = field(default_factory=BrokerMetricsOptions)
    logs: Logs = field(default_factory=Logs)
    tls: Tls = field(default_factory=Tls)


def _directories(text: str | None) -> list[str]:
    """Sorted as they are written, which is Java's order too."""
    return sorted({os.path.expanduser(each.strip()) for each in (text or "").split(",") if each.strip()})


def _check_host(key: str, host: str) -> None:
    bare = host.removeprefix("[").removesuffix("]")
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        if _ILLEGAL.search(host):
            raise ConfigError(f"{key}={host}: expected a host name or an IP address, without a port") from None
        return
    if ip.is_unspecified:
        raise ConfigError(f"{key}={host}: clients are told this address, so it must be one they can reach")
