"""`messageDelayLevel`: as Apache reads it, and loud about what isn't one."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rockmq.base.errors import ConfigError
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load

MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LEVELS = some.lists(some.tuples(some.integers(0, 36_500), some.sampled_from("smhd")), min_size=1, max_size=1000)


def read(text: str) -> list[int]:
    return load(BrokerOptions, {"messageDelayLevel": text}).store.delay_levels


@given(LEVELS, some.text(" \t", min_size=1))
def test_levels_are_numbers_with_units(levels: list[tuple[int, str]], blanks: str) -> None:
    assert read(blanks.join(f"{number}{unit}" for number, unit in levels)) == [number * MS[unit] for number, unit in levels]


def test_apaches_levels_are_the_default() -> None:
    minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120]
    assert BrokerOptions().store.delay_levels == [1000, 5000, 10_000, 30_000, *(each * 60_000 for each in minutes)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "0"),
        ("1s 5", "'5'"),
        ("1s 5x", "'5x'"),
        ("1S", "'1S'"),
        ("-1s", "'-1s'"),
        ("1.5s", "'1.5s'"),
        ("s", "'s'"),
        ("1s,5s", "'1s,5s'"),
        ("١s", "'١s'"),
        ("36501d", "'36501d'"),
        ("9" * 40 + "s", "s'"),
        ("1s " * 1001, "1001"),
    ],
)
def test_what_is_no_level_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel") as error:
        read(text)
    assert named in str(error.value)
