"""Voter sets that do not come into the log, or do not stay there: they leave no trace among the voters."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from raftkit.replica import Replica, position, voter_set
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchedBatch
from raftlake.raft.types import Epoch, Offset, VoterSet

EPOCH = 6
STATIC = (1, 2, 3)
SETS = [voter_set(ids) for ids in ((1, 2, 3, 4), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5))]


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a batch that would stand at `offset`."""

    name: str
    base: int = 0
    count: int = 1
    epoch: int = 5


FLAWS = [
    Flaw("behind a gap", base=1),
    Flaw("before the end", base=-1),
    Flaw("before the end and beyond", base=-1, count=2),
    Flaw("without an offset", count=0),
    Flaw("of an earlier epoch", epoch=4),
    Flaw("of a later epoch than the leader's", epoch=EPOCH + 1),
    Flaw("of no epoch", epoch=0),
]


def voters_at(offset: int, voters: VoterSet, *, count: int = 1, epoch: int = 5) -> FetchedBatch:
    return FetchedBatch(
        base_offset=Offset(offset), end_offset=Offset(offset + count), epoch=Epoch(epoch), payload=None, voters=voters
    )


PLAIN = FetchedBatch(base_offset=Offset(6), end_offset=Offset(7), epoch=Epoch(5), payload=None)


def follower() -> Replica:
    """Its log holds the offsets 0 to 4, and no voters."""
    return Replica.follower(epoch=EPOCH, leader=2, log=(((5, 0),), 5))


def assert_voters(replica: Replica, *expected: tuple[int, VoterSet]) -> None:
    """These and no others, the last of them in use."""
    core = replica.core
    assert core.voter_history.entries == list(expected)
    ids = expected[-1][1].ids if expected else STATIC
    assert core.voters.ids == core.voter_history.latest.ids == ids
    assert core.is_voter == (1 in ids) and core.other_voters == tuple(each for each in ids if each != 1)


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_a_batch_that_is_refused_and_all_behind_it_set_no_voters(flaw: Flaw, accepted: int) -> None:
    replica = follower()
    good = [voters_at(5 + number, SETS[number]) for number in range(accepted)]
    at = 5 + accepted
    refused = voters_at(at + flaw.base, SETS[accepted], count=flaw.count, epoch=flaw.epoch)
    behind = voters_at(refused.end_offset, voter_set((7, 8, 9)), epoch=max(flaw.epoch, 1))
    replica.answer_fetch(*good, refused, behind)
    expected = [(5 + number, SETS[number]) for number in range(accepted)]
    assert_voters(replica, *expected)
    assert [batch for action in replica.took(do.AppendFetched) for batch in action.batches] == good
    assert replica.core.log_end == at


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
def test_the_right_batch_comes_after_the_refused_one(flaw: Flaw) -> None:
    """The refused set was another; had it left a trace, the right one would not follow it."""
    replica = follower()
    replica.answer_fetch(voters_at(5, SETS[0]), voters_at(6 + flaw.base, SETS[1], count=flaw.count, epoch=flaw.epoch))
    replica.flush()
    replica.answer_fetch(voters_at(6, SETS[2]), voters_at(7, SETS[3]))
    assert_voters(replica, (5, SETS[0]), (6, SETS[2]), (7, SETS[3]))


@pytest.mark.parametrize("end", range(5, 12))
def test_a_cut_takes_the_sets_behind_it_and_leaves_those_before(end: int) -> None:
    """Sets stand at 5, 7 and 10; the batch at 7 holds three records."""
    replica = follower()
    kept = [(5, SETS[0]), (7, SETS[1]), (10, SETS[2])]
    replica.answer_fetch(
        voters_at(5, SETS[0]),
        PLAIN,
        voters_at(7, SETS[1], count=3),
        voters_at(10, SETS[2]),
    )
    replica.flush()
    replica.answer_fetch(diverging=position(end, 5))
    expected = [each for each in kept if each[0] < end]
    assert_voters(replica, *expected)
    assert replica.core.log_end == min(end, 11)
    if end < 11:
        replica.flush()
        replica.answer_fetch(voters_at(end, SETS[3], epoch=6))
        assert_voters(replica, *expected, (end, SETS[3]))


def test_voters_of_a_stale_answer_are_not_taken() -> None:
    """The leader changed while the answer was on its way."""
    replica = follower()
    late = replica.core.fetch_in_flight
    replica.begin(3, EPOCH + 1)
    replica.answer_fetch(voters_at(5, SETS[0]), source=2, leader=2, epoch=EPOCH, request=late)  # type: ignore[arg-type]
    assert_voters(replica)
    assert replica.core.log_end == 5


@pytest.mark.parametrize("start", range(5, 12))
def test_retention_leaves_the_last_set_before_the_new_start(start: int) -> None:
    replica = follower()
    sets = [(5, SETS[0]), (6, SETS[1]), (9, SETS[2])]
    replica.answer_fetch(
        voters_at(5, SETS[0]),
        voters_at(6, SETS[1], count=3),
        voters_at(9, SETS[2]),
        FetchedBatch(base_offset=Offset(10), end_offset=Offset(12), epoch=Epoch(5), payload=None),
        high_watermark=12,
    )
    replica.flush()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(start)))
    before = [each for each in sets if each[0] < start]
    assert_voters(replica, *before[-1:], *(each for each in sets if each[0] >= start))
    assert replica.core.voter_history.at(Offset(start)) == (before[-1][1] if before else None)


@pytest.mark.parametrize(("high_watermark", "may_stand"), [(4, True), (5, True), (6, False), (7, False)])
def test_who_was_removed_may_stand_as_long_as_that_is_not_committed_here(high_watermark: int, may_stand: bool) -> None:
    """The set without this replica is at 5; a high watermark of 5 leaves it out."""
    replica = follower()
    replica.answer_fetch(voters_at(5, voter_set((2, 3))), PLAIN)
    replica.flush()
    replica.answer_fetch(high_watermark=high_watermark)
    assert not replica.core.is_voter and replica.core.may_stand() == may_stand
