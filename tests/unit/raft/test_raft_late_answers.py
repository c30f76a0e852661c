"""Answers and failures of requests that are no longer under way: they count for nothing, even where the request that is says
the very same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftkit.snapshots import answer_piece, snapshot_in_flight
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from raftlake.raft.roles import Follower, Leader, Resigned
from raftlake.raft.types import Epoch, NodeId

LOG = (((1, 0), (3, 3), (5, 6)), 9)

# --- Vote -----------------------------------------------------------------------------------------------------------


def second_round(**kwargs: object) -> tuple[Replica, VoteRequest]:
    """A prospective whose first round timed out, in the second one of the same epoch; what it asked replica 2 in the first."""
    replica = Replica.prospective(epoch=6, **kwargs)
    first = replica.vote_in_flight(2)
    replica.pass_until_role("Unattached")
    replica.pass_until_role("Prospective")
    again = replica.vote_in_flight(2)
    assert again == first and again is not first, "the two say the same"
    return replica, first


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize("voters", [(1, 2, 3), (1, 2)])
def test_an_answer_to_the_pre_vote_round_before_does_not_count(granted: bool, voters: tuple[int, ...]) -> None:
    """It was given to another state of the voter: before it heard of a leader, or before it lost one."""
    replica, first = second_round(voters=voters)
    replica.answer_vote(2, granted=granted, request=first)
    assert replica.view == ("Prospective", 6, -1)
    assert replica.vote_in_flight(2) is not first, "the request of this round is still under way"
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Candidate", 7, -1)


def test_a_failure_of_the_pre_vote_round_before_repeats_nothing() -> None:
    """Nor does it end the request that is under way: the answer to that one would be lost."""
    replica, first = second_round()
    replica.fail(2, first, on.FailureReason.TIMED_OUT)
    assert CONFIG.retry_backoff_ms < (replica.core.next_deadline_ms() or 0) - replica.now_ms
    replica.answer_vote(2, granted=True)
    assert replica.view == ("Candidate", 7, -1)


def test_a_voter_that_did_not_know_pre_votes_in_the_round_before_starts_no_election() -> None:
    """It may have been updated meanwhile; the request of this round says so by itself."""
    replica, first = second_round()
    replica.fail(2, first, on.FailureReason.UNSUPPORTED_VERSION)
    assert replica.view == ("Prospective", 6, -1)
    replica.fail(2, replica.vote_in_flight(2), on.FailureReason.UNSUPPORTED_VERSION)
    assert replica.view == ("Candidate", 7, -1)


def test_an_answer_to_an_earlier_round_still_teaches_a_newer_epoch() -> None:
    replica, first = second_round()
    replica.answer_vote(2, granted=False, request=first, epoch=9, leader=3)
    assert replica.view == ("Follower", 9, 3)


# --- BeginQuorumEpoch and EndQuorumEpoch ----------------------------------------------------------------------------


def test_a_failure_of_an_earlier_announcement_does_not_end_the_one_under_way() -> None:
    replica = Replica.leader(epoch=6)
    first = replica.sent(BeginQuorumEpochRequest)[2]
    replica.fail(2, first)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(BeginQuorumEpochRequest) == {2: first}
    replica.fail(2, first)
    leader = replica.core.role
    assert isinstance(leader, Leader)
    assert (set(leader.begins.in_flight), leader.begins.failures[NodeId(2)]) == ({2, 3}, 1)


def test_an_answer_to_an_earlier_announcement_is_no_endorsement() -> None:
    """Kafka drops by its correlation id what comes after the failure was told; the answer to the repetition says it too."""
    replica = Replica.leader(epoch=6)
    first = replica.sent(BeginQuorumEpochRequest)[2]
    replica.fail(2, first)
    replica.pass_time(CONFIG.retry_backoff_ms)
    leader = replica.core.role
    assert isinstance(leader, Leader)
    endorsed = BeginQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6))
    replica.respond(2, first, endorsed)
    assert not leader.voters[NodeId(2)].endorsed
    replica.respond(2, leader.begins.in_flight[NodeId(2)], endorsed)
    assert leader.voters[NodeId(2)].endorsed


def test_an_answer_to_an_earlier_farewell_does_not_end_the_one_under_way() -> None:
    replica = Replica.resigned(epoch=6)
    resigned = replica.core.role
    assert isinstance(resigned, Resigned)
    first = resigned.ends.in_flight[NodeId(2)]
    replica.fail(2, first)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(EndQuorumEpochRequest) == {2: first}
    answer = EndQuorumEpochResponse(error=ErrorCode.NONE, leader_id=NodeId(-1), leader_epoch=Epoch(6))
    replica.respond(2, first, answer)
    assert not resigned.acknowledged
    replica.respond(2, resigned.ends.in_flight[NodeId(2)], answer)
    assert set(resigned.acknowledged) == {2}


# --- Fetch ----------------------------------------------------------------------------------------------------------


def repeated_fetch(**kwargs: object) -> tuple[Replica, FetchRequest]:
    """A follower that gave its leader up and follows it again, at the same position; the Fetch from before that."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG, **kwargs)
    first = replica.core.fetch_in_flight
    assert isinstance(first, FetchRequest)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=False)
    assert replica.view == ("Follower", 6, 2)
    again = replica.core.fetch_in_flight
    assert again == first and again is not first, "the two say the same"
    return replica, first


def test_an_answer_to_a_fetch_from_before_the_campaign_is_no_sign_of_life() -> None:
    """testFetchResponseIgnoredAfterBecomingProspective, and after following the same leader again."""
    replica, first = repeated_fetch()
    deadline_ms = replica.core.role.fetch_deadline_ms  # type: ignore[union-attr]
    replica.now_ms += 10
    replica.answer_fetch(batch(9, 12, 6), high_watermark=9, request=first)
    assert (replica.actions, replica.core.log_end) == ([], 9)
    assert replica.core.role.fetch_deadline_ms == deadline_ms  # type: ignore[union-attr]
    assert replica.pre_vote(3, 6, (9, 5)).vote_granted, "nothing has been fetched since"
    replica.answer_fetch(batch(9, 12, 6), high_watermark=9)
    assert replica.core.log_end == 12


def test_a_failure_of_a_fetch_from_before_the_campaign_repeats_nothing() -> None:
    replica, first = repeated_fetch()
    replica.fail(2, first, on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(FetchRequest) == {}
    assert replica.core.fetch_failures == 0
    replica.answer_fetch(batch(9, 12, 6))
    assert replica.core.log_end == 12


def test_a_failed_fetch_that_is_answered_after_all_is_not_taken_for_the_next_one() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    first = replica.core.fetch_in_flight
    assert isinstance(first, FetchRequest)
    replica.fail(2, first, on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(FetchRequest) == {2: first}
    replica.answer_fetch(snapshot_id=position(20, 5), request=first)
    assert (replica.actions, replica.core.fetch_in_flight) == ([], first)
    assert replica.core.fetch_in_flight is not first


@pytest.mark.parametrize("is_same_epoch", [True, False])
def test_a_round_from_before_the_leader_was_followed_says_nothing(is_same_epoch: bool) -> None:
    """The driver tells lazily when the last round ended, which may be before this replica gave its leader up. A pre-vote that
    is refused for it would be the vote that a quorum without a leader needs."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch()
    last_round_ms = replica.now_ms
    replica.pass_until_role("Prospective")
    if is_same_epoch:
        replica.answer_votes(granted=False)
    else:
        replica.begin(2, 7)
    epoch = replica.core.epoch
    assert replica.view == ("Follower", 6 if is_same_epoch else 7, 2)
    for at_ms in (last_round_ms, replica.now_ms):
        replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=at_ms))
        assert isinstance(replica.core.role, Follower) and not replica.core.role.has_fetched
        assert replica.pre_vote(3, epoch, (9, 5)).vote_granted
    replica.now_ms += 1
    replica.step(on.LeaderConfirmed(leader_id=NodeId(2), at_ms=replica.now_ms))
    assert not replica.pre_vote(3, epoch, (9, 5)).vote_granted


# --- FetchSnapshot --------------------------------------------------------------------------------------------------


def test_a_piece_from_the_download_before_does_not_begin_the_next_one() -> None:
    """The snapshot came damaged and is fetched from its beginning again; meanwhile the leader has written it anew."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(snapshot_id=position(50, 5))
    first = snapshot_in_flight(replica)
    replica.fail(2, first, on.FailureReason.TIMED_OUT)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(FetchSnapshotRequest) == {2: first}
    answer_piece(replica, b"12", 5, request=first, source=2)
    assert replica.took(do.WriteSnapshot) == []
    assert snapshot_in_flight(replica) is not first
    answer_piece(replica, b"abc", 3)
    assert [(piece.position, piece.data) for piece in replica.took(do.WriteSnapshot)] == [(0, b"abc")]
    assert len(replica.took(do.FinishSnapshot)) == 1


def test_a_failure_of_the_piece_before_repeats_nothing() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(snapshot_id=position(50, 5))
    answer_piece(replica, b"12", 5)
    second = snapshot_in_flight(replica)
    replica.fail(2, replace(second))
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert replica.sent(FetchSnapshotRequest) == {}
    assert snapshot_in_flight(replica) is second
