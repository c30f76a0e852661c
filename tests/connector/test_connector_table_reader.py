"""Rows of a Delta table as the source yields them, from files that the plan named, and what comes when these are gone.

Covers the way between table and log in `reader`, too.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from connector.fakelog import FakeQuorum
from contract.tier_contract import GROUP, data_batch, request_for
from historykit import END, SEGMENTS, batch_of, fill, root_of
from pyspark_raftlake import reader, table_reader
from pyspark_raftlake.errors import DataLoss, LostRows
from pyspark_raftlake.options import Patience, Quorum
from pyspark_raftlake.planning import RangePartition
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.reader import read_range
from pyspark_raftlake.seam import TimeSpan
from pyspark_raftlake.table_reader import TableReader
from pyspark_raftlake.tables import TablePiece, TablePlace
from raftlake.arrow.records import record_schema
from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected, WrongState
from raftlake.ports.tier import Lineage, RemoteSegment
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.reader import TopicHistory
from raftlake.wire.aborted_index import AbortedTransaction
from tierkit import local_settings

#: Offset 0 of the history is a control record.
DATA = list(range(1, END))


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    settings = local_settings(tmp_path)
    fill(settings, (2, 0))
    return settings


def piece_of(settings: TierSettings, start: int = 0, end: int = END, **more: Any) -> TablePiece:
    """The files of partition 2 that hold a range, as a plan has them."""
    history = TopicHistory(str(root_of(settings)))
    return TablePiece(place=TablePlace(uri=history.uri), files=tuple(history.files(2, start, end)), **more)


def range_of(start: int, end: int) -> OffsetRange:
    return OffsetRange(topic=GROUP.topic, partition=2, start=start, end=end)


def rows(piece: TablePiece, start: int = 0, end: int = END, *, headers: bool = False) -> list[tuple[int, list[int]]]:
    """What a reader yields: the offset behind each batch, and the offsets of its rows."""
    found = TableReader(piece, range_of(start, end), include_headers=headers).rows(start, end)
    return [(behind, [] if batch is None else batch.column("offset").to_pylist()) for behind, batch in found]


def flat(found: list[tuple[int, list[int]]]) -> list[int]:
    return [offset for _, offsets in found for offset in offsets]


def remove(settings: TierSettings, name: str) -> None:
    (root_of(settings) / "partition=2" / name).unlink()


def vacuum(settings: TierSettings) -> None:
    """OPTIMIZE, and all that it replaced leaves the store."""
    table = DeltaTable(root_of(settings))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@pytest.mark.parametrize("headers", [False, True])
def test_the_columns_are_those_of_the_log(settings: TierSettings, headers: bool) -> None:
    found = TableReader(piece_of(settings), range_of(0, END), include_headers=headers).rows(0, END)
    for _, batch in found:
        assert batch.schema.equals(record_schema(headers))
        assert set(batch.column("topic").to_pylist()) == {GROUP.topic} and set(batch.column("partition").to_pylist()) == {2}


def test_offsets_ascend_and_control_records_are_no_rows(settings: TierSettings) -> None:
    found = rows(piece_of(settings))
    assert flat(found) == DATA and found[-1][0] == END
    assert flat(rows(piece_of(settings, 5, 9), 5, 9)) == [5, 6, 7, 8]
    # A range of a control record alone tells how far it has come.
    assert rows(piece_of(settings, 0, 1), 0, 1) == [(1, [])]


def test_batches_are_large(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark pays for each Arrow batch."""
    assert table_reader.ROWS_TOGETHER >= 100_000
    monkeypatch.setattr(table_reader, "ROWS_TOGETHER", 2)
    assert max(len(offsets) for _, offsets in rows(piece_of(settings))) == 2


# --- files that are gone -----------------------------------------------------------------------------------------------


def test_optimize_and_vacuum_between_the_plan_and_the_reading(settings: TierSettings) -> None:
    piece = piece_of(settings)
    vacuum(settings)
    assert flat(rows(piece)) == DATA


@pytest.mark.parametrize("is_planned", [True, False])
def test_vacuum_amid_the_reading(settings: TierSettings, is_planned: bool) -> None:
    """The version that a task has looked at itself grows old as well."""
    piece = piece_of(settings) if is_planned else replace(piece_of(settings), files=None)
    found = TableReader(piece, range_of(0, END), include_headers=False).rows(0, END)
    behind, first = next(found)
    vacuum(settings)
    assert [*first.column("offset").to_pylist(), *(n for _, b in found for n in b.column("offset").to_pylist())] == DATA
    assert behind < END


def test_a_file_that_is_gone_though_the_table_shows_it(settings: TierSettings) -> None:
    piece = piece_of(settings)
    remove(settings, "p2s1.parquet")
    with pytest.raises(TierProblem, match=r"p2s1.parquet is gone"):
        rows(piece)


def test_a_damaged_file_is_named(settings: TierSettings) -> None:
    piece = piece_of(settings)
    path = root_of(settings) / "partition=2" / "p2s1.parquet"
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    with pytest.raises(TierProblem, match=r"p2s1\.parquet"):
        rows(piece)


def retain_from(settings: TierSettings, start: int) -> None:
    """What retention leaves: whole files go, also from the store."""
    table = DeltaTable(root_of(settings))
    table.delete(f'"partition" = 2 and "offset" < {start}')
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def test_retention_between_the_plan_and_the_reading(settings: TierSettings) -> None:
    piece = piece_of(settings)
    retain_from(settings, 13)
    with pytest.raises(LostRows) as lost:
        rows(piece)
    assert lost.value.start == 13
    assert flat(rows(piece, 13)) == list(range(13, END))


def test_without_files_the_newest_version_is_read_up_to_its_end(settings: TierSettings) -> None:
    piece = replace(piece_of(settings), files=None)
    found = rows(piece, 3, 100)
    assert flat(found) == list(range(3, END)) and found[-1][0] == END, "the rest is the log's"
    with pytest.raises(LostRows) as lost:
        rows(piece, END, 100)
    assert lost.value.start is None
    with pytest.raises(WrongState, match="there is no Delta table"):
        rows(TablePiece(place=TablePlace(uri="/nowhere")), 0, 9)


# --- times ---------------------------------------------------------------------------------------------------------------


def test_row_groups_of_other_times_are_left_out(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of the history have the milliseconds of their offsets."""
    asked: list[tuple[int, int]] = []
    read_files = table_reader.read_files

    def spy(store: Any, uri: str, files: Any, start: int, end: int, *rest: Any, **named: Any) -> Any:
        asked.append((start, end))
        return read_files(store, uri, files, start, end, *rest, **named)

    monkeypatch.setattr(table_reader, "read_files", spy)
    base = 1_700_000_000_000_000
    found = rows(piece_of(settings, times=TimeSpan(base + 14_000, base + 14_000)))
    assert asked == [(13, 22)] and set(flat(found)) >= {14} and found[-1] == (END, [])
    asked.clear()
    assert rows(piece_of(settings, times=TimeSpan(base + 10**9, None))) == [(END, [])] and asked == []


# --- the log and the table stand in for each other -----------------------------------------------------------------------


def log_of(*segments: tuple[tuple[int, int], ...]) -> FakeQuorum:
    """A log with the batches of the history and one more of three records."""
    quorum = FakeQuorum(**{GROUP.topic: 3})
    log = quorum.logs[GROUP.topic][2]
    for batch in (each for segment in SEGMENTS for each in segment):
        log.append(batch_of(*batch))
    log.append(batch_of(END, 8))
    return quorum


def task(piece: TablePiece | None, start: int = 0, end: int = END + 3, **more: Any) -> RangePartition:
    facts = {"node_id": None, "replicas": (1, 2, 3), "include_headers": True, "fail_on_data_loss": True, **more}
    return RangePartition(
        range=range_of(start, end),
        topic_id=(1).to_bytes(16, "big"),
        quorum=Quorum(bootstrap_servers="a:1", client_id="c"),
        table=piece,
        **facts,
    )


def offsets(quorum: FakeQuorum, asked: RangePartition) -> list[int]:
    table = pa.Table.from_batches(list(read_range(quorum, asked)), record_schema(asked.include_headers))
    return [int(offset) for offset in table["offset"].to_pylist()]


def trimmed(start: int) -> FakeQuorum:
    quorum = log_of()
    quorum.logs[GROUP.topic][2].local_start = start
    return quorum


def test_a_task_of_the_table_asks_no_node(settings: TierSettings) -> None:
    quorum = log_of()
    assert offsets(quorum, task(piece_of(settings), end=END)) == DATA
    assert quorum.fetches == [] == quorum.calls


def test_a_log_that_was_trimmed_since_the_plan(settings: TierSettings, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is deleted from local disks before the table shows it."""
    with caplog.at_level(logging.WARNING):
        assert offsets(trimmed(END), task(replace(piece_of(settings), files=None))) == [*DATA, END, END + 1, END + 2]
    assert "reading from the table" in caplog.text
    assert offsets(trimmed(10), task(replace(piece_of(settings), files=None), start=5)) == list(range(5, END + 3))


def test_a_log_that_is_trimmed_amid_the_reading(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    quorum = log_of()
    found = read_range(quorum, task(replace(piece_of(settings), files=None)))
    begun = next(found).column("offset").to_pylist()
    quorum.logs[GROUP.topic][2].local_start = END
    assert begun + [n for batch in found for n in batch.column("offset").to_pylist()] == [*DATA, END, END + 1, END + 2]


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE])
def test_what_a_node_cannot_read_is_read_from_the_table(settings: TierSettings, code: ErrorCode) -> None:
    refused = RequestRejected(code, "the table cannot be read")
    quorum = log_of()
    quorum.fetch_script = [refused]
    assert offsets(quorum, task(replace(piece_of(settings), files=None), end=END)) == DATA
    quorum.fetch_script = [refused]
    with pytest.raises(RequestRejected, match="cannot be read"):
        offsets(quorum, task(None, end=END, fail_on_data_loss=False))


def damaged_log(batch: int) -> FakeQuorum:
    quorum = log_of()
    quorum.logs[GROUP.topic][2].batches[batch][-1] ^= 1
    return quorum


def test_damage_on_all_nodes_is_read_from_the_table(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    piece = replace(piece_of(settings), files=None)
    assert offsets(damaged_log(3), task(piece)) == [*DATA, END, END + 1, END + 2]
    with pytest.raises(CorruptBatch):
        offsets(damaged_log(3), task(None))


def test_no_row_comes_twice_when_a_piece_fails_behind_its_first_row(
    settings: TierSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def amid(self: Any, fetched: Any, position: int) -> Iterator[Any]:
        yield decode(self, fetched, position)[0]
        raise CorruptBatch("amid")

    decode = reader._RangeReader._decode
    monkeypatch.setattr(reader._RangeReader, "_decode", amid)
    found = read_range(log_of(), task(replace(piece_of(settings), files=None)))
    next(found)
    with pytest.raises(CorruptBatch, match="amid"):
        next(found)


def test_an_offset_that_no_node_gives_in_time_is_read_from_the_table(
    settings: TierSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patience, "total_ms", -1)
    quorum = log_of()
    quorum.fetch_script = [RequestRejected(ErrorCode.OFFSET_NOT_AVAILABLE, "not yet")]
    assert offsets(quorum, task(replace(piece_of(settings), files=None), end=END)) == DATA


def spoil(settings: TierSettings) -> None:
    remove(settings, "p2s1.parquet")


def take_away(settings: TierSettings) -> None:
    shutil.rmtree(root_of(settings))


@pytest.mark.parametrize("harm", [spoil, take_away])
def test_a_table_that_cannot_be_read_is_read_from_the_nodes(
    settings: TierSettings, caplog: pytest.LogCaptureFixture, harm: Callable[[TierSettings], None]
) -> None:
    piece = piece_of(settings)
    harm(settings)
    with caplog.at_level(logging.WARNING):
        assert offsets(log_of(), task(piece)) == [*DATA, END, END + 1, END + 2]
    assert "reading from the log" in caplog.text


@pytest.mark.parametrize("harm", [spoil, take_away])
@pytest.mark.parametrize("fail", [True, False])
def test_a_table_that_cannot_be_read_and_a_log_that_begins_later_are_no_lost_data(
    settings: TierSettings, harm: Callable[[TierSettings], None], fail: bool
) -> None:
    """The table may have it: who reads on would lose records without need."""
    piece = piece_of(settings)
    harm(settings)
    with pytest.raises((TierProblem, WrongState), match=r"is gone|no Delta table"):
        offsets(trimmed(END), task(piece, fail_on_data_loss=fail))
    with pytest.raises((TierProblem, WrongState), match=r"is gone|no Delta table"):
        offsets(log_of(), task(piece, reads_log=False, fail_on_data_loss=fail))


def test_what_neither_table_nor_log_has_is_lost_and_named(settings: TierSettings) -> None:
    piece = piece_of(settings)
    retain_from(settings, 13)
    quorum = trimmed(22)
    for files in (piece.files, None):
        with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 13\) of flights-2"):
            offsets(quorum, task(replace(piece, files=files)))
        asked = task(replace(piece, files=files), fail_on_data_loss=False)
        assert offsets(quorum, asked) == list(range(13, END + 3))
    # The log begins before the table: what the log has is not lost.
    assert offsets(trimmed(7), task(piece, fail_on_data_loss=False)) == list(range(7, END + 3))
    with pytest.raises(DataLoss, match=r"\[0, 7\) of flights-2"):
        offsets(trimmed(7), task(piece))


def test_only_the_table_loses_what_it_does_not_show(settings: TierSettings) -> None:
    piece = piece_of(settings)
    retain_from(settings, 13)
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 13\) of flights-2 \(the table at"):
        offsets(log_of(), task(piece, end=END, reads_log=False))
    assert offsets(log_of(), task(piece, end=END, reads_log=False, fail_on_data_loss=False)) == list(range(13, END))
    with pytest.raises(DataLoss, match=r"\[25, 28\)"):
        offsets(log_of(), task(replace(piece, files=None), start=13, reads_log=False))


def test_without_the_package_the_nodes_serve(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = piece_of(settings)
    monkeypatch.setitem(__import__("sys").modules, "pyspark_raftlake.table_reader", None)
    assert offsets(log_of(), task(piece)) == [*DATA, END, END + 1, END + 2]
    with pytest.raises(ImportError):
        offsets(log_of(), task(piece, reads_log=False))


def test_records_of_aborted_transactions_are_for_those_who_read_what_is_not_committed(settings: TierSettings) -> None:
    more = data_batch(END, 9, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    request = request_for(more, "more", 9, Lineage(GROUP._replace(partition=2), 0))
    aborted = (AbortedTransaction(7, END, END + 3, END + 4),)
    assert isinstance(DeltaTier(settings).copy(replace(request, aborted=aborted)), RemoteSegment)
    piece, whole = piece_of(settings, 0, END + 3), range_of(0, END + 3)
    committed = TableReader(piece, whole, include_headers=False).rows(0, END + 3)
    assert flat([(b, [] if rows is None else rows.column("offset").to_pylist()) for b, rows in committed]) == DATA
    every = TableReader(piece, whole, include_headers=False, reads_committed=False).rows(0, END + 3)
    found = flat([(b, [] if rows is None else rows.column("offset").to_pylist()) for b, rows in every])
    assert found == [*DATA, END, END + 1, END + 2]
