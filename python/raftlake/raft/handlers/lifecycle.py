"""Start, stop, and what operators and connections tell a replica.

Owns the first step of a group and the requests to campaign or to resign. Invariant: a replica that was asked to stop never
campaigns again, but it still votes and follows (testGrantVotesWhenShuttingDown).
"""

from __future__ import annotations

from raftlake.raft import elections, fetching, transitions
from raftlake.raft.actions import ReportRole
from raftlake.raft.events import CampaignRequested, PeerUnreachable, ResignRequested, Started
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import NO_LEADER


def on_started(group: GroupState, event: Started, now_ms: int) -> None:
    """Report the role found on disk and do what it does first. A lone voter leads at once."""
    transitions.save_restored(group)
    group.actions.append(ReportRole(role=group.role_name, epoch=group.epoch, leader_id=group.leader_id, reason="started"))
    role = group.role
    if isinstance(role, Unattached):
        role.election_deadline_ms += event.election_delay_ms
    if isinstance(role, Unattached) and group.is_alone and not event.election_delay_ms:
        elections.start_pre_vote(group, "only voter", now_ms)
    elif isinstance(role, Candidate):
        elections.send_votes(group, now_ms)
    elif isinstance(role, Resigned):
        elections.send_ends(group, now_ms)
    else:
        fetching.send_fetch(group, now_ms)


def on_peer_unreachable(group: GroupState, event: PeerUnreachable, now_ms: int) -> None:
    """Fast failover (promise 4): the leader's process is probably gone, so try a pre-vote after a short random wait.

    Pre-vote makes a false alarm harmless, and a fetch that succeeds in the meantime cancels it. For the same reason we now
    answer pre-votes as one that has not fetched from this leader: else the first to ask would be refused. So does an observer,
    which may be a voter by a newer log than its own.
    """
    role = group.role
    if isinstance(role, Leader) and event.peer in role.voters:
        role.voters[event.peer].lost_at_ms = now_ms
    if not isinstance(role, Follower) or event.peer != group.leader_id:
        return
    role.has_fetched = False
    if role.suspected_at_ms < 0:
        role.suspected_at_ms = now_ms
        if group.may_stand() and (deadline_ms := now_ms + group.random_jitter_ms()) < role.fetch_deadline_ms:
            role.fetch_deadline_ms = deadline_ms
            role.deadline_reason = "leader unreachable"


def on_campaign_requested(group: GroupState, event: CampaignRequested, now_ms: int) -> None:
    """Pre-vote now, where no leader is known."""
    role = group.role
    if isinstance(role, Unattached) and group.leader_id == NO_LEADER and elections.may_campaign(group):
        elections.start_pre_vote(group, "campaign requested", now_ms)


def on_resign_requested(group: GroupState, event: ResignRequested, now_ms: int) -> None:
    """Stop campaigning for good; a leader hands over."""
    group.is_resigning = True
    role = group.role
    if isinstance(role, Leader) and role.voters:
        elections.resign(group, "resign requested", now_ms)
    elif isinstance(role, Prospective):
        elections.give_up_pre_vote(group, "resign requested", now_ms)
