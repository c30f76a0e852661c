"""Calls that only read: after OPTIMIZE, with files that are gone or damaged, and how often a table is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from deltalake import DeltaTable, write_deltalake

from contract.tier_contract import GROUP, LINEAGE, bytes_of, data_batch, failure, request_for, segment
from contract.tier_history_contract import all_kinds
from raftlake.arrow.records import segment_schema
from raftlake.ports.tier import (
    TIME_MS_MAX,
    CopyRequest,
    Lineage,
    LineageEnd,
    LineageFacts,
    ReadRequest,
    RemoteSegment,
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.tier import table_reads
from raftlake.tier.batch_reads import Cursor
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.findings import Kind
from raftlake.tier.reader import TopicHistory
from raftlake.tier.remote_segments import pack_auxiliary
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.table_reads import VIEW_SECONDS, TableReads
from raftlake.tier.topic_table import TopicTable
from raftlake.tier.verify import verify_table
from raftlake.wire.batches import Record, build_batch, iterate_headers
from tierkit import DeltaWorld, as_optimize, files_of, local_settings


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


@pytest.fixture
def tier(settings: TierSettings) -> DeltaTier:
    return DeltaTier(settings)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reads(settings: TierSettings, clock: Clock) -> TableReads:
    return TableReads(settings, now=clock)


def copied(tier: DeltaTier, *requests: CopyRequest) -> list[RemoteSegment]:
    made = [tier.copy(request) for request in requests]
    assert all(isinstance(each, RemoteSegment) for each in made), made
    return [each for each in made if isinstance(each, RemoteSegment)]


def piece(offset: int, end: int = 1 << 40, size: int = 1 << 20, lineage: Lineage = LINEAGE) -> ReadRequest:
    return ReadRequest(lineage=lineage, offset=Offset(offset), end_offset=Offset(end), size_max=size)


def delta(settings: TierSettings) -> DeltaTable:
    return DeltaTable(table_uri(settings.uri, GROUP))


def reason(answer: object) -> str:
    assert isinstance(answer, TierError), answer
    return answer.reason


def everything(reads: TableReads, start: int, end: int, size: int) -> bytes:
    """All batches, read one piece after another."""
    found = b""
    while start < end:
        answer = reads.read(piece(start, size=size))
        assert isinstance(answer, bytes) and answer, answer
        found += answer
        start = [header.end_offset for header in iterate_headers(answer)][-1]
    return found


# --- after OPTIMIZE --------------------------------------------------------------------------------------------------------


def compacted(settings: TierSettings) -> None:
    assert delta(settings).optimize.compact()["numFilesRemoved"] > 1


def split(settings: TierSettings) -> None:
    """Into files that overlap, of which each holds parts of batches, out of order."""
    table = delta(settings)
    rows = pa.concat_tables(list(files_of(settings, LINEAGE).values())).sort_by("offset")
    rows = rows.append_column("partition", pa.array([2] * rows.num_rows, pa.int32())).select(segment_schema().names)
    half = rows.num_rows // 2 + 1
    parts = [range(0, half, 2), range(half - 1 - half % 2, 0, -2), range(half, rows.num_rows)]
    assert sorted(row for part in parts for row in part) == list(range(rows.num_rows))
    with as_optimize(table):
        for number, part in enumerate(parts):
            write_deltalake(table, rows.take(pa.array(part)), mode="append" if number else "overwrite")
    assert len(table.file_uris()) == 3


@pytest.mark.parametrize("rewrite", [compacted, split], ids=lambda rewrite: rewrite.__name__)
def test_after_optimize_all_is_read_as_before(
    settings: TierSettings, tier: DeltaTier, reads: TableReads, rewrite: Callable[[TierSettings], None]
) -> None:
    batches = [*all_kinds(), *(data_batch(base, 6) for base in range(13, 40, 3))]
    cuts = (0, 3, 6, 9, len(batches))
    requests = [
        request_for(b"".join(batches[low:high]), f"s{low}", 6, auxiliary=b"beside %d" % low) for low, high in pairwise(cuts)
    ]
    made = copied(tier, *requests)
    whole = b"".join(batches)
    before = reads.facts(LINEAGE)
    assert everything(reads, 0, 40, 300) == whole
    rewrite(settings)
    assert not {each.file for each in made} & {str(path) for path in delta(settings).file_uris()}
    for size in (1, 300, 1 << 20):
        assert everything(reads, 0, 40, size) == whole
    starts = list(accumulate(map(len, batches), initial=0))
    for header, start in zip(iterate_headers(whole), starts[:-1], strict=True):
        assert reads.read(piece(header.end_offset - 1)) == whole[start:]
    for request, copy in zip(requests, made, strict=True):
        for offset in (copy.base_offset, Offset(copy.end_offset - 1)):
            assert reads.find(LINEAGE, offset) == RemoteState(copy, request.auxiliary)
        assert reads.check(LINEAGE, copy) is None
    after = reads.facts(LINEAGE)
    assert isinstance(before, LineageFacts) and isinstance(after, LineageFacts)
    assert (after.epochs, after.newest, after.segments) == (before.epochs, before.newest, before.segments)
    assert (after.start_offset, after.end_offset, after.log_bytes) == (0, 40, before.log_bytes)
    assert after.size == sum(Path(path).stat().st_size for path in delta(settings).file_uris())


def test_a_check_after_optimize_finds_rows_that_are_not_as_they_were(
    settings: TierSettings, tier: DeltaTier, reads: TableReads
) -> None:
    first, second = copied(tier, segment(0, "a"), segment(6, "b"))
    compacted(settings)
    with as_optimize(delta(settings)) as table:
        table.update({"value": "CAST('other' AS BYTEA)"}, predicate="offset = 7")
    assert reads.check(LINEAGE, first) is None
    answer = reads.check(LINEAGE, second)
    assert failure(answer) is TierFailure.DAMAGED
    assert "offset 6" in reason(answer) and ".parquet" in reason(answer)
    with as_optimize(delta(settings)) as table:
        table.delete("offset = 2")
    # By their number too: a row that is missing is missed by all of the partition.
    assert failure(reads.check(LINEAGE, first)) is TierFailure.CHANGED


def test_a_check_of_what_rows_told_a_claim_goes_by_the_rows(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    """The file beside the copy was missing when a leader claimed, and was put back. The key tells of a file of OPTIMIZE
    from then on, whose checksum proves nothing."""
    copied(tier, request_for(data_batch(0, 4) + data_batch(3, 5), "a", 7), segment(6, "b", epoch=7))
    (written,) = copied(tier, request_for(data_batch(12, 5) + data_batch(15, 6), "c", 7))
    root = Path(table_uri(settings.uri, GROUP))
    beside = root / "_raftlake/c.aux"
    kept = beside.read_bytes()
    beside.unlink()
    compacted(settings)
    end = tier.claim(LINEAGE, Epoch(8))
    assert isinstance(end, LineageEnd) and end.last is not None and end.last != written
    told = end.last
    answer = reads.check(LINEAGE, told)
    assert failure(answer) is TierFailure.DAMAGED and "c.aux is missing" in reason(answer)
    beside.write_bytes(kept)
    assert reads.check(LINEAGE, told) is None
    other = replace(told, epochs=((Epoch(5), Offset(12)),))
    assert failure(reads.check(LINEAGE, other)) is TierFailure.DAMAGED
    with as_optimize(delta(settings)) as table:
        table.update({"value": "CAST('other' AS BYTEA)"}, predicate="offset = 13")
    (path,) = files_of(settings, LINEAGE)
    content = (root / path).read_bytes()
    again = replace(told, file=path, size=len(content), crc=crc32c(content))
    assert failure(reads.check(LINEAGE, again)) is TierFailure.DAMAGED


def test_a_delete_after_optimize_removes_whole_files_only(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    requests = [segment(base, f"s{base}") for base in (0, 6, 12)]
    made = copied(tier, *requests[:2])
    compacted(settings)
    made += copied(tier, requests[2])
    assert tier.delete(LINEAGE, Epoch(5), Offset(11)) == 0
    files = reads.oldest(LINEAGE, 9)
    assert isinstance(files, tuple)
    assert [(each.base_offset, each.end_offset) for each in files] == [(0, 12), (12, 18)]
    # Whole copies are in the file: what they had in the log is known.
    assert [each.log_bytes for each in files] == [made[0].log_bytes + made[1].log_bytes, made[2].log_bytes]
    assert [each.timestamp_ms_max for each in files] == [made[1].timestamp_ms_max, made[2].timestamp_ms_max]
    assert tier.delete(LINEAGE, Epoch(5), Offset(12)) == 12
    assert reads.read(piece(12)) == bytes_of(requests[2])
    assert failure(reads.check(LINEAGE, made[0])) is TierFailure.ABSENT


def test_rows_in_another_order_of_several_epochs_tell_their_epochs(
    settings: TierSettings, tier: DeltaTier, reads: TableReads
) -> None:
    batches = [data_batch(3 * n, epoch) for n, epoch in enumerate((1, 1, 2, 4, 4, 7))]
    copied(tier, *(request_for(b"".join(batches[n : n + 2]), f"s{n}", 7) for n in (0, 2, 4)))
    split(settings)
    found = reads.facts(LINEAGE)
    assert isinstance(found, LineageFacts)
    assert found.epochs == ((1, 0), (2, 6), (4, 9), (7, 15))


@pytest.mark.parametrize("time_ms", [TIME_MS_MAX, -TIME_MS_MAX, -2, 253_402_300_800_000])
def test_the_largest_times_that_a_node_takes_come_back(tier: DeltaTier, reads: TableReads, time_ms: int) -> None:
    batch = bytes(build_batch([Record(timestamp_ms=time_ms, value=b"v")], base_offset=0, leader_epoch=5, timestamp_ms=time_ms))
    assert next(iterate_headers(batch)).timestamp_ms_max == time_ms
    copied(tier, request_for(batch, "a"))
    assert reads.read(piece(0)) == batch
    beyond = bytes(
        build_batch([Record(timestamp_ms=TIME_MS_MAX + 1, value=b"v")], base_offset=1, leader_epoch=5, timestamp_ms=0)
    )
    assert failure(tier.copy(request_for(beyond, "b"))) is TierFailure.DAMAGED


# --- files that are gone or damaged ----------------------------------------------------------------------------------------


def test_a_file_that_is_gone_is_damage_with_its_name(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    made = copied(tier, segment(0, "a"), segment(6, "b"))
    Store(table_uri(settings.uri, GROUP), {}).discard([made[1].file])
    for answer in (reads.read(piece(6)), reads.check(LINEAGE, made[1])):
        assert failure(answer) is TierFailure.DAMAGED
        assert "partition=2/b.parquet is gone" in reason(answer)
    assert reads.read(piece(0)) == bytes_of(segment(0, "a"))
    # The facts stand beside the file.
    assert isinstance(reads.find(LINEAGE, Offset(6)), RemoteState)


def test_a_file_that_optimize_and_vacuum_took_away_is_read_from_its_successor(
    settings: TierSettings, tier: DeltaTier, reads: TableReads
) -> None:
    """The reader had seen the version before, and a cursor stood in the middle."""
    requests = [segment(base, f"s{base}") for base in (0, 6, 12)]
    made = copied(tier, *requests)
    half = len(bytes_of(requests[0])) // 2
    assert reads.read(piece(0, size=half)) == bytes_of(requests[0])[:half]
    compacted(settings)
    delta(settings).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert everything(reads, 3, 18, half) == b"".join(map(bytes_of, requests))[half:]
    assert reads.check(LINEAGE, made[1]) is None
    assert reads.find(LINEAGE, Offset(6)) == RemoteState(made[1], b"producers")


def test_a_rewritten_value_is_never_given(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    copied(tier, segment(0, "a"), segment(6, "b"))
    delta(settings).update({"value": "CAST('other' AS BYTEA)"}, predicate="offset = 8")
    assert reads.read(piece(0, end=6)) == bytes_of(segment(0, "a"))
    answer = reads.read(piece(6))
    assert failure(answer) is TierFailure.DAMAGED
    assert "offset 6 is not as it was written" in reason(answer) and "partition=2/" in reason(answer)


def test_a_flipped_byte_in_a_compressed_batch_is_found(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    """Such a batch has no CRC that can be made again. The pages of its file have checksums."""
    # Values that nothing compresses lie in the file as they are: only a checksum tells that one is another.
    values = [Random(number).randbytes(200) for number in range(40)]
    records = [Record(timestamp_ms=1_700_000_000_000, value=value) for value in values]
    batch = build_batch(records, base_offset=0, leader_epoch=5, timestamp_ms=0, compression="zstd")
    (made,) = copied(tier, request_for(bytes(batch), "a"))
    DeltaWorld(settings).damage(LINEAGE, made)
    answer = reads.read(piece(0))
    assert failure(answer) is TierFailure.DAMAGED
    assert "partition=2/a.parquet" in reason(answer)
    # What to do is what `verify` says.
    assert reason(answer).endswith(f": {Kind.FILE.advice}")
    (told,) = verify_table(TopicHistory(table_uri(settings.uri, GROUP))).findings
    assert told.kind is Kind.FILE and told.line().count(Kind.FILE.advice) == 1


def test_lost_auxiliary_bytes_are_named(settings: TierSettings, tier: DeltaTier, reads: TableReads) -> None:
    made = copied(tier, segment(0, "a"), segment(6, "b"))
    store = Store(table_uri(settings.uri, GROUP), {})
    store.discard(["_raftlake/a.aux"])
    for answer in (reads.find(LINEAGE, Offset(0)), reads.check(LINEAGE, made[0])):
        assert failure(answer) is TierFailure.DAMAGED
        assert "_raftlake/a.aux is missing" in reason(answer)
    # The file itself has the facts.
    found = reads.facts(LINEAGE)
    assert isinstance(found, LineageFacts) and found.newest == tuple(made)
    store.write("_raftlake/b.aux", store.read("_raftlake/b.aux") or b"")
    assert isinstance(reads.find(LINEAGE, Offset(6)), RemoteState)
    content = store.read("_raftlake/b.aux")
    assert content is not None
    store.write("_raftlake/a.aux", content)
    assert "_raftlake/a.aux is of another copy" in reason(reads.find(LINEAGE, Offset(0)))


@pytest.mark.parametrize(
    ("lineage", "base", "words"),
    [
        (LINEAGE, 100, "of a copy of the offsets 100 to 105, and its rows hold 2"),
        (LINEAGE, -4, "of a copy of the offsets -4 to 1, and its rows hold 2"),
        (Lineage(GROUP._replace(partition=1), 0), 0, "is of another copy"),
        (Lineage(GROUP, 1), 0, "is of another copy"),
    ],
)
def test_a_state_that_is_not_that_of_the_rows_is_not_given(
    settings: TierSettings, tier: DeltaTier, reads: TableReads, lineage: Lineage, base: int, words: str
) -> None:
    """Its name and its checksum are right: it was put back from another partition, say, or from before an election."""
    (copy,) = copied(tier, segment(0, "a"))
    told = replace(copy, base_offset=Offset(base), end_offset=Offset(base + 6))
    store = Store(table_uri(settings.uri, GROUP), {})
    store.write("_raftlake/a.aux", pack_auxiliary(lineage, told, b"producers"))
    answer = reads.find(LINEAGE, Offset(2))
    assert failure(answer) is TierFailure.DAMAGED and words in reason(answer)
    assert failure(reads.check(LINEAGE, copy)) is TierFailure.DAMAGED


def test_a_foreign_table_is_not_read(settings: TierSettings, reads: TableReads) -> None:
    DeltaWorld(settings).put_foreign_table(GROUP)
    for answer in (reads.read(piece(0)), reads.find(LINEAGE, Offset(0)), reads.facts(GROUP), reads.oldest(LINEAGE, 1)):
        assert failure(answer) is TierFailure.UNUSABLE
        assert "is not ours" in reason(answer)


def test_reading_creates_no_table(settings: TierSettings, reads: TableReads) -> None:
    assert failure(reads.read(piece(0))) is TierFailure.ABSENT
    assert not Path(settings.uri).exists()


# --- what is kept between calls ----------------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each look at a table."""
    refresh, found = TopicTable.refresh, []

    def counted(table: TopicTable) -> None:
        found.append(None)
        refresh(table)

    monkeypatch.setattr(TopicTable, "refresh", counted)
    return found


def test_a_consumer_that_reads_on_looks_at_the_table_once_in_a_while(
    tier: DeltaTier, reads: TableReads, clock: Clock, looks: list[None]
) -> None:
    request = segment(0, "a", count=30)
    copied(tier, request)
    looks.clear()
    size = len(bytes_of(request)) // 10
    assert everything(reads, 0, 30, size + 5) == bytes_of(request)
    assert len(looks) == 1
    clock.seconds += VIEW_SECONDS
    reads.read(piece(0))
    assert len(looks) == 2


def test_a_consumer_that_reads_on_decodes_each_row_once(
    tier: DeltaTier, reads: TableReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = segment(0, "a", count=30)
    copied(tier, request)
    opened: list[int] = []
    init = Cursor.__init__

    def counted(cursor: Cursor, *arguments: Any) -> None:
        opened.append(arguments[4])
        init(cursor, *arguments)

    monkeypatch.setattr(Cursor, "__init__", counted)
    size = len(bytes_of(request)) // 10 + 5
    assert everything(reads, 0, 30, size) == bytes_of(request)
    assert opened == [0]
    # Two consumers at once.
    first = reads.read(piece(0, size=size))
    second = reads.read(piece(12, size=size))
    assert isinstance(first, bytes) and isinstance(second, bytes)
    assert everything(reads, 3, 30, size) + second == bytes_of(request)[len(first) :] + second
    assert opened == [0, 0, 12]


def test_what_retention_removed_is_given_no_more_after_some_seconds(tier: DeltaTier, reads: TableReads, clock: Clock) -> None:
    copied(tier, segment(0, "a"), segment(6, "b"))
    assert isinstance(reads.read(piece(0, size=1)), bytes)
    assert tier.delete(LINEAGE, Epoch(5), Offset(6)) == 6
    clock.seconds += VIEW_SECONDS
    assert failure(reads.read(piece(3))) is TierFailure.ABSENT
    assert failure(reads.find(LINEAGE, Offset(3))) is TierFailure.ABSENT


def test_few_things_stay_open(
    settings: TierSettings, tier: DeltaTier, reads: TableReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("_TABLES_MAX", 2), ("_LINEAGES_MAX", 2), ("_CURSORS_MAX", 2)):
        monkeypatch.setattr(table_reads, name, limit)
    groups = [GROUP._replace(topic=f"t{n}", topic_id=bytes([n] * 16)) for n in range(1, 5)]
    for group in groups:
        for partition in range(4):
            lineage = Lineage(group._replace(partition=partition), 0)
            copied(tier, segment(0, f"p{partition}", lineage=lineage))
            assert isinstance(reads.read(piece(0, size=1, lineage=lineage)), bytes)
    assert [group.topic for group in reads._views] == ["t3", "t4"]
    assert len(reads._cursors) == 2
    assert all(len(view.lineages) <= 2 for view in reads._views.values())


def test_an_answer_has_a_bounded_size_whatever_was_asked_for(
    tier: DeltaTier, reads: TableReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = segment(0, "a", count=30)
    copied(tier, request)
    monkeypatch.setattr(table_reads, "READ_BYTES_MAX", 400)
    found = reads.read(piece(0, size=1 << 40))
    assert isinstance(found, bytes) and 0 < len(found) <= 400
