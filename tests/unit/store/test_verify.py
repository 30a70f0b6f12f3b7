"""Each kind of damage, made by hand in a whole store of ours and in Apache's, is found and named."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rockmq import _core
from rockmq.store import dump
from rockmq.store import layout as layouts
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.repair import NEW, repair
from rockmq.store.verify import Report, verify
from tests.golden.stored import RECORDS, unpack
from tests.support.model import Record
from tests.unit.core.stores import append, copied, fresh, opened

LOG, QUEUE = 1 << 16, 2000
SLOTS, ENTRIES = 50, 200
NAME = "20260101000000000"
Damage = Callable[[Path], None]


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total


def checked(path: Path) -> Report:
    return verify(layouts.find(path), silent)


def make(path: Path) -> Path:
    """Three log files, two topics, an index."""
    store = fresh(path, log_file_size=LOG, queue_file_size=QUEUE)
    index = _core.Index(store, str(path / "index"), slots=SLOTS, entries=ENTRIES, trusted_until=None)
    for number in range(150):
        properties = b"UNIQ_KEY\x01u%d\x02KEYS\x01a%d b\x02TAGS\x01t%d" % (number, number, number % 3)
        record = Record("orders" if number % 3 else "bills", number % 2, bytes([number]) * 1000, properties)
        append(store, record)
    index.catch_up(store.max_position, 1 << 30, NAME)
    index.close()
    store.close()
    return path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("ours") / "store")


def poke(name: str, at: int, data: bytes) -> Damage:
    def do(path: Path) -> None:
        with open(path / name, "r+b") as file:
            file.seek(at)
            file.write(data)

    return do


FIRST, SECOND = "commitlog/00000000000000000000", "commitlog/00000000000000065536"
ORDERS = "consumequeue/orders/1/00000000000000000000"
INDEX_ENTRY_1 = 40 + 4 * SLOTS + 20


def test_clean_stores_have_no_finding(ours: Path, tmp_path: Path) -> None:
    report = checked(ours)
    assert report.findings == []
    assert (report.records, report.queue_entries, report.queues) == (150, 150, 4)
    assert report.index_entries == 150 * 4
    report = checked(unpack(tmp_path / "apache"))
    assert report.findings == []
    assert report.records == len(RECORDS)
    assert report.index_files == 1
    assert report.index_entries > 0


@pytest.mark.parametrize(
    ("damage", "kind", "file", "byte"),
    [
        (poke(FIRST, 200, b"\xff"), "crc", FIRST, 0),
        (poke(FIRST, 4, b"\0"), "record", FIRST, 0),
        (poke(FIRST, 0, b"\x7f"), "record", FIRST, 0),
        (poke(FIRST, 28, b"\x01"), "record", FIRST, 0),
        (poke(ORDERS, 20 * 3 + 7, b"\x55"), "queue entry", ORDERS, 60),
        (poke(ORDERS, 20 * 3 + 11, b"\x55"), "queue entry", ORDERS, 60),
        (poke(ORDERS, 20 * 3 + 19, b"\x55"), "queue entry", ORDERS, 60),
        (poke(ORDERS, 20 * 3, bytes(20)), "queue missing", ORDERS, 60),
        (poke(ORDERS, 20 * 90, struct.pack(">qiq", 0, 1, 1)), "queue entry", ORDERS, 1800),
        (poke(f"index/{NAME}", 36, struct.pack(">i", 999)), "index header", f"index/{NAME}", 36),
        (poke(f"index/{NAME}", 32, struct.pack(">i", 3)), "index header", f"index/{NAME}", 32),
        (poke(f"index/{NAME}", 16, struct.pack(">q", 3)), "index header", f"index/{NAME}", 16),
        (poke(f"index/{NAME}", INDEX_ENTRY_1 + 3, b"\x55"), "index entry", f"index/{NAME}", INDEX_ENTRY_1),
        (
            poke(f"index/{NAME}", INDEX_ENTRY_1 + 24, b"\0\0\0\0\0\0\0\x07"),
            "index entry",
            f"index/{NAME}",
            INDEX_ENTRY_1 + 20,
        ),
        (poke(f"index/{NAME}", INDEX_ENTRY_1 + 16, b"\0\0\0\x05"), "index entry", f"index/{NAME}", INDEX_ENTRY_1),
        (lambda path: (path / FIRST).write_bytes((path / FIRST).read_bytes()[:-9]), "log file", FIRST, 0),
        (lambda path: (path / ORDERS).write_bytes((path / ORDERS).read_bytes()[:-9]), "queue file", ORDERS, 0),
        (lambda path: shutil.rmtree(path / "consumequeue/orders"), "queue missing", ORDERS, 0),
        (lambda path: (path / "checkpoint").write_bytes(b"\xff" * 4096), "checkpoint", "checkpoint", 0),
        (lambda path: (path / "checkpoint").write_bytes(b"1"), "checkpoint", "checkpoint", 0),
    ],
)
def test_each_damage_is_found_where_it_is(
    ours: Path, tmp_path: Path, damage: Damage, kind: str, file: str, byte: int
) -> None:
    store = copied(ours, tmp_path / "store")
    damage(store)
    report = checked(store)
    assert (kind, file, byte) in [(each.kind, each.file, each.byte) for each in report.findings]


def test_a_slot_that_hides_entries_is_found(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    poke(f"index/{NAME}", 40, bytes(4 * SLOTS))(store)
    report = checked(store)
    assert set(report.kinds) == {"index slot"}


def test_records_behind_a_damage_are_still_checked(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    poke(FIRST, 4, b"\0")(store)
    report = checked(store)
    assert report.records == 149
    assert [finding.kind for finding in report.findings if finding.file == FIRST] == ["record"]


def test_a_torn_tail_is_told_from_a_damage(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    end = checked(store).end
    last = f"commitlog/{end - end % LOG:020}"
    poke(last, end % LOG, b"\0\0\x04\x00\xda\xa3\x20\xa7half of a rec")(store)
    (finding,) = checked(store).findings
    assert (finding.kind, finding.file, finding.byte) == ("tail", last, end % LOG)


@pytest.mark.parametrize("digit", ["\u00b2", "\uff12", "\u0662"])
def test_digits_of_other_scripts_are_no_number_of_a_file(ours: Path, tmp_path: Path, digit: str) -> None:
    """Superscript, full width, Arabic."""
    path = copied(ours, tmp_path / "store")
    layout = layouts.find(path)
    before = layouts.index_files(layout.index_directory), list(dump.queue_entries(layout, dump.Wanted()))
    (path / "consumequeue" / "orders" / digit).mkdir()
    (path / "commitlog" / f"{'0' * 19}{digit}").write_bytes(bytes(LOG))
    (path / "index" / f"{'0' * 16}{digit}").write_bytes(b"")
    assert layouts.find(path) == layout
    after = layouts.index_files(layout.index_directory), list(dump.queue_entries(layout, dump.Wanted()))
    assert after == before


def test_a_document_that_is_no_json_is_found(tmp_path: Path) -> None:
    store = unpack(tmp_path / "apache")
    (store / "config" / "topics.json").write_text("{half")
    assert [finding.file for finding in checked(store).findings] == ["config/topics.json"]


def test_a_topic_that_was_deleted_is_no_damage(tmp_path: Path) -> None:
    store = unpack(tmp_path / "apache")
    shutil.rmtree(store / "consumequeue" / "golden")
    assert {finding.kind for finding in checked(store).findings} == {"queue missing"}
    text = (store / "config" / "topics.json").read_text().replace('"golden"', '"other"')
    (store / "config" / "topics.json").write_text(text)
    report = checked(store)
    assert report.is_clean
    assert any("golden" in note for note in report.notes)


def test_a_second_life_of_a_topic_is_no_damage(tmp_path: Path) -> None:
    store = fresh(tmp_path, log_file_size=LOG, queue_file_size=QUEUE)
    for count in (9, 4):
        store.forget_queues("orders")
        store.delete_forgotten()
        for _ in range(count):
            append(store, Record("orders", 0, b"x", b""))
    store.close()
    assert checked(tmp_path).findings == []


def test_what_was_not_there_at_the_start_is_left_out(tmp_path: Path) -> None:
    """The store is open in this process, its last entries only in memory."""
    from rockmq.store.files import StoreLock

    store = fresh(tmp_path, log_file_size=LOG, queue_file_size=QUEUE)
    for _ in range(9):
        append(store, Record("orders", 0, b"x", b""))
    store.flush_queues(True)
    lock = StoreLock(tmp_path / "lock")
    report = checked(tmp_path)
    assert report.is_clean
    assert report.records == 9
    assert any("running" in note for note in report.notes)
    lock.release()
    store.close()


# Repair


def contents(path: Path, below: str) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted((path / below).rglob("*")) if each.is_file()}


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: shutil.rmtree(path / "consumequeue"),
        lambda path: shutil.rmtree(path / "consumequeue" / "orders"),
        poke(ORDERS, 60, b"\x55" * 400),
        poke(f"index/{NAME}", 40, b"\x55" * 400),
    ],
)
def test_repair_makes_what_recovery_would(ours: Path, tmp_path: Path, damage: Damage) -> None:
    store = copied(ours, tmp_path / "store")
    damage(store)
    before = contents(store, "commitlog")
    layout = layouts.find(store)._replace(queue_file_size=QUEUE)
    done = repair(layout, silent, cut=False, say=lambda line: None)
    assert (done.records, done.queues) == (150, 4)
    assert contents(store, "commitlog") == before
    assert contents(store, "consumequeue") == contents(ours, "consumequeue")
    made = [data for name, data in contents(store, "index").items()]
    assert made == list(contents(ours, "index").values())
    assert checked(store).is_clean
    assert not list(store.glob(f"*{NEW}"))


def test_repair_of_apaches_keeps_what_the_log_does_not_tell(tmp_path: Path) -> None:
    store = unpack(tmp_path / "apache")
    before = contents(store, "consumequeue")
    repair(layouts.find(store), silent, cut=False, say=lambda line: None)
    assert contents(store, "consumequeue") == before
    assert checked(store).is_clean


def test_the_log_is_cut_only_when_allowed(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    end = checked(store).end
    poke(f"commitlog/{end - end % LOG:020}", end % LOG, b"\0\0\x04\x00\xda\xa3\x20\xa7half of a rec")(store)
    before = contents(store, "commitlog")
    done = repair(layouts.find(store), silent, cut=False, say=lambda line: None)
    assert done.tail is not None
    assert contents(store, "commitlog") == before
    assert repair(layouts.find(store), silent, cut=True, say=lambda line: None).is_cut
    assert contents(store, "commitlog") == contents(ours, "commitlog")
    assert checked(store).is_clean


def test_a_damage_with_records_behind_it_is_never_cut(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    poke(SECOND, 4, b"\0")(store)
    before = contents(store, "commitlog")
    done = repair(layouts.find(store), silent, cut=True, say=lambda line: None)
    assert (done.records, done.tail, done.is_cut) == (149, None, False)
    assert contents(store, "commitlog") == before


def test_a_repair_that_was_broken_off_is_begun_anew(ours: Path, tmp_path: Path) -> None:
    store = copied(ours, tmp_path / "store")
    shutil.copytree(store / "consumequeue", store / f"consumequeue{NEW}")
    shutil.rmtree(store / "consumequeue" / "orders")
    repair(layouts.find(store), silent, cut=False, say=lambda line: None)
    assert contents(store, "consumequeue") == contents(ours, "consumequeue")


# The scrub's core


def test_scrub_reads_cold_files_and_finds_a_flipped_byte(ours: Path, tmp_path: Path) -> None:
    path = copied(ours, tmp_path / "store")
    store = opened(path, log_file_size=LOG, queue_file_size=QUEUE)
    store.recover(2 * LOG, True)
    poke(SECOND, 300, b"\xff")(path)
    at, found = 0, []
    while True:
        after, faults, more = store.scrub(at, 4096)
        assert more == 0
        found += faults
        if after == at:
            break
        at = after
    assert at == 2 * LOG
    assert [(fault[0], Path(fault[1]).name, fault[2]) for fault in found] == [("crc", f"{LOG:020}", 0)]
    store.close()


# Batch queues

BATCH_QUEUE = 46 * 5
UNITS, MORE_UNITS = (f"batchconsumequeue/B/0/{base:020}" for base in (0, BATCH_QUEUE))


def make_batches(path: Path) -> Path:
    """A topic with batch queues, whose queue 0 has nine units in two files, one with simple queues, and a deleted one."""
    store = opened(path, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    store.recover(0, True)
    store.set_batch("B")
    store.set_batch("gone")
    for number in range(9):
        append(store, Record("gone", 0, b"x", b"INNER_NUM\x012\x02", sys_flag=0xC0))
        batch = b"INNER_NUM\x01%d\x02" % (number % 3 + 1)
        append(store, Record("B", 0, b"%d" % number, batch, sys_flag=0xC0) if number % 4 else Record("B", 0, b"one", b""))
        append(store, Record("T", 0, b"x", b""))
    append(store, Record("B", 1, b"other queue", b""))
    store.forget_queues("gone")
    store.delete_forgotten()
    store.close()
    (path / "config").mkdir()
    (path / "config" / "topics.json").write_text('{"topicConfigTable":{"B":{},"T":{}}}')
    return path


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_batches(tmp_path_factory.mktemp("batches") / "store")


def lose_all(path: Path) -> None:
    """What is made again has the deleted topic too."""
    shutil.rmtree(path / "batchconsumequeue")


def test_clean_batch_queues_have_no_finding(batches: Path, tmp_path: Path) -> None:
    report = checked(batches)
    assert report.findings == []
    assert (report.records, report.queues, report.queue_entries) == (28, 3, 28)
    assert any("topics that were deleted: gone" in note for note in report.notes)
    again = copied(batches, tmp_path / "store")
    store = opened(again, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    store.recover(0, True)
    store.set_batch("B")
    store.forget_queues("B")
    store.delete_forgotten()
    store.set_batch("B")
    for queue_id in (0, 0, 1):
        append(store, Record("B", queue_id, b"x", b"INNER_NUM\x012\x02", sys_flag=0xC0))
    store.close()
    assert checked(again).findings == [], "the topic's first life needs no units"


@pytest.mark.parametrize(
    ("damage", "kind", "file", "byte"),
    [
        (poke(UNITS, 0, bytes(46)), "queue missing", UNITS, 0),
        (poke(UNITS, 46 * 4, bytes(46)), "queue missing", UNITS, 46 * 4),
        (poke(UNITS, 46 * 2 + 6, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2, bytes(8)), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2 + 11, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2 + 19, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2 + 27, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2 + 35, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2 + 37, b"\x55"), "queue entry", UNITS, 46 * 2),
        (poke(UNITS, 46 * 2, b"\xff" * 46), "queue entry", UNITS, 46 * 2),
        (lambda path: (path / UNITS).write_bytes((path / UNITS).read_bytes()[:-9]), "queue file", UNITS, 0),
        (lambda path: (path / MORE_UNITS).unlink(), "queue missing", MORE_UNITS, 0),
        (lose_all, "queue missing", UNITS, 0),
    ],
)
def test_each_damage_of_a_batch_queue_is_found_and_repaired(
    batches: Path, tmp_path: Path, damage: Damage, kind: str, file: str, byte: int
) -> None:
    """Row 3.3."""
    store = copied(batches, tmp_path / "store")
    damage(store)
    found = [(each.kind, each.file, each.byte, each.topic, each.queue_id) for each in checked(store).findings]
    assert (kind, file, byte, "B", 0) in found
    repair(layouts.find(store)._replace(batch_queue_file_size=BATCH_QUEUE), silent, cut=False, say=lambda line: None)
    made = contents(store, "batchconsumequeue")
    if damage is not lose_all:
        assert made == contents(batches, "batchconsumequeue")
        assert checked(store).is_clean
    again = opened(store, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    again.recover(0, True)
    assert again.queue_bounds("B", 0) == (0, 15)
    assert not list(store.glob(f"*{NEW}"))


def test_repair_knows_batch_queues_by_the_document(batches: Path, tmp_path: Path) -> None:
    """Row 4.1: with all queues lost, what was sent one by one is in batch queues again, and a deleted topic stays so."""
    store = copied(batches, tmp_path / "store")
    document = '{"topicConfigTable":{"B":{"topicName":"B","attributes":{"queue.type":"BatchCQ"}},"T":{"topicName":"T"}}}'
    (store / "config" / "topics.json").write_text(document)
    shutil.rmtree(store / "batchconsumequeue")
    shutil.rmtree(store / "consumequeue")
    sizes = layouts.find(store)._replace(batch_queue_file_size=BATCH_QUEUE, queue_file_size=QUEUE)
    repair(sizes, silent, cut=False, say=lambda line: None)
    assert contents(store, "batchconsumequeue") == contents(batches, "batchconsumequeue")
    assert contents(store, "consumequeue") == contents(batches, "consumequeue")


def test_a_unit_without_a_record_is_found(batches: Path, tmp_path: Path) -> None:
    store = copied(batches, tmp_path / "store")
    units = (store / MORE_UNITS).read_bytes()
    behind = struct.pack(">q", 1 << 40) + units[3 * 46 + 8 : 4 * 46]
    poke(MORE_UNITS, 4 * 46, behind)(store)
    [finding] = checked(store).findings
    assert (finding.kind, finding.file, finding.byte) == ("queue entry", MORE_UNITS, 4 * 46)
    assert finding.expected == "a record with offset 14, or no entry"


def test_queues_without_records_keep_their_offsets_over_a_repair(tmp_path: Path) -> None:
    """Pitfall 9.5: only their files tell where they go on."""
    store = opened(tmp_path, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    store.recover(0, True)
    store.set_batch("B")
    for _ in range(4):
        append(store, Record("B", 0, b"x", b"INNER_NUM\x012\x02", sys_flag=0xC0))
        append(store, Record("S", 0, b"x", b""))
    for _ in range(3):
        append(store, Record("T", 0, bytes(LOG // 2), b""))
    store.flush()
    store.flush_queues(True)
    store.delete_files_below(2 * LOG)
    expected = sorted(store.queues())
    assert ("B", 0, 8, 8) in expected
    assert ("S", 0, 4, 4) in expected
    store.close()
    repair(layouts.find(tmp_path)._replace(batch_queue_file_size=BATCH_QUEUE), silent, cut=False, say=lambda line: None)
    assert checked(tmp_path).is_clean
    store = opened(tmp_path, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    store.recover(2 * LOG, True)
    assert sorted(store.queues()) == expected
    store.close()


@pytest.mark.parametrize(
    ("at", "data", "kind"),
    [
        (40, bytes(20), "queue missing"),
        (20, struct.pack(">q", 0), "queue entry"),
        (80, struct.pack(">qi", 0, 9), "queue entry"),
    ],
    ids=["lost", "of another record", "of none"],
)
def test_entries_of_light_queues_are_checked(tmp_path: Path, at: int, data: bytes, kind: str) -> None:
    store = opened(tmp_path, log_file_size=LOG, queue_file_size=QUEUE, light_queues_max=1000)
    store.recover(0, True)
    for number in range(4):
        properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
        store.append(
            "T",
            0,
            b"%d" % number,
            properties,
            now=1,
            born_host=bytes(8),
            born_timestamp=1,
            light_queues=["%LMQ%a", "%LMQ%b"],
        )
    store.close()
    report = checked(tmp_path)
    assert (report.findings, report.queue_entries, report.queues) == ([], 12, 3)
    name = f"consumequeue/%LMQ%b/0/{0:020}"
    poke(name, at, data)(tmp_path)
    [finding] = checked(tmp_path).findings
    assert (finding.kind, finding.file, finding.byte) == (kind, name, at)


def test_repair_makes_light_queues_again(tmp_path: Path) -> None:
    """Row 2.5: those of a store of Apache's with enableLmq, and no others."""
    store = fresh(tmp_path, log_file_size=LOG, queue_file_size=QUEUE)
    for number in range(3):
        indexes = b"INNER_MULTI_QUEUE_OFFSET\x01%d,%d\x02" % (number, number)
        properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%gone\x02" + indexes
        append(store, Record("T", 0, b"x", properties))
    store.close()
    (tmp_path / "consumequeue" / "%LMQ%a" / "0").mkdir(parents=True)
    assert repair(layouts.find(tmp_path), silent, cut=False, say=lambda line: None).queues == 2
    light, simple = (tmp_path / "consumequeue" / topic / "0" / f"{0:020}" for topic in ("%LMQ%a", "T"))
    assert light.read_bytes() == simple.read_bytes()


@pytest.mark.parametrize("were_wanted", [False, True])
def test_repair_makes_light_queues_that_are_gone_if_a_broker_had_some(tmp_path: Path, were_wanted: bool) -> None:
    """Row 2.5: the checkpoint tells, and still does for the next start."""
    store = opened(tmp_path, log_file_size=LOG, queue_file_size=QUEUE, light_queues_max=1000)
    store.recover(0, True)
    append(store, Record("T", 0, b"x", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"), ["%LMQ%a"])
    end = store.max_position
    store.close()
    Checkpoint(position=end, had_light_queues=were_wanted).save(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "consumequeue")
    sizes = layouts.find(tmp_path)._replace(queue_file_size=QUEUE)
    assert repair(sizes, silent, cut=False, say=lambda line: None).queues == 1 + were_wanted
    assert (tmp_path / "consumequeue" / "%LMQ%a").exists() == were_wanted
    assert Checkpoint.load(tmp_path / "checkpoint").had_light_queues == were_wanted
