"""`raftlake tier verify` on real tables: whole ones, rewritten ones, and those that somebody has damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from contract.tier_contract import GROUP, data_batch, request_for
from historykit import END, SEGMENTS, all_rows, fill, lineage, rewrite, root_of, told, verify, with_value
from raftlake.errors import WrongState
from raftlake.ports.tier import RemoteSegment
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.findings import Kind
from raftlake.tier.probe import Probe
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.verify import PartitionReport, Progress, QuorumKeys, verify_table
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.ids import id_to_text
from tierkit import local_settings, put_foreign_table

OTHER_ID = id_to_text(bytes([7] * 16))


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    settings = local_settings(tmp_path)
    fill(settings, (2, 0))
    return settings


def file_of(settings: TierSettings, number: int, partition: int = 2) -> Path:
    return root_of(settings) / f"partition={partition}/p{partition}s{number}.parquet"


# --- whole tables ----------------------------------------------------------------------------------------------------------


def test_a_whole_table_has_no_findings_and_all_of_it_was_read(settings: TierSettings) -> None:
    seen: list[Progress] = []
    report = verify_table(TopicHistory(str(root_of(settings))), tell=seen.append)
    assert report.findings == ()
    batches = sum(map(len, SEGMENTS))
    expected = PartitionReport(
        partition=2,
        start=0,
        end=END,
        rows=END,
        files=len(SEGMENTS),
        segments=len(SEGMENTS),
        batches=batches,
        checked_batches=batches - 1,
    )
    assert report.partitions == (replace(expected, partition=0), expected)
    assert (report.topic, report.version) == (GROUP.topic, 2 * len(SEGMENTS))
    assert {progress.file for progress in seen} >= {"partition=2/p2s0.parquet", "partition=0/p0s3.parquet", None}
    assert (seen[-1].partition, seen[-1].rows, seen[-1].rows_total) == (2, END, END)


def test_rows_of_aborted_transactions_are_counted(settings: TierSettings) -> None:
    more = data_batch(END, 9, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    request = replace(request_for(more, "more", 9, lineage()), aborted=(AbortedTransaction(7, END, END + 3, END + 4),))
    assert isinstance(DeltaTier(settings).copy(request), RemoteSegment)
    report = verify_table(TopicHistory(str(root_of(settings))))
    assert report.findings == () and [part.aborted for part in report.partitions] == [0, 3]


@pytest.mark.parametrize("how", ["compact", "z_order offset", "z_order timestamp", "z_order value"])
def test_optimize_changes_nothing(settings: TierSettings, how: str) -> None:
    optimize = DeltaTable(root_of(settings)).optimize
    if how == "compact":
        optimize.compact()
    else:
        optimize.z_order([how.split()[1]])
    assert len(DeltaTable(root_of(settings)).file_uris()) == 2
    report = verify_table(TopicHistory(str(root_of(settings))))
    assert report.findings == ()
    assert [(part.rows, part.segments, part.checked_batches) for part in report.partitions] == [(END, 4, 8)] * 2


def test_rows_that_were_scattered_over_files_are_well(settings: TierSettings) -> None:
    """Each file has every third row, the last ones first."""
    rows = all_rows(settings)
    for part in range(3):
        chosen = rows.filter(pa.array([offset % 3 == part for offset in rows["offset"].to_pylist()]))
        backwards = chosen.sort_by([("offset", "descending")])
        write_deltalake(root_of(settings), backwards, mode="overwrite" if part == 0 else "append")
    assert len(DeltaTable(root_of(settings)).file_uris()) == 6
    # Each partition has one compressed batch, whose values nobody can check where they were written anew.
    findings = verify(settings)
    assert told(findings) == [("changed", None)] * 2
    assert all(f"the values of 1 of its {sum(map(len, SEGMENTS))} batches" in finding.what for finding in findings)


def test_a_changed_value_of_a_compressed_batch_is_told_as_a_change(settings: TierSettings) -> None:
    """Its CRC is of other bytes than rows tell. OPTIMIZE, which changes no value, is not told."""
    compressed = next(
        row["offset"] for row in all_rows(settings).to_pylist() if row["partition"] == 2 and row["batch_attributes"] & 7
    )
    rewrite(settings, lambda rows: with_value(rows, "value", compressed, b"other"))
    findings = [finding for finding in verify(settings) if finding.partition == 2]
    assert told(findings) == [("changed", None)]
    assert "another program has changed it" in findings[0].what and "raftlake tier undo" in findings[0].advice


def test_statistics_are_not_needed(settings: TierSettings) -> None:
    table = DeltaTable(root_of(settings))
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "kind"})
    table.optimize.compact()
    assert all(file.offset_min is None for file in TopicHistory(str(root_of(settings))).files(2))
    assert verify(settings) == []
    rewrite(settings, lambda rows: rows.filter(pa.array([offset != 8 for offset in rows["offset"].to_pylist()])))
    assert ("gap", 8) in told(verify(settings))


def test_copies_go_on_after_optimize(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).optimize.compact()
    more = request_for(data_batch(END, 9), "more", 9, lineage())
    assert isinstance(DeltaTier(settings).copy(more), RemoteSegment)
    assert verify(settings) == []


def test_a_second_incarnation_follows_the_first_one(settings: TierSettings) -> None:
    more = request_for(data_batch(END, 9), "again", 9, lineage(incarnation=1))
    assert isinstance(DeltaTier(settings).copy(more), RemoteSegment)
    assert verify(settings) == []
    # Behind it the first one has rows again.
    late = request_for(data_batch(END, 9), "late", 9, lineage())
    assert isinstance(DeltaTier(settings).copy(late), RemoteSegment)
    assert told(verify(settings))[:2] == [("overlap", END), ("twice", END)]


# --- rows ------------------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[Callable[[Any], Any], list[tuple[str, int | None]]]] = {
    "a row is removed": (lambda rows: without(rows, 8), [("gap", 8)]),
    "rows are removed": (lambda rows: without(rows, 6, 7, 8), [("gap", 6)]),
    "the last rows are removed": (lambda rows: without(rows, 23, 24), [("crc", 22), ("end", 22)]),
    "a row is there twice": (lambda rows: doubled(rows, 8), [("twice", 8)]),
    "two batches are there twice": (lambda rows: doubled(rows, *range(16, 22)), [("twice", 16)]),
    "a value is another one": (lambda rows: with_value(rows, "value", 8, b"other"), [("crc", 7)]),
    "a value is null": (lambda rows: with_value(rows, "value", 8, None), [("crc", 7)]),
    "a key is another one": (lambda rows: with_value(rows, "key", 7, b""), [("crc", 7)]),
    "a time is another one": (lambda rows: with_value(rows, "timestamp", 17, rows["timestamp"][0].as_py()), [("crc", 16)]),
    "a header is gone": (lambda rows: with_value(rows, "headers", 17, []), [("crc", 16)]),
    "a CRC is another one": (lambda rows: of_batch(rows, "batch_crc", 7, 5), [("crc", 7)]),
    "an epoch goes back": (lambda rows: of_batch(rows, "leader_epoch", 10, 2), [("epoch", 10)]),
    "an epoch differs in a batch": (lambda rows: with_value(rows, "leader_epoch", 12, 6), [("epoch", 13), ("batch", 12)]),
    "a producer differs in a batch": (lambda rows: with_value(rows, "producer_id", 9, 6), [("batch", 9)]),
    "a base offset is another one": (lambda rows: with_value(rows, "batch_base_offset", 9, 8), [("batch", 9), ("crc", 7)]),
    "a number is none of a batch": (lambda rows: of_batch(rows, "producer_epoch", 7, 40_000), [("crc", 7)]),
    "a transaction that never was is aborted": (lambda rows: of_batch(rows, "kind", 7, 2), [("batch", 7)]),
    "a control record is data": (lambda rows: with_value(rows, "kind", 0, 0), [("batch", 0)]),
    "a topic is another one": (lambda rows: with_value(rows, "topic", 9, "trains"), [("foreign", 9)]),
    "a CRC is null": (lambda rows: with_value(rows, "batch_crc", 22, None), [("batch", 23), ("foreign", 22), ("crc", 22)]),
}


def without(rows: Any, *offsets: int) -> Any:
    return rows.filter(pa.array([not is_of(row, offsets) for row in zip(rows["partition"], rows["offset"], strict=True)]))


def doubled(rows: Any, *offsets: int) -> Any:
    again = rows.filter(pa.array([is_of(row, offsets) for row in zip(rows["partition"], rows["offset"], strict=True)]))
    return pa.concat_tables([rows, again])


def is_of(row: tuple[Any, Any], offsets: tuple[int, ...]) -> bool:
    return row[0].as_py() == 2 and row[1].as_py() in offsets


def of_batch(rows: Any, name: str, base: int, value: Any) -> Any:
    for offset in range(base, base + 3):
        rows = with_value(rows, name, offset, value)
    return rows


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_rows_are_found_where_they_are(settings: TierSettings, what: str) -> None:
    change, expected = DAMAGE[what]
    rewrite(settings, change)
    findings = [finding for finding in verify(settings) if finding.kind is not Kind.CHANGED]
    assert told(findings) == expected
    shown = {Path(uri).relative_to(root_of(settings)).as_posix() for uri in DeltaTable(root_of(settings)).file_uris()}
    for finding in findings:
        assert finding.partition == 2 and finding.table == str(root_of(settings))
        assert finding.file in shown or finding.kind is Kind.END
        line = finding.line()
        assert "\n" not in line and "partition 2" in line and str(finding.offset) in line and finding.advice in line


def test_rows_that_somebody_appended_are_found(settings: TierSettings) -> None:
    rows = all_rows(settings).slice(END, 3)
    behind = rows.set_column(rows.schema.get_field_index("offset"), "offset", pa.array([90, 91, 92], pa.int64()))
    write_deltalake(root_of(settings), behind, mode="append")
    assert {("gap", END), ("epoch", 90), ("end", 92)} <= set(told(verify(settings)))


def test_a_partition_that_has_lost_all_rows_is_found(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete('"partition" = 2')
    (finding,) = verify(settings)
    assert (finding.kind, finding.partition) == (Kind.END, 2) and f"up to {END - 1}" in finding.what
    DeltaTable(root_of(settings)).delete()
    assert [(finding.kind, finding.partition) for finding in verify(settings)] == [(Kind.END, 0), (Kind.END, 2)]


def test_a_partition_that_only_somebody_else_wrote_is_found(settings: TierSettings) -> None:
    rows = all_rows(settings)
    ours = rows.filter(pa.array([partition == 2 for partition in rows["partition"].to_pylist()]))
    other = ours.set_column(ours.schema.get_field_index("partition"), "partition", pa.array([5] * END, pa.int32()))
    write_deltalake(root_of(settings), other, mode="append")
    (finding,) = verify(settings)
    assert (finding.kind, finding.partition) == (Kind.END, 5)


def test_of_many_findings_some_are_told_and_all_are_counted(settings: TierSettings) -> None:
    tier = DeltaTier(settings)
    content = b"".join(data_batch(END + n, 9, count=1) for n in range(60))
    assert isinstance(tier.copy(request_for(content, "many", 9, lineage())), RemoteSegment)
    rewrite(settings, lambda rows: without(rows, *range(END, END + 60, 2)))
    findings = [finding for finding in verify(settings) if finding.kind is Kind.GAP]
    assert len(findings) == 21
    assert findings[-1].what == "10 more findings of this kind (gap)" and findings[-1].offset is None


# --- files -----------------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_once_with_its_offsets(settings: TierSettings) -> None:
    file_of(settings, 1).unlink()
    (finding,) = verify(settings)
    assert (finding.kind, finding.file, finding.offset) == (Kind.FILE, "partition=2/p2s1.parquet", 7)
    assert "is gone; it held the offsets 7 to 12" in finding.what


@pytest.mark.parametrize("number", [0, 3])
def test_a_missing_file_at_either_end_is_no_gap(settings: TierSettings, number: int) -> None:
    file_of(settings, number).unlink()
    assert told(verify(settings)) == [("file", SEGMENTS[number][0][0])]


def test_a_file_of_another_size_is_found(settings: TierSettings) -> None:
    with open(file_of(settings, 1), "ab") as file:
        file.write(b"more")
    (finding,) = verify(settings)
    assert finding.kind is Kind.FILE and "bytes and not" in finding.what and finding.file == "partition=2/p2s1.parquet"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.97])
def test_a_flipped_byte_is_found_wherever_it_is(settings: TierSettings, share: float) -> None:
    path = file_of(settings, 2)
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0x10
    path.write_bytes(content)
    findings = verify(settings)
    assert told(findings) == [("file", 13)] and findings[0].file == "partition=2/p2s2.parquet"
    assert "the file was written with" in findings[0].what and "it held the offsets 13 to 21" in findings[0].what


def test_auxiliary_bytes_that_are_damaged_or_gone_are_found(settings: TierSettings) -> None:
    path = root_of(settings) / "_raftlake/p2s2.aux"
    path.write_bytes((root_of(settings) / "_raftlake/p2s1.aux").read_bytes())
    (finding,) = verify(settings)
    assert finding.kind is Kind.FILE and "_raftlake/p2s2.aux is damaged" in finding.what
    path.unlink()
    (finding,) = verify(settings)
    assert "_raftlake/p2s2.aux is missing" in finding.what and finding.offset == 13


def test_only_files_that_nothing_vouches_for_are_tried_out(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some damage of metadata ends the process that reads it."""
    tried: list[str] = []
    monkeypatch.setattr(Probe, "survives", lambda probe, path: tried.append(path) or False)
    assert verify(settings) == [] and tried == []
    (root_of(settings) / "_raftlake/p2s2.aux").unlink()
    (finding,) = verify(settings)
    assert tried == ["partition=2/p2s2.parquet"]
    assert (finding.kind, finding.offset) == (Kind.FILE, 13) and "its metadata is damaged" in finding.what
    DeltaTable(root_of(settings)).optimize.compact()
    assert [finding.kind for finding in verify(settings)] == [Kind.FILE] * 2 and len(tried) == 3


def test_statistics_that_do_not_fit_are_found(settings: TierSettings) -> None:
    """Spark skips files by them: a wrong range hides rows."""
    log = root_of(settings) / "_delta_log/00000000000000000002.json"
    assert '\\"offset\\":7' in log.read_text() or '\\"offset\\": 7' in log.read_text()
    log.write_text(
        log.read_text().replace('\\"offset\\": 12', '\\"offset\\": 11').replace('\\"offset\\":12', '\\"offset\\":11')
    )
    findings = verify(settings)
    assert ("file", 7) in told(findings) and "offsets 7 to 11 in 6 rows; the file: 7 to 12 in 6" in findings[0].what


def test_copies_that_overlap_are_named_both(settings: TierSettings) -> None:
    """Somebody has put back a file of the tier that was not the table's any more."""
    other = local_settings(Path(settings.uri).parent / "other")
    tier = DeltaTier(other)
    assert isinstance(tier.copy(request_for(data_batch(10, 5), "old", 9, lineage())), RemoteSegment)
    commit = (root_of(other) / "_delta_log/00000000000000000001.json").read_text()
    add = next(line for line in commit.splitlines() if line.startswith('{"add"'))
    for name in ("partition=2/old.parquet", "_raftlake/old.aux"):
        shutil.copy(root_of(other) / name, root_of(settings) / name)
    version = DeltaTable(root_of(settings)).version() + 1
    (root_of(settings) / f"_delta_log/{version:020d}.json").write_text(add + "\n")
    findings = verify(settings)
    assert told(findings) == [("overlap", 10), ("twice", 10)]
    assert findings[0].file == "partition=2/old.parquet" and "partition=2/p2s1.parquet" in findings[0].what
    assert "p2s1.parquet" in findings[1].what + str(findings[1].file) and "old.parquet" in findings[1].what + str(
        findings[1].file
    )


def test_a_file_that_the_table_no_longer_shows_is_no_fault(settings: TierSettings) -> None:
    """Rewritten and vacuumed while the table is read."""
    history = TopicHistory(str(root_of(settings)))
    DeltaTable(root_of(settings)).optimize.compact()
    file_of(settings, 1).unlink()
    assert verify_table(history).findings == ()


def test_a_file_that_turns_bad_while_rows_are_read_is_left_out(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is in a column that only the rows need."""
    opened: dict[str, int] = {}
    really_open = Store.open

    def open_(store: Store, path: str) -> Any:
        opened[path] = opened.get(path, 0) + 1
        if path == "partition=2/p2s1.parquet" and opened[path] > 2:
            file_of(settings, 1).unlink(missing_ok=True)
        return really_open(store, path)

    monkeypatch.setattr(Store, "open", open_)
    findings = verify(settings)
    assert told(findings) == [("file", 7)]


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError("connection reset"), "connection reset"), (PermissionError(13, "no"), "check the credentials")],
)
def test_a_store_that_does_not_answer_is_no_finding(
    settings: TierSettings, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    def refuse(store: Store, path: str) -> Any:
        raise error

    monkeypatch.setattr(Store, "open", refuse)
    monkeypatch.setattr(Store, "checksum", refuse)
    with pytest.raises(TierProblem, match=words):
        verify(settings)


# --- tables of deleted topics, and those of others ------------------------------------------------------------------------


def test_the_table_of_a_deleted_topic_is_well(settings: TierSettings) -> None:
    """The tier itself has removed all rows."""
    assert DeltaTier(settings).drop(GROUP, 3) is None
    report = verify_table(TopicHistory(str(root_of(settings))))
    assert (report.findings, report.partitions, report.is_dropped, report.topic) == ((), (), True, GROUP.topic)
    # Delta's RESTORE may bring rows back: they are looked at like others. Values of compressed batches cannot be.
    DeltaTable(root_of(settings)).restore(2 * len(SEGMENTS))
    report = verify_table(TopicHistory(str(root_of(settings))))
    assert (
        told(report.findings) == [("changed", None)] * 2
        and [part.rows for part in report.partitions] == [END, END]
        and not report.is_dropped
    )


def test_the_table_of_a_topic_that_was_deleted_after_an_election_is_well(settings: TierSettings) -> None:
    tier = DeltaTier(settings)
    more = request_for(data_batch(END, 9), "again", 9, lineage(incarnation=1))
    assert isinstance(tier.copy(more), RemoteSegment) and tier.drop(GROUP, 3) is None
    assert verify_table(TopicHistory(str(root_of(settings)))).is_dropped


def test_rows_that_somebody_else_removed_are_not_those_of_a_deleted_topic(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete()
    report = verify_table(TopicHistory(str(root_of(settings))))
    assert not report.is_dropped and [finding.kind for finding in report.findings] == [Kind.END] * 2
    # Nor is the table of a topic that the quorum still has.
    assert DeltaTier(settings).drop(GROUP, 3) is None
    history = TopicHistory(str(root_of(settings)))
    report = verify_table(history, QuorumKeys({}, {}))
    assert not report.is_dropped and [finding.kind for finding in report.findings] == [Kind.END] * 2


def test_a_table_that_nobody_wrote_to_is_not_dropped(settings: TierSettings) -> None:
    other = GROUP._replace(topic_id=b"o" * 16)
    assert DeltaTier(settings).drop(other, 0) is None
    assert not TopicHistory(table_uri(settings.uri, other)).is_dropped


@pytest.mark.parametrize("place", [f"trains-{OTHER_ID}", f"{GROUP.topic}-{OTHER_ID}", f"trains-{id_to_text(GROUP.topic_id)}"])
def test_a_table_in_the_place_of_another_topics_is_not_read_as_that(settings: TierSettings, place: str) -> None:
    here = Path(settings.uri) / place
    shutil.copytree(root_of(settings), here)
    report = verify_table(TopicHistory(str(here)), QuorumKeys({}, {}))
    (finding,) = report.findings
    assert (finding.kind, finding.partition, report.partitions) == (Kind.PLACE, None, ())
    assert "is that of topic flights" in finding.what and str(here) in finding.line()
    assert verify_table(TopicHistory(str(root_of(settings)))).findings == ()


def test_a_copy_of_a_table_may_have_any_other_name(settings: TierSettings) -> None:
    for name in ("backup", "flights-of-monday", f"x{OTHER_ID}", f"-{OTHER_ID}"):
        here = Path(settings.uri) / name
        shutil.copytree(root_of(settings), here)
        assert verify_table(TopicHistory(str(here))).findings == ()


# --- what is no table of ours ------------------------------------------------------------------------------------------------


def test_no_table_and_foreign_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongState, match="there is no Delta table at"):
        TopicHistory(str(tmp_path / "nothing"))
    settings = local_settings(tmp_path)
    put_foreign_table(settings, GROUP)
    with pytest.raises(WrongState, match=r"none of raftlake's: it has no property raftlake\.topicId"):
        TopicHistory(str(root_of(settings)))


def test_a_table_of_another_schema_is_refused(settings: TierSettings) -> None:
    rows = all_rows(settings)
    write_deltalake(root_of(settings), rows.drop_columns(["kind"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(WrongState, match="it has no column kind: RESTORE the version before that change"):
        TopicHistory(str(root_of(settings)))


def test_a_table_that_needs_newer_readers_is_refused(settings: TierSettings) -> None:
    """With deletion vectors, rows that are deleted still stand in the files."""
    from deltalake import TableFeatures

    table = DeltaTable(root_of(settings))
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(WrongState, match=r"readers of version 3 \(.*deletionVectors"):
        TopicHistory(str(root_of(settings)))
