"""Transactions from their half message to their one end (TransactionalMessageServiceImpl.java; store spec, 6.3; ADR 13).

    prepare ──> pending ──> committed: stored where it was meant to go
                 │   │ ───> rolled back
                 └─┬─┘ ───> given up, after `transactionCheckMax` questions
                 checked: every `transactionCheckInterval` its producer is asked, and the half message written again behind

The core carries out what happens once per message: ordinary half messages, and commits and rollbacks of what is pending for
certain (`native/core/src/transactions.rs`). What isn't ordinary comes here, with all checks, in the same table.

Memory holds the pending ones, by root. All others are finished, and how is asked of the message index when somebody wants to
know: a committed message names its half message. That also tells of what a broker has committed before it was killed and
could say so in an op message. So those found pending at the start are looked up once before anything is done with them.

What is written: first the outcome, then, some seconds later and with others, the op message, and when that is durable the
progress, which the next start reads from.
"""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rockmq.base.clock import Clock
from rockmq.base.errors import RockMQError, StoreUnavailable
from rockmq.broker.clients import Client
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.finished_halves import FinishedHalves
from rockmq.broker.half_messages import Half, Outcome, outcome_in
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, ids, properties, topics
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import MessageFlag, TransactionState
from rockmq.protocol.headers.transaction import CheckTransactionState
from rockmq.protocol.message import readdressed
from rockmq.remoting.connection import WRITE_BUFFER_HIGH, Connection
from rockmq.remoting.dispatch import Refusal
from rockmq.store.get_result import GetStatus
from rockmq.store.message_store import MessageStore, Put

log = logging.getLogger(__name__)

PENDING_MAX = 500_000
"""Transactions that may be pending; over it no more are begun. Each costs some 100 bytes."""
RECENT_MAX = 10_000
"""Finished transactions whose outcome is kept in memory."""
CARRY_BEHIND = 10_000
"""Half messages behind one that waits without being asked about, from which on it is written again at the queue's end: what
a start has to read."""
PROPERTIES_ROOM = 128
"""Bytes that the properties of a half message may grow by when it is written again."""
LIGHT_QUEUE_ROOM = 48
"""And for each light queue, whose index the commit adds."""
SLICE = 20
"""Transactions that a round of checks looks after before others get the loop."""
FOUND_MAX = 1024
"""Messages with a unique key among which the end of a transaction is looked for, the newest."""
FOREVER_MS = 2**53


class Pending(NamedTuple):
    """A transaction whose producer hasn't decided. `offset` and `position` are those of its last half message."""

    root: int
    offset: int
    position: int
    since: int
    immunity_ms: int
    sure: bool
    """False for one found at the start, until it is known that no earlier life of the broker has finished it."""


class Transactions:
    """All transactions of a broker, from `load` to the close of `finished`. `producers` are the members of groups."""

    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        store: MessageStore,
        writer: DraftWriter,
        gate: DurabilityGate,
        offsets: ConsumerOffsets,
        producers: Mapping[str, Mapping[Connection, Client]],
        clock: Clock,
    ) -> None:
        self._options = options
        self._wanted = options.transactions
        self._topics = topic_table
        self._store = store
        self._writer = writer
        self._producers = producers
        self._clock = clock
        self._turns = itertools.count()
        self._table = store.transactions(
            begins=options.store.message_index_enable and not options.transactions.reject_transaction_message,
            time_out_ms=options.transactions.transaction_time_out,
            pending_max=PENDING_MAX,
            recent_max=RECENT_MAX,
            op_size_max=options.transactions.transaction_op_msg_max_size,
        )
        self.finished = FinishedHalves(store, self._table, gate, offsets)

    # The start of a broker

    async def load(self) -> None:
        """Take up what earlier lives of the broker, or Apache's, have left."""
        begin, end, done = await self.finished.load()
        roots: dict[tuple[str, int, bytes], int] = {}
        for number, offset in enumerate(each for each in range(begin, end) if each not in done):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            half = self._half_in_queue(offset)
            if half is None:
                continue
            if half.is_nameless_copy and half.origin in roots:
                self._table.forget(roots[half.origin])  # it goes on under another number
            roots[half.origin] = half.root
            self._add(half, sure=False)
        if self._table:
            log.info("%d transactions are pending", len(self._table))

    # What handlers ask for

    def prepare(self, draft: Draft) -> Put:
        """Store a message that nobody sees before its producer commits it.

        Raises Refusal, StoreUnavailable, ProtocolError.
        """
        self._check(draft)
        said = {name: value for name, value in draft.properties.items() if name not in _OURS}
        if unique_key := said.get(properties.UNIQ_KEY):
            said[properties.TRANSACTION_ID] = unique_key
        said |= {properties.REAL_TOPIC: draft.topic, properties.REAL_QID: str(draft.queue_id)}
        size_max = properties.SIZE_MAX - PROPERTIES_ROOM - LIGHT_QUEUE_ROOM * len(draft.light_queues)
        if len(properties.encode(said)) > size_max:
            remark = f"properties of a transactional message may have {size_max} bytes"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{remark} with those that the broker adds")
        stored = self._clock.now_ms()
        # Neither delayed nor in light queues before it is committed.
        half = replace(draft, topic=topics.TRANSACTION_HALF, queue_id=0, properties=said, light_queues=())
        put = self._writer.append(half)
        self._add(Half(put.queue_offset, put.position, stored, half), sure=True)
        return put

    def _add(self, half: Half, *, sure: bool) -> None:
        immunity_ms = min(half.immunity_ms(self._wanted.transaction_time_out), FOREVER_MS)
        self._table.add(half.root, half.offset, half.position, half.since, immunity_ms, sure)

    def _pending(self, root: int) -> Pending | None:
        found = self._table.get(root)
        return Pending(*found) if found is not None else None

    def _check(self, draft: Draft) -> None:
        """Raise Refusal if this can't be half a transaction."""
        if self._wanted.reject_transaction_message:
            name = self._options.identity.broker_name
            remark = f"the broker {name} takes no transactional messages (rejectTransactionMessage=true)"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if not self._options.store.message_index_enable:
            remark = "transactional messages need messageIndexEnable=true: the index tells after a crash what was committed"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if len(self._table) >= PENDING_MAX:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{PENDING_MAX} transactions are pending, and no more are begun")
        if not draft.properties.get(properties.PGROUP):
            remark = f"the property {properties.PGROUP} is missing: nobody could be asked whether to commit"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        immunity = draft.properties.get(properties.CHECK_IMMUNITY_TIME, "0")
        if not (immunity.isascii() and immunity.isdigit() and len(immunity) < 10):
            remark = f"{properties.CHECK_IMMUNITY_TIME} is {immunity[:32]!r}: expected seconds, 0 to 999999999"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        # Few producers would hear of it at the commit.
        self._writer.check(draft)
        for name in draft.light_queues:
            if not topics.is_light(name) or name == draft.topic or ("/" not in name and topics.light_fault(name)):
                remark = f"property {properties.INNER_MULTI_DISPATCH}: {name[:32]!r} can't be a light queue of {draft.topic}"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)

    def half_at(self, position: int) -> Half | None:
        """The half message at a position, None when there is none."""
        record = self._store.core.read(position) if position >= 0 else None
        return Half.of(*codec.decode_records(record)) if record is not None else None

    def is_known(self, root: int) -> bool:
        """Whether `outcome` can tell; if not, `find_out` first."""
        pending = self._pending(root)
        return pending.sure if pending is not None else self.outcome(root) is not None

    def outcome(self, root: int) -> Outcome | None:
        """What became of a transaction that is known; None when it is pending."""
        number = self._table.outcome(root)
        return Outcome(number) if number is not None else None

    async def find_out(self, half: Half) -> None:
        """Make it known what became of a transaction. Raises StoreUnavailable when that can't be had now."""
        before = self._pending(half.root)
        if before is not None:
            half = self._last_half(before) or half
        outcome = await self._search(half)
        if self.is_known(half.root):
            return  # while that was looked for
        pending = self._pending(half.root)
        if pending is None and before is not None:
            await self.find_out(half)  # ended meanwhile, and forgotten again
        elif pending is None:
            self._table.remember(half.root, Outcome.ROLLED_BACK if outcome is None else outcome)
        elif outcome is None:
            self._table.confirm(half.root)
        else:
            self._table.finish(half.root, outcome)

    def commit(self, root: int) -> None:
        """Store the message of a pending transaction where it is meant to go. Raises Refusal, StoreUnavailable,
        ProtocolError; it is still pending then."""
        pending = self._pending(root)
        half = self._last_half(pending) if pending is not None else None
        if half is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the prepared message is no longer in the log")
        if self._topics.get(half.real_topic) is None:
            remark = f"the topic {half.real_topic} was deleted; the transaction is pending as before"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        draft = half.draft
        draft.topic, draft.queue_id = half.real_topic, half.real_queue_id
        draft.sys_flag = draft.sys_flag & ~MessageFlag.TRANSACTION | TransactionState.COMMIT
        draft.prepared_transaction_offset = half.position
        for name in (properties.REAL_TOPIC, properties.REAL_QID, properties.TRAN_MSG):
            draft.properties.pop(name, None)
        light_queues = draft.properties.get(properties.INNER_MULTI_DISPATCH, "").rstrip(",")
        if self._options.store.light_queues and light_queues and topics.allows_light_queues(draft.topic):
            draft.light_queues = light_queues.split(",")
        try:
            self._writer.put(replace(draft, properties=dict(draft.properties)))
        except Refusal as refusal:
            if refusal.code != ResponseCode.MESSAGE_ILLEGAL:
                raise  # it may be taken later
            # It was taken once: the bound of a delay is another one now, or it was Apache's broker that took it.
            log.warning("transaction %s is delivered at once: %s", half.unique_key, refusal)
            self._writer.append(draft)
        self._table.finish(root, Outcome.COMMITTED)

    def roll_back(self, root: int) -> None:
        """End a pending transaction without its message. Raises StoreUnavailable."""
        if self._store.refusal is not None:
            raise StoreUnavailable(self._store.refusal)
        self._table.finish(root, Outcome.ROLLED_BACK)

    def figures(self) -> dict[str, object]:
        """For the runtime info."""
        oldest = self._table.oldest
        age = 0 if oldest is None else max(self._clock.now_ms() - oldest, 0)
        return {"transactionsPending": len(self._table), "transactionsOldestAgeMs": age}

    async def _search(self, half: Half) -> Outcome | None:
        """What became of a transaction by the message index, None when it wasn't committed and not given up."""
        store = self._store
        if not half.unique_key:
            return None  # Apache's 4.x stores such, if a client sends them
        if not await store.index_reaches(store.readable_limit):
            raise StoreUnavailable("the index is behind the log, or off: what became of the transaction isn't known yet")
        first = self._half_in_queue(half.root)
        positions = {half.position} if first is None else {half.position, first.position}
        for topic in (half.real_topic, topics.SCHEDULE, topics.TIMER, topics.TRANSACTION_CHECK_MAX):
            found = await store.query(topic, half.unique_key, FOUND_MAX, 0, FOREVER_MS, is_tag=False)
            for record in codec.decode_records(b"".join(found.records)):
                outcome = outcome_in(record, half, positions)
                if outcome is not None:
                    return outcome
        return None

    # Checks

    async def check(self) -> None:
        """Look after all that are pending: ask their producers, or give them up. StoreUnavailable ends the round."""
        begin, end = 0, self._next_half
        while begin < end:  # what is written again meanwhile is behind the end
            now, carry_below = self._clock.now_ms(), self._next_half - CARRY_BEHIND
            found, begin = self._table.due(begin, end, now, carry_below, SLICE)
            for pending in itertools.starmap(Pending, found):
                if self._pending(pending.root) != pending:
                    continue  # ended since
                try:
                    await self._look_after(pending)
                except StoreUnavailable as error:
                    log.warning("no more transactions are checked now: %s", error)
                    return
                except RockMQError as error:
                    log.error("the transaction at offset %d can't be checked: %s", pending.offset, error)
            await asyncio.sleep(0)

    async def _look_after(self, pending: Pending) -> None:
        age = self._clock.now_ms() - pending.since
        if age <= pending.immunity_ms:
            self._carry(pending)
            return
        half = self._last_half(pending)
        if half is None:
            log.error("the half message at offset %d is no longer in the log: its transaction is lost", pending.offset)
            self._table.finish(pending.root, Outcome.ROLLED_BACK)
            return
        if not pending.sure:
            await self.find_out(half)
            pending = pending._replace(sure=True)
            if self._pending(pending.root) != pending:
                return
        reserved = self._options.retention.file_reserved_time * 3_600_000
        if half.checks >= self._wanted.transaction_check_max or (reserved and age > reserved):
            await self._give_up(pending, half)
            return
        producer = self._producer(half.group)
        if producer is None:
            self._carry(pending)  # one that can't be asked isn't asked in vain so and so often
            return
        self._ask(producer, self._write_again(pending, half, half.checks + 1), half)

    def _producer(self, group: str) -> Connection | None:
        """A producer of the group that can be asked, each in its turn."""
        ready = [
            each
            for each in self._producers.get(group, ())
            if not each.transport.is_closing() and each.transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH
        ]
        return ready[next(self._turns) % len(ready)] if ready else None

    def _carry(self, pending: Pending) -> None:
        """Write a half message again if it keeps too many others from being forgotten."""
        if self._next_half - pending.offset > CARRY_BEHIND:
            half = self._last_half(pending)
            if half is not None:
                self._write_again(pending, half, half.checks)

    def _write_again(self, pending: Pending, half: Half, checks: int) -> Put:
        draft = half.draft
        draft.properties[properties.TRAN_PREPARED_QUEUE_OFFSET] = str(pending.root)
        if checks:
            draft.properties[properties.TRANSACTION_CHECK_TIMES] = str(checks)
        put = self._writer.append(draft)
        self._table.add(pending.root, put.queue_offset, put.position, pending.since, pending.immunity_ms, pending.sure)
        return put

    @property
    def _next_half(self) -> int:
        """The offset of the next half message."""
        return self._store.bounds(topics.TRANSACTION_HALF, 0)[1]

    def _ask(self, producer: Connection, put: Put, half: Half) -> None:
        """Ask about a half message that was written again."""
        record = self._store.core.read(put.position)
        assert record is not None, put
        header = CheckTransactionState(
            topic=topics.TRANSACTION_HALF,
            tran_state_table_offset=put.queue_offset,
            commit_log_offset=put.position,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            offset_msg_id=ids.offset_id(self._store.store_host, put.position),
            bname=self._options.identity.broker_name,
        )
        body = readdressed(record, half.real_topic, half.real_queue_id)
        producer.send_oneway(codec.request(RequestCode.CHECK_TRANSACTION_STATE, header, body))

    async def _give_up(self, pending: Pending, half: Half) -> None:
        name = topics.TRANSACTION_CHECK_MAX
        saved = self._topics.put(
            self._topics.get(name) or TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
        )
        if saved is not None:
            await saved
            if self._pending(pending.root) != pending:
                return
        draft = half.draft
        draft.topic, draft.queue_id = name, 0
        draft.prepared_transaction_offset = half.position
        self._writer.append(draft)
        log.error("transaction %s of group %s was given up after %d checks", half.unique_key, half.group, half.checks)
        self._table.finish(pending.root, Outcome.GIVEN_UP)

    # Reading

    def _last_half(self, pending: Pending) -> Half | None:
        return self.half_at(pending.position)

    def _half_in_queue(self, offset: int) -> Half | None:
        """The half message at an offset, None when it isn't there any more."""
        result = self._store.get(topics.TRANSACTION_HALF, 0, offset, 1, 1, None)
        if result.status != GetStatus.FOUND:
            return None
        half = Half.of(*codec.decode_records(b"".join(result.buffers)))
        return half if half is not None and half.offset == offset else None


_OURS = frozenset(
    {
        properties.REAL_TOPIC,
        properties.REAL_QID,
        properties.TRANSACTION_ID,
        properties.TRANSACTION_CHECK_TIMES,
        properties.TRAN_PREPARED_QUEUE_OFFSET,
    }
)
"""Properties of a half message that are not its producer's to say."""
