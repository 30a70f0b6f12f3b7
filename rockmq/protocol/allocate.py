"""How a group shares queues (AllocateMessageQueueAveragely.java; clients' spec, 3.3).

Every member works out the same shares from the same two sorted lists, so all must sort and count exactly as Java does.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Q = TypeVar("Q")


def sort_clients(client_ids: Iterable[str]) -> list[str]:
    """Client ids in the order of Java strings, which is that of UTF-16 units."""
    return sorted(set(client_ids), key=lambda text: text.encode("utf-16-be", errors="surrogatepass"))


def averagely(queues: Sequence[Q], client_ids: Sequence[str], client_id: str) -> list[Q]:
    """The share of `client_id`: neighbouring queues, the first clients one more than the others. Nothing for a stranger."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    count, rest = divmod(len(queues), len(client_ids))
    size = 1 if len(queues) <= len(client_ids) else count + (index < rest)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + size])


def in_a_circle(queues: Sequence[Q], client_ids: Sequence[str], client_id: str) -> list[Q]:
    """The share of `client_id` when queues are dealt like cards (AllocateMessageQueueAveragelyByCircle.java)."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])
