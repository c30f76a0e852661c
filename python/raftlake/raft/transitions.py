"""The one place where roles are made and election facts change.

Owns `ALLOWED`, the table of legal moves as data, and one `become_*` function per role. Knows no messages: what a role
sends is for `elections.py` and the handlers. Invariants: the epoch never goes back; within an epoch the leader, once
known, and the own vote, once cast, never change; both are saved before anything that depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlake.errors import ErrorCode, require
from raftlake.raft import reads
from raftlake.raft.actions import (
    AbandonRemoteLogAux,
    AbandonSnapshot,
    AnswerFetch,
    AnswerVoterChange,
    ReportRole,
    SaveElectionState,
)
from raftlake.raft.quorum import Tally
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, ReplicaProgress, Resigned, Role, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_LEADER, ElectionState, Epoch, NodeId, Offset, ReplicaKey

#: From each role, the roles that may come next. A role that leads to itself does so in a higher epoch.
ALLOWED: Mapping[type[Role], frozenset[type[Role]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Follower, Leader}),
    # A Candidate only as the first successor that a leader named.
    Follower: frozenset({Unattached, Prospective, Candidate, Follower}),
    Leader: frozenset({Unattached, Follower, Resigned}),
    Resigned: frozenset({Unattached, Follower}),
}

#: Moves that an epoch bump must come with: no node leaves leadership, finished or not, within its epoch (KAFKA-18379).
EPOCH_BUMP_REQUIRED: frozenset[tuple[type[Role], type[Role]]] = frozenset(
    {
        (Unattached, Unattached),
        (Candidate, Unattached),
        (Follower, Unattached),
        (Follower, Follower),
        (Leader, Unattached),
        (Leader, Follower),
        (Resigned, Unattached),
        (Resigned, Follower),
    }
)


def restore(group: GroupState, election: ElectionState | None, now_ms: int) -> None:
    """Take up the role that the last run left on disk (QuorumState.initialize). Emits nothing; `Started` reports it."""
    saved = election or ElectionState()
    group.election = saved
    last_epoch = group.history.last_epoch
    if saved.epoch < last_epoch:
        # The log proves a later epoch than the file: whatever the file says about leader and vote is void.
        saved = ElectionState(epoch=last_epoch)
    group.epoch = saved.epoch
    group.voted_key = saved.voted_key
    leader_id = NO_LEADER if saved.leader_id is None else saved.leader_id
    deadline_ms = now_ms + group.random_election_timeout_ms()
    role: Role
    if group.is_alone or (leader_id == group.local.id and not (group.other_voters and group.may_stand())):
        # The only voter leads a new epoch at once; a former leader that lost its vote, or its log, looks for its successor.
        role = Unattached(election_deadline_ms=now_ms)
    elif leader_id == group.local.id:
        # It may have lost unsynced records of this epoch; leading on would give their offsets out twice (KAFKA-10527).
        role = Resigned(election_deadline_ms=deadline_ms, preferred_candidates=())
    elif group.is_followable(leader_id):
        group.leader_id = leader_id
        role = Follower(fetch_deadline_ms=now_ms + group.config.fetch_timeout_ms, since_ms=now_ms)
    elif leader_id == NO_LEADER and group.may_stand() and saved.voted_key == group.local and group.impairment is None:
        role = Candidate(election_deadline_ms=deadline_ms, tally=_tally_with_own_vote(group))
    else:
        group.leader_id = leader_id
        # No leader is known, so an early pre-vote disturbs none.
        role = Unattached(election_deadline_ms=now_ms + group.random_jitter_ms())
    _install(group, role)


def save_restored(group: GroupState) -> None:
    """Save the epoch that the log proved where the file fell behind it."""
    if group.epoch > group.election.epoch:
        _set_election(group, group.epoch, group.leader_id, group.voted_key)


def become_unattached(group: GroupState, epoch: Epoch, reason: str, now_ms: int) -> None:
    """Forget leader and vote because of a higher epoch, or end a lost pre-vote round of this epoch.

    An epoch bump keeps the time that was left to the next election (pitfall 26: else a replica with a stale log that keeps
    campaigning could starve everybody), as QuorumState.transitionToUnattached does. A round that timed out has waited an
    election timeout already: the next one follows after a jitter, in which a Fetch looks for a leader.
    """
    role = group.role
    if isinstance(role, (Unattached, Candidate, Resigned)) or (isinstance(role, Prospective) and not role.tally.is_lost):
        deadline_ms = max(role.election_deadline_ms, now_ms)
        if isinstance(role, Prospective) and role.election_deadline_ms <= now_ms:
            deadline_ms = now_ms + group.random_short_jitter_ms()
    else:
        deadline_ms = now_ms + group.random_election_timeout_ms()
    same_epoch = epoch == group.epoch
    _enter(
        group,
        Unattached(election_deadline_ms=deadline_ms),
        epoch,
        group.leader_id if same_epoch else NO_LEADER,
        group.voted_key if same_epoch else None,
        reason,
    )


def add_vote(group: GroupState, candidate: ReplicaKey, now_ms: int) -> None:
    """Cast this epoch's vote for another replica; the vote is saved before it is answered.

    The election timeout starts anew: the candidate has at least as good a chance as we have.
    """
    role = group.role
    require(isinstance(role, (Unattached, Prospective)), f"vote cast as {group.role_name}")
    assert isinstance(role, (Unattached, Prospective))
    require(candidate.id != group.local.id, "vote for oneself without a candidacy")
    role.election_deadline_ms = now_ms + group.random_election_timeout_ms()
    _set_election(group, group.epoch, group.leader_id, candidate)


def become_prospective(group: GroupState, reason: str, now_ms: int) -> None:
    """Start a pre-vote round in the current epoch, with everything known about it kept."""
    require(group.may_stand(), "an observer campaigns")
    role = Prospective(election_deadline_ms=now_ms + group.random_election_timeout_ms(), tally=_tally_with_own_vote(group))
    _enter(group, role, group.epoch, group.leader_id, group.voted_key, reason)


def become_candidate(group: GroupState, reason: str, now_ms: int) -> None:
    """Bump the epoch and vote for ourselves, durably (KIP-595: "a candidate always votes for itself")."""
    require(group.may_stand(), "an observer campaigns")
    role = Candidate(election_deadline_ms=now_ms + group.random_election_timeout_ms(), tally=_tally_with_own_vote(group))
    _enter(group, role, Epoch(group.epoch + 1), NO_LEADER, group.local, reason)


def become_leader(group: GroupState, reason: str, now_ms: int) -> Leader:
    """Lead the epoch that a majority granted. The epoch starts at the log end, whatever is committed."""
    candidate = group.role
    require(isinstance(candidate, Candidate) and candidate.tally.is_won, "leader without a majority of votes")
    assert isinstance(candidate, Candidate)
    require(group.history.last_epoch < group.epoch, f"records of epoch {group.epoch} exist before its leader does")
    leader = Leader(
        epoch_start_offset=group.log_end,
        granting_voters=candidate.tally.granting,
        voters={voter: ReplicaProgress(group.voters.voters[voter], now_ms) for voter in group.other_voters},
        check_quorum_deadline_ms=now_ms + group.config.check_quorum_timeout_ms,
        heartbeat_deadline_ms=now_ms + group.config.fetch_timeout_ms // 2,
    )
    _enter(group, leader, group.epoch, group.local.id, group.voted_key, reason)
    return leader


def become_follower(group: GroupState, epoch: Epoch, leader_id: NodeId, reason: str, now_ms: int) -> None:
    """Follow `leader_id` in `epoch`; a vote cast in the same epoch is kept (KAFKA-17641)."""
    require(leader_id != group.local.id, "a replica follows itself")
    role = Follower(fetch_deadline_ms=now_ms + group.config.fetch_timeout_ms, since_ms=now_ms)
    _enter(group, role, epoch, leader_id, group.voted_key if epoch == group.epoch else None, reason)


def become_resigned(group: GroupState, reason: str, now_ms: int) -> None:
    """Give leadership up within the epoch. Not saved: after a crash the file still says that we led, hence Resigned again."""
    leader = group.role
    require(isinstance(leader, Leader), f"resignation of a {group.role_name}")
    assert isinstance(leader, Leader)
    by_progress = sorted(leader.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.id))
    role = Resigned(
        election_deadline_ms=now_ms + group.random_election_timeout_ms(),
        preferred_candidates=tuple(progress.key for progress in by_progress),
    )
    _enter(group, role, group.epoch, NO_LEADER, group.voted_key, reason)


def _tally_with_own_vote(group: GroupState) -> Tally:
    tally = Tally(group.voters)
    tally.record(group.local.id, granted=True)
    return tally


def _enter(group: GroupState, role: Role, epoch: Epoch, leader_id: NodeId, voted_key: ReplicaKey | None, reason: str) -> None:
    """Check the move, save what must not be forgotten, report it, and leave nothing of the old role unanswered."""
    old = group.role
    move = (type(old), type(role))
    require(move[1] in ALLOWED[move[0]], f"illegal transition {old.name} -> {role.name} in epoch {group.epoch}")
    require(epoch > group.epoch or move not in EPOCH_BUMP_REQUIRED, f"{old.name} -> {role.name} within epoch {epoch}")
    if isinstance(role, Resigned):
        group.leader_id = NO_LEADER
    else:
        _set_election(group, epoch, leader_id, voted_key)
    _install(group, role)
    # The answer to a fetch that was sent in another role is stale (testFetchResponseIgnoredAfterBecomingProspective).
    group.fetch_in_flight = None
    group.fetch_retry_at_ms = None
    group.fetch_failures = 0
    group.actions.append(ReportRole(role=role.name, epoch=epoch, leader_id=group.leader_id, reason=reason))
    if isinstance(old, Leader):
        _leave_leadership(group, old)
    elif isinstance(old, Follower) and old.download is not None and not old.download.is_complete:
        group.actions.append(AbandonSnapshot(snapshot_id=old.download.snapshot_id))
    elif isinstance(old, Follower) and old.building is not None and old.building.is_under_way:
        group.actions.append(AbandonRemoteLogAux())


def _set_election(group: GroupState, epoch: Epoch, leader_id: NodeId, voted_key: ReplicaKey | None) -> None:
    """Change the durable facts, never against what is already on disk for the same epoch, and save them if they changed."""
    require(epoch >= group.epoch, f"epoch goes back from {group.epoch} to {epoch}")
    if epoch == group.epoch:
        require(group.leader_id in (NO_LEADER, leader_id), f"second leader {leader_id} in epoch {epoch}")
        require(group.voted_key in (None, voted_key), f"second vote in epoch {epoch}")
    if epoch > group.epoch:
        group.told_high_watermark = group.first_told_high_watermark = Offset(-1)
    group.epoch = epoch
    group.leader_id = leader_id
    group.voted_key = voted_key
    election = ElectionState(epoch=epoch, leader_id=None if leader_id == NO_LEADER else leader_id, voted_key=voted_key)
    if election != group.election:
        group.election = election
        group.actions.append(SaveElectionState(state=election))


def _install(group: GroupState, role: Role) -> None:
    group.role = role
    group.role_name = role.name
    group.is_leader = isinstance(role, Leader)


def _leave_leadership(group: GroupState, leader: Leader) -> None:
    """Parked fetches and reads are answered with the new leader, so that they go there at once."""
    for replica_id, request in leader.parked.items():
        group.actions.append(
            AnswerFetch(
                replica_id=replica_id,
                request=request,
                error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                leader_id=group.leader_id,
                leader_epoch=group.epoch,
                high_watermark=group.high_watermark,
            )
        )
    leader.parked.clear()
    pending = leader.pending_change
    if pending is not None and pending.request_id is not None:
        # The next leader may commit the change. Kafka answers NOT_LEADER_OR_FOLLOWER, as where nothing was begun: who repeats
        # the request then takes its own work for somebody else's.
        group.actions.append(
            AnswerVoterChange(
                request_id=pending.request_id,
                error=ErrorCode.REQUEST_TIMED_OUT,
                message="",
                leader_id=group.leader_id,
                leader_epoch=group.epoch,
            )
        )
    reads.fail_all(group, leader)
