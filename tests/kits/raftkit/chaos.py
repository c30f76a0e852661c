"""Random histories of an in-memory cluster: faults first, then peace, with a client that remembers what it was promised.

The client appends at whoever leads and reads linearizably from time to time. A committed append must be in every later log;
a read must reach at least as far as everything acknowledged before it began.
"""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

from raftkit.cluster import Cluster, Timing
from raftlake.errors import ErrorCode
from raftlake.raft import events as on
from raftlake.raft.types import NodeId


class ChaosRun:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        voters = self.random.choice([1, 2, 3, 3, 3, 5])
        observers = self.random.choice([0, 0, 1])
        self.timing = Timing(
            latency=(1, self.random.choice([1, 5, 40])),
            flush=(1, self.random.choice([1, 10])),
            fetch_wait=self.random.choice([100, 500]),
            sessions=self.random.random() < 0.5,
            loss=self.random.choice([0.0, 0.0, 0.05]),
            duplicate=self.random.choice([0.0, 0.0, 0.05]),
        )
        #: Voters come and go: each disk has an id, and there are nodes enough to choose from.
        self.changes_voters = seed % 2 == 1
        observers += 2 * self.changes_voters
        ids = range(1, voters + observers + 1)
        self.cluster = Cluster(ids, voters=voters, seed=seed, timing=self.timing, directories=self.changes_voters)
        self.next_value = 0
        #: (acknowledged end offset, its value) once committed at the leader that took it.
        self.pending: list[tuple[int, int, int, int]] = []
        self.acknowledged: dict[int, int] = {}
        #: read id at node -> the largest offset acknowledged before it began
        self.open_reads: dict[tuple[int, int, int], int] = {}
        self.reads_answered = 0

    def run(self, steps: int = 60) -> None:
        cluster = self.cluster
        cluster.start()
        for _ in range(steps):
            self.disturb()
            if self.changes_voters and self.random.random() < 0.5:
                self.change_voters()
            for _ in range(self.random.randrange(4)):
                self.append()
                self.read()
                cluster.run(self.random.choice([1, 5, 50]))
                self.collect()
            cluster.run(self.random.choice([1, 10, 100, 1500]))
            self.collect()
        self.make_peace()

    def disturb(self) -> None:
        cluster = self.cluster
        node_id = self.random.choice(list(cluster.nodes))
        node = cluster.nodes[node_id]
        match self.random.randrange(10):
            case 0 | 1:
                if node.core is not None:
                    cluster.crash(node_id, noticed=self.random.random() < 0.7)
            case 2 | 3 | 4:
                if node.core is None:
                    node.boot()
            case 5:
                side = [i for i in cluster.nodes if self.random.random() < 0.5]
                cluster.partition(side, [i for i in cluster.nodes if i not in side])
            case 6:
                a, b = self.random.choice(list(cluster.nodes)), self.random.choice(list(cluster.nodes))
                cluster.cut = cluster.cut | {(a, b)}
            case 7:
                cluster.heal()
            case 8:
                if node.core is not None:
                    node.step(on.PeerUnreachable(peer=node.core.leader_id))
            case _:
                leader = cluster.leader()
                if leader is not None and self.random.random() < 0.3:
                    cluster.nodes[leader.local.id].step(on.ResignRequested())

    def change_voters(self) -> None:
        """Whoever believes to lead is asked to add or remove somebody, itself included."""
        for node in self.cluster.nodes.values():
            if node.core is None or not node.core.is_leader:
                continue
            someone = self.random.choice(list(self.cluster.nodes))
            if someone in node.core.voters:
                self.cluster.remove_voter(node.id, someone)
            else:
                self.cluster.add_voter(node.id, someone)

    def check_voters(self) -> int:
        """No two sets that follow one another have majorities without a common voter; how often they changed."""
        sets = [batch.voters for batch in self.cluster.nodes[NodeId(1)].batches if batch.voters is not None]
        for old, new in pairwise([self.cluster.voters, *sets]):
            ids = sorted({*old.ids, *new.ids})
            smallest = (old.majority - 1, new.majority - 1)
            for split in product((True, False), repeat=len(ids)):
                side = [node_id for node_id, chosen in zip(ids, split, strict=True) if chosen]
                has_old = sum(node_id in old for node_id in side) > smallest[0]
                has_new = sum(node_id in new and node_id not in side for node_id in ids) > smallest[1]
                assert not (has_old and has_new), f"{side} of {old.ids} and the rest of {new.ids} are majorities"
        return len(sets)

    def append(self) -> None:
        for node in self.cluster.nodes.values():
            if node.core is not None and node.core.is_leader:
                self.next_value += 1
                end = self.cluster.append(node.id, self.next_value)
                self.pending.append((node.id, node.generation, node.core.epoch, end))
                self.acknowledgeable(end, self.next_value, node.core.epoch)

    def acknowledgeable(self, end: int, value: int, epoch: int) -> None:
        self.values = getattr(self, "values", {})
        self.values[epoch, end] = value

    def read(self) -> None:
        for node in self.cluster.nodes.values():
            if node.core is not None:
                read_id = self.cluster.read(node.id)
                self.open_reads[node.id, node.generation, read_id] = max(self.acknowledged, default=0)

    def collect(self) -> None:
        """Note acknowledgements and check the reads that were answered."""
        still_pending = []
        for node_id, generation, epoch, end in self.pending:
            node = self.cluster.nodes[node_id]
            if node.generation != generation or node.core is None or node.core.epoch != epoch or not node.core.is_leader:
                continue  # Its fate is unknown.
            if node.core.high_watermark >= end:
                self.acknowledged[end] = self.values[epoch, end]
            else:
                still_pending.append((node_id, generation, epoch, end))
        self.pending = still_pending
        for (node_id, generation, read_id), floor in list(self.open_reads.items()):
            node = self.cluster.nodes[node_id]
            answer = node.reads.pop(read_id, None)
            if answer is not None:
                if answer.error is ErrorCode.NONE:
                    self.reads_answered += 1
                    assert answer.offset >= floor, f"read {read_id} at {answer.offset}, acknowledged before: {floor}"
                del self.open_reads[node_id, generation, read_id]
            elif node.generation != generation:
                del self.open_reads[node_id, generation, read_id]

    def make_peace(self) -> None:
        """Without faults there is a leader, everything acknowledged is there, and all logs are the same."""
        cluster = self.cluster
        cluster.heal()
        cluster.timing.loss = cluster.timing.duplicate = 0.0
        for node_id, node in cluster.nodes.items():
            if node.core is not None and node.core.is_resigning:
                cluster.crash(node_id)
            if node.core is None:
                node.boot()
        leader = cluster.await_leader(60_000)
        cluster.run(3_000)
        self.collect()
        leader = cluster.await_leader(60_000)
        end = cluster.append(leader.local.id, "last")
        cluster.run_until(lambda: all(node.alive.high_watermark >= end for node in cluster.nodes.values()), 30_000)
        logs = [[(b.base_offset, b.epoch, b.payload) for b in node.batches] for node in cluster.nodes.values()]
        assert all(log == logs[0] for log in logs)
        by_end = {batch.end_offset: batch.payload for batch in cluster.nodes[leader.local.id].batches}
        for end, value in self.acknowledged.items():
            assert by_end.get(end) == value, f"acknowledged {value} at {end} is lost"
