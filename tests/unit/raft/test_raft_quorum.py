"""Majority arithmetic against a deliberately dumb version, and the vote tally."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftkit.replica import voter_set
from raftlake.raft.quorum import Tally, largest_reached_by
from raftlake.raft.types import NodeId


def dumb_largest_reached_by(values: list[int], majority: int) -> int:
    """Try every value, largest first."""
    for value in sorted(set(values), reverse=True):
        if len([other for other in values if other >= value]) >= majority:
            return value
    raise AssertionError("no majority at all")


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=9))
def test_the_majority_offset_is_the_dumb_one(ends: list[int]) -> None:
    majority = len(ends) // 2 + 1
    assert largest_reached_by(ends, majority) == dumb_largest_reached_by(ends, majority)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.data())
def test_an_offset_of_one_voter_cannot_lower_the_majority_by_growing(ends: list[int], data: st.DataObject) -> None:
    majority = len(ends) // 2 + 1
    index = data.draw(st.integers(0, len(ends) - 1))
    grown = [end + (position == index) for position, end in enumerate(ends)]
    assert largest_reached_by(grown, majority) >= largest_reached_by(ends, majority)


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20))
def test_a_tally_is_decided_as_counting_first_answers_says(size: int, answers: list[tuple[int, bool]]) -> None:
    voters = voter_set(range(1, size + 1))
    tally = Tally(voters)
    first: dict[int, bool] = {}
    for voter, granted in answers:
        counted = tally.record(voter, granted=granted)  # type: ignore[arg-type]
        assert counted == (voter <= size and voter not in first)
        if counted:
            first[voter] = granted
    grants = [voter for voter, granted in first.items() if granted]
    assert tally.granting == tuple(sorted(grants))
    assert tally.unrecorded == tuple(voter for voter in voters.ids if voter not in first)
    assert tally.has_refusal == (len(grants) < len(first))
    assert tally.is_won == (len(grants) > size / 2)
    assert tally.is_lost == (len(grants) + len(tally.unrecorded) <= size / 2)
    assert not (tally.is_won and tally.is_lost)


def test_two_voters_are_lost_with_one_refusal() -> None:
    """testTwoNodeQuorumVoteRejected."""
    tally = Tally(voter_set((1, 2)))
    tally.record(1, granted=True)  # type: ignore[arg-type]
    assert not tally.is_lost
    tally.record(2, granted=False)  # type: ignore[arg-type]
    assert tally.is_lost


@pytest.mark.parametrize(
    ("ends", "committed"),
    [
        # -1: never heard of.
        ([-1], -1),
        ([12], 12),
        ([-1, -1], -1),
        ([-1, 5], -1),
        ([5, 5], 5),
        ([12, 100], 12),
        ([-1, -1, -1], -1),
        ([12, -1, -1], -1),
        ([12, 5, -1], 5),
        ([12, 12, -1], 12),
        ([12, 13, 14], 13),
        ([100, 101, 101], 101),
        ([12, -1, 12, -1], -1),
        ([12, 13, 12, -1], 12),
        ([3, 4, 5, 6], 4),
        ([-1, 99, 101, -1, -1], -1),
        ([99, 101, 103, -1, -1], 99),
        ([99, 101, 103, 103, -1], 101),
        ([101, 101, 103, 103, 104], 103),
    ],
)
def test_what_a_majority_holds(ends: list[int], committed: int) -> None:
    """The cases that etcd's quorum/testdata/majority_commit tells apart: one to five voters, silent ones, equal ones."""
    assert largest_reached_by(ends, len(ends) // 2 + 1) == committed


@pytest.mark.parametrize(
    ("votes", "result"),
    [
        ("_", "pending"),
        ("y", "won"),
        ("n", "lost"),
        ("__", "pending"),
        ("y_", "pending"),
        ("yy", "won"),
        ("n_", "lost"),
        ("yn", "lost"),
        ("___", "pending"),
        ("y__", "pending"),
        ("n__", "pending"),
        ("yn_", "pending"),
        ("yy_", "won"),
        ("yyn", "won"),
        ("nn_", "lost"),
        ("nny", "lost"),
        ("yy__", "pending"),
        ("yyn_", "pending"),
        ("nn__", "lost"),
        ("yyyn", "won"),
        ("yynn", "lost"),
        ("yynn_", "pending"),
        ("yyynn", "won"),
        ("nnn__", "lost"),
        ("yynnn", "lost"),
    ],
)
def test_who_has_a_majority_of_votes(votes: str, result: str) -> None:
    """The cases that etcd's quorum/testdata/majority_vote tells apart: y granted, n refused, _ no answer yet."""
    tally = Tally(voter_set(range(1, len(votes) + 1)))
    for voter, vote in enumerate(votes, 1):
        if vote != "_":
            tally.record(NodeId(voter), granted=vote == "y")
    assert {"won": (True, False), "lost": (False, True), "pending": (False, False)}[result] == (tally.is_won, tally.is_lost)
