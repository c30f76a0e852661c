"""The sixth step: the flights' history as a Delta table that Spark, DuckDB, polars or delta-rs read without a node.

The nodes copy closed segments to the table while the tour goes on, also while a leader is killed. Here the tour waits for the
last copy, checks the table, and asks it one question in SQL by delta-rs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raftlake.errors import MachineError, RaftlakeError
from raftlake.quickstart.stop import Stop

if TYPE_CHECKING:
    from raftlake.tier.reader import TopicHistory

#: Half of it passes before an open segment is closed to be copied.
TARGET_LAG_MS = 4_000
COPY_TIMEOUT_S = 120.0
#: Rows that are no flights are the control records of elections.
CARRIERS_SQL = (
    "SELECT CAST(key AS VARCHAR) AS carrier, COUNT(*) AS flights FROM history WHERE kind = 0 GROUP BY 1 ORDER BY flights DESC"
)


class HistoryWrong(RaftlakeError):
    """The table does not hold what was appended, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """What a table was found to be."""

    table: str
    rows: int
    files: int
    size: int
    #: Flights by carrier, the most first.
    carriers: Mapping[str, int]


def settings(directory: Path) -> dict[str, str]:
    """What makes nodes copy their history: to tables below `directory`."""
    return {"tier.uri": str(directory), "tier.target.lag.ms": str(TARGET_LAG_MS)}


def require_packages() -> None:
    """Say in one line what is missing, before anything is started."""
    try:
        import deltalake  # noqa: F401
    except ModuleNotFoundError as error:
        raise MachineError(f"the package {error.name} is missing: pip install 'raftlake[quickstart]'") from error


def await_copied(tier_uri: Path, topic: str, ends: Mapping[int, int], stop: Stop) -> TopicHistory:
    """The table of a topic once it shows each partition up to `ends`. Raises HistoryWrong when that takes too long."""
    from raftlake.errors import WrongState
    from raftlake.tier.reader import TopicHistory, tables_at

    deadline = time.monotonic() + COPY_TIMEOUT_S
    while True:
        shown: dict[int, int] = {}
        try:
            for uri in tables_at(str(tier_uri), topic):
                history = TopicHistory(uri)
                shown = {partition: found.end for partition in ends if (found := history.offsets(partition)) is not None}
                if shown == ends:
                    return history
        except WrongState:
            # No node has made it yet.
            pass
        if time.monotonic() > deadline:
            raise HistoryWrong(f"the table of {topic} shows {shown} after {COPY_TIMEOUT_S:.0f} s, and the log ends at {ends}")
        stop.sleep(0.2)


def examine(history: TopicHistory) -> HistoryFacts:
    """Check a table as `raftlake tier verify` does, and ask it for the flights of each carrier. Raises HistoryWrong."""
    from raftlake.tier.verify import verify_table

    report = verify_table(history)
    if report.findings:
        raise HistoryWrong(f"{len(report.findings)} findings in {report.table}, the first: {report.findings[0].what}")
    files = [file for partition in history.partitions() for file in history.files(partition)]
    return HistoryFacts(
        table=history.uri,
        rows=sum(partition.rows for partition in report.partitions),
        files=len(files),
        size=sum(file.size for file in files),
        carriers=flights_by_carrier(history.uri),
    )


def flights_by_carrier(table: str) -> dict[str, int]:
    """The answer to CARRIERS_SQL."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    answer = pa.table(QueryBuilder().register("history", DeltaTable(table)).execute(CARRIERS_SQL).read_all())
    return dict(zip(answer["carrier"].to_pylist(), answer["flights"].to_pylist(), strict=True))


def log_bytes(node_directories: list[Path], topic: str) -> int:
    """What the segments of a topic take on one node's disk: of the node that holds most."""
    return max(sum(map(_size, node.glob(f"{topic}-*/*.log"))) for node in node_directories)


def _size(segment: Path) -> int:
    """0 where retention has just deleted it."""
    try:
        return segment.stat().st_size
    except FileNotFoundError:
        return 0
