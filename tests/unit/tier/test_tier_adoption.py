"""How an adoption goes beside OPTIMIZE, late copies, VACUUM, damage, and the end of its own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from contract.tier_adoption_contract import (
    OF_A,
    OF_A_AGAIN,
    OF_B,
    History,
    adopt,
    ask,
    bytes_from,
    copied,
    copy_of,
    facts,
    find,
    last,
    read,
    request_of,
    texts,
)
from contract.tier_contract import GROUP, failure
from historykit import all_rows
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.tier.adoption import _ROUNDS_MAX
from raftlake.tier.adoption_files import AdoptionWriter
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.superseded import superseded_directory, superseded_files
from raftlake.tier.topic_table import TopicTable
from tierkit import DeltaWorld, Ended, as_optimize, local_settings, tier_files

#: Eight records, and a history that parts from them behind the first six.
LONG: History = [(1, f"msg {n}") for n in range(8)]
OTHER: History = [*LONG[:6], (2, "else 6"), (2, "else 7"), (2, "else 8")]

Commit = Callable[..., None]
Behaviour = Callable[[Commit, TopicTable, Any], None]


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


@pytest.fixture
def world(settings: TierSettings) -> DeltaWorld:
    return DeltaWorld(settings)


def root_of(settings: TierSettings) -> Path:
    return Path(table_uri(settings.uri, GROUP))


def optimize(settings: TierSettings) -> None:
    assert DeltaTable(root_of(settings)).optimize.compact()["numFilesRemoved"] > 1


def data_files(settings: TierSettings) -> list[str]:
    return [name for name in tier_files(settings, GROUP) if name.startswith("partition=")]


def shown_paths(settings: TierSettings) -> set[str]:
    return set(pa.table(DeltaTable(root_of(settings)).get_add_actions(flatten=True))["path"].to_pylist())


def values(settings: TierSettings) -> list[tuple[int, bytes]]:
    """What delta-rs alone reads."""
    rows = all_rows(settings)
    return list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def rows_of(history: History, end: int) -> list[tuple[int, bytes]]:
    return [(offset, text.encode()) for offset, (_, text) in enumerate(history[:end])]


def next_commits(monkeypatch: pytest.MonkeyPatch, behave: Behaviour, times: int = 1) -> list[None]:
    """Let so many commits be made by `behave`, and the others as always. The list grows with each."""
    commit = TopicTable.commit
    tried: list[None] = []

    def instead(table: TopicTable, *rest: Any) -> None:
        tried.append(None)
        if len(tried) <= times:
            monkeypatch.setattr(TopicTable, "commit", commit)
            try:
                behave(commit, table, rest)
            finally:
                monkeypatch.setattr(TopicTable, "commit", instead)
        else:
            commit(table, *rest)

    monkeypatch.setattr(TopicTable, "commit", instead)
    return tried


# --- other writers ---------------------------------------------------------------------------------------------------------


def test_optimize_between_the_look_and_the_commit_is_planned_for_again(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs takes the removal of a file that is gone for no conflict: the rows would be shown twice."""
    copied(world, *(copy_of(LONG, n, n + 4, 0, f"u{n}") for n in (0, 4)))

    def behind_optimize(commit: Commit, table: TopicTable, rest: Any) -> None:
        optimize(settings)
        commit(table, *rest)

    tried = next_commits(monkeypatch, behind_optimize)
    found = adopt(world, OTHER, "first", log_start=6)
    assert len(tried) == 2
    assert (found.end_offset, values(settings)) == (6, rows_of(LONG, 6))
    assert world.faults() == []
    # Of the first attempt nothing is left.
    assert set(data_files(settings)) - shown_paths(settings) == {
        "partition=2/u0.parquet",
        "partition=2/u4.parquet",
        *(f"partition=2/{file.path.rpartition('/')[2]}" for file in TopicHistory(str(root_of(settings))).superseded(2)),
    }
    assert len([name for name in tier_files(settings, GROUP) if name.endswith(".aux")]) == 3


def test_a_late_copy_between_the_look_and_the_commit_is_superseded_too(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))

    def behind_a_copy(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert isinstance(DeltaTier(settings).copy(copy_of(OF_A, 4, 5, 0, "u4")), RemoteSegment)
        commit(table, *rest)

    next_commits(monkeypatch, behind_a_copy)
    found = adopt(world, OF_B, "first", log_start=2)
    assert (found.end_offset, values(settings)) == (2, rows_of(OF_B, 2))
    assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3", "msg 4"]}


def test_commits_of_other_partitions_do_not_make_it_write_anew(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    others = [Lineage(GROUP._replace(partition=partition), 0) for partition in range(3, 15)]

    def behind_a_claim(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert not isinstance(DeltaTier(settings).claim(others.pop(), 1), TierError)
        commit(table, *rest)

    tried = next_commits(monkeypatch, behind_a_claim, times=12)
    assert adopt(world, OF_B, "first", log_start=2).end_offset == 2
    assert len(tried) == 13
    assert len(data_files(settings)) == 2


def test_a_partition_that_never_stands_still_is_given_up(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    epochs = iter(range(2, 100))

    def behind_a_claim(commit: Commit, table: TopicTable, rest: Any) -> None:
        assert not isinstance(DeltaTier(settings).claim(Lineage(GROUP, 0), next(epochs)), TierError)
        commit(table, *rest)

    tried = next_commits(monkeypatch, behind_a_claim, times=99)
    assert failure(ask(world, request_of(OF_B, "first", 2, leader_epoch=50))) is TierFailure.UNKNOWN
    assert len(tried) == _ROUNDS_MAX
    assert data_files(settings) == ["partition=2/u0.parquet"]


# --- the end of the process ------------------------------------------------------------------------------------------------


def die(world: DeltaWorld, monkeypatch: pytest.MonkeyPatch, behave: Behaviour) -> None:
    """The process that adopts the table for B ends in its commit."""
    next_commits(monkeypatch, behave)
    with pytest.raises(Ended):
        world.delta(9).adopt(request_of(OF_B, "of B", 2))


def test_a_process_that_ends_before_its_commit_has_changed_nothing(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))

    def end(*_: Any) -> None:
        raise Ended

    die(world, monkeypatch, end)
    assert values(settings) == rows_of(OF_A, 4) and world.faults() == []
    found = adopt(world, OF_B, "of B", log_start=2)
    assert (found.lineage.incarnation, values(settings)) == (1, rows_of(OF_B, 2))
    assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}
    copied(world, copy_of(OF_B, 2, 4, 1, "u2"))
    assert world.faults() == []


def test_a_process_that_ends_behind_its_commit_has_done_all(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))

    def end_after(commit: Commit, table: TopicTable, rest: Any) -> None:
        commit(table, *rest)
        raise Ended

    die(world, monkeypatch, end_after)
    again = adopt(world, OF_B, "of B", log_start=2)
    assert (again.lineage.incarnation, again.end_offset, values(settings)) == (1, 2, rows_of(OF_B, 2))
    assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}


def test_the_commit_of_a_process_that_was_given_up_does_not_come_behind_the_next_one(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    held: list[Callable[[], None]] = []

    def hold(commit: Commit, table: TopicTable, rest: Any) -> None:
        held.append(lambda: commit(table, *rest))
        raise Ended

    die(world, monkeypatch, hold)
    adopt(world, OF_B, "of B", log_start=2)
    with pytest.raises(DeltaError):
        held[0]()
    assert values(settings) == rows_of(OF_B, 2) and facts(world).lineage.incarnation == 1


def test_an_adoption_whose_answer_was_lost_is_done(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))

    def lose_the_answer(commit: Commit, table: TopicTable, rest: Any) -> None:
        commit(table, *rest)
        raise CommitFailedError("Failed to commit transaction: 0")

    tried = next_commits(monkeypatch, lose_the_answer)
    assert adopt(world, OF_B, "of B", log_start=2).lineage.incarnation == 1
    assert len(tried) == 1 and values(settings) == rows_of(OF_B, 2)


def test_files_are_durable_before_the_commit(world: DeltaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    synced: list[str] = []
    monkeypatch.setattr(Store, "sync", lambda store, paths, where_there=(): synced.extend(paths))

    def look(commit: Commit, table: TopicTable, rest: Any) -> None:
        added = [action.path for action in rest[1] if hasattr(action, "stats")]
        assert len(added) == 1 and {*added, "_raftlake/superseded/0/partition=2/u0.parquet"} <= set(synced)
        assert f"_raftlake/{added[0].removeprefix('partition=2/').removesuffix('.parquet')}.aux" in synced
        commit(table, *rest)

    tried = next_commits(monkeypatch, look)
    adopt(world, OF_B, "of B", log_start=2)
    assert len(tried) == 1


def test_a_store_that_fails_in_the_middle_keeps_nothing_of_it(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    before = tier_files(settings, GROUP)

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", fail)
        assert failure(ask(world, request_of(OF_B, "of B", 2))) is TierFailure.UNKNOWN
    left = set(tier_files(settings, GROUP)) - set(before)
    assert left == {"_raftlake/superseded/0/partition=2/u0.parquet"}
    assert adopt(world, OF_B, "of B", log_start=2).end_offset == 2
    assert values(settings) == rows_of(OF_B, 2)


# --- files that others made ------------------------------------------------------------------------------------------------


def test_copies_in_one_file_keep_their_names_but_for_the_one_that_is_cut(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, *(copy_of(LONG, n, n + 2, 0, f"u{n}") for n in (0, 2)), copy_of(LONG, 4, 8, 0, "u4"))
    optimize(settings)
    found = adopt(world, OTHER, "first", log_start=5)
    assert (found.end_offset, found.segments, len(shown_paths(settings))) == (6, 3, 2)
    assert [each.segment_id for each in found.newest[:2]] == ["u0", "u2"]
    cut = found.newest[2]
    assert (cut.base_offset, cut.end_offset, cut.epochs, cut.leader_epoch) == (4, 6, ((1, 4),), 1)
    assert 0 < cut.log_bytes < sum(len(bytes_from(LONG, n, n + 1)) for n in range(4, 8))
    for offset, name in ((0, "u0"), (3, "u2")):
        state = find(world, offset, 1)
        assert isinstance(state, RemoteState) and state.segment.segment_id == name
    assert failure(find(world, 4, 1)) is TierFailure.ABSENT
    copied(world, copy_of(OTHER, 6, 8, 1, "u6"))
    state = find(world, 4, 1)
    assert isinstance(state, RemoteState) and state.auxiliary == b"state at 8"
    for segment in found.newest:
        assert world.ask(lambda done, each=segment: world.tier(1).check(found.lineage, each, done)) is None
    assert read(world, 0, 1) == bytes_from(OTHER, 0, 8)
    assert world.faults() == []


def test_files_that_overlap_are_taken_over_and_superseded_together(settings: TierSettings, world: DeltaWorld) -> None:
    """One has offsets 0 to 3, 6 and 7, the other one 4 and 5."""
    copied(world, *(copy_of(LONG, n, n + 2, 0, f"u{n}") for n in (0, 2, 4, 6)))
    rows = all_rows(settings)
    with as_optimize(DeltaTable(root_of(settings))):
        write_deltalake(root_of(settings), pa.concat_tables([rows.slice(6), rows.slice(0, 4)]), mode="overwrite")
        write_deltalake(root_of(settings), rows.slice(4, 2), mode="append")
    assert world.faults() == []
    found = adopt(world, OTHER, "first", log_start=6)
    assert (found.end_offset, values(settings)) == (6, rows_of(LONG, 6))
    assert [each.segment_id for each in found.newest] == ["u0", "u2", "u4"]
    assert world.superseded(GROUP) == {0: [text for _, text in LONG]}
    assert world.faults() == []
    again = adopt(world, [*LONG, (3, "msg 8")], "second", log_start=8)
    assert (again.end_offset, values(settings)) == (8, rows_of(LONG, 8))
    state = find(world, 7, 2)
    assert isinstance(state, RemoteState) and (state.segment.segment_id, state.auxiliary) == ("u6", b"state at 8")
    assert world.faults() == []


def test_a_copy_in_two_files_does_not_stay_in_one_of_them(settings: TierSettings, world: DeltaWorld) -> None:
    """OPTIMIZE cuts by size. The first file would stay with rows of a copy whose state is that of a later offset."""
    copied(world, copy_of(LONG, 0, 2, 0, "u0"), copy_of(LONG, 2, 8, 0, "u2"))
    rows = all_rows(settings)
    with as_optimize(DeltaTable(root_of(settings))):
        write_deltalake(root_of(settings), rows.slice(0, 6), mode="overwrite")
        write_deltalake(root_of(settings), rows.slice(6), mode="append")
    found = adopt(world, OTHER, "first", log_start=6)
    assert (found.end_offset, values(settings)) == (6, rows_of(LONG, 6))
    assert found.newest[0].segment_id == "u0"
    assert failure(find(world, 3, 1)) is TierFailure.ABSENT
    assert world.faults() == []


def test_optimize_of_an_adopted_table_tells_its_copies_apart(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    adopt(world, OF_B, "of B", log_start=2)
    copied(world, copy_of(OF_B, 2, 4, 1, "u2"), copy_of(OF_B, 4, 5, 1, "u4"))
    before = facts(world)
    optimize(settings)
    after = facts(world)
    assert (after.epochs, after.newest, after.end_offset) == (before.epochs, before.newest, 5)
    assert read(world, 0, 1) == bytes_from(OF_B, 0, 5)
    end = last(world, 1, 2)
    assert end is not None and end.segment_id == "u4"
    # An older incarnation reads no row of a newer one, from the same file.
    assert read(world, 0, 0) == bytes_from(OF_A, 0, 2)
    assert failure(read(world, 3, 0)) is TierFailure.ABSENT
    assert world.faults() == []


# --- plans -----------------------------------------------------------------------------------------------------------------


def test_files_are_written_beside_a_table_that_shows_what_it_did(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, copy_of(LONG, 0, 2, 0, "u0"), copy_of(LONG, 2, 8, 0, "u2"))
    adopt(world, OTHER, "first", log_start=6)
    history = TopicHistory(str(root_of(settings)))
    before = values(settings)
    request = request_of([*LONG, (3, "msg 8")], "second", log_start=8)
    writer = AdoptionWriter(history.store, history.uri, request, 1, history.files(2))
    writer.write()
    adoption = writer.adoption
    assert (adoption.lineage, adoption.end_offset, adoption.removed, adoption.returned) == (Lineage(GROUP, 2), 8, [], [])
    (added,) = adoption.added
    assert (added.segment.base_offset, added.segment.end_offset, added.segment.epochs) == (6, 8, ((1, 6),))
    assert adoption.written == [added.segment.file, f"_raftlake/{added.segment.segment_id}.aux"]
    # The whole file is beside the table already, so that no part of it goes there.
    (file,) = superseded_files(history.store, history.uri, 2, 1)
    assert (file.path, file.offset_min, file.offset_max) == (f"{superseded_directory(0, 2)}/u2.parquet", 2, 7)
    assert (file.epoch_min, file.epoch_max, file.segment_id) == (1, 1, "u2")
    assert values(settings) == before and set(tier_files(settings, GROUP)) >= set(adoption.written)


# --- superseded files ------------------------------------------------------------------------------------------------------


def test_vacuum_leaves_superseded_files_and_what_came_back(settings: TierSettings, world: DeltaWorld) -> None:
    def vacuum() -> None:
        table = DeltaTable(root_of(settings))
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        assert set(data_files(settings)) == shown_paths(settings)

    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    adopt(world, OF_B, "of B")
    copied(world, copy_of(OF_B, 0, 4, 1, "u1"))
    vacuum()
    assert world.superseded(GROUP) == {0: ["msg 0", "msg 1", "msg 2", "msg 3"]}
    adopt(world, OF_A_AGAIN, "of A", log_start=4)
    vacuum()
    copied(world, copy_of(OF_A_AGAIN, 4, 7, 2, "u2"))
    assert values(settings) == rows_of(OF_A_AGAIN, 7)
    assert read(world, 0, 2) == bytes_from(OF_A_AGAIN, 0, 7)
    assert world.superseded(GROUP) == {1: ["msg 0", "msg 1", "msg 4", "msg 5"]}
    assert world.faults() == []
    # And once more.
    adopt(world, [*OF_B, (5, "msg 9")], "of B again", log_start=4)
    vacuum()
    assert values(settings) == rows_of(OF_B, 4)
    assert world.superseded(GROUP) == {0: [f"msg {n}" for n in range(4)], 2: ["msg 4", "msg 7", "msg 8"]}
    assert world.faults() == []


def test_superseded_files_are_plain_parquet(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    content = (root_of(settings) / "partition=2/u0.parquet").read_bytes()
    adopt(world, OF_B, "of B")
    place = root_of(settings) / "_raftlake/superseded/0"
    assert (place / "partition=2/u0.parquet").read_bytes() == content
    rows = pq.read_table(place)
    assert (rows["offset"].to_pylist(), set(rows["incarnation"].to_pylist())) == ([0, 1, 2, 3], {0})
    assert rows["partition"].to_pylist() == [2] * 4
    history = TopicHistory(str(root_of(settings)))
    (file,) = history.superseded(2)
    assert (file.incarnation_min, file.incarnation_max, file.offset_min, file.offset_max, file.rows) == (0, 0, 0, 3, 4)
    assert history.superseded(1) == [] and history.newest_incarnation(2) == 1


def test_a_superseded_file_that_is_damaged_is_named(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    adopt(world, OF_B, "of B")
    place = root_of(settings) / "_raftlake/superseded/0/partition=2/u0.parquet"
    content = place.read_bytes()
    place.write_bytes(content[:-9])
    answer = ask(world, request_of(OF_A_AGAIN, "of A", 4))
    assert failure(answer) is TierFailure.DAMAGED
    assert isinstance(answer, TierError) and "superseded/0/partition=2/u0.parquet" in answer.reason
    assert facts(world).lineage.incarnation == 1
    place.write_bytes(content)
    assert adopt(world, OF_A_AGAIN, "of A", log_start=4).end_offset == 4


def test_a_file_of_the_table_that_is_gone_is_named(settings: TierSettings, world: DeltaWorld) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    (root_of(settings) / "partition=2/u0.parquet").unlink()
    answer = ask(world, request_of(OF_B, "of B", 2))
    assert isinstance(answer, TierError) and "u0.parquet" in answer.reason
    assert facts(world, Lineage(GROUP, 0)).lineage.incarnation == 0


def test_what_is_kept_already_is_not_copied_again(
    settings: TierSettings, world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that ran out of time goes on where it stood."""
    copied(world, *(copy_of(OF_A, n, n + 1, 0, f"u{n}") for n in range(4)))
    made: list[str] = []
    duplicate = Store.duplicate

    def at_most_one(store: Store, path: str, to: str) -> None:
        if made:
            raise Ended
        made.append(path)
        duplicate(store, path, to)

    monkeypatch.setattr(Store, "duplicate", at_most_one)
    with pytest.raises(Ended):
        world.delta(9).adopt(request_of(OF_B, "of B"))
    assert made == ["partition=2/u2.parquet"]
    monkeypatch.setattr(Store, "duplicate", lambda store, path, to: (made.append(path), duplicate(store, path, to)))
    assert isinstance(ask(world, request_of(OF_B, "of B")), LineageFacts)
    assert made == ["partition=2/u2.parquet", "partition=2/u3.parquet"]
    assert world.superseded(GROUP) == {0: ["msg 2", "msg 3"]}


@pytest.mark.parametrize("left", [0, 9, 400])
@pytest.mark.parametrize("is_alone", [True, False])
def test_what_is_kept_in_part_is_kept_anew(settings: TierSettings, world: DeltaWorld, left: int, is_alone: bool) -> None:
    """The machine lost its power before the file was durable, and the table still shows all of it."""
    copied(world, copy_of(OF_A, 0, 2, 0, "u0"), copy_of(OF_A, 2, 4, 0, "u2"))
    if not is_alone:
        rows = all_rows(settings)
        with as_optimize(DeltaTable(root_of(settings))):
            write_deltalake(root_of(settings), pa.concat_tables([rows.slice(0, 1), rows.slice(3)]), mode="overwrite")
            write_deltalake(root_of(settings), rows.slice(1, 2), mode="append")
    history = TopicHistory(str(root_of(settings)))
    files = history.files(2)
    request = request_of(OF_B, "of B", 1)
    AdoptionWriter(history.store, history.uri, request, 0, files).write()
    kept = sorted((root_of(settings) / "_raftlake/superseded/0/partition=2").glob("*.parquet"))
    whole = [path.read_bytes() for path in kept]
    for path in kept:
        path.write_bytes(path.read_bytes()[:left])
    found = ask(world, request)
    assert isinstance(found, LineageFacts) and values(settings) == rows_of(OF_A, 2), found
    assert world.superseded(GROUP)[0] == [text for _, text in OF_A[0 if not is_alone else 2 : 4]]
    assert not is_alone or [path.read_bytes() for path in kept] == whole


def test_a_recovery_that_a_later_one_has_passed_is_fenced(world: DeltaWorld) -> None:
    copied(world, copy_of(OF_A, 0, 4, 0, "u0"))
    adopt(world, OF_B, "of B")
    adopt(world, OF_A_AGAIN, "of A", log_start=4)
    answer = ask(world, request_of(OF_B, "of B", leader_epoch=9))
    assert failure(answer) is TierFailure.FENCED
    assert texts(world, 2) == [text for _, text in OF_A[:4]]
