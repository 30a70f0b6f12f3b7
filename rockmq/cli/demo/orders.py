"""The orders. Who sends an order and as which in his row can be told from its number, so that any two records of it can
be compared: sellers take turns, order `n` is number `n // sellers` of seller `n % sellers`."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from rockmq.client import Message

TOPIC = "orders"
GROUP = "billing"
SELLERS_MAX = 128
_ITEMS = (("tea", 4.9), ("coffee", 7.5), ("kettle", 39.0), ("teapot", 24.0), ("mug", 8.5), ("honey", 6.2))


@dataclass(frozen=True)
class Plan:
    """Which orders there are. A seller sends one order after the other; all sellers send at once."""

    orders: int

    @property
    def sellers(self) -> int:
        return min(SELLERS_MAX, self.orders)

    def of(self, seller: int) -> Iterator[int]:
        return iter(range(seller, self.orders, self.sellers))

    def place(self, order: int) -> tuple[int, int]:
        """(seller, which of his orders it is)"""
        return order % self.sellers, order // self.sellers


def message(plan: Plan, order: int) -> Message:
    seller, _ = plan.place(order)
    item, price = _ITEMS[order % len(_ITEMS)]
    count = random.randint(1, 5)
    body = {"order": order, "customer": customer(seller), "item": item, "count": count, "total": round(price * count, 2)}
    return Message(TOPIC, json.dumps(body).encode(), tag=item, keys=f"order-{order}")


def customer(seller: int) -> str:
    """Whose orders a seller sends; they all go to the same queue, in order."""
    return f"customer-{seller}"


def number(body: bytes) -> int:
    """The number of the order in a message's body."""
    order = json.loads(body)["order"]
    assert isinstance(order, int), body
    return order
