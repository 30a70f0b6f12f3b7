"""Bits that tell which filters a message may pass (BloomFilter.java; store spec, 5.1).

Each group has some bits for each topic. A message has those of all whose filters it passes; who misses one of its own bits
needn't look at the message. Positions come from 64 bits of Guava's murmur3_128 with seed 0.
"""

from math import ceil, e, log
from typing import NamedTuple

_MASK = 2**64 - 1


class BloomFilter(NamedTuple):
    """How many bits there are, and how many of them each has."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, error_percent: int, expected: int) -> "BloomFilter":
        """One that lets at most so many percent through wrongly with as many filters as are expected."""
        error = error_percent / 100
        size = ceil(expected * (log(1 / error) / log(2)) * (log(e) / log(2)))
        return cls(8 * ceil(size / 8), ceil(log(error) / log(0.5)))

    def positions(self, name: str) -> list[int]:
        """The bits of a name, `group#topic`; there may be some twice."""
        found = murmur(name.encode())
        low, high = found & 0xFFFFFFFF, found >> 32
        combined = ((low + number * high) & 0xFFFFFFFF for number in range(1, self.hashes + 1))
        return [(each if each < 2**31 else 0xFFFFFFFF - each) % self.bits for each in combined]


def murmur(data: bytes) -> int:
    """The low 64 bits of MurmurHash3 x64 128 with seed 0, which is Guava's `asLong`, without a sign."""
    one = two = 0
    for at in range(0, len(data), 16):
        block = data[at : at + 16]
        first, second = int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")
        one ^= _first(first)
        if len(block) < 16:
            two ^= _second(second)
            break
        one = (_rotated(one, 27) + two) * 5 + 0x52DCE729 & _MASK
        two ^= _second(second)
        two = (_rotated(two, 31) + one) * 5 + 0x38495AB5 & _MASK
    one ^= len(data)
    two ^= len(data)
    one = one + two & _MASK
    two = two + one & _MASK
    return _mixed(one) + _mixed(two) & _MASK


def _first(word: int) -> int:
    return _rotated(word * 0x87C37B91114253D5 & _MASK, 31) * 0x4CF5AD432745937F & _MASK


def _second(word: int) -> int:
    return _rotated(word * 0x4CF5AD432745937F & _MASK, 33) * 0x87C37B91114253D5 & _MASK


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _mixed(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
