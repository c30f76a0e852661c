"""When the groups of a node want to hear of the passing of time, and the telling of it.

A group has one timer at most; a deadline that moves away leaves its timer where it is, which then finds nothing due and is
armed anew. Before a deadline strikes, the group hears what the Fetch rounds have shown meanwhile: idle groups are not in the
rounds that keep them alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlake.raft.events import DeadlineReached
from raftlake.replica.partition.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode


class GroupDeadlines:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node

    def arm(self, partition: Partition) -> None:
        """The group's core has been stepped: its next deadline may have come closer."""
        deadline_ms = partition.core.next_deadline_ms()
        if deadline_ms is None:
            return
        armed_ms = partition.armed_deadline_ms
        if armed_ms is None or deadline_ms < armed_ms:
            partition.armed_deadline_ms = deadline_ms
            self._node.timers.schedule(deadline_ms, lambda: self._strike(partition, deadline_ms))

    def _strike(self, partition: Partition, armed_ms: int) -> None:
        if partition.deleted or partition.armed_deadline_ms != armed_ms:
            return
        partition.armed_deadline_ms = None
        is_due = self._is_due(partition)
        if is_due:
            self._node.confirm_peers(partition)
            is_due = self._is_due(partition)
        if is_due:
            self._node.step(partition, DeadlineReached())
        else:
            self.arm(partition)

    def _is_due(self, partition: Partition) -> bool:
        deadline_ms = partition.core.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= self._node.now_ms
