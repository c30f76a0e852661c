"""What a leader does with a new voter set: write it, count by it, and go when it is no longer in it (KIP-853).

Owns the appending of voter sets and the moving of progress between voters and observers. Invariant: from the append on every
majority is taken from the new set; a leader that is not in it goes on until the set is committed, without counting itself, and
then resigns (KAFKA-16530).
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft.actions import AnswerVoterChange, AppendVoters
from raftlake.raft.progress import advance_high_watermark, answer_parked
from raftlake.raft.roles import Leader, ReplicaProgress
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_DIRECTORY, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet


def append_voters(group: GroupState, leader: Leader, voters: VoterSet, now_ms: int, *, upgrade: bool = False) -> None:
    """Write `voters` and count by them at once; with `upgrade` the batch also says that voters are in the log from now on."""
    offset = group.log_end
    group.log_end = Offset(offset + (2 if upgrade else 1))
    group.voter_history.record(offset, voters)
    group.use_latest_voters()
    group.actions.append(AppendVoters(offset=offset, epoch=group.epoch, voters=voters, kraft_version=1 if upgrade else None))
    _rearrange(group, leader, now_ms)
    leader.watches_commits = True
    if leader.parked:
        answer_parked(group, leader)
    # A smaller majority may have more than the larger one had.
    advance_high_watermark(group, leader)
    after_commit(group, leader, now_ms)


def after_commit(group: GroupState, leader: Leader, now_ms: int) -> None:
    """The high watermark may have moved: answer the change it covers, take the step to kraft.version 1, or prepare to go."""
    pending = leader.pending_change
    history = group.voter_history
    latest_offset = history.latest_offset
    is_settled = latest_offset is None or latest_offset < group.high_watermark
    if pending is not None and is_settled:
        leader.pending_change = None
        if pending.request_id is not None:
            group.actions.append(
                AnswerVoterChange(
                    request_id=pending.request_id,
                    error=ErrorCode.NONE,
                    message="",
                    leader_id=group.leader_id,
                    leader_epoch=group.epoch,
                )
            )
    if is_settled and not group.is_voter:
        # By the clock, not here: the caller goes on as the leader that it found.
        leader.resigns = True
    elif leader.learns_voters and group.high_watermark > leader.epoch_start_offset:
        _step_up(group, leader, now_ms)
    leader.watches_commits = leader.learns_voters or not group.is_voter or leader.pending_change is not None


def learn_voter(group: GroupState, leader: Leader, voter: ReplicaKey, endpoints: tuple[VoterEndpoint, ...] = ()) -> None:
    """A static voter told its directory id, with a Fetch or an UpdateRaftVoter."""
    if voter.id in group.voters and voter.directory_id != NO_DIRECTORY:
        known = leader.learned_voters.get(voter.id)
        leader.learned_voters[voter.id] = (voter, endpoints or (known[1] if known is not None else ()))


def begin_learning(group: GroupState, leader: Leader) -> None:
    """A new leader of static voters wants to put them into the log, once it knows the directory id of each."""
    leader.learns_voters = (
        group.config.voters_in_log and group.voter_history.kraft_version == 0 and group.local.directory_id != NO_DIRECTORY
    )
    leader.watches_commits = leader.learns_voters or not group.is_voter
    if leader.learns_voters:
        learn_voter(group, leader, group.local)


def _step_up(group: GroupState, leader: Leader, now_ms: int) -> None:
    learned = leader.learned_voters
    if any(voter not in learned for voter in group.voters.ids):
        return
    leader.learns_voters = False
    keys: dict[NodeId, ReplicaKey] = {}
    endpoints: dict[NodeId, tuple[VoterEndpoint, ...]] = {}
    for voter in group.voters.ids:
        keys[voter], told = learned[voter]
        endpoints[voter] = told or group.voters.endpoints.get(voter, ())
    append_voters(group, leader, VoterSet(keys, endpoints), now_ms, upgrade=True)


def _rearrange(group: GroupState, leader: Leader, now_ms: int) -> None:
    """Carry what is known of each replica over to its new place (LeaderState.updateVoterAndObserverStates)."""
    old = leader.voters
    leader.voters = {}
    for node_id in group.other_voters:
        key = group.voters.voters[node_id]
        progress = old.get(node_id)
        if progress is None or not _is_same(progress.key, key):
            observer = leader.observers.get(node_id)
            if observer is not None and observer.key == key:
                progress = leader.observers.pop(node_id)
            else:
                progress = ReplicaProgress(key, now_ms)
        progress.key = key
        leader.voters[node_id] = progress
    for node_id, progress in old.items():
        if node_id not in leader.voters and node_id not in leader.observers:
            leader.observers[node_id] = progress
    for outbox in (leader.begins.in_flight, leader.begins.retry_at_ms, leader.begins.failures):
        for node_id in [each for each in outbox if each not in leader.voters]:
            del outbox[node_id]
    # Deadlines may be early, never late: have them computed anew by the new set.
    leader.check_quorum_deadline_ms = min(leader.check_quorum_deadline_ms, now_ms)
    leader.heartbeat_deadline_ms = min(leader.heartbeat_deadline_ms, now_ms)


def _is_same(known: ReplicaKey, key: ReplicaKey) -> bool:
    return known.directory_id in (NO_DIRECTORY, key.directory_id)
