"""GET /metrics: the page that Prometheus scrapes, built in slices and kept for a second.

A node hosts thousands of partitions, and a page with all of them takes a second to write: a piece of it is written at a time,
requests that come meanwhile wait for the same page, and each partition has series of its own only while there are not too many
(`metrics.max.partitions`), as have the lags of streaming queries. The quorum's own log always has them, and all partitions
are always counted by their role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition
from raftlake.runtime.http.query_lag_series import COUNT_NAME, COUNT_TOLD, NAME, TOLD, QueryLag, QueryLagSeries
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.work_line import WorkLine

KEPT_US = 1_000_000
#: Partitions that are written before the clock is looked at.
PIECE = 20
STATE = ("current_state", "1 for the role that the replica plays")
#: KRaft's name, what it says, and where it is read.
GAUGES: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("current_leader", "Id of the known leader, -1 for none", lambda partition: partition.core.leader_id),
    (
        "current_vote",
        "Id of the node voted for in this epoch, -1 for none",
        lambda partition: -1 if partition.core.voted_key is None else partition.core.voted_key.id,
    ),
    ("current_epoch", "Epoch of the quorum as known here", lambda partition: partition.core.epoch),
    ("high_watermark", "First offset that is not known to be committed", lambda partition: partition.high_watermark),
    ("log_start_offset", "First offset of the log", lambda partition: partition.core.log_start),
    ("log_end_offset", "Next offset of the log", lambda partition: partition.core.log_end),
    ("log_end_epoch", "Epoch of the last record", lambda partition: partition.core.log_end_position.epoch),
)


class MetricsPage:
    def __init__(
        self, node: ReplicaNode, metrics: NodeMetrics, house: WorkLine, now_us: Callable[[], int], *, partitions_max: int
    ) -> None:
        self._node = node
        self._metrics = metrics
        self._house = house
        self._now_us = now_us
        self._partitions_max = partitions_max
        self._query_lags = QueryLagSeries(node, series_max=partitions_max)
        self._page: bytearray | None = None
        self._built_us = 0
        self._waiting: list[Callable[[bytearray | None], None]] = []

    def ask(self, done: Callable[[bytearray | None], None]) -> None:
        """`done` is called once with the page, now or later; with None when it could not be built."""
        if self._page is not None and self._now_us() - self._built_us < KEPT_US:
            done(self._page)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._house.run(self.build(), self._on_built)

    def _on_built(self, page: bytearray | None) -> None:
        self._page, self._built_us = page, self._now_us()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(page)

    def build(self) -> Generator[None, None, bytearray]:
        """The page; yields between its pieces."""
        hosted = list(self._node.partitions.items())
        own = self._node.config.quorum_group
        shows_all = sum(group != own for group, _ in hosted[: self._partitions_max + 2]) <= self._partitions_max
        families = [[_head(*STATE)], *([_head(name, text)] for name, text, _ in GAUGES)]
        roles: Counter[str] = Counter()
        without_leader = 0
        yield
        for start in range(0, len(hosted), PIECE):
            piece = hosted[start : start + PIECE]
            for _, partition in piece:
                roles[partition.core.role_name.lower()] += 1
                without_leader += partition.core.leader_id == NO_LEADER
            _write([(group, partition) for group, partition in piece if shows_all or group == own], families)
            yield
        counted = [_head("partitions", "Partitions on this node, by the role of its replica")]
        counted += [b'raftlake_partitions{state="%s"} %d\n' % (role.encode(), roles[role]) for role in sorted(roles)]
        counted.append(_head("partitions_without_leader", "Partitions on this node whose leader is not known here"))
        counted.append(b"raftlake_partitions_without_leader %d\n" % without_leader)
        yield
        lags = yield from self._query_lags.build()
        counted += [_head(COUNT_NAME, COUNT_TOLD), b"raftlake_%s %d\n" % (COUNT_NAME.encode(), len(lags))]
        lagging = [_head(NAME, TOLD)]
        for start in range(0, len(lags) if self._query_lags.shows(len(lags)) else 0, PIECE):
            lagging += map(_lag_line, lags[start : start + PIECE])
            yield
        node_wide = self._metrics.node_text()
        yield
        # Put together a family at a time as well: a copy of many megabytes takes its time.
        page = bytearray()
        for family in (*families, counted, lagging):
            page += b"".join(family)
            yield
        page += node_wide
        return page


def _head(name: str, text: str) -> bytes:
    return f"# HELP raftlake_{name} {text}\n# TYPE raftlake_{name} gauge\n".encode()


def _lag_line(lag: QueryLag) -> bytes:
    labels = f'partition="{lag.partition}",query="{_escaped(lag.query)}",topic="{_escaped(lag.topic)}"'
    return f"raftlake_{NAME}{{{labels}}} {lag.records}\n".encode()


def _write(partitions: list[tuple[GroupId, Partition]], families: list[list[bytes]]) -> None:
    """The lines of some partitions, behind those of each family."""
    if not partitions:
        return
    labels = [f'partition="{group.partition}",topic="{_escaped(group.topic)}"' for group, _ in partitions]
    found = zip(labels, partitions, strict=True)
    lines = [f'raftlake_{STATE[0]}{{{at},state="{partition.core.role_name.lower()}"}} 1\n' for at, (_, partition) in found]
    families[0].append("".join(lines).encode())
    for family, (name, _, read) in zip(families[1:], GAUGES, strict=True):
        found = zip(labels, partitions, strict=True)
        family.append("".join([f"raftlake_{name}{{{at}}} {read(partition)}\n" for at, (_, partition) in found]).encode())


def _escaped(label: str) -> str:
    """As the text format wants it. No topic's name needs it today, and a query's may."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
