"""The slow reader of closed segments: how much it reads a call, what it finds, and a log that is cut under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from contract.batches import fill
from contract.file_faults import without_sync
from raftlake.errors import DamagedData
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage import scrub
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.epochs import Entry
from raftlake.storage.log import FileLog
from raftlake.storage.scan import BatchAt

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 2_000


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileLog]:
    without_sync(monkeypatch)
    monkeypatch.setattr(scrub, "BATCH_BYTES_MIN", 1)
    directory = FileLogDirectory(tmp_path, segment_bytes=SEGMENT_BYTES, post=None)
    yield directory.open(GROUP)
    directory.abandon()


def closed_bytes(log: FileLog) -> int:
    return sum(segment.size for segment in log.segments()[:-1])


def round_of(log: FileLog, size_max: int) -> list[int]:
    """What each call reads until one reads less than it may: then the last closed segment is done."""
    reads = []
    while not reads or reads[-1] >= size_max:
        reads.append(log.scrub(size_max))
        assert len(reads) < 10_000
    return reads


@pytest.mark.parametrize("size_max", [1, 100, 500, 1_999, 2_001, 4_500, 1 << 20])
def test_a_call_reads_what_it_may_and_a_batch_more_at_most(log: FileLog, size_max: int) -> None:
    """Also one that begins amid a segment, and one that ends amid another."""
    batch = len(fill(log, 60)[0][0])
    for _ in range(2):
        reads = round_of(log, size_max)
        assert sum(reads) == closed_bytes(log)
        assert all(size_max <= read < size_max + batch for read in reads[:-1])


@pytest.mark.parametrize("batches", [1, 3, 8, 1_000])
def test_tiny_batches_count_for_more_than_their_bytes(log: FileLog, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """A second's reading of them held the loop for 0.4 s."""
    fill(log, 60)
    monkeypatch.setattr(scrub, "BATCH_BYTES_MIN", 4096)
    walked: list[int] = []
    require_epoch = scrub.require_epoch

    def counted(path: Path, batch: BatchAt, epochs: Sequence[Entry]) -> None:
        walked.append(batch.position)
        require_epoch(path, batch, epochs)

    monkeypatch.setattr(scrub, "require_epoch", counted)
    closed = sum(segment.end_offset - segment.base_offset for segment in log.segments()[:-1])
    reads = round_of(log, batches * scrub.BATCH_BYTES_MIN)
    assert len(walked) == closed and sum(reads) == closed * scrub.BATCH_BYTES_MIN
    assert len(reads) == 1 + closed // batches and reads[0] == min(batches, closed) * scrub.BATCH_BYTES_MIN


def write_epoch(log: FileLog, number: int, from_end: int, epoch: int) -> int:
    """Put another epoch, which no CRC covers, into a batch of a closed segment; its offset."""
    segment = log.segments()[number]
    batches = segment.end_offset - segment.base_offset
    at = segment.size // batches * (batches - from_end)
    path = log.path / f"{segment.base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[at + 12 : at + 16] = epoch.to_bytes(4, "big")
    path.write_bytes(data)
    return segment.end_offset - from_end


@pytest.mark.parametrize("size_max", [1, 1 << 20])
@pytest.mark.parametrize("from_end", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_higher_epoch_than_the_history_tells_is_found_in_any_batch(
    log: FileLog, number: int, from_end: int, size_max: int
) -> None:
    """Behind the last batch of a segment there is none with a lower one that would show it."""
    fill(log, 40)
    offset = write_epoch(log, number, from_end, 7)
    with pytest.raises(DamagedData, match="leader epoch") as raised:
        round_of(log, size_max)
    assert raised.value.offset in (offset, offset + 1)


def test_the_first_record_of_a_log_behind_a_snapshot_may_open_an_epoch(log: FileLog) -> None:
    log.reset(OffsetAndEpoch(Offset(50), Epoch(3)))
    fill(log, 40, epoch=5)
    assert sum(round_of(log, 1 << 20)) == closed_bytes(log) > 0
    write_epoch(log, 0, log.segments()[0].end_offset - 50, 4)
    with pytest.raises(DamagedData, match="leader epoch is 4, but the epoch history says 5"):
        round_of(log, 1 << 20)


@pytest.mark.parametrize("size", [10, 170, 400])
@pytest.mark.parametrize("cut", range(1, 20, 3))
def test_a_log_that_is_cut_below_where_the_reader_stands_is_not_taken_for_damaged(log: FileLog, cut: int, size: int) -> None:
    """Other batches, of another size, come to stand in the same segment; it is closed again, shorter or longer."""
    fill(log, 40)
    first = log.segments()[0]
    log.scrub(first.size + first.size // 2)
    log.truncate_to(Offset(cut))
    fill(log, 60, epoch=2, size=size)
    for _ in range(2):
        round_of(log, 300)
    assert sum(round_of(log, 1 << 20)) == closed_bytes(log)


@pytest.mark.parametrize("start", [0, 5, 9, 30])
def test_a_log_that_begins_anew_under_the_reader_is_not_taken_for_damaged(log: FileLog, start: int) -> None:
    fill(log, 40)
    first = log.segments()[0]
    log.scrub(first.size // 2)
    log.reset(OffsetAndEpoch(Offset(start), Epoch(1)))
    fill(log, 60, epoch=2, size=170)
    round_of(log, 300)
    assert sum(round_of(log, 1 << 20)) == closed_bytes(log)


def test_segments_that_retention_deletes_are_passed_over(log: FileLog) -> None:
    fill(log, 60)
    first = log.segments()[0]
    log.scrub(first.size // 2)
    log.advance_start(log.segments()[2].base_offset)
    assert sum(round_of(log, 1 << 20)) == closed_bytes(log)
