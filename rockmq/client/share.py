"""The queues of a consumer that are ours, from the pull to the loss: what is between sharing them out (`rebalance.py`) and
working on their messages (`outcomes.py`)."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from rockmq.base.tasks import Tasks
from rockmq.client.consume_stats import TopicStats
from rockmq.client.consumer_options import Options
from rockmq.client.decoding import Decoder
from rockmq.client.delivery import Inbox, consumed
from rockmq.client.instance import Instance
from rockmq.client.locks import Locks
from rockmq.client.member import until
from rockmq.client.offsets import OffsetStore
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.outcomes import Ended
from rockmq.client.process_queue import SPAN_MAX, Cache, Limits, ProcessQueue
from rockmq.client.pull import PullLoop
from rockmq.client.rebalance import Rebalancer
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 0.3
"""How long handlers have to end when their queue is given up."""
GIVE_UP_ORDERLY_SECONDS = 20.0
"""How long the same queue stays locked while its handler goes on (RebalancePushImpl.UNLOCK_DELAY_TIME_MILLS)."""


class Share:
    """Pulls what is ours into the inbox, and ends it when it is to be given up."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        options: Options,
        *,
        offsets: OffsetStore,
        inbox: Inbox,
        cache: Cache,
        outcome: Ended,
        locks: Locks | None,
        decoder: Decoder[Any] | None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._options = options
        self._offsets = offsets
        self._inbox = inbox
        self._cache = cache
        self._outcome = outcome
        self._locks = locks
        self._decoder = decoder
        self._limits = Limits(
            options.queue_messages_max,
            options.queue_bytes_max,
            float("inf") if options.order else SPAN_MAX,
            options.topic_messages_max,
            options.topic_bytes_max,
        )
        self.rebalancer = Rebalancer(
            instance,
            group,
            subscriptions,
            offsets,
            opened=self._open,
            give_up=self._give_up,
            strategy=None if options.broadcast else options.allocate,
            locks=locks,
            listener=options.on_rebalance,
        )
        self.stats: dict[str, TopicStats] = {}
        """By topic, of all that were ever ours."""
        self._tasks = Tasks()
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._closed = False

    @property
    def queues(self) -> dict[MessageQueue, ProcessQueue]:
        return self.rebalancer.queues

    def start(self) -> None:
        self._tasks.start(self.rebalancer.run(), f"rebalance of {self._group}")
        if self._locks is not None:
            keep = self._locks.keep(self.queues.values, self._offer, self._locked_by_others)
            self._tasks.start(keep, f"locks of {self._group}")

    async def close(self) -> None:
        """Take and pull no more. The queues stay as they are, to be committed."""
        self._closed = True
        await self._tasks.close()

    def pull_anew(self, topic: str) -> None:
        """Other messages of the topic are wanted now."""
        for process_queue in [each for each in self._pulls if each.queue.topic == topic and each.leaving_since is None]:
            self._pulls[process_queue].cancel()
            self._open(process_queue)

    def _open(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        process_queue.limits = self._limits
        process_queue.decoder = self._decoder
        work = self._instance.stats.consumed(self._group, queue.topic)
        process_queue.topic_stats = self.stats.setdefault(queue.topic, TopicStats(work))
        loop = PullLoop(
            self._instance,
            self._group,
            self._subscriptions[queue.topic],
            process_queue,
            room=self._cache.room,
            deliver=self._deliver,
            moved=self._moved,
            batch=self._options.pull_batch,
            interval=self._options.pull_interval,
            # Apache's broker may be slow to store what a pull tells, and go back behind what was stored when a queue was
            # given up. Concurrent members bear that; in order the next one is to begin where this one was.
            commits=not self._options.broadcast and not self._options.order,
        )
        name = f"pull of {queue.topic} {queue.queue_id} on {queue.broker_name}"
        self._pulls[process_queue] = self._tasks.start(loop.run(), name)
        self._limits.share(len(self._pulls))

    def _deliver(self, process_queue: ProcessQueue, found: list[StoredMessage]) -> None:
        self._cache.add(process_queue, [stored.queue_offset for stored in found], sum([stored.size for stored in found]))
        self._inbox.put(consumed(found, process_queue, self._outcome))

    def _moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has nothing at our offset: begin anew at the one it named, and make that the group's."""
        self.begin_anew({process_queue: offset})

    def begin_anew(self, wanted: Mapping[ProcessQueue, int]) -> None:
        """Go on elsewhere in these queues, and make that the group's offsets; not when they are ours no longer."""
        if self._closed:
            return
        offsets = {each: offset for each, offset in wanted.items()
                   if each.leaving_since is None and each.queue.topic in self._subscriptions}  # fmt: skip
        self._inbox.withhold(*offsets)
        for process_queue, offset in offsets.items():
            pull = self._pulls[process_queue]
            if pull is not asyncio.current_task():  # which ends by itself, as its queue is dropped
                pull.cancel()
            self._drop(process_queue)
            self.rebalancer.open(process_queue.queue, offset, process_queue.locked_until)
        self._tasks.start(self._offsets.commit({each.queue: offset for each, offset in offsets.items()}), "new offsets")

    async def _give_up(self, process_queues: Collection[ProcessQueue]) -> None:
        for process_queue in process_queues:
            self._pulls[process_queue].cancel()
        self._inbox.withhold(*process_queues)
        await until(lambda: not any(each.delivered for each in process_queues), GIVE_UP_SECONDS)
        # Concurrently the next owner may well work on what our handlers still have; in order it mustn't.
        ending = [each for each in process_queues if not each.dropped and not (self._locks and self._is_busy(each))]
        positions = positions_of(ending)
        for process_queue in ending:
            self._drop(process_queue)
        await self._offsets.commit(positions)
        if self._locks is not None:
            await self._locks.unlock(positions)

    def _is_busy(self, process_queue: ProcessQueue) -> bool:
        """Whether a queue that is given up is still worked on; those who do are told when it takes too long."""
        assert process_queue.leaving_since is not None
        late = asyncio.get_running_loop().time() - process_queue.leaving_since > GIVE_UP_ORDERLY_SECONDS
        if late:
            for block in process_queue.blocks:
                block.interrupt()
        return bool(process_queue.blocks) and not late

    def _drop(self, process_queue: ProcessQueue) -> None:
        del self._pulls[process_queue]
        self._limits.share(len(self._pulls))
        self._cache.drop(process_queue)
        self._inbox.lost(process_queue)
        self._outcome.lost(process_queue)

    def _offer(self, process_queue: ProcessQueue) -> None:
        assert isinstance(self._inbox, OrderlyInbox)
        self._inbox.offer(process_queue)

    def _locked_by_others(self, process_queues: Collection[ProcessQueue]) -> None:
        """They are worked on elsewhere: whatever is done with them here isn't to be stored."""
        gone = [each for each in process_queues if not each.dropped]
        self._inbox.withhold(*gone)
        for process_queue in gone:
            self._pulls[process_queue].cancel()
            self._drop(process_queue)
        self.rebalancer.lose(gone)
        self.rebalancer.wake()


def positions_of(process_queues: Collection[ProcessQueue]) -> dict[MessageQueue, int]:
    """What may be committed of each."""
    return {each.queue: each.offset for each in process_queues}
