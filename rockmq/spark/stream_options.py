"""What a user may say of a stream, besides what reads have in common (spark spec, section 5)."""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import fields

from rockmq.base.errors import ConfigError
from rockmq.spark.options import Count, ReadOptions, check_read, convert

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(rf"(\d+)\s*({'|'.join(_SECONDS)})?", re.IGNORECASE)

BytesCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class StreamOptions(ReadOptions, frozen=True, kw_only=True):
    """The options of a streaming read, in their declared spelling.

    `starting_offsets` counts when a query is new; later its checkpoint says where it goes on. A batch has at most
    `max_offsets_per_trigger` messages and about `max_bytes_per_trigger` bytes, and waits until there are
    `min_offsets_per_trigger`, but no longer than `max_trigger_delay` (`15m`; without unit milliseconds); 0 is no bound.
    `timeout` is how many seconds servers may be away before the query ends.
    """

    starting_offsets: str = "latest"
    timeout: Annotated[float, Meta(gt=0, le=3_600)] = 120.0
    max_offsets_per_trigger: Count = 0
    min_offsets_per_trigger: Count = 0
    max_bytes_per_trigger: BytesCount = 0
    max_trigger_delay: str = "15m"

    @property
    def trigger_delay_seconds(self) -> float:
        return parse_duration("maxTriggerDelay", self.max_trigger_delay)


_FOR_BATCHES = ("readFrom", "brokerName", "pushFilters")


def check_batch(given: Mapping[str, str]) -> None:
    """Raises ConfigError when a batch read is told what only streams know."""
    ours = _spelled(StreamOptions)
    for key in {key.lower() for key in given} & (ours.keys() - _spelled(ReadOptions).keys()):
        raise ConfigError(f"option {ours[key]!r} is for streams: a batch reads all there is between its offsets")


def parse_stream(given: Mapping[str, str]) -> StreamOptions:
    """The options of a stream. Raises ConfigError naming the option and what would be right."""
    for key in given:
        option = _spelled(StreamOptions).get(key.lower(), key)
        if option.startswith("ending"):
            raise ConfigError(
                f"option {option!r} is for batches; a stream ends at what is there with trigger(availableNow=True)"
            )
        if option in _FOR_BATCHES:
            raise ConfigError(f"option {option!r} is for batches, not for streams")
    options = convert(StreamOptions, given)
    check_read(options)
    _ = options.trigger_delay_seconds
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if high and low > high:
        raise ConfigError(f"option 'minOffsetsPerTrigger' is {low}, more than 'maxOffsetsPerTrigger', which is {high}")
    return options


def parse_duration(option: str, text: str) -> float:
    """Seconds, from a number with one of Spark's units; without a unit it is milliseconds. Raises ConfigError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"option {option!r} is {text!r}: expected a number with one of {', '.join(_SECONDS)}")
    return int(found[1]) * _SECONDS[(found[2] or "ms").lower()]


def _spelled(kind: type[ReadOptions]) -> dict[str, str]:
    """Options as they are declared, by how Spark hands them over: in lower case."""
    return {field.encode_name.lower(): field.encode_name for field in fields(kind)}
