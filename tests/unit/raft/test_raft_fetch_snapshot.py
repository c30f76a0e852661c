"""FetchSnapshot beyond Kafka's scenarios: failures, what is already here, and what a replica may start with."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, key, position
from raftkit.snapshots import answer_piece, snapshot_in_flight
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.handlers import fetch_snapshot
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.types import Epoch, NodeId, Offset

LOG = (((1, 0), (3, 3), (5, 6)), 9)


def downloading() -> Replica:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(snapshot_id=position(50, 5))
    return replica


def test_a_piece_that_did_not_come_is_asked_for_again_after_the_backoff() -> None:
    replica = downloading()
    answer_piece(replica, b"12", 5)
    replica.fail(2, snapshot_in_flight(replica))
    assert replica.took(do.SendRequest) == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert request.position == 2


def test_after_two_failures_another_voter_is_asked_who_leads() -> None:
    replica = downloading()
    for _ in range(2):
        replica.fail(2, snapshot_in_flight(replica))
        replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {3}


def test_a_snapshot_that_is_already_here_is_not_fetched_again() -> None:
    """A crash came between the fetched snapshot and its loading elsewhere; the log alone begins anew."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG, snapshot=(6, 3))
    replica.answer_fetch(snapshot_id=position(6, 3))
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(6, 3))]
    assert replica.sent(FetchSnapshotRequest) == {}


def test_a_second_answer_to_the_same_piece_is_ignored() -> None:
    replica = downloading()
    request = snapshot_in_flight(replica)
    answer_piece(replica, b"12", 5)
    answer_piece(replica, b"12", 5, request=request, source=2)
    assert replica.actions == []


def test_a_snapshot_below_the_high_watermark_is_kept_but_not_loaded() -> None:
    """The log went on by itself meanwhile."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=8)
    replica.step(on.SnapshotReceived(snapshot_id=position(7, 5), is_intact=True))
    assert replica.took(do.ResetLog) == []


def test_an_older_snapshot_of_our_own_is_not_named_instead_of_a_newer_one() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    replica.commit_epoch_start()
    for offset in (8, 7):
        replica.step(on.SnapshotTaken(snapshot_id=replica.core.snapshot_at(Offset(offset))))
    assert replica.core.snapshot_id == position(8, 5)


@pytest.mark.parametrize("replica_id", [-1, 1])
def test_nobody_fetches_snapshots_from_itself_or_without_an_id(replica_id: int) -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    request = FetchSnapshotRequest(replica=key(replica_id), leader_epoch=Epoch(6), snapshot_id=position(6, 3), position=0)
    replica.step(on.RequestReceived(request_id=1, request=request))
    assert [answer.error for answer in replica.took(do.AnswerFetchSnapshot)] == [ErrorCode.INVALID_REQUEST]


def test_a_fetched_snapshot_makes_begin_quorum_epoch_superfluous() -> None:
    replica = Replica.leader(epoch=6, log=LOG)
    fetch_snapshot.on_fetch_snapshot_request(
        replica.core,
        1,
        FetchSnapshotRequest(replica=key(3), leader_epoch=Epoch(6), snapshot_id=position(6, 3), position=0),
        replica.now_ms,
    )
    assert replica.core.role.voters[NodeId(3)].endorsed  # type: ignore[union-attr]


@pytest.mark.parametrize("snapshot", [(10, 5), (-1, 1)])
def test_a_replica_does_not_start_with_a_snapshot_outside_of_its_log(snapshot: tuple[int, int]) -> None:
    with pytest.raises(InvariantViolation, match="outside of the log"):
        Replica(epoch=6, leader=2, log=LOG, snapshot=snapshot)


def test_the_snapshot_knows_the_epoch_before_a_log_start_where_another_epoch_begins() -> None:
    replica = Replica.leader(epoch=7, log=(((6, 50),), 52), log_start=50, snapshot=(50, 5))
    replica.flush()
    assert replica.fetch(3, 50, 5).snapshot_id is None  # type: ignore[union-attr]
    assert replica.fetch(3, 50, 6).snapshot_id == position(50, 5)  # type: ignore[union-attr]


@pytest.mark.parametrize(("data", "size"), [(b"345", 6), (b"345", 4), (b"3456", 5), (b"3", 2)])
def test_a_second_piece_of_another_snapshot_than_the_first_ends_the_download(data: bytes, size: int) -> None:
    """It tells another size, or goes beyond the size that was told."""
    replica = downloading()
    answer_piece(replica, b"12", 5)
    answer_piece(replica, data, size)
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(50, 5))]
    assert replica.took(do.WriteSnapshot) == [] and replica.took(do.FinishSnapshot) == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}
