"""What a user may say of a write, and what is said when that makes no sense."""

import pytest

from rockmq.base.errors import ConfigError
from rockmq.spark.write_options import parse_write

SERVER = {"nameServer": "a:9876"}


def test_a_stream_is_fenced_and_has_its_ledger_beside_the_checkpoint() -> None:
    for checkpoint in ("/data/orders", "file:///data/orders", "file:/data/orders"):
        options = parse_write({**SERVER, "checkpointLocation": checkpoint}, streaming=True)
        assert (options.delivery, options.ledger) == ("fenced", "/data/orders/rockmq-ledger")


def test_a_ledger_that_is_named_goes_before_the_checkpoint() -> None:
    options = parse_write({**SERVER, "checkpointLocation": "s3://bucket/orders", "LEDGER": "/mnt/l"}, streaming=True)
    assert (options.delivery, options.ledger) == ("fenced", "/mnt/l")


def test_a_batch_is_fenced_if_it_has_a_ledger() -> None:
    assert parse_write(SERVER, streaming=False).delivery == "atLeastOnce"
    assert parse_write({**SERVER, "ledger": "/mnt/l", "jobId": "load.7"}, streaming=False).fenced


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({}, False, "option 'nameServer' is required"),
        ({**SERVER, "topik": "x"}, False, "unknown option 'topik'; did you mean 'topic'?"),
        ({**SERVER, "startingOffsets": "latest"}, False, "unknown option 'startingOffsets'"),
        ({**SERVER, "kafka.max.request.size": "9"}, False, "what Kafka's source calls so is 'maxMessageSize' here"),
        ({**SERVER, "kafka.max.poll.records": "9"}, False, "there is none here, as no client of Kafka's is used"),
        ({**SERVER, "topic": "a b"}, False, "option 'topic'"),
        ({**SERVER, "topic": "%RETRY%g"}, False, "%RETRY%g is a retry topic"),
        ({**SERVER, "topic": "SCHEDULE_TOPIC_XXXX"}, False, "is the broker's own topic"),
        ({**SERVER, "producerGroup": "a b"}, False, "option 'producerGroup'"),
        ({**SERVER, "delivery": "exactlyOnce"}, False, "expected fenced or atLeastOnce or transactional"),
        ({**SERVER, "maxMessageSize": "1"}, False, "option 'maxMessageSize' is '1'"),
        ({**SERVER, "timeout": "soon"}, False, "option 'timeout' is 'soon'"),
        ({**SERVER, "ledger": "s3://bucket/x"}, False, "option 'ledger' is 's3://bucket/x'"),
        ({**SERVER, "badRows": "hdfs://n/x"}, False, "option 'badRows' is 'hdfs://n/x'"),
        ({**SERVER, "delivery": "fenced"}, False, "option 'ledger' is required with delivery=fenced"),
        ({**SERVER, "delivery": "transactional"}, False, "option 'ledger' is required with delivery=transactional"),
        ({**SERVER, "delivery": "transactional", "ledger": "/l"}, False, "option 'jobId' is required with delivery=trans"),
        ({**SERVER, "checkpointLocation": "s3://b/x"}, True, "option 'ledger' is required with delivery=fenced"),
        ({**SERVER, "jobId": "x"}, True, "option 'jobId' is for batch writes"),
        ({**SERVER, "jobId": "../x", "ledger": "/l"}, False, "option 'jobId' is '../x'"),
        ({**SERVER, "jobId": "x"}, False, "option 'jobId' has no effect"),
        ({**SERVER, "ledger": "/l", "delivery": "atLeastOnce"}, False, "option 'ledger' has no effect"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(given: dict[str, str], streaming: bool, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_write(given, streaming=streaming)

    assert words in str(raised.value)
