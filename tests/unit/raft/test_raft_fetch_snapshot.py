"""FetchSnapshot beyond Kafka's scenarios: failures, what is already here, and what a replica may start with."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, key, position
from raftkit.snapshots import answer_piece, snapshot_in_flight
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.fetching import SIGNS_OF_LIFE
from raftlake.raft.handlers import fetch_snapshot
from raftlake.raft.messages import FetchRequest, FetchResponse, FetchSnapshotRequest
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


# --- all of it is here, and waits for the disk ---

SIGN_MS = CONFIG.fetch_timeout_ms // SIGNS_OF_LIFE


def syncing() -> Replica:
    replica = downloading()
    answer_piece(replica, b"data", 4)
    assert replica.took(do.FinishSnapshot) == [do.FinishSnapshot(snapshot_id=position(50, 5))]
    assert replica.took(do.SendRequest) == []
    return replica


def ask(replica: Replica) -> FetchRequest:
    """The next sign of life is due."""
    replica.pass_time(SIGN_MS - 1)
    assert replica.actions == []
    replica.pass_time(1)
    assert set(replica.sent(FetchRequest)) == {2}
    return replica.sent(FetchRequest)[2]


def test_leader_and_follower_hear_of_each_other_while_a_snapshot_is_synced() -> None:
    """The sync took longer than a fetch timeout. The replica gave its leader up, and fetched the snapshot once more."""
    replica = syncing()
    for _ in range(5 * SIGNS_OF_LIFE):
        request = ask(replica)
        assert (request.fetch_offset, request.leader_epoch) == (0, 6)
        replica.answer_fetch(snapshot_id=position(50, 5))
        assert replica.actions == []
    assert replica.view == ("Follower", 6, 2)
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]
    # Behind it, and at once.
    assert replica.sent(FetchRequest)[2].fetch_offset == 50


def test_a_leader_that_does_not_answer_is_given_up_though_its_snapshot_is_synced() -> None:
    replica = syncing()
    assert replica.pass_until_role("Prospective") == CONFIG.fetch_timeout_ms


@pytest.mark.parametrize("way", ["records", "diverging", "moved", "newer snapshot"])
def test_what_the_leader_says_meanwhile_moves_no_log(way: str) -> None:
    replica = syncing()
    ask(replica)
    if way == "records":
        replica.answer_fetch(batch(0, 3, 5), high_watermark=3)
    elif way == "diverging":
        replica.answer_fetch(diverging=position(0, 3))
    elif way == "moved":
        replica.answer_fetch(error=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, snapshot_id=position(60, 5))
    else:
        replica.answer_fetch(snapshot_id=position(60, 5))
    assert replica.actions == []
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]


def test_a_sign_of_life_under_way_does_not_hold_up_what_is_behind_the_snapshot() -> None:
    replica = syncing()
    sign = ask(replica)
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.sent(FetchRequest)[2].fetch_offset == 50
    replica.respond(2, sign, FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(2), leader_epoch=Epoch(6)))
    assert replica.actions == []


def test_where_the_sync_fails_the_snapshot_is_fetched_anew_after_the_backoff() -> None:
    replica = syncing()
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=False))
    assert replica.actions == []
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}
    replica.answer_fetch(snapshot_id=position(50, 5))
    assert snapshot_in_flight(replica).position == 0


@pytest.mark.parametrize("is_intact", [False, True])
def test_the_end_of_an_earlier_download_does_not_end_the_one_under_way(is_intact: bool) -> None:
    """The sync of the first one failed while its second download was under way. The next piece stopped the node."""
    replica = syncing()
    replica.begin(3, 7)
    replica.answer_fetch(snapshot_id=position(50, 5))
    request = snapshot_in_flight(replica)
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=is_intact))
    assert bool(replica.took(do.ResetLog)) is is_intact
    answer_piece(replica, b"data", 4, request=request, source=3)
    assert bool(replica.took(do.FinishSnapshot)) is not is_intact
    replica.step(on.SnapshotReceived(snapshot_id=position(50, 5), is_intact=True))
    assert replica.core.log_start == 50
