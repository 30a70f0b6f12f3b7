"""Transactions in the core: which sends and decisions a lane carries out itself, what it stores for them, and the table."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rockmq._core import Lane, StoreError, Transactions, decode_records, encode_frame
from tests.unit.core import stores

if TYPE_CHECKING:
    from rockmq._core import Record

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
NOW = 1_700_000_000_000
COMMIT, ROLLBACK = 8, 12
ASKED = "TRAN_MSG\x01true\x02PGROUP\x01g\x02UNIQ_KEY\x01K\x02TAGS\x01t\x02"


class Opened:
    """A store with a topic T of 4 queues, a table of transactions, and a connection."""

    def __init__(
        self, path: Path, *, begins: bool = True, pending_max: int = 100, recent_max: int = 100, op_size_max: int = 4096,
        append_crc_property: bool = False,
    ) -> None:  # fmt: skip
        self.store = stores.opened(path, append_crc_property=append_crc_property)
        self.store.recover(0, True)
        self.store.set_ordinary("T", 4, False)
        self.table = Transactions(
            self.store,
            begins=begins,
            time_out_ms=6000,
            pending_max=pending_max,
            recent_max=recent_max,
            op_size_max=op_size_max,
        )
        self.lane = Lane(self.store, stores.PEER, 1 << 20)
        self.opaques = itertools.count(7)

    def feed(self, code: int, fields: dict[str, str], body: bytes = b"", *, oneway: bool, now: int = NOW) -> bool:
        """Whether the lane did it, having answered unless it is one-way."""
        opaque = next(self.opaques)
        frame = encode_frame(0, code, opaque, 2 if oneway else 0, None, fields, body)
        replies, end, commands, self.arrivals, reason = self.lane.feed(frame, now)
        assert reason is None
        self.end_position = end
        if commands:
            assert (replies, len(commands), commands[0][0]) == (b"", 1, code)
            return False
        assert bool(replies) != oneway
        if replies:
            [answer] = Lane(None, stores.PEER, 1 << 20).feed(replies, 0)[2]
            assert (answer[0], answer[3], answer[4], answer[6]) == (0, opaque, 1, None)
            self.answer = answer[7]
        return True

    def prepare(self, properties: str = ASKED, *, sys_flag: int = 4, oneway: bool = False, **more: str) -> bool:
        fields = dict(zip("abcdefghijklm", ["g", "T", "TBW102", "4", "3", str(sys_flag), str(NOW - 5), "7", properties,
                                            "0", "false", "0", "false"], strict=True))  # fmt: skip
        return self.feed(310, fields | more, b"body", oneway=oneway)

    def end(self, offset: int, decision: int, *, oneway: bool = True, now: int = NOW, **more: str | None) -> bool:
        [*_, half] = [each for each in self.records(HALF) if each[4] == offset] or [None]
        position = half[5] if half is not None else 0
        fields: dict[str, str | None] = {
            "producerGroup": "g", "tranStateTableOffset": str(offset), "commitLogOffset": str(position),
            "commitOrRollback": str(decision), "msgId": "x", "fromTransactionCheck": "false", "transactionId": "",
        }  # fmt: skip
        given = {key: value for key, value in (fields | more).items() if value is not None}
        return self.feed(37, given, oneway=oneway, now=now)

    def records(self, topic: str, queue_id: int = 0) -> "list[Record]":
        buffers = self.store.get(topic, queue_id, 0, 1000, 1 << 20, 1 << 40, None)[5]
        return decode_records(stores.joined(buffers))


def test_a_half_message_and_its_commit(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    assert opened.prepare()
    [half] = opened.records(HALF)
    assert opened.answer["queueId"] == "3"
    assert (opened.answer["queueOffset"], opened.answer["transactionId"]) == ("0", "K")
    assert half[2:5] + half[6:10] == (0, 7, 0, 0, NOW - 5, stores.PEER, NOW)
    added = "MSG_REGION\x01Here\x02TRACE_ON\x01true\x02CLUSTER\x01Main\x02"
    own = "__transactionId__\x01K\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
    assert half[13:] == (b"body", HALF, (ASKED + added + own).encode())
    assert opened.table.get(0) == (0, 0, half[5], NOW - 5, 6000, True)
    assert opened.records("T", 3) == []
    assert opened.end(0, COMMIT, now=NOW + 1)
    [message] = opened.records("T", 3)
    assert message[2:5] + message[6:10] == (3, 7, 0, COMMIT, NOW - 5, stores.PEER, NOW + 1)
    assert message[12] == half[5]
    kept = ASKED.replace("TRAN_MSG\x01true\x02", "") + added + "__transactionId__\x01K\x02"
    assert message[13:] == (b"body", "T", kept.encode())
    assert (opened.table.get(0), opened.table.outcome(0), opened.table.untold) == (None, 0, 1)
    assert opened.end_position == message[5] + message[0]


def test_a_rollback_that_is_answered_stands_in_an_op_message(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    for _ in range(3):
        opened.prepare()
    assert opened.end(1, ROLLBACK)
    assert (opened.records(OP), opened.table.untold, opened.end_position) == ([], 1, 0)
    assert opened.end(0, ROLLBACK, oneway=False)
    [op] = opened.records(OP)
    assert opened.answer == {}, "which tells the gate that it isn't a send's"
    assert (op[13], op[8], opened.end_position) == (b"1,0,", stores.HOST, op[5] + op[0])
    assert op[15].startswith(b"TAGS\x01d\x02UNIQ_KEY\x01")
    assert opened.table.progress == (2, 1)
    assert opened.end(2, COMMIT, oneway=False)
    assert (len(opened.records(OP)), opened.table.untold, opened.table.progress) == (1, 1, (3, 1))
    assert opened.records("T", 0) == []


def test_what_waits_is_told(tmp_path: Path) -> None:
    opened = Opened(tmp_path, op_size_max=2)
    for topic, queue_id in ((HALF, 0), ("T", 3), (OP, 0)):
        opened.store.watch(topic, queue_id)
    opened.prepare()
    assert opened.arrivals == [(HALF, 0)]
    opened.end(0, COMMIT)
    assert opened.arrivals == [("T", 3), (OP, 0)]
    assert opened.end_position == opened.store.max_position


@pytest.mark.parametrize(
    "properties",
    [
        ASKED.replace("PGROUP\x01g\x02", ""),
        ASKED + "DELAY\x011\x02",
        ASKED + "DELAY\x010\x02",
        ASKED + "TIMER_DELAY_SEC\x011\x02",
        ASKED + "INNER_MULTI_DISPATCH\x01%LMQ%a\x02",
        ASKED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x01-1\x02",
        ASKED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x010123456789\x02",
        ASKED + "mine\x01" + "x" * 32_400 + "\x02",
        *(ASKED + f"{name}\x011\x02" for name in ("REAL_TOPIC", "REAL_QID", "__transactionId__")),
        *(ASKED + f"{name}\x011\x02" for name in ("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET")),
    ],
)
def test_an_unusual_half_message_is_for_python(tmp_path: Path, properties: str) -> None:
    opened = Opened(tmp_path)
    assert not opened.prepare(properties)
    assert (opened.store.max_position, len(opened.table)) == (0, 0)


def test_flags_and_bounds_of_half_messages(tmp_path: Path) -> None:
    opened = Opened(tmp_path / "a", pending_max=2)
    assert [opened.prepare(sys_flag=flag) for flag in (8, 12, 0x80, 4, 0, 4)] == [False, False, False, True, True, False]
    assert not opened.prepare("TAGS\x01t\x02"), "a flag without the property"
    assert not opened.prepare(m="true"), "a batch"
    opened.end(0, ROLLBACK)
    assert opened.prepare(ASKED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02", oneway=True)
    assert opened.table.get(2) == (2, 2, opened.records(HALF)[2][5], NOW - 5, 60_000, True)
    assert opened.end(2, ROLLBACK)
    opened.store.set_writable(False)
    assert not opened.prepare()
    opened.store.set_writable(True)
    opened.store.clear_ordinary("T")
    assert not opened.prepare()
    assert not Opened(tmp_path / "b", begins=False).prepare()


@pytest.mark.parametrize(
    "changes",
    [
        {"producerGroup": None},
        {"tranStateTableOffset": None},
        {"commitLogOffset": None},
        {"commitOrRollback": None},
        {"msgId": None},
        {"producerGroup": "other"},
        {"tranStateTableOffset": "1"},
        {"tranStateTableOffset": "-1"},
        {"tranStateTableOffset": str(2**63)},
        {"commitLogOffset": "1"},
        {"commitLogOffset": "-1"},
        {"commitLogOffset": str(2**62)},
        {"commitOrRollback": "0"},
        {"commitOrRollback": "4"},
        {"commitOrRollback": str(2**32 + 8)},
        {"fromTransactionCheck": "perhaps"},
        {"lo": "perhaps"},
    ],
)
@pytest.mark.parametrize("oneway", [False, True])
def test_an_end_that_isnt_right_is_for_python(tmp_path: Path, changes: dict[str, str | None], oneway: bool) -> None:
    opened = Opened(tmp_path)
    opened.prepare()
    position, pending = opened.store.max_position, opened.table.get(0)
    assert not opened.end(0, COMMIT, oneway=oneway, **changes)
    assert (opened.store.max_position, opened.table.get(0)) == (position, pending)
    assert opened.end(0, COMMIT, oneway=oneway)


def test_no_decision_goes_before_one_that_is_left_to_python(tmp_path: Path) -> None:
    """Of two the first counts. Sends and decisions of later chunks aren't held up."""
    opened = Opened(tmp_path)
    opened.prepare()
    position = opened.store.max_position
    fields = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0", "msgId": "x"}
    decisions = [COMMIT + 256, ROLLBACK, COMMIT]
    frames = [encode_frame(0, 37, 1, 2, None, fields | {"commitOrRollback": str(each)}, b"") for each in decisions]
    _, end, commands, _, _ = opened.lane.feed(b"".join(frames), NOW)
    assert [command[7]["commitOrRollback"] for command in commands] == [str(each) for each in decisions]
    assert (end, opened.store.max_position) == (0, position)
    assert opened.end(0, COMMIT)


def test_what_python_decides_is_left_to_it(tmp_path: Path) -> None:
    """And whatever the store doesn't take; what is left is pending as before."""
    opened = Opened(tmp_path)
    opened.prepare()
    opened.prepare(ASKED + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02")
    opened.store.set_writable(False)
    assert not opened.end(0, COMMIT)
    assert not opened.end(0, ROLLBACK)
    opened.store.set_writable(True)
    opened.store.clear_ordinary("T")
    assert not opened.end(0, COMMIT), "a topic that was deleted"
    opened.store.set_ordinary("T", 3, False)
    assert not opened.end(0, COMMIT), "a queue that it hasn't any more"
    opened.store.set_ordinary("T", 4, False)
    assert not opened.end(1, ROLLBACK, now=NOW - 5 + 60_001), "too late"
    assert opened.end(1, ROLLBACK, now=NOW - 5 + 60_001, fromTransactionCheck="true"), "asked for"
    root, _offset, position, since, immunity, _sure = opened.table.get(0) or (0, 0, 0, 0, 0, True)
    opened.table.add(root, 0, position, since, immunity, False)
    assert not opened.end(0, COMMIT), "of an earlier life, and maybe ended then"
    opened.table.confirm(0)
    assert opened.end(0, COMMIT)
    assert not opened.end(0, COMMIT), "said again"
    assert len(opened.records("T", 3)) == 1


@pytest.mark.parametrize("which", [0, 1])
def test_each_half_message_of_a_transaction_ends_it(tmp_path: Path, which: int) -> None:
    opened = Opened(tmp_path, append_crc_property=True)
    opened.prepare()
    [half] = opened.records(HALF)
    said = half[15][: half[15].index(b"__CRC32#")] + b"TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x011\x02"
    position, _, offset, _ = opened.store.append(
        HALF, 0, half[13], said, now=NOW + 7, born_host=half[8], born_timestamp=half[7], flag=half[3]
    )
    opened.table.add(0, offset, position, NOW, 6000, True)
    assert opened.end(which, COMMIT)
    [message] = opened.records("T", 3)
    assert message[12] == position, "it is made of the last one"
    assert b"TRANSACTION_CHECK_TIMES\x011\x02" in message[15]
    assert message[15].count(b"__CRC32#") == 1
    assert not opened.end(1 - which, COMMIT)
    opened.table.tell(NOW)
    assert [op[13] for op in opened.records(OP)] == [b"0,1,"]


def test_the_last_outcomes_are_known(tmp_path: Path) -> None:
    opened = Opened(tmp_path, recent_max=2)
    for number in range(4):
        opened.prepare()
        opened.end(number, COMMIT if number % 2 else ROLLBACK)
    assert [opened.table.outcome(root) for root in range(4)] == [None, None, 1, 0]
    opened.table.remember(0, 2)
    assert [opened.table.outcome(root) for root in range(4)] == [2, None, None, 0]


def test_an_op_message_that_finds_no_room_is_tried_again(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    opened.prepare()
    opened.end(0, ROLLBACK)
    opened.store.set_writable(False)
    with pytest.raises(StoreError, match="not writable"):
        opened.table.tell(NOW)
    opened.store.set_writable(True)
    assert opened.table.tell(NOW) == (opened.store.max_position, False)
    assert opened.table.tell(NOW) == (0, False)


def test_who_is_due_comes_in_slices(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    for root in range(6):
        opened.table.add(root, root, 100 * root, NOW + root, 1000, True)
    opened.table.add(2, 9, 900, NOW + 2, 1000, True)

    def due(begin: int, now: int, carry_below: int = 0, count_max: int = 100) -> tuple[list[int], int]:
        found, go_on = opened.table.due(begin, 20, now, carry_below, count_max)
        return [each[1] for each in found], go_on

    assert due(0, NOW + 1000) == ([], 20)
    assert due(0, NOW + 1003) == ([0, 1, 9], 20)
    assert due(0, NOW + 1003, count_max=2) == ([0, 1], 3)
    assert due(3, NOW + 1003, count_max=2) == ([9], 20)
    assert due(0, NOW, carry_below=2) == ([0, 1], 20)
    assert opened.table.due(7, 5, NOW + 9999, 0, 1) == ([], 5)
    assert (len(opened.table), opened.table.oldest) == (6, NOW)
