"""What a user may say with `.option(...)`. Spark hands over texts whose keys have lost their case.

Names and meanings are those of Spark's Kafka source where it has them (docs/spark-source.md compares them one by one).
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from rockmq.base.errors import ConfigError, FilterError
from rockmq.config.key import Options
from rockmq.filter import sql as sql92
from rockmq.filter import tags
from rockmq.protocol import topics
from rockmq.spark import kafka_names

GROUP = -3
"""Where the group is; stands alone, never in the JSON form."""
EARLIEST = -2
LATEST = -1
"""Offsets that stand for a queue's ends in the JSON form, with Kafka's numbers."""

Offsets = dict[str, dict[str, dict[int, int]]]
"""topic -> broker -> queue id -> offset; or a time in milliseconds."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]

_ALIASES = {"endpoints": "nameServer", "topics": "topic"}
_STORE = "store:"

O = TypeVar("O", bound=Options)  # noqa: E741


class ConnectionOptions(Options, frozen=True, kw_only=True):
    """How to reach the cluster: for reads and writes.

    `name_server` is a list separated by `;`. `access_key` and `secret_key`, and `security_token` where the servers ask for
    one, sign every request. With `tls` connections are encrypted: `tls_ca` is a file of authorities (PEM; without it the
    system's), `tls_certificate` and `tls_key` are files of this client's own certificate, and `tls_check_hostname` says
    whether servers' certificates have to be for the addresses in routes. Files have to be on driver and executors alike.
    Without keys, and where `tls` isn't given, the environment of each process says these (`rockmq.client.environment`).
    `timeout` is in seconds.
    """

    name_server: str = ""
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    tls: bool | None = None
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_check_hostname: bool = True
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 30.0

    def __repr__(self) -> str:
        """Without secrets, as it may get into logs."""
        return f"{type(self).__name__}({self.name_server!r}, …)"


class ReadOptions(ConnectionOptions, frozen=True, kw_only=True):
    """The options of a batch read, in their declared spelling.

    What: `topic` (a list separated by `,`), `topic_pattern` (a regular expression that a whole name must match) or `queues`
    (JSON: {"topic": {"broker": [queue id]}}); one of them. `read_from` is `broker` or `store:DIR`, the directory of a store
    that needn't have a broker; then `broker_name` is what its broker is called here.

    From where to where: a range holds its start and not its end. Offsets are `earliest`, `latest`, `groupOffsets` (of
    `group`) or JSON: {"topic": {"broker": {"queue id": offset}}}, where -2 and -1 mean earliest and latest; a queue that
    isn't named has the default. Times are milliseconds since the epoch, for all queues or by queue in the same JSON form,
    and mean the first message stored then or later; the strategy says what becomes of a queue without one to start at.
    `startingTimestamp` goes before `startingOffsetsByTimestamp`, and that before `startingOffsets`, as with Kafka.

    How: without `min_partitions` and `max_records_per_partition` there is one task per queue, hence the queue's order.
    `tags` (`*` or `a || b`) and `sql` (SQL92 over properties) select where the messages are. `columns` (a list separated by
    `,`) are those of the table, and only they are decoded; `json_schema` (`id bigint, items array<string>`) adds a column
    `json` of what bodies say.
    """

    read_from: str = "broker"
    broker_name: str = "store"
    topic: str = ""
    topic_pattern: str = ""
    queues: str = ""
    starting_offsets: str = "earliest"
    ending_offsets: str = "latest"
    starting_timestamp: Time | None = None
    ending_timestamp: Time | None = None
    starting_offsets_by_timestamp: str = ""
    ending_offsets_by_timestamp: str = ""
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = "error"
    group: str = ""
    min_partitions: Count = 0
    max_records_per_partition: Count = 0
    pull_batch_size: Annotated[int, Meta(ge=1, le=65_536)] = 1_024
    fail_on_data_loss: bool = True
    tags: str = "*"
    sql: str = ""
    columns: str = ""
    json_schema: str = ""
    push_filters: bool = False
    prefer_slaves: bool = False

    @property
    def store(self) -> Path | None:
        """The store's directory, None to read from brokers."""
        return Path(self.read_from.removeprefix(_STORE)) if self.read_from.startswith(_STORE) else None

    @property
    def topics(self) -> list[str]:
        """The topics that are named; none with a pattern."""
        return names(self.topic) or list(self.named_queues)

    @property
    def named_queues(self) -> dict[str, dict[str, list[int]]]:
        return parse_queues(self.queues) if self.queues else {}

    @property
    def starting(self) -> "int | Offsets":
        return parse_offsets("startingOffsets", self.starting_offsets)

    @property
    def ending(self) -> "int | Offsets":
        return parse_offsets("endingOffsets", self.ending_offsets)

    @property
    def starting_times(self) -> "int | Offsets | None":
        """The time to begin at, of all queues or by queue; None when offsets say where."""
        return _times("startingOffsetsByTimestamp", self.starting_timestamp, self.starting_offsets_by_timestamp)

    @property
    def ending_times(self) -> "int | Offsets | None":
        return _times("endingOffsetsByTimestamp", self.ending_timestamp, self.ending_offsets_by_timestamp)

    @property
    def wanted_tags(self) -> frozenset[str] | None:
        """The tags to read; None for all."""
        return parse_tags(self.tags)

    @property
    def filtered(self) -> bool:
        """Whether messages are left out where they are, so that gaps are no loss."""
        return bool(self.sql) or self.wanted_tags is not None


def parse(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read. Raises ConfigError naming the option and what would be right."""
    options = convert(ReadOptions, given)
    check_read(options)
    return options


def convert(kind: type[O], given: Mapping[str, str]) -> O:
    """Texts as options of a kind, each by itself. Raises ConfigError for one that isn't known, or isn't of its type."""
    declared = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    aliases = {alias.lower(): name for alias, name in _ALIASES.items() if name.lower() in declared}
    values: dict[str, Any] = {}
    for key, text in given.items():
        field = declared.get(aliases.get(key.lower(), key).lower())
        if field is None:
            known = [each.encode_name for each in declared.values()]
            raise ConfigError(f"unknown option {key!r}{_nearest(key, [*known, *_ALIASES])}")
        if field.name in values:
            raise ConfigError(f"option {key!r} says again what {field.encode_name!r} says")
        values[field.name] = _value(field, text.strip())
    return kind(**values)


def check_connection(options: ConnectionOptions) -> None:
    """Raises ConfigError for what can't be together."""
    if not options.name_server:
        raise ConfigError("option 'nameServer' is required: host:port, several separated by ;")
    if bool(options.access_key) != bool(options.secret_key) or (options.security_token and not options.access_key):
        raise ConfigError("options 'accessKey' and 'secretKey' go together, and 'securityToken' with both")
    if not options.tls and (options.tls_ca or options.tls_certificate or options.tls_key or not options.tls_check_hostname):
        raise ConfigError("options 'tlsCa', 'tlsCertificate', 'tlsKey' and 'tlsCheckHostname' need 'tls' to be true")
    if options.tls_key and not options.tls_certificate:
        raise ConfigError("option 'tlsKey' needs 'tlsCertificate'")


def check_read(options: ReadOptions) -> None:
    """Raises ConfigError for what can't be together, and for values that can't be read."""
    _check_source(options)
    _check_selection(options)
    edges = (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
        ("startingOffsetsByTimestamp", options.starting_times),
        ("endingOffsetsByTimestamp", options.ending_times),
    )
    for option, offsets in edges:
        if offsets == GROUP and not options.group:
            raise ConfigError(f"option {option!r} is groupOffsets, which needs option 'group'")
        for name in offsets if isinstance(offsets, dict) and not options.topic_pattern else ():
            if name not in options.topics:
                raise ConfigError(f"option {option!r} names topic {name!r}, which isn't read")
    if options.group and (fault := topics.group_fault(options.group)):
        raise ConfigError(f"option 'group': {fault}")
    selected = options.wanted_tags
    if options.sql:
        if selected is not None:
            raise ConfigError("options 'tags' and 'sql' exclude each other: brokers filter by one of them")
        try:
            sql92.program(options.sql)
        except FilterError as error:
            raise ConfigError(f"option 'sql': {error}") from None


def _check_source(options: ReadOptions) -> None:
    if options.store is None:
        if options.read_from != "broker":
            raise ConfigError(f"option 'readFrom' is {options.read_from!r}: expected broker or store:DIR")
        check_connection(options)
        return
    if options.store == Path():
        raise ConfigError("option 'readFrom' names no directory: expected broker or store:DIR")
    for option, given in (("nameServer", options.name_server), ("preferSlaves", options.prefer_slaves)):
        if given:
            raise ConfigError(f"option {option!r} is for brokers, and 'readFrom' is {options.read_from!r}")


def _check_selection(options: ReadOptions) -> None:
    given = [name for name in ("topic", "topic_pattern", "queues") if getattr(options, name)]
    if not given:
        raise ConfigError("option 'topic' is required, or 'topicPattern' or 'queues' instead of it")
    if len(given) > 1:
        raise ConfigError("options 'topic', 'topicPattern' and 'queues' exclude each other")
    if options.topic_pattern:
        try:
            re.compile(options.topic_pattern)
        except re.error as error:
            raise ConfigError(
                f"option 'topicPattern' is {options.topic_pattern!r}, no regular expression: {error}"
            ) from None
        return
    if not options.topics:
        raise ConfigError(f"option {given[0]!r} names no topic")
    for name in options.topics:
        if (fault := topics.topic_fault(name)) is not None:
            raise ConfigError(f"option {given[0]!r}: {fault}")
        if topics.is_light(name):
            raise ConfigError(f"option {given[0]!r}: {name} is a light queue, whose messages have another topic's offsets")


def names(text: str) -> list[str]:
    """The words of a list separated by commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_offsets(option: str, text: str) -> "int | Offsets":
    """EARLIEST, LATEST, GROUP, or what the JSON says. Raises ConfigError."""
    named = {"earliest": EARLIEST, "latest": LATEST, "groupoffsets": GROUP}.get(text.lower())
    if named is not None:
        return named
    return _by_queue(
        option, text, EARLIEST, 'earliest, latest or groupOffsets, or {"topic": {"broker": {"queue id": offset}}}'
    )


def parse_queues(text: str) -> dict[str, dict[str, list[int]]]:
    """topic -> broker -> queue ids. Raises ConfigError."""
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, list[Count]]])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f'option \'queues\': expected {{"topic": {{"broker": [queue id]}}}}; {error}') from None


def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags in a tag expression (`a || b`); None when it takes all. Raises ConfigError."""
    found = frozenset(tags.split(expression))
    if tags.ALL in found:
        raise ConfigError(f"option 'tags': {expression!r} is neither * nor tags separated by ||")
    return found or None


def _times(option: str, everywhere: int | None, by_queue: str) -> "int | Offsets | None":
    if everywhere is not None or not by_queue:
        return everywhere
    return _by_queue(option, by_queue, 0, '{"topic": {"broker": {"queue id": milliseconds since the epoch}}}')


def _by_queue(option: str, text: str, least: int, wanted: str) -> Offsets:
    try:
        numbers: Offsets = msgspec.json.decode(text, type=dict[str, dict[str, dict[int, int]]])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"option {option!r}: expected {wanted}; {error}") from None
    for topic, brokers in numbers.items():
        for broker, queues in brokers.items():
            for queue_id, number in queues.items():
                if number < least or queue_id < 0:
                    raise ConfigError(f"option {option!r}: {topic}/{broker}/{queue_id} can't be at {number}")
    return numbers


def _value(field: msgspec.structs.FieldInfo, text: str) -> object:
    try:
        return msgspec.convert(text, field.type, strict=False)
    except msgspec.ValidationError as error:
        wanted = _words(field.type) or str(error).replace("`", "").replace(" | null", "")
        raise ConfigError(f"option {field.encode_name!r} is {text!r}: {wanted}") from None


def _words(kind: Any) -> str | None:
    """What is allowed, where that is a few words."""
    if kind in (bool, bool | None):
        return "expected true or false"
    return f"expected {' or '.join(get_args(kind))}" if get_origin(kind) is Literal else None


def _nearest(key: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    if (kafka := kafka_names.hint(key, by_lower.values())) is not None:
        return f"; {kafka}"
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; the options are {', '.join(by_lower.values())}"
