"""What brokers are told of this client's groups, and what each of them knows already (MQClientInstance.java; clients'
spec, 1.4).

A heartbeat has a fingerprint. A broker that says it understands fingerprints, and has not seen another one for the groups
meanwhile, is sent short heartbeats without subscriptions as long as nothing changes ("V2").
"""

import zlib
from collections.abc import Iterable

from msgspec.structs import replace

from rockmq.protocol import json
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codec import Command

SUPPORTED = "IS_SUPPORT_HEART_BEAT_V2"
CHANGED = "IS_SUB_CHANGE"


class Beat:
    """One round's heartbeat, in full and short."""

    def __init__(self, client_id: str, producers: Iterable[str], consumers: list[ConsumerData]) -> None:
        data = HeartbeatData(
            client_id="",
            producer_data_set=[ProducerData(group_name=group) for group in producers],
            consumer_data_set=[replace(each, subscription_data_set=_without_versions(each)) for each in consumers],
        )
        self.fingerprint = _fingerprint(json.encode(data))
        data.client_id, data.heartbeat_fingerprint = client_id, self.fingerprint
        data.consumer_data_set = consumers
        self.full = json.encode(data)
        data.consumer_data_set = [replace(each, subscription_data_set=[]) for each in consumers]
        data.without_sub = True
        self.short = json.encode(data)


class Versions:
    """Sees to it that what a group wants now is newer, for brokers, than what it wanted before: they keep the subscription
    with the highest version, which is a time, and clocks are set back."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], SubscriptionData] = {}

    def of(self, consumer: ConsumerData) -> ConsumerData:
        """The same, with the versions it is to have."""
        for wanted in consumer.subscription_data_set:
            key = (consumer.group_name, wanted.topic)
            before = self._told.get(key)
            if before is not None and before.sub_version >= wanted.sub_version and _differ(before, wanted):
                wanted.sub_version = before.sub_version + 1
            self._told[key] = wanted
        return consumer

    def forget(self, group: str) -> None:
        """The group isn't ours any more."""
        self._told = {key: told for key, told in self._told.items() if key[0] != group}


class Understood:
    """The fingerprint that each broker understood last, by address; a lost connection takes it along."""

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}

    def body(self, to: str, beat: Beat) -> bytes:
        """What a regular heartbeat to this broker has to say."""
        return beat.short if self._fingerprints.get(to) == beat.fingerprint else beat.full

    def answered(self, by: str, beat: Beat, answer: Command) -> None:
        if answer.fields.get(SUPPORTED) == "true" and answer.fields.get(CHANGED) != "true":
            self._fingerprints[by] = beat.fingerprint
        else:
            self._fingerprints.pop(by, None)

    def forget(self, broker: str) -> None:
        self._fingerprints.pop(broker, None)


def _without_versions(consumer: ConsumerData) -> list[SubscriptionData]:
    """Members of a group are equal though they began at different times."""
    return [replace(each, sub_version=0) for each in consumer.subscription_data_set]


def _differ(one: SubscriptionData, other: SubscriptionData) -> bool:
    return replace(one, sub_version=0) != replace(other, sub_version=0)


def _fingerprint(data: bytes) -> int:
    """A 32-bit number with sign; 0 would mean that there is none."""
    return (zlib.crc32(data) - 2**31) or 1
