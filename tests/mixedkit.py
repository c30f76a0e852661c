"""A quorum of Kafka's own Raft implementation and raftlake nodes, started, stopped and checked by a test.

`check` is what every story ends with: everybody lives, nobody complained, and the logs are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from mixednodes import HOST, PATIENCE_SECONDS, TOPIC, JavaNode, Node, OurNode, free_ports, wait_until


def _hands_over_to(leader: OurNode, among: tuple[int, ...]) -> bool:
    return any(replica["lag"] == 0 for replica in leader.describe().get("replicas", []) if replica["nodeId"] in among)


class MixedQuorum:
    """`java` and `ours` are the ids of the voters of each kind. Nodes are started by the test."""

    def __init__(
        self,
        directory: Path,
        jars: Path,
        *,
        java: tuple[int, ...],
        ours: tuple[int, ...],
        throughput: int = 50,
        java_settings: Mapping[str, str] | None = None,
        our_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.jars = jars
        ports = dict(zip((*java, *ours), free_ports(len(java) + len(ours)), strict=True))
        self.voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in sorted(ports.items()))
        self.java = {
            node_id: JavaNode(
                node_id, ports[node_id], self._directory(node_id), jars=jars, voters=self.voters, throughput=throughput,
                settings=java_settings or {},
            )
            for node_id in java
        }  # fmt: skip
        self.ours = {node_id: self._our(node_id, ports[node_id], our_settings or {}) for node_id in ours}

    def _directory(self, node_id: int) -> Path:
        path = self.directory / f"node-{node_id}"
        path.mkdir(parents=True)
        return path

    def _our(self, node_id: int, port: int, settings: Mapping[str, str]) -> OurNode:
        (http_port,) = free_ports(1)
        return OurNode(node_id, port, self._directory(node_id), voters=self.voters, http_port=http_port, settings=settings)

    def add_java_observer(self, node_id: int, bootstrap: Node, **settings: str) -> JavaNode:
        """Not started yet."""
        (port,) = free_ports(1)
        node = JavaNode(node_id, port, self._directory(node_id), jars=self.jars, bootstrap=bootstrap.address, settings=settings)
        self.java[node_id] = node
        return node

    def add_our_observer(self, node_id: int, **settings: str) -> OurNode:
        """Not started yet."""
        (port,) = free_ports(1)
        node = self.ours[node_id] = self._our(node_id, port, settings)
        return node

    @property
    def nodes(self) -> dict[int, JavaNode | OurNode]:
        return {**self.java, **self.ours}

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            self.nodes[node_id].start()

    def leader_of(self, epoch_above: int = 0) -> tuple[int, int] | None:
        """(leader, epoch) of the newest epoch that a running node knows, when it is above `epoch_above`."""
        known = [node.election() for node in self.nodes.values() if node.is_alive]
        leader_id, epoch = max(known, key=lambda each: (each[1], each[0]), default=(-1, -1))
        return (leader_id, epoch) if leader_id >= 0 and epoch > epoch_above and self.nodes[leader_id].is_alive else None

    def await_leader(self, among: tuple[int, ...] | None = None, epoch_above: int = 0) -> tuple[int, int]:
        def found() -> tuple[int, int] | None:
            leader = self.leader_of(epoch_above)
            return leader if leader is not None and (among is None or leader[0] in among) else None

        leader: tuple[int, int] = wait_until(found, f"a leader among {among} above epoch {epoch_above}")
        return leader

    def make_lead(self, *among: int) -> tuple[int, int]:
        """Have one of `among`, of three running voters, lead: any other leader is stopped gracefully, at a moment when nobody
        else has a log that could win."""
        leader_id, epoch = self.await_leader()
        if leader_id in among:
            return leader_id, epoch
        self.settle()
        rivals = [self.nodes[node_id] for node_id in (1, 2, 3) if node_id not in (leader_id, *among)]
        for rival in rivals:
            rival.stop()
            if leader_id in self.ours:
                self.append(leader_id, 5)
            self.settle(above=rival.log_end)
        if leader_id in self.ours:
            wait_until(partial(_hands_over_to, self.ours[leader_id], among), f"{among} caught up with {leader_id}")
        self.nodes[leader_id].stop()
        for rival in rivals:
            rival.start()
        found = self.await_leader(among, epoch_above=epoch)
        self.nodes[leader_id].start()
        self.settle()
        return found

    def append(self, node_id: int, count: int, *, wait: bool = True) -> None:
        """Append through one of our nodes, one record a batch, as Kafka's Raft writes them."""
        producer = Producer(
            {"bootstrap.servers": self.ours[node_id].address, "acks": "all", "batch.num.messages": 1, "linger.ms": 0}
        )
        failures: list[object] = []
        for number in range(count):
            producer.produce(
                TOPIC, b"record %d of node %d" % (number, node_id), partition=0,
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )  # fmt: skip
        left = producer.flush(PATIENCE_SECONDS if wait else 1.0)
        if wait:
            assert not left and not failures, f"{left} records unsent, {failures[:1]}"

    def settle(self, above: int = -1) -> int:
        """Wait until every running node has committed more than `above`; the offset below which all have."""
        running = [node for node in self.nodes.values() if node.is_alive]
        wait_until(lambda: all(node.high_watermark > above for node in running), f"high watermarks above {above} everywhere")
        return min(node.high_watermark for node in running)

    def check(self, above: int = 0) -> None:
        """Everybody lives, nobody complained, all have committed more than `above` and hold the same bytes up to there."""
        offset = self.settle(above)
        for node in self.nodes.values():
            assert node.is_alive, f"node {node.node_id} ended: {node.output[-3000:]}"
            assert not node.trouble(), f"node {node.node_id}: {node.trouble()[:5]}"
        start = max(node.log_start for node in self.nodes.values())
        logs = {node_id: node.log_bytes(offset, start) for node_id, node in self.nodes.items()}
        first = next(iter(logs.values()))
        assert first, f"nothing to compare between {start} and {offset}"
        for node_id, log in logs.items():
            assert log == first, f"the log of node {node_id} differs from {start} to {offset}: {len(log)}, {len(first)} bytes"

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.is_alive:
                node.process.kill()
                node.process.wait()
