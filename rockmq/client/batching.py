"""Several messages in one request (MessageBatch.java; clients' spec, 2.5): how they are cut and how receipts come back."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, repeat

import msgspec

from rockmq.client.sending import SendReceipt

PART_OVERHEAD = 22
"""Bytes a message costs in a batch besides its body and properties."""


class Part(msgspec.Struct, frozen=True):
    """A message in a batch; `properties` are in their wire text."""

    msg_id: str
    flag: int
    body: bytes
    properties: bytes

    @property
    def size(self) -> int:
        return PART_OVERHEAD + len(self.body) + len(self.properties)


def split(parts: Iterable[Part], size_max: int) -> Iterator[list[Part]]:
    """Runs of parts of at most so many bytes; a part that is larger by itself makes a run alone."""
    run: list[Part] = []
    size = 0
    for part in parts:
        if run and size + part.size > size_max:
            yield run
            run, size = [], 0
        run.append(part)
        size += part.size
    if run:
        yield run


def spread(receipt: SendReceipt, msg_ids: Sequence[str]) -> list[SendReceipt]:
    """The receipt of a whole batch as one for each message: neighbouring offsets, offset ids in a comma list."""
    offset_ids = receipt.offset_id.split(",")
    if len(offset_ids) != len(msg_ids):
        offset_ids = [receipt.offset_id] * len(msg_ids)  # a broker that keeps a batch together names it once
    queue, status, durability, first = receipt.queue, receipt.status, receipt.durability, receipt.queue_offset
    offsets = count(first) if first >= 0 else repeat(first)  # of a static queue that has just been moved they aren't known
    alike = repeat(queue), offsets, repeat(status), repeat(None), repeat(durability)
    return list(map(SendReceipt, msg_ids, offset_ids, *alike))  # no turn of Python's each
