"""What the passing of time does to each role, and when it does so next.

Owns every deadline of a group. Nothing here is periodic: a deadline is computed from what happened, and reaching it
early is harmless. Deadlines of a leader may be earlier than necessary (fetches do not move them), never later.
"""

from __future__ import annotations

from raftlake.raft import elections, fetching, outbox
from raftlake.raft.events import DeadlineReached
from raftlake.raft.handlers import voters
from raftlake.raft.progress import majority_heard_at_ms
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import EPOCH_MAX, Epoch


def on_deadline_reached(group: GroupState, event: DeadlineReached, now_ms: int) -> None:
    """Perform whatever is due. A role entered here may be due itself (Resigned to Unattached to Prospective)."""
    role = group.role
    if isinstance(role, Leader):
        _lead_on(group, role, now_ms)
    elif isinstance(role, Resigned):
        _stay_resigned(group, role, now_ms)
    elif isinstance(role, (Prospective, Candidate)):
        _campaign_on(group, role, now_ms)
    _campaign_if_due(group, now_ms)
    fetching.send_fetch(group, now_ms)


def next_deadline_ms(group: GroupState) -> int | None:
    """When `DeadlineReached` should be reported next; None for never."""
    role = group.role
    if isinstance(role, Follower):
        retry_ms = group.fetch_retry_at_ms
        if retry_ms is not None and retry_ms < role.fetch_deadline_ms:
            return retry_ms
        return role.fetch_deadline_ms if elections.may_campaign(group) else retry_ms
    if isinstance(role, Leader):
        if role.resigns:
            return 0
        change_ms = None if role.pending_change is None else role.pending_change.deadline_ms
        if not role.voters:
            return change_ms
        own_ms = role.check_quorum_deadline_ms
        if role.heartbeat_deadline_ms < own_ms:
            own_ms = role.heartbeat_deadline_ms
        if change_ms is None and not role.begins.retry_at_ms:
            return own_ms
        return _earliest(_earliest(own_ms, change_ms), outbox.next_retry_ms(role.begins))
    if isinstance(role, Unattached):
        return _earliest(role.election_deadline_ms if elections.may_campaign(group) else None, group.fetch_retry_at_ms)
    if isinstance(role, Resigned):
        return _earliest(None if group.is_resigning else role.election_deadline_ms, outbox.next_retry_ms(role.ends))
    if group.is_resigning:
        return None
    return _earliest(role.election_deadline_ms, outbox.next_retry_ms(role.votes))


def _earliest(one_ms: int | None, other_ms: int | None) -> int | None:
    """Asked after every step, so it builds no list."""
    if one_ms is None or (other_ms is not None and other_ms < one_ms):
        return other_ms
    return one_ms


def _campaign_if_due(group: GroupState, now_ms: int) -> None:
    if elections.campaign_is_due(group, now_ms):
        role = group.role
        elections.start_pre_vote(group, role.deadline_reason if isinstance(role, Follower) else "election timeout", now_ms)


def _lead_on(group: GroupState, leader: Leader, now_ms: int) -> None:
    voters.expire_change(group, leader, now_ms)
    if leader.resigns:
        elections.resign(group, "removed from the voters", now_ms)
        return
    if not leader.voters:
        return
    if now_ms >= leader.check_quorum_deadline_ms:
        leader.check_quorum_deadline_ms = majority_heard_at_ms(group, leader) + group.config.check_quorum_timeout_ms
        if now_ms >= leader.check_quorum_deadline_ms:
            # KIP-595 "Leader Progress Timeout", as Kafka does it (KAFKA-15489): no new epoch, just silence.
            elections.resign(group, "check quorum", now_ms)
            return
    half_timeout_ms = group.config.fetch_timeout_ms // 2
    if now_ms >= leader.heartbeat_deadline_ms:
        silent = [voter for voter, progress in leader.voters.items() if now_ms - progress.fetched_at_ms >= half_timeout_ms]
        elections.send_begins(group, leader, silent, now_ms)
        heard = [progress.fetched_at_ms for progress in leader.voters.values() if progress.key.id not in silent]
        leader.heartbeat_deadline_ms = min(heard, default=now_ms) + half_timeout_ms
    due = [voter for voter, retry_at_ms in leader.begins.retry_at_ms.items() if retry_at_ms <= now_ms]
    for voter in due:
        if leader.voters[voter].endorsed:
            del leader.begins.retry_at_ms[voter]
    elections.send_begins(group, leader, [voter for voter in due if not leader.voters[voter].endorsed], now_ms)


def _stay_resigned(group: GroupState, resigned: Resigned, now_ms: int) -> None:
    if group.is_resigning or now_ms < resigned.election_deadline_ms:
        elections.send_ends(group, now_ms)
        return
    if group.epoch == EPOCH_MAX:
        resigned.election_deadline_ms = now_ms + group.random_election_timeout_ms()
        return
    # The epoch must go up: in the old one this replica is the leader (KAFKA-18379).
    elections.detach(group, Epoch(group.epoch + 1), "resigned for an election timeout", now_ms)


def _campaign_on(group: GroupState, role: Prospective | Candidate, now_ms: int) -> None:
    if group.is_resigning:
        return
    if now_ms < role.election_deadline_ms:
        if not role.tally.is_lost:
            elections.send_votes(group, now_ms)
    elif isinstance(role, Prospective) and role.is_waiting:
        elections.start_election(group, "pre-vote won", now_ms)
    elif isinstance(role, Prospective):
        elections.give_up_pre_vote(group, "pre-vote timed out", now_ms)
    else:
        elections.start_pre_vote(group, "election timed out", now_ms)
