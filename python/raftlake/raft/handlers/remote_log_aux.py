"""The records before the leader's log are in the remote tier (KIP-405): BuildingRemoteLogAux, both sides.

The leader answers a Fetch that it cannot reconcile with OFFSET_MOVED_TO_TIERED_STORAGE. The follower has its driver build
what a snapshot at the leader's log start would say, and begins behind it. Knows no tier: the driver asks it. Meanwhile the
follower goes on to fetch, now and then, at the position of its own log. No records come of that, but signs of life go both
ways, and any other answer of the leader ends the building.

Invariants: the log is untouched until the snapshot is durable here; one attempt is under way at a time; an attempt counts for
the leader and the epoch that it began with.
"""

from __future__ import annotations

from raftlake.errors import require
from raftlake.raft import fetching
from raftlake.raft.actions import BuildRemoteLogAux
from raftlake.raft.events import HistoryTiered, RemoteLogAuxBuilt, RemoteLogAuxFailed
from raftlake.raft.handlers import fetch_snapshot
from raftlake.raft.roles import BuildingRemoteLogAux, Follower
from raftlake.raft.state import GroupState
from raftlake.raft.types import Epoch, OffsetAndEpoch

# --- the leader ---


def on_history_tiered(group: GroupState, event: HistoryTiered, now_ms: int) -> None:
    """What the remote tier shows of this log."""
    group.tiered_start, group.tiered_end = event.start_offset, event.end_offset


def is_before_log_in_tier(group: GroupState) -> bool:
    """Whether the remote tier shows the records just before our log."""
    return group.begins_in_tier


# --- the follower ---


def on_moved(group: GroupState, role: Follower, snapshot_id: OffsetAndEpoch | None, now_ms: int) -> None:
    """The leader says that the records are in the tier: have the driver build, unless it is at it or has to wait."""
    if role.download is not None:
        # The tier was of no use meanwhile.
        fetching.send_fetch(group, now_ms)
        return
    building = role.building
    if building is None:
        building = role.building = BuildingRemoteLogAux()
    building.snapshot_id = snapshot_id
    if not building.is_under_way and now_ms >= building.retry_at_ms:
        building.is_under_way = True
        group.actions.append(BuildRemoteLogAux(leader_id=group.leader_id, leader_epoch=group.epoch))
    fetching.show_life_later(group, now_ms)
    if not building.is_under_way and group.fetch_retry_at_ms is not None:
        group.fetch_retry_at_ms = min(group.fetch_retry_at_ms, building.retry_at_ms)


def on_built(group: GroupState, event: RemoteLogAuxBuilt, now_ms: int) -> None:
    """The snapshot is durable. It holds committed records only, so it counts for other leaders too, like a fetched one."""
    role, awaited = group.role, _awaited(group, event.leader_epoch)
    if awaited is not None and event.snapshot_id.offset <= group.high_watermark:
        # The tier knows less than our log does.
        _fail(group, awaited, now_ms)
        return
    require(
        event.snapshot_id.epoch <= group.epoch, f"state of epoch {event.snapshot_id.epoch} was built in epoch {group.epoch}"
    )
    if awaited is not None and isinstance(role, Follower):
        role.building = None
        group.fetch_retry_at_ms = None
    fetch_snapshot.begin_behind(group, event.snapshot_id, event.voters, now_ms, was_awaited=awaited is not None)


def on_failed(group: GroupState, event: RemoteLogAuxFailed, now_ms: int) -> None:
    """Try again after a backoff, when the leader sends us to the tier again. One that has refused is asked at once what is.
    Where no tier can be used, its snapshot is fetched instead."""
    role, awaited = group.role, _awaited(group, event.leader_epoch)
    if awaited is None or not isinstance(role, Follower):
        return
    snapshot_id = awaited.snapshot_id if event.is_unusable else None
    if snapshot_id is not None and fetch_snapshot.begin_download(group, role, snapshot_id):
        role.building = None
        group.fetch_retry_at_ms = None
        fetching.send_fetch(group, now_ms)
        return
    _fail(group, awaited, now_ms)
    if event.is_refused:
        group.fetch_retry_at_ms = None
        fetching.send_fetch(group, now_ms)


def _awaited(group: GroupState, leader_epoch: Epoch) -> BuildingRemoteLogAux | None:
    """The attempt that is under way, if it is the one that began in `leader_epoch`."""
    role = group.role
    building = role.building if isinstance(role, Follower) and leader_epoch == group.epoch else None
    return building if building is not None and building.is_under_way else None


def _fail(group: GroupState, building: BuildingRemoteLogAux, now_ms: int) -> None:
    config = group.config
    building.is_under_way = False
    building.retry_at_ms = now_ms + min(config.retry_backoff_ms << min(building.failures, 16), config.retry_backoff_ms_max)
    building.failures += 1
    if group.fetch_in_flight is None:
        planned_ms = group.fetch_retry_at_ms
        retry_at_ms = building.retry_at_ms
        group.fetch_retry_at_ms = retry_at_ms if planned_ms is None else min(planned_ms, retry_at_ms)
