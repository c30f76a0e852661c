"""Appends, syncs and retention: who gets which offsets, and when they count."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica, batch, position
from raftlake.errors import InvariantViolation
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.types import Offset


def test_offsets_are_given_out_in_order() -> None:
    replica = Replica.leader(epoch=6)
    replica.append(3, 2)
    assert replica.took(do.AppendRecords) == [
        do.AppendRecords(base_offset=Offset(1), end_offset=Offset(6), epoch=6, payload="payload")  # type: ignore[arg-type]
    ]
    replica.append(1)
    assert replica.took(do.AppendRecords)[0].base_offset == 6
    assert replica.core.log_end == 7


@pytest.mark.parametrize("role", ["Unattached", "Follower", "Prospective", "Candidate", "Resigned"])
def test_only_a_leader_appends(role: str) -> None:
    replica = Replica.in_role(role)
    with pytest.raises(InvariantViolation, match=f"append requested of a {role}"):
        replica.append(1)


@pytest.mark.parametrize("record_counts", [(), (0,), (3, 0), (-1,)])
def test_an_append_takes_offsets(record_counts: tuple[int, ...]) -> None:
    with pytest.raises(InvariantViolation, match="append of"):
        Replica.leader().append(*record_counts)


def test_a_new_leader_starts_with_its_leader_change_record() -> None:
    """KIP-595 "Vote Response Handling" 3; the epoch starts at the log end, whatever is committed."""
    replica = Replica.leader(epoch=6, log=(((1, 0), (3, 5)), 9), flushed=False)
    (record,) = replica.took(do.AppendLeaderChange)
    assert (record.offset, record.epoch, record.leader_id, record.voters, record.granting_voters) == (
        9,
        6,
        1,
        (1, 2, 3),
        (1, 2),
    )
    core = replica.core
    assert (core.epoch_start_offset, core.log_end, core.flushed_end) == (9, 10, 9)
    assert core.history.entries()[-1] == (6, 9)


def test_the_election_is_saved_before_the_first_record() -> None:
    replica = Replica.leader(flushed=False)
    kinds = [type(action) for action in replica.actions]
    assert kinds == [do.SaveElectionState, do.ReportRole, do.AppendLeaderChange]


def test_a_sync_beyond_the_log_end_is_our_bug() -> None:
    replica = Replica.leader()
    with pytest.raises(InvariantViolation, match="synced up to 9"):
        replica.flush(9)


def test_an_older_sync_changes_nothing() -> None:
    replica = Replica.leader()
    replica.append(4)
    replica.flush(4)
    replica.flush(3)
    assert replica.core.flushed_end == 4
    assert replica.actions == []


def test_a_leader_that_is_deposed_before_its_sync_waits_for_it() -> None:
    replica = Replica.leader(epoch=6)
    replica.append(2)
    replica.begin(2, 7)
    assert replica.core.fetch_in_flight is None
    replica.flush()
    assert replica.core.fetch_in_flight is not None
    assert replica.core.fetch_in_flight.fetch_offset == 3


def test_retention_moves_the_log_start() -> None:
    replica = Replica.leader(epoch=6, log=(((1, 0), (3, 5)), 9))
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(7)))
    assert replica.core.log_start == 7
    assert replica.core.history.entries() == ((3, 7), (6, 9))
    answer = replica.fetch(3, 2, 1)
    assert answer is not None
    assert answer.snapshot_id == position(7, 3)
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(5)))
    assert replica.core.log_start == 7


def test_retention_of_everything_keeps_the_last_epoch() -> None:
    replica = Replica.leader(epoch=6)
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(1)))
    assert replica.core.log_end_position == position(1, 6)
    assert replica.fetch(3, 1, 6) is None
    replica.append(1)
    assert replica.core.history.last_epoch == 6


def test_a_log_that_retention_emptied_takes_the_next_epoch() -> None:
    replica = Replica.leader(epoch=6)
    replica.commit_epoch_start()
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(1)))
    replica.begin(2, 7)
    replica.answer_fetch(batch(1, 2, 7))
    assert replica.core.history.entries() == ((7, 1),)
    assert replica.core.history.epoch_before(Offset(1)) == 6


def test_retention_may_overtake_a_slow_disk() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 4, 6), batch(4, 6, 6), high_watermark=5)
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(4)))
    assert (replica.core.log_start, replica.core.flushed_end, replica.core.fetch_in_flight) == (4, 4, None)
    replica.flush()
    assert replica.core.fetch_in_flight is not None


def test_a_follower_asks_for_more_where_retention_overtakes_a_slow_disk_with_all_of_the_log() -> None:
    """Simulator seed 176: the report of the sync told nothing new, and the follower never asked any leader again."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(batch(0, 4, 6), high_watermark=4)
    assert replica.core.fetch_in_flight is None
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(4)))
    assert replica.core.fetch_in_flight is not None and replica.core.fetch_in_flight.fetch_offset == 4
    replica.flush()
    assert replica.actions == []


def test_a_leader_counts_itself_where_retention_overtakes_its_slow_disk() -> None:
    replica = Replica.leader(epoch=6)
    replica.append(2)
    for voter in (2, 3):
        replica.fetch(voter, 3, 6)
    assert (replica.core.high_watermark, replica.core.flushed_end) == (3, 1)
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(3)))
    replica.append(1)
    replica.fetch(2, 4, 6)
    assert (replica.core.high_watermark, replica.core.flushed_end) == (3, 3)
    replica.flush()
    assert replica.core.high_watermark == 4


def test_nothing_uncommitted_is_deleted() -> None:
    replica = Replica.leader(epoch=6, log=(((1, 0),), 9))
    with pytest.raises(InvariantViolation, match="above high watermark 0"):
        replica.step(on.LogStartAdvanced(log_start_offset=Offset(3)))
