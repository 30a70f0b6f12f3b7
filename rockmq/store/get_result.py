"""What is read of a queue, and what that can come to (GetMessageStatus.java, GetMessageResult.java; store spec, 5.1)."""

from enum import IntEnum

import msgspec

from rockmq import _core

Filter = _core.Filter
"""Says by its properties which messages a reader wants."""


class GetStatus(IntEnum):
    """Values are shared with the core."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class GetResult(msgspec.Struct, frozen=True):
    """`buffers` hold `messages` stored records back to back, behind a response's head if one was asked for; the offsets
    are those of the queue. `behind` are the bytes from the last record that was looked at to the log's end.
    """

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: int
    buffers: list[bytes | _core.Slice]
    behind: int
