"""`raftlake_query_lag_records`: how far streaming queries are behind in the partitions that this node leads.

The keys that sources write (`kv/query_positions.py`) are read as this node has applied them, and compared with its own high
watermark: no node is asked. A partition's leader alone tells, so the sum over all nodes counts each partition once. A topic
that was deleted has no series, nor has one that was created again under the name: its offsets mean other records.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from raftlake.kv.query_positions import ROOT, Sources
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition

#: Keys, bytes of values and standings that are looked at before others may use the loop.
PIECE = 100
PIECE_BYTES = 64 << 10
#: Keys that are looked at for a page. With more of them no query has a series.
KEYS_MAX = 20_000

NAME = "query_lag_records"
TOLD = "Offsets between the position of a streaming query and the high watermark, by the partition's leader"
COUNT_NAME = "query_positions"
COUNT_TOLD = "Positions of streaming queries in partitions that this node leads"


class QueryLag(NamedTuple):
    query: str
    topic: str
    partition: int
    records: int


class QueryLagSeries:
    """At most `series_max` series: where there would be more there are none, since some would mislead. The count of positions
    is always there."""

    def __init__(self, node: ReplicaNode, *, series_max: int) -> None:
        self._node = node
        self._series_max = series_max
        self._sources = Sources()

    def build(self) -> Generator[None, None, list[QueryLag]]:
        """Of the partitions that this node leads; yields between its pieces."""
        self._sources.begin()
        after: str | None = None
        more, count = True, 0
        while more and count <= KEYS_MAX:
            entries, more = self._node.kv.machine.list(ROOT, after, PIECE, PIECE_BYTES)
            for key, entry in entries:
                self._sources.take(key, entry.version, entry.value)
                after = key
            count += len(entries)
            yield
        led: dict[tuple[str, int], tuple[GroupId, Partition]] = {}
        if count:
            for number, (group, partition) in enumerate(list(self._node.partitions.items()), 1):
                if partition.is_serving:
                    led[group.topic, group.partition] = group, partition
                if number % PIECE == 0:
                    yield
        found: list[QueryLag] = []
        for number, each in enumerate(self._sources.standings() if count <= KEYS_MAX else (), 1):
            at = led.get((each.topic, each.partition))
            if at is not None and each.topic_id in (None, at[0].topic_id.hex()):
                lag = max(0, at[1].high_watermark - each.offset)
                found.append(QueryLag(each.query, each.topic, each.partition, lag))
            if number % PIECE == 0:
                yield
        return found

    def shows(self, count: int) -> bool:
        """Whether so many positions have series of their own."""
        return count <= self._series_max
