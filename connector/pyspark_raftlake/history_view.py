"""What the tables alone say of the topics of a query with `tier=remote`: where partitions begin and end, and when."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_raftlake.log_view import LogView, OffsetClient
from pyspark_raftlake.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from pyspark_raftlake.options import Consistency, Selection
from pyspark_raftlake.tables import Tables

#: A query with nothing to read is asked for news a hundred times a second; its table is looked at this often.
TABLE_AGE_MS_MAX = 1_000


class HistoryView(LogView):
    """The nodes name the topics, their ids and their partitions. Offsets are those of the tables."""

    def __init__(
        self,
        client: OffsetClient,
        selection: Selection,
        consistency: Consistency,
        tables: Tables,
        *,
        checks_ids: bool = True,
    ) -> None:
        super().__init__(client, selection, consistency, checks_ids=checks_ids)
        self._tables = tables

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.at_timestamps(dict.fromkeys(partitions, LATEST))

    def proven_latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.latest(partitions)

    def at_timestamps(self, timestamps_ms: Offsets) -> dict[TopicPartition, int]:
        ids = self.topic_ids()
        found: dict[TopicPartition, int] = {}
        for partition, time_ms in timestamps_ms.items():
            topic, number = partition
            # A topic that was deleted after the last look has no offsets.
            if topic not in ids:
                continue
            if time_ms in (EARLIEST, LATEST):
                shown = self._tables.newest(topic, ids[topic], number, TABLE_AGE_MS_MAX)
                found[partition] = shown.start if time_ms == EARLIEST else shown.end
            else:
                found[partition] = self._tables.first_at(topic, ids[topic], number, time_ms)
        return found
