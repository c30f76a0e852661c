"""Whole nodes that begin behind what the remote tier holds: lost disks, crashes at each step, producers, voters, slow tiers."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, LocalStartRpc, PeerRpc
from raftlake.ports.tier import Lineage
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition
from raftlake.sim.machine import Machine
from raftlake.sim.tier import SimulatedTier
from raftlake.wire import producer_snapshot
from replica_cluster import Cluster, batch

PATIENCE_MS = 30_000
IDS = {"producer_id": 4_242, "producer_epoch": 0}


class World:
    """Three voters whose partition is in the tier up to `copied`. Their logs begin there, but for that of `away`."""

    def __init__(self, away: int = 3, *, directories: bool = False) -> None:
        self.cluster = Cluster(3, tier_lines=io.StringIO(), directories=directories, tier_target_lag_ms=10**9)
        (self.group,) = self.cluster.create_topic("orders")
        self.away = NodeId(away)
        self.idempotent(0, b"first")
        self.settle()
        self.cluster.stop(away)
        self.told: list[PeerRpc] = []
        self.cluster.overhear(lambda source, _, rpc: self.told.append(rpc) if source == away else None)
        self.idempotent(1, b"second")
        self.cluster.produce(self.group, batch(*[b"x"] * 5))
        self.copied = self.move_on()
        self.cluster.produce(self.group, batch(b"local"))

    def idempotent(self, sequence: int, value: bytes) -> int:
        """Produce a batch of one record; its offset."""
        result = self.cluster.produce(self.group, batch(value, base_sequence=sequence, **IDS))
        assert result.error is ErrorCode.NONE, result.error
        return result.base_offset

    def move_on(self, besides: int = -1) -> int:
        """What there is gets into the tier and goes from the local logs. Returns where they begin."""
        nodes = [node for node in self.running() if node.config.node_id != besides]
        end = self.end()
        self.wait(lambda: all(self.committed(node) == end for node in nodes), "committed")
        for node in nodes:
            node.partitions[self.group].roll()
        self.wait(lambda: all(self.tiered_end(node) == end for node in nodes), "copied")
        for node in nodes:
            node.snapshots.trim(node.partitions[self.group], Offset(end))
        self.wait(lambda: all(node.partitions[self.group].core.log_start == end for node in nodes), "trimmed")
        self.cluster.run(1_500)
        return end

    @property
    def store(self) -> Any:
        """The tier of all nodes."""
        return self.cluster.store

    def running(self) -> list[ReplicaNode]:
        return list(self.cluster.nodes.values())

    def tiered_end(self, node: ReplicaNode) -> int:
        tiered = node.remote_log.tiered(node.partitions[self.group])
        return -1 if tiered is None else tiered.end_offset

    def end(self) -> int:
        return self.cluster.leader(self.group).partitions[self.group].log.end_offset

    def settle(self) -> None:
        end = self.end()
        self.wait(lambda: all(self.committed(node) == end for node in self.running()), "committed everywhere")

    def committed(self, node: ReplicaNode) -> int:
        return node.partitions[self.group].high_watermark if self.group in node.partitions else -1

    def wait(self, until: Callable[[], bool], what: str) -> None:
        self.cluster.run(PATIENCE_MS, until=until)
        assert until(), what

    @property
    def machine(self) -> Machine:
        return self.cluster.machines[self.away]

    @property
    def built(self) -> int:
        return self.cluster.nodes[self.away].remote_log_aux.counts.built

    def data(self, node: ReplicaNode) -> bytes:
        log = node.partitions[self.group].log
        return log.read(Offset(max(log.start_offset, self.copied)), log.end_offset, 1 << 20)

    def require_equal(self) -> None:
        leader = self.cluster.leader(self.group)
        for node in self.running():
            mine, its = node.partitions[self.group], leader.partitions[self.group]
            assert self.data(node) == self.data(leader)
            assert mine.core.voters == its.core.voters
            assert producers_of(mine) == producers_of(its)
            assert list(node.remote_log.epochs(mine)) == list(node.remote_log.epochs(its))


def producers_of(partition: Partition) -> list[Any]:
    """All that is remembered of them, but for when they were seen."""
    rows = producer_snapshot.encode_packed(partition.producers.packed(partition.log.end_offset))
    return [each._replace(timestamp_ms=0) for each in producer_snapshot.decode(rows)]


def lead(world: World, node_id: NodeId) -> None:
    """Make that node lead the partition: the others are killed in turn until it does."""
    for _ in range(12):
        leader = world.cluster.leader(world.group).config.node_id
        if leader == node_id:
            return
        world.cluster.stop(leader)
        world.cluster.leader(world.group)
        world.cluster.start(leader)
        world.settle()
    raise AssertionError(f"node {node_id} never led")


@pytest.mark.parametrize("directories", [False, True])
@pytest.mark.parametrize("how", ["away", "lost disk"])
def test_a_node_that_was_away_or_lost_its_disk_begins_behind_the_tier(how: str, *, directories: bool) -> None:
    world = World(directories=directories)
    if how == "lost disk":
        world.machine.disk.wipe()
    world.cluster.start(world.away)
    world.settle()
    assert world.built == 1
    assert world.cluster.nodes[world.away].partitions[world.group].log.start_offset == world.copied
    world.require_equal()


@pytest.mark.parametrize("directories", [False, True])
def test_what_producers_sent_before_is_known_when_it_leads(*, directories: bool) -> None:
    """A retry from before its log is told as a duplicate, not appended again."""
    world = World(directories=directories)
    world.machine.disk.wipe()
    world.cluster.start(world.away)
    world.settle()
    lead(world, world.away)
    end = world.end()
    assert world.idempotent(1, b"second") < world.copied
    assert world.end() == end, "nothing was appended"
    assert world.idempotent(2, b"third") == end
    world.settle()
    world.require_equal()


def test_a_leaders_log_that_moves_on_between_the_rounds_makes_another_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """testFollowerFetchOffsetOutOfRangeWithTieredStore: the local start moves while the first round is under way."""
    world = World()
    first, is_asked = world.copied, list[str]()
    find = SimulatedTier.find

    def late(tier: SimulatedTier, lineage: Lineage, offset: Offset, done: Any) -> None:
        is_asked.append("")
        world.cluster.after(10_000, lambda: find(tier, lineage, offset, done))

    monkeypatch.setattr(SimulatedTier, "find", late)
    world.cluster.start(world.away)
    world.wait(lambda: bool(is_asked), "the table to be asked")
    monkeypatch.undo()
    world.copied = world.move_on(besides=world.away)
    assert world.copied > first
    world.settle()
    assert world.built == 2
    world.require_equal()


def states_of(machine: Machine, group: GroupId) -> tuple[int, int, list[int]]:
    """Where the log on the disk begins and ends, and the snapshots."""
    log = machine.disk.logs[group]
    return log.start_offset, log.end_offset, [each.offset for each in machine.disk.snapshots.ids(group)]


def crash_at(calls_left: int) -> str | None:
    """The replica loses power at that call of a port, counted from its start; what is on its disk then. None: it caught up."""
    world = World()
    old_start, old_end, _ = states_of(world.machine, world.group)
    went_down: list[str] = []
    world.cluster.on_down = lambda node_id, reason: went_down.append(reason)  # type: ignore[method-assign]
    world.cluster.start(world.away)
    world.machine.crash_at_port_call(calls_left)
    while not went_down and world.committed(world.cluster.nodes[world.away]) != world.end():
        world.cluster.run(1)
    start, end, snapshots = states_of(world.machine, world.group)
    if went_down:
        world.cluster.start(world.away)
    world.settle()
    world.require_equal()
    if start != old_start:
        assert start == world.copied and world.copied in snapshots
        return "new log" if went_down else None
    assert end == old_end, "no record is cut before the new beginning is whole"
    return "new snapshot" if world.copied in snapshots else "old log"


def test_a_crash_at_any_step_leaves_the_old_log_untouched_or_the_new_one_whole() -> None:
    found: list[str] = []
    for calls_left in range(1, 1_000):
        state = crash_at(calls_left)
        if state is None:
            break
        found.append(state)
    assert found == sorted(found, key=["old log", "new snapshot", "new log"].index)
    assert set(found) == {"old log", "new snapshot", "new log"}


def test_a_table_that_answers_nothing_for_long_costs_no_leader_and_no_record() -> None:
    """One of two voters builds, and the leader needs its signs of life."""
    world = World()
    store = world.store
    (other,) = world.cluster.followers(world.group)
    world.cluster.stop(other.config.node_id)
    store.draw_fate = lambda: "stalls for ever"
    leader = world.cluster.leader(world.group)
    epoch = leader.partitions[world.group].core.epoch
    world.cluster.start(world.away)
    before = None
    for _ in range(40):
        world.cluster.run(500)
        assert leader.partitions[world.group].core.is_leader
        mine = world.cluster.nodes[world.away].partitions.get(world.group)
        if mine is not None:
            before = before or (mine.log.start_offset, mine.log.end_offset)
            assert (mine.log.start_offset, mine.log.end_offset) == before
    counts = world.cluster.nodes[world.away].remote_log_aux.counts
    assert counts.failures >= 3 and counts.built == 0
    store.draw_fate = lambda: "quick"
    world.wait(lambda: world.built == 1, "the tier to answer")
    world.settle()
    assert world.cluster.leader(world.group).partitions[world.group].core.epoch == epoch, "all of it within one epoch"
    world.require_equal()


def test_a_new_leader_that_needs_this_very_replica_answers_it() -> None:
    """Nothing of the leader's epoch can be committed before: it answers replicas all the same."""
    world = World()
    leader = world.cluster.leader(world.group)
    world.cluster.stop(leader.config.node_id)
    world.cluster.start(world.away)
    world.cluster.run(200)
    world.settle()
    assert world.built == 1
    world.require_equal()


def test_a_node_that_has_not_applied_the_keys_yet_finds_the_table() -> None:
    world = World()
    world.machine.disk.wipe()
    node = world.cluster.start(world.away)
    node.remote_log.tiered = lambda partition: None  # type: ignore[method-assign]
    world.settle()
    assert world.built == 1
    world.require_equal()


def test_the_quorums_own_log_is_never_sought_in_the_tier() -> None:
    world = World()
    world.cluster.start(world.away)
    world.settle()
    assert {rpc.group for rpc in world.told if isinstance(rpc, LocalStartRpc)} == {world.group}


def test_a_node_without_a_tier_gets_the_leaders_snapshot() -> None:
    """The setting comes to one node after the other."""
    world = World()
    world.machine._world = replace(world.machine._world, store=None)
    world.cluster.start(world.away)
    world.settle()
    counts = world.cluster.nodes[world.away].remote_log_aux.counts
    assert (counts.built, counts.failures) == (0, 1)
    mine = world.cluster.nodes[world.away].partitions[world.group]
    assert mine.log.start_offset == world.copied
    leader = world.cluster.leader(world.group).partitions[world.group]
    assert producers_of(mine) == producers_of(leader)
