"""The first half of a graceful stop: every group that is led here gets a successor who has all of its log.

A leader that resigns amid an append has a longer log than any follower: it would refuse its vote to the successor it named,
and the others would wait for their turn. So a group first takes no more records, and resigns when all it has is committed.
A group whose followers do not keep up resigns after `SETTLE_MS` all the same. What arrives from the beginning of the stop on
waits until it is known who leads, at most `HOLD_MS`, and is refused with the name of that leader: its sender goes there at
once and does not search while no node leads.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import NO_LEADER
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import Quorum
from raftlake.replica.reports import Reports

SETTLE_MS = 100
#: An election takes a few round trips. Without one until then it takes longer than a client should be kept in the dark.
HOLD_MS = 500


class Handover:
    def __init__(self, engine: Engine, quorum: Quorum, reports: Reports) -> None:
        self._engine = engine
        self._quorum = quorum
        self._reports = reports
        #: Groups whose last records are on their way to a majority.
        self._settling: dict[GroupId, Partition] = {}
        #: Groups that were led here when the stop began and have no other leader yet, in an order that is no hash's.
        self._leaderless: dict[GroupId, None] = {}

    def begin(self) -> None:
        engine = self._engine
        engine.is_resigning = True
        partitions = list(engine.partitions.values())
        if len(self._quorum.latest) > 1:
            self._leaderless = {partition.group: None for partition in partitions if partition.core.is_leader}
        for partition in partitions:
            if partition.core.is_leader and partition.high_watermark < partition.core.log_end:
                self._settling[partition.group] = partition
                partition.wait_for_watermark(self._watcher(partition))
            else:
                engine.step(partition, ResignRequested())
        if self._settling:
            engine.timers.schedule(engine.now_ms + SETTLE_MS, self._end_settling)
        if self._leaderless:
            self._reports.role_listeners.append(self._on_role)
            engine.timers.schedule(engine.now_ms + HOLD_MS, self._end_holding)

    def is_drained(self) -> bool:
        """Graceful stop, second half: every group has another leader (or never had more voters than this node)."""
        return len(self._quorum.latest) == 1 or self._is_done()

    def _is_done(self) -> bool:
        nobody_else = (NO_LEADER, self._engine.config.node_id)
        return all(hosted.core.leader_id not in nobody_else for hosted in self._engine.partitions.values())

    def holds(self, partition: Partition) -> bool:
        """What arrives for this group is to wait: until it has resigned, then for its next leader."""
        return partition.group in self._settling or partition.group in self._leaderless

    def _watcher(self, partition: Partition) -> Callable[[int], bool]:
        def advanced(high_watermark: int) -> bool:
            """Whether the group need not be told of further high watermarks."""
            if not partition.deleted and partition.core.is_leader and high_watermark < partition.core.log_end:
                return False
            if self._settling.pop(partition.group, None) is not None:
                self._settled(partition)
            return True

        return advanced

    def _end_settling(self) -> None:
        settling, self._settling = self._settling, {}
        for partition in settling.values():
            self._settled(partition)

    def _settled(self, partition: Partition) -> None:
        if partition.deleted:
            return
        self._engine.step(partition, ResignRequested())
        if partition.appending and not self.holds(partition):
            # Nobody else can lead: what was held is appended here.
            self._engine.mark_appending(partition)

    def _on_role(self, group: GroupId, report: ReportRole) -> None:
        if report.leader_id not in (NO_LEADER, self._engine.config.node_id) and group in self._leaderless:
            del self._leaderless[group]
            settling = self._settling.pop(group, None)
            if settling is not None:
                self._settled(settling)
            self._refuse(group)

    def _end_holding(self) -> None:
        leaderless, self._leaderless = self._leaderless, {}
        for group in leaderless:
            self._refuse(group)

    def _refuse(self, group: GroupId) -> None:
        """What was held for the group, which may have been opened anew since the stop began."""
        partition = self._engine.partitions.get(group)
        if partition is not None:
            partition.refuse_appends()
