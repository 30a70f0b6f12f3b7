"""The client for threads: the names, arguments and errors of `rockmq.client`, without `await`.

    with Client("127.0.0.1:9876") as mq:
        with mq.producer("orders-group") as producer:
            receipt = producer.send(Message("orders", b"...", tag="paid", keys=["42"]))
        with mq.consumer("billing", {"orders": "paid || refund"}) as consumer:
            for message in consumer:
                with message.process():
                    ...

Behind it is the asyncio client, in a thread of its own: any number of threads may use one client. Handlers, checkers and
what else is called back runs in threads of a pool. A Ctrl-C ends the call that waits, and leaving the `with` blocks ends the
client in order. It doesn't survive a fork: make it in the child.
"""

from rockmq.blocking.classes import (
    Admin,
    Client,
    ConsumedMessage,
    Consumer,
    LitePullConsumer,
    PopConsumer,
    PopMessage,
    Producer,
    Transaction,
    TransactionProducer,
)

__all__ = [
    "Admin",
    "Client",
    "ConsumedMessage",
    "Consumer",
    "LitePullConsumer",
    "PopConsumer",
    "PopMessage",
    "Producer",
    "Transaction",
    "TransactionProducer",
]
