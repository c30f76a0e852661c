"""What every attack is judged by: a quorum of real processes, an honest producer beside the attack, measures before and after.

    siege = Siege.of(quorum, twin)
    with siege.attack("ten thousand half-open connections"):
        ...

`attack` returns when all of this holds, and fails when something does not within `PATIENCE_S`:

- The processes are those that ran before: no node ended, none was started anew.
- The quorum serves: an append and a put are acknowledged through each node.
- The honest producer lost nothing: each record that was acknowledged lies in the log once, at its offset.
- The p99 of its appends is within `SLOWER_MAX` times that of a twin, a quorum that is left in peace. Both append in turns, so
  that a busy machine slows both. A bad moment gets several tries.
- Memory and descriptors of each node are back to where they were.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx

from raftlake import Client
from raftlake.errors import RaftlakeError
from waitkit import attempt, wait_until

if TYPE_CHECKING:
    from raftlake import LocalQuorum

PATIENCE_S = 60
#: How much slower than on the twin the p99 of an honest append may be.
SLOWER_MAX = 5.0
APPENDS = 200
MEMORY_GROWTH_MIB = 96
#: Connections that clients keep, and files that the log opens as it grows.
DESCRIPTOR_GROWTH = 24
MIB = 1 << 20
_topics = itertools.count(1)
#: What the honest producer keeps in one read.
READ_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one node process holds."""

    pid: int
    memory_mib: float
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pid, pages * os.sysconf("SC_PAGE_SIZE") / MIB, len(os.listdir(f"/proc/{pid}/fd")))


@dataclass
class HonestProducer:
    """Appends numbered records, one at a time, for as long as it is asked to; keeps what was acknowledged, and how fast."""

    bootstrap: str
    topic: str
    #: The value that was acknowledged at each offset.
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    #: Values that a retry found already appended, at an offset that the node no longer remembered.
    somewhere: set[bytes] = field(default_factory=set)
    _next: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def to_a_new_topic(cls, quorum: LocalQuorum) -> Self:
        topic = f"honest-{next(_topics)}"
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic(topic)
        return cls(quorum.bootstrap_servers, topic)

    def append(self, client: Client) -> float:
        """One record; how long it took, in seconds. Raises what the client raises."""
        self._next += 1
        value = b"record %d" % self._next
        began = time.perf_counter()
        result = client.append(self.topic, value, partition=0)
        took = time.perf_counter() - began
        if result.offset < 0:
            self.somewhere.add(value)
        else:
            assert result.offset not in self.acknowledged, f"offset {result.offset} was acknowledged twice"
            self.acknowledged[result.offset] = value
        return took

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Append all the while. A refusal is no loss: only what was acknowledged counts."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "an append of the honest producer has hung"

    def _run(self) -> None:
        with Client(self.bootstrap) as client:
            while not self._stop.is_set():
                with contextlib.suppress(RaftlakeError):
                    self.append(client)

    def check(self) -> None:
        """Each acknowledged record is in the log, once, where the acknowledgement said."""
        found: dict[int, bytes] = {}
        with Client(self.bootstrap) as client:
            end = max(self.acknowledged) + 1
            position = 0
            while position < end:
                for record in client.read(self.topic, 0, position, max_bytes=READ_BYTES):
                    assert record.value is not None
                    found[record.offset] = record.value
                    position = record.offset + 1
        lost = {offset: value for offset, value in self.acknowledged.items() if found.get(offset) != value}
        assert not lost, f"acknowledged and not in the log: {lost}"
        assert self.somewhere <= set(found.values()), f"acknowledged and not in the log: {self.somewhere - set(found.values())}"
        assert len(set(found.values())) == len(found), "a record of the honest producer is in the log twice"


def p99_s(*producers: HonestProducer) -> list[float]:
    """The p99 of the appends of each producer in seconds; they append in turns."""
    took: list[list[float]] = [[] for _ in producers]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(producer.bootstrap)) for producer in producers]
        for _ in range(APPENDS):
            for producer, client, times in zip(producers, clients, took, strict=True):
                times.append(producer.append(client))
    return [statistics.quantiles(times, n=100)[98] for times in took]


@dataclass
class Siege:
    """A quorum whose measures were taken before anything was done to it, and a twin that is left in peace."""

    quorum: LocalQuorum
    honest: HonestProducer
    in_peace: HonestProducer
    before: dict[int, Footprint]

    @classmethod
    def of(cls, quorum: LocalQuorum, twin: LocalQuorum) -> Self:
        honest, in_peace = (HonestProducer.to_a_new_topic(each) for each in (quorum, twin))
        # The first appends open files and connections, which belong to the measures.
        p99_s(honest, in_peace)
        return cls(quorum, honest, in_peace, {node_id: Footprint.of(quorum.pid(node_id)) for node_id in quorum.nodes})

    @contextlib.contextmanager
    def attack(self, what: str) -> Iterator[None]:
        """Run the attack in the body beside the honest producer; then everything must be as the head of this file says."""
        with self.honest.beside():
            yield
        assert {node_id: self.quorum.pid(node_id) for node_id in self.quorum.nodes} == {
            node_id: footprint.pid for node_id, footprint in self.before.items()
        }, f"a node did not outlive: {what}"
        for node_id in self.quorum.nodes:
            wait_until(lambda node_id=node_id: self._serves(node_id), f"node {node_id} serves after: {what}", PATIENCE_S)
        self.honest.check()
        wait_until(self._is_fast, f"a p99 within {SLOWER_MAX:g} times that of the twin after: {what}", PATIENCE_S)
        for node_id in self.quorum.nodes:
            wait_until(
                lambda node_id=node_id: self._is_back(node_id), f"node {node_id} is back to its size after: {what}", PATIENCE_S
            )

    def leadership(self) -> tuple[int, int]:
        """Who leads the quorum's log, and in which epoch, as soon as a node of ours does."""

        def found() -> tuple[int, int] | None:
            with contextlib.suppress(RaftlakeError), Client(self.quorum.bootstrap_servers) as client:
                described = client.describe_quorum()
                return (described.leader_id, described.leader_epoch) if described.leader_id in self.quorum.nodes else None
            return None

        told: tuple[int, int] = wait_until(found, "a node of the quorum leads", PATIENCE_S)
        return told

    def depose_nobody(self, attack: Callable[[], None], what: str) -> None:
        """The same node leads before and after the attack, in the same epoch. A busy machine may elect another one by itself:
        then the attack is made again, on that one."""

        def is_unmoved() -> bool:
            before = self.leadership()
            attack()
            return self.leadership() == before

        attempt(is_unmoved, f"the leader outlives: {what}")

    def _serves(self, node_id: int) -> bool:
        node = self.quorum.nodes[node_id]
        with contextlib.suppress(RaftlakeError, httpx.HTTPError), Client(node.address) as client:
            self.honest.append(client)
            url = f"http://{node.http_address}/v1/kv/honest"
            return httpx.put(url, content=b"alive", trust_env=False, follow_redirects=True).status_code == httpx.codes.OK
        return False

    def _is_fast(self) -> bool:
        besieged, in_peace = p99_s(self.honest, self.in_peace)
        return besieged <= in_peace * SLOWER_MAX

    def _is_back(self, node_id: int) -> bool:
        before, now = self.before[node_id], Footprint.of(self.quorum.pid(node_id))
        return (
            now.memory_mib <= before.memory_mib + MEMORY_GROWTH_MIB
            and now.descriptors <= before.descriptors + DESCRIPTOR_GROWTH
        )
