"""Kafka's own kafka-dump-log reads what we write: segments, indexes and their agreement."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compactdisk import compacted, opened, put
from compactkit import NOW_MS, RETENTION_MS
from contract.batches import fill
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.dump import dump
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import decode_records
from raftlake.wire.producer_snapshot import ProducerRow
from transactionlog import FileMachine, Follower

DUMP = "org.apache.kafka.tools.DumpLogSegments"
Tool = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.java


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A closed log of several segments and epochs."""
    directory = FileLogDirectory(tmp_path, segment_bytes=60_000, post=None)
    log = directory.open(GroupId("orders", 0, bytes(15) + b"\x01"))
    for epoch in (1, 2, 5):
        fill(log, 300, count=3, epoch=epoch, size=120)
    directory.close()
    return sorted(log.path.glob("0*"))


def test_indexes_lead_to_the_batches_that_they_name(files: list[Path], kafka_tool: Tool) -> None:
    indexes = [str(path) for path in files if path.suffix in (".index", ".timeindex")]
    assert len(indexes) > 4
    text = kafka_tool(DUMP, "--files", ",".join(indexes)).stdout
    assert "ismatch" not in text and "out of order" not in text
    ours = [line for path in indexes for line in dump(Path(path))]
    assert [line for line in text.splitlines() if line.startswith(("offset: ", "timestamp: "))] == ours
    text = kafka_tool(DUMP, "--index-sanity-check", "--files", ",".join(indexes)).stdout
    assert text.count("passed sanity check") == len(indexes)


def test_every_batch_is_valid_and_described_in_the_same_words(files: list[Path], kafka_tool: Tool) -> None:
    segments = [path for path in files if path.suffix == ".log"]
    text = kafka_tool(DUMP, "--files", ",".join(map(str, segments))).stdout
    theirs = [line.replace("deleteHorizonMs: OptionalLong.empty ", "") for line in text.splitlines() if "baseOffset" in line]
    assert len(theirs) == 900
    assert theirs == [line for path in segments for line in dump(path)]


def test_producer_state_is_read_row_by_row(tmp_path: Path, kafka_tool: Tool) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GroupId("orders", 0, bytes(15) + b"\x01"))
    rows = [ProducerRow(4000 + number // 2, 3, 10 * number + 9, 100 + number, 9, 1_700_000_000_000) for number in range(4)]
    log.start_points.save(Offset(104), producer_snapshot.encode(rows), b"")
    directory.close()
    text = kafka_tool(DUMP, "--files", str(log.path / f"{104:020d}.snapshot")).stdout
    found = [line for line in text.splitlines() if line.startswith("producerId")]
    assert len(found) == 4
    for row, line in zip(rows, found, strict=True):
        assert line == (
            f"producerId: {row.producer_id} producerEpoch: 3 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
            f"lastTimestamp: 1700000000000 firstSequence: {row.last_sequence - 9} lastSequence: {row.last_sequence} "
            f"lastOffset: {row.last_offset} offsetDelta: 9 timestamp: 1700000000000"
        )


def test_transactions_are_described_in_the_same_words(tmp_path: Path, kafka_tool: Tool) -> None:
    """Markers, the index of aborted transactions, and the rows of producers with an open transaction."""
    follower = Follower(FileMachine(tmp_path, 10_000))
    for number in range(5):
        follower.write(7, number)
        follower.write(8, number)
        follower.end_of(7, commit=number == 1)
    follower.end_of(8, epoch=3)
    follower.write(9, 0)
    follower.partition.save_start_point()
    files = {path.suffix: path for path in follower.log.path.glob("0*")}  # type: ignore[attr-defined]
    text = kafka_tool(DUMP, "--files", str(files[".txnindex"])).stdout
    ours = list(dump(files[".txnindex"]))
    assert len(ours) == 5 and [line for line in text.splitlines() if line.startswith("version: ")] == ours
    text = kafka_tool(DUMP, "--deep-iteration", "--files", str(files[".log"])).stdout
    theirs = [line[line.index("endTxnMarker") :] for line in text.splitlines() if "endTxnMarker" in line]
    ours = [line[line.index("endTxnMarker") :] for line in dump(files[".log"], records=True) if "endTxnMarker" in line]
    assert len(ours) == 6 and theirs == ours
    text = kafka_tool(DUMP, "--files", str(files[".snapshot"])).stdout
    found = {line.split()[1]: line for line in text.splitlines() if line.startswith("producerId")}
    assert "coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in found["7"]
    # Of 8 no batch is left: the marker has raised its epoch.
    expected = "producerEpoch: 3 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000"
    assert found["8"].rstrip().endswith(expected)
    assert "coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[16]" in found["9"]


def test_a_compacted_log_is_read_by_kafka(tmp_path: Path, kafka_tool: Tool) -> None:
    """Sparse and empty batches of all codecs, tombstones with a delete horizon, markers that wait, and their indexes."""
    directory, log = opened(tmp_path, segment_bytes=1_500)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd") * 4):
        pairs = [(f"k{number % 3}", f"{number}" * 30), (f"only-{number}", "x"), ("again", None if number % 2 else "y")]
        put(log, pairs, compression=codec, time_ms=NOW_MS + number, producer_id=7, producer_epoch=0, base_sequence=3 * number)
    log.roll()
    compacted(log, last_batches=frozenset({log.end_offset - 4}), segment_bytes=1 << 20)
    directory.close()
    (path, _) = sorted(log.path.glob("0*.log"))
    text = kafka_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", str(path)).stdout
    theirs = [line for line in text.splitlines() if "baseOffset" in line]
    horizons = [line for line in theirs if f"deleteHorizonMs: OptionalLong[{NOW_MS + RETENTION_MS}]" in line]
    assert len(horizons) == 1
    plain = [re.sub(r"deleteHorizonMs: OptionalLong\S+ ", "", line) for line in theirs]
    assert plain == list(dump(path))
    assert all("isvalid: true" in line for line in theirs) and any(" count: 1 " in line for line in theirs)
    keys = re.findall(r"offset: (\d+) .* key: (\S+)", text)
    data = path.read_bytes()
    assert [(int(offset), key) for offset, key in keys] == [
        (record.offset, (record.key or b"").decode()) for record in decode_records(data)
    ]
    indexes = ",".join(str(each) for each in path.parent.glob(f"{path.stem}.*index"))
    assert "ismatch" not in kafka_tool(DUMP, "--files", indexes).stdout
