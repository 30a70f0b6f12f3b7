"""Light queues: a message is in other queues too, whose offsets its properties tell (LmqDispatch.java)."""

import random
from pathlib import Path

import pytest

from rockmq._core import Store
from rockmq.protocol.message import decode_stored
from tests.support.model import java_hash
from tests.unit.core import stores

FILE = 1 << 16
QUEUE = 20 * 100
PEER = bytes([10, 0, 0, 2, 0, 0, 0, 80])
ALL = 1 << 40


def opened(path: Path, *, light_queues_max: int = 1000) -> Store:
    return stores.opened(path, log_file_size=FILE, queue_file_size=QUEUE, light_queues_max=light_queues_max)


def fresh(path: Path) -> Store:
    store = opened(path)
    store.recover(0, True)
    return store


def put(store: Store, names: str, body: bytes = b"x", *, topic: str = "T", more: str = "") -> str:
    """Append a message, and what its record says of its offsets in light queues."""
    position, *_ = store.append(
        topic,
        0,
        body,
        f"INNER_MULTI_DISPATCH\x01{names}\x02{more}".encode(),
        now=1,
        born_host=PEER,
        born_timestamp=1,
        light_queues=names.split(","),
    )
    record = store.read(position)
    assert record is not None
    [message] = decode_stored(record, check_crc=True)
    return message.properties["INNER_MULTI_QUEUE_OFFSET"]


def bodies(store: Store, topic: str, codes: list[int] | None = None) -> list[int]:
    low, high = store.queue_bounds(topic, 0) or (0, 0)
    found = []
    while low < high:
        _, low, _, _, count, buffers, _ = store.get(topic, 0, low, 1000, ALL, ALL, codes)
        found += [int(message.body) for message in decode_stored(stores.joined(buffers))] if count else []
    return found


def test_a_message_is_in_all_queues_it_names(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    assert put(store, "%LMQ%a", b"0", more="TAGS\x01t\x02") == "0"
    assert put(store, "%LMQ%b,%LMQ%a", b"1", more="TAGS\x01u\x02") == "0,1"
    assert put(store, "%LMQ%a", b"2", topic="U", more="TAGS\x01t\x02") == "2"
    assert (bodies(store, "%LMQ%a"), bodies(store, "%LMQ%b")) == ([0, 1, 2], [1])
    assert (bodies(store, "T"), bodies(store, "U")) == ([0, 1], [2])
    assert bodies(store, "%LMQ%a", [java_hash("t")]) == [0, 2]
    assert sorted((topic, messages) for topic, messages, _ in store.take_arrivals(9)) == [("T", 2), ("U", 1)]
    store.flush_queues(True)
    entries = (tmp_path / "consumequeue" / "%LMQ%a" / "0" / f"{0:020}").read_bytes()
    own = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020}").read_bytes()
    assert entries[:40] == own[:40]


def test_names_that_have_no_queue_and_names_that_come_twice(tmp_path: Path) -> None:
    """Apache counts twice for the second and then has an offset without an entry."""
    store = fresh(tmp_path)
    for number in range(3):
        assert put(store, "%LMQ%a/b,%LMQ%c,%LMQ%c", b"%d" % number) == f"0,{number},{number}"
    assert bodies(store, "%LMQ%c") == [0, 1, 2]
    assert sorted(topic for topic, *_ in store.queues()) == ["%LMQ%c", "T"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("a", "'a' doesn't begin with %LMQ%"),
        ("%LMQ%a,,%LMQ%b", "'' doesn't begin"),
        ("%LMQ%a,%RETRY%b", "'%RETRY%b' doesn't begin"),
        ("%LMQ%" + "x" * 251, "can't name a directory"),
        ("%LMQ%a,T%LMQ%", "'T%LMQ%' doesn't begin"),
        (",".join(f"%LMQ%{number:04}" for number in range(3400)), "properties have"),
    ],
)
def test_names_that_cant_be_are_refused_and_nothing_is_stored(tmp_path: Path, names: str, words: str) -> None:
    store = fresh(tmp_path)
    with pytest.raises(ValueError, match=words):
        put(store, names)
    assert (store.max_position, store.queues()) == (0, [])


def test_what_else_is_refused(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    with pytest.raises(ValueError, match="is the topic itself"):
        put(store, "%LMQ%a", topic="%LMQ%a")
    store.set_batch("B")
    with pytest.raises(ValueError, match="batch queues"):
        put(store, "%LMQ%a", topic="B")
    with pytest.raises(ValueError, match="don't end with a separator"):
        put(store, "%LMQ%a", more="TAGS\x01t")
    assert store.max_position == 0


def test_the_whole_record_is_bounded(tmp_path: Path) -> None:
    """Row 2.3. Of others it is the body."""
    store = stores.opened(tmp_path, max_message_size=1000, light_queues_max=1000)
    store.recover(0, True)
    put(store, "%LMQ%a")
    size = store.max_position
    put(store, "%LMQ%a", bytes(1000 - size + 1))
    with pytest.raises(ValueError, match="the record is 1001 bytes, in light queues it may be 1000"):
        put(store, "%LMQ%a", bytes(1000 - size + 2))


@pytest.mark.parametrize("start_file", [0, -1])
@pytest.mark.parametrize("flushed", [0, 150, 400], ids=["not written", "written in part", "written"])
def test_offsets_outlast_a_kill(tmp_path: Path, start_file: int, flushed: int) -> None:
    """Also of queues that had no file yet, and of those that the log says more of than their files."""
    store, chosen = fresh(tmp_path / "a"), random.Random(7)
    expected: dict[str, list[int]] = {}
    for number in range(400):
        names = [f"%LMQ%{name}" for name in chosen.sample("abcdefghij", chosen.randint(1, 4))]
        offsets = put(store, ",".join(names), b"%d" % number)
        assert offsets == ",".join(str(len(expected.get(name, []))) for name in names)
        for name in names:
            expected.setdefault(name, []).append(number)
        if number + 1 == flushed:
            store.flush()
            store.flush_queues(True)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    store = opened(path)
    # What a checkpoint vouches for was written; without any, a start reads all.
    store.recover(store.files()[start_file if flushed == 400 else 0][0], True)
    assert {name: bodies(store, name) for name in expected} == expected
    assert bodies(store, "T") == list(range(400))
    assert put(store, ",".join(expected), b"400") == ",".join(str(len(numbers)) for numbers in expected.values())
    store = opened(stores.copied(path, tmp_path / "c"))
    store.recover(0, True)
    assert {name: bodies(store, name) for name in expected} == {name: [*expected[name], 400] for name in expected}


def test_their_number_is_bounded(tmp_path: Path) -> None:
    store = opened(tmp_path / "a", light_queues_max=2)
    store.recover(0, True)
    put(store, "%LMQ%a,%LMQ%b")
    with pytest.raises(ValueError, match=r"%LMQ%c' can't be made.*maxLmqConsumeQueueNum"):
        put(store, "%LMQ%a,%LMQ%c")
    assert put(store, "%LMQ%b,%LMQ%a") == "1,1"
    store.watch("%LMQ%d", 0)
    store.forget_queues("%LMQ%a")
    assert put(store, "%LMQ%c") == "0"
    store.close()
    # Those that are there stay, and without the feature it is a name as any other.
    for most in (1, 0):
        store = opened(stores.copied(tmp_path / "a", tmp_path / "b"), light_queues_max=most)
        store.recover(0, True)
        assert {topic for topic, *_ in store.queues()} >= {"%LMQ%b", "%LMQ%c", "T"}
        if not most:
            store.append("%LMQ%new", 0, b"x", b"", now=1, born_host=PEER, born_timestamp=1)
        store.close()


def test_light_queues_begin_where_the_log_does(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    number = 0
    while store.max_position < 3 * FILE:
        put(store, "%LMQ%old" if number < 10 else "%LMQ%a", b"%05d" % number + bytes(200))
        number += 1
    assert store.delete_files_below(2 * FILE)
    low, high = store.queue_bounds("%LMQ%a", 0) or (0, 0)
    [first] = decode_stored(stores.joined(store.get("%LMQ%a", 0, low, 1, ALL, ALL, None)[5]))
    assert (first.position, high) == (2 * FILE, number - 10)
    assert first.properties["INNER_MULTI_QUEUE_OFFSET"] == str(low)
    assert store.queue_bounds("%LMQ%old", 0) == (10, 10)
    assert not (tmp_path / "consumequeue" / "%LMQ%a" / "0" / f"{0:020}").exists()
    store.close()
    store = opened(tmp_path)
    store.recover(2 * FILE, True)
    assert store.queue_bounds("%LMQ%a", 0) == (low, high)
    assert put(store, "%LMQ%a,%LMQ%old") == f"{high},10"
