"""Bits: permissions, message sysFlag, pull sysFlag (PermName.java, MessageSysFlag.java, PullSysFlag.java).

Plain integers: `&` on members of an `IntFlag` builds a new member each time, which a pull would feel.
"""

from enum import IntEnum
from typing import Final


class Permission:
    """What may be done with a topic, or with all of a broker."""

    INHERIT: Final = 1
    WRITE: Final = 2
    READ: Final = 4
    PRIORITY: Final = 8


class MessageFlag:
    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_TYPE: Final = 0x700


class TransactionState(IntEnum):
    """The value of the TRANSACTION bits."""

    NONE = 0
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12


class PullFlag:
    COMMIT_OFFSET: Final = 1
    SUSPEND: Final = 2
    SUBSCRIPTION: Final = 4
    CLASS_FILTER: Final = 8
    LITE_PULL: Final = 16
