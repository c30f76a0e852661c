"""What others have done to a table is taken back, and every copy stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from contract.file_faults import without_sync
from contract.tier_contract import LINEAGE, failure, segment
from contract.tier_history_contract import OTHER
from historykit import all_rows, root_of, verify
from raftlake.errors import WrongState
from raftlake.ports.tier import RemoteSegment, TierFailure
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.topic_table import TopicTable
from raftlake.tier.undo import Undo
from tierkit import as_optimize, local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    settings = local_settings(tmp_path)
    copied(settings, segment(0, "a"), segment(6, "b"), segment(12, "c"), segment(0, "o", lineage=OTHER))
    return settings


def copied(settings: TierSettings, *requests: Any) -> None:
    for request in requests:
        answer = DeltaTier(settings).copy(request)
        assert isinstance(answer, RemoteSegment), answer


def undone(settings: TierSettings) -> None:
    work = Undo(str(root_of(settings)))
    assert work.plan()
    work.run()
    assert work.plan() == [] == Undo(str(root_of(settings))).plan()
    assert verify(settings) == []


def test_a_table_that_nobody_changed(settings: TierSettings) -> None:
    assert Undo(str(root_of(settings))).plan() == []


def test_what_is_to_be_done_is_told(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete("offset = 5 and partition = 2")
    (plan,) = Undo(str(root_of(settings))).plan()
    assert (plan.partition, plan.comes) == (2, ("partition=2/a.parquet",))
    assert plan.commit.startswith("version 5, DELETE") and len(plan.goes) == 1


def test_all_kinds_of_changes_are_taken_back_and_copies_stay(settings: TierSettings) -> None:
    before = all_rows(settings)
    table = DeltaTable(root_of(settings))
    table.delete("offset = 5")
    write_deltalake(root_of(settings), before.slice(0, 3), mode="append")
    DeltaTable(root_of(settings)).update({"kind": "1"}, predicate="offset = 13")
    undone(settings)
    assert all_rows(settings) == before
    copied(settings, segment(18, "d"), segment(6, "p", lineage=OTHER))
    assert verify(settings) == []


def test_a_restore_is_taken_back_with_the_copies_that_it_removed(settings: TierSettings) -> None:
    """Those of all partitions: RESTORE knows none."""
    before = all_rows(settings)
    DeltaTable(root_of(settings)).restore(1)
    assert failure(DeltaTier(settings).copy(segment(6, "p", lineage=OTHER))) is TierFailure.CHANGED
    undone(settings)
    assert all_rows(settings) == before
    copied(settings, segment(18, "d"), segment(6, "p", lineage=OTHER))


def test_files_that_optimize_made_come_back_too(settings: TierSettings) -> None:
    before = all_rows(settings)
    DeltaTable(root_of(settings)).optimize.compact()
    DeltaTable(root_of(settings)).restore(2)
    undone(settings)
    assert all_rows(settings) == before


def one_row(settings: TierSettings) -> None:
    """Of the first partition, once more."""
    write_deltalake(root_of(settings), all_rows(settings).slice(0, 1), mode="append")


def merge(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).optimize.compact()


def sort(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).optimize.z_order(["timestamp"])


def delete(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete("offset = 5")


def delete_copy(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete("segment_id = 'a'")


def restore(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).restore(3)


@pytest.mark.parametrize(
    "steps",
    [
        (one_row, merge),
        (one_row, sort),
        (merge, one_row, merge),
        (one_row, merge, one_row, merge),
        (delete, merge),
        (delete_copy, merge),
        (delete, merge, restore, merge),
        (merge, delete, merge, restore),
        (one_row, delete, sort, sort),
    ],
)
def test_files_that_were_merged_with_rows_of_others_come_back(
    settings: TierSettings, steps: Sequence[Callable[[TierSettings], None]]
) -> None:
    """Such a file goes, and all that went into it was once gone with it."""
    before = all_rows(settings)
    for step in steps:
        step(settings)
    undone(settings)
    assert all_rows(settings) == before
    copied(settings, segment(18, "d"), segment(6, "p", lineage=OTHER))
    assert verify(settings) == []


def test_a_copy_of_another_partition_between_is_kept(settings: TierSettings) -> None:
    write_deltalake(root_of(settings), all_rows(settings).slice(0, 1), mode="append")
    copied(settings, segment(6, "p", lineage=OTHER))
    merge(settings)
    copied(settings, segment(12, "q", lineage=OTHER))
    undone(settings)
    assert [row["offset"] for row in all_rows(settings).to_pylist()] == [*range(18), *range(18)]


def test_a_merged_file_that_vacuum_took_is_named_and_nothing_changes(settings: TierSettings) -> None:
    one_row(settings)
    merge(settings)
    DeltaTable(root_of(settings)).vacuum(dry_run=False, retention_hours=0, enforce_retention_duration=False)
    before = DeltaTable(root_of(settings)).version()
    with pytest.raises(TierProblem, match=r"partition=2/[abc].parquet is gone, perhaps by VACUUM"):
        Undo(str(root_of(settings))).run()
    assert DeltaTable(root_of(settings)).version() == before


@pytest.mark.parametrize(
    ("place", "what"), [(0, "shows nothing of the offset 0"), (1, "shows nothing of the offsets 6 to 11"), (2, "it ends at 12")]
)
def test_nothing_is_changed_where_the_table_would_not_be_whole(settings: TierSettings, place: int, what: str) -> None:
    """Another program has removed a copy, and its commit says that no data has changed."""
    write_deltalake(root_of(settings), all_rows(settings).slice((place * 6 + 6) % 18, 1), mode="append")
    table = DeltaTable(root_of(settings))
    with as_optimize(table):
        table.delete(f"segment_id = '{'abc'[place]}' and partition = 2")
    before = table.version()
    with pytest.raises(TierProblem, match=f"partition 2 would not be as the tier left it: .*{what}.*nothing was changed"):
        Undo(str(root_of(settings))).run()
    assert DeltaTable(root_of(settings)).version() == before


def test_nothing_comes_back_to_a_deleted_topic(settings: TierSettings) -> None:
    delete(settings)
    assert DeltaTier(settings).drop(LINEAGE.group, 4) is None
    assert Undo(str(root_of(settings))).plan() == []


def test_a_file_that_vacuum_took_is_named_and_nothing_changes(settings: TierSettings) -> None:
    DeltaTable(root_of(settings)).delete("segment_id = 'b'")
    (root_of(settings) / "partition=2/b.parquet").unlink()
    before = DeltaTable(root_of(settings)).version()
    with pytest.raises(TierProblem, match=r"partition=2/b.parquet is gone, perhaps by VACUUM: put it back from a copy"):
        Undo(str(root_of(settings))).run()
    assert DeltaTable(root_of(settings)).version() == before


def test_a_change_between_the_look_and_the_commit_is_not_mixed_with_it(
    settings: TierSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(root_of(settings)).delete("segment_id = 'b'")
    commit = TopicTable.commit

    def late(*rest: Any) -> None:
        monkeypatch.setattr(TopicTable, "commit", commit)
        DeltaTable(root_of(settings)).delete("segment_id = 'c'")
        commit(*rest)

    monkeypatch.setattr(TopicTable, "commit", late)
    with pytest.raises(TierProblem, match="was changed meanwhile: look again"):
        Undo(str(root_of(settings))).run()
    undone(settings)
    assert isinstance(DeltaTier(settings).copy(segment(18, "d", lineage=LINEAGE)), RemoteSegment)


def test_a_table_in_another_place_is_not_touched(settings: TierSettings) -> None:
    moved = root_of(settings).rename(root_of(settings).with_name("moved"))
    with pytest.raises(WrongState, match=r"moved is the table of flights-.*: it is not where it was"):
        Undo(str(moved))
