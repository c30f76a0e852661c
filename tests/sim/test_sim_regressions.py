"""Bugs that the simulator found, each as the shortest history that shows it."""

from __future__ import annotations

from raftkit.replica import Replica, batch, position
from raftkit.snapshots import receive_snapshot
from raftlake.raft.messages import VoteRequest


def test_a_candidate_claims_only_what_is_synced() -> None:
    """A follower had the newest record, not yet synced, when it was elected for it; it crashed, lost the record, came back as
    candidate of the same epoch and asked again. The voter had voted for it already, so it granted, and the new leader did
    not have a record that the other two had committed. What is claimed in an election must survive a crash.
    """
    replica = Replica.follower(epoch=5, leader=2, log=([(5, 0)], 10))
    replica.answer_fetch(batch(10, 11, 5), high_watermark=10)
    assert (replica.core.log_end, replica.core.flushed_end) == (11, 10)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=True)
    assert replica.role == "Candidate"
    assert [request.log_end for request in replica.sent(VoteRequest).values()] == [position(10, 5)] * 2


def test_a_candidate_claims_everything_once_it_is_synced() -> None:
    replica = Replica.follower(epoch=5, leader=2, log=([(5, 0)], 10))
    replica.answer_fetch(batch(10, 11, 5), high_watermark=10)
    replica.flush()
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=True)
    assert [request.log_end for request in replica.sent(VoteRequest).values()] == [position(11, 5)] * 2


def test_a_log_that_was_reset_learns_the_epoch_of_its_first_record() -> None:
    """A follower that retention had left behind began anew at offset 46, with epoch 5 before it, and got records of epoch
    5. Its epoch history stayed empty; when it led, it told a follower with the very same log to truncate committed records.
    """
    replica = Replica.follower(epoch=5, leader=2, log=([(3, 0)], 10))
    replica.answer_fetch(snapshot_id=position(46, 5), high_watermark=63)
    receive_snapshot(replica)
    replica.answer_fetch(batch(46, 60, 5), batch(60, 63, 5), high_watermark=63)
    replica.flush()
    assert replica.core.history.entries() == ((5, 46),)
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=True)
    replica.answer_votes(granted=True)
    assert replica.role == "Leader"
    replica.flush()
    answer = replica.fetch(3, 63, 5)
    assert answer is not None and answer.diverging is None


def test_a_log_that_was_cut_back_to_its_start_learns_the_epoch_of_its_first_record() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=([(5, 40)], 43), log_start=40)
    replica.answer_fetch(diverging=position(40, 5))
    assert replica.core.log_end == 40
    replica.answer_fetch(batch(40, 42, 5), high_watermark=40)
    assert replica.core.history.entries() == ((5, 40),)
