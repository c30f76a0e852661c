"""OFFSET_MOVED_TO_TIERED_STORAGE: who is sent to the remote tier, and what a follower does until it begins behind it."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position, voter_set
from raftkit.snapshots import receive_snapshot
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest, VoteRequest
from raftlake.raft.roles import BuildingRemoteLogAux, Follower
from raftlake.raft.types import Epoch, Offset, VoterSet

MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
#: A log of epochs 5 and 6 that begins at 50, behind a record of epoch 5.
TRIMMED = (((5, 50), (6, 60)), 70)
SIGN_OF_LIFE_MS = CONFIG.fetch_timeout_ms // 4


# --- the leader ---


def leading(*shown: int) -> Replica:
    """The leader of epoch 7, whose log begins at 50, and the tier shows what `shown` says."""
    replica = Replica.leader(epoch=7, log=TRIMMED, log_start=50, snapshot=(50, 5))
    replica.commit_epoch_start()
    if shown:
        replica.step(on.HistoryTiered(start_offset=Offset(shown[0]), end_offset=Offset(shown[1])))
    return replica


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (3, 1), (49, 5), (50, 4), (55, 4)])
@pytest.mark.parametrize("shown", [(0, 50), (49, 50), (20, 71)])
def test_a_replica_that_cannot_be_reconciled_is_sent_to_the_tier(offset: int, epoch: int, shown: tuple[int, int]) -> None:
    answer = leading(*shown).fetch(3, offset, epoch)
    assert answer is not None and answer.error is MOVED
    assert answer.snapshot_id == position(50, 5), "for those who have no tier"
    assert answer.high_watermark == 71, "how far it has to go"


@pytest.mark.parametrize("shown", [(), (-1, -1), (0, 49), (50, 60), (50, 50), (60, 70)])
def test_a_tier_that_does_not_show_the_records_before_the_log_is_of_no_use(shown: tuple[int, ...]) -> None:
    answer = leading(*shown).fetch(3, 3, 1)
    assert answer is not None and (answer.error, answer.snapshot_id) == (ErrorCode.NONE, position(50, 5))


def test_who_can_be_reconciled_is_not_sent_to_the_tier() -> None:
    leader = leading(0, 60)
    parked = leader.fetch(3, 71, 7)
    here, behind = leader.fetch(3, 50, 5), leader.fetch(3, 69, 5)
    assert parked is None and here is not None and behind is not None
    assert here.error is behind.error is ErrorCode.NONE
    assert here.diverging is None and behind.diverging == position(60, 5)


def test_a_log_that_begins_at_the_very_first_record_needs_no_tier() -> None:
    leader = Replica.leader(epoch=7, log=(((5, 0),), 9))
    leader.commit_epoch_start()
    leader.step(on.HistoryTiered(start_offset=Offset(0), end_offset=Offset(9)))
    leader.step(on.SnapshotTaken(snapshot_id=position(4, 5)))
    answer = leader.fetch(3, 0, 0)
    assert answer is not None and (answer.error, answer.snapshot_id) == (ErrorCode.NONE, position(4, 5))


def test_what_a_replica_knew_before_it_led_counts() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=TRIMMED, log_start=50, snapshot=(50, 5))
    replica.step(on.HistoryTiered(start_offset=Offset(0), end_offset=Offset(60)))
    replica.pass_until_role("Prospective")
    replica.answer_votes(granted=True)
    replica.answer_votes(granted=True)
    assert replica.role == "Leader"
    answer = replica.fetch(3, 3, 1)
    assert answer is not None and answer.error is MOVED


def test_a_replica_that_is_sent_to_the_tier_keeps_the_leader_alive_and_acknowledges_nothing() -> None:
    leader = leading(0, 60)
    leader.append(1)
    for _ in range(10):
        leader.now_ms += CONFIG.check_quorum_timeout_ms // 2
        leader.fetch(3, 3, 1)
        leader.step(on.DeadlineReached())
    assert leader.role == "Leader"
    (status,) = [each for each in leader.core.replica_progress() if each.key.id == 3]
    assert status.log_end == -1 and leader.core.high_watermark == 71


# --- the follower ---

LOG = (((1, 0), (3, 3)), 9)


def building(**fields: object) -> Replica:
    """Leader 2 of epoch 6 has just sent us to the tier."""
    replica = Replica.follower(epoch=6, leader=2, **{"log": LOG, **fields})
    replica.answer_fetch(error=MOVED, high_watermark=70)
    return replica


def state(replica: Replica) -> BuildingRemoteLogAux | None:
    role = replica.core.role
    assert isinstance(role, Follower)
    return role.building


def built(replica: Replica, offset: int = 50, epoch: int = 5, leader_epoch: int = 6, voters: VoterSet | None = None) -> None:
    snapshot_id = position(offset, epoch)
    replica.step(on.RemoteLogAuxBuilt(leader_epoch=Epoch(leader_epoch), snapshot_id=snapshot_id, voters=voters))


def failed(replica: Replica, leader_epoch: int = 6, *, is_refused: bool = False) -> None:
    replica.step(on.RemoteLogAuxFailed(leader_epoch=Epoch(leader_epoch), is_refused=is_refused))


def untouched(replica: Replica) -> bool:
    """testFencedOffsetResetAfterMovedToRemoteTier: no truncation before success."""
    core = replica.core
    return not replica.took(do.ResetLog) and not replica.took(do.TruncateTo) and (core.log_start, core.log_end) == (0, 9)


def test_the_driver_builds_and_the_log_stays_as_it_is() -> None:
    replica = building()
    (wanted,) = replica.took(do.BuildRemoteLogAux)
    assert (wanted.leader_id, wanted.leader_epoch) == (2, 6)
    assert replica.sent(FetchRequest) == {} and untouched(replica)
    assert replica.core.told_high_watermark == 70


def test_signs_of_life_go_both_ways_while_it_takes_long() -> None:
    replica = building()
    for _ in range(20):
        replica.pass_time(SIGN_OF_LIFE_MS - 1)
        assert replica.actions == []
        replica.pass_time(1)
        (request,) = replica.sent(FetchRequest).values()
        assert (request.fetch_offset, request.last_fetched_epoch) == (9, 3)
        replica.answer_fetch(error=MOVED, high_watermark=70)
        assert replica.actions == [], "the attempt under way counts"
    assert replica.role == "Follower"


def test_a_leader_that_falls_silent_is_given_up_and_so_is_the_attempt() -> None:
    replica = building()
    replica.pass_until_role("Prospective")
    assert len(replica.took(do.AbandonRemoteLogAux)) == 1 and replica.sent(VoteRequest)


def test_what_was_built_is_where_the_log_begins() -> None:
    replica = building()
    voters = voter_set([1, 2, 3, 4])
    built(replica, voters=voters)
    start = position(50, 5)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=start)]
    assert replica.took(do.AdvanceHighWatermark) == [do.AdvanceHighWatermark(high_watermark=start.offset)]
    core = replica.core
    assert (core.log_start, core.log_end, core.flushed_end, core.snapshot_id) == (50, 50, 50, start)
    assert core.voters == voters and state(replica) is None
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (50, 5)
    replica.answer_fetch(batch(50, 53, 5), high_watermark=52)
    assert replica.took(do.AppendFetched) and replica.core.high_watermark == 52


def test_a_sign_of_life_that_is_under_way_when_it_is_built_is_not_listened_to() -> None:
    """It was sent with the position that the log had before."""
    replica = building()
    replica.pass_time(SIGN_OF_LIFE_MS)
    (late,) = replica.sent(FetchRequest).values()
    built(replica)
    replica.answer_fetch(error=MOVED, high_watermark=70, request=late)
    assert replica.actions == [] and state(replica) is None


def test_the_leaders_log_may_have_moved_on_then_it_is_built_again() -> None:
    """testFollowerFetchOffsetOutOfRangeWithTieredStore."""
    replica = building()
    built(replica)
    replica.answer_fetch(error=MOVED, high_watermark=90)
    assert len(replica.took(do.BuildRemoteLogAux)) == 1
    built(replica, 70, 6)
    assert (replica.core.log_start, replica.core.log_end) == (70, 70)


def test_a_failed_attempt_is_repeated_after_a_backoff_that_grows() -> None:
    replica = building()
    waits = []
    for _ in range(12):
        failed(replica)
        assert untouched(replica)
        began_ms = replica.now_ms
        while not replica.took(do.BuildRemoteLogAux):
            replica.pass_time(1)
            if replica.sent(FetchRequest):
                replica.answer_fetch(error=MOVED, high_watermark=70)
            assert replica.now_ms - began_ms < 5_000
        waits.append(replica.now_ms - began_ms)
    assert waits[:4] == [20, 40, 80, 160] and waits[-2:] == [1_000, 1_000]


def test_success_forgets_the_failures() -> None:
    replica = building()
    failed(replica)
    replica.pass_time(20)
    replica.answer_fetch(error=MOVED)
    built(replica)
    replica.answer_fetch(error=MOVED)
    assert state(replica) == BuildingRemoteLogAux(is_under_way=True)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_leader_that_refuses_is_asked_at_once_who_leads(*, is_late: bool) -> None:
    """It is answered as a fenced Fetch is: the answer names leader and epoch."""
    replica = building()
    if is_late:
        replica.pass_time(SIGN_OF_LIFE_MS)
        failed(replica, is_refused=True)
        assert replica.sent(FetchRequest) == {}, "one is under way"
    else:
        failed(replica, is_refused=True)
        assert set(replica.sent(FetchRequest)) == {2}
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7)
    assert replica.view == ("Follower", 7, 3) and state(replica) is None and untouched(replica)
    assert replica.took(do.AbandonRemoteLogAux) == []


def test_a_new_leader_ends_the_attempt() -> None:
    replica = building()
    replica.begin(3, 7)
    assert len(replica.took(do.AbandonRemoteLogAux)) == 1 and state(replica) is None
    failed(replica, 6)
    assert replica.actions == []


def test_a_failure_of_an_earlier_epoch_says_nothing_about_the_attempt_of_this_one() -> None:
    replica = building()
    replica.begin(3, 7)
    replica.answer_fetch(error=MOVED)
    failed(replica, 6)
    assert state(replica) == BuildingRemoteLogAux(is_under_way=True)
    failed(replica, 7)
    assert state(replica) == BuildingRemoteLogAux(is_under_way=False, failures=1, retry_at_ms=replica.now_ms + 20)
    failed(replica, 7)
    assert state(replica) == BuildingRemoteLogAux(is_under_way=False, failures=1, retry_at_ms=replica.now_ms + 20)


def test_a_leader_that_answers_otherwise_ends_the_attempt() -> None:
    replica = building()
    replica.pass_time(SIGN_OF_LIFE_MS)
    replica.answer_fetch(snapshot_id=position(60, 5))
    assert len(replica.took(do.AbandonRemoteLogAux)) == 1 and state(replica) is None
    assert set(replica.sent(FetchSnapshotRequest)) == {2}


def test_an_attempt_that_ends_under_another_leader_counts_where_the_log_is_behind_it() -> None:
    """As a fetched snapshot: it holds committed records only."""
    replica = building()
    replica.begin(3, 7)
    built(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]


def test_an_attempt_that_ends_late_ends_the_one_of_the_next_leader_too() -> None:
    replica = building()
    replica.begin(3, 7)
    replica.answer_fetch(error=MOVED)
    built(replica, leader_epoch=6)
    assert len(replica.took(do.AbandonRemoteLogAux)) == 1 and state(replica) is None
    assert replica.core.log_end == 50


def test_a_log_that_got_there_by_itself_under_another_leader_stays() -> None:
    replica = building()
    replica.begin(3, 7)
    replica.answer_fetch(batch(9, 55, 5))
    built(replica)
    assert replica.took(do.ResetLog) == [] and replica.core.log_end == 55


@pytest.mark.parametrize("role", ["Prospective", "Candidate", "Leader"])
def test_who_does_not_follow_takes_nothing(role: str) -> None:
    replica = Replica.in_role(role, epoch=7, log=LOG)
    built(replica, leader_epoch=7)
    failed(replica, 7)
    assert replica.took(do.ResetLog) == [] and replica.core.log_start == 0


def test_a_tier_that_knows_less_than_the_log_is_asked_again_later() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(high_watermark=8)
    replica.flush()
    replica.step(on.DeadlineReached())
    replica.answer_fetch(error=MOVED, high_watermark=70)
    built(replica, 8, 3)
    assert untouched(replica) and state(replica) == BuildingRemoteLogAux(failures=1, retry_at_ms=replica.now_ms + 20)
    assert replica.sent(FetchRequest) == {}


def test_after_lost_signs_of_life_another_voter_is_asked_who_leads() -> None:
    replica = building()
    replica.pass_time(SIGN_OF_LIFE_MS)
    for _ in range(2):
        (request,) = [replica.core.fetch_in_flight]
        assert isinstance(request, FetchRequest)
        replica.fail(2, request)
        replica.pass_time(CONFIG.retry_backoff_ms)
    assert set(replica.sent(FetchRequest)) == {3}
    assert state(replica) == BuildingRemoteLogAux(is_under_way=True), "the leader may be well"


def unusable(replica: Replica) -> None:
    replica.step(on.RemoteLogAuxFailed(leader_epoch=Epoch(6), is_unusable=True))


@pytest.mark.parametrize("is_late", [False, True])
def test_a_node_that_can_use_no_tier_fetches_the_leaders_snapshot(*, is_late: bool) -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(error=MOVED, snapshot_id=position(50, 5))
    if is_late:
        replica.pass_time(SIGN_OF_LIFE_MS)
    unusable(replica)
    if is_late:
        assert replica.actions == [], "a Fetch is under way"
        replica.answer_fetch(error=MOVED, snapshot_id=position(50, 5))
        assert replica.took(do.BuildRemoteLogAux) == []
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert request.snapshot_id == position(50, 5) and state(replica) is None
    receive_snapshot(replica)
    assert replica.took(do.ResetLog) == [do.ResetLog(start=position(50, 5))]


def test_without_a_snapshot_of_the_leader_it_has_to_try_again() -> None:
    replica = building()
    unusable(replica)
    assert untouched(replica) and state(replica) == BuildingRemoteLogAux(failures=1, retry_at_ms=replica.now_ms + 20)


def test_the_snapshot_that_the_leader_named_last_counts() -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(error=MOVED, snapshot_id=position(50, 5))
    replica.pass_time(SIGN_OF_LIFE_MS)
    replica.answer_fetch(error=MOVED, snapshot_id=position(60, 6))
    unusable(replica)
    (request,) = replica.sent(FetchSnapshotRequest).values()
    assert request.snapshot_id == position(60, 6)


@pytest.mark.parametrize(("leader", "epoch"), [(3, 6), (2, 5)])
def test_only_the_leader_of_our_epoch_sends_us_to_the_tier(leader: int, epoch: int) -> None:
    replica = Replica.follower(epoch=6, leader=2, log=LOG)
    replica.answer_fetch(error=MOVED, leader=leader, epoch=epoch)
    assert replica.took(do.BuildRemoteLogAux) == []
    assert replica.role != "Follower" or state(replica) is None


def test_who_knows_no_leader_follows_the_one_that_sends_it_to_the_tier_and_asks_again() -> None:
    replica = Replica.unattached(epoch=6, log=LOG)
    replica.answer_fetch(error=MOVED, source=replica.core.fetch_peer, leader=replica.core.fetch_peer)
    assert replica.role == "Follower" and replica.took(do.BuildRemoteLogAux) == []
    replica.answer_fetch(error=MOVED)
    assert len(replica.took(do.BuildRemoteLogAux)) == 1
