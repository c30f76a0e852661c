"""Fetch (1), the replica's side: follow the leader's log.

Owns truncation, appending and the high watermark of a replica that does not lead. Order within one response: leader and
epoch, divergence, records, only then the high watermark (KAFKA-14704: else uncommitted records become visible), log start.
Invariants: nothing below the high watermark is ever cut; the log stays contiguous and its epochs ascend; the next fetch
leaves only when all is synced.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode, require
from raftlake.raft import elections, fetching, impairment, transitions
from raftlake.raft.actions import AdoptLogStart, AdvanceHighWatermark, AppendFetched, TruncateTo
from raftlake.raft.events import LeaderConfirmed, RequestFailed
from raftlake.raft.handlers import fetch_snapshot, remote_log_aux
from raftlake.raft.handlers.common import handle_common_response, heard_from_leader
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from raftlake.raft.roles import Follower, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_LEADER, NodeId, Offset, OffsetAndEpoch


def on_fetch_response(group: GroupState, source: NodeId, request: FetchRequest, response: FetchResponse, now_ms: int) -> None:
    """Take in an answer to the fetch under way; any other is late and ignored."""
    in_flight = group.fetch_in_flight
    if in_flight is not request or source != group.fetch_peer:
        return
    group.fetch_in_flight = None
    if not _is_from_leader(group, source, response) and not _discovers_leader(group, source, response, now_ms):
        # Only its view of leader and epoch counts. A transition that it brings about has sent the next fetch.
        handle_common_response(group, response.error, response.leader_id, response.leader_epoch, source, now_ms)
        if response.error is ErrorCode.UNKNOWN_LEADER_EPOCH and response.leader_epoch < group.epoch:
            elections.announce_epoch(group, source)
        if group.fetch_in_flight is None:
            fetching.retry_fetch_later(group, now_ms)
        return
    role = group.role
    assert isinstance(role, Follower)
    heard_from_leader(group, role, now_ms)
    is_first_told = group.told_high_watermark < 0
    group.told_high_watermark = max(group.told_high_watermark, response.high_watermark)
    if is_first_told:
        group.first_told_high_watermark = group.told_high_watermark
    if response.diverging is None:
        role.leader_high_watermark = response.high_watermark
    impairment.learn_log_end(group, response.leader_log_end)
    if role.download is not None and role.download.is_complete:
        # Where the log begins anew is settled, and waits for the disk.
        fetching.show_life_later(group, now_ms)
        return
    if response.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        remote_log_aux.on_moved(group, role, response.snapshot_id, now_ms)
        return
    fetching.stop_building(group, role)
    if response.diverging is not None:
        made_progress = _truncate(group, response.diverging)
    elif response.snapshot_id is not None:
        made_progress = fetch_snapshot.begin_download(group, role, response.snapshot_id)
    else:
        made_progress = _append(group, response.batches)
        high_watermark = min(response.high_watermark, group.log_end)
        # A log that begins at its end knew it before the leader said so, and the driver has not been told.
        if high_watermark > group.high_watermark or (is_first_told and high_watermark == group.high_watermark > 0):
            group.high_watermark = Offset(high_watermark)
            group.actions.append(AdvanceHighWatermark(high_watermark=group.high_watermark))
        _take_log_start(group, response.log_start_offset)
        impairment.mend_if_whole(group)
    if not made_progress:
        # The leader meant to move us and could not: asking again at once would only repeat it.
        fetching.retry_fetch_later(group, now_ms)
        group.fetch_failures = 0
        return
    if group.flushed_end == group.log_end:
        fetching.send_fetch(group, now_ms)


def _is_from_leader(group: GroupState, source: NodeId, response: FetchResponse) -> bool:
    """Whether our leader answers, as the leader of our epoch, with records or with where to get what is before them."""
    return (
        isinstance(group.role, Follower)
        and source == group.leader_id == response.leader_id
        and response.leader_epoch == group.epoch
        and response.error in (ErrorCode.NONE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
    )


def _discovers_leader(group: GroupState, source: NodeId, response: FetchResponse, now_ms: int) -> bool:
    """The voter that we happened to ask leads our epoch: follow it and take its answer in at once, as Kafka does."""
    if (
        not isinstance(group.role, Unattached)
        or group.leader_id != NO_LEADER
        or response.error is not ErrorCode.NONE
        or response.leader_epoch != group.epoch
        or response.leader_id != source
        or not group.is_followable(source)
    ):
        return False
    transitions.become_follower(group, group.epoch, source, "fetch response", now_ms)
    return True


def _append(group: GroupState, batches: tuple[FetchedBatch, ...]) -> bool:
    """Append the batches up to the first that does not fit (KAFKA-18723); False when there were some and none did."""
    if not batches:
        return True
    history = group.history
    end = group.log_end
    last_epoch = history.last_epoch
    accepted = 0
    for batch in batches:
        if (
            batch.base_offset != end
            or batch.end_offset <= end
            or batch.epoch < last_epoch
            or batch.epoch > group.epoch
            or batch.epoch < 1
        ):
            break
        if batch.epoch != last_epoch or end == group.log_start:
            # Also the epoch of the record before an empty log, which is not in the history yet.
            history.assign(batch.epoch, end)
            last_epoch = batch.epoch
        end = batch.end_offset
        accepted += 1
    if accepted == 0:
        return False
    group.log_end = end
    _take_voters(group, batches[:accepted])
    taken = batches if accepted == len(batches) else batches[:accepted]
    group.actions.append(AppendFetched(batches=taken, leader_epoch=group.epoch))
    return True


def _take_log_start(group: GroupState, told: Offset) -> None:
    """What the leader has deleted is deleted here too (Kafka's maybeIncrementLogStartOffset): committed records only."""
    log_start = min(told, group.high_watermark)
    if group.shares_log_start and log_start > group.shown_log_start:
        group.told_log_start = log_start
        group.actions.append(AdoptLogStart(log_start=log_start))


def _take_voters(group: GroupState, batches: tuple[FetchedBatch, ...]) -> None:
    """A voter set counts once it is in the log, committed or not (KIP-853)."""
    changes = [batch for batch in batches if batch.voters is not None]
    for batch in changes:
        assert batch.voters is not None
        group.voter_history.record(batch.base_offset, batch.voters)
    if changes:
        group.use_latest_voters()


def _truncate(group: GroupState, diverging: OffsetAndEpoch) -> bool:
    """ "truncate any offset with an epoch greater than DivergingEpoch"; never below the high watermark.

    Our own end of the leader's epoch, or of the largest one below it, bounds the cut (Kafka's truncateToEndOffset): it may
    take several rounds to find the common point.
    """
    mine = group.history.floor_end(diverging.epoch, group.log_end)
    end = min(mine.offset, diverging.offset) if mine.epoch == diverging.epoch else mine.offset
    require(
        end >= group.high_watermark,
        f"leader {group.leader_id} of epoch {group.epoch} asks to truncate to {end} (divergence at {diverging.offset} of "
        f"epoch {diverging.epoch}), below the high watermark {group.high_watermark}",
    )
    if end >= group.log_end:
        return False
    group.cut_log(end)
    group.history.truncate_to(end)
    group.actions.append(TruncateTo(end_offset=end))
    return True


def on_fetch_failed(group: GroupState, event: RequestFailed, now_ms: int) -> None:
    """Ask again after the backoff, in turn with the other voters, until the fetch timeout ends it."""
    if group.fetch_in_flight is event.request and group.fetch_peer == event.peer:
        group.fetch_in_flight = None
        fetching.retry_fetch_later(group, now_ms)


def on_leader_confirmed(group: GroupState, event: LeaderConfirmed, now_ms: int) -> None:
    """A fetch round without news for this group is a successful fetch, unless something later spoke against the leader."""
    role = group.role
    if not isinstance(role, Follower) or event.leader_id != group.leader_id:
        return
    if role.has_leader_resigned or event.at_ms <= max(role.since_ms, role.suspected_at_ms):
        return
    role.has_fetched = True
    role.suspected_at_ms = -1
    role.deadline_reason = "fetch timeout"
    group.failed_elections = 0
    role.fetch_deadline_ms = max(role.fetch_deadline_ms, min(event.at_ms, now_ms) + group.config.fetch_timeout_ms)
