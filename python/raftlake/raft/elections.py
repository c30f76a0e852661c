"""How a voter gets from silence to leadership: pre-vote, vote, first record, announcement.

Owns the moves that follow from one another (a lone voter runs through all of them in one step) and the requests they
send. Uses `transitions.py` to change roles; knows nothing of how answers arrive. Order of effects at each move: the
election state is saved, the role reported, then requests and records leave.
"""

from __future__ import annotations

from raftlake.raft import fetching, leaps, outbox, reconfiguration, transitions
from raftlake.raft.actions import AppendLeaderChange, SendRequest
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, Request, VoteRequest
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import (
    ANY_VOTER,
    FIRST_OFFSET,
    NO_DIRECTORY,
    NO_LEADER,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
)
from raftlake.raft.voters import BEFORE_LOG


def start_pre_vote(group: GroupState, reason: str, now_ms: int) -> None:
    """Become Prospective and ask for pre-votes (KIP-996: in the current epoch, nothing is saved)."""
    transitions.become_prospective(group, reason, now_ms)
    advance(group, now_ms)


def start_election(group: GroupState, reason: str, now_ms: int) -> None:
    """Become Candidate of the next epoch and ask for votes. Who has stood too often of late asks for pre-votes and waits."""
    if leaps.may_stand(group, now_ms):
        transitions.become_candidate(group, reason, now_ms)
        advance(group, now_ms)
    elif isinstance(group.role, Prospective):
        group.role.is_waiting = True
        group.role.election_deadline_ms = now_ms + leaps.wait_to_stand_ms(group, now_ms)
    else:
        start_pre_vote(group, reason, now_ms)


def advance(group: GroupState, now_ms: int) -> None:
    """Act on the votes gathered so far: move forward when won, step back when lost, else keep asking."""
    role = group.role
    if isinstance(role, Prospective):
        if role.tally.is_won:
            start_election(group, "pre-vote won", now_ms)
        elif role.tally.is_lost:
            give_up_pre_vote(group, "pre-vote rejected", now_ms)
        else:
            send_votes(group, now_ms)
    elif isinstance(role, Candidate):
        if group.is_resigning:
            return
        if role.tally.is_won:
            _lead(group, now_ms)
            return
        notice_split_vote(group, role, now_ms)
        if not role.tally.is_lost:
            send_votes(group, now_ms)


def send_votes(group: GroupState, now_ms: int) -> None:
    """(Pre-)vote requests to the voters that have not answered yet."""
    role = group.role
    assert isinstance(role, (Prospective, Candidate))
    pre_vote = isinstance(role, Prospective)

    def build(voter: NodeId) -> Request:
        return VoteRequest(
            candidate=group.local,
            epoch=group.epoch,
            log_end=group.synced_position,
            pre_vote=pre_vote,
            voter_directory_id=group.voters.voters[voter].directory_id,
            voter_id=voter,
        )

    outbox.send_due(group, role.votes, role.tally.unrecorded, build, now_ms)


def give_up_pre_vote(group: GroupState, reason: str, now_ms: int) -> None:
    """The round is over without a majority: back to the leader if one is known, else wait (KIP-996)."""
    group.failed_elections += 1
    if group.is_followable(group.leader_id):
        follow(group, group.epoch, group.leader_id, reason, now_ms)
    else:
        transitions.become_unattached(group, group.epoch, reason, now_ms)
        fetching.send_fetch(group, now_ms)


def follow(group: GroupState, epoch: Epoch, leader_id: NodeId, reason: str, now_ms: int) -> None:
    """Become a follower and fetch from the leader at once (KIP-595: "transition to a follower state and begin sending")."""
    transitions.become_follower(group, epoch, leader_id, reason, now_ms)
    fetching.send_fetch(group, now_ms)


def detach(group: GroupState, epoch: Epoch, reason: str, now_ms: int) -> None:
    """Accept a higher epoch whose leader is not known, and look for the leader."""
    transitions.become_unattached(group, epoch, reason, now_ms)
    fetching.send_fetch(group, now_ms)


def learn_leader(group: GroupState, epoch: Epoch, leader_id: NodeId, reason: str, now_ms: int) -> bool:
    """Take in what a message says about the leader of an epoch not older than ours (Kafka's maybeTransition).

    False when it contradicts what we know: two leaders in one epoch, or ourselves as a leader that we are not. Then
    nothing changes and the message is refused; Kafka stops the process here, but another's claim is no bug of ours.
    """
    if leader_id == group.local.id:
        return epoch == group.epoch and (group.is_leader or isinstance(group.role, Resigned))
    is_followable = group.is_followable(leader_id)
    if epoch > group.epoch:
        if is_followable:
            follow(group, epoch, leader_id, reason, now_ms)
        else:
            detach(group, epoch, reason, now_ms)
        return True
    if leader_id == NO_LEADER or leader_id == group.leader_id:
        return True
    if group.leader_id != NO_LEADER or isinstance(group.role, Resigned) or not is_followable:
        return False
    follow(group, epoch, leader_id, reason, now_ms)
    return True


def resign(group: GroupState, reason: str, now_ms: int) -> None:
    """Give leadership up and tell the voters, the most caught-up one first in line (EndQuorumEpoch)."""
    transitions.become_resigned(group, reason, now_ms)
    send_ends(group, now_ms)


def send_ends(group: GroupState, now_ms: int) -> None:
    """EndQuorumEpoch to every voter that has not acknowledged it."""
    role = group.role
    assert isinstance(role, Resigned)
    request = EndQuorumEpochRequest(
        leader_id=group.local.id, leader_epoch=group.epoch, preferred_candidates=role.preferred_candidates
    )
    waiting = [voter for voter in group.other_voters if voter not in role.acknowledged]
    outbox.send_due(group, role.ends, waiting, lambda _voter: request, now_ms)


def send_begins(group: GroupState, leader: Leader, targets: list[NodeId], now_ms: int) -> None:
    """BeginQuorumEpoch to `targets`, once the LeaderChange record is synced here (KIP-595 "Vote Response Handling" 3)."""

    def build(voter: NodeId) -> Request:
        return BeginQuorumEpochRequest(
            leader_id=group.local.id,
            leader_epoch=group.epoch,
            voter_directory_id=group.voters.voters[voter].directory_id,
            voter_id=voter,
        )

    if leader.has_begun:
        outbox.send_due(group, leader.begins, targets, build, now_ms)


def _lead(group: GroupState, now_ms: int) -> None:
    leader = transitions.become_leader(group, "election won", now_ms)
    group.failed_elections = 0
    offset = group.log_end
    group.history.assign(group.epoch, offset)
    # The voters that the group began with are nowhere in the log yet (LeaderState.appendStartOfEpochControlRecords).
    initial_voters = group.voters if group.voter_history.latest_offset == BEFORE_LOG else None
    if initial_voters is not None:
        group.voter_history.record(offset, initial_voters)
    group.log_end = Offset(offset + (1 if initial_voters is None else 3))
    group.actions.append(
        AppendLeaderChange(
            offset=offset,
            epoch=group.epoch,
            leader_id=group.local.id,
            voters=group.voters.ids,
            granting_voters=leader.granting_voters,
            initial_voters=initial_voters,
        )
    )
    reconfiguration.begin_learning(group, leader)


def notice_split_vote(group: GroupState, candidate: Candidate, now_ms: int) -> None:
    """Once a vote was refused, start over with a pre-vote after a random wait instead of the whole election timeout.

    Kafka waits for the rest of the timeout (KAFKA-18345), a second or two without service. KIP-595 ("Gridlocked Elections")
    steps down at once and backs off by `quorum.election.jitter.max.ms`; pre-vote makes that harmless. While somebody may
    still answer, the wait leaves room for that; it doubles with each election lost, so slow networks are waited for too.
    """
    tally = candidate.tally
    if tally.is_lost:
        # No voter is asked again, so nothing may stay due.
        candidate.votes.retry_at_ms.clear()
    if not tally.has_refusal or candidate.is_split:
        return
    candidate.is_split = tally.is_lost or all(voter in candidate.votes.failures for voter in tally.unrecorded)
    if not candidate.is_refused:
        candidate.is_refused = True
        group.failed_elections += 1
    wait_ms = group.random_jitter_ms()
    if not candidate.is_split:
        wait_ms += group.jitter_bound_ms()
    candidate.election_deadline_ms = min(candidate.election_deadline_ms, now_ms + wait_ms)


def may_campaign(group: GroupState) -> bool:
    """Whether this replica stands for elections at all."""
    return (group.is_voter or group.may_stand()) and not group.is_resigning and group.impairment is None


def announce_epoch(group: GroupState, peer: NodeId) -> None:
    """A leader of a lower epoch cannot be followed. Who campaigns tells its epoch with the vote that it asks for. An observer
    or an impaired replica does not; so it asks for a pre-vote that no replica with a record grants, and whose answer does not
    count. `peer` may be a bootstrap address of an unknown voter."""
    if not may_campaign(group):
        ask_epoch(group, peer)


def ask_epoch(group: GroupState, peer: NodeId) -> None:
    """Tell our epoch to another replica, and hear its own from where it lives, by a pre-vote that does nothing else."""
    voter = group.voters.voters.get(peer)
    request = VoteRequest(
        candidate=group.local,
        epoch=group.epoch,
        log_end=OffsetAndEpoch(FIRST_OFFSET, Epoch(0)),
        pre_vote=True,
        voter_directory_id=NO_DIRECTORY if voter is None else voter.directory_id,
        voter_id=ANY_VOTER if voter is None else peer,
    )
    group.actions.append(SendRequest(destination=peer, request=request))


def campaign_is_due(group: GroupState, now_ms: int) -> bool:
    """Whether a voter that waits should start a pre-vote now."""
    role = group.role
    if not may_campaign(group):
        return False
    if isinstance(role, Unattached):
        return role.election_deadline_ms <= now_ms
    return isinstance(role, Follower) and role.fetch_deadline_ms <= now_ms
