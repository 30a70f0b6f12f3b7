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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rockmq.auth import needs
from rockmq.auth.guard import Guard
from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, RockMQError, StoreUnavailable
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
from rockmq.store.message_store import INNER, MessageStore, Put

if TYPE_CHECKING:
    from rockmq import _core

log = logging.getLogger(__name__)

PENDING_MAX = 500_000
"""Transactions that may be pending; over it no more are begun. Each costs some 100 bytes."""
COUNTED_MAX = 256
"""Half messages that are read at a time to count them by topic."""
RECENT_MAX = 10_000
"""Finished transactions whose outcome is kept in memory, and given up ones of which it is known what they began anew as."""
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
        guard: Guard | None,
        clock: Clock,
    ) -> None:
        self._options = options
        self._wanted = options.transactions
        self._topics = topic_table
        self._store = store
        self._writer = writer
        self._producers = producers
        self._guard = guard
        self._clock = clock
        self._turns = itertools.count()
        self._begun_anew: dict[tuple[str, int, bytes], int] = {}
        """Roots of those that `resume` began, by what all half messages of one message have in common."""
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

    def prepare(self, draft: Draft, kind: int = INNER) -> Put:
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
        put = self._writer.append(half, kind)
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
            remark = f"{PENDING_MAX} transactions are pending, and no more are begun; try again when some have ended"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
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
            log.warning("a transaction is delivered at once: %s", refusal, extra={"message_id": half.unique_key})
            self._writer.append(draft)
        except ProtocolError as error:
            if not draft.light_queues:
                raise
            # As of a message that was delayed: its own queue has it at least.
            log.warning("a transaction gets into no light queue: %s", error, extra={"message_id": half.unique_key})
            draft.light_queues = ()
            self._writer.append(draft)
        self._table.finish(root, Outcome.COMMITTED)

    def roll_back(self, root: int) -> None:
        """End a pending transaction without its message. Raises StoreUnavailable."""
        if self._store.refusal is not None:
            raise StoreUnavailable(self._store.refusal)
        self._table.finish(root, Outcome.ROLLED_BACK)

    def by_topic(self) -> Iterator[tuple[str, int] | None]:
        """How many are pending for each topic. None where some time was spent on it."""
        counts: dict[str, int] = {}
        offset: int | None = 0
        while offset is not None:
            found, offset = self._table.topics(offset, COUNTED_MAX)
            for topic, count in found:
                counts[topic] = counts.get(topic, 0) + count
            yield None
        yield from counts.items()

    def undecided_at(self, position: int) -> "Half | Draft | None":
        """A half message at a position, or the draft of one that was given up and lies there; None when neither does."""
        half = self.half_at(position)
        if half is not None:
            return half
        record = self._store.core.read(position) if position >= 0 else None
        if record is None:
            return None
        draft = Draft.of(record)
        return draft if draft.topic == topics.TRANSACTION_CHECK_MAX else None

    async def resume(self, found: "Half | Draft") -> Put:
        """Have its producer asked again about a transaction, as often as about a new one: about one that is pending, or that
        was given up, which begins anew unless it has and is pending or committed. One that is older than `fileReservedTime`
        is refused: it would be given up unasked. Raises Refusal, StoreUnavailable, ProtocolError."""
        if isinstance(found, Draft):
            return await self._begin_anew(found)
        if not self.is_known(found.root):
            await self.find_out(found)
        outcome = self.outcome(found.root)
        if outcome is Outcome.GIVEN_UP:
            return await self._begin_anew(found.draft)
        if outcome is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"transaction {found.unique_key} was {outcome.words}")
        pending = self._pending(found.root)
        half = self._last_half(pending) if pending is not None else None
        if pending is None or half is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the prepared message is no longer in the log")
        self._check_expiry(pending.since, half.unique_key)
        return self._write_again(pending, half, 0)

    async def _begin_anew(self, draft: Draft) -> Put:
        said = draft.properties
        unique_key, topic = said.get(properties.UNIQ_KEY, ""), said.get(properties.REAL_TOPIC, "")
        self._check_expiry(draft.born_timestamp, unique_key)
        await self._check_index(unique_key, topic)
        # Nothing is waited for from here on. What was just written the index may not find yet.
        origin = unique_key, draft.born_timestamp, draft.born_host
        root = self._begun_anew.get(origin)
        if root is not None:
            self._check_other(root, unique_key)
        draft.topic, draft.queue_id = topic, properties.number(said.get(properties.REAL_QID)) or 0
        draft.sys_flag &= ~MessageFlag.TRANSACTION  # as of half messages: one that says so is in no queue
        draft.prepared_transaction_offset = 0
        put = self.prepare(draft)
        self._begun_anew[origin] = put.queue_offset
        if len(self._begun_anew) > RECENT_MAX:
            del self._begun_anew[next(iter(self._begun_anew))]
        return put

    async def _check_index(self, unique_key: str, topic: str) -> None:
        """Raise Refusal if a message with this key was committed, or another half message of it is pending."""
        if not unique_key:
            return
        await self._reach_index()
        for name in (topic, topics.SCHEDULE, topics.TIMER):
            for record in await self._with_key(name, unique_key):
                is_committed = record[6] & MessageFlag.TRANSACTION == TransactionState.COMMIT
                if is_committed and properties.decode(record[15]).get(properties.UNIQ_KEY) == unique_key:
                    raise Refusal(ResponseCode.SYSTEM_ERROR, f"transaction {unique_key} was {Outcome.COMMITTED.words}")
        for record in await self._with_key(topics.TRANSACTION_HALF, unique_key):
            half = Half.of(record)
            if half is None or half.unique_key != unique_key:
                continue
            if self._pending(half.root) is not None and not self.is_known(half.root):
                await self.find_out(half)
            self._check_other(half.root, unique_key)  # also of one that was committed since the index was asked

    def _check_other(self, root: int, unique_key: str) -> None:
        """Raise Refusal if a transaction, of a message that was given up in another one, is pending or was committed."""
        if self._pending(root) is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"transaction {unique_key} has begun anew, and is pending")
        if self.outcome(root) is Outcome.COMMITTED:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"transaction {unique_key} was {Outcome.COMMITTED.words}")

    def _check_expiry(self, since: int, unique_key: str) -> None:
        """Raise Refusal if nobody is going to be asked about a transaction because of its age."""
        if self._is_expired(since):
            remark = f"transaction {unique_key} is older than fileReservedTime: nobody is asked about it any more"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _is_expired(self, since: int) -> bool:
        """Whether a transaction is older than the log keeps anything."""
        reserved = self._options.retention.file_reserved_time * 3_600_000
        return 0 < reserved < self._clock.now_ms() - since

    def figures(self) -> dict[str, object]:
        """For the runtime info."""
        oldest = self._table.oldest
        age = 0 if oldest is None else max(self._clock.now_ms() - oldest, 0)
        return {"transactionsPending": len(self._table), "transactionsOldestAgeMs": age}

    async def _search(self, half: Half) -> Outcome | None:
        """What became of a transaction by the message index, None when it wasn't committed and not given up."""
        if not half.unique_key:
            return None  # Apache's 4.x stores such, if a client sends them
        await self._reach_index()
        first = self._half_in_queue(half.root)
        positions = {half.position} if first is None else {half.position, first.position}
        for topic in (half.real_topic, topics.SCHEDULE, topics.TIMER, topics.TRANSACTION_CHECK_MAX):
            for record in await self._with_key(topic, half.unique_key):
                outcome = outcome_in(record, half, positions)
                if outcome is not None:
                    return outcome
        return None

    async def _reach_index(self) -> None:
        if not await self._store.index_reaches(self._store.readable_limit):
            raise StoreUnavailable("the index is behind the log, or off: what became of the transaction isn't known yet")

    async def _with_key(self, topic: str, unique_key: str) -> "list[_core.Record]":
        """Messages of a topic with a unique key, or another one of that hash."""
        found = await self._store.query(topic, unique_key, FOUND_MAX, 0, FOREVER_MS, is_tag=False)
        return codec.decode_records(b"".join(found.records))

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
        if half.checks >= self._wanted.transaction_check_max or self._is_expired(pending.since):
            await self._give_up(pending, half)
            return
        producer = self._producer(half)
        if producer is None:
            self._carry(pending)  # one that can't be asked isn't asked in vain so and so often
            return
        self._ask(producer, self._write_again(pending, half, half.checks + 1), half)

    def _producer(self, half: Half) -> Connection | None:
        """A producer of the group that can be asked, each in its turn."""
        ready = [
            connection
            for connection, producer in self._producers.get(half.group, {}).items()
            if not connection.transport.is_closing()
            and connection.transport.get_write_buffer_size() <= WRITE_BUFFER_HIGH
            and self._may_see(producer, half)
        ]
        return ready[next(self._turns) % len(ready)] if ready else None

    def _may_see(self, producer: Client, half: Half) -> bool:
        """Groups of producers are nobody's, and who is asked gets the message."""
        if self._guard is None:
            return True
        need = needs.topic(half.real_topic, needs.PUB)
        return self._guard.may(RequestCode.HEART_BEAT, producer.access_key, producer.connection.peer_host, need)

    def _carry(self, pending: Pending) -> None:
        """Write a half message again if it keeps too many others from being forgotten."""
        if self._next_half - pending.offset > CARRY_BEHIND:
            half = self._last_half(pending)
            if half is not None:
                self._write_again(pending, half, half.checks)

    def _write_again(self, pending: Pending, half: Half, checks: int) -> Put:
        draft = half.draft
        draft.properties[properties.TRAN_PREPARED_QUEUE_OFFSET] = str(pending.root)
        draft.properties.pop(properties.TRANSACTION_CHECK_TIMES, None)
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
        given_up = {"message_id": half.unique_key, "group": half.group}
        log.error("a transaction was given up after %d checks", half.checks, extra=given_up)
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
