"""FetchSnapshot (59, KIP-630), both sides: the state before the log start travels as the bytes of a snapshot.

Owns when a follower fetches a snapshot, how its pieces are put together, and when the log begins anew behind it. Knows no
bytes: the driver reads and writes them. Invariants: pieces are taken in order, of one snapshot and from one leader; the log
is reset only to a snapshot that is durable here, above the high watermark, and no part of the log yet; neither a leader nor a
replica that campaigns ever loads one.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode, require
from raftlake.raft import fetching, impairment
from raftlake.raft.actions import (
    AbandonSnapshot,
    AdvanceHighWatermark,
    AnswerFetchSnapshot,
    FinishSnapshot,
    ResetLog,
    WriteSnapshot,
)
from raftlake.raft.events import SnapshotReceived, SnapshotTaken
from raftlake.raft.handlers.common import handle_common_response, heard_from_leader
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.progress import find_progress
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, SnapshotDownload
from raftlake.raft.state import GroupState
from raftlake.raft.types import NodeId, OffsetAndEpoch, VoterSet

#: The leader no longer has that snapshot, or never had that much of it: begin again with a Fetch.
_GONE = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
#: All others are about the leader, or about us.
_ABOUT_THE_SNAPSHOT = (ErrorCode.NONE, *_GONE)


def take_up(group: GroupState, snapshot_id: OffsetAndEpoch) -> None:
    """At start: the newest snapshot on disk. How much is committed behind it is the leader's to say."""
    require(
        group.log_start <= snapshot_id.offset <= group.log_end,
        f"the snapshot at {snapshot_id.offset} lies outside of the log from {group.log_start} to {group.log_end}",
    )
    group.snapshot_id = snapshot_id
    if snapshot_id.offset == group.log_start:
        group.history.know_epoch_before_start(snapshot_id.epoch)


# --- the leader ---


def on_fetch_snapshot_request(group: GroupState, request_id: int, request: FetchSnapshotRequest, now_ms: int) -> None:
    """Epoch and leadership are checked here, the snapshot and the position by the driver. Counts as a sign of life: a follower
    that fetches a large snapshot sends no Fetch meanwhile (FetchSnapshotRequestFromMajority)."""
    error = _validate(group, request)
    leader = group.role
    if error is ErrorCode.NONE:
        assert isinstance(leader, Leader)
        progress = find_progress(group, leader, request.replica, now_ms)
        progress.fetched_at_ms = max(progress.fetched_at_ms, now_ms)
        progress.endorsed = True
    group.actions.append(
        AnswerFetchSnapshot(
            request_id=request_id, request=request, error=error, leader_id=group.leader_id, leader_epoch=group.epoch
        )
    )


def _validate(group: GroupState, request: FetchSnapshotRequest) -> ErrorCode:
    if request.leader_epoch != group.epoch:
        is_older = request.leader_epoch < group.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
    if not group.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.replica.id < 0 or request.replica.id == group.local.id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def on_snapshot_taken(group: GroupState, event: SnapshotTaken, now_ms: int) -> None:
    """A snapshot of our own is finished: from now on it is the one that is named to followers."""
    require_position(group, event.snapshot_id)
    if group.snapshot_id is None or event.snapshot_id.offset > group.snapshot_id.offset:
        group.snapshot_id = event.snapshot_id


def require_position(group: GroupState, snapshot_id: OffsetAndEpoch) -> None:
    """A snapshot may only be of what is committed, and carries the epoch of its last record
    (testCreateSnapshotAsLeaderWithInvalidSnapshotId)."""
    offset = snapshot_id.offset
    require(
        group.log_start <= offset <= group.high_watermark,
        f"snapshot at {offset}, outside of what is committed here: {group.log_start} to {group.high_watermark}",
    )
    epoch = group.history.epoch_before(offset)
    require(snapshot_id.epoch == epoch, f"snapshot at {offset} claims epoch {snapshot_id.epoch}, the log has {epoch} there")


# --- the follower ---


def begin_download(group: GroupState, role: Follower, snapshot_id: OffsetAndEpoch) -> bool:
    """The leader named a snapshot instead of records; False when it makes no sense to go there."""
    if snapshot_id.offset < 0 or snapshot_id.epoch < 0 or snapshot_id.epoch > group.epoch:
        return False
    if group.history.contains(snapshot_id, group.log_end) and snapshot_id.offset == group.log_end:
        return False
    require(
        snapshot_id.offset >= group.high_watermark,
        f"leader {group.leader_id} of epoch {group.epoch} names the snapshot at {snapshot_id.offset}, below the high watermark "
        f"{group.high_watermark}",
    )
    if snapshot_id == group.snapshot_id:
        # The set in front of the log is that of this very snapshot.
        _begin_at(group, snapshot_id, group.voter_history.at(snapshot_id.offset))
    else:
        role.download = SnapshotDownload(snapshot_id=snapshot_id)
    return True


def on_fetch_snapshot_response(
    group: GroupState, source: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now_ms: int
) -> None:
    """Take in the next piece; any answer but that of our leader to the request under way ends the download or is ignored."""
    role = group.role
    if group.fetch_in_flight is not request or source != group.fetch_peer:
        return
    group.fetch_in_flight = None
    is_leaders = source == group.leader_id == response.leader_id and response.leader_epoch == group.epoch
    if not isinstance(role, Follower) or not is_leaders or response.error not in _ABOUT_THE_SNAPSHOT:
        handle_common_response(group, response.error, response.leader_id, response.leader_epoch, source, now_ms)
        if group.fetch_in_flight is None:
            fetching.retry_fetch_later(group, now_ms)
        return
    download = role.download
    require(download is not None, "a piece of a snapshot that is not being fetched")
    assert download is not None
    heard_from_leader(group, role, now_ms)
    if response.error is not ErrorCode.NONE or not _fits(download, response):
        _abandon(group, role, download, now_ms)
        return
    group.actions.append(WriteSnapshot(snapshot_id=download.snapshot_id, position=download.position, data=response.data))
    download.size = response.size
    download.position += len(response.data)
    if download.position == download.size:
        download.is_complete = True
        group.actions.append(FinishSnapshot(snapshot_id=download.snapshot_id))
        fetching.show_life_later(group, now_ms)
    else:
        fetching.send_fetch(group, now_ms)


def _fits(download: SnapshotDownload, response: FetchSnapshotResponse) -> bool:
    return (
        response.snapshot_id == download.snapshot_id
        and response.position == download.position
        and download.size in (-1, response.size)
        and 0 < len(response.data) <= response.size - response.position
    )


def _abandon(group: GroupState, role: Follower, download: SnapshotDownload, now_ms: int) -> None:
    """Ask by a Fetch again after the backoff: the leader names the snapshot that it has then."""
    role.download = None
    group.actions.append(AbandonSnapshot(snapshot_id=download.snapshot_id))
    fetching.retry_fetch_later(group, now_ms)
    group.fetch_failures = 0


def _end_download(group: GroupState, role: Follower) -> None:
    """The next Fetch is for records, and does not wait until a sign of life is due."""
    role.download = None
    group.fetch_retry_at_ms = None


def on_snapshot_received(group: GroupState, event: SnapshotReceived, now_ms: int) -> None:
    """The leader's snapshot is durable here, or was damaged.

    It holds committed records only, under every leader that it was fetched from, so it is taken by any role that follows a log.
    A leader has all that was ever committed and ignores it. A campaign goes on with the log and the voters that it began with.
    A log that got to the snapshot under another leader stays: that leader may have counted what is behind it
    (KafkaRaftLog.truncateToLatestSnapshot).
    """
    role = group.role
    snapshot_id = event.snapshot_id
    download = role.download if isinstance(role, Follower) else None
    was_awaited = download is not None and download.snapshot_id == snapshot_id
    if not event.is_intact:
        if isinstance(role, Follower) and download is not None and was_awaited and download.is_complete:
            role.download = None
            fetching.retry_fetch_later(group, now_ms)
            group.fetch_failures = 0
        # Else an earlier download of it was damaged, and the one under way may be whole.
        return
    if isinstance(role, Follower) and was_awaited:
        _end_download(group, role)
    if not begin_behind(group, snapshot_id, event.voters, now_ms, was_awaited=was_awaited) and was_awaited:
        fetching.send_fetch(group, now_ms)


def begin_behind(
    group: GroupState, snapshot_id: OffsetAndEpoch, voters: VoterSet | None, now_ms: int, *, was_awaited: bool
) -> bool:
    """A snapshot of what our leader's log begins with is durable here: go on behind it. False where our log stays."""
    role = group.role
    is_in_log = not was_awaited and group.history.contains(snapshot_id, group.log_end)
    if isinstance(role, Leader | Prospective | Candidate) or snapshot_id.offset <= group.high_watermark or is_in_log:
        return False
    if isinstance(role, Follower):
        if role.download is not None:
            group.actions.append(AbandonSnapshot(snapshot_id=role.download.snapshot_id))
            _end_download(group, role)
        fetching.stop_building(group, role)
    _begin_at(group, snapshot_id, voters)
    impairment.mend_if_whole(group)
    # A fetch under way was sent with the position that the log had before.
    group.fetch_in_flight = None
    fetching.send_fetch(group, now_ms)
    return True


def _begin_at(group: GroupState, start: OffsetAndEpoch, voters: VoterSet | None) -> None:
    """Drop our log and go on behind the snapshot `start`, which is durable here and says who votes."""
    group.cut_log(start.offset)
    group.voter_history.reset(start.offset, voters)
    group.use_latest_voters()
    group.log_start = group.flushed_end = group.log_end
    group.history.reset(start)
    group.snapshot_id = start
    group.actions.append(ResetLog(start=start))
    if start.offset > group.high_watermark:
        group.high_watermark = start.offset
        group.actions.append(AdvanceHighWatermark(high_watermark=start.offset))
