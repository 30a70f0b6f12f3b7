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
from rockmq.client.hooks import Hook
from rockmq.client.producer import Producer
from rockmq.client.pull import PullResult, PullStatus
from rockmq.client.queues import Selector
from rockmq.client.sending import SendReceipt, SendStatus
from rockmq.client.stats import ClientStats, Histogram, QueueStats, WorkStats
from rockmq.client.subscription import BrokerFilter, Sql
from rockmq.client.transactions import Decision, TransactionProducer, TransactionReceipt
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message, StoredMessage

__all__ = [
    "BatchIncomplete",
    "BrokerFilter",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientStats",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "ConsumedMessage",
    "Consumer",
    "Decision",
    "Handler",
    "Histogram",
    "Hook",
    "InvalidMessage",
    "Message",
    "MessageQueue",
    "NotSupported",
    "Producer",
    "ProtocolError",
    "PullResult",
    "PullStatus",
    "QueueStats",
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
    "TransactionProducer",
    "TransactionReceipt",
    "WorkStats",
]
