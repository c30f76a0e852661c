"""When and where a replica that does not lead sends its next Fetch, or the next FetchSnapshot in its place.

At most one Fetch of a group is under way. It leaves only when everything in the log is synced, for its offset acknowledges
all below it (ARCHITECTURE, promise 1). A follower asks its leader; when that has failed twice it alternates between the leader
and the other voters: one of them may know better (testFollowerLeaderRediscoveryAfterRequestTimeout). A replica without a
leader asks the voters in turn, for "we piggyback current leader and epoch information on all responses" (KIP-595).
"""

from __future__ import annotations

from raftlake.raft.actions import AbandonRemoteLogAux, SendRequest
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.roles import Follower, SnapshotDownload, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_LEADER, UNKNOWN_OFFSET, NodeId

#: Fetches within a fetch timeout, while this replica waits for its own disk or for the remote tier.
SIGNS_OF_LIFE = 4


def send_fetch(group: GroupState, now_ms: int) -> None:
    """Send the next Fetch unless one is under way, the log is not synced, or its retry time has not come."""
    if group.fetch_retry_at_ms is not None:
        if group.fetch_retry_at_ms > now_ms:
            return
        group.fetch_retry_at_ms = None
    if group.fetch_in_flight is not None or group.flushed_end != group.log_end:
        return
    role = group.role
    if isinstance(role, Follower):
        is_others_turn = group.fetch_failures > 0 and group.fetch_failures % 2 == 0
        peer = _next_peer(group) if is_others_turn else group.leader_id
        if peer == NO_LEADER:
            # Its log tells of no voters, as that of an observer which was cut to nothing.
            peer = group.leader_id
        high_watermark = group.high_watermark
        if 0 < group.log_start == group.log_end and role.leader_high_watermark < 0:
            # All that we know to be committed stands below the log. A leader that knows of no more would keep silent, and we
            # not learn that there is no more.
            high_watermark = UNKNOWN_OFFSET
    elif isinstance(role, Unattached):
        peer = _next_peer(group)
        # Unknown: a leader of our epoch that we have not heard of shall answer at once.
        high_watermark = UNKNOWN_OFFSET
    else:
        return
    if peer == NO_LEADER:
        return
    if isinstance(role, Follower) and peer == group.leader_id:
        download = role.download
        if download is not None and not download.is_complete:
            _send(group, peer, _next_piece(group, download))
            return
    request = FetchRequest(
        replica=group.local,
        leader_epoch=group.epoch,
        fetch_offset=group.log_end,
        last_fetched_epoch=group.history.last_epoch,
        high_watermark=high_watermark,
        log_start_offset=group.shown_log_start,
    )
    _send(group, peer, request)


def _next_piece(group: GroupState, download: SnapshotDownload) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        replica=group.local, leader_epoch=group.epoch, snapshot_id=download.snapshot_id, position=download.position
    )


def _send(group: GroupState, peer: NodeId, request: FetchRequest | FetchSnapshotRequest) -> None:
    group.fetch_in_flight = request
    group.fetch_peer = peer
    group.actions.append(SendRequest(destination=peer, request=request))


def stop_building(group: GroupState, role: Follower) -> None:
    """Nothing has to come from the remote tier any more, or not for this leader."""
    if role.building is not None and role.building.is_under_way:
        group.actions.append(AbandonRemoteLogAux())
    role.building = None


def show_life_later(group: GroupState, now_ms: int) -> None:
    """Nothing can be fetched yet. Fetches go on now and then, for else leader and follower would give each other up."""
    group.fetch_retry_at_ms = now_ms + max(group.config.fetch_timeout_ms // SIGNS_OF_LIFE, 1)


def retry_fetch_later(group: GroupState, now_ms: int) -> None:
    """The fetch brought nothing; the next one waits for the retry backoff and may go to somebody else."""
    group.fetch_failures += 1
    group.fetch_retry_at_ms = now_ms + group.config.retry_backoff_ms


def _next_peer(group: GroupState) -> NodeId:
    """The voters in turn, without us and, where somebody else is left, without the leader that just failed. Who is no voter may
    know them by an old log: it also asks the addresses that it was told at start (KAFKA-17030)."""
    known = group.other_voters if group.is_voter else group.other_voters + group.bootstrap_peers
    candidates = [voter for voter in known if voter != group.leader_id] or list(known)
    if not candidates:
        return NO_LEADER
    voter = candidates[group.next_fetch_peer % len(candidates)]
    group.next_fetch_peer += 1
    return voter
