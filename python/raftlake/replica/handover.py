"""The first half of a graceful stop: every group that is led here gets a successor who has all of its log.

A leader that resigns amid an append has a longer log than any follower: it would refuse its vote to the successor it named,
and the others would wait for their turn. So a group first takes no more records, resigns when all it has is committed,
and what arrived meanwhile is refused then. A group whose followers do not keep up resigns after `SETTLE_MS` all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.ports import GroupId
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import NO_LEADER
from raftlake.replica.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

SETTLE_MS = 100


class Handover:
    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        #: Groups whose last records are on their way to a majority.
        self._settling: dict[GroupId, Partition] = {}

    def begin(self) -> None:
        self._node.is_resigning = True
        for partition in list(self._node.partitions.values()):
            if partition.core.is_leader and partition.high_watermark < partition.core.log_end:
                self._settling[partition.group] = partition
                partition.wait_for_watermark(self._watcher(partition))
            else:
                self._node.step(partition, ResignRequested())
        if self._settling:
            self._node.timers.schedule(self._node.now_ms + SETTLE_MS, self._end)

    def is_done(self) -> bool:
        """Every group has another leader."""
        nobody_else = (NO_LEADER, self._node.config.node_id)
        return all(hosted.core.leader_id not in nobody_else for hosted in self._node.partitions.values())

    def holds(self, partition: Partition) -> bool:
        """What arrives for this group is to wait until it has resigned."""
        return partition.group in self._settling

    def _watcher(self, partition: Partition) -> Callable[[int], bool]:
        def advanced(high_watermark: int) -> bool:
            """Whether the group need not be told of further high watermarks."""
            if not partition.deleted and partition.core.is_leader and high_watermark < partition.core.log_end:
                return False
            if self._settling.pop(partition.group, None) is not None and not partition.deleted:
                self._node.step(partition, ResignRequested())
            return True

        return advanced

    def _end(self) -> None:
        settling, self._settling = self._settling, {}
        for partition in settling.values():
            if not partition.deleted:
                self._node.step(partition, ResignRequested())
