"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82): the leader changes who votes (KIP-853).

Owns Kafka's order of checks (AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler) and the automatic step from static
voters to voters in the log. Invariants: one change at a time, only when an entry of the own epoch and the change before it are
committed, and by one voter; that is why a majority of the old set and one of the new set always share a voter. A change is
answered once, by `AnswerVoterChange`.
"""

from __future__ import annotations

from typing import assert_never

from raftlake.errors import ErrorCode, require
from raftlake.raft import reconfiguration
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.events import VoterChangeRequested
from raftlake.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from raftlake.raft.roles import Leader, PendingChange
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_DIRECTORY, NodeId, ReplicaKey, VoterSet

#: A refusal: the error and what is told to people. None where a change may go on.
Refusal = tuple[ErrorCode, str]


def on_voter_change_requested(group: GroupState, event: VoterChangeRequested, now_ms: int) -> None:
    """Check, append and, where the change waits for its commit, remember whom to answer."""
    change = event.change
    refusal = _refuse(group, change, now_ms)
    if refusal is not None:
        answer(group, event.request_id, *refusal)
        return
    leader = group.role
    assert isinstance(leader, Leader)
    match change:
        case AddVoter():
            voters = group.voters.with_voter(change.voter, change.endpoints)
            waits = change.ack_when_committed
        case RemoveVoter():
            voters = group.voters.without(change.voter.id)
            waits = True
        case UpdateVoter():
            if group.voter_history.kraft_version == 0:
                # Nothing can be written yet: what the voter says of itself goes into the first set.
                reconfiguration.learn_voter(group, leader, change.voter, change.endpoints)
                answer(group, event.request_id, ErrorCode.NONE, "")
                reconfiguration.after_commit(group, leader, now_ms)
                return
            voters = group.voters.with_voter(change.voter, change.endpoints)
            waits = False
        case _:
            assert_never(change)
    _require_one_step(group.voters, voters)
    if not waits:
        answer(group, event.request_id, ErrorCode.NONE, "")
    if isinstance(change, AddVoter | RemoveVoter):
        leader.pending_change = PendingChange(
            request_id=event.request_id if waits else None,
            deadline_ms=now_ms + group.config.request_timeout_ms,
        )
    reconfiguration.append_voters(group, leader, voters, now_ms)


def answer(group: GroupState, request_id: int, error: ErrorCode, message: str) -> None:
    """One AnswerVoterChange that names the leader as far as it is known."""
    group.actions.append(
        AnswerVoterChange(
            request_id=request_id, error=error, message=message, leader_id=group.leader_id, leader_epoch=group.epoch
        )
    )


def _require_one_step(old: VoterSet, new: VoterSet) -> None:
    """At most one voter comes, goes or changes: else the two sets could have majorities without a common voter."""
    changed = [node_id for node_id in {**old.voters, **new.voters} if old.voters.get(node_id) != new.voters.get(node_id)]
    require(len(changed) <= 1, f"voters {old.ids} cannot become {new.ids} in one step")


def _refuse(group: GroupState, change: AddVoter | RemoveVoter | UpdateVoter, now_ms: int) -> Refusal | None:
    leader = group.role
    if isinstance(change, UpdateVoter) and change.leader_epoch != group.epoch:
        is_older = change.leader_epoch < group.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH, ""
    if not isinstance(leader, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the group"
    if change.voter.id < 0 or change.voter.directory_id == NO_DIRECTORY:
        return ErrorCode.INVALID_REQUEST, "the request names no voter by id and directory id"
    if not isinstance(change, RemoveVoter) and not change.endpoints:
        return ErrorCode.INVALID_REQUEST, f"no endpoint of voter {change.voter.id} is given"
    if isinstance(change, UpdateVoter) and not 0 <= change.kraft_versions[0] <= change.kraft_versions[1]:
        return ErrorCode.INVALID_REQUEST, f"kraft.version range {change.kraft_versions} is none"
    return _refuse_now(group, leader, now_ms) or _refuse_change(group, leader, change, now_ms)


def _refuse_now(group: GroupState, leader: Leader, now_ms: int) -> Refusal | None:
    """What stands in the way of any change; the asker may try again."""
    expire_change(group, leader, now_ms)
    if leader.pending_change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of voters is under way"
    if group.high_watermark <= leader.epoch_start_offset:
        return ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed an entry of its epoch yet"
    return None


def _refuse_change(
    group: GroupState, leader: Leader, change: AddVoter | RemoveVoter | UpdateVoter, now_ms: int
) -> Refusal | None:
    latest_offset = group.voter_history.latest_offset
    if group.voter_history.kraft_version == 0:
        if isinstance(change, UpdateVoter):
            return _refuse_update(group, change)
        return ErrorCode.UNSUPPORTED_VERSION, "the voters are static (kraft.version 0): not all of them have been heard of yet"
    assert latest_offset is not None
    if latest_offset >= group.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, f"the change of voters at offset {latest_offset} is not committed yet"
    match change:
        case AddVoter():
            return _refuse_addition(group, leader, change, now_ms)
        case RemoveVoter():
            return _refuse_removal(group, leader, change.voter, now_ms)
        case UpdateVoter():
            return _refuse_update(group, change)
        case _:
            assert_never(change)


def _refuse_addition(group: GroupState, leader: Leader, change: AddVoter, now_ms: int) -> Refusal | None:
    voter = change.voter
    if voter.id in group.voters:
        return ErrorCode.DUPLICATE_VOTER, f"node {voter.id} is a voter already"
    if not change.kraft_versions[0] <= group.voter_history.kraft_version <= change.kraft_versions[1]:
        return ErrorCode.INVALID_REQUEST, f"node {voter.id} does not know kraft.version {group.voter_history.kraft_version}"
    progress = leader.observers.get(voter.id)
    if progress is None or progress.key != voter:
        return ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} with that directory id has not fetched from the leader yet"
    # Kafka is content with a fetch in the last hour; a voter that does not keep up would stop commits where it is needed.
    if progress.caught_up_at_ms < 0 or now_ms - progress.fetched_at_ms > group.config.fetch_timeout_ms:
        behind = group.log_end - max(progress.end_offset, 0)
        return ErrorCode.REQUEST_TIMED_OUT, f"node {voter.id} is lagging, {behind} offsets behind the leader"
    return None


def _refuse_removal(group: GroupState, leader: Leader, voter: ReplicaKey, now_ms: int) -> Refusal | None:
    if group.voters.voters.get(voter.id) != voter:
        known = ", ".join(str(node_id) for node_id in group.voters.ids)
        return ErrorCode.VOTER_NOT_FOUND, f"node {voter.id} with that directory id is no voter; the voters are {known}"
    if len(group.voters) == 1:
        # Kafka's code for it too.
        return ErrorCode.VOTER_NOT_FOUND, f"node {voter.id} is the only voter, and without one no node leads: add another first"
    remaining = group.voters.without(voter.id)
    awake = [node_id for node_id in remaining.ids if _is_awake(group, leader, node_id, now_ms)]
    if len(awake) < remaining.majority:
        silent = ", ".join(str(node_id) for node_id in remaining.ids if node_id not in awake)
        consequence = f"without node {voter.id} the voters would lose their majority, since node {silent} does not answer"
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"{consequence}: bring it back, or remove it first"
    return None


def _is_awake(group: GroupState, leader: Leader, node_id: NodeId, now_ms: int) -> bool:
    """It has fetched from this leader, within the fetch timeout and since its connection was last lost: a voter that was killed
    a moment ago, perhaps before the election, is no argument for a smaller set."""
    if node_id == group.local.id:
        return True
    progress = leader.voters[node_id]
    has_fetched = progress.has_fetched and progress.lost_at_ms < progress.fetched_at_ms
    return has_fetched and now_ms - progress.fetched_at_ms <= group.config.fetch_timeout_ms


def _refuse_update(group: GroupState, change: UpdateVoter) -> Refusal | None:
    if not change.kraft_versions[0] <= group.voter_history.kraft_version <= change.kraft_versions[1]:
        return ErrorCode.INVALID_REQUEST, f"node {change.voter.id} does not know our kraft.version"
    if not group.voters.has(change.voter):
        return ErrorCode.VOTER_NOT_FOUND, f"node {change.voter.id} with that directory id is not a voter"
    return None


def expire_change(group: GroupState, leader: Leader, now_ms: int) -> None:
    """A change that has not committed in time is answered so; it may still commit, and until then there is no other. No reason
    is given: one says why nothing was begun."""
    pending = leader.pending_change
    if pending is not None and now_ms >= pending.deadline_ms:
        leader.pending_change = None
        if pending.request_id is not None:
            answer(group, pending.request_id, ErrorCode.REQUEST_TIMED_OUT, "")
