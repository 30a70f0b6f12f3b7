"""A reconciliation that can't fail proves nothing: each check has a record that contradicts it."""

from dataclasses import dataclass, field

import pytest

from rockmq.cli.demo.orders import Plan, message, number
from rockmq.cli.demo.reconcile import Outcome, Queue, Row, reconcile

A, B = Queue("broker", 0), Queue("broker", 1)


@dataclass
class World:
    """Four orders of two sellers in two queues, stored, archived and consumed once each."""

    plan: Plan = field(default_factory=lambda: Plan(4))
    rows: list[Row] = field(default_factory=lambda: [Row(A, 0, 0), Row(B, 0, 1), Row(A, 1, 2), Row(B, 1, 3)])

    def __post_init__(self) -> None:
        self.acknowledged = {row.order: (row.queue, row.offset) for row in self.rows}
        self.consumed = list(self.rows)
        self.ends = {A: 2, B: 2}

    def outcome(self) -> Outcome:
        return reconcile(self.plan, self.acknowledged, self.rows, self.consumed, self.ends)

    def broken(self) -> list[str]:
        return [check.statement for check in self.outcome().checks if not check.holds]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(Plan, "sellers", 2)
    return World()


def test_all_in_order(world: World) -> None:
    outcome = world.outcome()
    assert outcome.holds
    assert [check.cases for check in outcome.checks] == [4, 4, 2, 4, 4, 4]
    assert (outcome.stored_again, outcome.consumed_again) == (0, 0)


def test_an_order_without_receipt(world: World) -> None:
    del world.acknowledged[2]
    assert world.broken() == ["every order was acknowledged"]


def test_an_acknowledged_order_that_is_gone(world: World) -> None:
    world.rows.remove(Row(B, 1, 3))
    assert "each acknowledged order is archived where its receipt says" in world.broken()


def test_another_order_where_an_acknowledged_one_was(world: World) -> None:
    """As when a crash takes a message away and its offset is given to the next one."""
    world.rows[2] = Row(A, 1, 0)
    assert "each acknowledged order is archived where its receipt says" in world.broken()


def test_a_hole_in_the_archive(world: World) -> None:
    world.ends[A] = 3
    assert world.broken() == ["each queue is archived whole, every offset once"]


def test_a_message_archived_twice(world: World) -> None:
    world.rows.append(Row(A, 1, 2))
    assert world.broken() == ["each queue is archived whole, every offset once"]


def test_a_queue_that_the_broker_does_not_know(world: World) -> None:
    del world.ends[B]
    assert world.broken() == ["each queue is archived whole, every offset once"]


def test_an_order_nobody_consumed(world: World) -> None:
    world.consumed.pop()
    assert world.broken() == ["each acknowledged order was consumed"]


def test_a_consumed_message_that_is_not_stored(world: World) -> None:
    world.consumed.append(Row(A, 2, 2))
    assert world.broken() == ["nothing was consumed that isn't stored"]


def test_orders_that_changed_places(world: World) -> None:
    world.rows[0], world.rows[2] = Row(A, 1, 0), Row(A, 0, 2)
    world.acknowledged |= {0: (A, 1), 2: (A, 0)}
    world.consumed = list(world.rows)
    assert world.broken() == ["each customer's orders lie in the order they were sent"]


def test_repeats_are_counted_and_not_held_against_anybody(world: World) -> None:
    # Order 0 was stored, its answer lost, and it was sent again behind order 2 of another try.
    world.rows += [Row(A, 2, 0)]
    world.ends[A] = 3
    world.acknowledged[0] = (A, 2)
    world.consumed += [Row(A, 2, 0), Row(A, 0, 0), Row(B, 1, 3)]
    outcome = world.outcome()
    assert outcome.holds
    assert outcome.stored_again == 1
    assert outcome.consumed_again == 2


def test_an_order_tells_its_number_and_its_place() -> None:
    plan = Plan(1_000)
    placed = {plan.place(order): order for seller in range(plan.sellers) for order in plan.of(seller)}
    assert sorted(placed.values()) == list(range(1_000))
    for seller in range(plan.sellers):
        assert [plan.place(order)[1] for order in plan.of(seller)] == list(range(len(list(plan.of(seller)))))
    assert number(message(plan, 777).body) == 777
