"""Registration bodies, good and bad. `APACHE` was written by RegisterBrokerBody of Apache RocketMQ 5.5.0."""

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rockmq.base.errors import ProtocolError
from rockmq.namesrv import registration
from rockmq.namesrv.registration import INFLATED_SIZE_MAX, decode
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.headers.registration import RegisterBroker

HEADER = RegisterBroker(
    broker_name="a", broker_addr="10.0.0.1:10911", cluster_name="C", ha_server_addr="10.0.0.1:10912", broker_id=0
)
APACHE_PLAIN = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":'
    b'1795280154377},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1795280154377},"topicConfigTable":'
    b'{"T":{"attributes":{"+message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":'
    b'"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},'
    b'"topicQueueMappingInfoMap":{}}}'
)
APACHE_COMPRESSED = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d0512a2e492c490d4b2d2acecccf030b9464e6a60205730b94ac0ccd2d4d8d2c0c0c4d4d8c"
    "cdcd6b1918181881583744c10208cd14823dfddc7d5ce3431cdd15aa95b4819a8a13d353f54a2a0b5295ac94fcfc837c1d7d94409a98a2"
    "63812403003df31feb"
)
TOPIC = TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8, attributes={"+message.type": "NORMAL"})


def compressed(*parts: bytes | int) -> bytes:
    """A body of numbers and counted parts."""
    data = (struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part for part in parts)
    return zlib.compress(b"".join(data))


def test_apaches_plain_body() -> None:
    it = decode(HEADER, APACHE_PLAIN, 479, "z1")
    assert (it.cluster, it.broker_name, it.broker_id, it.address, it.zone) == ("C", "a", 0, "10.0.0.1:10911", "z1")
    assert it.version == DataVersion(timestamp=1795280154377)
    assert it.topics == {"T": TOPIC}
    assert it.filter_servers == []
    assert it.mappings == {}
    assert it.timeout_ms is None
    assert it.acting_master is None


@pytest.mark.parametrize("says_so", [True, False])
def test_apaches_compressed_body(says_so: bool) -> None:
    it = decode(structs.replace(HEADER, compressed=says_so), APACHE_COMPRESSED, 479, None)
    assert it.topics == {"T": TOPIC}
    assert it.version == DataVersion(timestamp=1795280154377)


def test_a_body_from_before_3_0_11_is_the_topic_table() -> None:
    body = b'{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T","perm":4}}}'
    it = decode(HEADER, body, 36, None)
    assert it.topics["T"].perm == 4
    assert it.version == DataVersion(counter=3, timestamp=5)
    assert decode(HEADER, b"", 479, None).topics == {}


def test_the_compressed_form_in_full() -> None:
    body = compressed(
        b'{"counter":2,"stateVersion":1,"timestamp":5}',
        3,
        b'T 4 8 6 SINGLE_TAG {"a":"with space"}',
        "Ünï 1 1 2 MULTI_TAG".encode(),
        b"E 1 1 2 SINGLE_TAG ",
        b'["f:1"]',
        1,
        b'{"bname":"a","currIdMap":{0:0,1:1},"dirty":false,"epoch":1,"scope":"__global__","topic":"T","totalQueues":2}',
    )
    it = decode(HEADER, body, 479, None)
    assert (it.topics["T"].read_queue_nums, it.topics["T"].write_queue_nums) == (4, 8)
    assert it.topics["T"].attributes == {"a": "with space"}
    assert it.topics["Ünï"].topic_filter_type == "MULTI_TAG"
    assert it.filter_servers == ["f:1"]
    assert it.mappings["T"]["currIdMap"] == {"0": 0, "1": 1}
    assert decode(HEADER, body, 401, None).mappings == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "registration"),
        (b"[]", "registration: Expected `object`"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":6}}}}', "topicName"),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":""}}}}', "topicName has 0 characters"),
        (
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":70000}}}}',
            "readQueueNums of 'T' is 70000, expected 0 to 65536",
        ),
        (b"xxxx", "not a zlib stream"),
        (APACHE_COMPRESSED[:-10], "ends early"),
        (compressed(), "ends before the length of dataVersion"),
        (compressed(b"{"), "dataVersion"),
        (zlib.compress(struct.pack(">i", 100)), "dataVersion should have 100 bytes, 0 are left"),
        (zlib.compress(struct.pack(">i", -1)), "the length of dataVersion is -1"),
        (compressed(b"{}"), "ends before the number of topics"),
        (compressed(b"{}", 2_000_000_000), "ends before the length of a topic"),
        (compressed(b"{}", 1, b"T 1 1"), "topic 'T' has 3 fields"),
        (compressed(b"{}", 1, b"T 1 x 6 SINGLE_TAG"), "three integers"),
        (compressed(b"{}", 1, b"T -1 1 6 SINGLE_TAG", b"[]", 0), "readQueueNums of 'T' is -1"),
        (compressed(b"{}", 1, b"T 1 1 6 SINGLE_TAG [", b"[]"), "attributes"),
        (compressed(b"{}", 0, b"{}"), "filterServerList"),
        (compressed(b"{}", 0, b"[]"), "ends before the number of mappings"),
        (compressed(b"{}", 0, b"[]", 1, b"3"), "mapping"),
        (zlib.compress(bytes(INFLATED_SIZE_MAX + 1)), "unfolds to more than 67108864 bytes"),
    ],
)
def test_a_bad_body_is_named(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(HEADER, body, 479, None)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("broker_name", "", "brokerName has 0 characters, expected 1 to 255"),
        ("cluster_name", "x" * 256, "clusterName has 256 characters"),
        ("broker_addr", "nowhere", "brokerAddr: 'nowhere' is not an address"),
        ("broker_addr", "h:²", "brokerAddr: 'h:²' is not an address"),
        ("broker_addr", "h:" + "1" * 5000, "brokerAddr: 'h:1111"),
        ("broker_id", -1, "brokerId is -1"),
        ("heartbeat_timeout_millis", 0, "heartbeatTimeoutMillis is 0"),
    ],
)
def test_a_bad_header_is_named(field: str, value: object, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(structs.replace(HEADER, **{field: value}), b"", 479, None)


@given(st.binary(), st.sampled_from([36, 401, 479]), st.booleans())
def test_garbage_is_refused_in_words(body: bytes, version: int, is_compressed: bool) -> None:
    with contextlib.suppress(ProtocolError):
        decode(structs.replace(HEADER, compressed=is_compressed), body, version, None)


parts = st.lists(
    st.integers(-2, 5)
    | st.binary(max_size=20)
    | st.sampled_from([b"{}", b"[]", b"T 1 1 6 SINGLE_TAG", b'{"counter":1}', b'{"topic":"T"}', b"null", b'[{"$ref":"$"}]'])
)


@given(parts, st.binary(max_size=4))
def test_garbage_inside_the_stream_is_refused_in_words(parts: list[bytes | int], tail: bytes) -> None:
    data = zlib.decompress(compressed(*parts)) + tail
    with contextlib.suppress(ProtocolError):
        decode(HEADER, zlib.compress(data), 479, None)


@given(st.binary(min_size=1), st.integers(0, len(APACHE_COMPRESSED) - 1))
def test_damage_on_the_way_is_refused_in_words(noise: bytes, at: int) -> None:
    with contextlib.suppress(ProtocolError):
        decode(structs.replace(HEADER, compressed=True), APACHE_COMPRESSED[:at] + noise + APACHE_COMPRESSED[at:], 479, None)


def test_the_bound_is_beyond_what_a_million_topics_need() -> None:
    assert 1_000_000 * len("a_topic_with_a_longish_name 8 8 6 SINGLE_TAG {}....") <= registration.INFLATED_SIZE_MAX
