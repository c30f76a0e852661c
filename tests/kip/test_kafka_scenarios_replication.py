"""Kafka's own scenarios for leaders and followers, by the names of its tests (KafkaRaftClientTest, ...FetchTest,
LeaderStateTest of 4.3.1): quorum epochs, liveness, fetch and commit, log starts.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest
from raftlake.raft.types import NodeId, Offset

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5.
LOG = (((1, 0), (3, 3), (5, 6)), 9)


# --- E. quorum epochs -----------------------------------------------------------------------------------------------


def test_handle_begin_quorum_request() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, 6).error is ErrorCode.NONE
    assert replica.view == ("Follower", 6, 3)
    assert set(replica.sent(FetchRequest)) == {3}
    assert replica.begin(3, 5).error is ErrorCode.FENCED_LEADER_EPOCH


def test_begin_quorum_epoch_heartbeat() -> None:
    replica = Replica.leader(epoch=6)
    for _ in range(3):
        for voter in (2, 3):
            replica.fetch(voter, 1, 6)
        replica.pass_time(CONFIG.fetch_timeout_ms // 2 - 1)
        assert replica.sent(BeginQuorumEpochRequest) == {}
    for voter in (2, 3):
        request = replica.core.role.begins.in_flight.pop(NodeId(voter))  # type: ignore[union-attr]
        assert isinstance(request, BeginQuorumEpochRequest)
    replica.fetch(3, 1, 6)
    replica.pass_time(1)
    assert set(replica.sent(BeginQuorumEpochRequest)) == {2}


def test_begin_quorum_should_not_send_after_fetch_request() -> None:
    replica = Replica.leader(epoch=6, flushed=False)
    for voter in (2, 3):
        replica.fetch(voter, 0, 0)
    replica.flush()
    assert replica.sent(BeginQuorumEpochRequest) == {}


def test_fetch_should_be_treated_as_leader_acknowledgement() -> None:
    replica = Replica.leader(epoch=6)
    request = replica.core.role.begins.in_flight[NodeId(2)]  # type: ignore[union-attr]
    replica.fetch(2, 0, 0)
    replica.fail(2, request)
    replica.pass_time(500)
    assert replica.sent(BeginQuorumEpochRequest) == {}


def test_invalid_voter_replica_begin_quorum_epoch_request() -> None:
    replica = Replica.unattached(epoch=6)
    assert replica.begin(3, 7, voter=2).error is ErrorCode.INVALID_VOTER_KEY
    assert replica.view == ("Follower", 7, 3)


def test_handle_end_quorum_request() -> None:
    replica = Replica.follower(epoch=6, leader=3)
    assert replica.end(3, 6, [1, 2]).error is ErrorCode.NONE
    assert replica.role == "Prospective"


def test_handle_end_quorum_request_with_lower_priority_to_become_leader() -> None:
    replica = Replica.follower(epoch=6, leader=3)
    replica.end(3, 6, [2, 1])
    assert replica.role == "Follower"
    assert replica.pass_until_role("Prospective") <= CONFIG.retry_backoff_ms_max


def test_end_quorum_starts_new_election_immediately_if_follower_unattached() -> None:
    replica = Replica.unattached(epoch=6)
    replica.end(3, 6, [1, 2])
    assert replica.view == ("Prospective", 6, 3)


@pytest.mark.parametrize("role", ["Leader", "Candidate"])
def test_end_quorum_ignored_if_older_epoch(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    assert replica.end(2, 5, [1]).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.role == role


def test_end_quorum_epoch_sent_based_on_fetch_offset() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    replica.fetch(3, 10, 6)
    replica.fetch(2, 9, 5)
    replica.step(on.ResignRequested())
    (first, *_) = replica.sent(EndQuorumEpochRequest).values()
    assert [successor.id for successor in first.preferred_candidates] == [3, 2]


def test_end_quorum_epoch_retries_while_resigned() -> None:
    replica = Replica.resigned(epoch=6)
    replica.fail(2, replica.sent(EndQuorumEpochRequest)[2])
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(EndQuorumEpochRequest)) == {2}


def test_election_timeout_after_user_initiated_resign() -> None:
    """Check quorum here, where Kafka's state machine asks for it: Fetch is refused, then Unattached(E+1), then Prospective."""
    replica = Replica.resigned(epoch=6)
    answer = replica.fetch(2, 1, 6)
    assert answer is not None
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replica.pass_until_role("Prospective")
    assert replica.core.epoch == 7


def test_handle_begin_quorum_epoch_after_user_initiated_resign() -> None:
    replica = Replica.resigned(epoch=6)
    assert replica.begin(3, 7).error is ErrorCode.NONE
    assert replica.view == ("Follower", 7, 3)


# --- F. leader liveness ---------------------------------------------------------------------------------------------


def test_leader_should_resign_leadership_if_not_get_fetch_request_from_majority_voters() -> None:
    replica = Replica.leader(epoch=6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    replica.fetch(2, 1, 6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    assert replica.role == "Leader"
    replica.fetch(9, 1, 6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms // 2)
    assert replica.view == ("Resigned", 6, -1)


def test_leader_should_not_resign_leadership_if_only_one_voters() -> None:
    replica = Replica(voters=(1,))
    replica.pass_time(100 * CONFIG.check_quorum_timeout_ms)
    assert replica.role == "Leader"


# --- G. fetch and commit --------------------------------------------------------------------------------------------


def test_follower_replication() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 2, 6), high_watermark=1)
    assert replica.core.high_watermark == 1
    replica.flush()
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 6)


def test_empty_record_set_in_fetch_response() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=0)
    assert replica.core.high_watermark == 0
    replica.answer_fetch(high_watermark=4)
    assert replica.core.high_watermark == 4


def test_follower_log_reconciliation() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=(((3, 0), (5, 2)), 3))
    replica.answer_fetch(diverging=position(2, 3))
    assert replica.core.log_end_position == position(2, 3)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 3)


def test_leader_immediately_sends_diverging_epoch() -> None:
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
    answer = Replica.leader(epoch=6).fetch(2, offset, last_epoch, epoch=epoch)
    assert answer is not None
    assert answer.error is error


def test_purgatory_fetch_satisfied_by_write() -> None:
    replica = Replica.leader(epoch=6)
    assert replica.fetch(2, 1, 6) is None
    replica.append(1)
    assert [(answer.replica_id, answer.error) for answer in replica.took(do.AnswerFetch)] == [(2, ErrorCode.NONE)]


def test_purgatory_fetch_completed_by_follower_transition() -> None:
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.begin(3, 7)
    (answer,) = replica.took(do.AnswerFetch)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 7)


def test_resign_will_complete_fetch_purgatory() -> None:
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.step(on.ResignRequested())
    assert [answer.error for answer in replica.took(do.AnswerFetch)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("known", "is_answered"), [(-1, True), (0, True), (1, False), (2**62, False)])
def test_updated_high_watermark_completed_and_unchanged_deferred(known: int, is_answered: bool) -> None:
    """KIP-1166; the wire's default 2^63-1 means that the replica does not care."""
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    assert replica.core.high_watermark == 1
    assert (replica.fetch(3, 1, 6, high_watermark=known) is not None) == is_answered


def test_high_watermark_sent_in_fetch_request() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=4)
    (request,) = replica.sent(FetchRequest).values()
    assert request.high_watermark == 4


def test_replication_of_higher_partition_leader_epoch() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 1, 6), batch(1, 2, 7))
    assert replica.core.log_end_position == position(1, 6)


def test_invalid_memory_records() -> None:
    """The driver hands over only batches whose CRC holds; what it cut away never advances the log."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(1, 2, 6), high_watermark=5)
    assert (replica.core.log_end, replica.core.high_watermark) == (0, 0)


@pytest.mark.parametrize("voters", [1, 2, 3])
def test_update_high_watermark_quorum_size(voters: int) -> None:
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
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    replica.fetch(2, 0, 0)
    assert replica.core.high_watermark == 1


@pytest.mark.parametrize("reason", [on.FailureReason.TIMED_OUT, on.FailureReason.DISCONNECTED])
def test_follower_leader_rediscovery_after_request_timeout(reason: on.FailureReason) -> None:
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
    replica = Replica.follower(epoch=6, leader=2)
    request = replica.core.fetch_in_flight
    assert request is not None
    replica.pass_time(CONFIG.fetch_timeout_ms)
    replica.answer_fetch(batch(0, 1, 6), request=request, source=2, leader=2)
    assert replica.view == ("Prospective", 6, 2)
    assert replica.core.log_end == 0


def test_fetch_response_ignored_after_becoming_follower_of_different_leader() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    request = replica.core.fetch_in_flight
    assert request is not None
    replica.begin(3, 7)
    replica.answer_fetch(batch(0, 1, 6), request=request, source=2, leader=2, epoch=6)
    assert replica.view == ("Follower", 7, 3)
    assert replica.core.log_end == 0


# --- H. log starts --------------------------------------------------------------------------------------------------


def trimmed() -> Replica:
    replica = Replica.leader(epoch=6, log=LOG)
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(6)))
    return replica


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(3, 1), (0, 0), (6, 1), (8, 1)],
    ids=["less than log start", "at zero", "at log start with invalid epoch", "less than oldest"],
)
def test_fetch_request_that_needs_a_snapshot(offset: int, epoch: int) -> None:
    answer = trimmed().fetch(3, offset, epoch)
    assert answer is not None
    assert answer.snapshot_id == position(6, 3)


def test_fetch_request_at_log_start_offset_with_valid_epoch() -> None:
    answer = trimmed().fetch(3, 6, 3)
    assert answer is not None
    assert (answer.snapshot_id, answer.diverging) == (None, None)


def test_fetch_request_truncate_to_log_start() -> None:
    answer = trimmed().fetch(3, 8, 4)
    assert answer is not None
    assert answer.diverging == position(6, 3)


def test_truncate_below_high_watermark() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=9)
    with pytest.raises(InvariantViolation):
        replica.answer_fetch(diverging=position(3, 1))
