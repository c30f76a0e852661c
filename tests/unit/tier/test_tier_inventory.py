"""What a recovery learns from all tables of a tier: every partition, every epoch, and no table that is not whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from contract.tier_contract import GROUP, LINEAGE, segment
from raftlake.errors import WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import AdoptRequest, CopyRequest, Lineage, LineageFacts, RemoteSegment, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier import inventory
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.inventory import read_tables
from raftlake.tier.remote_segments import auxiliary_name
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.tier.told import ToldTable
from tierkit import local_settings

OTHER = GroupId("clicks", 0, bytes(range(16, 32)))


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


def fill(settings: TierSettings, *requests: CopyRequest) -> list[RemoteSegment]:
    tier = DeltaTier(settings)
    made = [tier.copy(request) for request in requests]
    assert all(isinstance(each, RemoteSegment) for each in made), made
    return [each for each in made if isinstance(each, RemoteSegment)]


def only(settings: TierSettings) -> ToldTable:
    (table,) = read_tables(settings)
    return table


def of(partition: int, incarnation: int = 0, group: GroupId = GROUP) -> Lineage:
    return Lineage(group._replace(partition=partition), incarnation)


def store(settings: TierSettings) -> Store:
    return Store(table_uri(settings.uri, GROUP), {})


def test_each_partition_is_told_with_its_end_its_state_and_its_newest_time(settings: TierSettings) -> None:
    fill(
        settings,
        segment(0, "a", lineage=of(2), epoch=3),
        segment(6, "b", lineage=of(2), epoch=5),
        segment(0, "c", lineage=of(0), epoch=4, count=3),
    )
    table = only(settings)
    assert (table.topic, table.topic_id, table.cluster_id) == (GROUP.topic, GROUP.topic_id, "cluster")
    assert table.uri == table_uri(settings.uri, GROUP) and not table.is_dropped
    assert [(group.partition, told.facts and told.facts.end_offset, told.leader_epoch) for group, told in table.groups()] == [
        (0, 3, 4),
        (2, 12, 5),
    ]
    told = table.partitions[2]
    assert (told.auxiliary, told.lacking, told.timestamp_ms) == (b"producers", "", 1_700_000_000_011)
    assert told.facts is not None and told.facts.epochs == ((3, 0), (5, 6))


def test_a_claim_counts_where_no_row_was_ever_shown(settings: TierSettings) -> None:
    """A recovery in a lower epoch would be fenced for good."""
    fill(settings, segment(0, "a", epoch=3))
    tier = DeltaTier(settings)
    tier.claim(of(5), Epoch(1_004))
    tier.claim(LINEAGE, Epoch(9))
    table = only(settings)
    assert sorted(table.partitions) == [2, 5]
    assert (table.partitions[5].facts, table.partitions[5].leader_epoch) == (None, 1_004)
    assert table.partitions[2].leader_epoch == 9


def taken_over(settings: TierSettings, epoch: int, epochs: tuple[tuple[int, int], ...], end: int, recovery: str) -> None:
    """The leader of an unclean election, whose log begins at 0."""
    request = AdoptRequest(
        group=GROUP,
        leader_epoch=Epoch(epoch),
        recovery=recovery,
        epochs=tuple((Epoch(each), Offset(offset)) for each, offset in epochs),
        log_start=Offset(0),
        end_offset=Offset(end),
    )
    assert isinstance(DeltaTier(settings).adopt(request), LineageFacts)


def test_after_an_unclean_election_the_newest_history_is_told(settings: TierSettings) -> None:
    """The fences of older incarnations are no epochs of leaders."""
    fill(settings, segment(0, "a", epoch=3), segment(6, "b", epoch=3))
    taken_over(settings, 1_004, ((3, 0), (1_003, 6)), 9, "first")
    told = only(settings).partitions[2]
    assert told.facts is not None and told.facts.lineage.incarnation == 1
    assert (told.facts.end_offset, told.leader_epoch, told.auxiliary) == (6, 1_004, b"producers")


def test_a_table_that_was_taken_over_without_rows_has_an_epoch(settings: TierSettings) -> None:
    fill(settings, segment(0, "a", epoch=3))
    taken_over(settings, 1_004, ((3, 0), (1_003, 3)), 3, "first")
    taken_over(settings, 2_004, ((2_003, 0),), 3, "second")
    table = only(settings)
    assert not table.is_dropped and table.partitions[2].leader_epoch == 2_004
    facts = table.partitions[2].facts
    assert facts is not None and (facts.lineage.incarnation, facts.start_offset, facts.end_offset) == (2, 0, 0)


def test_the_table_of_a_topic_that_is_deleted_after_an_unclean_election(settings: TierSettings) -> None:
    fill(settings, segment(0, "a", epoch=3))
    taken_over(settings, 1_004, ((3, 0), (1_003, 3)), 3, "first")
    DeltaTier(settings).drop(GROUP, 3)
    assert only(settings).is_dropped


def test_rows_that_retention_removed_leave_the_end(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"), segment(6, "b"))
    DeltaTier(settings).delete(LINEAGE, Epoch(7), Offset(12))
    told = only(settings).partitions[2]
    assert told.facts is not None and (told.facts.start_offset, told.facts.end_offset) == (12, 12)
    assert (told.auxiliary, told.timestamp_ms) == (None, -1) and "any more" in told.lacking


def test_the_table_of_a_deleted_topic_is_told_as_such(settings: TierSettings) -> None:
    fill(settings, segment(0, "a", lineage=of(0)), segment(0, "b", lineage=of(1)))
    DeltaTier(settings).drop(GROUP, 2)
    table = only(settings)
    assert table.is_dropped and not table.partitions


def test_all_bad_tables_are_named_at_once(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three damaged tables took three runs. What a store without an answer says once is not said of each table."""
    (made,) = fill(settings, segment(0, "a"))
    fill(settings, segment(0, "c", lineage=of(0, group=OTHER)))
    (Path(settings.uri) / "x-AAECAwQFBgcICQoLDA0ODw").mkdir()
    log = Path(table_uri(settings.uri, OTHER)) / "_delta_log"
    for commit in log.glob("*.json"):
        commit.write_text("{")
    store(settings).discard([made.file])
    with pytest.raises(WrongState) as found:
        read_tables(settings)
    told = str(found.value)
    assert told.startswith(f"3 tables cannot be used: (1) cannot read the table {table_uri(settings.uri, OTHER)}: its commit ")
    assert f"; (2) {table_uri(settings.uri, GROUP)}/{made.file} is gone: put it back" in told
    assert f"; (3) there is no Delta table at {settings.uri}/x-" in told
    monkeypatch.setattr(inventory, "_BAD_MAX", 1)
    with pytest.raises(WrongState, match=r"^3 tables cannot be used: \(1\) cannot read .*; and 2 more$"):
        read_tables(settings)
    asked: list[str] = []

    def tables_at(uri: str, *_: object) -> list[str]:
        asked.append(uri)
        if len(asked) > 1:
            raise TierProblem(TierFailure.UNKNOWN, "no answer")
        return [table_uri(uri, OTHER), table_uri(uri, GROUP)]

    def no_answer(*_: object) -> None:
        raise TierProblem(TierFailure.UNKNOWN, "not this table either")

    monkeypatch.setattr(inventory, "tables_at", tables_at)
    monkeypatch.setattr(inventory, "TopicHistory", no_answer)
    with pytest.raises(TierProblem, match=r"^no answer$"):
        read_tables(settings)


def deleted(settings: TierSettings, rows: str | None) -> None:
    DeltaTable(table_uri(settings.uri, GROUP)).delete(rows)


@pytest.mark.parametrize("rows", [None, '"offset" < 2', '"offset" >= 8'])
def test_what_another_program_has_done_is_told_unless_it_is_taken_as_it_is(settings: TierSettings, rows: str | None) -> None:
    """A table that a DELETE had emptied was taken for one that never showed a row: thousands of records were gone silently."""
    fill(settings, segment(0, "a", lineage=of(1)), segment(6, "b", lineage=of(1)), segment(0, "c", lineage=of(0)))
    assert read_tables(settings, may_be_changed=False) == read_tables(settings)
    deleted(settings, rows if rows is None else f"partition = 1 and {rows}")
    with pytest.raises(TierProblem) as found:
        read_tables(settings, may_be_changed=False)
    told = str(found.value)
    assert found.value.error.failure is TierFailure.CHANGED
    assert "DELETE" in told and "raftlake tier undo" in told and told.endswith("; `--accept-changes` takes it as it is")
    if rows is None:
        assert all(
            part.facts is None or part.facts.end_offset == part.facts.start_offset for _, part in only(settings).groups()
        )


def test_another_topics_table_in_the_place_of_one_is_refused(settings: TierSettings) -> None:
    """It would be told twice, and the table that was there not at all."""
    fill(settings, segment(0, "a", epoch=3))
    shutil.copytree(table_uri(settings.uri, GROUP), table_uri(settings.uri, OTHER))
    with pytest.raises(WrongState, match=r"clicks-\S+: the table here is that of topic flights .*: move it away"):
        read_tables(settings)


def test_a_table_of_which_only_retention_removed_all_is_not_dropped(settings: TierSettings) -> None:
    fill(settings, segment(0, "a", lineage=of(0)))
    DeltaTier(settings).delete(of(0), Epoch(7), Offset(6))
    assert not only(settings).is_dropped


def test_auxiliary_bytes_that_are_lost_are_told_and_refuse_nothing(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"))
    store(settings).discard([auxiliary_name("a")])
    told = only(settings).partitions[2]
    assert told.auxiliary is None and "_raftlake/a.aux is missing" in told.lacking


def test_a_file_that_is_gone_is_named(settings: TierSettings) -> None:
    made = fill(settings, segment(0, "a"), segment(6, "b"), segment(12, "c"))
    store(settings).discard([made[1].file])
    with pytest.raises(TierProblem, match=r"partition=2/b.parquet is gone: put it back"):
        read_tables(settings)


def without(settings: TierSettings, name: str) -> None:
    """Somebody deletes the rows of one copy."""
    DeltaTable(table_uri(settings.uri, GROUP)).delete(f"segment_id = '{name}'")


def test_rows_that_somebody_deleted_amid_others_are_a_gap(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"), segment(6, "b"), segment(12, "c"))
    without(settings, "b")
    with pytest.raises(
        TierProblem, match=r"c.parquet begins at offset 12 of partition 2, and the table shows nothing of 6 to 11"
    ):
        read_tables(settings)


def test_rows_that_somebody_deleted_at_the_end_are_missed(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"), segment(6, "b"))
    without(settings, "b")
    with pytest.raises(TierProblem, match=r"shows partition 2 up to offset 5, and the tier's last commit the records up to 11"):
        read_tables(settings)


def test_rows_that_somebody_added_are_there_twice(settings: TierSettings) -> None:
    """Far from the end too, where no row is read."""
    (made, *_) = fill(settings, *(segment(6 * n, f"s{n}") for n in range(20)))
    rows = pa.table(pq.read_table(store(settings).open(made.file)))
    rows = rows.append_column("partition", pa.array([2] * rows.num_rows, pa.int32())).slice(5, 1)
    table = DeltaTable(table_uri(settings.uri, GROUP))
    write_deltalake(table, rows.select(pa.schema(table.schema().to_arrow()).names), mode="append")
    with pytest.raises(TierProblem, match=r"7 rows have the offsets 0 to 5, so some are there twice .*raftlake tier undo"):
        read_tables(settings)


def test_files_without_statistics_are_looked_into(settings: TierSettings) -> None:
    (made,) = fill(settings, segment(0, "a"))
    table = DeltaTable(table_uri(settings.uri, GROUP))
    action = AddAction(made.file, made.size, {"partition": "2"}, 0, True, "{}")
    table.create_write_transaction([action], mode="overwrite", schema=table.schema(), partition_by=["partition"])
    told = only(settings).partitions[2]
    assert told.facts is not None and told.facts.end_offset == 6


def test_files_of_optimize_are_as_good(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"), segment(6, "b"))
    DeltaTable(table_uri(settings.uri, GROUP)).optimize.compact()
    told = only(settings).partitions[2]
    assert told.facts is not None and (told.facts.end_offset, told.auxiliary) == (12, b"producers")


def test_only_directories_that_are_named_as_tables_count(settings: TierSettings) -> None:
    fill(settings, segment(0, "a"))
    for name in ("lost+found", "backup", "x-AAECAwQFBgcICQoLDA0OD", "-AAECAwQFBgcICQoLDA0ODw"):
        (Path(settings.uri) / name).mkdir()
    assert len(read_tables(settings)) == 1
    (Path(settings.uri) / "x-AAECAwQFBgcICQoLDA0ODw").mkdir()
    with pytest.raises(WrongState, match=r"there is no Delta table at .*x-AAECAwQFBgcICQoLDA0ODw"):
        read_tables(settings)


def test_a_table_of_somebody_else_is_refused_by_its_name(settings: TierSettings) -> None:
    write_deltalake(f"{settings.uri}/x-AAECAwQFBgcICQoLDA0ODw", pa.table({"value": [1]}))
    with pytest.raises(WrongState, match=r"x-AAECAwQFBgcICQoLDA0ODw is none of raftlake's"):
        read_tables(settings)


def test_tables_of_one_cluster_or_of_all(tmp_path: Path) -> None:
    mine, theirs = local_settings(tmp_path, "mine"), local_settings(tmp_path, "theirs")
    fill(mine, segment(0, "a", lineage=of(0)))
    fill(theirs, segment(0, "b", lineage=of(0, group=OTHER)))
    assert [table.cluster_id for table in read_tables(mine)] == ["mine"]
    everyone = read_tables(TierSettings(uri=mine.uri, cluster_id=""))
    assert [(table.topic, table.cluster_id) for table in everyone] == [("clicks", "theirs"), ("flights", "mine")]
    assert all(told.facts is not None for table in everyone for _, told in table.groups())


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises((WrongState, TierProblem), match=str(tmp_path / "none")):
        read_tables(TierSettings(uri=str(tmp_path / "none"), cluster_id=""))
