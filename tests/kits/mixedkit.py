"""A quorum of Kafka's own Raft implementation and raftlake nodes, started, stopped and checked by a test.

`check` is what every story ends with: everybody lives, nobody complained, and the logs are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from mixednodes import HOST, TOPIC, JavaNode, Node, OurNode, wait_until
from raftlake.runtime.free_ports import free_ports
from waitkit import attempt


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
        ports = dict(zip((*java, *ours), free_ports(HOST, len(java) + len(ours)), strict=True))
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
        (http_port,) = free_ports(HOST, 1)
        return OurNode(node_id, port, self._directory(node_id), voters=self.voters, http_port=http_port, settings=settings)

    def add_java_observer(self, node_id: int, bootstrap: Node, **settings: str) -> JavaNode:
        """Not started yet."""
        (port,) = free_ports(HOST, 1)
        node = JavaNode(node_id, port, self._directory(node_id), jars=self.jars, bootstrap=bootstrap.address, settings=settings)
        self.java[node_id] = node
        return node

    def add_our_observer(self, node_id: int, **settings: str) -> OurNode:
        """Not started yet."""
        (port,) = free_ports(HOST, 1)
        node = self.ours[node_id] = self._our(node_id, port, settings)
        return node

    @property
    def nodes(self) -> dict[int, JavaNode | OurNode]:
        return {**self.java, **self.ours}

    def start(self, *node_ids: int) -> None:
        started = [self.nodes[node_id] for node_id in node_ids or tuple(self.nodes)]
        for node in started:
            node.launch()
        for node in started:
            node.await_start()

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
        """Have one of `among`, of three running voters, lead. Whoever leads then may lose its office at any time: on a busy
        machine its followers miss it."""

        def leads() -> tuple[int, int] | None:
            leader_id, epoch = self.await_leader()
            if leader_id not in among:
                self._depose(leader_id, epoch, among)
            leader = self.leader_of()
            return leader if leader is not None and leader[0] in among else None

        leader: tuple[int, int] = attempt(leads, f"a leader among {among}")
        return leader

    def _depose(self, leader_id: int, epoch: int, among: tuple[int, ...]) -> None:
        """Stop a leader gracefully, at a moment when nobody but `among` has a log that could win."""
        self.settle()
        rivals = [self.nodes[node_id] for node_id in (1, 2, 3) if node_id not in (leader_id, *among)]
        for rival in rivals:
            rival.stop()
            self.append(5)
            self.settle(above=rival.log_end)
        if leader_id in self.ours:
            wait_until(
                lambda: _hands_over_to(self.ours[leader_id], among) or self.leader_of() != (leader_id, epoch),
                f"{among} caught up with {leader_id}",
            )
        self.nodes[leader_id].stop()
        for rival in rivals:
            rival.start()
        self.await_leader(among, epoch_above=epoch)
        self.nodes[leader_id].start()
        self.settle()

    def hand_over(self, giving: tuple[int, ...], taking: tuple[int, ...]) -> None:
        """A leader out of `giving` stops, and its EndQuorumEpoch makes one of `taking` campaign. (Where that one has missed the
        leader before, or hears first that the connection is closed, it campaigns for that reason. Where it lags, another voter
        is elected. Then it is tried again.)"""

        def told() -> bool:
            leader_id, epoch = self.make_lead(*giving)
            before = {node_id: self.nodes[node_id].times_told_of_an_end for node_id in taking}
            self.nodes[leader_id].stop()
            successor, _ = self.await_leader(epoch_above=epoch)
            self.nodes[leader_id].start()
            return successor in taking and any(
                self.nodes[node_id].times_told_of_an_end > count for node_id, count in before.items()
            )

        attempt(told, f"a leader out of {giving} that stops, and one of {taking} that it has told so")

    def append(self, count: int) -> int:
        """Have `count` records more committed at every running node, and return the offset that all have committed. Who leads
        may change meanwhile: a Java leader appends by itself, one of ours is sent what is missing, one record a batch, as
        Kafka's Raft writes them. A record that was sent in vain may be in the log nevertheless."""
        target = max(node.high_watermark for node in self.running) + count

        def is_committed() -> bool:
            watermarks = [node.high_watermark for node in self.running]
            leader = self.leader_of()
            if leader is not None and leader[0] in self.ours and max(watermarks) < target:
                self.send(leader[0], target - max(watermarks))
            return min(watermarks) >= target

        wait_until(is_committed, f"{count} records more, up to {target}, committed everywhere")
        return target

    def grow(self, count: int, *among: int) -> int:
        """As `append`, by a leader out of `among` who keeps its office for all of the records."""

        def grown() -> int | None:
            leader = self.make_lead(*among)
            offset = self.append(count)
            return offset if self.leader_of() == leader else None

        offset: int = attempt(grown, f"{count} records by one leader out of {among}")
        return offset

    def send(self, node_id: int, count: int) -> None:
        """Offer records to one of our nodes, and wait no longer than a moment for what becomes of them."""
        settings = {"bootstrap.servers": self.ours[node_id].address, "acks": "all", "batch.num.messages": 1, "linger.ms": 0}
        producer = Producer({**settings, "message.timeout.ms": 1000})
        for number in range(count):
            producer.produce(TOPIC, b"record %d of node %d" % (number, node_id), partition=0)
        producer.flush(2.0)
        producer.purge()

    @property
    def running(self) -> list[JavaNode | OurNode]:
        return [node for node in self.nodes.values() if node.is_alive]

    def settle(self, above: int = -1) -> int:
        """Wait until every running node has committed more than `above`; the offset below which all have."""
        running = self.running
        wait_until(lambda: all(node.high_watermark > above for node in running), f"high watermarks above {above} everywhere")
        return min(node.high_watermark for node in running)

    def check(self, above: int = -1) -> None:
        """Everybody lives, nobody complained, all have committed more than `above` and hold the same bytes up to there."""
        self.settle(above)
        for node in self.nodes.values():
            assert node.is_alive, f"node {node.node_id} ended: {node.output[-3000:]}"
            assert not node.trouble(), f"node {node.node_id}: {node.trouble()[:5]}"
        logs = wait_until(self._copies, "something to compare in all logs")
        first = next(iter(logs.values()))
        for node_id, log in logs.items():
            assert log == first, f"the log of node {node_id} differs: {len(log)}, {len(first)} bytes"

    def _copies(self) -> dict[int, bytes] | None:
        """What each node has of the offsets that all have committed and none has trimmed; None when that changed meanwhile."""
        nodes = self.nodes
        offset = self.settle()
        start = max(node.log_start for node in nodes.values())
        try:
            logs = {node_id: node.log_bytes(offset, start) for node_id, node in nodes.items()}
        except FileNotFoundError:
            return None
        is_whole = start == max(node.log_start for node in nodes.values())
        return logs if is_whole and any(logs.values()) else None

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.is_alive:
                node.process.kill()
                node.process.wait()
