"""The asyncio client.

    async with Client("127.0.0.1:9876") as mq:
        async with mq.producer("orders-group") as producer:
            receipt = await producer.send(Message("orders", b"...", tag="paid", keys=["42"]))
        async with mq.consumer("billing", {"orders": "paid || refund"}) as consumer:
            async for message in consumer:
                async with message.process():
                    ...

Not built yet: ordered and broadcast consumption, pop, static topics, access keys and TLS.
"""

from rockmq.base.errors import (
    BatchIncomplete,
    ClientClosed,
    ClientError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    InvalidMessage,
    NotSupported,
    ProtocolError,
    RemotingError,
    RequestTimeout,
    ResponseError,
    RockMQError,
    RouteNotFound,
    TooManyInFlight,
)
from rockmq.client.client import Client
from rockmq.client.consumer import Consumer, Handler
from rockmq.client.delivery import ConsumedMessage
from rockmq.client.durability import Durability
from rockmq.client.producer import Producer
from rockmq.client.pull import PullResult, PullStatus
from rockmq.client.queues import Selector, select_by_hash, select_by_random
from rockmq.client.sending import SendReceipt, SendStatus
from rockmq.client.subscription import BrokerFilter, Sql
from rockmq.client.transactions import Decision, Transaction, TransactionProducer, TransactionReceipt
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message, StoredMessage

__all__ = [
    "BatchIncomplete",
    "BrokerFilter",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "ConsumedMessage",
    "Consumer",
    "Decision",
    "Durability",
    "Handler",
    "InvalidMessage",
    "Message",
    "MessageQueue",
    "NotSupported",
    "Producer",
    "ProtocolError",
    "PullResult",
    "PullStatus",
    "RemotingError",
    "RequestTimeout",
    "ResponseError",
    "RockMQError",
    "RouteNotFound",
    "Selector",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "StoredMessage",
    "TooManyInFlight",
    "Transaction",
    "TransactionProducer",
    "TransactionReceipt",
    "select_by_hash",
    "select_by_random",
]
