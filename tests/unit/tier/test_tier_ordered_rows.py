"""Rows in the order of offsets out of files in any order: windows, row groups, columns, and how much is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from raftlake.arrow.records import segment_schema
from raftlake.tier import ordered_rows
from raftlake.tier.ordered_rows import FileProblem, Rows, row_groups, rows_in_order
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile, groups_by_overlap

END = 1 << 62


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path), {})


def table_of(offsets: Sequence[int | None]) -> Any:
    """Rows with these offsets; the value tells the offset too."""
    columns = {
        field.name: pa.nulls(len(offsets), field.type)
        for field in segment_schema()
        if field.name not in ("partition", "offset")
    }
    columns["offset"] = pa.array(offsets, pa.int64())
    columns["value"] = pa.array([b"%d" % (offset or 0) for offset in offsets], pa.binary())
    return pa.table(columns)


def put(
    place: Path, name: str, offsets: Sequence[int | None], *, group_rows: int = 1000, knows: bool = True, **more: Any
) -> TableFile:
    path = place / f"{name}.parquet"
    pq.write_table(table_of(offsets), path, row_group_size=group_rows, **more)
    found = [offset for offset in offsets if offset is not None]
    return TableFile(
        path=path.name,
        size=path.stat().st_size,
        partition=4,
        rows=len(offsets),
        offset_min=min(found) if knows else None,
        offset_max=max(found) if knows else None,
        incarnation_min=0,
        incarnation_max=0,
    )


def read(store: Store, place: Path, files: Sequence[TableFile], start: int = 0, end: int = END) -> list[Rows]:
    return list(rows_in_order(store, str(place), files, start, end))


def offsets_in(found: Sequence[Rows]) -> list[int]:
    return [offset for rows in found for offset in rows.batch.column("offset").to_pylist()]


def test_files_in_any_order_give_rows_in_order(store: Store, tmp_path: Path) -> None:
    files = [put(tmp_path, "c", range(20, 30)), put(tmp_path, "a", range(10)), put(tmp_path, "b", range(10, 20))]
    found = read(store, tmp_path, files)
    assert offsets_in(found) == list(range(30))
    assert [rows.path_of(3) for rows in found] == ["a.parquet", "b.parquet", "c.parquet"]
    (first, _, _) = found
    assert first.batch.schema.equals(segment_schema())
    assert first.batch.column("partition").to_pylist() == [4] * 10
    assert first.batch.column("value").to_pylist() == [b"%d" % offset for offset in range(10)]


def test_only_files_and_row_groups_of_the_range_are_opened(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [put(tmp_path, f"f{n}", range(10 * n, 10 * n + 10), group_rows=5) for n in range(6)]
    opened: list[str] = []
    really_open = Store.open
    monkeypatch.setattr(Store, "open", lambda store, path: opened.append(path) or really_open(store, path))
    groups: list[tuple[str, int]] = []
    really_batches = ordered_rows._Reader._batches

    def batches(reader: Any, file: TableFile, index: int, names: list[str], rows: int) -> Iterator[Any]:
        groups.append((file.path, index))
        yield from really_batches(reader, file, index, names, rows)

    monkeypatch.setattr(ordered_rows._Reader, "_batches", batches)
    assert offsets_in(read(store, tmp_path, files, 17, 32)) == list(range(17, 32))
    assert sorted(set(opened)) == ["f1.parquet", "f2.parquet", "f3.parquet"]
    assert set(groups) == {("f1.parquet", 1), ("f2.parquet", 0), ("f2.parquet", 1), ("f3.parquet", 0)}


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("window", [1, 7, 1000])
def test_scattered_rows_are_sorted_window_by_window(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: bool, window: int
) -> None:
    monkeypatch.setattr(ordered_rows, "WINDOW_ROWS", window)
    files = [put(tmp_path, f"f{n}", list(range(n, 60, 3))[::-1], group_rows=8, knows=knows) for n in range(3)]
    found = read(store, tmp_path, files, 5, 50)
    assert offsets_in(found) == list(range(5, 50))
    assert max(rows.batch.num_rows for rows in found) <= window
    for rows in found:
        for row, offset in enumerate(rows.batch.column("offset").to_pylist()):
            assert rows.path_of(row) == f"f{offset % 3}.parquet"
            assert rows.batch.column("value")[row].as_py() == b"%d" % offset


def test_rows_in_disorder_within_one_row_group_are_sorted(store: Store, tmp_path: Path) -> None:
    """As OPTIMIZE of Spark puts files together: runs of offsets, in any order."""
    files = [put(tmp_path, "a", [*range(20, 30), *range(10)]), put(tmp_path, "b", range(10, 20))]
    assert offsets_in(read(store, tmp_path, files)) == list(range(30))


def test_disorder_between_two_pieces_of_a_row_group_is_seen(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece is in order by itself."""
    monkeypatch.setattr(ordered_rows, "_ROWS_TOGETHER", 3)
    file = put(tmp_path, "a", [3, 4, 5, 0, 1, 2])
    assert [group.is_ordered for group in row_groups(store, str(tmp_path), file)] == [False]
    assert offsets_in(read(store, tmp_path, [file])) == list(range(6))


def test_rows_that_are_there_twice_come_twice(store: Store, tmp_path: Path) -> None:
    files = [put(tmp_path, "a", range(10)), put(tmp_path, "b", range(5, 15)), put(tmp_path, "c", [3, 3])]
    expected = sorted([*range(10), *range(5, 15), 3, 3])
    assert offsets_in(read(store, tmp_path, files)) == expected


def test_a_long_way_without_rows_takes_no_time(store: Store, tmp_path: Path) -> None:
    far = (1 << 61, 1 << 62)
    files = [put(tmp_path, "a", [7, *far, 5]), put(tmp_path, "b", [6, far[0] + 1])]
    assert offsets_in(read(store, tmp_path, files, 0, far[1] + 1)) == [5, 6, 7, far[0], far[0] + 1, far[1]]


def test_a_piece_is_bounded_by_rows_and_bytes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(tmp_path, "a", range(100))
    monkeypatch.setattr(ordered_rows, "_ROWS_TOGETHER", 30)
    assert [rows.batch.num_rows for rows in read(store, tmp_path, [file])] == [30, 30, 30, 10]
    monkeypatch.setattr(ordered_rows, "_BYTES_TOGETHER", 1)
    assert [rows.batch.num_rows for rows in read(store, tmp_path, [file])] == [1] * 100


def test_some_columns(store: Store, tmp_path: Path) -> None:
    file = put(tmp_path, "a", range(3))
    (rows,) = rows_in_order(store, str(tmp_path), [file], 1, 3, ["value", "partition", "offset"])
    assert rows.batch.to_pydict() == {"value": [b"1", b"2"], "partition": [4, 4], "offset": [1, 2]}


def test_other_types_of_text_and_lists_become_ours(store: Store, tmp_path: Path) -> None:
    headers = pa.list_(pa.field("element", pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])))
    types = {"value": pa.binary_view(), "topic": pa.large_string(), "segment_id": pa.string_view(), "headers": headers}
    table = table_of([2, 0, 1])
    for name, type_ in types.items():
        values = [[{"key": "h", "value": b"1"}]] * 3 if name == "headers" else table[name].to_pylist()
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, type_))
    pq.write_table(table, tmp_path / "a.parquet")
    file = put(tmp_path, "b", range(3))
    size = (tmp_path / "a.parquet").stat().st_size
    other = TableFile(**{name: getattr(file, name) for name in TableFile.__slots__} | {"path": "a.parquet", "size": size})
    (rows,) = read(store, tmp_path, [other], 0, 2)
    assert rows.batch.schema.equals(segment_schema())
    assert rows.batch.column("value").to_pylist() == [b"0", b"1"]
    assert rows.batch.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}]] * 2


def test_row_groups_tell_what_is_in_them(store: Store, tmp_path: Path) -> None:
    file = put(tmp_path, "a", [0, 1, 2, 9, 8, 7, 5], group_rows=3, write_statistics=False)
    found = [
        (group.rows, group.offset_min, group.offset_max, group.is_ordered) for group in row_groups(store, str(tmp_path), file)
    ]
    assert found == [(3, 0, 2, True), (3, 7, 9, False), (1, 5, 5, True)]


def test_files_that_are_not_as_the_log_says_are_named(store: Store, tmp_path: Path) -> None:
    file = put(tmp_path, "a", range(10))
    path = tmp_path / "a.parquet"
    content = path.read_bytes()

    def refused() -> str:
        with pytest.raises(FileProblem) as caught:
            read(store, tmp_path, [file])
        assert caught.value.path == "a.parquet"
        assert caught.value.error.reason == f"{caught.value.what}: put it back from a copy of the store"
        return caught.value.what

    path.write_bytes(content + b"x")
    assert refused() == f"{tmp_path}/a.parquet has {len(content) + 1} bytes and not {len(content)}"
    path.write_bytes(b"y" * len(content))
    assert refused().startswith(f"{tmp_path}/a.parquet cannot be read: ")
    path.unlink()
    assert refused() == f"{tmp_path}/a.parquet is gone"


def test_rows_without_an_offset_and_missing_columns_are_refused(store: Store, tmp_path: Path) -> None:
    file = put(tmp_path, "a", [0, None, 2])
    with pytest.raises(FileProblem, match="1 rows have no offset: another program has written them"):
        read(store, tmp_path, [file])
    table = table_of([0, 1]).drop_columns(["leader_epoch"])
    pq.write_table(table, tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    known = {name: getattr(file, name) for name in TableFile.__slots__} | {"size": size}
    with pytest.raises(FileProblem, match="it has no column leader_epoch"):
        read(store, tmp_path, [TableFile(**known)])


@hypothesis.settings(max_examples=40, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None)
@hypothesis.given(
    files=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=25), min_size=1, max_size=4),
    group_rows=st.integers(1, 9),
    window=st.integers(1, 20),
    bounds=st.tuples(st.integers(0, 61), st.integers(0, 61)),
)
def test_any_rows_come_sorted(
    tmp_path: Path, files: list[list[int]], group_rows: int, window: int, bounds: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered_rows, "WINDOW_ROWS", window)
        put_ = [put(tmp_path, f"f{n}", offsets, group_rows=group_rows) for n, offsets in enumerate(files)]
        found = read(Store(str(tmp_path), {}), tmp_path, put_, *bounds)
    wanted = sorted(offset for offsets in files for offset in offsets if bounds[0] <= offset < bounds[1])
    assert offsets_in(found) == wanted
    for rows in found:
        for row in range(rows.batch.num_rows):
            number = int(rows.path_of(row).removeprefix("f").removesuffix(".parquet"))
            assert rows.batch.column("offset")[row].as_py() in files[number]


@hypothesis.given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=12))
def test_ranges_come_together_where_they_overlap(ranges: list[tuple[int, int]]) -> None:
    named = [(first, first + more, number) for number, (first, more) in enumerate(ranges)]
    groups = list(groups_by_overlap(named))
    assert sorted(number for group in groups for number in group) == list(range(len(ranges)))
    ends = [(min(named[n][0] for n in group), max(named[n][1] for n in group)) for group in groups]
    assert all(earlier[1] < later[0] for earlier, later in pairwise(ends))
    for (first, last), group in zip(ends, groups, strict=True):
        covered = {value for n in group for value in range(named[n][0], named[n][1] + 1)}
        assert covered == set(range(first, last + 1))


def test_windows_hold_no_more_than_they_may(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_rows, "WINDOW_BYTES", 1)
    files = [put(tmp_path, "a", [4, 2, 0]), put(tmp_path, "b", [5, 3, 1])]
    assert [pc.max(rows.batch.column("offset")).as_py() for rows in read(store, tmp_path, files)] == list(range(6))
