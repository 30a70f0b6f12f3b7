"""How a group shares queues (AllocateMessageQueueAveragely.java; clients' spec, 3.3).

Every member works out the same shares from the same two sorted lists, so all must sort and count exactly as Java does.
A strategy is a function of a topic's queues, the ids of the group's members and the id whose share is asked for.
`averagely` and `in_a_circle` are strategies, the other functions make one.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from rockmq.base.errors import ClientError
from rockmq.protocol.bodies.common import MessageQueue

Q = TypeVar("Q")

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], Sequence[MessageQueue]]
"""(queues of one topic, client ids, client id) to the share of that client; both lists sorted."""


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


def md5_hash(text: str) -> int:
    """The first four bytes of the MD5, unsigned (ConsistentHashRouter.MD5Hash)."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def by_consistent_hash(virtual_nodes: int = 10, hashed: Callable[[str], int] = md5_hash) -> Strategy:
    """Few queues change hands when members come and go (AllocateMessageQueueConsistentHash.java, ConsistentHashRouter.java):
    a queue belongs to the first point of the ring at its hash or behind it."""

    def allocate(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        ring = {hashed(f"{each}-{number}"): each for each in client_ids for number in range(virtual_nodes)}
        points = sorted(ring)
        if client_id not in client_ids or not points:
            return []

        def owner(queue: MessageQueue) -> str:
            name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[points[bisect_left(points, hashed(name)) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Queues of brokers named `room@name` with one of these rooms, in blocks of equal size; what is left over goes to the
    first members (AllocateMessageQueueByMachineRoom.java). Queues of other brokers are nobody's, so another member of the
    group must take them."""
    wanted = frozenset(rooms)

    def allocate(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        here = [queue for queue in queues if queue.broker_name.count("@") == 1 and queue.broker_name.split("@")[0] in wanted]
        index = client_ids.index(client_id)
        each, rest = divmod(len(here), len(client_ids))
        return here[index * each : (index + 1) * each] + ([here[index + each * len(client_ids)]] if index < rest else [])

    return allocate


def near_machine_room(
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
    inner: Strategy | None = None,
) -> Strategy:
    """Queues go to members in their own room, those of rooms without a member to all members
    (AllocateMachineRoomNearby.java). `inner` (AVG) shares out among them. The strategy raises ClientError when one of the
    functions knows no room."""
    share: Strategy = inner or averagely

    def allocate(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_of = _by_room(queues, room_of_queue)
        clients_of = _by_room(client_ids, room_of_client)
        own = room_of_client(client_id)
        found = list(share(queues_of.pop(own, []), clients_of[own], client_id))
        for room in sorted(queues_of.keys() - clients_of.keys()):
            found += share(queues_of[room], client_ids, client_id)
        return found

    return allocate


def configured(queues: Collection[MessageQueue]) -> Strategy:
    """Just these queues, whoever else has them (AllocateMessageQueueByConfig.java). Unlike there, a topic of which none is
    named, as the group's retry topic, is shared averagely: what was refused would come to nobody otherwise."""
    chosen = sorted(queues)

    def allocate(queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str) -> list[MessageQueue]:
        named = [queue for queue in chosen if queues and queue.topic == queues[0].topic]
        return named or averagely(queues, client_ids, client_id)

    return allocate


def _by_room(items: Sequence[Q], room_of: Callable[[Q], str]) -> dict[str, list[Q]]:
    rooms: dict[str, list[Q]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ClientError(f"{item} has no machine room: the function given to near_machine_room must name one")
        rooms.setdefault(room, []).append(item)
    return rooms
