"""What lies in a broker's and a name server's directory, damaged: a ConfigError, or a table that is saved as it was read."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rockmq.base.errors import ConfigError
from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import TopicTable
from rockmq.config import properties
from rockmq.namesrv.kv import KVConfig
from rockmq.protocol import json
from rockmq.store import timers
from rockmq.store.checkpoint import Checkpoint
from tests.support.clock import FakeClock
from tests.support.damage import damaged
from tests.unit.broker.conftest import options
from tests.unit.core import stores

GOLDEN = Path(__file__).parents[1] / "golden" / "store" / "config"


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory, as each input is a file. What is told of each isn't logged."""
    memory = Path("/dev/shm")
    logging.disable()
    with TemporaryDirectory(prefix="rockmq-fuzz-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)
    logging.disable(logging.NOTSET)


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


def test_topics_are_read_or_refused(directory: Path) -> None:
    path, settings = directory / "topics.json", options(directory)
    store = stores.fresh(directory / "store")

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            table = TopicTable(directory, settings, FakeClock())
        except ConfigError:
            return
        for config in table.all().values():
            if table.is_ordinary(config):
                store.set_ordinary(config.topic_name, config.write_queue_nums, False)
        path.write_bytes(b"".join(table.pieces()))
        again = TopicTable(directory, settings, FakeClock())
        assert (again.all(), again.version) == (table.all(), table.version)

    damaged([small("topics.json")], check)
    store.close()


def test_offsets_are_read_or_refused(directory: Path) -> None:
    path = directory / "consumerOffset.json"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            offsets = ConsumerOffsets(directory)
        except ConfigError:
            return
        for group in ("g", "golden-group"):
            for topic, queues in offsets.by_group(group).items():
                for queue_id, offset in queues.items():
                    assert offsets.query(group, topic, queue_id) == (offset if offset >= 0 else None)
                    assert -(2**63) <= offset < 2**63

    damaged(
        [small("consumerOffset.json"), b'{"offsetTable":{"T@g":{0:5,1:7},"U@g":{"0":-1}},"dataVersion":{"counter":1}}'],
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

    numbers = random.Random(1)
    damaged([b"".join(numbers.randrange(2**42).to_bytes(8, "big") for _ in range(7)) + bytes(9)], check)


def test_configuration_files_are_read_or_refused() -> None:
    def check(data: bytes) -> None:
        try:
            read = properties.read_bytes(data)
        except ConfigError:
            return
        assert properties.read(properties.write(read)) == read

    damaged([b"a=b\n# c\nkey\\:x : v\\u0041\\\n  more\r\nlast", b"brokerName=a\nlistenPort = 10911\n"], check)
