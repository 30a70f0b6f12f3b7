"""Transactions as they lie in the log (TransactionalMessageUtil.java, TransactionalMessageBridge.java; store spec, 6.3).

    half message   RMQ_SYS_TRANS_HALF_TOPIC, queue 0: as its producer sent it, and where it is to go in REAL_TOPIC, REAL_QID
    op message     RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag `d`: queue offsets of half messages that are finished, in
                   decimal, each with a comma behind it; from 4.9 a single one without
    committed      the half message at its place, COMMIT in sysFlag, and in the record's prepared transaction offset the
                   position of the half message
    given up       the half message in TRANS_CHECK_MAX_TIME_TOPIC, which Apache's doesn't say the position of

What lies below the consumer offsets of group CID_RMQ_SYS_TRANS is of no interest any more. A transaction has several half
messages when it was written again at the queue's end; those say in TRAN_PREPARED_QUEUE_OFFSET the offset of the first, which
is the transaction's number, its root. Apache's say so only within their immunity time.
"""

from collections.abc import Container
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rockmq.broker.drafts import Draft
from rockmq.protocol import properties, topics
from rockmq.protocol.flags import MessageFlag, TransactionState

if TYPE_CHECKING:
    from rockmq import _core

OP_TAG = "d"
OP_SEPARATOR = ","


class Outcome(IntEnum):
    """What became of a transaction; the core knows the first two by these numbers."""

    COMMITTED = 0
    ROLLED_BACK = 1
    GIVEN_UP = 2

    @property
    def words(self) -> str:
        """Words that fit behind `was`."""
        return ("committed", "rolled back", f"given up: it is in {topics.TRANSACTION_CHECK_MAX}")[self]


@dataclass(slots=True, frozen=True)
class Half:
    """A stored half message; `stored` is its store timestamp (ms)."""

    offset: int
    position: int
    stored: int
    draft: Draft

    @classmethod
    def of(cls, found: "_core.Record") -> "Half | None":
        """The half message in a record, None when it is another message."""
        if (found[14], found[2]) != (topics.TRANSACTION_HALF, 0):
            return None
        return cls(found[4], found[5], found[9], Draft.of_decoded(found))

    def _number(self, name: str, otherwise: int) -> int:
        """A property that should be a number from 0 on."""
        found = properties.number(self.draft.properties.get(name))
        return otherwise if found is None else found

    @property
    def root(self) -> int:
        return min(self._number(properties.TRAN_PREPARED_QUEUE_OFFSET, self.offset), self.offset)

    @property
    def is_nameless_copy(self) -> bool:
        """Whether Apache's broker has written it again, which doesn't say of which one it is a copy."""
        return self.checks > 0 and properties.TRAN_PREPARED_QUEUE_OFFSET not in self.draft.properties

    @property
    def origin(self) -> tuple[str, int, bytes]:
        """What copies have in common."""
        return self.unique_key, self.draft.born_timestamp, self.draft.born_host

    @property
    def real_topic(self) -> str:
        return self.draft.properties.get(properties.REAL_TOPIC, "")

    @property
    def real_queue_id(self) -> int:
        return self._number(properties.REAL_QID, 0)

    @property
    def group(self) -> str:
        return self.draft.properties.get(properties.PGROUP, "")

    @property
    def unique_key(self) -> str:
        return self.draft.properties.get(properties.UNIQ_KEY, "")

    @property
    def checks(self) -> int:
        """How often its producer was asked."""
        return self._number(properties.TRANSACTION_CHECK_TIMES, 0)

    @property
    def since(self) -> int:
        """When it was sent (ms), by its producer's clock unless that is ahead of ours."""
        return min(self.draft.born_timestamp, self.stored)

    def immunity_ms(self, time_out_ms: int) -> int:
        """The age up to which its producer isn't asked (TransactionalMessageUtil.getImmunityTime)."""
        return max(self._number(properties.CHECK_IMMUNITY_TIME, 0) * 1000, time_out_ms)


def finished_in(found: "_core.Record") -> list[int]:
    """The offsets in an op message; what can't be one is passed over, as by Apache."""
    if properties.decode(found[15]).get(properties.TAGS) != OP_TAG:
        return []
    parts = found[13].decode(errors="replace").split(OP_SEPARATOR)
    return [offset for offset in map(properties.number, parts) if offset is not None]


def outcome_in(found: "_core.Record", half: Half, positions: Container[int]) -> Outcome | None:
    """Whether a record is what became of the transaction whose half messages are at `positions`, and maybe elsewhere."""
    sys_flag, prepared, topic, said = found[6], found[12], found[14], properties.decode(found[15])
    is_given_up = topic == topics.TRANSACTION_CHECK_MAX
    if not is_given_up and sys_flag & MessageFlag.TRANSACTION != TransactionState.COMMIT:
        return None
    unique_key = said.get(properties.UNIQ_KEY)
    if unique_key != half.unique_key:
        return None  # another key with the same hash
    if (
        prepared in positions
        or said.get(properties.TRAN_PREPARED_QUEUE_OFFSET) == str(half.root)
        or (half.is_nameless_copy and (unique_key, found[7], found[8]) == half.origin)
    ):
        return Outcome.GIVEN_UP if is_given_up else Outcome.COMMITTED
    return None
