"""What time does to each role, and that no role is ever due for ever."""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, START_MS, Replica
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import EndQuorumEpochRequest, VoteRequest
from raftlake.raft.types import NodeId

ROLES = ["Unattached", "Follower", "Prospective", "Candidate", "Leader", "Resigned"]
SEEDS = range(40)


@pytest.mark.parametrize("role", ROLES)
def test_a_deadline_reported_early_does_nothing(role: str) -> None:
    replica = Replica.in_role(role, epoch=6)
    deadline = replica.core.next_deadline_ms()
    assert deadline is not None
    assert deadline > replica.now_ms
    before = replica.view
    for _ in range(3):
        replica.step(on.DeadlineReached())
        assert replica.actions == []
    assert (replica.view, replica.core.next_deadline_ms()) == (before, deadline)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("seed", range(5))
def test_a_cut_off_voter_is_never_due_at_once_for_ever(role: str, seed: int) -> None:
    """KAFKA-20514: a timer of zero is a busy loop. `pass_time` gives up after a thousand deadlines."""
    replica = Replica.in_role(role, epoch=6, seed=seed)
    replica.pass_time(60_000)
    assert replica.core.epoch <= 7, "cut off, pre-vote keeps the epoch (Resigned moves it once)"


def test_a_lost_election_leaves_no_retry_due() -> None:
    """A failed request waits for its retry; once the election is lost nobody is asked again, and nothing may stay due."""
    for last in ("refusal", "failure"):
        replica = Replica.candidate(epoch=6, voters=(1, 2, 3, 4, 5))
        failing = replica.vote_in_flight(5)
        if last == "refusal":
            replica.fail(5, failing)
        for voter in (2, 3, 4):
            replica.answer_vote(voter, granted=False)
        if last == "failure":
            replica.fail(5, failing)
        replica.pass_time(100)
        assert replica.core.epoch == 6


def test_the_first_pre_vote_of_a_node_without_a_leader_comes_quickly() -> None:
    waits = {Replica.unattached(epoch=0, seed=seed).pass_until_role("Prospective") for seed in SEEDS}
    assert min(waits) >= 1
    assert max(waits) <= CONFIG.election_jitter_ms_max
    assert len(waits) > 10, "drawn at random"


def test_later_elections_are_drawn_from_the_election_timeout() -> None:
    waits = set()
    for seed in SEEDS:
        replica = Replica.prospective(epoch=6, seed=seed)
        replica.answer_votes(granted=False)
        waits.add(replica.pass_until_role("Prospective"))
    assert min(waits) >= CONFIG.election_timeout_ms
    assert max(waits) < 2 * CONFIG.election_timeout_ms
    assert len(waits) > 10


def test_a_follower_gives_its_leader_up_after_the_fetch_timeout() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert replica.role == "Follower"
    replica.pass_time(1)
    assert replica.view == ("Prospective", 6, 2)
    assert [report.reason for report in replica.took(do.ReportRole)] == ["fetch timeout"]
    assert set(replica.sent(VoteRequest)) == {2, 3}


def test_each_answer_renews_the_fetch_timeout() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    for _ in range(5):
        replica.pass_time(CONFIG.fetch_timeout_ms - 1)
        replica.answer_fetch()
    assert replica.role == "Follower"


def test_failed_fetches_do_not_renew_it() -> None:
    replica = Replica.follower(epoch=6, leader=2)
    started_ms = replica.now_ms
    while replica.role == "Follower":
        request = replica.core.fetch_in_flight
        if request is not None:
            replica.fail(replica.core.fetch_peer, request)
        replica.pass_time(5)
    assert replica.now_ms - started_ms == CONFIG.fetch_timeout_ms


def test_an_observer_never_campaigns() -> None:
    for observer in (Replica.follower(local=9, epoch=6), Replica.unattached(local=9, epoch=6)):
        observer.pass_time(60_000)
        assert observer.role in ("Follower", "Unattached")
        assert observer.core.epoch == 6


@pytest.mark.parametrize("role", ["Unattached", "Candidate", "Resigned"])
def test_an_epoch_bump_keeps_the_time_to_the_next_election(role: str) -> None:
    """Pitfall 26: else a voter with a stale log that keeps campaigning could starve everybody."""
    replica = Replica.in_role(role, epoch=6)
    deadline = replica.core.role.election_deadline_ms  # type: ignore[union-attr]
    replica.pass_time((deadline - replica.now_ms) // 2)
    assert replica.role == role
    replica.vote(3, 8, (0, 0), voter=2)
    assert replica.view == ("Unattached", 8, -1)
    assert replica.core.role.election_deadline_ms == deadline  # type: ignore[union-attr]


def test_a_vote_granted_starts_the_timeout_anew() -> None:
    replica = Replica.unattached(epoch=6)
    replica.vote(3, 7)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms


# --- check quorum ---------------------------------------------------------------------------------------------------


def test_a_leader_without_a_majority_resigns_after_one_and_a_half_fetch_timeouts() -> None:
    """testLeaderShouldResignLeadershipIfNotGetFetchRequestFromMajorityVoters; observed 3.0 s at a fetch timeout of 2 s."""
    replica = Replica.leader(epoch=6)
    elected_ms = replica.now_ms
    replica.pass_time(CONFIG.check_quorum_timeout_ms - 1)
    assert replica.role == "Leader"
    replica.pass_time(1)
    assert replica.view == ("Resigned", 6, -1)
    assert replica.now_ms - elected_ms == 3_000
    assert set(replica.sent(EndQuorumEpochRequest)) == {2, 3}


def test_one_follower_of_two_keeps_the_leader() -> None:
    replica = Replica.leader(epoch=6)
    for _ in range(10):
        replica.pass_time(CONFIG.check_quorum_timeout_ms - 1)
        replica.fetch(2, 1, 6)
    assert replica.role == "Leader"
    last_fetch_ms = replica.now_ms
    replica.pass_until_role("Resigned")
    assert replica.now_ms - last_fetch_ms == CONFIG.check_quorum_timeout_ms


def test_of_five_voters_the_second_newest_fetch_counts() -> None:
    replica = Replica.leader(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.pass_time(1_000)
    replica.fetch(2, 1, 6)
    replica.pass_time(500)
    replica.fetch(3, 1, 6)
    second_newest_ms = replica.now_ms - 500
    replica.pass_until_role("Resigned")
    assert replica.now_ms - second_newest_ms == CONFIG.check_quorum_timeout_ms


def test_observers_and_old_epochs_do_not_keep_the_leader() -> None:
    replica = Replica.leader(epoch=6)
    for _ in range(3):
        replica.pass_time(900)
        replica.fetch(9, 1, 6)
        replica.fetch(2, 1, 5, epoch=5)
        replica.step(
            on.ReplicaConfirmed(replica_id=NodeId(9), at_ms=replica.now_ms, follows=0, leader_epoch=replica.core.epoch)
        )
    replica.pass_time(300)
    assert replica.role == "Resigned"


def test_rounds_reported_late_keep_the_leader() -> None:
    """The driver reports them just before a deadline, with the time at which they came."""
    replica = Replica.leader(epoch=6)
    replica.fetch(2, 1, 6)
    for _ in range(5):
        deadline = replica.core.role.check_quorum_deadline_ms  # type: ignore[union-attr]
        came_ms = deadline - 700
        replica.now_ms = deadline
        replica.step(on.ReplicaConfirmed(replica_id=NodeId(2), at_ms=came_ms, follows=0, leader_epoch=replica.core.epoch))
        replica.step(on.DeadlineReached())
        assert replica.role == "Leader"
        assert replica.core.role.check_quorum_deadline_ms == came_ms + CONFIG.check_quorum_timeout_ms  # type: ignore[union-attr]


def test_a_lone_voter_leads_for_ever() -> None:
    """testLeaderShouldNotResignLeadershipIfOnlyOneVoters."""
    replica = Replica(voters=(1,), epoch=5)
    assert replica.core.next_deadline_ms() is None
    replica.flush()
    replica.pass_time(1_000_000)
    assert replica.role == "Leader"


# --- resigned -------------------------------------------------------------------------------------------------------


def test_resigned_for_an_election_timeout_it_campaigns_in_a_higher_epoch() -> None:
    """KAFKA-18379: in the old epoch it is its own leader; testInitializeAsResignedLeaderFromStateStore."""
    replica = Replica.resigned(epoch=6)
    waited = replica.pass_until_role("Prospective")
    assert CONFIG.election_timeout_ms <= waited < 2 * CONFIG.election_timeout_ms
    assert replica.view == ("Prospective", 7, -1)
    roles = [(report.role, report.epoch) for report in replica.took(do.ReportRole)]
    assert roles == [("Unattached", 7), ("Prospective", 7)]


def test_a_stopping_node_stays_resigned() -> None:
    replica = Replica.leader(epoch=6)
    replica.step(on.ResignRequested())
    replica.pass_time(60_000)
    assert replica.view == ("Resigned", 6, -1)


def test_seeds_decide_everything() -> None:
    def history(seed: int) -> list[tuple[int, str]]:
        replica = Replica.unattached(epoch=0, seed=seed)
        for _ in range(50):
            replica.pass_time(100)
        return [(replica.now_ms - START_MS, replica.role), (replica.core.next_deadline_ms() or 0, "")]

    assert history(3) == history(3)
    assert len({tuple(history(seed)) for seed in range(10)}) > 5
