"""What the clients of a soak saw: the histories, counts by outcome, and when writes were acknowledged."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from raftlake.sim.histories.kv import KvAction, KvOperation
from raftlake.sim.histories.linearizability import Operation, Outcome
from raftlake.sim.histories.log import LogAction, LogOperation
from soak.nodes import Nodes

#: A pause between acknowledged writes that is told of.
WINDOW_US = 500_000


@dataclass(slots=True)
class Record:
    """Times are microseconds since the start."""

    partitions: int
    nodes: Nodes
    kv: list[KvOperation] = field(default_factory=list)
    logs: list[list[LogOperation]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: Answers that no node may give.
    complaints: list[str] = field(default_factory=list)
    #: (start, length) of each time without an acknowledged write.
    windows: list[tuple[int, int]] = field(default_factory=list)
    _started_ns: int = field(default_factory=time.monotonic_ns)
    #: Of the last acknowledged write; None before the first.
    _acknowledged_us: int | None = None

    def __post_init__(self) -> None:
        self.logs = [[] for _ in range(self.partitions)]

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._started_ns) // 1000

    def note_kv(self, client: str, kind: str, invoked_us: int, outcome: Outcome, action: KvAction) -> None:
        returned_us = self._note(kind, outcome, is_write=kind != "get")
        self.kv.append(Operation(client=client, invoked_at=invoked_us, returned_at=returned_us, outcome=outcome, action=action))

    def note_log(self, client: str, kind: str, partition: int, invoked_us: int, outcome: Outcome, action: LogAction) -> None:
        returned_us = self._note(kind, outcome, is_write=kind.endswith("append"))
        self.logs[partition].append(
            Operation(client=client, invoked_at=invoked_us, returned_at=returned_us, outcome=outcome, action=action)
        )

    def _note(self, kind: str, outcome: Outcome, *, is_write: bool) -> int:
        now_us = self.now_us()
        self.counts[f"{kind} {outcome.value}"] += 1
        if is_write and outcome is Outcome.OK:
            if self._acknowledged_us is not None and now_us - self._acknowledged_us > WINDOW_US:
                self.windows.append((self._acknowledged_us, now_us - self._acknowledged_us))
            self._acknowledged_us = now_us
        return now_us

    def view(self, node_id: int) -> str:
        """Who must not go back: one process."""
        return f"node {node_id}, process {self.nodes.incarnation[node_id]}"
