"""A store written by Apache's broker 5.5.0 (`capture.py`), read and recovered by our core."""

import hashlib
import ipaddress
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockmq import _core
from rockmq.config.broker import Store as StoreOptions
from rockmq.protocol import properties
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.store.checkpoint import Checkpoint
from tests.golden.stored import LOG_FILE_SIZE, MANIFEST, QUEUE_FILE_SIZE, QUEUES, RECORDS, STORE, unpack
from tests.support.messages import Content, content

LOGS = sorted((STORE / "commitlog").iterdir())
PREPARED, ROLLED_BACK = 4, 12
END = RECORDS[-1]["position"] + RECORDS[-1]["size"]
LARGE = 6_000
# As capture.py sets them.
INDEX_SLOTS, INDEX_ENTRIES = 50, 200


def bytes_of(record: dict[str, Any]) -> bytes:
    position: int = record["position"]
    start = position % LOG_FILE_SIZE
    return LOGS[position // LOG_FILE_SIZE].read_bytes()[start : start + record["size"]]


def host(text: str) -> bytes:
    """`/127.0.0.1:10911` or `127.0.0.1` as it is stored, the latter without a port."""
    ip, _, port = text.removeprefix("/").partition(":")
    packed = ipaddress.ip_address(ip).packed
    return packed + int(port).to_bytes(4) if port else packed


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record['topic']}-{record['position']}")
def test_record_decodes_to_what_apache_reads(record: dict[str, Any]) -> None:
    """Row 2.1."""
    (decoded,) = _core.decode_records(bytes_of(record))
    (size, crc, queue_id, flag, queue_offset, position, sys_flag, born, born_host, stored, store_host) = decoded[:11]
    reconsume_times, prepared, body, topic, text = decoded[11:]
    assert {
        "position": position,
        "size": size,
        "bodyCRC": crc,
        "queueId": queue_id,
        "flag": flag,
        "queueOffset": queue_offset,
        "sysFlag": sys_flag,
        "bornTimestamp": born,
        "storeTimestamp": stored,
        "reconsumeTimes": reconsume_times,
        "preparedTransactionOffset": prepared,
        "topic": topic,
        "bodySize": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": properties.decode(text),
    }.items() <= record.items()
    assert born_host[:-4] == host(record["bornHost"])
    assert store_host == host(record["storeHost"])
    assert zlib.crc32(body) & 0x7FFF_FFFF == crc


def test_records_of_a_file_decode_together() -> None:
    for number, log in enumerate(LOGS):
        of_file = [record for record in RECORDS if record["position"] // LOG_FILE_SIZE == number]
        whole = log.read_bytes()[: sum(record["size"] for record in of_file)]
        assert [decoded[5] for decoded in _core.decode_records(whole)] == [record["position"] for record in of_file]


def expected(message: StoredMessage) -> Content:
    """What the capture script sent under that key: `<prefix>-<mode>-key-<index>`."""
    prefix, _, index = message.keys[0].rpartition("-key-")
    return content(prefix, int(index), LARGE if prefix.endswith("-large") else 0)


def test_messages_of_clients_have_the_content_they_were_sent_with() -> None:
    messages = [
        message
        for record in RECORDS
        if record["topic"] == "golden"
        for message in decode_stored(bytes_of(record), check_crc=True)
    ]
    bare = [message for message in messages if not message.keys]
    assert [message.body.decode() for message in bare] == [f"new-bare-{i} ü" for i in range(3)]
    for message in messages:
        if message.keys:
            known = expected(message)
            assert (message.body, message.tag) == (known.body, known.tag)
            assert known.properties.items() <= message.properties.items()
    compressed = {message.keys[0]: message.sys_flag for message in messages if message.sys_flag & 1}
    assert {key: flag & 0x700 for key, flag in compressed.items()} == {
        "zlib-large-key-0": 0x300,
        "lz4-large-key-0": 0x100,
        "zstd-large-key-0": 0x200,
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return unpack(tmp_path / "store")


def opened(directory: Path) -> _core.Store:
    return _core.Store(
        [str(directory / "commitlog")],
        str(directory / "consumequeue"),
        log_file_size=LOG_FILE_SIZE,
        queue_file_size=QUEUE_FILE_SIZE,
        store_host=host(MANIFEST["broker"]["address"]),
        max_message_size=4 << 20,
        region="DefaultRegion",
        trace_on=True,
        cluster=MANIFEST["broker"]["cluster"],
        delay_levels=StoreOptions().delay_levels,
    )


@pytest.fixture
def store(directory: Path) -> Iterator[_core.Store]:
    store = opened(directory)
    yield store
    store.close()


def entries_by_queue() -> dict[tuple[str, int], list[dict[str, Any]]]:
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for entry in QUEUES:
        queues.setdefault((entry["topic"], entry["queueId"]), []).append(entry)
    return queues


def test_recovery_finds_the_end_and_every_record(store: _core.Store) -> None:
    assert store.recover(0, True) == (END, len(RECORDS))
    assert (store.min_position, store.max_position) == (0, END)


def test_recovery_agrees_with_the_queues_apache_wrote(store: _core.Store, directory: Path) -> None:
    store.recover(0, True)
    store.flush_queues(True)
    assert sorted(store.queues()) == sorted((*queue, 0, len(entries)) for queue, entries in entries_by_queue().items())
    for file in MANIFEST["files"]:
        if file["path"].startswith(("commitlog/", "consumequeue/")):
            written = (STORE / file["path"]).read_bytes().ljust(file["size"], b"\0")
            assert (directory / file["path"]).read_bytes() == written, file["path"]


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store after its queues were lost and recovered from the log."""
    directory = unpack(tmp_path_factory.mktemp("rebuilt"))
    shutil.rmtree(directory / "consumequeue")
    (directory / "consumequeue").mkdir()
    store = opened(directory)
    store.recover(0, True)
    store.flush_queues(True)
    store.close()
    return directory


@pytest.mark.parametrize(
    "path",
    [file["path"] for file in MANIFEST["files"] if file["path"].startswith("consumequeue/")],
)
def test_lost_queue_is_rebuilt_byte_for_byte(rebuilt: Path, path: str) -> None:
    assert (rebuilt / path).read_bytes().rstrip(b"\0") == (STORE / path).read_bytes()


@pytest.mark.parametrize("queue", entries_by_queue(), ids=lambda queue: f"{queue[0]}-{queue[1]}")
def test_queue_is_read_in_full(store: _core.Store, queue: tuple[str, int]) -> None:
    store.recover(0, True)
    entries = entries_by_queue()[queue]
    _, _, lowest, highest, count, buffers, _ = store.get(*queue, 0, 1_000, 1 << 20, END, None)
    assert (lowest, highest, count) == (0, len(entries), len(entries))
    by_position = {record["position"]: record for record in RECORDS}
    expected_bytes = b"".join(bytes_of(by_position[entry["position"]]) for entry in entries)
    assert b"".join(bytes(memoryview(buffer)) for buffer in buffers) == expected_bytes


def test_new_record_goes_behind_apaches(store: _core.Store) -> None:
    store.recover(0, True)
    before = store.queue_bounds("golden", 0)
    assert before
    placed = store.append("golden", 0, b"ours", b"", now=1, born_host=bytes(8), born_timestamp=1)
    assert (placed[0], placed[2]) == (END, before[1])


def test_checkpoint_is_read() -> None:
    known = MANIFEST["checkpoint"]
    read = Checkpoint.load(STORE / "checkpoint")
    assert (read.physic, read.logics) == (known["physicMsgTimestamp"], known["logicsMsgTimestamp"])


def test_tag_codes_are_javas() -> None:
    """Row 3.1, pitfall 9.10."""
    codes = {entry["position"]: entry["tagCode"] for entry in QUEUES}
    for record in RECORDS:
        transaction = record["sysFlag"] & ROLLED_BACK in (PREPARED, ROLLED_BACK)
        if record["topic"] == "SCHEDULE_TOPIC_XXXX" or transaction or record["position"] not in codes:
            continue
        tag = record["properties"].get("TAGS")
        assert codes[record["position"]] == (properties.tag_code(tag) if tag else 0), record


def test_json_documents_are_what_the_manifest_lists() -> None:
    """Row 1.7, pitfall 9.15."""
    for file in MANIFEST["files"]:
        if file["path"].endswith(".json"):
            assert (STORE / file["path"]).stat().st_size == file["size"]
    offsets = (STORE / "config" / "consumerOffset.json").read_text(encoding="utf-8")
    with pytest.raises(json.JSONDecodeError):
        json.loads(offsets)  # bare numeric keys: why readers of these files need more than a JSON parser


def index_of(store: _core.Store, directory: Path) -> _core.Index:
    return _core.Index(store, str(directory / "index"), slots=INDEX_SLOTS, entries=INDEX_ENTRIES, trusted_until=None)


def test_index_made_from_the_log_is_the_one_apache_wrote(directory: Path, store: _core.Store) -> None:
    """Row 3.5, pitfall 9.16."""
    (theirs,) = (directory / "index").iterdir()
    expected = theirs.read_bytes()
    theirs.unlink()
    store.recover(0, True)
    index = index_of(store, directory)
    index.catch_up(store.max_position, 1 << 30, theirs.name)
    assert theirs.read_bytes() == expected
    index.close()
    # And taken up as it is: nothing is missing in it, and nothing is put again.
    index = index_of(store, directory)
    index.catch_up(store.max_position, 1 << 30, "20990101000000000")
    assert [file.name for file in (directory / "index").iterdir()] == [theirs.name]
    assert theirs.read_bytes() == expected


def test_messages_are_found_in_the_index_apache_wrote(directory: Path, store: _core.Store) -> None:
    store.recover(0, True)
    index = index_of(store, directory)
    for record in RECORDS:
        known = record["properties"]
        found = [
            index.find(record["topic"], name, is_tag=is_tag, count_max=64, begin=0, end=2**63 - 1)[0]
            for name, is_tag in ((known.get("UNIQ_KEY"), False), (known.get("KEYS"), False), (known.get("TAGS"), True))
            if name is not None
        ]
        indexed = record["sysFlag"] & ROLLED_BACK != ROLLED_BACK
        assert all((record["position"] in positions) is indexed for positions in found)
