"""Index files under changing brokers: what one wrote the other finds in, goes on with, and would have written itself."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rockmq import _core
from rockmq.protocol.message import decode_stored
from tests.support import apache, server
from tests.support.cluster import wait_for_route
from tests.support.events import events
from tests.support.messages import content
from tests.support.process import eventually, free_broker_port, free_port

TOPIC = "indexed"
MODES = ("sync", "batch", "bare")
PER_MODE = 20
LOG_FILE_SIZE = 64 << 20
SLOTS, ENTRIES = 40, 50  # several files, and long chains in them
QUERY_MESSAGE = 12


class Moving:
    """A store with small index files, and the brokers it is served by."""

    def __init__(self, directory: Path, namesrv: str, version: str = "5.5.0", client: str = "5.5.0") -> None:
        self.directory, self.namesrv, self.version, self.client = directory, namesrv, version, client
        self.port = free_broker_port()
        self.store = directory / "broker" / "store"
        self.address = f"127.0.0.1:{self.port}"

    @contextmanager
    def apaches(self, *, killed: bool = False) -> Iterator[None]:
        sizes = {"maxHashSlotNum": str(SLOTS), "maxIndexNum": str(ENTRIES)}
        with apache.broker(
            self.directory / "broker", self.port, self.namesrv, properties=sizes, version=self.version
        ) as broker:
            yield
            broker.kill() if killed else broker.terminate()

    @contextmanager
    def ours(self, *, killed: bool = False) -> Iterator[None]:
        configuration = self.directory / "broker" / "broker.conf"
        with server.broker(self.directory / "rockmq", configuration) as broker:
            eventually(lambda: apache.is_registered(self.namesrv, broker.broker), 60, "our broker registered")
            wait_for_route(self.namesrv, TOPIC)
            yield
            broker.kill() if killed else broker.terminate()

    def send(self, prefix: str) -> None:
        arguments = f"namesrv={self.namesrv}", f"topic={TOPIC}", f"prefix={prefix}", f"modes={','.join(MODES)}"
        with apache.program(
            self.client, "Producer", *arguments, f"count={PER_MODE}", directory=self.directory, name=f"Producer-{prefix}"
        ) as producer:
            assert producer.wait(90) == 0, producer.tail()
            assert not events(producer, "failed")

    def found(self, key: str, **more: str) -> list[str]:
        """Bodies of what a query finds that has exactly this key, or tag."""
        fields = {"topic": TOPIC, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
        answer = apache.invoke(self.address, QUERY_MESSAGE, fields | more)
        if answer.code:
            return []
        wanted = [
            message for message in decode_stored(answer.body) if key in (*message.keys, message.properties.get("TAGS"))
        ]
        return [message.body.decode() for message in wanted]

    def misses(self, prefix: str) -> set[str]:
        """Keys under which not exactly the message sent with them is found."""
        sent = [content(f"{prefix}-{mode}", i) for mode in MODES if mode != "bare" for i in range(PER_MODE)]
        return {each.key for each in sent if set(self.found(each.key)) != {each.body.decode()}}

    def files(self) -> list[bytes]:
        return [file.read_bytes() for file in sorted((self.store / "index").iterdir())]

    def rebuilt(self, name: str) -> list[bytes]:
        """The index our core makes of the whole log."""
        other = self.directory / name
        log = _core.Store(
            [str(self.store / "commitlog")],
            str(other / "consumequeue"),
            log_file_size=LOG_FILE_SIZE,
            queue_file_size=6_000_000,
            store_host=bytes(8),
            max_message_size=1 << 20,
            region="",
            trace_on=False,
            cluster="",
        )
        log.recover(log.files()[0][0], True)
        index = _core.Index(log, str(other / "index"), slots=SLOTS, entries=ENTRIES, trusted_until=None)
        index.catch_up(log.max_position, 1 << 40, "20200101000000000")
        index.close()
        log.close()
        return [file.read_bytes() for file in sorted((other / "index").iterdir())]


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        yield Moving(tmp_path, names.address)


def test_index_moves_to_our_broker_and_back(moving: Moving) -> None:
    with moving.apaches():
        moving.send("first")
        eventually(lambda: not moving.misses("first"), 60, "all first messages found")
    first = moving.files()
    assert len(first) > 2
    assert moving.rebuilt("of-apache") == first, "we write what Apache wrote, byte for byte"

    with moving.ours():
        assert not moving.misses("first")
        moving.send("second")
        assert not moving.misses("second"), "a query waits for the index"
        tagged = moving.found("tag1", indexType="T")
        assert tagged
        printed = apache.mqadmin(
            "queryMsgByKey", "-t", TOPIC, "-k", "first-sync-key-3", namesrv=moving.namesrv, directory=moving.directory
        )
        assert "first-sync-key-3" in printed.stdout
    second = moving.files()
    assert second[: len(first) - 1] == first[:-1], "full files stay as they were"
    assert moving.rebuilt("of-both") == second, "what was there is gone on with"

    with moving.apaches():
        wait_for_route(moving.namesrv, TOPIC)
        assert not moving.misses("first")
        assert not moving.misses("second")
        assert moving.found("tag1", indexType="T") == tagged
        for key in ("first-sync-key-3", "second-batch-key-4"):
            printed = apache.mqadmin(
                "queryMsgByKey", "-t", TOPIC, "-k", key, namesrv=moving.namesrv, directory=moving.directory
            )
            assert key in printed.stdout, printed.stdout + printed.stderr
        moving.send("third")
        eventually(lambda: not moving.misses("third"), 60, "all third messages found")
    assert moving.files()[: len(second) - 1] == second[:-1]

    with moving.ours():
        for prefix in ("first", "second", "third"):
            assert not moving.misses(prefix)


@pytest.mark.flaky(reruns=0)
def test_index_is_made_anew_after_a_kill_of_either_broker(moving: Moving) -> None:
    with moving.apaches(killed=True):
        moving.send("first")
        eventually(lambda: not moving.misses("first"), 60, "all first messages found")
    with moving.ours(killed=True):
        assert not moving.misses("first")
        moving.send("second")
        assert not moving.misses("second")
    with moving.apaches(killed=True):
        wait_for_route(moving.namesrv, TOPIC)
        eventually(lambda: not moving.misses("first") | moving.misses("second"), 60, "all found again")
    with moving.ours():
        assert not moving.misses("first") | moving.misses("second")
    assert moving.rebuilt("of-the-log") == moving.files()


@pytest.mark.parametrize("killed", [False, True])
def test_index_of_4_9_moves_to_our_broker_and_back(killed: bool, tmp_path: Path) -> None:
    """It has no entries for tags, so the files differ from ours; what keys lead to doesn't."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(tmp_path, names.address, "4.9.7", "4.9.8")
        with moving.apaches(killed=killed):
            moving.send("first")
            eventually(lambda: not moving.misses("first"), 60, "all first messages found")
        with moving.ours(killed=killed):
            assert not moving.misses("first")
            moving.send("second")
            assert not moving.misses("second")
        with moving.apaches(killed=killed):
            wait_for_route(moving.namesrv, TOPIC)
            eventually(lambda: not moving.misses("first") | moving.misses("second"), 60, "all found again")
            moving.send("third")
            eventually(lambda: not moving.misses("third"), 60, "all third messages found")
        with moving.ours():
            assert not moving.misses("first") | moving.misses("second") | moving.misses("third")
