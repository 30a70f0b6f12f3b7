"""Reading a registration's body (RegisterBrokerBody.java; protocol spec, 3.3).

Plain, it is JSON; from brokers before 3.0.11 just the topic table. Compressed, it is one zlib stream of

    length, DataVersion as JSON
    number of topics, for each: length, `name readQueues writeQueues perm filterType attributesJSON`
    length, list of filter servers as JSON
    number of mappings, for each: length, TopicQueueMappingInfo as JSON     (brokers from 5.0 on)

where every length and number is a big-endian int32. Apache's broker may compress without saying so in the header; since
JSON never begins with `x` and zlib always does, the first byte tells.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from rockmq.base import address
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.namesrv.route_table import Registration
from rockmq.protocol import json
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.bodies.route import RegisterBody, TopicTable
from rockmq.protocol.headers.registration import RegisterBroker

INFLATED_SIZE_MAX = 64 << 20
"""Bytes a compressed body may unfold to: four times the largest frame, about a million topics."""
NAME_SIZE_MAX = 255
QUEUES_MAX = 65_536
"""Queues of one topic on one broker: clients make an object of each."""

VERSION_3_0_11 = 37
VERSION_5_0_0 = 413


def decode(header: RegisterBroker, body: bytes, version: int, zone: str | None) -> Registration:
    """What a broker of this version ordinal says. Raises ProtocolError naming field and bound."""
    _check_header(header)
    content = _body(body, header.compressed, version)
    table = content.topic_config_serialize_wrapper
    _check_topics(table.topic_config_table.values())
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        zone=zone,
        timeout_ms=header.heartbeat_timeout_millis,
        acting_master=header.enable_acting_master,
        version=table.data_version,
        topics=table.topic_config_table,
        filter_servers=content.filter_server_list,
        mappings={} if table.topic_queue_mapping_info_map is UNSET else table.topic_queue_mapping_info_map,
    )


def _check_header(header: RegisterBroker) -> None:
    for key, name in (("clusterName", header.cluster_name), ("brokerName", header.broker_name)):
        if not 0 < len(name) <= NAME_SIZE_MAX:
            raise ProtocolError(f"{key} has {len(name)} characters, expected 1 to {NAME_SIZE_MAX}")
    try:
        address.split(header.broker_addr)
    except ConfigError as error:
        raise ProtocolError(f"brokerAddr: {error}") from None
    if header.broker_id < 0:
        raise ProtocolError(f"brokerId is {header.broker_id}, expected 0 or more")
    if header.heartbeat_timeout_millis is not None and header.heartbeat_timeout_millis < 1:
        raise ProtocolError(f"heartbeatTimeoutMillis is {header.heartbeat_timeout_millis}, expected 1 or more")


def _check_topics(topics: Iterable[TopicConfig]) -> None:
    for topic in topics:
        if not 0 < len(topic.topic_name) <= NAME_SIZE_MAX:
            raise ProtocolError(f"topicName has {len(topic.topic_name)} characters, expected 1 to {NAME_SIZE_MAX}")
        for key, number in (("readQueueNums", topic.read_queue_nums), ("writeQueueNums", topic.write_queue_nums)):
            if not 0 <= number <= QUEUES_MAX:
                raise ProtocolError(f"{key} of {topic.topic_name!r} is {number}, expected 0 to {QUEUES_MAX}")


def _body(body: bytes, compressed: bool, version: int) -> RegisterBody:
    if not body:
        return RegisterBody()
    if compressed or body[:1] == b"x":
        return _compressed(_inflated(body), version)
    if version >= VERSION_3_0_11:
        return json.decode(body, RegisterBody, "registration")
    return RegisterBody(topic_config_serialize_wrapper=json.decode(body, TopicTable, "registration"))


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error as error:
        raise ProtocolError(f"registration: not a zlib stream: {error}") from None
    if not stream.eof:
        if len(data) >= INFLATED_SIZE_MAX:
            raise ProtocolError(f"registration: unfolds to more than {INFLATED_SIZE_MAX} bytes, the bound")
        raise ProtocolError("registration: the zlib stream ends early")
    return data


def _compressed(data: bytes, version: int) -> RegisterBody:
    fields = _Fields(data)
    table = TopicTable(data_version=json.decode(fields.part("dataVersion"), DataVersion, "dataVersion"))
    for _ in range(fields.number("the number of topics")):
        topic = _topic(fields.part("a topic"))
        table.topic_config_table[topic.topic_name] = topic
    servers = json.decode(fields.part("filterServerList"), list[str], "filterServerList")
    if version >= VERSION_5_0_0:
        mappings = {}
        for _ in range(fields.number("the number of mappings")):
            mapping = json.decode(fields.part("a mapping"), dict[str, Any], "mapping")
            mappings[str(mapping.get("topic"))] = mapping
        table.topic_queue_mapping_info_map = mappings
    return RegisterBody(topic_config_serialize_wrapper=table, filter_server_list=servers)


def _topic(text: bytes) -> TopicConfig:
    words = text.decode(errors="replace").split(" ", 5)
    if len(words) < 5:
        raise ProtocolError(f"topic {words[0]!r} has {len(words)} fields, expected at least 5")
    name, read, write, perm, filter_type = words[:5]
    try:
        numbers = [int(word) for word in (read, write, perm)]
    except ValueError:
        raise ProtocolError(f"topic {name!r}: expected three integers, got {read!r} {write!r} {perm!r}") from None
    attributes = json.decode(words[5].encode(), dict[str, str], "attributes") if words[5:] and words[5] else {}
    return TopicConfig(
        topic_name=name,
        read_queue_nums=numbers[0],
        write_queue_nums=numbers[1],
        perm=numbers[2],
        topic_filter_type=filter_type,
        attributes=attributes,
    )


class _Fields:
    """Reads numbers and counted parts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, what: str) -> int:
        if self._at + 4 > len(self._data):
            raise ProtocolError(f"registration: ends before {what}")
        (number,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        if number < 0:
            raise ProtocolError(f"registration: {what} is {number}")
        return int(number)

    def part(self, what: str) -> bytes:
        size = self.number(f"the length of {what}")
        end = self._at + size
        if end > len(self._data):
            left = len(self._data) - self._at
            raise ProtocolError(f"registration: {what} should have {size} bytes, {left} are left")
        part = self._data[self._at : end]
        self._at = end
        return part
