"""A Delta table that other programs have changed, with the programs' own commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from contract.file_faults import without_sync
from contract.tier_contract import LINEAGE, data_batch, failure, request_for, segment
from contract.tier_history_contract import OTHER
from historykit import all_rows, root_of
from raftlake.ports.tier import LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.commit_watch import CommitWatch
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.store import Store
from raftlake.tier.table_reads import TableReads
from raftlake.tier.topic_table import TopicTable
from tierkit import as_optimize, local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    return local_settings(tmp_path)


@pytest.fixture
def tier(settings: TierSettings) -> DeltaTier:
    return DeltaTier(settings)


@pytest.fixture
def made(tier: DeltaTier) -> list[RemoteSegment]:
    """Versions 1 to 4: three copies of one partition, one of another."""
    requests = [segment(0, "a"), segment(6, "b"), segment(12, "c"), segment(0, "o", lineage=OTHER)]
    answers = [tier.copy(request) for request in requests]
    assert all(isinstance(answer, RemoteSegment) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, RemoteSegment)]


def table(settings: TierSettings) -> DeltaTable:
    return DeltaTable(root_of(settings))


def appended(settings: TierSettings) -> None:
    """The row of offset 17 again, as that of 40."""
    rows = all_rows(settings)
    rows = rows.filter(pa.compute.and_(pa.compute.equal(rows["offset"], 17), pa.compute.equal(rows["partition"], 2)))
    offset = rows.schema.get_field_index("offset")
    write_deltalake(
        table(settings), rows.set_column(offset, rows.schema.field(offset), pa.array([40], pa.int64())), mode="append"
    )


CHANGES: dict[str, tuple[str, Callable[[TierSettings], object]]] = {
    "append": ("WRITE", appended),
    "overwrite": ("WRITE", lambda settings: write_deltalake(table(settings), all_rows(settings), mode="overwrite")),
    "delete a row": ("DELETE", lambda settings: table(settings).delete("offset = 5")),
    "delete all": ("DELETE", lambda settings: table(settings).delete()),
    "update": ("UPDATE", lambda settings: table(settings).update({"kind": "1"}, predicate="offset = 5")),
    "restore": ("RESTORE", lambda settings: table(settings).restore(2)),
    "merge": (
        "MERGE",
        lambda settings: (
            table(settings)
            .merge(all_rows(settings), "t.offset = s.offset and t.partition = s.partition", source_alias="s", target_alias="t")
            .when_matched_delete("t.offset = 5")
            .execute()
        ),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_new", [False, True])
def test_each_change_of_rows_is_told_with_its_commit(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment], name: str, is_new: bool
) -> None:
    operation, change = CHANGES[name]
    change(settings)
    if is_new:
        # A process that has not seen the table before.
        tier = DeltaTier(settings)
    answer = tier.copy(segment(18, "next"))
    assert failure(answer) is TierFailure.CHANGED and isinstance(answer, TierError)
    assert f"(version 5, {operation}, 20" in answer.reason
    assert f"`raftlake tier undo {root_of(settings)}` takes back" in answer.reason
    read_back = TableReads(settings).check(LINEAGE, made[0])
    assert failure(read_back) is TierFailure.CHANGED
    assert table(settings).version() == 5


@pytest.mark.parametrize("name", ["append", "delete a row", "restore"])
def test_restore_of_the_version_before_is_undone(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment], name: str
) -> None:
    CHANGES[name][1](settings)
    assert failure(tier.copy(segment(18, "next"))) is TierFailure.CHANGED
    table(settings).restore(4)
    assert isinstance(tier.copy(segment(18, "next")), RemoteSegment)
    assert isinstance(tier.copy(segment(6, "p", lineage=OTHER)), RemoteSegment)


def test_an_append_is_undone_by_a_delete_of_its_rows(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment]
) -> None:
    appended(settings)
    assert failure(tier.copy(segment(18, "next"))) is TierFailure.CHANGED
    table(settings).delete("offset = 40")
    assert isinstance(tier.copy(segment(18, "next")), RemoteSegment)


@pytest.mark.parametrize("is_new", [False, True])
def test_what_others_may_do_is_no_change(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment], is_new: bool
) -> None:
    table(settings).alter.add_columns([Field("of_others", PrimitiveType("string"))])
    table(settings).optimize.compact()
    table(settings).optimize.z_order(["timestamp"])
    table(settings).vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
    table(settings).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    table(settings).alter.set_table_description("of others")
    table(settings).delete("offset = 1000")
    if is_new:
        tier = DeltaTier(settings)
    assert tier.claim(LINEAGE, Epoch(6)) != LineageEnd(None)
    assert isinstance(tier.copy(segment(18, "next", epoch=6)), RemoteSegment)
    assert TableReads(settings).check(LINEAGE, made[1]) is None
    rows = [row for batch in TopicHistory(str(root_of(settings))).read(2) for row in batch.column("offset").to_pylist()]
    assert rows == list(range(24))


def test_a_commit_says_up_to_where_all_was_well(settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment]) -> None:
    """So a new process reads the commits since then, and no older one."""
    watch, read = CommitWatch(), list[int]()
    seen = TopicTable(settings, LINEAGE.group)
    seen.refresh()
    store = Store(seen.uri, {})

    def content(version: int) -> bytes | None:
        read.append(version)
        return store.read(f"_delta_log/{version:020d}.json")

    watch.look(seen.version, content)
    assert (seen.version, read, watch.clean_to) == (4, [4], 4)
    appended(settings)
    # The other partition goes on, and does not vouch for this one.
    assert isinstance(tier.copy(segment(6, "p", lineage=OTHER)), RemoteSegment)
    assert failure(DeltaTier(settings).copy(segment(18, "next"))) is TierFailure.CHANGED


# --- where no commit tells it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.delete("partition = 2 and offset = 5"), "5 rows have the offsets 0 to 4|nothing of the offsets 5"),
        (lambda found: found.delete("segment_id = 'b'"), "it shows nothing of the offsets 6 to 11"),
        (
            lambda found: found.delete("segment_id = 'c'"),
            "it ends at 12, and the tier's last commit shows the offsets up to 17",
        ),
    ],
)
def test_a_table_without_its_log_is_judged_by_its_files(
    settings: TierSettings, made: list[RemoteSegment], change: Callable[[DeltaTable], object], words: str
) -> None:
    with as_optimize(table(settings)) as found:
        change(found)
    answer = DeltaTier(settings).copy(segment(18, "next"))
    assert failure(answer) is TierFailure.CHANGED and isinstance(answer, TierError)
    assert any(each in answer.reason for each in words.split("|")), answer.reason
    assert isinstance(DeltaTier(settings).copy(segment(6, "p", lineage=OTHER)), RemoteSegment)


def test_a_partition_that_the_tier_never_wrote_has_no_files(settings: TierSettings, made: list[RemoteSegment]) -> None:
    rows = all_rows(settings)
    rows = rows.filter(pa.compute.equal(rows["partition"], 3))
    moved = rows.set_column(
        rows.schema.get_field_index("partition"), rows.schema.field("partition"), pa.array([7] * 6, pa.int32())
    )
    with as_optimize(table(settings)):
        write_deltalake(table(settings), moved, mode="append")
    lineage = LINEAGE._replace(group=LINEAGE.group._replace(partition=7)) if hasattr(LINEAGE, "_replace") else None
    lineage = lineage or type(LINEAGE)(LINEAGE.group._replace(partition=7), 0)
    answer = DeltaTier(settings).copy(segment(0, "n", lineage=lineage))
    assert failure(answer) is TierFailure.CHANGED and isinstance(answer, TierError)
    assert "the tier has copied nothing" in answer.reason


def test_the_files_are_judged_once_and_not_for_each_copy(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment], monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftlake.tier import as_left

    judged: list[int] = []
    shown = as_left.shown_files
    monkeypatch.setattr(
        as_left,
        "shown_files",
        lambda seen, lineage, *rest: judged.append(lineage.group.partition) or shown(seen, lineage, *rest),
    )
    for base in (18, 24, 30):
        assert isinstance(tier.copy(segment(base, f"n{base}")), RemoteSegment)
    assert judged == []
    table(settings).optimize.compact()
    for base in (36, 42):
        assert isinstance(tier.copy(segment(base, f"n{base}")), RemoteSegment)
    assert judged == [2]


def test_a_copy_that_went_behind_a_change_is_not_read_back(
    settings: TierSettings, tier: DeltaTier, made: list[RemoteSegment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs goes behind the commits of others by itself: between the look and the commit somebody adds rows."""
    commit = TopicTable.commit

    def late(*rest: object) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        appended(settings)
        commit(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicTable, "commit", late)
    copied = tier.copy(request_for(data_batch(18, 5), "next"))
    assert isinstance(copied, RemoteSegment)
    for reads in (TableReads(settings), TableReads(settings)):
        assert failure(reads.check(LINEAGE, copied)) is TierFailure.CHANGED
    assert failure(tier.copy(segment(21, "more"))) is TierFailure.CHANGED
