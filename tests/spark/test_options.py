"""What a user may say, and how wrong words are answered."""

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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "orders"}, "'nameServer' is required"),
        ({"nameServer": "a:1"}, "'topic' is required"),
        (NEEDED | {"startingOffset": "latest"}, "unknown option 'startingOffset'; did you mean 'startingOffsets'?"),
        (NEEDED | {"path": "/x"}, "unknown option 'path'; the options are nameServer, topic, "),
        (NEEDED | {"minPartitions": "many"}, "option 'minPartitions' is 'many': Expected int"),
        (NEEDED | {"minPartitions": "-1"}, "option 'minPartitions' is '-1': Expected int >= 0"),
        (NEEDED | {"pullBatchSize": "0"}, "option 'pullBatchSize' is '0': Expected int >= 1"),
        (NEEDED | {"failOnDataLoss": "perhaps"}, "option 'failOnDataLoss' is 'perhaps'"),
        (NEEDED | {"topics": "orders"}, "option 'topics' says again what 'topic' says"),
        (NEEDED | {"topic": "no/such"}, "option 'topic': the topic 'no/such' has characters other than"),
        (NEEDED | {"tags": "a || *"}, "option 'tags'"),
        (NEEDED | {"startingOffsets": "newest"}, "option 'startingOffsets': expected earliest, latest or"),
        (NEEDED | {"endingOffsets": '{"orders": {"a": {"x": 1}}}'}, "option 'endingOffsets': expected earliest"),
        (NEEDED | {"endingOffsets": '{"orders": {"a": {"0": -3}}}'}, "orders/a/0 can't be at -3"),
        (NEEDED | {"endingOffsets": '{"other": {"a": {"0": 3}}}'}, "names topic 'other', which isn't read"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(given)

    assert words in str(raised.value)
