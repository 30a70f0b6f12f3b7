"""What groups filter topics by (ConsumerFilterManager.java; store spec, 1.7), in `config/consumerFilter.json`.

Heartbeats bring them. One that no member has any more is dead, and forgotten after `filterDataCleanTimeSpan`, so that a
group that comes back soon has its bloom bits still.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.base.errors import FilterError
from rockmq.broker import python_filters
from rockmq.broker.documents import Saver, load, parts, save, snapshot
from rockmq.broker.python_filters import PythonFilter
from rockmq.config.broker import Filters
from rockmq.filter import PYTHON, SQL92, is_tag, sql
from rockmq.filter.bloom import BloomFilter
from rockmq.protocol import properties, topics
from rockmq.protocol.bodies.common import Body, SubscriptionData
from rockmq.protocol.header import Int, Long
from rockmq.store import Filter

log = logging.getLogger(__name__)

EXPRESSIONS_SIZE_MAX = 4 << 20
"""Characters of all expressions that are kept. Dead ones make room for a new one; if that isn't enough, it isn't taken."""
NEW_SIZE_MAX = sql.SIZE_MAX
"""Characters of expressions that one heartbeat may bring anew, as they are parsed at once; others come with later ones."""
LOADED_DEAD_MS = 30_000
CLEAN_SECONDS = 10.0


class BloomData(Body, kw_only=True):
    bit_num: Int
    bit_pos: list[Int]


class FilterData(Body, kw_only=True):
    """ConsumerFilterData.java; `dead` follows from the times, and Apache writes it too."""

    bloom_filter_data: BloomData | None = None
    born_time: Long = 0
    client_version: Long = 0
    consumer_group: str
    dead: bool = False
    dead_time: Long = 0
    expression: str
    expression_type: str = SQL92
    topic: str

    def set_dead(self, now: int) -> None:
        self.dead, self.dead_time = True, max(now, self.born_time)

    def revive(self) -> None:
        self.dead, self.dead_time = False, 0


class _OfTopic(Body, kw_only=True):
    group_filter_data: dict[str, FilterData] = field(default_factory=dict)
    topic: str = ""


class _Document(Struct, rename="camel"):
    filter_data_by_topic: dict[str, _OfTopic] = field(default_factory=dict)


def no_filtering(kind: str | None) -> str:
    """Why a subscription that isn't to tags is refused where nobody may filter otherwise."""
    return f"The broker does not support consumer to filter message by {kind}: enablePropertyFilter is off"


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Filter | str:
    """The filter, or what is wrong with the expression."""
    try:
        return Filter(sql.program(expression))
    except FilterError as error:
        return str(error)


class ConsumerFilters:
    """Expressions by group and topic; and filters of expressions, also of those that a pull brings."""

    def __init__(self, directory: Path, options: Filters, clock: Clock) -> None:
        """Raises ConfigError when the document can't be read or a filter in Python not be loaded."""
        sql.prepare()
        self._python = python_filters.load(options.python_filters)
        self._bloom = BloomFilter.of(options.max_error_rate_of_bloom_filter, options.expect_consumer_num_use_filter)
        self._filters_retries = options.filter_support_retry
        self._keep_dead_ms = options.filter_data_clean_time_span
        self._clock = clock
        self._groups: dict[str, dict[str, FilterData]] = {}
        self._size = 0
        self._path = directory / "consumerFilter.json"
        self._load()
        self._saver = Saver(self._path, self._save)

    def _load(self) -> None:
        found = load(self._path, _Document) or _Document()
        read = [data for each in found.filter_data_by_topic.values() for data in each.group_filter_data.values()]
        if not all(map(self._has_our_bits, read)):
            log.info("%s is of other bloom filters and counts as empty", self._path)
            return
        now = self._clock.now_ms()
        for data in read:
            if data.dead_time == 0:
                data.set_dead(now - LOADED_DEAD_MS)
            data.dead = data.dead_time >= data.born_time
            self._put(data)

    def _has_our_bits(self, data: FilterData) -> bool:
        bloom = data.bloom_filter_data
        return bloom is not None and (bloom.bit_num, len(bloom.bit_pos)) == self._bloom

    def compiled(self, kind: str | None, expression: str | None) -> Filter | PythonFilter:
        """What messages are filtered by. Raises FilterError."""
        if kind not in (SQL92, PYTHON):
            raise FilterError(f"there are no filters of type {(kind or '')[:100]!r}; expected TAG or {SQL92}")
        if not expression:
            raise FilterError(f"the {kind} expression is missing")
        if kind == PYTHON:
            if expression not in self._python:
                raise FilterError(f"there is no filter {expression[:100]!r}; this broker has: {', '.join(self._python)}")
            return self._python[expression]
        if len(expression) > sql.SIZE_MAX:
            sql.program(expression)  # raises, before it is kept in the cache
        made = _compiled(expression)
        if isinstance(made, str):
            raise FilterError(made)
        return made

    def find(self, group: str, topic: str) -> FilterData | None:
        return self._groups.get(group, {}).get(topic)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over what a heartbeat says of a group; expressions of topics that it doesn't name die.

        One that is wrong isn't taken: those who pull by it are told.
        """
        named = {each.topic: each for each in subscriptions if not is_tag(each.expression_type) and each.sub_string}
        held = dict(self._groups.get(group, {}))
        for topic, data in held.items():
            if topic not in named and not data.dead:
                data.set_dead(self._clock.now_ms())
                self._saver.later()
        size = 0
        for topic, subscription in named.items():
            known = held.get(topic)
            if known is None or known.dead or subscription.sub_version > known.client_version:
                size += min(len(subscription.sub_string), sql.SIZE_MAX)
                if size > NEW_SIZE_MAX:
                    break
                self._register(group, subscription)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, expression, kind = subscription.topic, subscription.sub_string, subscription.expression_type or ""
        data = self.find(group, topic)
        self._saver.later()
        if data is not None and (data.expression, data.expression_type) == (expression, kind):
            data.client_version = subscription.sub_version
            data.revive()
            return
        self._drop(group, topic)
        try:
            self.compiled(kind, expression)
        except FilterError as error:
            log.warning("a filter can't be used: %s", error, extra={"group": group, "topic": topic})
            return
        if not self._make_room(len(expression)):
            why = f"there are {self._size} characters of expressions"
            log.warning("no room for a filter: %s", why, extra={"group": group, "topic": topic})
            return
        positions = self._bloom.positions(f"{group}#{topic}")
        made = FilterData(
            bloom_filter_data=BloomData(bit_num=self._bloom.bits, bit_pos=positions),
            born_time=self._clock.now_ms(),
            client_version=subscription.sub_version,
            consumer_group=group,
            dead_time=0,
            expression=expression,
            expression_type=kind,
            topic=topic,
        )
        self._put(made)

    def unregister(self, group: str) -> None:
        """The group has no member any more. This needn't be saved: at the next start all are dead."""
        for data in self._groups.get(group, {}).values():
            if not data.dead:
                data.set_dead(self._clock.now_ms())

    def filter(self, data: FilterData) -> Filter | PythonFilter | None:
        """What its topic is read with; None takes everything. Raises FilterError.

        With `filterSupportRetry` a message of a retry topic is judged by the expression for the topic that it comes from
        (ExpressionForRetryMessageFilter.java).
        """
        if not (self._filters_retries and topics.is_retry(data.topic)):
            return self.compiled(data.expression_type, data.expression)
        held = self._groups.get(data.consumer_group, {}).values()
        origins = [each for each in held if each.expression_type == SQL92 and not topics.is_retry(each.topic)]
        return _of_origins(tuple((each.topic, each.expression) for each in origins))

    def clean(self) -> None:
        """Forget what is dead long enough."""
        now = self._clock.now_ms()
        old = [
            (group, topic)
            for group, held in self._groups.items()
            for topic, data in held.items()
            if data.dead and now - data.dead_time >= self._keep_dead_ms
        ]
        for group, topic in old:
            self._drop(group, topic)
            self._saver.later()

    def _make_room(self, size: int) -> bool:
        if self._size + size > EXPRESSIONS_SIZE_MAX:
            dead = [data for held in self._groups.values() for data in held.values() if data.dead]
            for data in sorted(dead, key=lambda each: each.dead_time):
                if self._size + size <= EXPRESSIONS_SIZE_MAX:
                    break
                self._drop(data.consumer_group, data.topic)
        return self._size + size <= EXPRESSIONS_SIZE_MAX

    def _put(self, data: FilterData) -> None:
        self._groups.setdefault(data.consumer_group, {})[data.topic] = data
        self._size += len(data.expression)

    def _drop(self, group: str, topic: str) -> None:
        held = self._groups.get(group, {})
        data = held.pop(topic, None)
        if data is not None:
            self._size -= len(data.expression)
        if not held:
            self._groups.pop(group, None)

    def _rows(self) -> Iterator[tuple[str, _OfTopic]]:
        by_topic: dict[str, _OfTopic] = {}
        for held in list(self._groups.values()):
            for topic, data in list(held.items()):
                by_topic.setdefault(topic, _OfTopic(topic=topic)).group_filter_data[data.consumer_group] = data
        return snapshot(by_topic)

    async def _save(self) -> None:
        await save(self._path, parts({}, filterDataByTopic=self._rows()))

    async def close(self) -> None:
        await self._saver.close()


@lru_cache(maxsize=64)
def _of_origins(expressions: tuple[tuple[str, str], ...]) -> Filter | None:
    """A message passes by the expression of its topic of origin, or if there is none for that."""
    if not expressions:
        return None
    size = sum(len(expression) for _, expression in expressions)
    if size > sql.SIZE_MAX:
        raise FilterError(f"the expressions of its topics have {size} characters together; the bound is {sql.SIZE_MAX}")
    origin: sql.Instruction = ("property", properties.RETRY_TOPIC)
    program: sql.Program = [origin, ("in", [topic for topic, _ in expressions]), ("not", None)]
    program += [origin, ("constant", None), ("=", None), ("or", None)]
    for topic, expression in expressions:
        own = sql.program(expression)
        program += [origin, ("constant", topic), ("=", None), ("and skip", len(own) + 1), *own, ("and", None), ("or", None)]
    return Filter(program)
