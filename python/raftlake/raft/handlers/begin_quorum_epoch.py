"""BeginQuorumEpoch (53): a new leader asserts itself, and repeats it to voters that do not fetch.

KIP-595: "a voter will reject a BeginQuorumEpoch request from a separate voter B from the same epoch"; Kafka stops the
process there, we answer INVALID_REQUEST and change nothing. Invariant: a leader sends it only after its LeaderChange record
is synced (scenario 34).
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import elections, outbox
from raftlake.raft.actions import Respond
from raftlake.raft.events import RequestFailed
from raftlake.raft.handlers.common import handle_common_response, is_for_us, validate_leaders_request
from raftlake.raft.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from raftlake.raft.roles import Leader, Prospective, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NodeId


def on_begin_request(group: GroupState, request_id: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    """Follow the leader; the voter key is checked after the transition, as Kafka does (scenario 41)."""
    group.actions.append(
        Respond(
            request_id=request_id,
            response=BeginQuorumEpochResponse(
                error=_accept(group, request, now_ms), leader_id=group.leader_id, leader_epoch=group.epoch
            ),
        )
    )


def _accept(group: GroupState, request: BeginQuorumEpochRequest, now_ms: int) -> ErrorCode:
    error = validate_leaders_request(group, request.leader_id, request.leader_epoch, now_ms)
    if error is not ErrorCode.NONE:
        return error
    reason = "begin quorum epoch"
    if not elections.learn_leader(group, request.leader_epoch, request.leader_id, reason, now_ms):
        return ErrorCode.INVALID_REQUEST
    is_given_up = group.leader_id == request.leader_id and isinstance(group.role, (Prospective, Unattached))
    if is_given_up and group.is_followable(request.leader_id):
        # The leader that we were about to replace is alive.
        elections.follow(group, group.epoch, request.leader_id, reason, now_ms)
    if not is_for_us(group, request.voter_id, request.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def on_begin_response(
    group: GroupState,
    source: NodeId,
    request: BeginQuorumEpochRequest,
    response: BeginQuorumEpochResponse,
    now_ms: int,
) -> None:
    """ "the leader will record the follower in memory as having endorsed the election"."""
    leader = group.role
    is_current = isinstance(leader, Leader) and outbox.take(leader.begins, source, request)
    handled = handle_common_response(group, response.error, response.leader_id, response.leader_epoch, source, now_ms)
    if not is_current or group.role is not leader or not isinstance(leader, Leader):
        return
    if handled or response.error is not ErrorCode.NONE:
        outbox.schedule_growing_retry(group, leader.begins, source, now_ms)
        return
    leader.voters[source].endorsed = True
    leader.begins.failures.pop(source, None)


def on_begin_failed(group: GroupState, event: RequestFailed, now_ms: int) -> None:
    """ "The leader will continue sending BeginQuorumEpoch to each known voter until it has received its endorsement"."""
    leader = group.role
    assert isinstance(event.request, BeginQuorumEpochRequest)
    if isinstance(leader, Leader) and outbox.take(leader.begins, event.peer, event.request):
        outbox.schedule_growing_retry(group, leader.begins, event.peer, now_ms)
