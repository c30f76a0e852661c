"""Fetch at the leader: validation order, reconciliation, parking, progress and the high watermark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftkit.replica import Replica, key, position, voter_set
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.progress import OBSERVERS_MAX
from raftlake.raft.types import NodeId, Offset, VoterSet

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5; a leader of epoch 6 adds its LeaderChange at 9.
LOG = (((1, 0), (3, 3), (5, 6)), 9)


def leader(**kwargs: object) -> Replica:
    return Replica.leader(epoch=6, log=LOG, **kwargs)


# --- validation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "last_epoch"), [(-1, 0), (0, -1), (3, 7)])
@pytest.mark.parametrize("epoch", [5, 6])
def test_an_impossible_position_is_refused_first(offset: int, last_epoch: int, epoch: int) -> None:
    """testInvalidFetchRequest; a last fetched epoch of -1 too [observed with Kafka 4.3.1]."""
    answer = leader().fetch(2, offset, last_epoch, epoch=epoch)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("epoch", "error"), [(5, ErrorCode.FENCED_LEADER_EPOCH), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)])
@pytest.mark.parametrize("replica", [2, 9, 1])
def test_the_epoch_is_checked_before_who_asks(epoch: int, error: ErrorCode, replica: int) -> None:
    """KAFKA-13837."""
    answer = leader().fetch(replica, 9, 5, epoch=epoch)
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 6)


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Resigned"])
def test_only_the_leader_answers(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    answer = replica.fetch(3, 0, 0)
    assert answer is not None
    expected_leader = 2 if role == "Follower" else -1
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, expected_leader)


@pytest.mark.parametrize("replica", [1, -1])
def test_a_replica_has_a_number_of_its_own(replica: int) -> None:
    answer = leader().fetch(replica, 10, 6)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [5, 7])
def test_a_fetch_of_another_epoch_moves_nothing(epoch: int) -> None:
    replica = leader()
    replica.fetch(2, 9, 5, epoch=epoch, follows=99)
    progress = replica.core.role.voters[NodeId(2)]  # type: ignore[union-attr]
    assert (progress.end_offset, progress.has_fetched, progress.follows) == (-1, False, 0)
    assert replica.core.high_watermark == 0


# --- reconciliation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (6, 2, (3, 1)),  # testLeaderImmediatelySendsDivergingEpoch
        (4, 1, (3, 1)),
        (7, 4, (6, 3)),
        (9, 3, (6, 3)),
        (8, 2, (3, 1)),
        (11, 6, (10, 6)),  # beyond our end with the right epoch: never out of range
        (99, 5, (9, 5)),
        (6, 5, (6, 3)),  # claims a record of epoch 5 where ours is of epoch 3
    ],
)
def test_a_position_that_is_not_ours_diverges_at_once(offset: int, epoch: int, diverging: tuple[int, int]) -> None:
    replica = leader()
    answer = replica.fetch(2, offset, epoch)
    assert answer is not None
    assert (answer.error, answer.diverging, answer.snapshot_id) == (ErrorCode.NONE, position(*diverging), None)
    assert replica.core.role.voters[NodeId(2)].end_offset == -1  # type: ignore[union-attr]
    assert replica.core.role.voters[NodeId(2)].has_fetched  # type: ignore[union-attr]


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (1, 1), (3, 1), (4, 3), (6, 3), (9, 5), (10, 6)])
def test_a_position_of_ours_is_valid(offset: int, epoch: int) -> None:
    replica = leader()
    replica.fetch(2, offset, epoch)
    assert replica.core.role.voters[NodeId(2)].end_offset == offset  # type: ignore[union-attr]


def test_an_empty_replica_with_an_epoch_counts_from_zero_on() -> None:
    """KafkaRaftClient.tryCompleteFetchRequest takes the position as progress; the leader's log holds its LeaderChange alone."""
    replica = Replica.leader(epoch=6)
    answer = replica.fetch(3, 0, 5)
    assert answer is not None
    assert (answer.error, answer.diverging, answer.snapshot_id) == (ErrorCode.NONE, None, None)
    assert replica.core.role.voters[NodeId(3)].end_offset == 0  # type: ignore[union-attr]
    replica.fetch(3, 1, 6)
    assert replica.core.high_watermark == 1


@pytest.mark.parametrize(
    ("offset", "epoch", "begins"),
    [
        (0, 0, True),  # testFetchRequestAtLogStartOffsetWithInvalidEpoch and its siblings
        (3, 1, True),
        (4, 3, False),
        (4, 1, True),
        (8, 2, True),  # its divergence lies before our log start
        (5, 3, False),
        (9, 5, False),
    ],
)
def test_what_lies_before_our_log_start_begins_at_it(offset: int, epoch: int, begins: bool) -> None:
    replica = leader()
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(4)))
    answer = replica.fetch(3, offset, epoch)
    assert answer is not None
    assert answer.snapshot_id == (position(4, 3) if begins else None)
    assert answer.diverging is None


@given(st.data())
def test_reconciliation_finds_the_common_prefix(data: st.DataObject) -> None:
    """A follower that truncates as it is told ends, in a few rounds, exactly where its log and the leader's part."""
    mine = data.draw(st.lists(st.integers(1, 5), max_size=12).map(sorted))
    shared = data.draw(st.integers(0, len(mine)))
    # Equal offset and epoch mean equal record (log matching), so what follows the fork shares no (offset, epoch).
    theirs = mine[:shared]
    taken = dict(enumerate(mine))
    for offset in range(shared, data.draw(st.integers(shared, 14))):
        low = theirs[-1] if theirs else 1
        choices = [
            epoch for epoch in range(low, 6) if taken.get(offset) != epoch and (offset < shared or epoch not in mine[shared:])
        ]
        if not choices:
            break
        theirs.append(data.draw(st.sampled_from(choices)))

    def entries(log: list[int]) -> list[tuple[int, int]]:
        return [(epoch, log.index(epoch)) for epoch in sorted(set(log))]

    replica = Replica.leader(epoch=6, log=(entries(mine), len(mine)))
    log = list(theirs)
    for _ in range(12):
        answer = replica.fetch(2, len(log), log[-1] if log else 0)
        if answer is None or answer.diverging is None:
            break
        cut = answer.diverging
        own_end = max((index + 1 for index, epoch in enumerate(log) if epoch <= cut.epoch), default=0)
        has_epoch = own_end > 0 and log[own_end - 1] == cut.epoch
        del log[min(own_end, cut.offset) if has_epoch else own_end :]
    assert log == mine[: len(log)]
    common = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    assert len(log) <= common


# --- answering and parking ------------------------------------------------------------------------------------------


def test_records_are_answered_at_once() -> None:
    answer = leader().fetch(2, 9, 5)
    assert answer is not None
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.NONE, 1, 6)


def test_a_fetch_at_the_end_is_parked_until_there_is_more() -> None:
    """testPurgatoryFetchSatisfiedByWrite."""
    replica = leader()
    assert replica.fetch(2, 10, 6) is None
    assert replica.fetch(3, 10, 6) is None
    replica.append(1)
    assert [answer.replica_id for answer in replica.took(do.AnswerFetch)] == [2, 3]
    assert isinstance(replica.actions[0], do.AppendRecords), "the append comes first, so that it can be read"
    replica.append(1)
    assert replica.took(do.AnswerFetch) == []


def test_a_newer_fetch_replaces_a_parked_one() -> None:
    replica = leader()
    replica.fetch(2, 10, 6)
    replica.fetch(2, 10, 6)
    replica.append(1)
    assert len(replica.took(do.AnswerFetch)) == 1


def test_a_fetch_that_is_answered_at_once_leaves_nothing_parked() -> None:
    replica = leader()
    replica.fetch(2, 10, 6)
    assert replica.fetch(2, 9, 5) is not None
    replica.append(1)
    assert replica.took(do.AnswerFetch) == []


def test_a_replica_that_misses_the_high_watermark_is_answered_at_once() -> None:
    """KIP-1166: testUpdatedHighWatermarkCompleted, testUnchangedHighWatermarkDeferred."""
    replica = leader()
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 10
    answer = replica.fetch(3, 10, 6, high_watermark=9)
    assert answer is not None
    assert answer.high_watermark == 10
    assert replica.fetch(3, 10, 6, high_watermark=10) is None
    assert replica.fetch(3, 10, 6, high_watermark=-1) is not None


def test_a_high_watermark_wakes_those_that_do_not_know_it() -> None:
    replica = leader(voters=(1, 2, 3, 4, 5))
    assert replica.fetch(2, 10, 6, high_watermark=0) is None
    assert replica.fetch(4, 10, 6) is None
    assert [answer.replica_id for answer in replica.took(do.AnswerFetch)] == [2], "it knew 0, the other everything"
    assert replica.took(do.AdvanceHighWatermark) == [do.AdvanceHighWatermark(high_watermark=Offset(10))]


def test_losing_leadership_answers_parked_fetches_with_the_new_leader() -> None:
    """testPurgatoryFetchCompletedByFollowerTransition, testResignWillCompleteFetchPurgatory."""
    replica = leader()
    replica.fetch(2, 10, 6)
    replica.begin(3, 7)
    answers = [(answer.error, answer.leader_id, answer.leader_epoch) for answer in replica.took(do.AnswerFetch)]
    assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 7)]
    replica = leader()
    replica.fetch(2, 10, 6)
    replica.step(on.ResignRequested())
    answers = [(answer.error, answer.leader_id, answer.leader_epoch) for answer in replica.took(do.AnswerFetch)]
    assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 6)]


# --- progress and the high watermark --------------------------------------------------------------------------------


def test_the_high_watermark_needs_a_record_of_the_own_epoch() -> None:
    """KAFKA-12619, LeaderStateTest.testUpdateHighWatermarkQuorumSizeThree: it must exceed the epoch start offset."""
    replica = leader()
    replica.fetch(2, 9, 5)
    replica.fetch(3, 9, 5)
    assert replica.core.high_watermark == 0
    assert not replica.core.is_serving_leader
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 10
    assert replica.core.is_serving_leader


def test_our_own_unsynced_records_do_not_count() -> None:
    """Promise 1: the leader counts itself only after its own sync."""
    replica = leader(flushed=False)
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 0
    replica.flush(10)
    assert replica.core.high_watermark == 10


def test_two_followers_commit_without_us() -> None:
    replica = leader(flushed=False)
    replica.fetch(2, 10, 6)
    replica.fetch(3, 10, 6)
    assert replica.core.high_watermark == 10


def test_two_voters_need_both() -> None:
    """LeaderStateTest.testUpdateHighWatermarkQuorumSizeTwo."""
    replica = leader(voters=(1, 2))
    assert replica.core.high_watermark == 0
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 10


def test_one_voter_needs_its_own_sync() -> None:
    """LeaderStateTest.testUpdateHighWatermarkQuorumSizeOne, where Kafka commits before the sync."""
    replica = Replica(voters=(1,), epoch=5, log=LOG)
    assert replica.role == "Leader"
    assert replica.core.high_watermark == 0
    replica.flush()
    assert replica.core.high_watermark == 10


def test_the_high_watermark_never_goes_back() -> None:
    """testNonMonotonicHighWatermarkUpdate, KAFKA-14077: a follower that lost its disk starts over."""
    replica = leader()
    replica.fetch(2, 10, 6)
    replica.fetch(2, 0, 0)
    assert replica.core.role.voters[NodeId(2)].end_offset == 0  # type: ignore[union-attr]
    assert replica.core.high_watermark == 10
    replica.append(2)
    replica.flush()
    assert replica.core.high_watermark == 10
    replica.fetch(2, 12, 6)
    assert replica.core.high_watermark == 12


def test_a_fetch_that_arrives_behind_a_newer_one_tells_nothing() -> None:
    """Simulator, seed 860001010: a voter lost the end of its log and began anew. A Fetch of the process before was late, and
    compaction relied on records that the voter did not have."""
    replica = leader()
    progress = replica.core.role.voters[NodeId(2)]  # type: ignore[union-attr]
    replica.fetch(2, 6, 3, follows=4)
    replica.fetch(2, 3, 1, follows=5)
    assert progress.end_offset == 3
    replica.fetch(2, 10, 6, follows=4)
    assert (progress.end_offset, replica.core.high_watermark) == (3, 0)
    replica.fetch(2, 6, 3, follows=5)
    assert progress.end_offset == 6, "it was sent behind the same answer"
    replica.fetch(2, 10, 6)
    assert (progress.end_offset, replica.core.high_watermark) == (10, 10), "the first one of a session follows nothing"


def test_an_observer_is_remembered_but_not_counted() -> None:
    replica = leader()
    assert replica.fetch(9, 10, 6) is None
    assert replica.core.high_watermark == 0
    statuses = replica.core.replica_progress()
    assert [(status.key.id, status.log_end, status.is_voter) for status in statuses] == [
        (1, 10, True),
        (2, -1, True),
        (3, -1, True),
        (9, 10, False),
    ]


def test_a_voters_number_with_another_disk_is_an_observer() -> None:
    """KIP-853: the directory id tells a replaced disk from the voter."""
    voters = VoterSet({**voter_set((1, 2, 3)).voters, NodeId(2): key(2, b"disk")})
    replica = leader(voter_keys=voters)
    replica.fetch(key(2, b"other"), 10, 6)
    assert replica.core.high_watermark == 0
    replica.fetch(key(2, b"disk"), 10, 6)
    assert replica.core.high_watermark == 10


def test_strangers_cannot_fill_the_memory() -> None:
    replica = leader()
    for stranger in range(100, 100 + 2 * OBSERVERS_MAX):
        replica.now_ms += 1
        replica.fetch(stranger, 10, 6)
    observers = replica.core.role.observers  # type: ignore[union-attr]
    assert len(observers) == OBSERVERS_MAX
    assert min(observers) == 100 + OBSERVERS_MAX, "the ones heard of longest ago went"
    assert set(replica.core.role.parked) <= set(observers), "and their fetches with them"  # type: ignore[union-attr]


def test_an_observer_that_is_forgotten_for_others_is_answered_and_asks_anew() -> None:
    """It believed that its Fetch was parked, and never heard of another record."""
    replica = leader()
    assert replica.fetch(99, 10, 6) is None
    for stranger in range(100, 99 + OBSERVERS_MAX):
        replica.now_ms += 1
        replica.fetch(stranger, 10, 6)
    assert replica.took(do.AnswerFetch) == [], "there is room for all of them"
    replica.now_ms += 1
    replica.fetch(1_000, 10, 6)
    (answer,) = replica.took(do.AnswerFetch)
    assert (answer.replica_id, answer.error, answer.leader_id, answer.high_watermark) == (99, ErrorCode.NONE, 1, -1)
    assert 99 not in replica.core.role.parked and 1_000 in replica.core.role.parked  # type: ignore[union-attr]
    replica.now_ms += 1
    replica.fetch(99, 10, 6)
    assert [answer.replica_id for answer in replica.took(do.AnswerFetch)] == [100], "the next one in turn"
    assert 99 in {answer.replica_id for answer in replica.append(1) if isinstance(answer, do.AnswerFetch)}


def test_a_voters_fetch_stays_parked_where_its_number_is_forgotten_as_an_observers() -> None:
    voters = VoterSet({**voter_set((1, 2, 3)).voters, NodeId(2): key(2, b"disk")})
    replica = leader(voter_keys=voters)
    replica.fetch(key(2, b"other"), 10, 6)
    replica.now_ms += 1
    replica.fetch(key(2, b"disk"), 10, 6)
    for stranger in range(100, 100 + OBSERVERS_MAX):
        replica.now_ms += 1
        replica.fetch(stranger, 10, 6)
        assert replica.took(do.AnswerFetch) == []
    assert 2 in replica.core.role.parked  # type: ignore[union-attr]


def test_caught_up_means_at_the_end_now_or_at_the_end_of_the_fetch_before() -> None:
    """Kafka's lastCaughtUpTimestamp, which DescribeQuorum shows."""
    replica = leader()
    replica.now_ms = 20_000
    replica.fetch(2, 9, 5)
    status = {status.key.id: status for status in replica.core.replica_progress()}[2]
    assert (status.last_fetch_ms, status.last_caught_up_ms) == (20_000, -1)
    replica.append(1)
    replica.now_ms = 20_100
    replica.fetch(2, 10, 6)
    status = {status.key.id: status for status in replica.core.replica_progress()}[2]
    assert status.last_caught_up_ms == 20_000, "it has all that we had at its last fetch"
    replica.now_ms = 20_200
    replica.fetch(2, 11, 6)
    status = {status.key.id: status for status in replica.core.replica_progress()}[2]
    assert (status.last_fetch_ms, status.last_caught_up_ms) == (20_200, 20_200)


# --- confirmed rounds -----------------------------------------------------------------------------------------------


def confirm(replica: Replica, voter: int, *, at_ms: int, follows: int = 0) -> None:
    replica.step(on.ReplicaConfirmed(replica_id=NodeId(voter), at_ms=at_ms, follows=follows, leader_epoch=replica.core.epoch))


def test_a_round_without_news_is_a_sign_of_life() -> None:
    replica = leader()
    replica.fetch(2, 10, 6)
    replica.now_ms += 500
    confirm(replica, 2, at_ms=replica.now_ms - 100)
    status = {status.key.id: status for status in replica.core.replica_progress()}[2]
    assert status.last_fetch_ms == status.last_caught_up_ms == replica.now_ms - 100
    confirm(replica, 2, at_ms=replica.now_ms - 300)
    status = {status.key.id: status for status in replica.core.replica_progress()}[2]
    assert status.last_fetch_ms == replica.now_ms - 100


def test_a_round_says_nothing_before_a_fetch_of_this_epoch() -> None:
    replica = leader()
    confirm(replica, 2, at_ms=replica.now_ms, follows=7)
    confirm(replica, 77, at_ms=replica.now_ms, follows=7)
    progress = replica.core.role.voters[NodeId(2)]  # type: ignore[union-attr]
    assert (progress.has_fetched, progress.follows) == (False, 0)


def test_a_round_means_nothing_to_a_follower() -> None:
    replica = Replica.follower(epoch=6)
    confirm(replica, 2, at_ms=replica.now_ms, follows=7)
    assert replica.actions == []
