"""What a user may say of a stream, and how wrong words are answered."""

import pytest

from rockmq.base.errors import ConfigError
from rockmq.spark.options import EARLIEST, LATEST
from rockmq.spark.stream_options import parse_duration, parse_stream

NEEDED = {"nameServer": "localhost:9876", "topic": "orders"}


def test_a_stream_begins_with_what_is_new() -> None:
    options = parse_stream(NEEDED)

    assert options.starting == LATEST
    assert options.timeout == 120
    assert options.trigger_delay_seconds == 15 * 60
    assert (options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.min_offsets_per_trigger) == (0, 0, 0)


def test_what_reads_have_in_common_is_known() -> None:
    options = parse_stream(NEEDED | {"startingoffsets": "earliest", "MAXOFFSETSPERTRIGGER": "5", "tags": "a"})

    assert options.starting == EARLIEST
    assert options.max_offsets_per_trigger == 5
    assert options.wanted_tags == {"a"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("1 min", 60), ("250ms", 0.25), ("30s", 30), ("2H", 7_200), ("1d", 86_400), ("1500", 1.5), ("0", 0)],
)
def test_durations_are_spelled_as_spark_does(text: str, seconds: float) -> None:
    assert parse_duration("maxTriggerDelay", text) == seconds


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay' is 'soon': expected a number with one of us, ms, s, m"),
        ({"maxOffsetsPerTrigger": "-1"}, "option 'maxOffsetsPerTrigger' is '-1': Expected int >= 0"),
        ({"maxBytesPerTrigger": "1m"}, "option 'maxBytesPerTrigger' is '1m'"),
        ({"maxOffsetsPerTriger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is for batches; a stream ends at"),
        ({"EndingTimestamp": "1"}, "option 'endingTimestamp' is for batches"),
        ({"readFrom": "store:/x"}, "option 'readFrom' is for batches"),
        (
            {"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "5"},
            "option 'minOffsetsPerTrigger' is 7, more than 'maxOffsetsPerTrigger', which is 5",
        ),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_stream(NEEDED | given)

    assert words in str(raised.value)
