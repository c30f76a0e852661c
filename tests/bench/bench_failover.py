"""How long nothing can be written: after kill -9 of the leader, and from the start of a quorum."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Result, median
from raftlake import LocalQuorum
from raftlake.client import Client

ROUNDS = 5
#: Writes before and after each kill, so that the gap lies between two acknowledged ones.
SETTLE_S = 1.0
TIMEOUT_S = 30.0


def measure_start() -> Iterator[Result]:
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            began = time.perf_counter()
            with LocalQuorum(nodes=3, data_dir=Path(directory)) as quorum, Client(quorum.bootstrap_servers) as client:
                client.create_topic("bench-start", partitions=1)
                client.append("bench-start", b"first")
                seconds.append(time.perf_counter() - began)
    method = "three processes from nothing, a topic is created, one append is acknowledged; median of 3"
    yield Result(name="start to first write", value=median(seconds), unit="s", method=method, at_most=3)


class Writer(threading.Thread):
    """Appends one record after the other; keeps the times of the acknowledgements."""

    def __init__(self, client: Client, topic: str) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.topic = topic
        self.acknowledged_at: list[float] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.client.append(self.topic, b"x")
            self.acknowledged_at.append(time.perf_counter())

    def wait_for_writes(self, seconds: float) -> None:
        """Until writes went on for that long."""
        deadline = time.perf_counter() + TIMEOUT_S
        begun = len(self.acknowledged_at)
        while len(self.acknowledged_at) <= begun or self.acknowledged_at[-1] - self.acknowledged_at[begun] < seconds:
            assert self.is_alive(), "the writer gave up"
            assert time.perf_counter() < deadline, "no writes"
            time.sleep(0.01)

    def gap_after(self, at_s: float) -> float:
        times = self.acknowledged_at
        first = next(index for index in range(len(times) - 1, -1, -1) if times[index] <= at_s)
        return max(later - earlier for earlier, later in zip(times[first:], times[first + 1 :], strict=False))


def measure_gap() -> Iterator[Result]:
    gaps_ms = []
    with tempfile.TemporaryDirectory() as directory:
        with LocalQuorum(nodes=3, data_dir=Path(directory)) as quorum, Client(quorum.bootstrap_servers) as client:
            client.create_topic("bench-gap", partitions=1)
            writer = Writer(client, "bench-gap")
            writer.start()
            for _ in range(ROUNDS):
                writer.wait_for_writes(SETTLE_S)
                victim = client.describe_topic("bench-gap").partitions[0].leader_id
                killed_at = time.perf_counter()
                quorum.kill(victim)
                writer.wait_for_writes(SETTLE_S)
                gaps_ms.append(1000 * writer.gap_after(killed_at))
                quorum.start(victim)
                wait_until_caught_up(client, victim)
            writer.stopping.set()
            writer.join()
    method = f"kill -9 of the partition's leader under raftlake.Client, one append at a time; median of {ROUNDS}: " + ", ".join(
        f"{gap:.0f}" for gap in gaps_ms
    )
    yield Result(name="write gap after kill -9", value=median(gaps_ms), unit="ms", method=method, at_most=1000)


def wait_until_caught_up(client: Client, node_id: int) -> None:
    target = client.describe_quorum("bench-gap", 0).high_watermark
    deadline = time.perf_counter() + TIMEOUT_S
    while True:
        ends = {voter.replica_id: voter.log_end_offset for voter in client.describe_quorum("bench-gap", 0).voters}
        if ends.get(node_id, -1) >= target:
            return
        assert time.perf_counter() < deadline, f"node {node_id} did not catch up: {ends} of {target}"
        time.sleep(0.05)
