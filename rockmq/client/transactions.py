"""Messages that are delivered if their sender's own transaction succeeds (TransactionMQProducer.java; clients' spec, 2.8).

The message is stored first, where nobody sees it. Then the sender does its own work, and the broker is told whether to
deliver. If it isn't told, because the sender has died or doesn't know yet, it asks any producer of the group until it knows.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import IntEnum

import msgspec

from rockmq.base.errors import ClientError, ConnectError, InvalidMessage, RemotingError, ResponseError
from rockmq.base.tasks import Tasks
from rockmq.client.composing import DELAYS
from rockmq.client.hooks import TransactionEnd
from rockmq.client.instance import API_TIMEOUT, Instance
from rockmq.client.options import ONCE, ProducerOptions
from rockmq.client.producer import Producer
from rockmq.client.queues import Selector
from rockmq.client.routes import Target
from rockmq.client.sending import SendReceipt, SendStatus
from rockmq.protocol import ids
from rockmq.protocol import properties as names
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.headers.transaction import CheckTransactionState, EndTransaction
from rockmq.protocol.message import Message, StoredMessage
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)

CHECKS_MAX = 64
"""Questions of brokers that a producer works on at a time; others are dropped, and the broker asks again."""


class Decision(IntEnum):
    """Whether the message is to be delivered. UNKNOWN: the broker asks later."""

    COMMIT = TransactionState.COMMIT
    ROLLBACK = TransactionState.ROLLBACK
    UNKNOWN = TransactionState.NONE


Execute = Callable[[SendReceipt], Awaitable[Decision]]
"""Does the sender's own work, with `msg_id` as the transaction's id; it says what came of it."""
Checker = Callable[[StoredMessage], Awaitable[Decision]]
"""Says what came of the transaction of this message, whichever process has begun it."""


class TransactionReceipt(msgspec.Struct, frozen=True):
    """What came of `send_in_transaction`. `confirmed` is whether the broker has answered that it keeps to the decision; if
    not it may have heard of it, and asks if it hasn't."""

    sent: SendReceipt
    decision: Decision
    confirmed: bool


class Half(msgspec.Struct, frozen=True):
    """A message that is stored and not delivered yet, as something that another process may decide about."""

    topic: str
    broker_name: str
    msg_id: str
    offset: int
    position: int


class Transaction:
    """A message that is stored and not delivered yet, inside the block of `TransactionProducer.transaction`.

    `decision` is what the broker will be told at the end of the block. `confirmed` tells afterwards whether it has answered
    that it keeps to it.
    """

    def __init__(self, sent: SendReceipt) -> None:
        self.sent = sent
        self.decision = Decision.COMMIT
        self.confirmed = False

    @property
    def id(self) -> str:
        """By which the checker finds out what came of the sender's own work: the message's `msg_id`."""
        return self.sent.msg_id

    def roll_back(self) -> None:
        """Have the message not delivered, although the block ends well."""
        self.decision = Decision.ROLLBACK

    def leave_open(self) -> None:
        """Decide nothing at the end of the block: the broker asks the checker later."""
        self.decision = Decision.UNKNOWN


class TransactionProducer(Producer):
    """A producer that can send in transactions as well; made by `Client.transaction_producer`, used with `async with`."""

    def __init__(self, instance: Instance, group: str, checker: Checker, options: ProducerOptions) -> None:
        super().__init__(instance, group, options)
        self._checker = checker
        self._checking: set[str] = set()
        self._tasks = Tasks()

    async def start(self) -> None:
        """Make ready to send and to answer; `async with` does it. Raises ClientError when this client has another
        transaction producer of the group."""
        held = self._instance.transaction_checks.get(self.group)
        if held is not None and held != self._asked:
            raise ClientError(f"this client already has a transaction producer of group {self.group!r}; use a second Client")
        await super().start()
        self._instance.transaction_checks[self.group] = self._asked

    async def __aenter__(self) -> "TransactionProducer":
        await self.start()
        return self

    async def drain(self, timeout: float | None = None) -> None:
        """As of every producer; checks under way are given up."""
        if self._instance.transaction_checks.get(self.group) == self._asked:
            del self._instance.transaction_checks[self.group]
        try:
            await super().drain(timeout)
        finally:
            await self._tasks.close()

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Transaction]:
        """Store the message, and have it delivered if the block ends well. The sender's own work belongs into the block, its
        own commit last.

        An exception in the block, and a cancellation, rolls back. If the broker doesn't confirm the decision that isn't an
        error (`Transaction.confirmed`): it asks the checker. Raises what `send` raises if the message can't be stored, and
        ResponseError, before the block, when the broker stored it less durably than it should, or when it refuses the
        commit. The message is sent once, see `send_in_transaction`.
        """
        sent, target = await self._send_half(message, key, queue, selector, timeout)
        if sent.status is not SendStatus.OK:
            await self._end(target, sent, message, Decision.ROLLBACK, None)
            why = f"the message is stored, but {sent.status.meaning}"
            raise ResponseError(sent.status, why, target.address, retriable=True)
        transaction = Transaction(sent)
        try:
            yield transaction
        except BaseException as error:
            transaction.decision = Decision.ROLLBACK
            try:
                transaction.confirmed = await self._end(
                    target, sent, message, Decision.ROLLBACK, f"{type(error).__name__}: {error}"
                )
            except ResponseError as refused:
                error.add_note(f"the transaction couldn't be rolled back either: {refused}")
            raise
        transaction.confirmed = await self._end(target, sent, message, transaction.decision, None)

    async def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> TransactionReceipt:
        """Store the message, do `execute`, and tell the broker its decision.

        Raises what `send` raises if the message can't be stored; it is tried once, as a first attempt that came through
        after all would be a second transaction. `execute` isn't called then, nor, with decision ROLLBACK, when the broker
        stored the message less durably than it should. What `execute` raises is raised, and the broker asks later. Raises
        ResponseError when the broker refuses the decision.
        """
        receipt, target = await self._send_half(message, key, queue, selector, timeout)
        decision = Decision.ROLLBACK
        if receipt.status is SendStatus.OK:
            try:
                decision = Decision(await execute(receipt))
            except Exception as error:
                await self._end(target, receipt, message, Decision.UNKNOWN, f"{type(error).__name__}: {error}")
                raise
        confirmed = await self._end(target, receipt, message, decision, None)
        return TransactionReceipt(receipt, decision, confirmed)

    async def send_half(self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None) -> Half:
        """Store the message where nobody sees it until `decide` is called, by any transaction producer of the group.

        Raises what `send` raises; it is sent once, see `send_in_transaction`.
        """
        sent, target = await self._send_half(message, None, queue, None, timeout)
        return _half(sent, target)

    async def decide(self, half: Half, decision: Decision) -> bool:
        """Have the message delivered or not; whether the broker has answered that it is so. Raises ResponseError when it
        refuses, RouteNotFound, ConnectError."""
        route = await self._instance.routes.get(half.topic)
        broker = route.master(half.broker_name)
        if broker is None:
            raise ConnectError(f"broker {half.broker_name} stands in no route of {half.topic}")
        return await self._tell(broker, half, decision, None)

    async def _send_half(
        self,
        message: Message,
        key: str | None,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout: float | None,
    ) -> tuple[SendReceipt, Target]:
        """Store the message where nobody sees it: the receipt, and where it is."""
        for name in DELAYS:
            if name in message.properties or (name == names.DELAY and message.delay_level):
                # Apache's brokers would lose it.
                raise InvalidMessage(f"a message in a transaction can't be delayed: it has the property {name}")
        choice = self._choice(message, key, queue, selector)
        sender, topic = self._sender_now(), self._composer.topic(message.topic)
        deadline = self._deadline(sender, timeout)
        sending = self._composer.sending(sender, topic, message, choice, key, deadline, ONCE, in_transaction=True)
        return await self._finish(sending), sending.target

    async def _end(
        self, target: Target, receipt: SendReceipt, message: Message, decision: Decision, remark: str | None
    ) -> bool:
        """Tell the broker; whether it has answered."""
        self._tell_hooks(message.topic, receipt.msg_id, message.all_properties(), target.address, decision, False)
        return await self._tell(target.address, _half(receipt, target), decision, remark)

    async def _tell(self, broker: str, half: Half, decision: Decision, remark: str | None) -> bool:
        header = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=half.offset,
            commit_log_offset=half.position,
            commit_or_rollback=decision,
            msg_id=half.msg_id,
            topic=half.topic,
            transaction_id=half.msg_id,
            bname=half.broker_name,
        )
        request = self._instance.request(RequestCode.END_TRANSACTION, header)
        request.remark = remark
        try:
            if decision is Decision.UNKNOWN:  # which Apache's brokers never answer
                await self._instance.remoting.send_oneway(broker, request)
                return False
            await self._instance.remoting.ask(broker, request, API_TIMEOUT)
        except (RemotingError, ResponseError) as error:
            if isinstance(error, ResponseError) and not self._is_misled(half, error):
                raise
            log.warning("broker %s may not know that transaction %s is a %s: %s", broker, half.msg_id, decision.name, error)
            return False
        return True

    def _is_misled(self, half: Half, refused: ResponseError) -> bool:
        """Whether a broker may have refused what is right: Apache's tell where a message would be in its static queue, and
        want to hear where it is among their half messages (SendMessageProcessor.rewriteResponseForStaticTopic,
        EndTransactionProcessor.checkPrepareMessage). They ask the checker later, and know the place themselves then."""
        routes = self._instance.routes.known(half.topic)
        return refused.code == ResponseCode.SYSTEM_ERROR and any(route.is_static for route in routes)

    # What brokers ask

    def _asked(self, header: CheckTransactionState, message: StoredMessage, connection: Connection) -> None:
        if message.msg_id in self._checking:
            return
        if len(self._checking) >= CHECKS_MAX:
            log.warning("%d transactions are being checked, the one of %s has to wait", CHECKS_MAX, message.msg_id)
            return
        self._checking.add(message.msg_id)
        self._tasks.start(self._check(header, message, connection), f"check of transaction {message.msg_id}")

    async def _check(self, header: CheckTransactionState, message: StoredMessage, connection: Connection) -> None:
        remark = None
        try:
            decision = Decision(await self._checker(message))
        except Exception as error:  # the user's code; the broker asks again
            log.exception("the checker of group %s failed", self.group)
            decision, remark = Decision.UNKNOWN, f"{type(error).__name__}: {error}"
        finally:
            self._checking.discard(message.msg_id)
        answer = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=decision,
            msg_id=message.msg_id,
            topic=header.topic,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
            bname=header.bname,
        )
        request = self._instance.request(RequestCode.END_TRANSACTION, answer)
        request.remark = remark
        connection.send_oneway(request)
        self._tell_hooks(header.topic or message.topic, message.msg_id, message.properties, connection.peer, decision, True)

    def _tell_hooks(
        self, topic: str, msg_id: str, properties: Mapping[str, str], broker: str, decision: Decision, from_check: bool
    ) -> None:
        if self._instance.hooks is not None:
            end = TransactionEnd(self.group, topic, msg_id, properties, broker, decision.name, from_check)
            self._instance.hooks.transaction_ended(end)


def _half(sent: SendReceipt, at: Target) -> Half:
    position = ids.parse_offset_id(sent.offset_id)[2]
    return Half(sent.queue.topic, at.broker_name, sent.msg_id, sent.queue_offset, position)
