"""Groups that read too far behind the log's end, from the disk, are refused (BrokerController.protectBroker).

Every three minutes a group that was last found to be more than `consumerFallbehindThreshold` behind in some queue loses its
`consumeEnable`, until an operator gives it back. Reads that were looked at before don't count again: a group that has been
allowed to go on is judged by what it reads from then on.
"""

import logging

from rockmq.broker.groups import GroupTable

log = logging.getLogger(__name__)

LOOK_SECONDS = 180.0


class SlowGroups:
    """Takes notes of reads, and refuses groups by them."""

    def __init__(self, groups: GroupTable, behind_max: int) -> None:
        self._groups = groups
        self._behind_max = behind_max
        self._behind: dict[tuple[str, str, int], int] = {}

    def note(self, group: str, topic: str, queue_id: int, behind: int) -> None:
        """A group has read a queue as many bytes behind the log's end."""
        if behind > self._behind_max:
            self._behind[group, topic, queue_id] = behind
        elif self._behind:
            self._behind.pop((group, topic, queue_id), None)

    def look(self) -> None:
        """Refuse those that are too far behind."""
        found, self._behind = self._behind, {}
        for (group, topic, queue_id), behind in found.items():
            if self._groups.disable_consume(group):
                log.warning(
                    "a group may not consume any more (consumeEnable is off now): it reads %d bytes behind the log's end, "
                    "and consumerFallbehindThreshold is %d",
                    behind,
                    self._behind_max,
                    extra={"group": group, "topic": topic, "queue": queue_id},
                )
