"""What a user may say with `.option(...)`. Spark hands over texts whose keys have lost their case."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rockmq.base.errors import ConfigError
from rockmq.config.key import Options
from rockmq.filter import tags
from rockmq.protocol import topics

EARLIEST = -2
LATEST = -1
"""Offsets that stand for a queue's ends in the JSON form, with Kafka's numbers."""

Offsets = dict[str, dict[str, dict[int, int]]]
"""topic -> broker -> queue id -> offset."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]

_ALIASES = {"endpoints": "nameServer", "topics": "topic"}


class ReadOptions(Options, frozen=True, kw_only=True):
    """The options of a batch read, in their declared spelling.

    `name_server` is a list separated by `;`, `topic` one separated by `,`. The offsets are `earliest`, `latest` or JSON:
    {"topic": {"broker": {"queue id": offset}}}, where -2 and -1 mean earliest and latest; a queue that isn't named has
    the default. A range holds its start and not its end. Without `min_partitions` and `max_records_per_partition` there
    is one task per queue, hence the queue's order. `tags` is `*` or `a || b`. `timeout` is in seconds.
    """

    name_server: str
    topic: str
    starting_offsets: str = "earliest"
    ending_offsets: str = "latest"
    min_partitions: Count = 0
    max_records_per_partition: Count = 0
    pull_batch_size: Annotated[int, Meta(ge=1, le=65_536)] = 1_024
    fail_on_data_loss: bool = True
    tags: str = "*"
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 30.0

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(name.strip() for name in self.topic.split(",") if name.strip()))

    @property
    def starting(self) -> "int | Offsets":
        return parse_offsets("startingOffsets", self.starting_offsets)

    @property
    def ending(self) -> "int | Offsets":
        return parse_offsets("endingOffsets", self.ending_offsets)

    @property
    def wanted_tags(self) -> frozenset[str] | None:
        """The tags to read; None for all."""
        return parse_tags(self.tags)


def parse(given: Mapping[str, str]) -> ReadOptions:
    """The options a user gave. Raises ConfigError naming the option and what would be right."""
    names = {name.lower(): name for name in _declared()}
    values: dict[str, str] = {}
    for key, text in given.items():
        name = names.get(key.lower()) or _alias(key)
        if name is None:
            raise ConfigError(f"unknown option {key!r}{_nearest(key, [*names.values(), *_ALIASES])}")
        if name in values:
            raise ConfigError(f"option {key!r} says again what {name!r} says")
        values[name] = text.strip()
    for name in ("nameServer", "topic"):
        if not values.get(name):
            raise ConfigError(f"option {name!r} is required")
    options = _convert(values)
    _check(options)
    return options


def parse_offsets(option: str, text: str) -> "int | Offsets":
    """EARLIEST, LATEST, or what the JSON says. Raises ConfigError."""
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if named is not None:
        return named
    try:
        offsets: Offsets = msgspec.json.decode(text, type=dict[str, dict[str, dict[int, int]]])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        wanted = 'expected earliest, latest or {"topic": {"broker": {"queue id": offset}}}'
        raise ConfigError(f"option {option!r}: {wanted}; {error}") from None
    for topic, brokers in offsets.items():
        for broker, queues in brokers.items():
            for queue_id, offset in queues.items():
                if offset < EARLIEST or queue_id < 0:
                    raise ConfigError(f"option {option!r}: {topic}/{broker}/{queue_id} can't be at {offset}")
    return offsets


def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags in a tag expression (`a || b`); None when it takes all. Raises ConfigError."""
    found = frozenset(tags.split(expression))
    if tags.ALL in found:
        raise ConfigError(f"option 'tags': {expression!r} is neither * nor tags separated by ||")
    return found or None


def _declared() -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(ReadOptions)]


def _alias(key: str) -> str | None:
    return {alias.lower(): name for alias, name in _ALIASES.items()}.get(key.lower())


def _convert(values: dict[str, str]) -> ReadOptions:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(ReadOptions):
        if field.encode_name in values:
            text = values[field.encode_name]
            try:
                fields[field.name] = msgspec.convert(text, field.type, strict=False)
            except msgspec.ValidationError as error:
                wanted = str(error).replace("`", "")
                raise ConfigError(f"option {field.encode_name!r} is {text!r}: {wanted}") from None
    return ReadOptions(**fields)


def _check(options: ReadOptions) -> None:
    if not options.topics:
        raise ConfigError("option 'topic' names no topic")
    for name in options.topics:
        fault = topics.topic_fault(name)
        if fault is not None:
            raise ConfigError(f"option 'topic': {fault}")
    _ = options.wanted_tags
    for option, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if isinstance(offsets, dict):
            for name in offsets:
                if name not in options.topics:
                    raise ConfigError(f"option {option!r} names topic {name!r}, which isn't read")


def _nearest(key: str, known: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; the options are {', '.join(by_lower.values())}"
