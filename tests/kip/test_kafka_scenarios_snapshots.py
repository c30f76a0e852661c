"""Snapshots (KIP-630): the scenarios of Kafka's KafkaRaftClientSnapshotTest and KafkaRaftLogTest that reach the core.

Each test carries the name of the Kafka test it follows, in our spelling. What a snapshot holds and where it lies is the
driver's; the tests of `replica.snapshots` have that half.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftkit.snapshots import answer_piece, receive_snapshot, snapshot_in_flight
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey

#: Offsets 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5; the leader of epoch 6 adds its LeaderChange at 9.
LOG = (((1, 0), (3, 3), (5, 6)), 9)


def leader(snapshot: int | None = 6, log_start: int | None = 6) -> Replica:
    """A leader of epoch 6 that has taken a snapshot and deleted what lies below it."""
    replica = Replica.leader(epoch=6, log=LOG)
    replica.commit_epoch_start()
    if snapshot is not None:
        replica.step(on.SnapshotTaken(snapshot_id=replica.core.snapshot_at(Offset(snapshot))))
    if log_start is not None:
        replica.step(on.LogStartAdvanced(log_start_offset=Offset(log_start)))
    return replica


def ask(
    replica: Replica, snapshot_id: OffsetAndEpoch, *, at: int = 0, epoch: int | None = None, source: int = 3
) -> do.AnswerFetchSnapshot:
    request = FetchSnapshotRequest(
        replica=ReplicaKey(NodeId(source)),
        leader_epoch=replica.core.epoch if epoch is None else Epoch(epoch),
        snapshot_id=snapshot_id,
        position=at,
    )
    replica.step(on.RequestReceived(request_id=1, request=request))
    (answer,) = replica.took(do.AnswerFetchSnapshot)
    return answer


def downloading(snapshot_id: OffsetAndEpoch | None = None) -> Replica:
    """A follower whose leader (2, epoch 6) has named a snapshot; the first FetchSnapshot is under way."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(snapshot_id=snapshot_id or position(50, 5))
    return replica


# --- Fetch at the leader --------------------------------------------------------------------------------------------


def test_fetch_request_offset_less_than_log_start() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetLessThanLogStart."""
    answer = leader().fetch(3, 4, 3)
    assert answer is not None
    assert (answer.error, answer.snapshot_id, answer.diverging) == (ErrorCode.NONE, position(6, 3), None)


def test_fetch_request_with_offset_less_than_log_start_names_the_latest_snapshot() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetLessThanLogStart."""
    replica = leader()
    replica.step(on.SnapshotTaken(snapshot_id=replica.core.snapshot_at(Offset(8))))
    answer = replica.fetch(3, 4, 3)
    assert answer is not None and answer.snapshot_id == position(8, 5)


def test_fetch_request_offset_at_zero() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetAtZero: an empty replica gets the snapshot although the log still
    begins at 0."""
    answer = leader(log_start=None).fetch(3, 0, 0)
    assert answer is not None and answer.snapshot_id == position(6, 3)


def test_fetch_request_offset_at_zero_with_bootstrap_snapshot_only() -> None:
    """KafkaRaftClientReconfigTest.testFollowerDoesNotRequestLeaderBootstrapSnapshot: no snapshot but the bootstrap one, which
    is never reported to the core: records from offset 0."""
    answer = leader(snapshot=None, log_start=None).fetch(3, 0, 0)
    assert answer is not None and answer.snapshot_id is None and answer.diverging is None


@pytest.mark.parametrize("last_epoch", [0, 1, 5, 6])
def test_fetch_request_offset_at_zero_without_a_snapshot_gets_records(last_epoch: int) -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetAtZero, without its snapshot: RaftLog.validateOffsetAndEpoch takes
    offset 0 of a log that begins at 0 as valid, whatever epoch the empty replica claims. A snapshot 0@0 does not exist, so a
    Java replica that was sent there would never replicate."""
    answer = leader(snapshot=None, log_start=None).fetch(3, 0, last_epoch)
    assert answer is not None
    assert (answer.error, answer.snapshot_id, answer.diverging) == (ErrorCode.NONE, None, None)


@pytest.mark.parametrize(("snapshot", "last_epoch"), [(6, 5), (3, 1), (3, 6)])
def test_fetch_request_offset_at_zero_with_an_epoch_gets_the_snapshot_that_exists(snapshot: int, last_epoch: int) -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetAtZero: the epoch that an empty replica claims changes nothing."""
    answer = leader(snapshot=snapshot, log_start=None).fetch(3, 0, last_epoch)
    assert answer is not None and answer.snapshot_id == position(snapshot, 1 if snapshot == 3 else 3)


@pytest.mark.parametrize("last_epoch", [0, 1, 3, 5])
def test_fetch_request_offset_at_zero_below_the_log_start_gets_the_snapshot(last_epoch: int) -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestOffsetLessThanLogStart, with the epoch of the log start's record too."""
    answer = leader().fetch(3, 0, last_epoch)
    assert answer is not None and answer.snapshot_id == position(6, 3)


def test_fetch_request_at_log_start_offset_with_valid_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestAtLogStartOffsetWithValidEpoch."""
    answer = leader().fetch(3, 6, 3)
    assert answer is not None and (answer.snapshot_id, answer.diverging) == (None, None)


def test_fetch_request_at_log_start_offset_with_invalid_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestAtLogStartOffsetWithInvalidEpoch."""
    answer = leader().fetch(3, 6, 1)
    assert answer is not None and answer.snapshot_id == position(6, 3)


def test_fetch_request_with_last_fetched_epoch_less_than_oldest_snapshot() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestWithLastFetchedEpochLessThanOldestSnapshot."""
    answer = leader().fetch(3, 8, 1)
    assert answer is not None and answer.snapshot_id == position(6, 3)


def test_fetch_request_truncate_to_log_start() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestTruncateToLogStart: an epoch between the snapshot's and the next one of the
    log: what follows the snapshot diverges."""
    answer = leader().fetch(3, 8, 4)
    assert answer is not None and (answer.snapshot_id, answer.diverging) == (None, position(6, 3))


def test_fetch_request_with_larger_last_fetched_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchRequestWithLargerLastFetchedEpoch."""
    answer = leader().fetch(3, 8, 7)
    assert answer is not None and answer.error is ErrorCode.INVALID_REQUEST


# --- FetchSnapshot at the leader ------------------------------------------------------------------------------------


def test_fetch_snapshot_request_as_leader() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotRequestAsLeader."""
    answer = ask(leader(), position(6, 3), at=17)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.NONE, 1, 6)
    assert (answer.request.snapshot_id, answer.request.position) == (position(6, 3), 17)


def test_fetch_snapshot_request_with_older_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotRequestWithOlderEpoch."""
    assert ask(leader(), position(6, 3), epoch=5).error is ErrorCode.FENCED_LEADER_EPOCH


def test_fetch_snapshot_request_with_newer_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotRequestWithNewerEpoch."""
    answer = ask(leader(), position(6, 3), epoch=7)
    assert (answer.error, answer.leader_epoch) == (ErrorCode.UNKNOWN_LEADER_EPOCH, 6)


def test_fetch_snapshot_request_as_follower() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotRequestAsFollower."""
    answer = ask(Replica.follower(epoch=6, leader=2), position(6, 3))
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_leader_should_resign_leadership_if_not_get_fetch_snapshot_request_from_majority_voters() -> None:
    """KafkaRaftClientSnapshotTest.testLeaderShouldResignLeadershipIfNotGetFetchSnapshotRequestFromMajorityVoters:
    FetchSnapshot counts for check quorum as Fetch does."""
    replica = leader()
    for _ in range(4):
        replica.pass_time(CONFIG.check_quorum_timeout_ms - 1)
        ask(replica, position(6, 3))
        assert replica.role == "Leader"
    replica.pass_time(CONFIG.check_quorum_timeout_ms)
    assert replica.role == "Resigned"


def test_fetch_snapshot_request_of_an_observer_does_not_count_for_check_quorum() -> None:
    """Ours: observers keep no leader in office, whatever they fetch."""
    replica = leader()
    replica.pass_time(CONFIG.check_quorum_timeout_ms - 1)
    ask(replica, position(6, 3), source=9)
    replica.pass_time(1)
    assert replica.role == "Resigned"


# --- the follower ---------------------------------------------------------------------------------------------------


def test_fetch_response_with_snapshot_id() -> None:
    """KafkaRaftClientSnapshotTest.testFetchResponseWithSnapshotId."""
    replica = downloading()
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert (request.snapshot_id, request.position, request.leader_epoch) == (position(50, 5), 0, 6)
    assert replica.core.log_end == 0, "the log is left alone until the snapshot is here"


@pytest.mark.parametrize("snapshot_id", [(-1, 5), (50, -1)])
def test_fetch_response_with_invalid_snapshot_offset_or_epoch(snapshot_id: tuple[int, int]) -> None:
    """KafkaRaftClientSnapshotTest.testFetchResponseWithInvalidSnapshotId."""
    replica = downloading(position(*snapshot_id))
    assert replica.sent(FetchSnapshotRequest) == {}
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_fetch_snapshot_response_to_partial_data() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponsePartialData."""
    replica = downloading()
    answer_piece(replica, b"12", 5)
    assert replica.took(do.WriteSnapshot) == [do.WriteSnapshot(snapshot_id=position(50, 5), position=0, data=b"12")]
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert request.position == 2
    answer_piece(replica, b"345", 5)
    assert replica.took(do.FinishSnapshot) == [do.FinishSnapshot(snapshot_id=position(50, 5))]
    assert replica.took(do.SendRequest) == [], "nothing is asked before the snapshot is durable"
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert [type(action) for action in replica.actions] == [do.ResetLog, do.AdvanceHighWatermark, do.SendRequest]
    (fetch,) = replica.sent(FetchRequest).values()
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (50, 5)
    assert replica.core.snapshot_id == position(50, 5)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_fetch_snapshot_response_missing_snapshot(error: ErrorCode) -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseMissingSnapshot."""
    replica = downloading()
    answer_piece(replica, b"12", 5)
    answer_piece(replica, error=error)
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(50, 5))]
    assert replica.view == ("Follower", 6, 2)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_fetch_snapshot_response_from_newer_epoch_not_leader() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseFromNewerEpochNotLeader."""
    replica = downloading()
    answer_piece(replica, error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7)
    assert replica.view == ("Follower", 7, 3)
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(50, 5))]
    assert set(replica.sent(FetchRequest)) == {3}


def test_fetch_snapshot_response_from_newer_epoch_leader() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseFromNewerEpochLeader."""
    replica = downloading()
    answer_piece(replica, error=ErrorCode.FENCED_LEADER_EPOCH, leader=-1, epoch=7)
    assert replica.view[1:] == (7, -1)
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(50, 5))]


def test_fetch_snapshot_response_from_older_epoch() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseFromOlderEpoch."""
    replica = downloading()
    answer_piece(replica, b"12", 5, epoch=5)
    assert replica.took(do.WriteSnapshot) == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert request.position == 0


@pytest.mark.parametrize(
    "piece",
    [
        {"data": b"12", "size": 5, "snapshot_id": position(49, 5)},
        {"data": b"12", "size": 5, "at": 1},
        {"data": b"123456", "size": 5},
        {"data": b"", "size": 5},
    ],
    ids=["invalid id", "invalid position", "too much", "nothing"],
)
def test_fetch_snapshot_response_with_invalid_id_or_position(piece: dict[str, object]) -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseWithInvalidId: Kafka stops the process; the answer is no fault of
    ours, so the download is begun again."""
    replica = downloading()
    answer_piece(replica, **piece)  # type: ignore[arg-type]
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(50, 5))]
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_fetch_snapshot_response_to_not_follower() -> None:
    """KafkaRaftClientSnapshotTest.testFetchSnapshotResponseToNotFollower."""
    replica = downloading()
    request = snapshot_in_flight(replica)
    replica.pass_until_role("Prospective")
    assert replica.core.fetch_in_flight is None
    answer_piece(replica, b"12", 5, request=request, source=2, leader=2, epoch=6)
    assert replica.took(do.WriteSnapshot) == []


def test_pieces_of_a_snapshot_keep_the_follower_alive() -> None:
    """Ours: each piece is a sign of the leader's life: a large snapshot brings no election."""
    replica = downloading()
    for _ in range(5):
        replica.pass_time(CONFIG.fetch_timeout_ms - 1)
        answer_piece(replica, b"1", 50)
    assert replica.view == ("Follower", 6, 2)


def test_a_damaged_snapshot_is_fetched_again() -> None:
    """Ours: what the driver finds damaged is asked for anew."""
    replica = downloading()
    receive_snapshot(replica, intact=False)
    assert replica.took(do.ResetLog) == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_snapshot_that_arrives_after_the_leader_changed_still_counts() -> None:
    """Ours: it holds committed records only, whoever leads now."""
    replica = downloading()
    answer_piece(replica, b"data", 4)
    replica.begin(3, 7)
    assert replica.took(do.AbandonSnapshot) == []
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]
    (fetch,) = replica.sent(FetchRequest).values()
    assert (fetch.leader_epoch, fetch.fetch_offset) == (7, 50)


def test_leader_never_loads_a_snapshot() -> None:
    """Ours: a leader has everything that is committed."""
    replica = leader()
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.actions == []


# --- taking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot_id", "why"),
    [((11, 6), "outside of what is committed"), ((6, 5), "claims epoch 5, the log has 3"), ((4, 3), "outside of what")],
    ids=["above the high watermark", "wrong epoch", "below the log start"],
)
def test_create_snapshot_as_leader_with_invalid_snapshot_id(snapshot_id: tuple[int, int], why: str) -> None:
    """KafkaRaftClientSnapshotTest.testCreateSnapshotAsLeaderWithInvalidSnapshotId."""
    replica = leader()
    with pytest.raises(InvariantViolation, match=why):
        replica.step(on.SnapshotTaken(snapshot_id=position(*snapshot_id)))


def test_create_snapshot_as_follower_with_invalid_snapshot_id() -> None:
    """KafkaRaftClientSnapshotTest.testCreateSnapshotAsFollowerWithInvalidSnapshotId."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=7)
    assert replica.core.snapshot_at(Offset(7)) == position(7, 5)
    with pytest.raises(InvariantViolation, match="outside of what is committed"):
        replica.core.snapshot_at(Offset(8))


# --- the log --------------------------------------------------------------------------------------------------------


def test_truncate_below_high_watermark() -> None:
    """KafkaRaftLogTest.testTruncateBelowHighWatermark."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=7)
    with pytest.raises(InvariantViolation, match="below the high watermark 7"):
        replica.answer_fetch(diverging=position(3, 1))


def test_truncate_fully_to_latest_snapshot() -> None:
    """KafkaRaftLogTest.testTruncateFullyToLatestSnapshot: records that the snapshot does not cover go too: they parted from
    the leader's before it."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(snapshot_id=position(7, 6))
    receive_snapshot(replica)
    core = replica.core
    assert (core.log_start, core.log_end, core.history.last_epoch, core.high_watermark) == (7, 7, 6, 7)


def test_a_replica_that_starts_with_a_snapshot_still_asks_how_much_is_committed() -> None:
    """Ours: a snapshot says what was committed once, and not what is now."""
    replica = Replica(epoch=6, leader=2, log=LOG, snapshot=(8, 5))
    assert (replica.core.high_watermark, replica.core.snapshot_id) == (0, position(8, 5))


def test_a_replica_goes_on_behind_its_snapshot() -> None:
    """Ours: its log begins where the snapshot ends."""
    replica = Replica(epoch=6, leader=2, log=(((5, 50),), 50), log_start=50, snapshot=(50, 5))
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (50, 5)
    replica.answer_fetch(batch(50, 52, 6), high_watermark=51)
    assert (replica.core.log_end, replica.core.high_watermark) == (52, 51)
