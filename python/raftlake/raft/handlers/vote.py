"""Vote (52) with pre-vote: the voter's side and the nominee's side.

Owns Kafka's validation order (KafkaRaftClient) and who may be granted what. Invariant: a real vote is in a `SaveElectionState`
before its answer, a pre-vote is never stored, and every answer carries our epoch after the bump (a lower one would make a
Java peer ask again at once).
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import elections, outbox, transitions
from raftlake.raft.actions import Respond
from raftlake.raft.events import FailureReason, RequestFailed
from raftlake.raft.handlers.common import handle_common_response, is_for_us, validate_voter_only_request
from raftlake.raft.messages import VoteRequest, VoteResponse
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_DIRECTORY, NO_LEADER, NodeId, ReplicaKey


def on_vote_request(group: GroupState, request_id: int, request: VoteRequest, now_ms: int) -> None:
    """Answer a (pre-)vote request; the checks come in Kafka's order."""
    error, granted = _judge(group, request, now_ms)
    group.actions.append(
        Respond(
            request_id=request_id,
            response=VoteResponse(error=error, leader_id=group.leader_id, leader_epoch=group.epoch, vote_granted=granted),
        )
    )


def _judge(group: GroupState, request: VoteRequest, now_ms: int) -> tuple[ErrorCode, bool]:
    last = request.log_end
    # A candidate bumped its epoch, so no record of that epoch can exist; a prospective did not.
    is_illegal = last.epoch > request.epoch if request.pre_vote else last.epoch >= request.epoch
    if last.offset < 0 or last.epoch < 0 or is_illegal:
        return ErrorCode.INVALID_REQUEST, False
    error = validate_voter_only_request(group, request.candidate.id, request.epoch, now_ms)
    if error is not ErrorCode.NONE:
        return error, False
    if request.epoch > group.epoch:
        # Also for a pre-vote: else our lower epoch would make the asker's own answers stale.
        what = "pre-vote" if request.pre_vote else "vote"
        elections.detach(group, request.epoch, f"{what} request of replica {request.candidate.id}", now_ms)
    if not is_for_us(group, request.voter_id, request.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY, False
    if not _may_be_voter(group, request):
        # KIP-595 "Vote Request Handling" 3.1: "the voter should accept the epoch bump"; the vote itself is refused.
        return ErrorCode.NONE, False
    if not can_grant(group, request, now_ms):
        return ErrorCode.NONE, False
    if not request.pre_vote and group.voted_key is None:
        transitions.add_vote(group, request.candidate, now_ms)
    return ErrorCode.NONE, True


def _may_be_voter(group: GroupState, request: VoteRequest) -> bool:
    """Whether the candidate votes by our log, or may by a newer one (KIP-853). A log that names no voters yet may end before
    the record that does, in a replica that votes by that very record and is needed; then the candidate's log has more."""
    candidate_id = request.candidate.id
    if group.voter_history.kraft_version > 0 or candidate_id in group.voters:
        return True
    mine = group.log_end_position
    has_more = (request.log_end.epoch, request.log_end.offset) > (mine.epoch, mine.offset)
    return has_more and group.is_followable(candidate_id)


def can_grant(group: GroupState, request: VoteRequest, now_ms: int) -> bool:
    """Whether this replica, in its role, grants a request of its own epoch (Kafka's EpochState.canGrantVote)."""
    if group.impairment is not None:
        return False
    role = group.role
    mine = group.log_end_position
    # "If the logs' last entry have different epochs, then the log with the later epoch is more up-to-date" (KIP-595).
    is_up_to_date = (request.log_end.epoch, request.log_end.offset) >= (mine.epoch, mine.offset)
    if isinstance(role, Leader):
        return False
    if isinstance(role, (Candidate, Resigned)):
        return request.pre_vote and is_up_to_date
    if isinstance(role, Follower):
        # An observer never gives a silent leader up by itself, and may be the voter on whom a new one depends.
        is_silent = not group.is_voter and now_ms >= role.fetch_deadline_ms
        return request.pre_vote and is_up_to_date and (not role.has_fetched or is_silent)
    assert isinstance(role, (Unattached, Prospective))
    if request.pre_vote:
        return is_up_to_date
    if group.voted_key is not None:
        return _is_same_voter(group.voted_key, request.candidate)
    return group.leader_id == NO_LEADER and is_up_to_date


def _is_same_voter(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """A vote without a directory id was cast when none was known; it stands for any directory of that node."""
    return voted.id == candidate.id and voted.directory_id in (NO_DIRECTORY, candidate.directory_id)


def on_vote_response(group: GroupState, source: NodeId, request: VoteRequest, response: VoteResponse, now_ms: int) -> None:
    """Count an answer to the round under way; answers to earlier rounds only teach us newer epochs."""
    is_current = _take_from_round(group, source, request)
    if handle_common_response(group, response.error, response.leader_id, response.leader_epoch, source, now_ms):
        _retry(group, source, is_current, now_ms)
        return
    role = group.role
    if not is_current or not isinstance(role, (Prospective, Candidate)):
        return
    if response.error is not ErrorCode.NONE:
        _retry(group, source, is_current, now_ms)
        return
    role.tally.record(source, granted=response.vote_granted)
    if isinstance(role, Prospective) and not response.vote_granted and source == response.leader_id == group.leader_id:
        # The leader that fell silent leads still, and may need us. A majority that has given it up says so soon. A voter
        # that does not answer may be paused, and the campaign does not wait for it until the election timeout.
        role.election_deadline_ms = min(role.election_deadline_ms, now_ms + group.jitter_bound_ms())
    elections.advance(group, now_ms)


def on_vote_failed(group: GroupState, event: RequestFailed, now_ms: int) -> None:
    """Ask again after the backoff; a voter that does not know pre-vote makes us skip it (testPreVoteNotSupportedByRemote)."""
    request = event.request
    assert isinstance(request, VoteRequest)
    if not _take_from_round(group, event.peer, request):
        return
    if event.reason is FailureReason.UNSUPPORTED_VERSION and isinstance(group.role, Prospective):
        elections.start_election(group, f"replica {event.peer} does not know pre-vote", now_ms)
        return
    _retry(group, event.peer, True, now_ms)


def _take_from_round(group: GroupState, source: NodeId, request: VoteRequest) -> bool:
    role = group.role
    return isinstance(role, (Prospective, Candidate)) and outbox.take(role.votes, source, request)


def _retry(group: GroupState, voter: NodeId, is_current: bool, now_ms: int) -> None:
    """Keep asking while the round can still be won; the role may have changed since the answer was matched."""
    role = group.role
    if not is_current or not isinstance(role, (Prospective, Candidate)):
        return
    if voter not in role.votes.in_flight and not role.tally.is_lost:
        outbox.schedule_retry(group, role.votes, voter, now_ms)
        if isinstance(role, Candidate):
            elections.notice_split_vote(group, role, now_ms)
