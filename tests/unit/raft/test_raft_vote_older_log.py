"""Vote requests to a replica whose log ends before the record that names the voters: the candidate may be one of them."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, voter_set
from raftlake.errors import ErrorCode
from raftlake.raft.types import NO_VOTERS, VoterSet
from raftlake.raft.voters import VoterHistory

#: Two records of epoch 1, before the voters went into the log: it ends at 2@1.
OLD_LOG = (((1, 0),), 2)
#: None: a node that was started without `quorum.voters`. Else the static voters, the first of whom is long gone.
STARTED_WITH = [NO_VOTERS, voter_set((3, 4, 2)), voter_set((3, 4))]


def behind(started_with: VoterSet, **more: object) -> Replica:
    """Node 2, a voter by the logs of others only, in epoch 6."""
    log = more.pop("log", OLD_LOG)
    return Replica(local=2, voter_keys=VoterHistory(started_with), log=log, epoch=6, directory=b"two", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [(3, 1), (10, 1), (1, 2)])
@pytest.mark.parametrize("started_with", STARTED_WITH, ids=["no voters", "static voter", "static observer"])
def test_a_candidate_with_a_newer_log_may_be_a_voter_by_it(started_with: VoterSet, last: tuple[int, int]) -> None:
    """Seed 791102895: the only voter put itself into the log, made node 2 the second voter and resigned before node 2 had
    fetched either record. It needed the vote of node 2, which did not know it, and neither led ever again."""
    replica = behind(started_with)
    assert replica.pre_vote(1, 6, last, voter=2).vote_granted
    assert replica.vote(1, 7, last, voter=2).vote_granted
    assert replica.begin(1, 7, voter=2).error is ErrorCode.NONE
    assert replica.view == ("Follower", 7, 1)


@pytest.mark.parametrize("last", [(2, 1), (1, 1), (0, 0)])
@pytest.mark.parametrize("started_with", STARTED_WITH, ids=["no voters", "static voter", "static observer"])
def test_a_candidate_with_no_more_than_our_log_is_no_voter_by_it(started_with: VoterSet, last: tuple[int, int]) -> None:
    """The same log names the same voters: this candidate was started with others."""
    replica = behind(started_with)
    assert not replica.pre_vote(1, 6, last, voter=2).vote_granted
    assert not replica.vote(1, 7, last, voter=2).vote_granted
    assert replica.core.epoch == 7 and replica.core.voted_key is None


def test_an_empty_log_votes_for_no_stranger_with_an_empty_log() -> None:
    """Nodes that were started with different voters do not elect one another."""
    replica = behind(voter_set((2, 3, 4)), log=((), 0))
    assert not replica.vote(1, 7, (0, 0)).vote_granted
    assert replica.vote(3, 7, (0, 0)).vote_granted


def test_voters_that_stay_static_are_the_only_ones() -> None:
    replica = behind(voter_set((2, 3, 4)), config=type(CONFIG)(voters_in_log=False))
    assert not replica.vote(1, 7, (10, 1)).vote_granted
    assert replica.vote(3, 7, (10, 1)).vote_granted
