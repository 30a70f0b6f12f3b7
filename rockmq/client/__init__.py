"""The asyncio client.

    async with Client("127.0.0.1:9876") as mq:
        async with mq.producer("orders-group") as producer:
            receipt = await producer.send(Message("orders", b"...", tag="paid", keys=["42"]))
        async with mq.consumer("billing", {"orders": "paid || refund"}) as consumer:
            async for message in consumer:
                async with message.process():
                    ...

Not built yet: static topics.
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
from rockmq.client.acl import Key
from rockmq.client.client import Client
from rockmq.client.consumer import Consumer
from rockmq.client.consumer_options import ConsumerOptions
from rockmq.client.decoding import Decode
from rockmq.client.delivery import ConsumedMessage, PartDone
from rockmq.client.durability import Durability
from rockmq.client.handlers import BatchHandler, Handler
from rockmq.client.hooks import Hook
from rockmq.client.lite_pull import LitePullConsumer, PulledMessage
from rockmq.client.lite_pull_options import LitePullOptions
from rockmq.client.options import SendOptions
from rockmq.client.pop_consumer import PopBatchHandler, PopConsumer, PopHandler
from rockmq.client.pop_message import PopMessage
from rockmq.client.producer import Producer
from rockmq.client.pull import PullResult, PullStatus
from rockmq.client.queue_listener import RebalanceListener
from rockmq.client.queues import Selector, select_by_hash, select_by_random
from rockmq.client.retries import Retry, backoff
from rockmq.client.sending import SendReceipt, SendStatus
from rockmq.client.states import State, StateChange
from rockmq.client.stats import ClientStats, Histogram, QueueStats, WorkStats
from rockmq.client.subscription import BrokerFilter, Sql
from rockmq.client.transactions import Decision, Transaction, TransactionProducer, TransactionReceipt
from rockmq.client.worker import Worker
from rockmq.protocol import allocate
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message, StoredMessage
from rockmq.remoting.socks import SocksProxy

__all__ = [
    "BatchHandler",
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
    "ConsumerOptions",
    "Decision",
    "Decode",
    "Durability",
    "Handler",
    "Histogram",
    "Hook",
    "InvalidMessage",
    "Key",
    "LitePullConsumer",
    "LitePullOptions",
    "Message",
    "MessageQueue",
    "NotSupported",
    "PartDone",
    "PopBatchHandler",
    "PopConsumer",
    "PopHandler",
    "PopMessage",
    "Producer",
    "ProtocolError",
    "PullResult",
    "PullStatus",
    "PulledMessage",
    "QueueStats",
    "RebalanceListener",
    "RemotingError",
    "RequestTimeout",
    "ResponseError",
    "Retry",
    "RockMQError",
    "RouteNotFound",
    "Selector",
    "SendOptions",
    "SendReceipt",
    "SendStatus",
    "SocksProxy",
    "Sql",
    "State",
    "StateChange",
    "StoredMessage",
    "TooManyInFlight",
    "Transaction",
    "TransactionProducer",
    "TransactionReceipt",
    "WorkStats",
    "Worker",
    "allocate",
    "backoff",
    "select_by_hash",
    "select_by_random",
]
