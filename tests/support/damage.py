"""Damaged bytes for decoders, and a loop that gives a decoder many of them.

`Damage` makes bytes wrong the way disks, peers and liars do: as `native/core/src/fuzz` does for the core's decoders.
ROCKMQ_FUZZ_INPUTS is how many inputs a decoder gets; each has a seed of its own, which a failure tells, and
ROCKMQ_FUZZ_SEED runs that input alone.
"""

import os
import random
import resource
from collections.abc import Callable, Sequence

INPUTS = int(os.environ.get("ROCKMQ_FUZZ_INPUTS", "100000"))
RUN_INPUTS = 100_000
"""What each gets unless more is asked for."""
SEED = os.environ.get("ROCKMQ_FUZZ_SEED")
SLOW = 10
"""What costs some tenths of a millisecond an input gets a tenth of them, unless more than usual are asked for."""
WHOLE_EVERY = 40
"""One input of so many is left as it is."""
MEMORY_MAX = 256 << 20
"""Bytes that the process may grow by while a decoder gets its inputs: nothing is given for a length that is claimed."""
PIECE_MAX = 64

NUMBERS = (0, 1, -1, 0x7F, 0x80, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 2**63 - 1, 2**63)
WORDS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"null",
    b"-1",
    b"1e999",
    b"9" * 25,
    b"9" * 4301,
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"{}",
    b"true",
    b'""',
)


class Damage:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, valid: bytes) -> bytes:
        if self.below(WHOLE_EVERY) == 0:
            return valid
        if self.below(50) == 0:
            return self.random.randbytes(self.below(100))
        data = bytearray(valid)
        for _ in range(1 + self.below(3)):
            self._once(data, valid)
        return bytes(data)

    def below(self, bound: int) -> int:
        return int(self.random.random() * bound)

    def _once(self, data: bytearray, valid: bytes) -> None:
        at = self.below(len(data) + 1)
        size = min(self.below(PIECE_MAX), len(data) - at)
        match self.below(9):
            case 0 if at < len(data):
                data[at] ^= 1 << self.below(8)
            case 1 if at < len(data):
                data[at] = self.below(256)
            case 2:
                del data[at:]
            case 3:
                width = (1, 2, 4, 8)[self.below(4)]
                choices = (*NUMBERS, len(data), len(data) - at, len(data) - at + 1)
                number = choices[self.below(len(choices))] % (1 << 8 * width)
                data[at : at + width] = number.to_bytes(width, "big")
            case 4:
                data[at:at] = data[at : at + size]
            case 5:
                del data[at : at + size]
            case 6:
                data[at : at + size] = bytes(size)
            case 7:
                word = WORDS[self.below(len(WORDS))]
                data[at : at + len(word) * self.below(2)] = word
            case _:
                start = self.below(len(valid) + 1)
                data[at : at + size] = valid[start : start + size]


def damaged(valid: Sequence[bytes], check: Callable[[bytes], None], *, tests: int = 1, is_slow: bool = False) -> None:
    """Give `check` what damage makes of `valid` bytes; so many `tests` share the inputs of one decoder."""
    if is_slow and INPUTS <= RUN_INPUTS:
        tests *= SLOW
    first = random.randrange(1 << 32) if SEED is None else int(SEED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + (-(-INPUTS // tests) if SEED is None else 1)):
        damage = Damage(seed)
        data = damage.of(valid[damage.below(len(valid))])
        try:
            check(data)
        except BaseException as error:
            error.add_note(f"ROCKMQ_FUZZ_SEED={seed}, input {data!r}")
            raise
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert taken < MEMORY_MAX, f"{taken} bytes of memory were taken, the bound is {MEMORY_MAX}"
