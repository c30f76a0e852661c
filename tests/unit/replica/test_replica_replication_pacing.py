"""Who gets new records at once, and who a moment later."""

from __future__ import annotations

from raftlake.raft.types import NodeId
from raftlake.replica.replication.pacing import PATIENCE_MS, Pacing
from replica_cluster import Cluster, batch

PAUSE_MS = 10
QUICK, SLOW, OBSERVER = NodeId(1), NodeId(2), NodeId(9)
VOTERS = {NodeId(0), QUICK, SLOW}


def pacing(*replicas: NodeId, now_ms: int = 100) -> Pacing:
    """All have asked once, and wait for records."""
    made = Pacing(PAUSE_MS)
    for replica in replicas:
        made.asked(replica, now_ms)
    return made


def needed(made: Pacing, count: int) -> list[NodeId]:
    return [replica for replica in (QUICK, SLOW, OBSERVER) if made.is_needed(replica, VOTERS, count)]


def test_as_many_voters_are_needed_as_the_leader_lacks() -> None:
    made = pacing(OBSERVER, QUICK, SLOW)
    assert needed(made, 0) == []
    assert needed(made, 1) == [QUICK]
    assert needed(made, 2) == [QUICK, SLOW]


def test_one_that_had_to_step_in_is_preferred() -> None:
    made = pacing(QUICK, SLOW)
    made.prefer(SLOW)
    assert needed(made, 1) == [SLOW]
    made.forget(SLOW)
    assert needed(made, 1) == [QUICK]


def test_what_is_not_needed_is_due_after_each_pause() -> None:
    made = pacing(QUICK, SLOW)
    assert made.due_ms(SLOW, 100) == 100, "nothing was brought to it yet"
    made.answered(SLOW, 100)
    assert made.due_ms(SLOW, 109) == 100 + PAUSE_MS
    made.asked(SLOW, 101)
    assert made.due_ms(SLOW, 109) == 100 + PAUSE_MS


def test_it_is_due_sooner_when_a_preferred_one_is_late() -> None:
    made = pacing(QUICK, SLOW)
    made.answered(SLOW, 100)
    made.answered(QUICK, 101)
    assert made.due_ms(SLOW, 101) == made.due_ms(SLOW, 102) == 101 + PATIENCE_MS
    assert made.due_ms(QUICK, 102) == 101 + PAUSE_MS, "nobody is preferred to it"
    made.asked(QUICK, 102)
    assert made.due_ms(SLOW, 102) == 102 + PATIENCE_MS, "it is about to be sent out again"


def test_who_usually_takes_long_is_late_later_but_never_beyond_the_pause() -> None:
    made = pacing(QUICK, SLOW)
    for now_ms in range(1_000, 100_000, 1_000):
        made.answered(QUICK, now_ms)
        made.asked(QUICK, now_ms + 3)
    made.answered(SLOW, 100_000)
    made.answered(QUICK, 100_000)
    assert made.due_ms(SLOW, 100_000) == 100_000 + 2 + PATIENCE_MS, "three milliseconds, not quite reached by the average"
    for now_ms in range(200_000, 300_000, 1_000):
        made.answered(QUICK, now_ms)
        made.asked(QUICK, now_ms + 900)
    made.answered(SLOW, 300_000)
    made.answered(QUICK, 300_000)
    assert made.due_ms(SLOW, 300_000) == 300_000 + PAUSE_MS


def test_a_preferred_one_is_given_its_usual_time_and_a_little_more() -> None:
    made = pacing(QUICK, SLOW)
    assert not made.is_overdue(SLOW, since_ms=100, now_ms=100 + PATIENCE_MS - 1)
    assert made.is_overdue(SLOW, since_ms=100, now_ms=100 + PATIENCE_MS)
    for now_ms in range(1_000, 100_000, 1_000):
        made.answered(QUICK, now_ms)
        made.asked(QUICK, now_ms + 3)
    assert not made.is_overdue(SLOW, since_ms=100, now_ms=102 + PATIENCE_MS)
    assert made.is_overdue(SLOW, since_ms=100, now_ms=103 + PATIENCE_MS)


class Burst:
    """Appends to a led partition of three nodes, one after the other; counts the leader's rounds with each follower."""

    def __init__(self) -> None:
        # The messages of this cluster take milliseconds.
        self.cluster = Cluster(3, replica_fetch_pause_ms=100)
        (self.group,) = self.cluster.create_topic("t")
        self.leader = self.cluster.leader(self.group)
        self.cluster.run(100)
        self.followers = [node.config.node_id for node in self.cluster.nodes.values() if node is not self.leader]
        self.rounds = dict.fromkeys(self.followers, 0)
        answered = self.leader.fetch_server._pacing.answered

        def count(replica_id: NodeId, now_ms: int) -> None:
            self.rounds[replica_id] += 1
            answered(replica_id, now_ms)

        self.leader.fetch_server._pacing.answered = count  # type: ignore[method-assign]

    def append(self, count: int) -> int:
        """How long all took, in ms."""
        began_ms = self.cluster.now_ms
        for number in range(count):
            self.cluster.produce(self.group, batch(b"%d" % number))
        return self.cluster.now_ms - began_ms


def test_of_two_followers_one_gets_every_append_at_once_and_the_other_several_together() -> None:
    burst = Burst()
    burst.append(50)
    few, many = sorted(burst.rounds.values())
    assert many >= 50
    assert few <= 50 * 2 // 3
    burst.cluster.run(100)
    assert {node.partitions[burst.group].log.end_offset for node in burst.cluster.nodes.values()} == {
        burst.leader.partitions[burst.group].log.end_offset
    }, "and soon it has all of them"


def test_when_the_preferred_follower_is_gone_the_other_one_takes_its_place() -> None:
    burst = Burst()
    usual_ms = burst.append(20)
    preferred = max(burst.followers, key=lambda replica: burst.rounds[replica])
    (other,) = (replica for replica in burst.followers if replica != preferred)
    burst.cluster.stop(preferred)
    assert burst.append(1) < burst.leader.config.replica_fetch_pause_ms // 2, "nobody waited for the other one's pause to end"
    before = burst.rounds[other]
    assert burst.append(20) <= 2 * usual_ms
    assert burst.rounds[other] >= before + 20, "it gets every append at once from now on"
