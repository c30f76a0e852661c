"""Tables of topics in memory, as the driver of the connector sees them: each opening and each refresh is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from connector.fakelog import FakeQuorum
from pyspark_raftlake.options import TierOptions
from pyspark_raftlake.tables import TablePlace, Tables
from raftlake.errors import WrongState
from raftlake.tier.reader import OffsetRange, TableFile
from raftlake.wire.ids import table_uri


def file_of(partition: int, first: int, end: int, *, times: tuple[int, int] | None = None, size: int = 100) -> TableFile:
    return TableFile(
        path=f"partition={partition}/{first}.parquet",
        size=size,
        partition=partition,
        rows=end - first,
        offset_min=first,
        offset_max=end - 1,
        incarnation_min=0,
        incarnation_max=0,
        time_min=None if times is None else times[0],
        time_max=None if times is None else times[1],
    )


@dataclass
class FakeTable:
    """The store's side of one table: its files now."""

    topic_id: bytes
    files: list[TableFile] = field(default_factory=list)
    opened: int = 0
    refreshed: int = 0
    error: Exception | None = None


class FakeHistory:
    """A version of a table."""

    def __init__(self, table: FakeTable) -> None:
        self._table = table
        self.topic_id = table.topic_id
        self._files = list(table.files)

    def refresh(self) -> None:
        self._table.refreshed += 1
        if self._table.error is not None:
            raise self._table.error
        self._files = list(self._table.files)

    def files(self, partition: int) -> list[TableFile]:
        return [file for file in self._files if file.partition == partition]

    def offsets(self, partition: int) -> OffsetRange | None:
        files = self.files(partition)
        if not files:
            return None
        return OffsetRange(min(f.offset_min or 0 for f in files), max((f.offset_max or 0) + 1 for f in files))

    def last_offset(self, partition: int, incarnation: int) -> int | None:
        return {1: 3, 2: 6}.get(incarnation) if partition == 7 else None

    def newest_incarnation(self, partition: int) -> int:
        return 2 if partition == 7 else 0

    def first_at(self, partition: int, time_ms: int) -> int | None:
        return next((f.offset_min for f in self.files(partition) if (f.time_max or 0) >= time_ms * 1000), None)


class FakeStore:
    """Tables by their places."""

    def __init__(self) -> None:
        self.tables: dict[str, FakeTable] = {}
        self.asked: list[TablePlace] = []

    def put(self, quorum: FakeQuorum, topic: str, *files: TableFile, tier_uri: str = "/tier") -> FakeTable:
        topic_id = quorum.ids[topic]
        made = self.tables[table_uri(tier_uri, topic, topic_id)] = FakeTable(topic_id, list(files))
        return made

    def open(self, place: TablePlace) -> Any:
        self.asked.append(place)
        table = self.tables.get(place.uri)
        if table is None:
            raise WrongState(f"there is no Delta table at {place.uri}")
        table.opened += 1
        if table.error is not None:
            raise table.error
        return FakeHistory(table)

    def tables_of(self, quorum: FakeQuorum, options: TierOptions, clock: Clock) -> Tables:
        return Tables(quorum, options, lambda: clock.now_ms, self.open)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0
