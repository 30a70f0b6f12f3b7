"""What a dump shows of queues that aren't simple ones: batch queues, whose units are several messages, and light queues."""

from pathlib import Path

import pytest

from rockmq._core import Store, decode_records
from rockmq.store import dump
from rockmq.store import layout as layouts
from rockmq.store.dump import Wanted
from tests.support.model import Record
from tests.unit.core.stores import append, opened
from tests.unit.store.test_verify import BATCH_QUEUE, LOG, QUEUE, make_batches

UNITS = [(0, 1), (1, 2), (3, 3), (6, 1), (7, 1), (8, 3), (11, 1), (12, 2), (14, 1)]
"""Offset and messages of each unit of B/0."""


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> layouts.Layout:
    return layouts.find(make_batches(tmp_path_factory.mktemp("batches") / "store"))


def core(root: Path) -> Store:
    store = opened(root, log_file_size=LOG, queue_file_size=QUEUE, batch_queue_file_size=BATCH_QUEUE)
    store.recover(0, True)
    return store


def test_units_of_batch_queues_are_shown_behind_the_entries_of_simple_queues(batches: layouts.Layout) -> None:
    found = list(dump.queue_entries(batches, Wanted()))
    assert [(each["topic"], each["queueId"]) for each in found] == [("T", 0)] * 9 + [("B", 0)] * 9 + [("B", 1)]
    of_queue = found[9:18]
    assert [(each["queueOffset"], each["messages"]) for each in of_queue] == UNITS
    assert "messages" not in found[0]
    store = core(batches.root)
    for each in of_queue:
        [record] = decode_records(store.read(int(str(each["position"]))) or b"")
        assert (record[0], record[4], record[9]) == (each["size"], each["queueOffset"], each["storeTimestamp"])
    store.close()


@pytest.mark.parametrize(
    ("start", "end", "units"),
    [(None, None, UNITS), (2, None, UNITS[1:]), (3, 8, UNITS[2:5]), (5, 6, UNITS[2:3]), (15, None, [])],
)
def test_a_unit_is_shown_for_each_of_its_messages(
    batches: layouts.Layout, start: int | None, end: int | None, units: list[tuple[int, int]]
) -> None:
    wanted = Wanted("B", 0, start, end)
    assert [(each["queueOffset"], each["messages"]) for each in dump.queue_entries(batches, wanted)] == units
    assert [record[4] for record in dump.records(batches, wanted)] == [offset for offset, _ in units]
    assert [record[4] for record in dump.records(batches, wanted._replace(limit=1))] == [offset for offset, _ in units[:1]]


def test_a_batch_queue_ends_where_a_unit_leads_back(batches: layouts.Layout, tmp_path: Path) -> None:
    root = make_batches(tmp_path / "store")
    with open(root / "batchconsumequeue" / "B" / "0" / f"{0:020}", "r+b") as file:
        file.seek(3 * 46)
        file.write(bytes(8))
    assert [each["queueOffset"] for each in dump.queue_entries(layouts.find(root), Wanted("B", 0))] == [0, 1, 3]


def test_records_of_a_light_queue_are_those_that_name_it(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_size=LOG, queue_file_size=QUEUE, light_queues_max=10)
    store.recover(0, True)
    ends = []
    for number in range(6):
        names = ["%LMQ%a", "%LMQ%b"] if number % 2 else ["%LMQ%b"]
        properties = b"INNER_MULTI_DISPATCH\x01%b\x02" % ",".join(names).encode()
        ends.append(append(store, Record("T", 0, b"%d" % number, properties), names)[0])
    store.close()
    layout = layouts.find(tmp_path)

    def bodies(wanted: Wanted) -> list[bytes]:
        return [record[13] for record in dump.records(layout, wanted)]

    assert bodies(Wanted("%LMQ%a")) == [b"1", b"3", b"5"]
    assert bodies(Wanted("%LMQ%b", 0, 1, 4)) == [b"1", b"2", b"3"]
    assert bodies(Wanted("%LMQ%a", position=ends[2], limit=1)) == [b"3"]
    assert bodies(Wanted("%LMQ%none")) == []
    entries = list(dump.queue_entries(layout, Wanted("%LMQ%a")))
    assert [(each["queueOffset"], each["position"]) for each in entries] == [(0, ends[1]), (1, ends[3]), (2, ends[5])]
