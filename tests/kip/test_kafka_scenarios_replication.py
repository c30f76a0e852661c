"""Kafka's own scenarios, by the names of its tests (4.3.1): fetch and commit.

Each docstring names Kafka's test, and says where ours differs; README.md beside this file lists them all.
"""

from __future__ import annotations

from random import Random

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.replication.fetcher import cut_into_batches
from raftlake.wire.batches import Record, build_batch

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5.
LOG = (((1, 0), (3, 3), (5, 6)), 9)

# --- G. fetch and commit --------------------------------------------------------------------------------------------


def test_follower_replication() -> None:
    """KafkaRaftClientTest.testFollowerReplication"""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 2, 6), high_watermark=1)
    assert replica.core.high_watermark == 1
    replica.flush()
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 6)


def test_empty_record_set_in_fetch_response() -> None:
    """KafkaRaftClientTest.testEmptyRecordSetInFetchResponse"""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=0)
    assert replica.core.high_watermark == 0
    replica.answer_fetch(high_watermark=4)
    assert replica.core.high_watermark == 4


def test_follower_log_reconciliation() -> None:
    """KafkaRaftClientTest.testFollowerLogReconciliation"""
    replica = Replica.follower(epoch=6, leader=2, log=(((3, 0), (5, 2)), 3))
    replica.answer_fetch(diverging=position(2, 3))
    assert replica.core.log_end_position == position(2, 3)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 3)


def test_leader_immediately_sends_diverging_epoch() -> None:
    """KafkaRaftClientTest.testLeaderImmediatelySendsDivergingEpoch"""
    answer = Replica.leader(epoch=6, log=LOG).fetch(2, 6, 2)
    assert answer is not None
    assert answer.diverging == position(3, 1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "epoch", "error"),
    [
        (-1, 0, 6, ErrorCode.INVALID_REQUEST),
        (0, -1, 6, ErrorCode.INVALID_REQUEST),
        (0, 7, 6, ErrorCode.INVALID_REQUEST),
        (0, 0, 7, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_invalid_fetch_request(offset: int, last_epoch: int, epoch: int, error: ErrorCode) -> None:
    """KafkaRaftClientTest.testInvalidFetchRequest"""
    answer = Replica.leader(epoch=6).fetch(2, offset, last_epoch, epoch=epoch)
    assert answer is not None
    assert answer.error is error


def test_purgatory_fetch_satisfied_by_write() -> None:
    """KafkaRaftClientTest.testPurgatoryFetchSatisfiedByWrite"""
    replica = Replica.leader(epoch=6)
    assert replica.fetch(2, 1, 6) is None
    replica.append(1)
    assert [(answer.replica_id, answer.error) for answer in replica.took(do.AnswerFetch)] == [(2, ErrorCode.NONE)]


def test_purgatory_fetch_completed_by_follower_transition() -> None:
    """KafkaRaftClientTest.testPurgatoryFetchCompletedByFollowerTransition"""
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.begin(3, 7)
    (answer,) = replica.took(do.AnswerFetch)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 7)


def test_resign_will_complete_fetch_purgatory() -> None:
    """KafkaRaftClientTest.testResignWillCompleteFetchPurgatory"""
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.step(on.ResignRequested())
    assert [answer.error for answer in replica.took(do.AnswerFetch)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("known", "is_answered"), [(-1, True), (0, True), (1, False), (2**62, False)])
def test_updated_high_watermark_completed_and_unchanged_deferred(known: int, is_answered: bool) -> None:
    """KafkaRaftClientFetchTest.testUpdatedHighWatermarkCompleted,
    KafkaRaftClientFetchTest.testUnchangedHighWatermarkDeferred, KafkaRaftClientFetchTest.testDefaultHwmDeferred
    (KIP-1166; the wire's default 2^63-1 means that the replica does not care)
    """
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    assert replica.core.high_watermark == 1
    assert (replica.fetch(3, 1, 6, high_watermark=known) is not None) == is_answered


def test_high_watermark_sent_in_fetch_request() -> None:
    """KafkaRaftClientFetchTest.testHighWatermarkSentInFetchRequest"""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=4)
    (request,) = replica.sent(FetchRequest).values()
    assert request.high_watermark == 4


def test_replication_of_higher_partition_leader_epoch() -> None:
    """KafkaRaftClientFetchTest.testReplicationOfHigherPartitionLeaderEpoch"""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 1, 6), batch(1, 2, 7))
    assert replica.core.log_end_position == position(1, 6)


def test_invalid_memory_records() -> None:
    """KafkaRaftClientFetchTest.testInvalidMemoryRecords. The driver hands over only batches whose CRC holds; what it
    cut away never advances the log.
    """
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(1, 2, 6), high_watermark=5)
    assert (replica.core.log_end, replica.core.high_watermark) == (0, 0)


@pytest.mark.parametrize("voters", [1, 2, 3])
def test_update_high_watermark_quorum_size(voters: int) -> None:
    """LeaderStateTest.testUpdateHighWatermarkQuorumSizeOne, LeaderStateTest.testUpdateHighWatermarkQuorumSizeTwo,
    LeaderStateTest.testUpdateHighWatermarkQuorumSizeThree
    """
    ids = tuple(range(1, voters + 1))
    replica = Replica(voters=ids, epoch=5) if voters == 1 else Replica.leader(epoch=6, voters=ids, flushed=False)
    replica.flush()
    if voters > 1:
        assert replica.core.high_watermark == 0
        replica.fetch(2, 0, 0)
        assert replica.core.high_watermark == 0
        replica.fetch(2, 1, replica.core.epoch)
    assert replica.core.high_watermark == 1


def test_non_monotonic_high_watermark_update() -> None:
    """LeaderStateTest.testNonMonotonicHighWatermarkUpdate"""
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.fetch(2, 0, 0)
    assert replica.core.high_watermark == 1


@pytest.mark.parametrize("reason", [on.FailureReason.TIMED_OUT, on.FailureReason.DISCONNECTED])
def test_follower_leader_rediscovery_after_request_timeout(reason: on.FailureReason) -> None:
    """KafkaRaftClientTest.testFollowerLeaderRediscoveryAfterRequestTimeout. Kafka asks another voter at once, ours
    after a second failure.
    """
    replica = Replica.follower(epoch=6, leader=2)
    for _ in range(2):
        request = replica.core.fetch_in_flight
        assert request is not None
        replica.fail(2, request, reason)
        replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {3}
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7)
    assert replica.view == ("Follower", 7, 3)


def test_fetch_response_ignored_after_becoming_prospective() -> None:
    """KafkaRaftClientTest.testFetchResponseIgnoredAfterBecomingProspective"""
    replica = Replica.follower(epoch=6, leader=2)
    request = replica.core.fetch_in_flight
    assert request is not None
    replica.pass_time(CONFIG.fetch_timeout_ms)
    replica.answer_fetch(batch(0, 1, 6), request=request, source=2, leader=2)
    assert replica.view == ("Prospective", 6, 2)
    assert replica.core.log_end == 0


def test_fetch_response_ignored_after_becoming_follower_of_different_leader() -> None:
    """KafkaRaftClientTest.testFetchResponseIgnoredAfterBecomingFollowerOfDifferentLeader"""
    replica = Replica.follower(epoch=6, leader=2)
    request = replica.core.fetch_in_flight
    assert request is not None
    replica.begin(3, 7)
    replica.answer_fetch(batch(0, 1, 6), request=request, source=2, leader=2, epoch=6)
    assert replica.view == ("Follower", 7, 3)
    assert replica.core.log_end == 0


def test_unknown_high_watermark_at_both_sides() -> None:
    """KafkaRaftClientFetchTest.testUnknownHwmDeferredWhenLeaderDoesNotKnowHwm: a new leader knows none before an entry of its
    epoch is committed, and there is nothing to tell.
    """
    replica = Replica.leader(epoch=6, log=LOG)
    assert replica.fetch(9, 10, 6, high_watermark=-1) is None


def test_a_new_leader_does_not_tell_a_high_watermark_that_it_only_remembers() -> None:
    """FollowerStateTest.testMonotonicHighWatermark: Kafka's followers end their process at a high watermark that goes back. A
    leader that restarted begins with the start of its log, so it says -1 until it knows.
    """
    replica = Replica.leader(epoch=6, log=LOG)
    answer = replica.fetch(9, 6, 5, high_watermark=6)
    assert answer is not None and answer.error is ErrorCode.NONE
    assert answer.high_watermark == -1
    replica.fetch(2, 10, 6)
    answer = replica.fetch(9, 6, 5, high_watermark=6)
    assert answer is not None and answer.high_watermark == 10


def test_a_new_high_watermark_completes_the_fetches_of_the_others() -> None:
    """KafkaRaftClientFetchTest.testUpdatedHighWatermarkCompleted: an observer waits at the log end, a voter's fetch
    commits it.
    """
    replica = Replica.leader(epoch=6, log=LOG)
    assert replica.fetch(9, 10, 6, high_watermark=0) is None
    replica.fetch(2, 10, 6)
    answers = [(answer.replica_id, answer.high_watermark) for answer in replica.took(do.AnswerFetch)]
    assert (9, 10) in answers


@pytest.mark.parametrize("seed", range(20))
def test_random_records(seed: int) -> None:
    """KafkaRaftClientFetchTest.testRandomRecords: bytes of chance, and good batches with a flipped byte, never advance
    the log by what is not intact, and never stop the replica.
    """
    random = Random(seed)
    good = build_batch([Record(value=b"v")], base_offset=0, leader_epoch=6, timestamp_ms=1)
    damaged = bytearray(build_batch([Record(value=b"w")], base_offset=1, leader_epoch=6, timestamp_ms=1))
    damaged[random.randrange(len(damaged) - 30, len(damaged))] ^= 1 << random.randrange(8)
    junk = random.randbytes(random.randrange(1, 300))
    for tail in (bytes(damaged), junk):
        replica = Replica.follower(epoch=6, leader=2)
        whole = FetchedBatch(base_offset=Offset(0), end_offset=Offset(0), epoch=Epoch(0), payload=bytes(good) + tail)
        response = FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(2), leader_epoch=Epoch(6), batches=(whole,))
        cut = cut_into_batches(response)
        replica.answer_fetch(*cut.batches)
        assert replica.core.log_end == 1


def test_follower_leader_rediscovery_after_broker_not_available_error() -> None:
    """KafkaRaftClientTest.testFollowerLeaderRediscoveryAfterBrokerNotAvailableError"""
    replica = Replica.follower(epoch=6, leader=2)
    asked = []
    for _ in range(4):
        replica.answer_fetch(error=ErrorCode.BROKER_NOT_AVAILABLE, leader=-1)
        replica.pass_time(CONFIG.retry_backoff_ms)
        asked.append(int(replica.core.fetch_peer))
    assert asked == [2, 3, 2, 3]


def test_observer_handle_retry_fetch_to_bootstrap_server() -> None:
    """KafkaRaftClientTest.testObserverHandleRetryFetchToBootstrapServer, testObserverHandleRetryFetchToLeader: after a timeout
    somebody else is asked; the answers that come after all, from both, do no harm.
    """
    observer = Replica(local=9, epoch=6, leader=2)
    to_leader = observer.core.fetch_in_flight
    assert to_leader is not None
    for _ in range(2):
        in_flight = observer.core.fetch_in_flight
        assert in_flight is not None
        observer.fail(observer.core.fetch_peer, in_flight, on.FailureReason.TIMED_OUT)
        observer.pass_time(CONFIG.retry_backoff_ms)
    other = observer.core.fetch_peer
    assert other != 2
    observer.answer_fetch(batch(0, 2, 6), source=2, leader=2, request=to_leader)
    assert observer.core.log_end == 0, "nobody waits for that answer"
    observer.answer_fetch(batch(0, 2, 6), source=other, leader=2)
    assert observer.view == ("Follower", 6, 2)
    assert observer.core.log_end == 0, "only the leader's records are taken"
