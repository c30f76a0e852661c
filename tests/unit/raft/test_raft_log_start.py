"""The log start of a partition: a leader tells it with its answers, and followers take it over."""

from __future__ import annotations

import pytest

from raftkit.replica import Replica, batch, position
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Offset

#: Records 0..2 of epoch 1, 3..5 of epoch 3, 6..8 of epoch 5; a leader of epoch 6 adds its LeaderChange at 9.
LOG = (((1, 0), (3, 3), (5, 6)), 9)


def follower(**kwargs: object) -> Replica:
    """Node 1, log end 9, fetching from node 2 in epoch 6."""
    return Replica.follower(epoch=6, log=LOG, **kwargs)


def leader(**kwargs: object) -> Replica:
    """Node 1, all of whose log from 0 to 10 is committed."""
    replica = Replica.leader(epoch=6, log=LOG, **kwargs)
    replica.commit_epoch_start()
    return replica


def adopted(replica: Replica) -> list[int]:
    return [action.log_start for action in replica.took(do.AdoptLogStart)]


def trim(replica: Replica, log_start: int) -> list[int]:
    """Retention of the replica. Which other replicas are answered."""
    replica.step(on.LogStartAdvanced(log_start_offset=Offset(log_start)))
    return [answer.replica_id for answer in replica.took(do.AnswerFetch)]


# --- the follower ---------------------------------------------------------------------------------------------------------


def test_a_follower_takes_over_the_leaders_log_start() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=8, log_start=5)
    assert adopted(replica) == [5]
    assert (replica.core.log_start, replica.core.shown_log_start) == (0, 5)
    (request,) = replica.sent(FetchRequest).values()
    assert request.log_start_offset == 5


def test_it_goes_no_further_than_what_is_committed_here() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=6, log_start=8)
    assert adopted(replica) == [6]
    replica.answer_fetch(high_watermark=9, log_start=8)
    assert adopted(replica) == [8]


def test_the_high_watermark_of_the_same_answer_counts_and_comes_first() -> None:
    replica = follower()
    actions = replica.answer_fetch(batch(9, 12, 6), high_watermark=11, log_start=10)
    kinds = [type(action) for action in actions]
    assert kinds.index(do.AppendFetched) < kinds.index(do.AdvanceHighWatermark) < kinds.index(do.AdoptLogStart)
    assert adopted(replica) == [10]


def test_it_never_goes_back() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=9, log_start=5)
    for told in (4, 5, 0, -1):
        replica.answer_fetch(high_watermark=9, log_start=told)
        assert adopted(replica) == []
    assert replica.core.shown_log_start == 5


def test_what_its_own_retention_has_deleted_is_no_news() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=9)
    trim(replica, 6)
    replica.answer_fetch(high_watermark=9, log_start=5)
    assert adopted(replica) == []
    assert replica.core.shown_log_start == 6


@pytest.mark.parametrize("view", [{"source": 3}, {"epoch": 5}, {"leader": 3}, {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}])
def test_only_the_leader_of_its_epoch_is_believed(view: dict[str, object]) -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=9, log_start=5, **view)  # type: ignore[arg-type]
    assert adopted(replica) == [] and replica.core.shown_log_start == 0


def test_an_answer_that_sends_the_replica_elsewhere_tells_no_start() -> None:
    replica = follower()
    replica.answer_fetch(high_watermark=9)
    replica.answer_fetch(high_watermark=20, log_start=9, snapshot_id=position(12, 6))
    assert adopted(replica) == []
    replica = follower()
    replica.answer_fetch(high_watermark=9, log_start=2, diverging=position(6, 3))
    assert adopted(replica) == []


def test_a_cut_below_it_takes_it_back() -> None:
    """After an unclean recovery the log that is to be followed may end before it."""
    replica = follower(told_log_start=8)
    assert replica.core.shown_log_start == 8
    replica.answer_fetch(diverging=position(6, 3))
    assert (replica.core.log_end, replica.core.shown_log_start) == (6, 6)


def test_what_is_remembered_from_before_a_restart_counts_up_to_the_logs_end() -> None:
    assert follower(told_log_start=7).core.shown_log_start == 7
    assert follower(told_log_start=12).core.shown_log_start == 9


# --- the leader -----------------------------------------------------------------------------------------------------------


def test_a_leader_that_deletes_tells_the_replicas_that_wait() -> None:
    replica = leader()
    assert replica.fetch(2, 10, 6, log_start=0, follows=1) is None
    assert replica.fetch(3, 10, 6, log_start=6, follows=1) is None
    assert trim(replica, 6) == [2]


def test_a_replica_that_asks_with_an_earlier_start_does_not_wait() -> None:
    replica = leader()
    trim(replica, 6)
    assert replica.fetch(2, 10, 6, log_start=3) is not None
    assert replica.fetch(3, 10, 6, log_start=6) is None


def test_a_replica_that_takes_no_notice_is_told_once() -> None:
    """Kafka's Raft says -1, and takes over nothing: it must not be answered again and again."""
    replica = leader()
    trim(replica, 6)
    assert replica.fetch(2, 10, 6, log_start=-1, follows=1) is not None
    assert replica.fetch(2, 10, 6, log_start=-1, follows=2) is None
    assert trim(replica, 9) == [2]
    assert replica.fetch(2, 10, 6, log_start=-1, follows=3) is None


def test_a_replica_that_may_have_missed_the_answer_is_told_again() -> None:
    replica = leader()
    trim(replica, 6)
    assert replica.fetch(2, 10, 6, log_start=0, follows=1) is not None
    assert replica.fetch(2, 10, 6, log_start=0) is not None, "its connection is another one"


def test_a_start_that_a_replica_could_not_take_over_keeps_it_waiting() -> None:
    """It knows less to be committed, and the leader tells no more yet."""
    replica = Replica.leader(epoch=6, log=LOG, told_log_start=7, flushed=False)
    assert replica.fetch(2, 10, 6, log_start=0, high_watermark=5) is not None
    assert replica.core.announced_high_watermark == -1
    assert replica.fetch(2, 10, 6, log_start=5, high_watermark=5) is None


def test_a_new_leader_goes_on_with_what_it_was_told() -> None:
    replica = leader(told_log_start=7)
    assert (replica.core.log_start, replica.core.announced_log_start) == (0, 7)
    assert replica.fetch(2, 10, 6, log_start=0) is not None


def test_an_observer_is_told_too() -> None:
    replica = leader()
    assert replica.fetch(9, 10, 6, log_start=0, follows=1) is None
    assert trim(replica, 6) == [9]


def test_with_a_table_behind_the_log_that_is_where_it_begins() -> None:
    """KIP-405: what retention removes from local disks is not deleted."""
    replica = leader()
    replica.step(on.HistoryTiered(start_offset=Offset(2), end_offset=Offset(8)))
    trim(replica, 6)
    assert replica.core.announced_log_start == 2
    replica.step(on.HistoryTiered(start_offset=Offset(2), end_offset=Offset(5)))
    assert replica.core.announced_log_start == 6, "the table does not reach the log"


def test_the_metadata_log_is_left_to_its_snapshots() -> None:
    replica = leader(shares_log_start=False)
    assert replica.fetch(2, 10, 6, log_start=0, follows=1) is None
    assert trim(replica, 6) == []
    assert replica.fetch(2, 10, 6, log_start=0) is None
    replica = follower(shares_log_start=False)
    replica.answer_fetch(high_watermark=9, log_start=5)
    assert adopted(replica) == []
