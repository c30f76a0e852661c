"""What went wrong in the field with Kafka's Raft, each as a test. Those of the driver, of
snapshots' content, of reconfiguration and of tiering are not the core's.
"""

from __future__ import annotations

import pytest

from raftkit.cluster import Cluster, Timing
from raftkit.replica import CONFIG, Replica, batch, key, position
from raftkit.snapshots import receive_snapshot
from raftkit.voters import add, commit, error_of, fetch, leader, remove, static_leader
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import NodeId, Offset

LOG = (((1, 0), (3, 5)), 9)


def test_01_a_restarted_leader_does_not_lead_the_same_epoch() -> None:
    """KAFKA-10527: offsets that were given out but not synced would be used again."""
    cluster = Cluster((1, 2, 3), seed=1, timing=Timing(flush=(20, 20)))
    cluster.start()
    leader = cluster.await_leader().local.id
    epoch = cluster[leader].epoch
    cluster.append(leader, "never synced")
    cluster.crash(leader, noticed=False)
    cluster.start(leader)
    assert cluster[leader].role_name == "Resigned"
    cluster.await_leader()
    assert cluster.leader().epoch > epoch  # type: ignore[union-attr]


def test_02_the_leader_change_itself_is_replicated_before_anything_counts() -> None:
    """KAFKA-12619: an off-by-one committed what was below the epoch start."""
    replica = Replica.leader(epoch=6, log=LOG)
    for voter in (2, 3):
        replica.fetch(voter, 9, 3)
    assert replica.core.high_watermark == 0


def test_03_empty_elections_leave_no_epochs_behind() -> None:
    """KAFKA-10706: an epoch entry at the log end made followers diverge for ever."""
    leader = Replica.leader(epoch=9, log=(((1, 0), (3, 5), (7, 9)), 9))
    assert leader.core.history.entries() == ((1, 0), (3, 5), (9, 9))
    follower = Replica.follower(epoch=9, leader=1, local=2, log=(((1, 0), (3, 5), (6, 9), (8, 9)), 9))
    (request,) = follower.sent(FetchRequest).values()
    answer = leader.fetch(2, request.fetch_offset, request.last_fetched_epoch)
    assert answer is not None
    assert answer.diverging is None


def test_04_a_leader_cut_off_from_the_majority_resigns_by_itself() -> None:
    """KAFKA-15489: nothing has to arrive for that, only its deadline."""
    replica = Replica.leader(epoch=6)
    deadlines = []
    while replica.role == "Leader":
        deadline = replica.core.next_deadline_ms()
        assert deadline is not None
        deadlines.append(deadline)
        replica.now_ms = deadline
        replica.step(on.DeadlineReached())
    assert deadlines[-1] - deadlines[0] <= CONFIG.check_quorum_timeout_ms


def test_05_divergence_is_never_parked() -> None:
    """KAFKA-15100."""
    replica = Replica.leader(epoch=6, log=LOG)
    replica.fetch(2, 12, 3)
    assert replica.core.role.parked == {}  # type: ignore[union-attr]


def test_06_who_resigned_never_serves_again_in_its_epoch() -> None:
    """KAFKA-17333."""
    replica = Replica.resigned(epoch=6)
    replica.flush()
    for voter in (2, 3):
        replica.fetch(voter, 1, 6)
    assert not replica.core.is_serving_leader
    assert replica.took(do.AdvanceHighWatermark) == []


def test_07_leadership_serves_only_after_its_first_record_committed() -> None:
    """KAFKA-15345: also on an empty log."""
    replica = Replica.leader(epoch=6, flushed=False)
    assert not replica.core.is_serving_leader
    replica.flush()
    assert not replica.core.is_serving_leader
    replica.fetch(2, 1, 6)
    assert replica.core.is_serving_leader


def test_08_a_new_disk_is_not_the_old_voter() -> None:
    """KAFKA-14077, KAFKA-12181."""
    replica = Replica.unattached(epoch=6, directory=b"new")
    assert replica.vote(3, 7, voter=1, directory=key(1, b"old").directory_id).error is ErrorCode.INVALID_VOTER_KEY


def test_08_a_leader_bears_with_a_voter_that_lost_its_disk() -> None:
    """KAFKA-14077: its fetch goes back to the beginning, the high watermark does not, and it gets everything again."""
    replica = Replica.leader(epoch=6, log=LOG)
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 10
    answer = replica.fetch(2, 0, 0)
    assert answer is not None
    assert (answer.error, answer.diverging, answer.high_watermark) == (ErrorCode.NONE, None, 10)
    assert replica.core.high_watermark == 10
    replica.append(1)
    replica.flush()
    assert replica.core.high_watermark == 10, "nobody else has the new record"


@pytest.mark.parametrize("bad", [batch(9, 10, 7), batch(11, 12, 6), batch(9, 9, 6), batch(9, 10, 2)])
def test_09_batches_that_cannot_be_are_cut_not_crashed_on(bad: object) -> None:
    """KAFKA-18723, KAFKA-18838."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(bad)  # type: ignore[arg-type]
    assert replica.core.log_end_position == position(9, 3)


def test_10_a_leader_outside_of_its_voters_does_not_count_itself() -> None:
    """KAFKA-16530, KAFKA-17608: it leads on until its removal has committed by the others alone, then it goes, without harm."""
    replica = leader(1, 2, 3)
    commit(replica, 2)
    fetch(replica, 3)
    assert replica.change_voters(remove(1)) is None
    replica.flush()
    fetch(replica, 2)
    assert replica.core.is_leader
    assert replica.core.high_watermark < replica.core.log_end, "itself and one of two others are no majority"
    fetch(replica, 3)
    assert replica.core.high_watermark == replica.core.log_end
    replica.pass_time(1)
    assert replica.role == "Resigned"
    replica.pass_time(10 * CONFIG.fetch_timeout_ms)
    assert not replica.core.is_leader


@pytest.mark.parametrize("epoch", [6, 7])
def test_11_who_resigned_never_follows_or_campaigns_in_its_epoch(epoch: int) -> None:
    """KAFKA-18379."""
    replica = Replica.resigned(epoch=6)
    replica.begin(3, epoch)
    assert replica.view == (("Resigned", 6, -1) if epoch == 6 else ("Follower", 7, 3))


def test_12_unattached_voters_keep_fetching() -> None:
    """KAFKA-17030: else they could only find a leader by disturbing it."""
    replica = Replica.prospective(epoch=6)
    replica.answer_votes(granted=False)
    assert replica.role == "Unattached"
    assert len(replica.sent(FetchRequest)) == 1


def test_13_an_observer_tries_everyone_with_a_pause() -> None:
    """KAFKA-19354, KAFKA-20514: neither stuck at one voter nor in a busy loop."""
    observer = Replica(local=9, epoch=6, leader=2)
    asked = set()
    for _ in range(8):
        request = observer.core.fetch_in_flight
        assert request is not None
        asked.add(observer.core.fetch_peer)
        observer.fail(observer.core.fetch_peer, request)
        deadline = observer.core.next_deadline_ms()
        assert deadline == observer.now_ms + CONFIG.retry_backoff_ms
        observer.pass_time(CONFIG.retry_backoff_ms)
    assert asked == {1, 2, 3}


def test_14_a_graceful_stop_of_five_costs_no_round_of_pre_votes() -> None:
    """KAFKA-20895: all have fetched from the leader that ends its epoch, and still grant."""
    for seed in range(5):
        cluster = Cluster((1, 2, 3, 4, 5), seed=seed)
        cluster.start()
        old = cluster.await_leader()
        cluster.run(1_000)
        cluster.nodes[old.local.id].step(on.ResignRequested())
        resigned_ms = cluster.now_ms
        cluster.await_leader()
        assert cluster.now_ms - resigned_ms <= 50


def test_15_lost_elections_back_off_within_bounds() -> None:
    """KAFKA-18345 removed an exponential backoff without a bound; ours ends at the election timeout."""
    for seed in range(5):
        replica = Replica.candidate(epoch=6, seed=seed)
        for _ in range(12):
            replica.answer_votes(granted=False)
            assert replica.pass_until_role("Prospective") <= 2 * CONFIG.election_timeout_ms
            replica.answer_votes(granted=True)


def test_16_divergence_comes_before_the_high_watermark() -> None:
    """KAFKA-14704."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(diverging=position(5, 1), high_watermark=9)
    assert replica.core.high_watermark == 0


def test_17_a_parked_fetch_does_not_delay_the_high_watermark() -> None:
    """KAFKA-13959, KIP-1166."""
    replica = Replica.leader(epoch=6)
    assert replica.fetch(2, 1, 6, high_watermark=1) is None
    replica.append(1)
    replica.flush()
    assert replica.fetch(2, 2, 6, high_watermark=1) is not None
    (moved,) = replica.took(do.AdvanceHighWatermark)
    assert moved.high_watermark == 2


def test_18_a_vote_survives_following_in_the_same_epoch() -> None:
    """KAFKA-17641."""
    replica = Replica.prospective(epoch=6)
    assert replica.vote(3, 6).vote_granted
    replica.begin(2, 6)
    assert replica.core.voted_key == key(3)
    replica.pass_until_role("Prospective")
    assert not replica.vote(2, 6, (99, 5)).vote_granted


def test_19_an_empty_log_after_a_reset_knows_the_epoch_before_it() -> None:
    """KAFKA-10761."""
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(snapshot_id=position(50, 4))
    receive_snapshot(replica)
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (50, 4)


def test_20_liveness_waits_for_what_was_there_at_the_partition() -> None:
    """KAFKA-12851: after healing the high watermark passes every log end there was, not just its own old value."""
    cluster = Cluster((1, 2, 3), seed=2)
    cluster.start()
    leader = cluster.await_leader().local.id
    cluster.partition([leader], [node for node in cluster.nodes if node != leader])
    cluster.append(leader, "a", "b", "c")
    ends = max(cluster[node].log_end for node in cluster.nodes)
    cluster.run(6_000)
    cluster.heal()
    new = cluster.await_leader().local.id
    cluster.append(new, *range(int(ends)))
    cluster.run_until(lambda: all(cluster[NodeId(node)].high_watermark > Offset(ends) for node in cluster.nodes))


@pytest.mark.parametrize("log_end", [6, 9])
def test_21_a_high_watermark_never_lies_below_the_log_start(log_end: int) -> None:
    """KAFKA-16452: Kafka read it from a checkpoint file that was damaged. Here no file says it: a replica that starts
    knows that what lies before its log was committed, and learns the rest from its leader.
    """
    replica = Replica(epoch=6, leader=2, log=(((1, 0), (3, 5)), log_end), log_start=6)
    assert replica.core.high_watermark == 6
    replica.answer_fetch(high_watermark=2)
    assert replica.core.high_watermark == 6


def test_22_without_a_leader_fetches_do_not_spin() -> None:
    """A Java voter was seen to send 400 requests a second to a peer without a leader."""
    replica = Replica.unattached(epoch=6, voters=tuple(range(1, 8)))
    replica.core.role.election_deadline_ms += 1_000  # type: ignore[union-attr]
    fetches = 0
    until_ms = replica.now_ms + 1_000
    while replica.now_ms < until_ms:
        if replica.core.fetch_in_flight is not None:
            fetches += 1
            replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
        replica.pass_time(1)
    assert fetches <= 1_000 // CONFIG.retry_backoff_ms + 1


def test_23_an_offset_beyond_the_end_diverges_at_the_end() -> None:
    """Never OFFSET_OUT_OF_RANGE."""
    answer = Replica.leader(epoch=6, log=LOG).fetch(2, 99, 6)
    assert answer is not None
    assert (answer.error, answer.diverging) == (ErrorCode.NONE, position(10, 6))


def test_24_an_empty_answer_keeps_the_last_fetched_epoch() -> None:
    """KAFKA-15510."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch()
    (request,) = replica.sent(FetchRequest).values()
    assert request.last_fetched_epoch == 3


def test_25_out_of_range_is_never_fatal() -> None:
    """KAFKA-7414: a leader that answers so (Kafka's never does, to replicas of its Raft) is asked again, and nothing is cut."""
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(error=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1)
    assert replica.view == ("Follower", 6, 2)
    assert replica.core.log_end_position == position(9, 3)
    replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {2}


def test_26_a_stale_candidate_cannot_starve_the_others() -> None:
    """Node 3's log is behind and it bumps the epoch faster than anyone's election timeout; node 1 still gets its turn."""
    replica = Replica.unattached(epoch=6, log=LOG)
    replica.answer_fetch(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)
    epoch = 6
    for _ in range(200):
        if replica.role == "Prospective":
            return
        epoch += 1
        assert not replica.vote(3, epoch, (1, 1)).vote_granted
        replica.pass_time(100)
    raise AssertionError("starved")


@pytest.mark.parametrize("replica_id", [9, 1, 77])
def test_27_epoch_and_leadership_are_checked_before_membership(replica_id: int) -> None:
    """KAFKA-13837, KAFKA-14078."""
    answer = Replica.follower(epoch=6).fetch(replica_id, 0, 0, epoch=5)
    assert answer is not None
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH


def test_28_putting_voters_into_the_log_races_with_nothing() -> None:
    """KAFKA-20661: while the set that comes with kraft.version 1 is not committed, changes are answered "try again"."""
    replica = static_leader()
    fetch(replica, 2)
    assert error_of(replica.change_voters(add(4))) is ErrorCode.UNSUPPORTED_VERSION, "the voters are static"
    fetch(replica, 3, 0)
    assert replica.core.voter_history.kraft_version == 1
    fetch(replica, 4)
    assert error_of(replica.change_voters(add(4))) is ErrorCode.REQUEST_TIMED_OUT
    commit(replica, 2)
    fetch(replica, 4)
    assert replica.change_voters(add(4)) is None, "now it is under way"
