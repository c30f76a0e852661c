"""Delta tables for tests: tiers of several nodes on one path, what a reader of the table sees, and processes that end."""

from __future__ import annotations

import contextlib
import itertools
import json
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from contract.tier_contract import GROUP, Moment, Row, TierWorld
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    FoundRecord,
    Lineage,
    LineageEnd,
    LineageFacts,
    ReadRequest,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    RemoteTier,
    SearchRequest,
    TierError,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.store import OutputFile, Store
from raftlake.tier.table_reads import TableReads
from raftlake.tier.topic_table import TopicTable, commit_name
from raftlake.tier.verify import verify_table


class Ended(BaseException):
    """The process of a copy ends here."""


class LaterTier:
    """A DeltaTier as a port: calls are made when the world lets them."""

    def __init__(self, calls: deque[Callable[[], None]], tier: DeltaTier, reads: TableReads) -> None:
        self._calls = calls
        self._tier = tier
        self._reads = reads

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.copy(request)))

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.claim(lineage, leader_epoch)))

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset, done: Callable[[Offset | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.delete(lineage, leader_epoch, until)))

    def drop(self, group: GroupId, partitions: int, done: Callable[[TierError | None], None]) -> None:
        self._calls.append(lambda: done(self._tier.drop(group, partitions)))

    def adopt(self, request: AdoptRequest, done: Callable[[LineageFacts | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.adopt(request)))

    def accept(
        self,
        group: GroupId,
        begin: Offset | None,
        reach: Offset | None,
        done: Callable[[LineageFacts | TierError], None],
    ) -> None:
        self._calls.append(lambda: done(self._tier.accept(group, begin, reach)))

    def check(self, lineage: Lineage, segment: RemoteSegment, done: Callable[[TierError | None], None]) -> None:
        self._calls.append(lambda: done(self._reads.check(lineage, segment)))

    def read(self, request: ReadRequest, done: Callable[[bytes | TierError], None]) -> None:
        self._calls.append(lambda: done(self._reads.read(request)))

    def search(self, request: SearchRequest, done: Callable[[FoundRecord | TierError | None], None]) -> None:
        self._calls.append(lambda: done(self._reads.search(request)))

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        self._calls.append(lambda: done(self._reads.find(lineage, offset)))

    def oldest(self, lineage: Lineage, count: int, done: Callable[[tuple[RemoteFile, ...] | TierError], None]) -> None:
        self._calls.append(lambda: done(self._reads.oldest(lineage, count)))

    def facts(self, lineage: Lineage | GroupId, done: Callable[[LineageFacts | TierError], None]) -> None:
        self._calls.append(lambda: done(self._reads.facts(lineage)))


class DeltaWorld(TierWorld):
    """Nodes in this process, each with the snapshots that it has seen."""

    def __init__(self, settings: TierSettings) -> None:
        self.settings = settings
        self._calls: deque[Callable[[], None]] = deque()
        self._tiers: dict[int, DeltaTier] = {}
        self._reads: dict[int, TableReads] = {}
        #: Some seconds pass between two reads.
        self._seconds = itertools.count(0, 10)

    def delta(self, node: int) -> DeltaTier:
        return self._tiers.setdefault(node, DeltaTier(self.settings))

    def tier(self, node: int) -> RemoteTier:
        reads = self._reads.setdefault(node, TableReads(self.settings, now=lambda: float(next(self._seconds))))
        return LaterTier(self._calls, self.delta(node), reads)

    def settle(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            assert self._calls, "all calls have ended"
            self._calls.popleft()()

    def _ending(self, node: int, request: CopyRequest, where: type, name: str, instead: Callable[..., Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, instead)
            with pytest.raises(Ended):
                self.delta(node).copy(request)
        del self._tiers[node]

    def crash(self, node: int, request: CopyRequest, moment: Moment) -> None:
        commit = TopicTable.commit

        def end_after(table: TopicTable, *rest: Any) -> None:
            commit(table, *rest)
            raise Ended

        def end(*_: Any) -> None:
            raise Ended

        match moment:
            case Moment.BEFORE_FILE:
                self._ending(node, request, OutputFile, "finish", end)
            case Moment.BEFORE_COMMIT:
                self._ending(node, request, TopicTable, "commit", end)
            case Moment.AFTER_COMMIT:
                self._ending(node, request, TopicTable, "commit", end_after)

    def delay(self, node: int, request: CopyRequest) -> Callable[[], None]:
        """The commit goes on top of what the process had seen. delta-rs itself tries to go behind the commits of others."""
        held: list[Callable[[], None]] = []
        commit = TopicTable.commit

        def hold(table: TopicTable, *rest: Any) -> None:
            held.append(lambda: commit(table, *rest))
            raise Ended

        self._ending(node, request, TopicTable, "commit", hold)

        def arrive() -> None:
            with pytest.raises(DeltaError):
                held[0]()

        return arrive

    def shown(self, lineage: Lineage) -> list[Row]:
        return shown_rows(self.settings, lineage)

    def superseded(self, group: GroupId) -> dict[int, list[str]]:
        history = TopicHistory(table_uri(self.settings.uri, group), self.settings.storage_options)
        found: dict[int, list[str]] = {}
        for file in sorted(history.superseded(group.partition), key=lambda file: file.offset_min or 0):
            assert file.incarnation_max is not None
            values = [value for rows in history.read_superseded(file, ["value"]) for value in rows.column("value").to_pylist()]
            found.setdefault(file.incarnation_max, []).extend(value.decode() for value in values)
        return found

    def faults(self) -> list[str]:
        history = TopicHistory(table_uri(self.settings.uri, GROUP), self.settings.storage_options)
        return [f"{finding.kind.word} {finding.offset} {finding.what}" for finding in verify_table(history).findings]

    def put_foreign_table(self, group: GroupId) -> None:
        put_foreign_table(self.settings, group)

    def damage(self, lineage: Lineage, segment: RemoteSegment) -> None:
        store = Store(table_uri(self.settings.uri, lineage.group), self.settings.storage_options)
        content = store.read(segment.file)
        assert content is not None
        group = pq.read_metadata(store.open(segment.file)).row_group(0)
        column = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == "value")
        place = column.data_page_offset + column.total_compressed_size - 4
        store.write(segment.file, content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])

    def put_together(self, lineage: Lineage) -> None:
        table = DeltaTable(table_uri(self.settings.uri, lineage.group), storage_options=dict(self.settings.storage_options))
        assert table.optimize.compact([("partition", "=", str(lineage.group.partition))])["numFilesAdded"] == 1

    def lose(self, lineage: Lineage, offset: Offset) -> None:
        """As an OPTIMIZE with a bug does it: its commit says that no data has changed."""
        uri, options = table_uri(self.settings.uri, lineage.group), dict(self.settings.storage_options)
        table, store = DeltaTable(uri, storage_options=options), Store(uri, options)
        ((path, rows),) = files_of(self.settings, lineage).items()
        written = f"partition={lineage.group.partition}/lost-{offset}.parquet"
        content = pa.BufferOutputStream()
        pq.write_table(rows.filter(pc.not_equal(rows["offset"], offset)), content)
        store.write(written, content.getvalue().to_pybytes())
        values = {"partition": str(lineage.group.partition)}
        added = AddAction(written, content.getvalue().size, values, 0, False, json.dumps(_statistics(rows)))
        removed = RemoveAction(
            path=path, deletion_timestamp=0, data_change=False, partition_values=values, size=store.size(path)
        )
        table.create_write_transaction([removed, added], "append", table.schema(), ["partition"])

    def take_out(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        taken_out(self.settings, lineage, segments)

    def put_back(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        """RESTORE does it so: the same files."""
        values = {"partition": str(lineage.group.partition)}
        files = [AddAction(each.file, each.size, values, 0, True, _statistics_of(each, lineage)) for each in segments]
        foreign(self.settings, lineage.group, files)

    def commits(self, group: GroupId) -> int:
        table = DeltaTable(table_uri(self.settings.uri, group), storage_options=dict(self.settings.storage_options))
        return table.version() + 1


def _statistics(rows: Any) -> dict[str, Any]:
    """What the table's log says of a file, as far as it tells what the file holds."""
    names = ("offset", "leader_epoch", "incarnation")
    columns = {name: rows[name].to_pylist() for name in names}
    return {
        "minValues": {name: min(values) for name, values in columns.items()},
        "maxValues": {name: max(values) for name, values in columns.items()},
        "numRecords": rows.num_rows,
    }


@contextlib.contextmanager
def as_optimize(table: DeltaTable) -> Iterator[DeltaTable]:
    """What is committed meanwhile says that no data has changed, as OPTIMIZE says it. On a local path."""
    table.update_incremental()
    before = table.version()
    yield table
    table.update_incremental()
    for version in range(before + 1, table.version() + 1):
        commit = Path(urllib.parse.urlsplit(table.table_uri).path) / commit_name(version)
        commit.write_text(commit.read_text().replace('"dataChange":true', '"dataChange":false'))


def foreign(settings: TierSettings, group: GroupId, actions: Sequence[AddAction | RemoveAction]) -> None:
    """A commit of another program."""
    table = DeltaTable(table_uri(settings.uri, group), storage_options=dict(settings.storage_options))
    table.create_write_transaction(list(actions), "append", table.schema(), ["partition"])


def taken_out(settings: TierSettings, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
    """Another program removes the files of these copies."""
    values = {"partition": str(lineage.group.partition)}
    files = [
        RemoveAction(path=each.file, deletion_timestamp=0, data_change=True, partition_values=values, size=each.size)
        for each in segments
    ]
    foreign(settings, lineage.group, files)


def _statistics_of(segment: RemoteSegment, lineage: Lineage) -> str:
    first, last = segment.base_offset, segment.end_offset - 1
    known = {"incarnation": lineage.incarnation, "segment_id": segment.segment_id, "leader_epoch": segment.epochs[0][0]}
    return json.dumps(
        {
            "numRecords": last + 1 - first,
            "minValues": {"offset": first, **known},
            "maxValues": {"offset": last, **known, "leader_epoch": segment.epochs[-1][0]},
            "nullCount": dict.fromkeys(("offset", *known), 0),
        }
    )


def put_foreign_table(settings: TierSettings, group: GroupId) -> None:
    rows = pa.table({"value": pa.array([b"somebody's"])})
    write_deltalake(table_uri(settings.uri, group), rows, storage_options=dict(settings.storage_options))


def local_settings(place: Path, cluster_id: str = "cluster") -> TierSettings:
    return TierSettings(uri=str(place / "tier"), cluster_id=cluster_id)


def files_of(settings: TierSettings, lineage: Lineage) -> Mapping[str, Any]:
    """Each file that the table shows of a partition, with its rows."""
    uri, options = table_uri(settings.uri, lineage.group), dict(settings.storage_options)
    try:
        table = DeltaTable(uri, storage_options=options)
    except DeltaError:
        return {}
    store = Store(uri, options)
    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist() if table.count() else []
    wanted = [path for path in paths if path.startswith(f"partition={lineage.group.partition}/")]
    return {path: pq.ParquetFile(store.open(path)).read() for path in wanted}


def shown_table(settings: TierSettings, lineage: Lineage) -> Any:
    """All rows that a lineage may show, in the order of files by their first offset. Rows inside a file stay where they are."""
    tables = [rows for rows in files_of(settings, lineage).values() if rows.num_rows]
    tables = [rows.filter(pc.less_equal(rows["incarnation"], lineage.incarnation)) for rows in tables]
    ordered = sorted((rows for rows in tables if rows.num_rows), key=lambda rows: int(rows["offset"][0].as_py()))
    return pa.concat_tables(ordered) if ordered else None


def shown_rows(settings: TierSettings, lineage: Lineage) -> list[Row]:
    table = shown_table(settings, lineage)
    if table is None:
        return []
    columns = [table[name].to_pylist() for name in ("offset", "leader_epoch", "kind")]
    times = [time // 1000 for time in table["timestamp"].cast(pa.int64()).to_pylist()]
    headers = [tuple((item["key"], item["value"]) for item in items or ()) for items in table["headers"].to_pylist()]
    contents = [table[name].to_pylist() for name in ("key", "value")]
    return list(zip(*columns, times, *contents, headers, strict=True))


def tier_files(settings: TierSettings, group: GroupId) -> list[str]:
    """All files below a table on a local path, but for those of its log."""
    root = Path(table_uri(settings.uri, group))
    found: Sequence[Path] = sorted(path for path in root.rglob("*") if path.is_file())
    names = (path.relative_to(root).as_posix() for path in found)
    return list(itertools.filterfalse(lambda name: name.startswith("_delta_log/"), names))
