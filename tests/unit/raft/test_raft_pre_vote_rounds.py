"""Pre-vote rounds that nobody answers: when the next one comes, and what a quorum makes of it once it is whole again."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from raftkit.cluster import Cluster, Timing
from raftkit.replica import CONFIG, Replica
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchRequest, VoteRequest
from raftlake.raft.roles import Prospective
from raftlake.raft.types import NodeId


@pytest.mark.parametrize("rounds_before", [0, 7])
def test_a_pre_vote_that_timed_out_is_asked_again_after_a_jitter(rounds_before: int) -> None:
    """Kafka asks again at once. The wait does not grow with the rounds before, and a Fetch looks for a leader in it."""
    waits = set()
    for seed in range(60):
        replica = Replica.prospective(epoch=6, seed=seed)
        for _ in range(rounds_before):
            replica.pass_until_role("Unattached")
            replica.pass_until_role("Prospective")
        replica.pass_until_role("Unattached")
        assert len(replica.sent(FetchRequest)) == 1
        waits.add(replica.pass_until_role("Prospective"))
        assert set(replica.sent(VoteRequest)) == {2, 3}
        assert replica.core.epoch == 6
    assert 1 <= min(waits) <= max(waits) <= CONFIG.election_jitter_ms_max
    assert len(waits) > 10, "drawn at random: two that time out together ask again apart"


def test_the_leader_found_between_two_pre_votes_is_followed() -> None:
    replica = Replica.prospective(epoch=6)
    replica.pass_until_role("Unattached")
    (peer,) = replica.sent(FetchRequest)
    replica.answer_fetch(leader=peer, high_watermark=0)
    assert replica.view == ("Follower", 6, peer)
    replica.pass_time(CONFIG.fetch_timeout_ms - 1)
    assert replica.role == "Follower"


def test_a_newer_epoch_that_comes_when_the_pre_vote_is_over_does_not_delay_the_next() -> None:
    """Before its timer has been reported. Kafka's remaining time is 0 then; here it is the jitter, not a new timeout."""
    replica = Replica.prospective(epoch=6)
    replica.now_ms = replica.core.role.election_deadline_ms  # type: ignore[union-attr]
    replica.vote(3, 8, (0, 0), voter=2)
    assert replica.view == ("Unattached", 8, -1)
    assert 1 <= replica.pass_until_role("Prospective") <= CONFIG.election_jitter_ms_max


@pytest.mark.parametrize("rounds_before", [1, 4])
def test_a_split_vote_behind_rounds_that_timed_out_still_backs_off(rounds_before: int) -> None:
    """The short wait is for rounds that nobody answered: candidates that take each other's votes wait longer each time."""
    longest = Counter[int]()
    for seed in range(40):
        replica = Replica.prospective(epoch=5, seed=seed)
        for _ in range(rounds_before):
            replica.pass_until_role("Unattached")
            replica.pass_until_role("Prospective")
        for attempt in range(5):
            replica.answer_votes(granted=True)
            assert replica.role == "Candidate"
            replica.answer_votes(granted=False)
            longest[attempt] = max(longest[attempt], replica.pass_until_role("Prospective"))
    assert longest[0] > CONFIG.election_jitter_ms_max
    assert longest[4] > 4 * CONFIG.election_jitter_ms_max
    assert max(longest.values()) <= CONFIG.election_timeout_ms


# --- whole quorums --------------------------------------------------------------------------------------------------


class TwoOfThree(Cluster):
    """Voters 1 and 2 know no leader and cannot reach one another, as across a black hole; voter 3 is gone."""

    def __init__(self, seed: int, latency: tuple[int, int] = (1, 3)) -> None:
        super().__init__((1, 2, 3), seed=seed, timing=Timing(latency=latency, flush=(1, 2), sessions=True))
        self.asked: list[tuple[int, bool]] = []
        self.partition([1], [2], [3])
        self.start(1, 2)

    def on_step(self, node: object, event: object, actions: list[do.Action]) -> None:
        for action in actions:
            if isinstance(action, do.SendRequest) and isinstance(action.request, VoteRequest):
                self.asked.append((self.now_ms, action.request.pre_vote))

    def unite(self) -> int:
        """The two reach one another again; the milliseconds to a leader that serves."""
        self.partition([1, 2], [3])
        return self.run_until(lambda: self.leader() is not None)


def test_a_healed_partition_has_a_leader_within_an_election_timeout_as_a_rule() -> None:
    """The voters that wait for the answers of a dead round ask again when it is over; with a whole election timeout between
    two rounds the median was 870 ms, and a tenth waited for more than two seconds."""
    waits = []
    for seed in range(300):
        cluster = TwoOfThree(seed)
        cluster.run(3_000 + cluster.random.randrange(9_000))
        waits.append(cluster.unite())
    waits.sort()
    assert waits[150] < 600
    assert waits[270] < 1_400


def test_voters_that_cannot_reach_one_another_ask_once_in_an_election_timeout() -> None:
    """No storm, and no epoch: each round asks the two others once."""
    for seed in range(10):
        cluster = TwoOfThree(seed)
        cluster.run(60_000)
        assert {pre_vote for _, pre_vote in cluster.asked} == {True}
        rounds = len(cluster.asked) / 2 / 2
        assert 60_000 / (2 * CONFIG.election_timeout_ms + CONFIG.election_jitter_ms_max) - 1 <= rounds <= 60
        assert {cluster[1].epoch, cluster[2].epoch} == {0}


@pytest.mark.parametrize("latency", [(1, 1), (5, 25), (40, 40)])
def test_two_prospectives_that_time_out_together_do_not_go_on_for_ever(latency: tuple[int, int]) -> None:
    """Both grant the other's pre-vote, so both may become candidates of the same epoch, again and again where messages take as
    long as the jitter: the wait after a lost election doubles, and one of them gets ahead."""
    epochs = Counter[int]()
    longest_ms = timed_out = 0
    for seed in range(150):
        cluster = TwoOfThree(seed, latency)
        cluster.run(2_500)
        deadline_ms = cluster.now_ms + 40
        for node in (1, 2):
            role = cluster[node].role
            if isinstance(role, Prospective):
                role.election_deadline_ms = deadline_ms
                timed_out += 1
            cluster.at(deadline_ms, partial(cluster.nodes[NodeId(node)].step, on.DeadlineReached()))
        longest_ms = max(longest_ms, cluster.unite())
        leader = cluster.leader()
        assert leader is not None
        epochs[leader.epoch] += 1
    assert timed_out > 280, "both of nearly every quorum"
    assert longest_ms < 8_000
    assert max(epochs) <= 6
    assert epochs[1] + epochs[2] > 120
