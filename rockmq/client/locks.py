"""The brokers' locks on the queues of an orderly consumer (RebalanceImpl.lock, lockAll, unlockAll; clients' spec, 3.7).

A broker keeps a lock for 60 s after it was last asked for. We ask every 20 s, and hand out no message of a queue whose lock
is older than 30 s.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable

from rockmq.base.errors import RemotingError, RockMQError
from rockmq.client.instance import Instance
from rockmq.client.process_queue import ProcessQueue
from rockmq.protocol import json
from rockmq.protocol.bodies.client import LockBatchBody, LockedQueues
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import LockBatch, UnlockBatch

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0
VALID_SECONDS = 30.0
AGAIN_SECONDS = 3.0
"""How soon a lock that couldn't be renewed is asked for again."""
TIMEOUT = 1.0


class Locks:
    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._soon = asyncio.Event()
        self._held: set[MessageQueue] = set()
        """What brokers may have locked for us: an answer that was lost may have been a grant."""
        self._silent: set[str] = set()
        """Brokers of which it was told that they can't be asked."""

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, float | None]:
        """Ask for locks: until when each is ours, in seconds of the event loop, or None where another has it. A queue isn't
        among these when its broker couldn't be asked."""
        asked = await asyncio.gather(*(self._lock(broker, each) for broker, each in self._by_broker(queues).items()))
        return {queue: until for answer in asked for queue, until in answer.items()}

    async def _lock(self, broker: str, queues: list[MessageQueue]) -> dict[MessageQueue, float | None]:
        until = asyncio.get_running_loop().time() + VALID_SECONDS
        body = self._body(queues)
        try:
            to = self._address(queues[0])
            self._held.update(queues)
            answer = await self._instance.ask(to, RequestCode.LOCK_BATCH_MQ, LockBatch(), body, TIMEOUT)
            granted = set(json.decode(answer.body, LockedQueues, "locked queues").queues)
        except RockMQError as error:
            if broker not in self._silent:
                self._silent.add(broker)
                log.warning(
                    "broker %s can't be asked for the locks of group %s, trying again: %s", broker, self._group, error
                )
            return {}
        self._silent.discard(broker)
        self._held.difference_update(set(queues) - granted)
        return {queue: until if queue in granted else None for queue in queues}

    async def unlock_all(self) -> None:
        """Let others have all that is ours."""
        await self.unlock(list(self._held))

    async def unlock_others(self, ours: Collection[MessageQueue]) -> None:
        """Let others have what isn't among these."""
        if others := self._held.difference(ours):
            await self.unlock(others)

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Let others have these. What fails is free when the broker has heard nothing for a minute."""
        await asyncio.gather(*(self._unlock(broker, each) for broker, each in self._by_broker(queues).items()))

    async def _unlock(self, broker: str, queues: list[MessageQueue]) -> None:
        try:
            to = self._address(queues[0])
            await self._instance.ask(to, RequestCode.UNLOCK_BATCH_MQ, UnlockBatch(), self._body(queues), TIMEOUT)
            self._held.difference_update(queues)
        except RockMQError as error:
            log.info("locks of group %s on broker %s stay until they are too old: %s", self._group, broker, error)

    def renew_soon(self) -> None:
        """A broker may have forgotten our locks."""
        self._soon.set()

    async def keep(
        self,
        queues: Callable[[], Collection[ProcessQueue]],
        locked: Callable[[ProcessQueue], None],
        lost: Callable[[list[ProcessQueue]], None],
    ) -> None:
        """Renew the locks of all queues until cancelled. `locked` is told each that is ours for longer now, `lost` those
        that another has."""
        loop = asyncio.get_running_loop()
        while True:
            late = any(each.locked_until <= loop.time() + VALID_SECONDS - RENEW_SECONDS for each in queues())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if late else RENEW_SECONDS):
                    await self._soon.wait()
            self._soon.clear()
            try:
                gone = await self._renew([each for each in queues() if each.leaving_since is None], locked)
                if gone:
                    log.warning("group %s: another member has the locks of %d of our queues; they are given up",
                                self._group, len(gone))  # fmt: skip
                    lost(gone)
            except Exception:  # without locks a consumer stands still and nobody knows
                log.exception("renewing the locks of group %s failed, trying again", self._group)

    async def _renew(self, ours: list[ProcessQueue], locked: Callable[[ProcessQueue], None]) -> list[ProcessQueue]:
        """Those that another has."""
        found = await self.lock(each.queue for each in ours)
        gone = []
        for process_queue in ours:
            until = found.get(process_queue.queue, process_queue.locked_until)
            if until is None:
                gone.append(process_queue)
            else:
                process_queue.locked_until = until
                locked(process_queue)
        return gone

    def _address(self, queue: MessageQueue) -> str:
        to = self._instance.routes.master(queue)
        if to is None:
            raise RemotingError("it has no master")
        return to

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return json.encode(LockBatchBody(consumer_group=self._group, client_id=self._instance.client_id, mq_set=queues))

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            found.setdefault(self._instance.routes.broker(queue), []).append(queue)
        return found
