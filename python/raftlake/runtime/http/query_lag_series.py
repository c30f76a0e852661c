"""`raftlake_query_lag_records`: how far streaming queries are behind in the partitions that this node leads.

The keys that sources write (`kv/query_positions.py`) are read as this node has applied them, and compared with its own high
watermark: no node is asked. A partition's leader alone tells, so the sum over all nodes counts each partition once. A topic that
was deleted has no series, nor has one that was created again under the name: its offsets mean other records.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from raftlake.kv.query_positions import ROOT, Sources
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition

#: Keys that are looked at before others may use the loop, and standings that are written.
PIECE = 100
#: Keys that are looked at for a page. With more of them no query has a series.
KEYS_MAX = 20_000

NAME = "query_lag_records"
TOLD = "Offsets between the position of a streaming query and the high watermark, by the partition's leader"
COUNT_NAME = "query_positions"
COUNT_TOLD = "Positions of streaming queries in partitions that this node leads"


class QueryLagSeries:
    """At most `series_max` series: where there would be more there are none, since some would mislead. The count of positions is
    always there."""

    def __init__(self, node: ReplicaNode, *, series_max: int) -> None:
        self._node = node
        self._series_max = series_max
        self._sources = Sources()

    def build(self) -> Generator[None, None, list[tuple[str, str, int, int]]]:
        """(query, topic, partition, lag) of what this node leads; yields between its pieces."""
        rows: list[tuple[str, int, bytes | None]] = []
        for piece in self._pieces():
            rows += piece
            if len(rows) > KEYS_MAX:
                return []
            yield
        led: dict[tuple[str, int], tuple[GroupId, Partition]] = {}
        for number, (group, partition) in enumerate(list(self._node.partitions.items()), 1):
            if partition.core.is_leader:
                led[group.topic, group.partition] = group, partition
            if number % PIECE == 0:
                yield
        found: list[tuple[str, str, int, int]] = []
        for number, each in enumerate(self._sources.read(rows), 1):
            at = led.get((each.topic, each.partition))
            if at is not None and each.topic_id in (None, at[0].topic_id.hex()):
                found.append((each.query, each.topic, each.partition, max(0, at[1].high_watermark - each.offset)))
            if number % PIECE == 0:
                yield
        return found

    def _pieces(self) -> Iterator[list[tuple[str, int, bytes | None]]]:
        after: str | None = None
        more = True
        while more:
            entries, more = self._node.kv.machine.list(ROOT, after, PIECE)
            yield [(key, entry.version, entry.value) for key, entry in entries]
            after = entries[-1][0] if entries else None

    def shows(self, count: int) -> bool:
        """Whether so many positions have series of their own."""
        return count <= self._series_max
