"""`TopicHistory`: the offsets of partitions, ranges of rows, one version, and a refusal where a row is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from contract.tier_contract import GROUP, data_batch, request_for
from historykit import END, all_rows, fill, lineage, rewrite, root_of
from raftlake.errors import WrongState
from raftlake.ports.tier import RemoteSegment, TierFailure
from raftlake.tier import reader
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.ordered_rows import FileProblem
from raftlake.tier.reader import OffsetRange, TopicHistory, read_files, store_of, tables_at
from raftlake.tier.schema import table_uri
from raftlake.wire.ids import id_to_text
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    settings = local_settings(tmp_path)
    fill(settings, (2, 0))
    return settings


@pytest.fixture
def history(settings: TierSettings) -> TopicHistory:
    return TopicHistory(str(root_of(settings)))


def offsets(batches: Any) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_what_a_table_tells_of_itself(history: TopicHistory) -> None:
    assert (history.topic, history.topic_id, history.cluster_id) == (GROUP.topic, GROUP.topic_id, "cluster")
    assert history.partitions() == [0, 2]
    assert history.offsets(2) == OffsetRange(0, END) and history.offsets(1) is None
    assert [file.offset_min for file in history.files(2)] == [0, 7, 13, 22]
    assert (history.last_offset(2, 0), history.last_offset(2, 1), history.last_offset(1, 0)) == (END - 1, None, None)
    assert history.partitions_begun() == [0, 2]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_ranges_of_rows(settings: TierSettings, is_rewritten: bool) -> None:
    if is_rewritten:
        DeltaTable(root_of(settings)).optimize.z_order(["timestamp"])
    history = TopicHistory(str(root_of(settings)))
    whole = pa.Table.from_batches(history.read(2))
    expected = all_rows(settings)
    assert whole.equals(expected.filter(pa.array([partition == 2 for partition in expected["partition"].to_pylist()])))
    for start, end in ((0, 1), (5, 5), (6, 8), (7, 13), (3, 23), (24, END)):
        assert offsets(history.read(2, start, end)) == list(range(start, end))
    assert offsets(history.read(2, 20)) == list(range(20, END))
    assert offsets(history.read(2, end=4)) == list(range(4))
    assert offsets(history.read(1)) == []


def test_columns_come_as_asked_for(history: TopicHistory) -> None:
    for batch in history.read(2, 6, 9, ["value", "key"]):
        assert batch.schema.names == ["value", "key"]
    values = [value for batch in history.read(2, 6, 9, ["value"]) for value in batch.column("value").to_pylist()]
    assert values == [b"v6", b"v7", b"v8"]


def test_a_history_is_one_version(settings: TierSettings, history: TopicHistory) -> None:
    more = request_for(data_batch(END, 9), "more", 9, lineage())
    assert isinstance(DeltaTier(settings).copy(more), RemoteSegment)
    assert history.offsets(2) == OffsetRange(0, END)
    assert TopicHistory(history.uri).offsets(2) == OffsetRange(0, END + 3)
    assert TopicHistory(history.uri, version=history.version).offsets(2) == OffsetRange(0, END)


def test_files_that_are_known_are_read_without_the_log(history: TopicHistory) -> None:
    files = [file for file in history.files(2) if file.path.endswith("s1.parquet")]
    assert offsets(read_files(history.store, history.uri, files, 8, 11)) == [8, 9, 10]


@pytest.mark.parametrize(("start", "end", "missed"), [(0, END, 8), (8, 10, 8), (7, 9, 8)])
def test_a_row_that_is_missing_is_an_error(settings: TierSettings, start: int, end: int, missed: int) -> None:
    rewrite(settings, lambda rows: rows.filter(pa.array([offset != 8 for offset in rows["offset"].to_pylist()])))
    history = TopicHistory(str(root_of(settings)))
    with pytest.raises(TierProblem, match=f"offset {missed} is missing: `raftlake tier verify`") as caught:
        list(history.read(2, start, end))
    assert caught.value.error.failure is TierFailure.DAMAGED
    assert offsets(history.read(2, 9, 12)) == [9, 10, 11]


def test_offsets_beyond_the_table_are_missing(history: TopicHistory) -> None:
    with pytest.raises(TierProblem, match=f"offset {END} is missing"):
        list(history.read(2, 20, END + 1))
    with pytest.raises(TierProblem, match="offset 3 is missing"):
        list(history.read(1, 3, 4))


def test_a_row_that_is_there_twice_is_an_error(settings: TierSettings) -> None:
    def change(rows: Any) -> Any:
        again = rows.filter(pa.array([offset in (17, 18) for offset in rows["offset"].to_pylist()]))
        return pa.concat_tables([rows, again])

    rewrite(settings, change)
    with pytest.raises(TierProblem, match=r"offset 17 is there twice, the second time in partition=2/"):
        list(TopicHistory(str(root_of(settings))).read(2))


def test_a_file_that_is_gone_is_named(settings: TierSettings, history: TopicHistory) -> None:
    (root_of(settings) / "partition=2/p2s1.parquet").unlink()
    with pytest.raises(FileProblem, match=r"partition=2/p2s1\.parquet is gone"):
        list(history.read(2))
    assert offsets(history.read(2, 0, 7)) == list(range(7))


def test_tables_below_a_uri(settings: TierSettings, tmp_path: Path) -> None:
    dashed = GROUP._replace(topic="flights-2", topic_id=bytes([7] * 16))
    again = GROUP._replace(topic_id=bytes([9] * 16))
    for group in (dashed, again):
        (Path(table_uri(settings.uri, group))).mkdir()
    uri = settings.uri
    assert tables_at(uri) == sorted(table_uri(uri, group) for group in (GROUP, dashed, again))
    assert tables_at(uri, "flights") == sorted(table_uri(uri, group) for group in (GROUP, again))
    assert tables_at(uri + "/", "flights-2") == [f"{uri}/flights-2-{id_to_text(bytes([7] * 16))}"]
    (tmp_path / "empty").mkdir()
    assert tables_at(str(tmp_path / "empty")) == []
    with pytest.raises(WrongState, match="there is no directory"):
        tables_at(str(tmp_path / "nowhere"))


def test_a_relative_path_and_a_slash_at_its_end(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(settings.uri)
    history = TopicHistory(f"{root_of(settings).name}/")
    assert history.uri == str(root_of(settings)) and offsets(history.read(0)) == list(range(END))


def test_a_path_that_is_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises((WrongState, TierProblem), match=str(tmp_path / "file")):
        TopicHistory(str(tmp_path / "file"))


PROGRAM = """
import sys
from raftlake.tier.reader import TopicHistory
history = TopicHistory(sys.argv[1])
rows = history.read(2)
next(rows)
print(sum(batch.num_rows for batch in history.read(2)))
"""


def test_a_program_may_end_in_the_middle_of_its_reading(settings: TierSettings) -> None:
    """Threads of Arrow that call Python's file at the end of the interpreter abort the process."""
    command = [sys.executable, "-c", PROGRAM, str(root_of(settings))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{END}\n", "")


# --- what the Spark source asks ---


def test_a_history_shows_what_is_copied_later_when_it_is_told_to(settings: TierSettings, history: TopicHistory) -> None:
    tier = DeltaTier(settings)
    assert isinstance(tier.copy(request_for(data_batch(END, 9), "later", 9, lineage())), RemoteSegment)
    version = history.version
    assert history.offsets(2) == OffsetRange(0, END)
    history.refresh()
    assert history.offsets(2) == OffsetRange(0, END + 3) and history.version == version + 1
    assert offsets(history.read(2, END)) == [END, END + 1, END + 2]
    history.refresh()
    assert history.version == version + 1


def test_the_files_that_may_hold_a_range(settings: TierSettings, history: TopicHistory) -> None:
    def firsts(start: int | None = None, end: int | None = None) -> list[int | None]:
        return [file.offset_min for file in history.files(2, start, end)]

    assert firsts(6, 8) == [0, 7] and firsts(7, 13) == [7] and firsts(12, 14) == [7, 13]
    assert firsts(END) == [] == firsts(None, 0) and firsts(None, 1) == [0] and firsts(END - 1) == [22]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_the_first_record_that_is_as_late_as_a_time(settings: TierSettings, is_rewritten: bool) -> None:
    """The records have the milliseconds of their offsets. The first batch is a control record."""
    if is_rewritten:
        rewrite(settings, lambda rows: rows.sort_by([("offset", "descending")]))
    history = TopicHistory(str(root_of(settings)))
    base = 1_700_000_000_000
    found = [history.first_at(2, base + offset) for offset in (-5, 0, 1, 8, 13, END - 1, END)]
    assert found == [0, 0, 1, 8, 13, END - 1, None] and history.first_at(1, 0) is None


def test_a_store_that_is_not_there(settings: TierSettings, tmp_path: Path) -> None:
    assert store_of(str(root_of(settings)), {}).read("_delta_log/00000000000000000000.json")
    with pytest.raises(WrongState, match="there is no Delta table at"):
        store_of(str(tmp_path / "nowhere"), {})


def test_a_store_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("AccessDenied: who are you")

    monkeypatch.setattr(reader, "Store", refuse)
    with pytest.raises(TierProblem, match=r"cannot read the table s3://b/t: .*check the credentials"):
        store_of("s3://b/t", {})
