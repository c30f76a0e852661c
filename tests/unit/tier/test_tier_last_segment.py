"""The last copy of a lineage as a claim tells it: after OPTIMIZE, without the files beside it, and after somebody's changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from deltalake import DeltaTable, write_deltalake

from contract.tier_contract import GROUP, LINEAGE, data_batch, failure, request_for, rows_of, segment
from raftlake.ports.tier import Lineage, LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.last_segment import last_segment
from raftlake.tier.schema import table_uri
from raftlake.tier.table_reads import TableReads
from raftlake.tier.topic_table import TopicTable
from tierkit import as_optimize, files_of, local_settings, shown_rows

AGAIN = Lineage(GROUP, 1)
#: A last copy whose batches are of two epochs.
LAST = request_for(data_batch(6, 5) + data_batch(9, 7) + data_batch(12, 7), "b", 7)


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    """A table of two copies."""
    settings = local_settings(tmp_path)
    tier = DeltaTier(settings)
    for request in (segment(0, "a"), LAST):
        assert isinstance(tier.copy(request), RemoteSegment)
    return settings


def root_of(settings: TierSettings) -> Path:
    return Path(table_uri(settings.uri, GROUP))


def claim(settings: TierSettings, lineage: Lineage = LINEAGE) -> LineageEnd | TierError:
    return DeltaTier(settings).claim(lineage, Epoch(8))


def last_of(settings: TierSettings, lineage: Lineage = LINEAGE) -> RemoteSegment:
    answer = claim(settings, lineage)
    assert isinstance(answer, LineageEnd) and answer.last is not None, answer
    return answer.last


def file_facts(settings: TierSettings, path: str) -> dict[str, object]:
    content = (root_of(settings) / path).read_bytes()
    return {"file": path, "size": len(content), "crc": crc32c(content)}


@pytest.mark.parametrize("auxiliary", ["intact", "damaged", "missing", "of another file"])
def test_the_footer_tells_where_the_file_beside_it_does_not(settings: TierSettings, auxiliary: str) -> None:
    expected = last_of(settings)
    assert expected.epochs == ((5, 6), (7, 9)) and expected.leader_epoch == 7
    path = root_of(settings) / "_raftlake/b.aux"
    match auxiliary:
        case "damaged":
            path.write_bytes(path.read_bytes()[:-1] + b"?")
        case "missing":
            path.unlink()
        case "of another file":
            path.write_bytes((root_of(settings) / "_raftlake/a.aux").read_bytes())
    assert last_of(settings) == expected
    assert {name: getattr(expected, name) for name in ("file", "size", "crc")} == file_facts(settings, expected.file)


def optimize(settings: TierSettings, how: str) -> None:
    table = DeltaTable(root_of(settings))
    if how == "compact":
        table.optimize.compact()
    else:
        table.optimize.z_order(["offset"])
    assert len(table.file_uris()) == 1


@pytest.mark.parametrize("how", ["compact", "z_order"])
@pytest.mark.parametrize("has_auxiliary", [True, False])
def test_after_optimize_the_rows_tell(settings: TierSettings, how: str, has_auxiliary: bool) -> None:
    before = last_of(settings)
    optimize(settings, how)
    if not has_auxiliary:
        (root_of(settings) / "_raftlake/b.aux").unlink()
    after = last_of(settings)
    (path,) = files_of(settings, LINEAGE)
    assert path != before.file
    facts = file_facts(settings, path)
    # The size in the log is not in the rows. The file that has them now may be rewritten in its turn.
    expected = before if has_auxiliary else replace(before, log_bytes=0, **facts)  # type: ignore[arg-type]
    assert after == expected
    checked = TableReads(settings).check(LINEAGE, after)
    assert checked is None if has_auxiliary else failure(checked) is TierFailure.DAMAGED, "the state beside it is lost"
    more = segment(15, "c", epoch=8)
    assert isinstance(DeltaTier(settings).copy(more), RemoteSegment)
    assert sorted(shown_rows(settings, LINEAGE)) == sorted(rows_of(segment(0, "a"), LAST, more))
    assert last_of(settings).segment_id == "c"


def test_after_optimize_incarnations_in_one_file_are_told_apart(settings: TierSettings) -> None:
    other = segment(15, "x", count=30, lineage=AGAIN)
    assert isinstance(DeltaTier(settings).copy(other), RemoteSegment)
    optimize(settings, "compact")
    assert (last_of(settings).segment_id, last_of(settings).end_offset) == ("b", 15)
    assert (last_of(settings, AGAIN).segment_id, last_of(settings, AGAIN).base_offset) == ("x", 15)
    assert isinstance(DeltaTier(settings).copy(segment(45, "y", epoch=8, lineage=AGAIN)), RemoteSegment)
    assert last_of(settings, AGAIN).segment_id == "y"
    assert last_of(settings).segment_id == "b"


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_after_optimize_rows_of_a_later_incarnation_at_the_same_offsets_are_not_taken(
    settings: TierSettings, order: str
) -> None:
    """An unclean election: the new lineage has other records where the old one had some that are not retracted yet."""
    assert isinstance(DeltaTier(settings).copy(segment(3, "x", count=20, lineage=AGAIN)), RemoteSegment)
    rewrite(settings, rows_of_table(settings).sort_by([("incarnation", order), ("offset", "ascending")]))
    last = last_of(settings)
    assert (last.segment_id, last.base_offset, last.end_offset) == ("b", 6, 15)


def rows_of_table(settings: TierSettings) -> pa.Table:
    """Those of partition 2, with the columns of the table."""
    rows = pa.concat_tables(list(files_of(settings, LINEAGE).values()))
    rows = rows.append_column("partition", pa.array([2] * rows.num_rows, pa.int32()))
    return rows.select(pa.schema(DeltaTable(root_of(settings)).schema().to_arrow()).names)


def rewrite(settings: TierSettings, *files: pa.Table) -> None:
    """The table has these rows now, as after OPTIMIZE."""
    with as_optimize(DeltaTable(root_of(settings))) as table:
        for number, rows in enumerate(files):
            write_deltalake(table, rows, mode="append" if number else "overwrite")


def test_a_copy_of_which_optimize_made_several_files_is_one(settings: TierSettings) -> None:
    """z-order cuts files by size."""
    rows = rows_of_table(settings)
    rewrite(settings, rows.slice(0, 8), rows.slice(8))
    for has_auxiliary in (True, False):
        last = last_of(settings)
        assert (last.segment_id, last.base_offset, last.end_offset, last.epochs) == ("b", 6, 15, ((5, 6), (7, 9)))
        if has_auxiliary:
            (root_of(settings) / "_raftlake/b.aux").unlink()


def test_files_without_statistics_are_looked_into(settings: TierSettings) -> None:
    before = last_of(settings)
    table = DeltaTable(root_of(settings))
    table.alter.set_table_properties({"delta.dataSkippingStatsColumns": "kind"})
    optimize(settings, "compact")
    after = last_of(settings)
    assert replace(after, file=before.file, size=before.size, crc=before.crc) == before


def refused(settings: TierSettings, *words: str, kind: TierFailure = TierFailure.UNUSABLE) -> None:
    answer = claim(settings)
    assert failure(answer) is kind and isinstance(answer, TierError)
    for word in (str(root_of(settings)), *words):
        assert word in answer.reason


def test_a_file_that_was_removed_by_hand_is_named(settings: TierSettings) -> None:
    path = root_of(settings) / "partition=2/b.parquet"
    content = path.read_bytes()
    path.unlink()
    refused(settings, "partition=2/b.parquet is gone")
    path.write_bytes(content[:-1])
    refused(settings, f"partition=2/b.parquet has {len(content) - 1} bytes and not {len(content)}")
    path.write_bytes(content)
    assert last_of(settings).segment_id == "b"


def test_rows_that_somebody_deleted_are_missed(settings: TierSettings) -> None:
    """Also where no commit tells it: the tier's last commit says where the rows end."""
    for predicate in ("offset >= 10", None):
        with as_optimize(DeltaTable(root_of(settings))) as table:
            table.delete(predicate)
        with pytest.raises(TierProblem, match="the rows of partition 2 up to offset 14 are not in it any more") as told:
            last_segment(seen(settings), LINEAGE, 14)
        assert told.value.error.failure is TierFailure.UNUSABLE


def test_rows_that_somebody_appended_are_found(settings: TierSettings) -> None:
    table = DeltaTable(root_of(settings))
    rows = pq.read_table(root_of(settings) / "partition=2/b.parquet", partitioning=None)
    columns = {name: rows[name] for name in rows.column_names} | {"offset": pa.array(range(100, 109), pa.int64())}
    columns["partition"] = pa.array([2] * 9, pa.int32())
    write_deltalake(table, pa.table(columns).select(pa.schema(table.schema().to_arrow()).names), mode="append")
    with pytest.raises(TierProblem, match="behind offset 14"):
        last_segment(seen(settings), LINEAGE, 14)
    refused(settings, "version 3, WRITE", kind=TierFailure.CHANGED)


def seen(settings: TierSettings) -> TopicTable:
    table = TopicTable(settings, GROUP)
    table.refresh()
    return table


def test_files_of_other_partitions_are_not_looked_at(settings: TierSettings) -> None:
    other = Lineage(GROUP._replace(partition=22), 0)
    assert isinstance(DeltaTier(settings).copy(segment(90, "z", lineage=other)), RemoteSegment)
    (root_of(settings) / "partition=22/z.parquet").unlink()
    assert last_of(settings).segment_id == "b"
    assert claim(settings, Lineage(GROUP._replace(partition=0), 0)) == LineageEnd(None)
