"""Fetch at the follower: what is appended, cut and believed, and when the next fetch leaves."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftkit.snapshots import receive_snapshot
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import EPOCH_MAX, NodeId, Offset

LOG = (((1, 0), (3, 3), (5, 6)), 9)


def follower(**kwargs: object) -> Replica:
    """Node 1, log end 9@5, fetching from node 2 in epoch 6."""
    return Replica.follower(epoch=6, log=LOG, **kwargs)


def in_flight(replica: Replica) -> FetchRequest:
    request = replica.core.fetch_in_flight
    assert request is not None
    return request


def log_end(replica: Replica) -> tuple[int, int]:
    return replica.core.log_end, replica.core.history.last_epoch


# --- the request ----------------------------------------------------------------------------------------------------


def test_a_fetch_tells_epoch_position_and_high_watermark() -> None:
    """testHighWatermarkSentInFetchRequest."""
    replica = follower()
    replica.answer_fetch(high_watermark=7)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.leader_epoch, request.fetch_offset, request.last_fetched_epoch) == (6, 9, 5)
    assert (request.high_watermark, request.replica.id) == (7, 1)


def test_a_leader_that_has_said_nothing_yet_is_asked_what_is_committed() -> None:
    """All that is committed may stand below the start of our log: a leader that thought so would not answer."""
    replica = Replica.follower(epoch=6, log=(((5, 9),), 9), log_start=9)
    assert [request.high_watermark for request in replica.sent(FetchRequest).values()] == [-1]
    replica.answer_fetch(high_watermark=9)
    assert replica.took(do.AdvanceHighWatermark) == [do.AdvanceHighWatermark(high_watermark=Offset(9))]
    assert [request.high_watermark for request in replica.sent(FetchRequest).values()] == [9]
    replica.answer_fetch(high_watermark=9)
    assert replica.took(do.AdvanceHighWatermark) == []


def test_an_empty_log_fetches_at_zero_of_epoch_zero() -> None:
    """Never -1, which Kafka refuses."""
    (request,) = Replica.follower(epoch=6).sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (0, 0)


def test_one_fetch_at_a_time() -> None:
    replica = follower()
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert replica.sent(FetchRequest) == {}


# --- records --------------------------------------------------------------------------------------------------------


def test_records_are_appended_synced_and_only_then_acknowledged() -> None:
    """testFollowerReplication; Promise 1: the next fetch says that everything below its offset is on disk."""
    replica = follower()
    replica.answer_fetch(batch(9, 10, 6), batch(10, 14, 6), high_watermark=12)
    assert [type(action) for action in replica.actions] == [do.AppendFetched, do.AdvanceHighWatermark]
    assert replica.core.high_watermark == 12
    replica.flush(13)
    assert replica.sent(FetchRequest) == {}
    replica.flush(14)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch, request.high_watermark) == (14, 6, 12)


def test_an_empty_answer_moves_the_high_watermark_and_asks_on() -> None:
    """testEmptyRecordSetInFetchResponse; KAFKA-15510: an empty fetch keeps the last fetched epoch."""
    replica = follower()
    replica.answer_fetch(high_watermark=5)
    assert replica.took(do.AdvanceHighWatermark) == [do.AdvanceHighWatermark(high_watermark=Offset(5))]
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (9, 5)


def test_the_high_watermark_is_at_most_the_log_end_and_never_goes_back() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=99)
    assert replica.core.high_watermark == 9
    replica.answer_fetch(high_watermark=4)
    assert replica.core.high_watermark == 9
    assert replica.took(do.AdvanceHighWatermark) == []


@pytest.mark.parametrize(
    ("batches", "end"),
    [
        ([batch(9, 10, 6), batch(10, 12, 7)], (10, 6)),  # testReplicationOfHigherPartitionLeaderEpoch
        ([batch(9, 10, 7)], (9, 5)),
        ([batch(9, 10, 6), batch(11, 12, 6)], (10, 6)),  # a gap
        ([batch(10, 12, 6)], (9, 5)),
        ([batch(8, 12, 6)], (9, 5)),
        ([batch(9, 10, 4)], (9, 5)),  # epochs go back
        ([batch(9, 10, 6), batch(10, 12, 5)], (10, 6)),
        ([batch(9, 9, 6)], (9, 5)),  # no offsets
        ([batch(9, 8, 6)], (9, 5)),
    ],
)
def test_batches_are_cut_at_the_first_that_cannot_be(batches: list, end: tuple[int, int]) -> None:  # type: ignore[type-arg]
    """KAFKA-18723, testInvalidMemoryRecords: cut off, never a crash."""
    replica = follower()
    replica.answer_fetch(*batches, high_watermark=99)
    assert log_end(replica) == end
    assert replica.core.high_watermark == end[0], "only what we have is committed here"
    appended = replica.took(do.AppendFetched)
    assert [one.batches for one in appended] == ([tuple(batches[:1])] if end == (10, 6) else [])


def test_a_leader_that_sends_nothing_usable_is_not_asked_in_a_tight_loop() -> None:
    replica = follower()
    replica.answer_fetch(batch(20, 21, 6))
    assert replica.sent(FetchRequest) == {}
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_epoch_zero_is_no_record() -> None:
    replica = Replica.follower(epoch=6)
    replica.answer_fetch(batch(0, 1, 0))
    assert replica.core.log_end == 0


# --- divergence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        ((4, 3), (4, 3)),  # testFollowerLogReconciliation: within an epoch of ours
        ((8, 4), (6, 3)),  # its epoch 4 is not ours: our largest epoch below ends at 6
        ((99, 5), None),
        ((3, 1), (3, 1)),
        ((7, 3), (6, 3)),  # its epoch 3 is longer than ours
        ((2, 2), (3, 1)),
        ((0, 0), (0, 0)),
    ],
)
def test_the_log_is_cut_where_it_may_have_parted(diverging: tuple[int, int], end: tuple[int, int] | None) -> None:
    replica = follower()
    replica.answer_fetch(diverging=position(*diverging))
    if end is None:
        assert log_end(replica) == (9, 5)
        assert replica.took(do.TruncateTo) == []
        return
    assert log_end(replica) == end
    assert replica.took(do.TruncateTo) == [do.TruncateTo(end_offset=Offset(end[0]))]
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == end
    assert replica.core.log_generation == 1


def test_divergence_is_taken_in_before_the_high_watermark() -> None:
    """KAFKA-14704: else our uncommitted records would become visible."""
    replica = follower()
    replica.answer_fetch(diverging=position(4, 3), high_watermark=9)
    assert log_end(replica) == (4, 3)
    assert replica.core.high_watermark == 0


def test_nothing_committed_is_ever_cut() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=5)
    with pytest.raises(InvariantViolation, match="below the high watermark 5"):
        replica.answer_fetch(diverging=position(4, 3))
    assert log_end(replica) == (9, 5)


def test_a_divergence_that_cuts_nothing_is_not_asked_for_in_a_tight_loop() -> None:
    replica = follower()
    replica.answer_fetch(diverging=position(9, 5))
    assert replica.actions == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_a_sync_from_before_a_truncation_says_nothing() -> None:
    """etcd's async_storage_writes_append_aba_race: the end offset may be the same, the bytes are others."""
    replica = follower()
    replica.answer_fetch(batch(9, 12, 6))
    replica.begin(3, 7)
    old_generation = replica.core.log_generation
    replica.flush(12)
    replica.answer_fetch(diverging=position(9, 5), source=3)
    assert replica.core.flushed_end == 9
    replica.answer_fetch(batch(9, 12, 7), source=3)
    replica.flush(12, generation=old_generation)
    assert replica.core.flushed_end == 9
    assert replica.sent(FetchRequest) == {}
    replica.flush(12)
    assert set(replica.sent(FetchRequest)) == {3}


def test_an_unsynced_tail_is_cut_without_waiting_for_its_sync() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    replica.append(5)
    replica.begin(2, 7)
    assert replica.sent(FetchRequest) == {}, "an unsynced log acknowledges nothing"
    replica.flush(15)
    assert set(replica.sent(FetchRequest)) == {2}


# --- a leader whose log begins later --------------------------------------------------------------------------------


def test_a_log_that_ends_before_the_leaders_begins_anew() -> None:
    replica = follower()
    replica.answer_fetch(snapshot_id=position(50, 5))
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]
    core = replica.core
    assert (core.log_start, core.log_end, core.flushed_end, core.high_watermark) == (50, 50, 50, 50)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (50, 5)


def test_a_log_that_parted_before_the_leaders_start_begins_anew_too() -> None:
    replica = follower()
    replica.answer_fetch(snapshot_id=position(7, 6))
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(7, 6))]
    assert log_end(replica) == (7, 6)


def test_nothing_committed_is_dropped_for_a_leaders_start() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=8)
    with pytest.raises(InvariantViolation, match="below the high watermark 8"):
        replica.answer_fetch(snapshot_id=position(7, 6))


@pytest.mark.parametrize("start", [(-1, 5), (50, -1), (50, 7), (9, 5)])
def test_a_start_that_cannot_be_changes_nothing(start: tuple[int, int]) -> None:
    replica = follower()
    replica.answer_fetch(snapshot_id=position(*start))
    assert log_end(replica) == (9, 5)
    assert replica.took(do.SendRequest) == []


# --- whom to believe ------------------------------------------------------------------------------------------------


def test_an_answer_to_another_request_is_ignored() -> None:
    replica = follower()
    stale = in_flight(replica)
    replica.answer_fetch(batch(9, 10, 6))
    replica.flush()
    replica.answer_fetch(batch(9, 10, 6), request=stale)
    assert replica.actions == []
    assert replica.core.log_end == 10


def test_an_answer_from_another_node_is_ignored() -> None:
    replica = follower()
    replica.answer_fetch(batch(9, 10, 6), source=3)
    assert replica.actions == []


@pytest.mark.parametrize("leader", [3, -1])
def test_an_answer_that_names_another_leader_is_ignored(leader: int) -> None:
    """Two leaders in one epoch cannot be; whoever says so is not followed."""
    replica = follower()
    replica.answer_fetch(batch(9, 10, 6), leader=leader)
    assert replica.view == ("Follower", 6, 2)
    assert replica.core.log_end == 9


def test_an_answer_that_comes_after_the_role_changed_is_ignored() -> None:
    """testFetchResponseIgnoredAfterBecomingProspective / FollowerOfDifferentLeader."""
    replica = follower()
    request = in_flight(replica)
    replica.pass_time(CONFIG.fetch_timeout_ms)
    assert replica.role == "Prospective"
    replica.respond(2, request, _records(replica, leader=2))
    assert replica.view == ("Prospective", 6, 2)
    replica = follower()
    request = in_flight(replica)
    replica.begin(3, 7)
    replica.respond(2, request, _records(replica, leader=2, epoch=6))
    assert replica.core.log_end == 9


def _records(replica: Replica, *, leader: int, epoch: int = 6):  # type: ignore[no-untyped-def]
    from raftlake.raft.messages import FetchResponse
    from raftlake.raft.types import Epoch

    return FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(leader), leader_epoch=Epoch(epoch), batches=(batch(9, 10, 6),))


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_newer_leader_is_followed_and_asked_at_once(error: ErrorCode) -> None:
    """KIP-595: "If the response contains FENCED_LEADER_EPOCH error code, check the leaderId from the response"."""
    replica = follower()
    replica.answer_fetch(error=error, epoch=7, leader=3)
    assert replica.view == ("Follower", 7, 3)
    assert set(replica.sent(FetchRequest)) == {3}


def test_a_newer_epoch_without_a_leader_is_accepted_and_the_others_asked() -> None:
    """KIP-595: "Otherwise, retry to the Fetch request again against one of the remaining voters"."""
    replica = follower()
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=7, leader=-1)
    assert replica.view == ("Unattached", 7, -1)
    asked = set(replica.sent(FetchRequest))
    replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
    replica.pass_time(CONFIG.retry_backoff_ms)
    asked |= set(replica.sent(FetchRequest))
    assert asked == {2, 3}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
def test_any_other_error_is_asked_again_after_the_backoff(error: ErrorCode) -> None:
    """Never at once (a Java peer would be flooded), and it is no sign that the leader lives."""
    replica = follower()
    deadline = replica.core.role.fetch_deadline_ms  # type: ignore[union-attr]
    replica.answer_fetch(error=error, leader=-1 if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None)
    assert replica.sent(FetchRequest) == {}
    assert replica.core.role.fetch_deadline_ms == deadline  # type: ignore[union-attr]
    assert not replica.core.role.has_fetched  # type: ignore[union-attr]
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_records_that_come_with_a_newer_epoch_are_fetched_again_in_it() -> None:
    """Only leader and epoch count: the answer is to a request of the old epoch, and the next fetch is already on its way."""
    replica = follower()
    replica.answer_fetch(batch(9, 10, 6), epoch=7, leader=2, high_watermark=9)
    assert replica.view == ("Follower", 7, 2)
    assert (replica.core.log_end, replica.core.high_watermark) == (9, 0)
    assert set(replica.sent(FetchRequest)) == {2}
    assert in_flight(replica).leader_epoch == 7


def test_an_old_epoch_in_the_answer_is_ignored() -> None:
    replica = follower()
    replica.answer_fetch(batch(9, 10, 6), epoch=5)
    assert replica.core.log_end == 9


@pytest.mark.parametrize("leader", [1, 9])
def test_ourselves_or_a_stranger_as_leader_are_not_followed(leader: int) -> None:
    replica = follower()
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=8, leader=leader)
    assert replica.core.leader_id in (2, -1)


def test_an_epoch_beyond_the_wire_is_not_believed() -> None:
    replica = follower()
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, epoch=EPOCH_MAX + 1, leader=3)
    assert replica.core.epoch == 6
