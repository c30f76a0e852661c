"""The voters of a group by offset of its log, and what a set says of one replica."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica, key, position, voter_set
from raftlake.errors import InvariantViolation
from raftlake.raft.messages import FetchedBatch
from raftlake.raft.types import NO_VOTERS, Epoch, NodeId, Offset, VoterEndpoint, VoterSet
from raftlake.raft.voters import BEFORE_LOG, VoterHistory


def history(*entries: tuple[int, VoterSet], initial: VoterSet = NO_VOTERS) -> VoterHistory:
    made = VoterHistory(initial)
    for offset, voters in entries:
        made.record(Offset(offset), voters)
    return made


THREE, TWO, ONE = voter_set((1, 2, 3)), voter_set((1, 2)), voter_set((1,))


def test_before_any_record_the_initial_set_counts_and_the_version_is_0() -> None:
    voters = history(initial=THREE)
    assert (voters.latest, voters.latest_offset, voters.kraft_version) == (THREE, None, 0)
    assert voters.at(Offset(1_000)) is None


def test_the_newest_set_counts_and_each_offset_has_the_one_below_it() -> None:
    voters = history((5, TWO), (9, ONE), initial=THREE)
    assert (voters.latest, voters.latest_offset, voters.kraft_version) == (ONE, 9, 1)
    assert [voters.at(Offset(offset)) for offset in (5, 6, 9, 10)] == [None, TWO, TWO, ONE]


def test_sets_are_truncated_with_the_log() -> None:
    voters = history((5, TWO), (9, ONE), initial=THREE)
    assert not voters.truncate_to(Offset(10))
    assert voters.truncate_to(Offset(9)) and voters.latest == TWO
    assert voters.truncate_to(Offset(0)) and voters.latest == THREE and voters.kraft_version == 0


def test_voters_from_before_the_log_survive_every_truncation() -> None:
    voters = history((BEFORE_LOG, TWO), (0, ONE))
    assert voters.truncate_to(Offset(0)) and voters.latest == TWO and voters.kraft_version == 1


def test_below_the_log_start_only_the_last_set_is_kept() -> None:
    voters = history((5, THREE), (9, TWO), (20, ONE))
    voters.forget_before(Offset(15))
    assert (voters.at(Offset(15)), voters.at(Offset(9)), voters.latest) == (TWO, None, ONE)
    voters.forget_before(Offset(15))
    assert voters.at(Offset(15)) == TWO


def test_a_snapshot_brings_its_voters_along() -> None:
    voters = history((5, THREE), initial=ONE)
    voters.reset(Offset(40), TWO)
    assert (voters.at(Offset(40)), voters.latest_offset) == (TWO, 39)
    voters.reset(Offset(50), None)
    assert (voters.latest, voters.kraft_version) == (ONE, 0)


def test_a_set_never_goes_back_in_the_log_and_is_never_empty() -> None:
    with pytest.raises(InvariantViolation):
        history((5, TWO), (5, ONE))
    with pytest.raises(InvariantViolation):
        history((5, NO_VOTERS))


def test_a_set_knows_its_replicas_by_node_and_directory() -> None:
    here = (VoterEndpoint("PEERS", "a", 1),)
    voters = TWO.with_voter(key(4, b"four"), here)
    assert voters.ids == (1, 2, 4) and voters.endpoints == {NodeId(4): here} and voters.majority == 2
    assert voters.has(key(4, b"four")) and not voters.has(key(4, b"other")) and not voters.has(key(4))
    # A set without directory ids takes a node by its number (kraft.version 0).
    assert voters.has(key(1, b"any"))
    assert voters.without(NodeId(4)) == TWO


def fetched(base: int, end: int, epoch: int, voters: VoterSet | None) -> FetchedBatch:
    return FetchedBatch(base_offset=Offset(base), end_offset=Offset(end), epoch=Epoch(epoch), payload=None, voters=voters)


def test_a_follower_uses_a_set_as_soon_as_it_is_in_its_log() -> None:
    """KafkaRaftClientReconfigTest.testFollowerReadsKRaftBootstrapRecords, and uncommitted sets count (KIP-853)."""
    replica = Replica.follower()
    replica.answer_fetch(fetched(0, 1, 5, None), fetched(1, 2, 5, voter_set((1, 2, 3, 4))))
    core = replica.core
    assert (core.voters.ids, core.other_voters, core.is_voter, core.high_watermark) == ((1, 2, 3, 4), (2, 3, 4), True, 0)
    assert core.voter_history.latest_offset == 1


def test_a_set_that_is_cut_away_no_longer_counts() -> None:
    replica = Replica.follower()
    replica.answer_fetch(fetched(0, 1, 5, None), fetched(1, 2, 5, voter_set((2, 3))))
    assert not replica.core.is_voter
    replica.flush()
    replica.answer_fetch(diverging=position(1, 5))
    assert replica.core.is_voter and replica.core.voters.ids == (1, 2, 3) and replica.core.voter_history.kraft_version == 0


def test_a_group_may_learn_late_with_whom_it_began() -> None:
    """Its topic's key is replayed after its log was opened; it counts again should the log be cut to nothing."""
    voters = history((0, TWO), (9, ONE))
    assert not voters.begin_with(THREE)
    assert voters.latest == ONE
    assert voters.truncate_to(Offset(0)) and voters.latest == THREE
    assert not voters.begin_with(TWO) and voters.latest == THREE
    empty = history()
    assert empty.begin_with(THREE) and empty.latest == THREE and empty.kraft_version == 1
    trimmed = history((40, TWO))
    assert not trimmed.begin_with(THREE) and trimmed.at(Offset(40)) is None
