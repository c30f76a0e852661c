"""What a follower that is paused (SIGSTOP) and goes on costs a writer whose leader and other follower are well.

Each append here takes some milliseconds: messages take one each way, syncs one. Bounds are in simulated time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.config import RaftConfig
from raftlake.raft.messages import FetchResponse
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication import fetcher
from raftlake.replica.replication.fetcher import cut_into_batches
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request

#: What a pause may add to one append.
COST_MS_MAX = 100


class Writing:
    """One append at a time to a partition whose leader stays; `longest_ms` is the longest one since it was reset."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.cluster = Cluster(3, **settings)
        self.groups = self.cluster.create_topic("t", partitions)
        self.group = self.groups[0]
        self.leader = self.cluster.leader(self.group)
        self.epoch = self.leader.partitions[self.group].core.epoch
        self.followers = [node.config.node_id for node in self.cluster.nodes.values() if node is not self.leader]
        self.value = b"x"
        self.longest_ms = 0
        self.count = 0
        self._began_ms = 0
        self._append()
        self.cluster.run(300)

    def _append(self) -> None:
        self._began_ms = self.cluster.now_ms
        request = produce_request(self.group, batch(self.value))
        answers = self.cluster.send(self.leader, ApiKey.PRODUCE, request, version=9)
        assert not answers
        self._wait(answers)

    def _wait(self, answers: list[Any]) -> None:
        self.longest_ms = max(self.longest_ms, self.cluster.now_ms - self._began_ms)
        if not answers:
            self.cluster.after(1, lambda: self._wait(answers))
            return
        assert answers[0].topics[0].partitions[0].error == 0
        self.count += 1
        self._append()

    def other(self, follower: NodeId) -> NodeId:
        return next(each for each in self.followers if each != follower)

    def preferred(self) -> NodeId:
        """The follower that gets each append at once."""
        pacing = self.leader.fetch_server._pacing
        return next(each for each in self.followers if pacing.is_needed(each, self.followers, 1))

    def require_unharmed(self) -> None:
        assert self.leader.partitions[self.group].core.epoch == self.epoch, "nobody else was elected"
        assert self.longest_ms <= COST_MS_MAX


@pytest.mark.parametrize("phase_ms", range(4))
@pytest.mark.parametrize("is_preferred", [True, False])
def test_one_paused_follower(is_preferred: bool, phase_ms: int) -> None:
    writing = Writing()
    victim = writing.preferred() if is_preferred else writing.other(writing.preferred())
    writing.cluster.run(phase_ms)
    writing.cluster.pause(victim)
    writing.cluster.run(2700)
    writing.cluster.resume(victim, timers_first=bool(phase_ms % 2))
    writing.cluster.run(700)
    writing.require_unharmed()


@pytest.mark.parametrize("phase_ms", [*range(6), None])
def test_the_other_one_is_paused_as_the_first_wakes(phase_ms: int | None) -> None:
    """The one that wakes is the only one left. Found while it wrote, it has heard nothing for a fetch timeout and asks for
    pre-votes; the other one cannot answer, and the leader's refusal alone has to bring it back. Phase None: amid a sync."""
    writing = Writing()
    first = writing.preferred()
    if phase_ms is None:
        partition = writing.cluster.nodes[first].partitions[writing.group]
        writing.cluster.run(10, until=lambda: partition.core.flushed_end < partition.log.end_offset)
    else:
        writing.cluster.run(phase_ms)
    writing.cluster.pause(first)
    writing.cluster.run(2700)
    writing.cluster.resume(first, timers_first=False)
    writing.cluster.pause(writing.other(first))
    writing.cluster.run(1200)
    writing.require_unharmed()


def test_the_leaders_disk_is_slow_meanwhile() -> None:
    """Then two followers make the majority; with one of them paused each append waits for the leader's own sync, once."""
    writing = Writing()
    writing.cluster.machines[writing.leader.config.node_id].syncs.slow_down(60)
    writing.cluster.run(500)
    writing.cluster.pause(writing.preferred())
    writing.cluster.run(2500)
    # One sync may have begun just before the append.
    assert writing.longest_ms <= 2 * 60 + 10


def test_one_is_catching_up_on_megabytes_while_the_other_is_paused() -> None:
    writing = Writing(replica_fetch_bytes_max=1 << 20)
    late = writing.preferred()
    writing.cluster.pause(late)
    writing.value = bytes(100_000)
    writing.cluster.run(1500)
    writing.value = b"x"
    writing.cluster.run(50)
    end_offset = writing.leader.partitions[writing.group].log.end_offset
    writing.cluster.resume(late, timers_first=False)
    writing.cluster.pause(writing.other(late))
    writing.cluster.run(500)
    # The one that wakes makes the majority, once it has all that came before: a round of a megabyte takes five milliseconds.
    assert writing.longest_ms <= 5 * (end_offset * 100_000 // (1 << 20) + 2)
    assert end_offset > 200, "tens of megabytes, many rounds"
    assert writing.count > end_offset, "and writing goes on"


def test_a_pause_across_many_partitions() -> None:
    writing = Writing(partitions=24)
    victim = writing.preferred()
    writing.cluster.pause(victim)
    writing.cluster.run(2700)
    writing.cluster.resume(victim, timers_first=False)
    writing.cluster.pause(writing.other(victim))
    writing.cluster.run(1200)
    writing.require_unharmed()


def shared_groups(cluster: Cluster) -> tuple[ReplicaNode, ReplicaNode, GroupId, GroupId]:
    """A leader of two groups, one of its followers, and the groups."""
    groups = cluster.create_topic("t", 6)
    cluster.run(1000)
    by_leader: dict[NodeId, list[GroupId]] = {}
    for group in groups:
        by_leader.setdefault(cluster.leader(group).config.node_id, []).append(group)
    leader_id, led = next((leader_id, led) for leader_id, led in by_leader.items() if len(led) > 1)
    follower = next(node for node in cluster.nodes.values() if node.config.node_id != leader_id)
    return cluster.nodes[leader_id], follower, led[0], led[1]


def test_a_group_that_has_to_ask_again_waits_for_no_round_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged on the way, the records are asked for again after a moment; not after the half second for which the leader
    holds a round in which the other groups have no news."""
    cluster = Cluster(3)
    leader, follower, group, _ = shared_groups(cluster)
    damaged: list[int] = []

    def cut(response: FetchResponse) -> FetchResponse:
        if damaged or response.batches[0].payload is None:
            return cut_into_batches(response)
        damaged.append(cluster.now_ms)
        return replace(response, batches=())

    monkeypatch.setattr(fetcher, "cut_into_batches", cut)
    cluster.produce(group, batch(b"x"))
    end_offset = leader.partitions[group].log.end_offset
    nodes = list(cluster.nodes.values())
    cluster.run(COST_MS_MAX, until=lambda: all(node.partitions[group].log.end_offset == end_offset for node in nodes))
    assert damaged
    del follower


def test_a_group_that_campaigns_while_it_writes_holds_up_no_other() -> None:
    cluster = Cluster(3, raft=RaftConfig(fetch_timeout_ms=400, election_timeout_ms=300))
    leader, follower, slow, other = shared_groups(cluster)
    cluster.machines[follower.config.node_id].syncs.slow_down(2_000)
    cluster.produce(slow, batch(b"x"))
    cluster.run(700)
    cluster.produce(other, batch(b"x"))
    end_offset = leader.partitions[other].log.end_offset
    cluster.run(COST_MS_MAX, until=lambda: follower.partitions[other].log.end_offset == end_offset)
    assert follower.partitions[slow].core.flushed_end < leader.partitions[slow].log.end_offset, "it writes still"
