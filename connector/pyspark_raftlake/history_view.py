"""What the tables alone say of the topics of a query with `tier=remote`: where partitions begin and end, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        # A topic that was deleted after the last look has no offsets.
        return self._listed({each: time_ms for each, time_ms in timestamps_ms.items() if each.topic in ids})

    def _offsets(self, topic: str, timestamps_ms: Mapping[int, int], *, topic_id: bytes | None) -> Mapping[int, int]:
        assert topic_id is not None
        return {number: self._offset(topic, topic_id, number, time_ms) for number, time_ms in timestamps_ms.items()}

    def _offset(self, topic: str, topic_id: bytes, number: int, time_ms: int) -> int:
        if time_ms not in (EARLIEST, LATEST):
            return self._tables.first_at(topic, topic_id, number, time_ms)
        shown = self._tables.newest(topic, topic_id, number, TABLE_AGE_MS_MAX)
        return shown.start if time_ms == EARLIEST else shown.end
