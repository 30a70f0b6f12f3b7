"""What a confirmed message has survived by then (CommitLog.handleDiskFlushAndHA, CommitLog.handleHA).

A status doesn't tell it: what OK means is the broker's configuration, which a producer asks for when it was made with a
`durability`. It is asked once for each connection, so a change at run time counts from the next one on.
"""

import asyncio
import weakref
from typing import Literal

from rockmq.base.errors import ClientError, RemotingError, RockMQError
from rockmq.client.channel import Channel
from rockmq.client.instance import API_TIMEOUT, Instance
from rockmq.config import properties
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import GetBrokerConfig
from rockmq.protocol.properties import number

Durability = Literal["unknown", "memory", "disk", "replicated", "replicated+disk"]
"""Where a message is at least: in the broker's memory, forced to its disk, on another replica too."""
Wanted = Literal["memory", "disk", "replicated", "replicated+disk"]


def promised(config: dict[str, str]) -> Durability:
    """Where a broker with that configuration has a message before it answers OK."""
    if "flushDiskType" not in config:
        return "unknown"
    disk = config["flushDiskType"] == "SYNC_FLUSH"
    # The master counts as one of the replicas; 4.x has no such key, and waits for one slave.
    acks = config.get("inSyncReplicas", "2")
    all_in_sync = config.get("enableControllerMode") == "true" and config.get("allAckInSyncStateSet") == "true"
    if config.get("brokerRole") == "SYNC_MASTER" and (all_in_sync or (number(acks) or 0) > 1):
        return "replicated+disk" if disk else "replicated"
    return "disk" if disk else "memory"


def suffices(found: Durability, wanted: Wanted) -> bool:
    if found == "unknown":
        return False
    return wanted == "memory" or set(wanted.split("+")) <= set(found.split("+"))


class Promises:
    """What the brokers of one producer's messages promise; `wanted` is what its sends need."""

    def __init__(self, instance: Instance, wanted: Wanted) -> None:
        self.wanted = wanted
        self._instance = instance
        self._known: weakref.WeakKeyDictionary[Channel, Durability] = weakref.WeakKeyDictionary()
        self._asking: dict[str, asyncio.Task[RemotingError | None]] = {}

    def of(self, channel: Channel | None) -> Durability:
        return "unknown" if channel is None else self._known.get(channel, "unknown")

    def is_known(self, channel: Channel) -> bool:
        return channel in self._known

    def ask(self, address: str, channel: Channel) -> "asyncio.Task[RemotingError | None]":
        """Find out; the task is shared. What it ends with is why that couldn't be: another try may."""
        task = self._asking.get(address)
        if task is None:
            task = self._asking[address] = self._instance.tasks.start(self._ask(address, channel), f"config of {address}")
            task.add_done_callback(lambda _: self._asking.pop(address, None))
        return task

    async def _ask(self, address: str, channel: Channel) -> RemotingError | None:
        try:
            answer = await self._instance.ask(address, RequestCode.GET_BROKER_CONFIG, GetBrokerConfig(), timeout=API_TIMEOUT)
            self._known[channel] = promised(properties.read_bytes(answer.body))
        except RemotingError as error:
            return error
        except RockMQError:
            self._known[channel] = "unknown"
        return None

    def shortfall(self, address: str, channel: Channel) -> ClientError | None:
        """Why a broker's confirmation wouldn't be enough, None when it would be."""
        found = self.of(channel)
        if suffices(found, self.wanted):
            return None
        said = "doesn't tell what it promises" if found == "unknown" else f"promises {found!r}"
        return ClientError(f"the broker at {address} {said}, messages are to have durability {self.wanted!r}")
