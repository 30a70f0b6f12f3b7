"""END_TRANSACTION (EndTransactionProcessor.java; protocol spec, 4.6).

A transaction ends once: the same decision again is answered as the first one, the opposite one is an error. Ordinary
decisions about what is pending for certain never come here: the core's lane carries them out.
"""

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from rockmq.auth import needs
from rockmq.auth.guard import Guard
from rockmq.auth.signature import ACCESS_KEY
from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, RockMQError
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.half_messages import Half, Outcome
from rockmq.broker.replies import after
from rockmq.broker.topics import TopicTable
from rockmq.broker.transactions import Transactions
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, ids, properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.headers.admin import ResumeChecks
from rockmq.protocol.headers.transaction import EndTransaction
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal, about
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_DECISIONS = (TransactionState.NONE, TransactionState.COMMIT, TransactionState.ROLLBACK)


class TransactionHandler:
    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        transactions: Transactions,
        store: MessageStore,
        gate: DurabilityGate,
        guard: Guard | None,
        clock: Clock,
    ) -> None:
        self._time_out = options.transactions.transaction_time_out
        self._topics = topic_table
        self._transactions = transactions
        self._store = store
        self._gate = gate
        self._guard = guard
        self._clock = clock

    def end(self, header: EndTransaction, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        with _logged(request, connection):
            if header.commit_or_rollback not in _DECISIONS:
                remark = (
                    f"commitOrRollback is {header.commit_or_rollback}: expected 0 (unknown), 8 (commit) or 12 (rollback)"
                )
                raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
            half = self._half(header, request, connection)
            if header.commit_or_rollback == TransactionState.NONE:
                return codec.reply(request)  # nothing is decided; the producer is asked again
            if self._transactions.is_known(half.root):
                return self._end(half, header, request, connection)
        return self._find_out_then_end(half, header, request, connection)

    async def resume(self, header: ResumeChecks, request: Command, connection: Connection) -> Answer:
        """Have the producer of an undecided message asked again (AdminBrokerProcessor.resumeCheckHalfMessage). Apache's
        broker takes any message there is for one."""
        _, _, position = ids.parse_offset_id(header.msg_id)
        found = self._transactions.undecided_at(position)
        if found is None:
            remark = f"there is no half message with the id {header.msg_id}, and none that was given up"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        draft = found.draft if isinstance(found, Half) else found
        topic = draft.properties.get(properties.REAL_TOPIC, "")
        # Whoever asks was let through for the topic that they named, or for the cluster.
        if self._guard is not None and header.topic not in (None, "", topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"the message with the id {header.msg_id} isn't for {header.topic}")
        put = await self._transactions.resume(found)
        log.info("%s has the producer of transaction %s asked again", connection.peer,
                 draft.properties.get(properties.UNIQ_KEY))  # fmt: skip
        return await after(self._gate, put.end, lambda durable: codec.reply(request))

    async def _find_out_then_end(
        self, half: Half, header: EndTransaction, request: Command, connection: Connection
    ) -> Answer:
        with _logged(request, connection):
            await self._transactions.find_out(half)
            answer = self._end(half, header, request, connection)
        return await answer

    def _half(self, header: EndTransaction, request: Command, connection: Connection) -> Half:
        half = self._transactions.half_at(header.commit_log_offset)
        if half is None:
            remark = f"Find prepared transaction message failed: there is none at commitLogOffset {header.commit_log_offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        need = needs.topic(half.real_topic, needs.PUB)
        if self._guard is not None and not self._guard.may(
            request.code, request.fields.get(ACCESS_KEY), connection.peer_host, need
        ):
            remark = f"the message at commitLogOffset {header.commit_log_offset} is for a topic that isn't theirs who end it"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if half.group != header.producer_group:
            remark = f"The producer group wrong: {header.producer_group}, the message was prepared by {half.group}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if half.offset != header.tran_state_table_offset:
            remark = f"The transaction state table offset wrong: {header.tran_state_table_offset}, it is {half.offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return half

    def _end(self, half: Half, header: EndTransaction, request: Command, connection: Connection) -> Awaitable[Answer]:
        commits = header.commit_or_rollback == TransactionState.COMMIT
        outcome, refusal = self._transactions.outcome(half.root), None
        if outcome is None:
            self._check_age(half, header)
            outcome = self._decide(half, commits)
        elif commits != (outcome is Outcome.COMMITTED):
            wanted = "committed" if commits else "rolled back"
            refusal = f"transaction {half.unique_key} can't be {wanted}, it was {outcome.words}"
            if request.is_oneway:
                log.warning("%s", refusal, extra=about(request, connection))
        # Whoever hears of the outcome, also by a refusal, can rely on it: a rollback is nowhere but in op messages.
        if outcome is not Outcome.COMMITTED and not request.is_oneway:
            self._transactions.finished.tell()

        def answer(durable: bool) -> Command:
            if refusal is not None:
                return codec.reply(request, ResponseCode.ILLEGAL_OPERATION, refusal)
            return codec.reply(request)  # what isn't on disk in time is stored all the same (sendFinalMessage)

        return after(self._gate, self._store.core.max_position, answer)

    def _decide(self, half: Half, commits: bool) -> Outcome:
        try:
            if commits:
                self._transactions.commit(half.root)
            else:
                self._transactions.roll_back(half.root)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if self._topics.get(half.real_topic) is not None:
            seconds = max(0, self._clock.now_ms() - half.draft.born_timestamp) // 1000
            self._store.core.note_end(half.real_topic, commits, seconds)
        return Outcome.COMMITTED if commits else Outcome.ROLLED_BACK

    def _check_age(self, half: Half, header: EndTransaction) -> None:
        """A producer that set the time of its first check is expected to decide within it, or to wait for the check."""
        if header.from_transaction_check or not half.draft.properties.get(properties.CHECK_IMMUNITY_TIME):
            return
        age, allowed = self._clock.now_ms() - half.since, half.immunity_ms(self._time_out)
        if age > allowed:
            remark = (
                f"the decision comes {age} ms after the message, over the {allowed} ms of {properties.CHECK_IMMUNITY_TIME}: "
                "the producer is going to be asked for it"
            )
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)


@contextmanager
def _logged(request: Command, connection: Connection) -> Iterator[None]:
    """Log what is refused to a producer that doesn't hear of it, which are almost all."""
    try:
        yield
    except (Refusal, RockMQError) as error:
        if request.is_oneway:
            log.warning("a decision is refused: %s", error, extra=about(request, connection))
        raise
