"""The Parquet file of a copy: row groups, order, statistics, footer, checksum, and how much of a segment is in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from contract.tier_contract import LINEAGE, data_batch, request_for, segment
from raftlake.errors import CorruptBatch
from raftlake.ports.tier import CopyRequest, FileRange
from raftlake.tier import batch_source, segment_file
from raftlake.tier.segment_file import SegmentFile, file_schema, write_segment
from raftlake.tier.store import Store
from raftlake.wire.batches import Record, build_batch


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path), {})


def write(store: Store, request: CopyRequest) -> tuple[SegmentFile, Any]:
    written = write_segment(store, request)
    return written, pq.ParquetFile(store.open(written.segment.file))


def test_row_groups_are_bounded_and_in_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file, "ROW_GROUP_ROWS", 7)
    written, file = write(store, segment(90, "a", count=30))
    groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
    assert all(group.num_rows <= 7 for group in groups) and len(groups) == 5
    rows = file.read()
    assert rows["offset"].to_pylist() == list(range(90, 120))
    assert rows.schema.equals(file_schema())
    assert file.schema_arrow.names == file_schema().names and "partition" not in file_schema().names
    for group in groups:
        columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
        assert columns["offset"].statistics.min is not None and columns["timestamp"].statistics.max is not None
        assert not columns["value"].is_stats_set
        assert columns["value"].compression == "ZSTD"
    assert written.segment.size == store.size("partition=2/a.parquet")


def test_the_footer_has_the_facts_and_the_checksum_is_that_of_the_file(store: Store, tmp_path: Path) -> None:
    written, file = write(store, segment(0, "a"))
    facts = json.loads(file.metadata.metadata[b"raftlake.segment"])
    assert (facts["segment_id"], facts["end_offset"], facts["epochs"], facts["partition"]) == ("a", 6, [[5, 0]], 2)
    assert not {"size", "crc", "file"} & set(facts)
    content = (tmp_path / written.segment.file).read_bytes()
    assert (written.segment.crc, written.segment.size) == (crc32c(content), len(content))
    assert store.checksum(written.segment.file) == written.segment.crc


def statistics(store: Store, *times: int) -> tuple[dict[str, Any], int]:
    records = [Record(timestamp_ms=time, value=b"v") for time in times]
    # -1 is no time of its own, and other times below it are no time at all.
    batch = build_batch(records, base_offset=4, leader_epoch=3, timestamp_ms=-1)
    written = write_segment(store, request_for(bytes(batch), "a"))
    return json.loads(written.statistics), written.segment.timestamp_ms_max


def test_statistics_are_those_of_delta(store: Store) -> None:
    found, max_ms = statistics(store, 1_700_000_000_123, 5, 1_700_000_000_007)
    assert found == {
        "numRecords": 3,
        "minValues": {
            "timestamp": "1970-01-01T00:00:00.005Z",
            "kind": 0,
            "leader_epoch": 3,
            "offset": 4,
            "incarnation": 0,
            "segment_id": "a",
        },
        "maxValues": {
            "timestamp": "2023-11-14T22:13:20.123Z",
            "kind": 0,
            "leader_epoch": 3,
            "offset": 6,
            "incarnation": 0,
            "segment_id": "a",
        },
        "nullCount": dict.fromkeys(("offset", "timestamp", "kind", "leader_epoch", "incarnation", "segment_id"), 0),
    }
    assert max_ms == 1_700_000_000_123


def test_records_without_a_time(store: Store) -> None:
    found, max_ms = statistics(store, -1, -1)
    assert (found["minValues"]["timestamp"], found["maxValues"]["timestamp"]) == ("1969-12-31T23:59:59.999Z",) * 2
    assert max_ms == -1


def test_a_time_of_no_calendar_has_no_range(store: Store) -> None:
    found, max_ms = statistics(store, 5, 1 << 52)
    assert "timestamp" not in found["minValues"] and "timestamp" not in found["maxValues"]
    assert max_ms == 1 << 52


def test_statistics_are_over_all_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.arrow.segment.PIECE_ROWS", 1)
    batches = [
        bytes(build_batch([Record(timestamp_ms=time)], base_offset=n, leader_epoch=n, timestamp_ms=0, control=n == 1))
        for n, time in enumerate((50, 90, 10))
    ]
    written = write_segment(store, request_for(b"".join(batches), "a"))
    found = json.loads(written.statistics)
    assert found["numRecords"] == 3
    assert [found[which]["timestamp"][-5:] for which in ("minValues", "maxValues")] == [".010Z", ".090Z"]
    assert [found[which]["kind"] for which in ("minValues", "maxValues")] == [0, 1]
    assert [found[which]["leader_epoch"] for which in ("minValues", "maxValues")] == [0, 2]


def test_damage_in_a_later_window_leaves_no_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_source, "WINDOW_BYTES", 200)
    batches = b"".join(data_batch(base, 5) for base in range(0, 60, 3))
    broken = bytearray(batches)
    broken[-20] ^= 1
    path = tmp_path / "00.log"
    path.write_bytes(broken)
    request = replace(request_for(batches, "a"), sources=(FileRange(str(path), 0, len(broken)),))
    with pytest.raises(CorruptBatch, match="offset 57"):
        write_segment(store, request)
    assert store.size("partition=2/a.parquet") is None
    path.write_bytes(batches)
    assert write(store, request)[1].read()["offset"].to_pylist() == list(range(60))


def test_another_partition_is_another_directory(store: Store) -> None:
    lineage = replace(LINEAGE, group=LINEAGE.group._replace(partition=11))
    assert write(store, segment(0, "a", lineage=lineage))[0].segment.file == "partition=11/a.parquet"
