"""What a user may say, and how wrong words are answered."""

from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.spark.options import EARLIEST, LATEST, parse

NEEDED = {"nameServer": "localhost:9876", "topic": "orders"}


def test_defaults_read_everything_there_is() -> None:
    options = parse(NEEDED)

    assert options.topics == ["orders"]
    assert options.starting == EARLIEST
    assert options.ending == LATEST
    assert options.fail_on_data_loss
    assert options.wanted_tags is None


def test_keys_have_no_case() -> None:
    options = parse({"NAMESERVER": "a:1", "Topic": "t", "failondataloss": "FALSE", "pullbatchsize": "64"})

    assert options.name_server == "a:1"
    assert not options.fail_on_data_loss
    assert options.pull_batch_size == 64


def test_endpoints_and_topics_are_other_names() -> None:
    options = parse({"endpoints": "a:1;b:2", "topics": "one, two,one"})

    assert options.name_server == "a:1;b:2"
    assert options.topics == ["one", "two"]


def test_tags_are_an_expression() -> None:
    assert parse(NEEDED | {"tags": " a ||b"}).wanted_tags == frozenset({"a", "b"})
    assert parse(NEEDED | {"tags": "*"}).wanted_tags is None


def test_offsets_in_json_name_queues() -> None:
    options = parse(NEEDED | {"startingOffsets": '{"orders": {"broker-a": {"0": 5, "11": -2}}}'})

    assert options.starting == {"orders": {"broker-a": {0: 5, 11: EARLIEST}}}


def test_times_are_of_all_queues_or_of_some() -> None:
    options = parse(NEEDED | {"startingTimestamp": "5", "endingOffsetsByTimestamp": '{"orders": {"a": {"0": 9}}}'})

    assert options.starting_times == 5
    assert options.ending_times == {"orders": {"a": {0: 9}}}
    assert parse(NEEDED).starting_times is None


def test_a_store_needs_no_name_server() -> None:
    options = parse({"readFrom": "store:/data/store", "topic": "orders"})

    assert options.store == Path("/data/store")
    assert parse(NEEDED).store is None


def test_secrets_are_not_shown() -> None:
    options = parse(NEEDED | {"accessKey": "me", "secretKey": "s3cret", "securityToken": "t0ken"})

    assert "s3cret" not in repr(options)
    assert "t0ken" not in repr(options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "orders"}, "'nameServer' is required"),
        ({"nameServer": "a:1"}, "'topic' is required"),
        (NEEDED | {"startingOffset": "latest"}, "unknown option 'startingOffset'; did you mean 'startingOffsets'?"),
        (NEEDED | {"path": "/x"}, "unknown option 'path'; the options are nameServer, accessKey, "),
        (NEEDED | {"minPartitions": "many"}, "option 'minPartitions' is 'many': Expected int"),
        (NEEDED | {"minPartitions": "-1"}, "option 'minPartitions' is '-1': Expected int >= 0"),
        (NEEDED | {"pullBatchSize": "0"}, "option 'pullBatchSize' is '0': Expected int >= 1"),
        (NEEDED | {"failOnDataLoss": "perhaps"}, "option 'failOnDataLoss' is 'perhaps'"),
        (NEEDED | {"topics": "orders"}, "option 'topics' says again what 'topic' says"),
        (NEEDED | {"topic": "%LMQ%orders"}, "option 'topic': %LMQ%orders is a light queue, whose messages"),
        (NEEDED | {"topic": "no/such"}, "option 'topic': the topic 'no/such' has characters other than"),
        (NEEDED | {"tags": "a || *"}, "option 'tags'"),
        (NEEDED | {"startingOffsets": "newest"}, "option 'startingOffsets': expected earliest, latest or"),
        (NEEDED | {"endingOffsets": '{"orders": {"a": {"x": 1}}}'}, "option 'endingOffsets': expected earliest"),
        (NEEDED | {"endingOffsets": '{"orders": {"a": {"0": -3}}}'}, "orders/a/0 can't be at -3"),
        (NEEDED | {"endingOffsets": '{"other": {"a": {"0": 3}}}'}, "names topic 'other', which isn't read"),
        (NEEDED | {"endingOffsetsByTimestamp": '{"other": {"a": {"0": 3}}}'}, "names topic 'other', which isn't read"),
        (NEEDED | {"startingOffsetsByTimestamp": '{"orders": {"a": {"0": -1}}}'}, "orders/a/0 can't be at -1"),
        (NEEDED | {"startingOffsetsByTimestamp": "5"}, 'expected {"topic": {"broker": {"queue id": milliseconds'),
        (NEEDED | {"startingTimestamp": "-1"}, "option 'startingTimestamp' is '-1': Expected int >= 0"),
        (NEEDED | {"endingTimestamp": "now"}, "option 'endingTimestamp' is 'now': Expected int, got str"),
        (NEEDED | {"startingOffsetsByTimestampStrategy": "first"}, "is 'first': expected error or latest"),
        (
            NEEDED | {"startingOffsets": "groupOffsets"},
            "option 'startingOffsets' is groupOffsets, which needs option 'group'",
        ),
        (NEEDED | {"group": "a b"}, "option 'group': the group 'a b' has characters other than"),
        (NEEDED | {"pushFilters": "1.5"}, "option 'pushFilters' is '1.5': expected true or false"),
        (NEEDED | {"topicPattern": "x"}, "options 'topic', 'topicPattern' and 'queues' exclude each other"),
        ({"nameServer": "a:1", "topicPattern": "["}, "option 'topicPattern' is '[', no regular expression"),
        ({"nameServer": "a:1", "queues": "[1]"}, 'option \'queues\': expected {"topic": {"broker": [queue id]}}'),
        ({"nameServer": "a:1", "queues": '{"o": {"a": [-1]}}'}, "option 'queues': expected"),
        ({"nameServer": "a:1", "queues": "{}"}, "option 'queues' names no topic"),
        (NEEDED | {"sql": "a = "}, "option 'sql': the expression isn't complete"),
        (NEEDED | {"sql": "a = 1", "tags": "x"}, "options 'tags' and 'sql' exclude each other"),
        (NEEDED | {"subscribe": "x"}, "unknown option 'subscribe'; what Kafka's source calls so is 'topic' here"),
        (NEEDED | {"kafka.bootstrap.servers": "x"}, "is 'nameServer' here"),
        (NEEDED | {"FETCHOFFSET.NUMRETRIES": "3"}, "what Kafka's source calls so is 'timeout' here"),
        (NEEDED | {"kafka.ssl.truststore.location": "x"}, "is 'tls' here"),
        (NEEDED | {"includeHeaders": "true"}, "there is none here, as properties are a column"),
        (NEEDED | {"kafka.isolation.level": "x"}, "as what is in a transaction is seen once it is committed"),
        (NEEDED | {"kafka.fetch.min.bytes": "1"}, "there is none here, as no client of Kafka's is used"),
        (NEEDED | {"accessKey": "x"}, "options 'accessKey' and 'secretKey' go together"),
        (NEEDED | {"securityToken": "x"}, "'securityToken' with both"),
        (NEEDED | {"tlsCa": "x"}, "need 'tls' to be true"),
        (NEEDED | {"tls": "yes"}, "option 'tls' is 'yes': expected true or false"),
        (NEEDED | {"tls": "true", "tlsKey": "x"}, "option 'tlsKey' needs 'tlsCertificate'"),
        (NEEDED | {"readFrom": "disk"}, "option 'readFrom' is 'disk': expected broker or store:DIR"),
        (NEEDED | {"readFrom": "store:/x"}, "option 'nameServer' is for brokers, and 'readFrom' is 'store:/x'"),
        ({"readFrom": "store:", "topic": "orders"}, "option 'readFrom' names no directory"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(given)

    assert words in str(raised.value)
