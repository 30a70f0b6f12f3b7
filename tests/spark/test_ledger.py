"""What writers note, and whom it concerns."""

from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.client import MessageQueue
from rockmq.spark.ledger import Attempt, Done, Ledger, identify

QUEUE = MessageQueue("orders", "broker-a", 3)
DONE = Done(rows=4, sent=3, found=0, bad=1)


def ledger(root: Path, batch: str = "7") -> Ledger:
    opened = Ledger(root, "query", batch)
    opened.open(identify(root))
    return opened


def test_a_fence_concerns_other_runs_and_the_same_partition(tmp_path: Path) -> None:
    notes = ledger(tmp_path)
    notes.fence("orders", Attempt(1, "a", 10), {QUEUE: 5})
    notes.fence("refunds", Attempt(1, "a", 10), {})

    assert notes.fences("orders", Attempt(1, "a", 10)) == []
    assert notes.fences("orders", Attempt(2, "a", 11)) == []
    assert notes.fences("orders", Attempt(1, "a", 12)) == [{QUEUE: 5}]
    assert notes.fences("orders", Attempt(2, "b", 11)) == [{QUEUE: 5}]
    assert ledger(tmp_path, "8").fences("orders", Attempt(1, "b", 10)) == []


def test_a_topic_may_have_any_legal_name(tmp_path: Path) -> None:
    notes = ledger(tmp_path)
    name = "%DLQ%a-b_c|d"
    notes.fence(name, Attempt(0, "a", 1), {MessageQueue(name, "b.c", 0): 1})

    assert notes.fences(name, Attempt(0, "b", 1)) == [{MessageQueue(name, "b.c", 0): 1}]


def test_a_batch_that_is_done_ends_those_before_it(tmp_path: Path) -> None:
    before, notes, other = ledger(tmp_path, "6"), ledger(tmp_path), Ledger(tmp_path, "another", "6")
    other.open(identify(tmp_path))
    after = ledger(tmp_path, "10")
    before.mark_done(DONE)
    assert notes.done() is None

    notes.mark_done(DONE)

    assert notes.done() == DONE
    assert not before.directory.exists()
    assert after.directory.exists()
    assert other.directory.exists()


def test_a_decision_tells_attempts_and_ends(tmp_path: Path) -> None:
    notes = ledger(tmp_path)
    assert notes.decided() is None

    notes.decide(["0.a.1"], {QUEUE: 9})

    found = notes.decided()
    assert found is not None
    assert (found.attempts, found.queues()) == (["0.a.1"], {QUEUE: 9})


def test_a_machine_that_sees_another_directory_is_told(tmp_path: Path) -> None:
    here, there = identify(tmp_path / "driver"), Ledger(tmp_path / "executor", "query", "7")

    with pytest.raises(ConfigError, match="isn't the same directory on this machine as on the driver"):
        there.open(here)
    identify(tmp_path / "executor")
    with pytest.raises(ConfigError, match="isn't the same directory"):
        there.open(here)


def test_a_ledger_keeps_its_id(tmp_path: Path) -> None:
    assert identify(tmp_path / "new") == identify(tmp_path / "new")


def test_a_ledger_that_cannot_be_is_a_wrong_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="option 'ledger'"):
        identify(tmp_path / "file" / "below")
    (tmp_path / "ledger.json").write_text("{")
    with pytest.raises(ConfigError, match=r"ledger\.json is no note of a ledger"):
        identify(tmp_path)
