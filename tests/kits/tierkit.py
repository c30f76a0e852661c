"""Delta tables for tests: tiers of several nodes on one path, what a reader of the table sees, and processes that end."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from contract.tier_contract import Moment, Row, TierWorld
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, Lineage, LineageEnd, RemoteSegment, RemoteTier, TierError
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.schema import table_uri
from raftlake.tier.store import OutputFile, Store
from raftlake.tier.topic_table import TopicTable


class Ended(BaseException):
    """The process of a copy ends here."""


class LaterTier:
    """A DeltaTier as a port: calls are made when the world lets them."""

    def __init__(self, calls: deque[Callable[[], None]], tier: DeltaTier) -> None:
        self._calls = calls
        self._tier = tier

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.copy(request)))

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        self._calls.append(lambda: done(self._tier.claim(lineage, leader_epoch)))


class DeltaWorld(TierWorld):
    """Nodes in this process, each with the snapshots that it has seen."""

    def __init__(self, settings: TierSettings) -> None:
        self.settings = settings
        self._calls: deque[Callable[[], None]] = deque()
        self._tiers: dict[int, DeltaTier] = {}

    def delta(self, node: int) -> DeltaTier:
        return self._tiers.setdefault(node, DeltaTier(self.settings))

    def tier(self, node: int) -> RemoteTier:
        return LaterTier(self._calls, self.delta(node))

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

    def put_foreign_table(self, group: GroupId) -> None:
        put_foreign_table(self.settings, group)

    def commits(self, group: GroupId) -> int:
        table = DeltaTable(table_uri(self.settings.uri, group), storage_options=dict(self.settings.storage_options))
        return table.version() + 1


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
    """All rows of a lineage, in the order of files by their first offset. Rows inside a file stay where they are."""
    tables = [rows for rows in files_of(settings, lineage).values() if rows.num_rows]
    tables = [rows.filter(pc.equal(rows["incarnation"], lineage.incarnation)) for rows in tables]
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
