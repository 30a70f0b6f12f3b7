"""What a broker and a name server have written, damaged: a ConfigError, or a table that is saved as it was read."""

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rockmq import _core
from rockmq.base.errors import ClientError, ConfigError, FilterError
from rockmq.broker import documents
from rockmq.broker.consumer_filters import BloomData, ConsumerFilters, FilterData
from rockmq.broker.delays import Delays
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.half_messages import Half, finished_in
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.ordered_pops import OrderedPop, OrderedPops
from rockmq.broker.request_modes import RequestModes
from rockmq.broker.topics import TopicTable
from rockmq.client.local_offsets import LocalOffsets
from rockmq.filter.bloom import BloomFilter
from rockmq.namesrv.kv import KVConfig
from rockmq.protocol import codec, json, properties, topics
from rockmq.protocol.bodies.common import MessageQueue, TopicConfig
from rockmq.store import batch_topics, dump, layout, timers, verify
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.journal import line
from rockmq.store.log_places import LogPlaces
from rockmq.store.scrub import Scrub
from rockmq.store.store_reader import StoreReader
from tests.support import model
from tests.support.clock import FakeClock
from tests.support.damage import SLOW, damaged
from tests.unit.broker.conftest import options
from tests.unit.client.test_local_offsets import JAVA, instance
from tests.unit.core import stores
from tests.unit.store.stores import made

T = TypeVar("T")
GOLDEN = Path(__file__).parents[1] / "golden" / "store" / "config"


def small(name: str) -> bytes:
    """A document of Apache's with its first entries only: damage should meet what matters."""
    text = (GOLDEN / name).read_bytes()
    return text if len(text) < 2000 else json.encode(shortened(json.decode(text, object, name)))


def shortened(value: object) -> object:
    """Of tables the first entries."""
    if not isinstance(value, dict):
        return value
    is_table = all(isinstance(each, dict) for each in value.values())
    return {key: shortened(each) for key, each in list(value.items())[: 3 if is_table else None]}


def with_a_message(directory: Path) -> _core.Store:
    """A store that isn't empty: of one that is nothing can be told."""
    store = stores.fresh(directory)
    stores.append(store, model.Record("T", 0, b"body", b""))
    return store


def test_topics_are_read_or_refused(directory: Path) -> None:
    """By a broker, by a start that needs to know of batch queues, and by readers of a store."""
    store, settings = with_a_message(directory), options(directory)
    directory /= "config"
    directory.mkdir()
    path, reader = directory / "topics.json", StoreReader(directory.parent)

    def check(data: bytes) -> None:
        path.write_bytes(data)
        named = []
        if len(data) % 8 == 0:  # some inputs will do for these
            named = batch_topics.documented(directory.parent).names
            with contextlib.suppress(ConfigError):
                assert reader.queues("golden") == []
        try:
            table = TopicTable(directory, settings, FakeClock())
        except ConfigError:
            return
        assert all(table.all()[name].has_batch_queues for name in named)
        for config in table.all().values():
            if table.is_ordinary(config):
                store.set_ordinary(config.topic_name, config.write_queue_nums, False)
        path.write_bytes(b"".join(table.pieces()))
        again = TopicTable(directory, settings, FakeClock())
        assert (again.all(), again.version) == (table.all(), table.version)

    with_batches = TopicConfig(topic_name="golden", attributes={"queue.type": "BatchCQ"})
    damaged([small("topics.json"), json.encode({"topicConfigTable": {"golden": with_batches}})], check)
    store.close()


def test_offsets_are_read_or_refused(directory: Path) -> None:
    """Also by a broker that has light queues where the last one had none, and the other way round; it always starts."""
    paths = [directory / "consumerOffset.json", directory / "lmqConsumerOffset.json"]

    def check(data: bytes) -> None:
        has_light = b"lmq" in data
        paths[has_light].write_bytes(data)
        paths[not has_light].unlink(missing_ok=True)
        # Who has no light queues looks at that document of theirs too; some inputs will do for that.
        for light in (has_light, not has_light)[: 2 if len(data) % 8 == 0 else 1]:
            try:
                offsets = ConsumerOffsets(directory, FakeClock(), light=light)
            except ConfigError:
                assert light == has_light
                continue
            for group in ("g", "golden-group", "%LMQ%h@i"):
                for topic, queues in offsets.by_group(group).items():
                    for queue_id, offset in queues.items():
                        assert offsets.query(group, topic, queue_id) == (offset if offset >= 0 else None)
                        assert -(2**63) <= offset < 2**63

    damaged(
        [
            small("consumerOffset.json"),
            b'{"offsetTable":{"T@g":{0:5,1:7},"U@g":{"0":-1}},"dataVersion":{"counter":1}}',
            b'{"lmqOffsetTable":{"%LMQ%a@%LMQ%h@i":5},"offsetTable":{"T@g":{0:1}},"dataVersion":{"counter":2}}',
        ],
        check,
    )


def test_groups_are_read_or_refused(directory: Path) -> None:
    path = directory / "subscriptionGroup.json"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            table = GroupTable(directory, auto_create=False, clock=FakeClock())
        except ConfigError:
            return
        path.write_bytes(b"".join(table.pieces()))
        again = GroupTable(directory, auto_create=False, clock=FakeClock())
        assert (again.all(), again.version) == (table.all(), table.version)

    damaged([small("subscriptionGroup.json")], check)


def test_pops_in_order_are_read_or_refused(directory: Path) -> None:
    path, offsets = directory / "consumerOrderInfo.json", ConsumerOffsets(directory / "none", FakeClock())

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            ordered = OrderedPops(directory, offsets, FakeClock())
        except ConfigError:
            return
        path.write_bytes(b"".join(ordered.pieces()))
        again = OrderedPops(directory, offsets, FakeClock())
        assert {key: _content(held) for key, held in again.items()} == {key: _content(held) for key, held in ordered.items()}

    row = b'{"a":"x","cm":1,"i":1000,"l":5,"o":[10,1,3],"oc":{11:2},"ot":{13:9000},"popTime":4000}'
    damaged([b'{"table":{"T@g":{1:%b},"%%LMQ%%a@b@%%LMQ%%c@d":{"0":%b}}}' % (row, row)], check)


def _content(held: OrderedPop) -> tuple[object, ...]:
    return held.offsets, held.handed, held.counts, held.pop_time, held.attempt_id, held.next


def test_delivered_delays_are_read_or_refused(directory: Path) -> None:
    """Wherever the document says that a level is, it goes on within its queue, which is empty here."""
    path = directory / "store" / "config" / "delayOffset.json"
    store, settings = made(directory / "store", {})
    store.core = stores.fresh(directory / "store")
    path.parent.mkdir()
    clock = FakeClock()
    polling = LongPolling(clock, 10, store.watch)
    gate = DurabilityGate(
        clock,
        immediate=True,
        timeout_seconds=1,
        request_flush=store.request_flush,
        wake=polling.wake,
        release=lambda position: None,
        overdue=lambda position: [],
    )

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            delays = Delays(settings.store, store, gate, polling, clock)
        except ConfigError:
            return
        text = b"".join(delays.pieces())
        path.write_bytes(text)
        assert b"".join(Delays(settings.store, store, gate, polling, clock).pieces()) == text
        table = json.decode(text, dict[str, dict[str, int]], "delays")["offsetTable"]
        assert not any(table.get(str(level), 0) for level in range(1, 1 + len(settings.store.delay_levels)))

    damaged([small("delayOffset.json"), b'{"offsetTable":{1:5,"2":0,99:7},"dataVersion":{"counter":1}}'], check)
    store.core.close()


def test_filters_of_consumers_are_read_or_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose expression can't be compiled: who pulls by it is told."""
    monkeypatch.setattr(documents.Saver, "later", lambda saver: None)  # there is no event loop that could save
    path, settings = directory / "consumerFilter.json", options(directory, enablePropertyFilter="true").filters

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            filters = ConsumerFilters(directory, settings, FakeClock())
        except ConfigError:
            return
        for group in ("g", "h"):
            held = filters.find(group, "T")
            if held is not None:
                assert held.dead == (held.dead_time >= held.born_time)
                with contextlib.suppress(FilterError):
                    filters.filter(held)
        filters.clean()

    bloom = BloomFilter.of(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter)
    rows = {
        group: FilterData(
            bloom_filter_data=BloomData(bit_num=bloom.bits, bit_pos=bloom.positions(f"{group}#T")),
            born_time=5,
            client_version=7,
            consumer_group=group,
            expression="a > 5 AND TAGS IS NOT NULL",
            topic="T",
        )
        for group in ("g", "h")
    }
    damaged([json.encode({"filterDataByTopic": {"T": {"groupFilterData": rows, "topic": "T"}}})], check)


def test_request_modes_are_read_or_refused(directory: Path) -> None:
    path, settings = directory / "messageRequestMode.json", options(directory).pop

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            modes = RequestModes(directory, settings)
        except ConfigError:
            return
        assert modes.get("T", "g").mode in ("PULL", "POP")
        path.write_bytes(modes.text())
        assert RequestModes(directory, settings).text() == modes.text()

    row = b'{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":-1}'
    damaged([b'{"messageRequestModeMap":{"T":{"g":%b},"%%RETRY%%g":{"g":%b,"h":%b}}}' % (row, row, row)], check)


def test_the_place_of_the_scrub_is_read_or_forgotten(directory: Path) -> None:
    path, core = directory / "scrub.json", stores.fresh(directory / "store")

    async def in_worker(function: Callable[[], T]) -> T:
        return function()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        scrub = Scrub(core, path, 1000, FakeClock(), in_worker)
        assert 0 <= scrub.last_round < 2**63

    damaged([b'{"position": 131072, "roundBegan": 1700000000000, "lastRound": 1600000000000}'], check)
    core.close()


def test_places_of_the_log_are_read_or_refused(directory: Path) -> None:
    path, one = directory / "logDirectories.json", directory / "one"
    one.mkdir()
    (one / f"{0:020}").touch()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(ConfigError, OSError):
            LogPlaces(path, [str(one)], 1 << 20).check()

    damaged([b'{"%b": 0, "/no/such": 1048576}' % str(one).encode()], check)


def test_changes_of_topics_are_read_or_passed_over(directory: Path) -> None:
    """A line that isn't whole was never answered; one that follows another document is put aside."""
    settings, version = options(directory), b'[{"counter":1,"stateVersion":0,"timestamp":5}]'
    path, journal = directory / "topics.json", directory / "topics.json.journal.1"
    change = b'{"topic":"U","dataVersion":{"counter":2,"stateVersion":0,"timestamp":6},"config":{"topicName":"U"}}'
    deletion = b'{"topic":"T","dataVersion":{"counter":3,"stateVersion":0,"timestamp":7}}'
    path.write_bytes(
        b'{"topicConfigTable":{"T":{"topicName":"T"}},"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5}}'
    )

    def check(data: bytes) -> None:
        journal.write_bytes(data)
        table = TopicTable(directory, settings, FakeClock())
        assert table.version.counter in (1, 2, 3)
        assert (
            table.all().keys() == {1: {"T"}, 2: {"T", "U"}, 3: {"U"} if "U" in table.all() else set()}[table.version.counter]
        )

    lines = [line(entry) for entry in (version, change, deletion)]
    damaged([b"".join(lines), b"".join(lines[:2]), b"".join(lines[::2])], check)


def test_changes_of_topics_that_are_whole_are_read_or_refused(directory: Path) -> None:
    """Nobody knows what a line says whose checksum fits and that makes no sense; a broker doesn't go on without it."""
    settings = options(directory)
    (directory / "config").mkdir()
    journal = directory / "config" / "topics.json.journal.1"

    def check(data: bytes) -> None:
        journal.write_bytes(b"".join(map(line, data.split(b"\n"))))
        named = batch_topics.documented(directory).names
        try:
            table = TopicTable(journal.parent, settings, FakeClock())
        except ConfigError as error:
            assert f"the journal of {journal.with_name('topics.json')}: " in str(error)
            assert not named
            return
        with_batches = (name for name, config in table.all().items() if config.has_batch_queues)
        assert named == sorted(name for name in with_batches if topics.topic_fault(name) is None)

    changes = [
        b'{"topic":"T","dataVersion":{"counter":1},"config":{"topicName":"T","attributes":{"queue.type":"BatchCQ"}}}',
        b'{"topic":"T","dataVersion":{"counter":2}}',
    ]
    damaged([b"\n".join([b"[{}]", *changes[:count]]) for count in (1, 2)], check, is_slow=True)


def test_key_value_configurations_are_read_or_put_aside(directory: Path) -> None:
    path = directory / "kvConfig.json"
    aside = directory / "kvConfig.json.unreadable"

    def check(data: bytes) -> None:
        aside.unlink(missing_ok=True)
        path.write_bytes(data)
        kv = KVConfig(path)
        kv.load()
        assert path.exists() != aside.exists()
        assert not aside.exists() or (kv.namespace("n") is None and aside.read_bytes() == data)
        assert all(isinstance(value, str) for value in (kv.namespace("n") or {}).values())

    damaged([b'{"configTable":{"n":{"a":"b","c":1,"d":true,"e":null,"f":1.5},"m":{}}}'], check)


def test_a_checkpoint_is_read_whatever_it_says(directory: Path) -> None:
    path = directory / "checkpoint"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        read = Checkpoint.load(path)
        assert 0 <= read.safe < 2**63
        assert (read == Checkpoint()) or len(data) >= 24

    numbers = random.Random(1)
    damaged(
        [b"".join(numbers.randrange(2**42).to_bytes(8, "big") for _ in range(3)) + bytes(number) for number in (0, 16, 99)],
        check,
    )


def test_a_checkpoint_of_timers_is_read_whatever_it_says(directory: Path) -> None:
    path = directory / "timercheck"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        read = timers.Checkpoint.load(path)
        assert read is None or (len(data) >= 56 and min(read.read_time, read.forced, read.offset) >= 0)
        assert read is None or (0 <= read.again_before <= read.read_time and read.again_below >= 0)

    numbers = random.Random(1)
    fields = [numbers.randrange(2**42).to_bytes(8, "big") for _ in range(9)]
    damaged([b"".join(fields[:7]) + bytes(9), b"".join([*fields[:7], fields[0], fields[2], bytes(9)])], check)


def test_counts_of_timers_are_read_or_forgotten(directory: Path) -> None:
    path = directory / "timermetrics"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        read = timers.Metrics.load(path)
        assert all(metric.count > 0 for metric in read.timing_count.values())
        text = json.encode(read)
        path.write_bytes(text)
        assert timers.Metrics.load(path) == read

    damaged(
        [b'{"dataVersion":{"counter":5},"timingCount":{"T":{"count":7,"timeStamp":1700000000000},"U":{"count":1}}}'],
        check,
        is_slow=True,
    )


def test_offsets_of_broadcasts_are_read_or_refused(directory: Path) -> None:
    offsets = LocalOffsets(instance(), "g", "first", directory)
    offsets.path.parent.mkdir(parents=True)

    def check(data: bytes) -> None:
        offsets.path.write_bytes(data)
        try:
            offsets.open()
        except ClientError as error:
            assert str(offsets.path) in str(error)
        offsets.close()

    several = {MessageQueue("T", "b", number).key(): number for number in range(2)}
    damaged([JAVA.encode(), b'{"offsetTable":%b}' % json.object_map(several)], check, is_slow=True)


def test_what_lies_in_queues_of_transactions_is_read_or_passed_over() -> None:
    """Body and properties of records that are whole: the core's own tests damage the rest."""

    def check(data: bytes) -> None:
        text, _, body = data.partition(b"|")
        record = model.Record(topics.TRANSACTION_HALF, 0, body, text[: properties.SIZE_MAX], queue_offset=7).encode()
        (found,) = codec.decode_records(record)
        half = Half.of(found)
        assert half is not None
        assert 0 <= half.root <= half.offset
        assert half.checks >= 0
        assert half.real_queue_id >= 0
        assert half.immunity_ms(6000) >= 6000
        assert all(0 <= offset < 10**19 for offset in finished_in(found))

    said = "TRAN_PREPARED_QUEUE_OFFSET\x015\x02TRANSACTION_CHECK_TIMES\x011\x02REAL_QID\x013\x02REAL_TOPIC\x01T\x02"
    damaged(
        [
            said.encode() + b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02|body",
            b"TRANSACTION_CHECK_TIMES\x01%b\x02|" % (b"9" * 4301),
            b"TAGS\x01d\x02|1,2,30,",
        ],
        check,
    )


def test_files_of_a_store_are_dumped_as_far_as_they_make_sense(directory: Path) -> None:
    """Entries of simple queues, units of batch queues, and headers of the index, as `rockmq store dump` reads them."""
    with_a_message(directory).close()
    found = layout.find(directory)
    entries, units = (directory / name / "T" / "0" / f"{0:020}" for name in ("consumequeue", "batchconsumequeue"))
    header = directory / "index" / "20260101000000000"
    for path in (entries, units, header):
        path.parent.mkdir(parents=True, exist_ok=True)

    def check(data: bytes) -> None:
        for path in (entries, units, header):
            path.write_bytes(data)
        for wanted in (dump.Wanted(), dump.Wanted("T", 0, start=1, end=3)):
            dumped = list(dump.queue_entries(found, wanted))
            assert len(dumped) <= len(data) // 20 + len(data) // 46
            assert all(isinstance(entry["size"], int) and entry["size"] > 0 for entry in dumped)
        (index,) = dump.index_headers(found)
        assert isinstance(index["entries"], int)
        assert index["entries"] >= 0

    simple = b"".join(struct.pack(">qiq", 100 * number, 100, 7) for number in range(4))
    batches = b"".join(struct.pack(">qiqqqh8x", 100 * number, 100, 7, 5, 3 * number, 3) for number in range(4))
    damaged([simple, batches, struct.pack(">qqqqii", 5, 6, 0, 100, 2, 3)], check, is_slow=True)


def test_documents_are_verified_or_told(directory: Path) -> None:
    """What can't be read is a finding of `rockmq store verify`, which goes on. It looks at a whole store each time, so it
    gets a tenth of the inputs."""
    with_a_message(directory).close()
    found, path = layout.find(directory), directory / "config" / "topics.json"
    path.parent.mkdir()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        report = verify.verify(found, lambda done, total: None)
        assert report.documents == 1
        assert report.kinds.keys() <= {"document"}

    damaged([small("topics.json")], check, tests=SLOW)
