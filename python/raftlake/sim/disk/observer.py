"""Who is told of what happens on a simulated disk: the invariants, by way of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Offset, OffsetAndEpoch
from raftlake.sim.disk.log_image import StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Some neighbouring segments of a log became one: `after` stands where `before` stood."""

    request: Compaction
    before: Sequence[StoredBatch]
    after: Sequence[StoredBatch]


class DiskObserver(Protocol):
    """The invariants' view of the disk: told after each durable or visible change."""

    def election_saved(self, group: GroupId, before: ElectionState | None, after: ElectionState) -> None: ...

    def appended(self, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        """`epoch_before` is that of the record before the batch, -1 where there is none."""

    def log_cut(self, group: GroupId, end_offset: Offset) -> None: ...

    def log_deleted(self, group: GroupId) -> None: ...

    def log_start_moved(self, group: GroupId, start_offset: int, *, is_reset: bool) -> None: ...

    def segments_compacted(self, group: GroupId, installed: Installed) -> None: ...

    def pass_ended(self, group: GroupId, request: Compaction, compacted: Compacted) -> None:
        """A pass of compaction is over, and all of it is installed."""

    def snapshot_finished(self, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None: ...


class SilentObserver:
    """For disks without a cluster around them."""

    def election_saved(self, group: GroupId, before: ElectionState | None, after: ElectionState) -> None:
        return

    def appended(self, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        return

    def log_cut(self, group: GroupId, end_offset: Offset) -> None:
        return

    def log_deleted(self, group: GroupId) -> None:
        return

    def log_start_moved(self, group: GroupId, start_offset: int, *, is_reset: bool) -> None:
        return

    def segments_compacted(self, group: GroupId, installed: Installed) -> None:
        return

    def pass_ended(self, group: GroupId, request: Compaction, compacted: Compacted) -> None:
        return

    def snapshot_finished(self, group: GroupId, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        return
