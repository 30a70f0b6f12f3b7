"""Who may consume a queue in order (RebalanceLockManager.java): locks per group and queue, renewed by their owner."""

from dataclasses import dataclass

from rockmq.base.clock import Clock
from rockmq.protocol.bodies.common import MessageQueue

EXPIRY_SECONDS = 60.0
LOCKS_MAX = 500_000
"""Queues that all groups together may have locked, some 300 bytes each."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """Grants each queue of a group to one client at a time; a lock that isn't renewed for 60 s is anybody's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def fault(self, group: str, queues: list[MessageQueue]) -> str | None:
        """Why these can't be locked now, None if they can."""
        locks = self._groups.get(group, {})
        count = sum(map(len, self._groups.values())) + sum(queue not in locks for queue in queues)
        return None if count <= LOCKS_MAX else f"{count} queues would be locked; the bound is {LOCKS_MAX}"

    def lock(self, group: str, client_id: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        """The queues that are locked for this client now: exactly these, of those asked for."""
        now = self._clock.monotonic()
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id or now - held.renewed > EXPIRY_SECONDS:
                locks[queue] = _Lock(client_id, now)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: list[MessageQueue]) -> None:
        """Give up queues; those held by others stay theirs."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_held(self, group: str) -> bool:
        """Whether somebody of the group holds any queue, so that it consumes in order."""
        bound = self._clock.monotonic() - EXPIRY_SECONDS
        return any(held.renewed >= bound for held in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Forget locks nobody renews."""
        bound = self._clock.monotonic() - EXPIRY_SECONDS
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if held.renewed < bound]:
                del locks[queue]
            if not locks:
                del self._groups[group]
