"""Bloom bits, judged by what Apache's classes say (BloomFilter.java with Guava's murmur3_128)."""

import pytest

from rockmq.filter.bloom import BloomFilter, murmur


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 0),
        ("hell", 0x629942693E10F867),
        ("The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_the_hash_is_murmurs(text: str, found: int) -> None:
    assert murmur(text.encode()) == found


def test_bits_and_positions() -> None:
    ours = BloomFilter.of(20, 32)
    assert ours == (112, 3)
    assert BloomFilter.of(1, 10_000) == (95_856, 7)
    assert BloomFilter.of(99, 1) == (8, 1)
    for name in ("G#T", "a longer group#a topic with a longer name", "Grüppe#主题"):
        positions = ours.positions(name)
        assert len(positions) == 3
        assert all(0 <= each < 112 for each in positions)
