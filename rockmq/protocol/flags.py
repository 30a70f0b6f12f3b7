"""Bits: permissions, message sysFlag, pull sysFlag (PermName.java, MessageSysFlag.java, PullSysFlag.java)."""

from enum import IntEnum, IntFlag


class Permission(IntFlag):
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class MessageFlag(IntFlag):
    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_TYPE = 0x700


class TransactionState(IntEnum):
    """The value of the TRANSACTION bits."""

    NONE = 0
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12


class PullFlag(IntFlag):
    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16
