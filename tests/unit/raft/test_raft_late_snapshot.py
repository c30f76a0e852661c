"""A snapshot that becomes durable late: under another leader, when the log may have got to it, or past it, by itself."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position, voter_set
from raftkit.snapshots import answer_piece, receive_snapshot
from raftlake.errors import InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchedBatch, FetchRequest, VoteRequest
from raftlake.raft.types import Epoch, Offset

#: Where the log ends when leader 2 names its snapshot, and where that snapshot ends.
BEFORE, SNAPSHOT = 9, 12
LOG = (((1, 0), (3, 3), (5, 6)), BEFORE)


def waiting() -> Replica:
    """Voter 3 leads epoch 7, while the snapshot that came from leader 2 is still being synced."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(snapshot_id=position(SNAPSHOT, 5))
    answer_piece(replica, b"data", 4)
    assert replica.took(do.FinishSnapshot) == [do.FinishSnapshot(snapshot_id=position(SNAPSHOT, 5))]
    replica.begin(3, 7)
    assert replica.took(do.AbandonSnapshot) == []
    return replica


def catch_up(replica: Replica, end: int, high_watermark: int, *, epoch: int = 5, flushed: bool = True) -> None:
    """Leader 3 still has the records; they are synced, and the next Fetch tells it so."""
    replica.answer_fetch(batch(BEFORE, end, epoch), high_watermark=high_watermark)
    if flushed:
        replica.flush()
        (told,) = replica.sent(FetchRequest).values()
        assert told.fetch_offset == end


def arrive(replica: Replica) -> None:
    replica.step(on.SnapshotReceived(snapshot_id=position(SNAPSHOT, 5), is_intact=True))


@pytest.mark.parametrize("high_watermark", [-1, 9, SNAPSHOT - 1, SNAPSHOT, SNAPSHOT + 1, SNAPSHOT + 4])
@pytest.mark.parametrize("end", [SNAPSHOT, SNAPSHOT + 1, SNAPSHOT + 4])
def test_a_log_that_has_got_to_the_snapshot_keeps_all_that_the_leader_was_told_of(end: int, high_watermark: int) -> None:
    """Leader 3 may have counted these records: gone from here, they could be gone from the majority."""
    replica = waiting()
    catch_up(replica, end, high_watermark)
    fetch, generation = replica.core.fetch_in_flight, replica.core.log_generation
    arrive(replica)
    assert replica.actions == []
    core = replica.core
    assert (core.log_start, core.log_end, core.flushed_end, core.log_generation) == (0, end, end, generation)
    assert (core.high_watermark, core.fetch_in_flight) == (max(min(high_watermark, end), 0), fetch)
    assert core.history.entries() == ((1, 0), (3, 3), (5, 6))


@pytest.mark.parametrize("end", [SNAPSHOT, SNAPSHOT + 4])
def test_what_is_not_synced_yet_is_kept_too(end: int) -> None:
    replica = waiting()
    catch_up(replica, end, 9, flushed=False)
    arrive(replica)
    assert replica.actions == [] and replica.core.flushed_end == BEFORE
    replica.flush()
    (told,) = replica.sent(FetchRequest).values()
    assert told.fetch_offset == end


@pytest.mark.parametrize(("end", "epoch"), [(SNAPSHOT - 1, 5), (SNAPSHOT, 6), (SNAPSHOT + 4, 6)])
def test_a_log_that_does_not_hold_what_the_snapshot_stands_for_begins_anew_behind_it(end: int, epoch: int) -> None:
    """It is one record short of it, or has another record before its end."""
    replica = waiting()
    catch_up(replica, end, 9, epoch=epoch)
    arrive(replica)
    start = position(SNAPSHOT, 5)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=start)]
    assert replica.took(do.AdvanceHighWatermark) == [do.AdvanceHighWatermark(high_watermark=start.offset)]
    core = replica.core
    assert (core.log_start, core.log_end, core.flushed_end, core.high_watermark) == (SNAPSHOT,) * 4
    assert core.snapshot_id == start and core.history.last_epoch == 5
    (fetch,) = replica.sent(FetchRequest).values()
    assert (fetch.fetch_offset, fetch.last_fetched_epoch, fetch.leader_epoch) == (SNAPSHOT, 5, 7)


def test_voters_behind_a_late_snapshot_stay() -> None:
    replica = waiting()
    four = FetchedBatch(
        base_offset=Offset(SNAPSHOT),
        end_offset=Offset(SNAPSHOT + 1),
        epoch=Epoch(5),
        payload=None,
        voters=voter_set((1, 2, 3, 4)),
    )
    replica.answer_fetch(batch(BEFORE, SNAPSHOT, 5), four, high_watermark=9)
    arrive(replica)
    assert replica.core.voters.ids == (1, 2, 3, 4) and replica.core.voter_history.latest_offset == SNAPSHOT


def test_a_snapshot_that_the_leader_of_now_named_is_loaded() -> None:
    """The log was not written to meanwhile, and that leader cannot tell it how to go on from where it ends."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(snapshot_id=position(SNAPSHOT, 5))
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(SNAPSHOT, 5))]
    assert replica.core.high_watermark == SNAPSHOT


HIGH_WATERMARK = 7


def test_a_snapshot_named_below_the_high_watermark_would_drop_what_is_committed() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=HIGH_WATERMARK)
    with pytest.raises(InvariantViolation, match="names the snapshot at 6, below the high watermark 7"):
        replica.answer_fetch(snapshot_id=position(HIGH_WATERMARK - 1, 5))


@pytest.mark.parametrize(("above", "is_loaded"), [(0, False), (1, True), (2, True)])
def test_a_snapshot_that_the_leader_named_is_loaded_from_one_record_above_the_high_watermark_on(
    above: int, is_loaded: bool
) -> None:
    """At the high watermark itself it brings nothing that is not here."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=HIGH_WATERMARK)
    named = position(HIGH_WATERMARK + above, 6 if above == 2 else 5)
    replica.answer_fetch(snapshot_id=named)
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == ([do.ResetLog(start=named)] if is_loaded else [])
    core = replica.core
    assert (core.log_start, core.log_end) == ((named.offset, named.offset) if is_loaded else (0, BEFORE))
    assert core.high_watermark == HIGH_WATERMARK + above and core.role.download is None  # type: ignore[union-attr]
    (fetch,) = replica.sent(FetchRequest).values()
    assert fetch.fetch_offset == core.log_end


@pytest.mark.parametrize("below", [1, 2, 10])
def test_a_late_snapshot_below_the_log_start_is_of_the_past(below: int) -> None:
    """A later snapshot was loaded meanwhile, so the log does not reach down to where the late one ends."""
    replica = Replica.follower(epoch=6, leader=2, log=(((5, 50),), 52), log_start=50, snapshot=(50, 5))
    replica.step(on.SnapshotReceived(snapshot_id=position(50 - below, 5), is_intact=True))
    assert replica.actions == []
    assert (replica.core.log_start, replica.core.log_end) == (50, 52)


def test_a_late_snapshot_of_an_epoch_that_the_log_has_not_replaces_what_conflicts() -> None:
    """The log ends exactly where the leader's snapshot does, behind another record."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(snapshot_id=position(BEFORE, 6))
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(BEFORE, 6))]


@pytest.mark.parametrize("named", [SNAPSHOT - 1, SNAPSHOT, SNAPSHOT + 1])
def test_a_snapshot_of_another_leader_ends_a_download_only_where_it_is_loaded(named: int) -> None:
    """Leader 3 has named its own snapshot meanwhile: where the late one moves the log, that download is of no use any more."""
    replica = waiting()
    replica.answer_fetch(snapshot_id=position(named, 6))
    answer_piece(replica, b"12", 5)
    arrive(replica)
    assert replica.took(do.AbandonSnapshot) == [do.AbandonSnapshot(snapshot_id=position(named, 6))]
    assert replica.core.log_start == SNAPSHOT and set(replica.sent(FetchRequest)) == {3}


@pytest.mark.parametrize("voters", [None, (2, 3), (2, 3, 4), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("role", ["Prospective", "Candidate", "Leader"])
def test_a_campaign_goes_on_with_the_log_and_the_voters_that_it_began_with(role: str, voters: tuple[int, ...] | None) -> None:
    """The leader died while its snapshot was being synced; the snapshot may say that this replica is no voter any more."""
    replica = waiting()
    replica.pass_until_role("Prospective")
    if role != "Prospective":
        replica.answer_votes(granted=True)
    if role == "Leader":
        replica.answer_votes(granted=True)
    told = None if voters is None else voter_set(voters)
    replica.step(on.SnapshotReceived(snapshot_id=position(SNAPSHOT, 5), is_intact=True, voters=told))
    assert replica.role == role and replica.took(do.ResetLog) == []
    assert replica.core.voters.ids == (1, 2, 3)
    if role == "Leader":
        return
    requests = [replica.vote_in_flight(voter) for voter in (2, 3)]
    assert all(request.log_end == position(BEFORE, 5) for request in requests)
    replica.fail(2, requests[0])
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(VoteRequest)) == {2}, "asked again, as a voter that it is"
    replica.answer_vote(3, granted=True)
    assert replica.role == ("Candidate" if role == "Prospective" else "Leader")


@pytest.mark.parametrize("role", ["Unattached", "Resigned"])
def test_a_replica_that_waits_for_a_leader_takes_it_with_its_voters(role: str) -> None:
    replica = Replica.in_role(role, epoch=6, log=LOG)
    end = replica.core.log_end + 3
    replica.step(on.SnapshotReceived(snapshot_id=position(end, 6), is_intact=True, voters=voter_set((2, 3, 4))))
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(end, 6))]
    assert replica.role == role and replica.core.voters.ids == (2, 3, 4) and not replica.core.is_voter
    replica.pass_time(2 * CONFIG.election_timeout_ms)
    assert replica.role in ("Unattached", "Resigned")
