"""Every pair of roles, legal and illegal, and the facts of an election that may never change within an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from raftkit.replica import Replica, key
from raftlake.errors import InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import transitions
from raftlake.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from raftlake.raft.state import GroupState
from raftlake.raft.types import Epoch, NodeId

ROLES: tuple[type[Role], ...] = (Unattached, Prospective, Candidate, Follower, Leader, Resigned)


def _unattached(group: GroupState, epoch: int) -> None:
    transitions.become_unattached(group, Epoch(epoch), "test", 0)


def _prospective(group: GroupState, epoch: int) -> None:
    transitions.become_prospective(group, "test", 0)


def _candidate(group: GroupState, epoch: int) -> None:
    transitions.become_candidate(group, "test", 0)


def _follower(group: GroupState, epoch: int) -> None:
    transitions.become_follower(group, Epoch(epoch), NodeId(2), "test", 0)


def _leader(group: GroupState, epoch: int) -> None:
    if isinstance(group.role, Candidate):
        group.role.tally.record(NodeId(2), granted=True)
    transitions.become_leader(group, "test", 0)


def _resigned(group: GroupState, epoch: int) -> None:
    transitions.become_resigned(group, "test", 0)


MOVES: dict[type[Role], Callable[[GroupState, int], None]] = {
    Unattached: _unattached,
    Prospective: _prospective,
    Candidate: _candidate,
    Follower: _follower,
    Leader: _leader,
    Resigned: _resigned,
}

#: The legal moves once more, written down by hand: (from, to) -> in the same epoch, in a later one.
BY_HAND: dict[tuple[type[Role], type[Role]], tuple[bool, bool]] = {
    (Unattached, Unattached): (False, True),
    (Unattached, Prospective): (True, True),
    (Unattached, Follower): (True, True),
    (Prospective, Unattached): (True, True),
    (Prospective, Candidate): (True, True),  # which bumps the epoch by itself
    (Prospective, Follower): (True, True),
    (Candidate, Unattached): (False, True),
    (Candidate, Prospective): (True, True),
    (Candidate, Follower): (True, True),
    (Candidate, Leader): (True, True),
    (Follower, Unattached): (False, True),
    (Follower, Prospective): (True, True),
    (Follower, Candidate): (True, True),  # named by its leader; bumps the epoch by itself
    (Follower, Follower): (False, True),
    (Leader, Unattached): (False, True),
    (Leader, Follower): (False, True),
    (Leader, Resigned): (True, True),
    (Resigned, Unattached): (False, True),
    (Resigned, Follower): (False, True),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(ROLES, ROLES)), ids=lambda role: role.__name__)
@pytest.mark.parametrize("bump", [0, 1])
def test_every_pair_of_roles(old: type[Role], new: type[Role], bump: int) -> None:
    replica = Replica.in_role(old.__name__, epoch=6)
    is_legal = BY_HAND.get((old, new), (False, False))[bump]
    if is_legal:
        MOVES[new](replica.core, 6 + bump)
        assert type(replica.core.role) is new
    else:
        with pytest.raises(InvariantViolation):
            MOVES[new](replica.core, 6 + bump)
        assert type(replica.core.role) is old


def test_the_table_is_the_one_written_by_hand() -> None:
    table = {(old, new) for old, targets in transitions.ALLOWED.items() for new in targets}
    assert table == set(BY_HAND)
    assert {move for move, (same_epoch, _) in BY_HAND.items() if not same_epoch} == transitions.EPOCH_BUMP_REQUIRED


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"])
def test_the_epoch_never_goes_back(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    with pytest.raises(InvariantViolation):
        transitions.become_unattached(replica.core, Epoch(5), "test", 0)
    with pytest.raises(InvariantViolation):
        transitions.become_follower(replica.core, Epoch(5), NodeId(3), "test", 0)


def test_an_epoch_has_one_leader() -> None:
    replica = Replica.prospective(epoch=6, leader=2)
    with pytest.raises(InvariantViolation, match="second leader"):
        transitions.become_follower(replica.core, Epoch(6), NodeId(3), "test", 0)


def test_an_epoch_has_one_vote() -> None:
    replica = Replica.unattached(epoch=6, voted=2)
    with pytest.raises(InvariantViolation, match="second vote"):
        transitions.add_vote(replica.core, key(3), 0)


def test_nobody_follows_itself() -> None:
    with pytest.raises(InvariantViolation, match="follows itself"):
        transitions.become_follower(Replica.unattached(epoch=6).core, Epoch(7), NodeId(1), "test", 0)


@pytest.mark.parametrize("role", ["Follower", "Candidate", "Leader", "Resigned"])
def test_only_the_undecided_vote(role: str) -> None:
    with pytest.raises(InvariantViolation, match="vote cast"):
        transitions.add_vote(Replica.in_role(role).core, key(3), 0)


def test_no_leader_without_a_majority() -> None:
    """CandidateStateTest: "Cannot become leader without majority votes granted"."""
    with pytest.raises(InvariantViolation, match="majority"):
        transitions.become_leader(Replica.candidate(epoch=6).core, "test", 0)


def test_no_observer_campaigns() -> None:
    observer = Replica.unattached(local=9, epoch=6)
    for move in (_prospective, _candidate):
        with pytest.raises(InvariantViolation, match="observer"):
            move(observer.core, 6)


def test_a_follower_keeps_the_vote_of_its_epoch() -> None:
    """KAFKA-17641: else a later vote of the same epoch could be cast twice."""
    replica = Replica.prospective(epoch=6, voted=2)
    replica.begin(3, 6)
    assert replica.view == ("Follower", 6, 3)
    assert replica.core.voted_key == key(2)
    assert replica.saved is not None
    assert replica.saved.voted_key == key(2)


def test_the_state_is_saved_before_the_role_is_reported() -> None:
    replica = Replica.follower(epoch=5)
    replica.begin(3, 6)
    assert [type(action) for action in replica.actions] == [
        do.SaveElectionState,
        do.ReportRole,
        do.SendRequest,
        do.Respond,
    ]


def test_what_is_on_disk_already_is_not_saved_again() -> None:
    replica = Replica.prospective(epoch=6, leader=2)
    replica.answer_votes(granted=False)
    assert replica.view == ("Follower", 6, 2)
    assert replica.took(do.SaveElectionState) == []


def test_resigning_is_not_saved() -> None:
    """After a crash the file says that we led, which makes us Resigned again: never a second time leader of the epoch."""
    replica = Replica.resigned(epoch=6)
    assert replica.saved is not None
    assert (replica.saved.epoch, replica.saved.leader_id) == (6, 1)


def test_leaving_leadership_answers_all_that_waits() -> None:
    replica = Replica.leader(epoch=6)
    assert replica.fetch(2, 1, 6) is None
    assert replica.fetch(3, 1, 6) is None
    replica.read(7, sequence=4)
    replica.begin(2, 7)
    fetches, reads = replica.took(do.AnswerFetch), replica.took(do.AnswerRead)
    assert [(answer.replica_id, answer.error.name, answer.leader_id, answer.leader_epoch) for answer in fetches] == [
        (2, "NOT_LEADER_OR_FOLLOWER", 2, 7),
        (3, "NOT_LEADER_OR_FOLLOWER", 2, 7),
    ]
    assert [(answer.read_id, answer.error.name, answer.leader_id) for answer in reads] == [(7, "NOT_LEADER_OR_FOLLOWER", 2)]
