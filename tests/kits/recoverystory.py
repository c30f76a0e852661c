"""Golden traces of KIP-405's unclean elections: two brokers, A and B, a log that lost its tail, and `raftlake recover`.

A and B vote. A leads first. `cut` takes from a stopped broker what its crash may have taken, or what it never had as an
out-of-sync broker. `recover` writes what the command writes, on the simulated disk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raftlake.kv.keys import tier_key
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import recovery_of
from raftlake.runtime.recovery.beginning import OnlyVoter, begin_epoch
from raftlake.runtime.recovery.comparison import Comparison, compare
from raftlake.runtime.recovery.recover import epoch_behind
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.sim.invariants.tier import CommittedKeys
from raftlake.sim.tier import ObjectStore
from raftlake.sim.tier_table import facts_of
from raftlake.tier.told import ToldPartition
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster
from tierstory import TierStory, epoch_of, epochs_of, le, records_of

NOBODY = NodeId(-1)


class RecoveryStory(TierStory):
    """The commands of `TierStory`, and those of a pair of brokers."""

    def __init__(self) -> None:
        super().__init__()
        self._brokers: dict[str, NodeId] = {}
        self._recoveries = 0

    def perform(self, command: str) -> list[str]:
        words = [str(self._brokers.get(word, word)) for word in command.split()]
        return super().perform(" ".join(words))

    # --- commands

    def do_pair(self) -> None:
        """pair: A and B vote, and A leads orders-0."""
        self.watched = NOBODY
        self.cluster = Cluster(2, tier_lines=self, is_watched=False, tier_target_lag_ms=10**9)
        (self.group,) = self.cluster.create_topic("orders")
        leader = self.cluster.leader(self.group).config.node_id
        self._brokers = {"A": leader, "B": NodeId(3 - leader)}
        self._listen()

    def do_watch(self, node: str) -> None:
        """watch A: it only follows from now on, and is told about."""
        self.watched = NodeId(int(node))

    def do_close(self, node: str = "") -> None:
        """close B: the last segment of a stopped broker ends here."""
        if node:
            self._log_of(node).roll()
        else:
            super().do_close()

    def do_cut(self, node: str, offset: str) -> None:
        """cut B 1: the log of a stopped broker ends there."""
        log = self._log_of(node)
        log.truncate_to(Offset(int(offset)))
        log.settle()

    def do_wipe(self, node: str) -> None:
        """wipe B: a stopped broker is reimaged."""
        self.cluster.wipe(int(node))

    def do_recover(self, node: str) -> None:
        """recover B: a stopped broker is the only voter from now on. What the table shows and its log lacks is told first."""
        machine = self.cluster.machines[NodeId(int(node))]
        self._recoveries += 1
        voter = OnlyVoter(
            node_id=machine.node_id,
            directory_id=DirectoryId(self._recoveries.to_bytes(16, "big")),
            endpoint=self.cluster.listeners[machine.node_id],
        )
        machine.disk.is_quick = True
        tables = self._comparison()
        for group in sorted(machine.disk.logs, key=lambda each: each == METADATA_GROUP):
            self._begin(machine.disk, group, voter, tables)
        machine.disk.is_quick = False
        machine.config = replace(machine.config, directory_id=voter.directory_id)
        self.cluster.voters = {machine.node_id: voter.endpoint}
        self._believe(machine.disk)

    def do_consume(self, offset: str, epoch: str, node: str) -> None:
        """consume 3 LE-1 B: a consumer at offset 3, whose record before is of LE-1, asks broker B."""
        found = self.cluster.fetch(
            self.cluster.nodes[NodeId(int(node))], self.group, int(offset), last_fetched_epoch=epoch_of(epoch)
        )
        diverging = found.diverging_epoch
        told = "reads on" if diverging is None else f"diverging epoch: {le(diverging.epoch)} ends at {diverging.end_offset}"
        self.lines.append(f"{found.error.name} {told}")

    def do_tables(self) -> None:
        """tables: what the brokers, the remote storage and its metadata hold."""
        if not self._brokers:
            super().do_tables()
            return
        for name, node_id in sorted(self._brokers.items()):
            self._tell_broker(name, node_id)
        self._tell_store()
        if self.cluster.nodes:
            self._tell_keys(self.cluster.leader(self.group))

    # --- recoveries

    def _begin(self, disk: SimulatedDisk, group: Any, voter: OnlyVoter, tables: Comparison) -> None:
        log = disk.open(group)
        last = Epoch(max(log.epochs[-1][0] if log.epochs else 0, tables.epoch_of(group, METADATA_GROUP)))
        epoch = epoch_behind(group, last, (disk.load(group) or ElectionState()).epoch)
        facts = tables.facts_of(group)
        shown = None if facts is None else compare(facts, log.start_offset, log.end_offset, log.epochs)
        if shown is not None and shown.reason:
            self.lines.append(f"without --unclean it refuses: {shown.reason}")
        if group == self.group:
            self.lines.append(f"it goes on in {le(epoch)} from {log.end_offset}")
        begin_epoch(disk, disk, group, epoch, voter, is_quorum=group == METADATA_GROUP)

    def _comparison(self) -> Comparison:
        """What `tier.inventory` reads of Delta tables."""
        newest = Epoch(max((shown.leader_epoch for each, shown in self._store.lineages.items() if each.group == self.group)))
        facts = facts_of(*self._newest())
        told = ToldPartition(facts=facts, leader_epoch=newest, auxiliary=None, lacking="", timestamp_ms=-1)
        return Comparison(partitions={self.group: told}, failure=None)

    def _believe(self, disk: SimulatedDisk) -> None:
        """What the survivor has is what was committed: the store judges copies by it."""
        committed = self._store._committed
        for group, log in disk.logs.items():
            known: Any = committed.of(group)
            for each in (known.batches, known._ends, known._commit_epochs, known.voter_sets):
                each.clear()
            assert known.extend(log, log.end_offset, log.epochs[-1][0])
        self._store.keys = CommittedKeys(committed)

    def _tiered_end(self, node: ReplicaNode) -> int:
        """Of the table as the newest recovery made it."""
        tiered = node.remote_log.tiered(node.partitions[self.group])
        is_current = tiered is not None and tiered.recovery == recovery_of(node.kv.machine)
        return super()._tiered_end(node) if is_current else -1

    # --- tables

    @property
    def _store(self) -> ObjectStore:
        assert self.cluster.store is not None
        return self.cluster.store

    def _newest(self) -> Any:
        """The lineage that the table shows, and what it shows of it."""
        found = [(each, shown) for each, shown in self._store.lineages.items() if each.group == self.group]
        return max(found, key=lambda pair: pair[0].incarnation)

    def _log_of(self, node: str) -> MemoryLog:
        node_id = NodeId(int(node))
        assert node_id not in self.cluster.nodes, "it runs"
        return self.cluster.disks[node_id].logs[self.group]

    def _tell_broker(self, name: str, node_id: NodeId) -> None:
        node = self.cluster.nodes.get(node_id)
        if node is not None:
            role = "leader" if node.partitions[self.group].core.is_leader else "follower"
            self._tell_node(f"broker {name}, {role}", node)
        elif self.group in self.cluster.disks[node_id].logs:
            log = self.cluster.disks[node_id].logs[self.group]
            self.lines.append(f"broker {name}, stopped: node {node_id}")
            self.lines += records_of(log.read(log.start_offset, log.end_offset, 1 << 20))
            self.lines.append(f"  leader_epochs: {epochs_of(log.epochs)}")
        else:
            self.lines.append(f"broker {name}, stopped: node {node_id} has nothing")

    def _tell_store(self) -> None:
        lineage, shown = self._newest()
        for segment, data in zip(shown.segments, shown.batches, strict=True):
            self.lines.append(f"remote storage, incarnation {lineage.incarnation}: {self._name(segment)}")
            self.lines += records_of(data)
        for segment, data, _ in self._store.superseded.get(self.group, []):
            self.lines.append(f"superseded: {self._name(segment)}")
            self.lines += records_of(data)

    def _tell_keys(self, node: Any) -> None:
        key = tier_key(id_to_text(self.group.topic_id), self.group.partition)
        if node.kv.machine.get(key) is not None:
            super()._tell_keys(node)
