"""EndQuorumEpoch (54): a leader that steps down lets its successor start at once.

Only leaders send it (the seed's candidate form never shipped). Invariant: the receiver never campaigns against anyone but
the leader that ended its own epoch.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import elections, outbox
from raftlake.raft.actions import Respond
from raftlake.raft.events import RequestFailed
from raftlake.raft.handlers.common import handle_common_response, validate_leaders_request
from raftlake.raft.messages import EndQuorumEpochRequest, EndQuorumEpochResponse
from raftlake.raft.roles import Follower, Resigned
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_DIRECTORY, NodeId


def on_end_request(group: GroupState, request_id: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
    """Set the campaign of a follower of that leader to its place in the line; the answer leaves before any campaign."""
    # Who has just started may be named first for what it had fetched before it stopped.
    is_fresh = isinstance(group.role, Follower) and group.role.has_fetched
    error = _accept(group, request, now_ms)
    group.actions.append(
        Respond(
            request_id=request_id,
            response=EndQuorumEpochResponse(error=error, leader_id=group.leader_id, leader_epoch=group.epoch),
        )
    )
    if error is ErrorCode.NONE and elections.campaign_is_due(group, now_ms):
        # "If the node's priority is highest, it will become candidate immediately instead of waiting for next poll." Kafka has
        # it ask for pre-votes first: a round trip more without service, to protect a leader who has said that it goes.
        is_successor = is_fresh and _rank(group, request) == 0
        start = elections.start_election if is_successor else elections.start_pre_vote
        start(group, "leader resigned", now_ms)


def _accept(group: GroupState, request: EndQuorumEpochRequest, now_ms: int) -> ErrorCode:
    error = validate_leaders_request(group, request.leader_id, request.leader_epoch, now_ms)
    if error is not ErrorCode.NONE:
        return error
    if not elections.learn_leader(group, request.leader_epoch, request.leader_id, "end quorum epoch", now_ms):
        return ErrorCode.INVALID_REQUEST
    role = group.role
    if isinstance(role, Follower) and group.leader_id == request.leader_id:
        role.fetch_deadline_ms = now_ms + _backoff_ms(group, request)
        role.deadline_reason = "leader resigned"
        # It said itself that it no longer leads: having fetched from it is no reason to refuse pre-votes (KAFKA-20895).
        role.has_fetched = False
        role.suspected_at_ms = now_ms
        role.has_leader_resigned = True
    return ErrorCode.NONE


def _backoff_ms(group: GroupState, request: EndQuorumEpochRequest) -> int:
    """Wait by rank: 0 for the first, then a base that doubles; the full backoff for who is not in the list.

    Kafka's shape, min(max, (max >> (n - 1)) << (rank - 1)), which is the seed's with base `max >> (n - 1)`. A leader that
    restarted names no successor; then the jitter keeps the voters from all starting in the same moment.
    """
    candidates = request.preferred_candidates
    if not candidates:
        return group.random_jitter_ms()
    backoff_ms_max = group.config.retry_backoff_ms_max
    rank = _rank(group, request)
    if rank is None:
        return backoff_ms_max
    if rank == 0:
        return 0
    return min(backoff_ms_max, (backoff_ms_max >> min(len(candidates) - 1, 32)) << min(rank - 1, 32))


def _rank(group: GroupState, request: EndQuorumEpochRequest) -> int | None:
    """This replica's place in the line of successors, from 0; None when it is not named."""
    for rank, candidate in enumerate(request.preferred_candidates):
        if candidate.id == group.local.id and candidate.directory_id in (NO_DIRECTORY, group.local.directory_id):
            return rank
    return None


def on_end_response(
    group: GroupState, source: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse, now_ms: int
) -> None:
    """ "If there's no error code, then do nothing"; a newer epoch in the answer is taken in like anywhere."""
    role = group.role
    is_current = isinstance(role, Resigned) and outbox.take(role.ends, source, request)
    handled = handle_common_response(group, response.error, response.leader_id, response.leader_epoch, source, now_ms)
    if not is_current or group.role is not role or not isinstance(role, Resigned):
        return
    if handled or response.error is not ErrorCode.NONE:
        outbox.schedule_growing_retry(group, role.ends, source, now_ms)
    else:
        role.acknowledged[source] = None


def on_end_failed(group: GroupState, event: RequestFailed, now_ms: int) -> None:
    """Resent while Resigned until it is acknowledged (testEndQuorumEpochRetriesWhileResigned)."""
    role = group.role
    assert isinstance(event.request, EndQuorumEpochRequest)
    if isinstance(role, Resigned) and outbox.take(role.ends, event.peer, event.request):
        outbox.schedule_growing_retry(group, role.ends, event.peer, now_ms)
