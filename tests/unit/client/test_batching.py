"""How batches are cut, and their receipts."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rockmq.client.batching import PART_OVERHEAD, Part, split, spread
from rockmq.client.sending import SendReceipt
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import encode_batch

QUEUE = MessageQueue("T", "b", 3)


def part(size: int, name: str = "") -> Part:
    return Part(name, 0, b"x" * size, b"")


def test_the_size_of_a_part_is_what_it_costs() -> None:
    one = Part("id", 0, b"body", b"k\x01v\x02")
    assert one.size == len(encode_batch([(one.flag, one.body, one.properties)]))


@given(st.lists(st.integers(1, 300), max_size=40))
def test_runs_are_in_order_and_within_the_bound(sizes: list[int]) -> None:
    bound = 200
    runs = list(split(map(part, sizes), bound))
    assert [len(each.body) for run in runs for each in run] == sizes
    for run in runs:
        assert sum(each.size for each in run) <= bound or len(run) == 1
    for run, following in itertools.pairwise(runs):
        assert sum(each.size for each in run) + following[0].size > bound
    assert PART_OVERHEAD == 22


def test_receipts_of_the_parts() -> None:
    msg_ids = ["m0", "m1"]
    receipts = spread(SendReceipt("m0,m1", "A,B", QUEUE, 40), msg_ids)
    assert [(each.msg_id, each.offset_id, each.queue_offset) for each in receipts] == [("m0", "A", 40), ("m1", "B", 41)]
    whole = spread(SendReceipt("m0,m1", "X", QUEUE, 40), msg_ids)
    assert [each.offset_id for each in whole] == ["X", "X"]
    assert [each.queue_offset for each in spread(SendReceipt("m0,m1", "X", QUEUE, -1), msg_ids)] == [-1, -1], "not known"
