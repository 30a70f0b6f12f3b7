"""END_TRANSACTION (EndTransactionProcessor.java; protocol spec, 4.6).

A transaction ends once: the same decision again is answered as the first one, the opposite one is an error. Ordinary
decisions about what is pending for certain never come here: the core's lane carries them out.
"""

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, RockMQError
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.half_messages import Half, Outcome
from rockmq.broker.replies import after
from rockmq.broker.transactions import Transactions
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.headers.transaction import EndTransaction
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_DECISIONS = (TransactionState.NONE, TransactionState.COMMIT, TransactionState.ROLLBACK)


class TransactionHandler:
    def __init__(
        self, options: BrokerOptions, transactions: Transactions, store: MessageStore, gate: DurabilityGate, clock: Clock
    ) -> None:
        self._time_out = options.transactions.transaction_time_out
        self._transactions = transactions
        self._store = store
        self._gate = gate
        self._clock = clock

    def end(self, header: EndTransaction, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        with _logged(request):
            if header.commit_or_rollback not in _DECISIONS:
                remark = (
                    f"commitOrRollback is {header.commit_or_rollback}: expected 0 (unknown), 8 (commit) or 12 (rollback)"
                )
                raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
            half = self._half(header)
            if header.commit_or_rollback == TransactionState.NONE:
                return codec.reply(request)  # nothing is decided; the producer is asked again
            if self._transactions.is_known(half.root):
                return self._end(half, header, request)
        return self._find_out_then_end(half, header, request)

    async def _find_out_then_end(self, half: Half, header: EndTransaction, request: Command) -> Answer:
        with _logged(request):
            await self._transactions.find_out(half)
            answer = self._end(half, header, request)
        return await answer

    def _half(self, header: EndTransaction) -> Half:
        half = self._transactions.half_at(header.commit_log_offset)
        if half is None:
            remark = f"Find prepared transaction message failed: there is none at commitLogOffset {header.commit_log_offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if half.group != header.producer_group:
            remark = f"The producer group wrong: {header.producer_group}, the message was prepared by {half.group}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if half.offset != header.tran_state_table_offset:
            remark = f"The transaction state table offset wrong: {header.tran_state_table_offset}, it is {half.offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return half

    def _end(self, half: Half, header: EndTransaction, request: Command) -> Awaitable[Answer]:
        commits = header.commit_or_rollback == TransactionState.COMMIT
        outcome, refusal = self._transactions.outcome(half.root), None
        if outcome is None:
            self._check_age(half, header)
            outcome = self._decide(half, commits)
        elif commits != (outcome is Outcome.COMMITTED):
            wanted = "committed" if commits else "rolled back"
            refusal = f"transaction {half.unique_key} can't be {wanted}, it was {outcome.words}"
            if request.is_oneway:
                log.warning("%s", refusal)
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
                return Outcome.COMMITTED
            self._transactions.roll_back(half.root)
            return Outcome.ROLLED_BACK
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None

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
def _logged(request: Command) -> Iterator[None]:
    """Log what is refused to a producer that doesn't hear of it, which are almost all."""
    try:
        yield
    except (Refusal, RockMQError) as error:
        if request.is_oneway:
            log.warning("a decision is refused: %s", error)
        raise
