"""How long nothing can be written, side by side with etcd: after kill -9 of the leader, at a graceful stop, at the start.

Both writers write one record at a time and retry. Ours is `raftlake.Client` as applications use it. etcd's keeps one
connection, gives a put 100 ms, then goes to the next node: etcd's own client would wait seconds for a put that its leader
took into the grave, which is not etcd's failover.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from etcd_client import EtcdCaller
from etcd_nodes import EtcdQuorum
from measure import Result, Rounds
from our_nodes import create_topic, our_quorum
from processes import wait_until
from raftlake import LocalQuorum
from raftlake.client import Client

ROUNDS = 5
START_ROUNDS = 3
#: Writes before and after each stop, so that the gap lies between two acknowledged ones.
SETTLE_S = 0.6
TIMEOUT_S = 30.0
ATTEMPT_S = 0.1
TOPIC = "bench-gap"


class Writer(threading.Thread):
    """Writes one record after the other while its side is measured; keeps the times of the acknowledgements. It rests while the
    other side is: on two cores each side's writes would be a part of the other's gap."""

    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._write = write
        self.acknowledged_at: list[float] = []
        self._stopping = threading.Event()
        self._may_write = threading.Event()

    def run(self) -> None:
        while True:
            self._may_write.wait()
            if self._stopping.is_set():
                return
            self._write()
            self.acknowledged_at.append(time.perf_counter())

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        self._may_write.set()
        try:
            yield
        finally:
            self._may_write.clear()

    def stop(self) -> None:
        self._stopping.set()
        self._may_write.set()
        self.join()

    def wait_for_writes(self, seconds: float) -> None:
        """Until writes went on for that long."""
        begun = len(self.acknowledged_at)

        def went_on() -> bool:
            assert self.is_alive(), "the writer gave up"
            times = self.acknowledged_at
            return len(times) > begun and times[-1] - times[begun] >= seconds

        wait_until(went_on, "writes", TIMEOUT_S)

    def gap_ms(self, since_s: float) -> float:
        """The longest time without an acknowledgement from the last one before `since_s` on."""
        times = list(self.acknowledged_at)
        first = next(index for index in range(len(times) - 1, -1, -1) if times[index] <= since_s)
        return 1000 * max(later - earlier for earlier, later in itertools.pairwise(times[first:]))


class OurSide:
    def __init__(self, quorum: LocalQuorum, client: Client) -> None:
        self._quorum = quorum
        self._client = client
        self.writer = Writer(lambda: client.append(TOPIC, b"x") and None)

    def gap_ms(self, sign: signal.Signals) -> float:
        with self.writer.writing():
            self.writer.wait_for_writes(SETTLE_S)
            victim = self._client.describe_topic(TOPIC).partitions[0].leader_id
            pid = self._quorum.pid(victim)
            began = time.perf_counter()
            os.kill(pid, sign)
            self.writer.wait_for_writes(SETTLE_S)
            wait_until(lambda: victim not in self._quorum.running(), "the node's end")
            gap = self.writer.gap_ms(began)
        self._quorum.start(victim)
        self._wait_until_caught_up(victim)
        return gap

    def _wait_until_caught_up(self, node_id: int) -> None:
        target = self._client.describe_quorum(TOPIC, 0).high_watermark

        def has_caught_up() -> bool:
            voters = self._client.describe_quorum(TOPIC, 0).voters
            return any(voter.replica_id == node_id and voter.log_end_offset >= target for voter in voters)

        wait_until(has_caught_up, f"node {node_id} catching up", TIMEOUT_S, poll_s=0.05)


class EtcdSide:
    def __init__(self, quorum: EtcdQuorum) -> None:
        self._quorum = quorum
        self._caller: EtcdCaller | None = None
        self._node = 0
        self.writer = Writer(self._write)

    def _write(self) -> None:
        while True:
            try:
                if self._caller is None:
                    self._caller = EtcdCaller(self._quorum.client_ports[self._node], b"x", ATTEMPT_S)
                self._caller.put(0)
                return
            except OSError:
                self._node = (self._node + 1) % 3
                if self._caller is not None:
                    self._caller.close()
                    self._caller = None

    def gap_ms(self, sign: signal.Signals) -> float:
        with self.writer.writing():
            self.writer.wait_for_writes(SETTLE_S)
            victim = self._quorum.leader()
            began = time.perf_counter()
            if sign is signal.SIGKILL:
                self._quorum.kill(victim)
            else:
                self._quorum.terminate(victim)
            self.writer.wait_for_writes(SETTLE_S)
            self._quorum.wait_for_end(victim)
            gap = self.writer.gap_ms(began)
        self._quorum.restart(victim)
        return gap


def measure_gap(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "raftlake") as quorum, EtcdQuorum(directory / "etcd") as etcd:
        create_topic(quorum, TOPIC, 1)
        with Client(quorum.bootstrap_servers) as client:
            ours, theirs = OurSide(quorum, client), EtcdSide(etcd)
            for writer in (ours.writer, theirs.writer):
                writer.start()
            try:
                yield from gaps(ours, theirs)
            finally:
                for writer in (ours.writer, theirs.writer):
                    writer.stop()


def gaps(ours: OurSide, theirs: EtcdSide) -> Iterator[Result]:
    method = (
        "a partition's leader under raftlake.Client, etcd's under a client that gives a put 100 ms; one write at a time; "
        "the other side rests"
    )
    killed = Rounds().alternate(ROUNDS, lambda: ours.gap_ms(signal.SIGKILL), lambda: theirs.gap_ms(signal.SIGKILL))
    yield killed.result(
        name="write gap after kill -9",
        unit="ms",
        method=f"{method}; aim: 200 ms",
        peer="etcd",
        ratio_at_most=1 / 3,
    )
    stopped = Rounds().alternate(ROUNDS, lambda: ours.gap_ms(signal.SIGTERM), lambda: theirs.gap_ms(signal.SIGTERM))
    yield stopped.result(name="write gap at a graceful stop", unit="ms", method=method, peer="etcd", at_most=100)


def measure_start(directory: Path) -> Iterator[Result]:
    number = itertools.count()

    def ours() -> float:
        began = time.perf_counter()
        with our_quorum(directory / f"raftlake-{next(number)}") as quorum, Client(quorum.bootstrap_servers) as client:
            client.create_topic("bench-start", partitions=1)
            client.append("bench-start", b"first")
            return time.perf_counter() - began

    def theirs() -> float:
        began = time.perf_counter()
        with EtcdQuorum(directory / f"etcd-{next(number)}"):
            return time.perf_counter() - began

    ours()  # Python's compiled files and ours are in the page cache from here
    yield (
        Rounds()
        .alternate(START_ROUNDS, ours, theirs)
        .result(
            name="start to the first accepted write",
            unit="s",
            method="three processes from empty directories; ours also creates the topic that it writes to",
            peer="etcd",
            at_most=2.0,
        )
    )
