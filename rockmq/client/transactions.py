"""Messages that are delivered if their sender's own transaction succeeds (TransactionMQProducer.java; clients' spec, 2.8).

The message is stored first, where nobody sees it. Then the sender does its own work, and the broker is told whether to
deliver. If it isn't told, because the sender has died or doesn't know yet, it asks any producer of the group until it knows.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum

import msgspec

from rockmq.base.errors import ClientError, InvalidMessage, RemotingError
from rockmq.base.tasks import Tasks
from rockmq.client.hooks import TransactionEnd
from rockmq.client.instance import Instance
from rockmq.client.producer import DELAYS, Producer
from rockmq.client.queues import Selector
from rockmq.client.sending import SendReceipt, SendStatus
from rockmq.protocol import ids
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import Compression
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


class TransactionProducer(Producer):
    """A producer that can send in transactions as well; made by `Client.transaction_producer`, used with `async with`."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        checker: Checker,
        *,
        timeout: float,
        retries: int,
        compression: Compression | None,
        compress_from: int,
        message_size_max: int,
    ) -> None:
        super().__init__(
            instance,
            group,
            timeout=timeout,
            retries=retries,
            compression=compression,
            compress_from=compress_from,
            message_size_max=message_size_max,
        )
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

    async def close(self) -> None:
        """Wait for what is on its way, then leave the group; checks under way are given up."""
        if self._instance.transaction_checks.get(self.group) == self._asked:
            del self._instance.transaction_checks[self.group]
        try:
            await super().close()
        finally:
            await self._tasks.close()

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
        for name in DELAYS:
            if name in message.properties:
                # Apache's brokers would lose it.
                raise InvalidMessage(f"a message in a transaction can't be delayed: it has the property {name}")
        choice = self._choice(message, key, queue, selector)
        sending = self._prepare(message, choice, key, timeout, in_transaction=True)
        receipt = await self._finish(sending)
        broker, properties = sending.target.address, message.all_properties()
        decision = Decision.ROLLBACK
        if receipt.status is SendStatus.OK:
            try:
                decision = Decision(await execute(receipt))
            except Exception as error:
                self._tell_hooks(message.topic, receipt.msg_id, properties, broker, Decision.UNKNOWN, False)
                await self._end(broker, receipt, Decision.UNKNOWN, f"{type(error).__name__}: {error}")
                raise
        self._tell_hooks(message.topic, receipt.msg_id, properties, broker, decision, False)
        confirmed = await self._end(broker, receipt, decision, None)
        return TransactionReceipt(receipt, decision, confirmed)

    async def _end(self, broker: str, receipt: SendReceipt, decision: Decision, remark: str | None) -> bool:
        """Tell the broker; whether it has answered."""
        header = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=receipt.queue_offset,
            commit_log_offset=ids.parse_offset_id(receipt.offset_id)[2],
            commit_or_rollback=decision,
            msg_id=receipt.msg_id,
            topic=receipt.queue.topic,
            transaction_id=receipt.msg_id,
            bname=receipt.queue.broker_name,
        )
        try:
            if decision is Decision.UNKNOWN:  # which Apache's brokers never answer
                request = self._instance.request(RequestCode.END_TRANSACTION, header)
                request.remark = remark
                await self._instance.remoting.send_oneway(broker, request)
                return False
            await self._instance.ask(broker, RequestCode.END_TRANSACTION, header)
        except RemotingError as error:
            log.warning(
                "broker %s may not know that transaction %s is a %s: %s", broker, receipt.msg_id, decision.name, error
            )
            return False
        return True

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
