"""Record batches for tests of logs: bytes and the span that describes them, from one call."""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.ports.driver import BatchSpan, LogStore
from raftlake.raft.types import Offset
from raftlake.wire.batches import Record, build_batch, iterate_headers

Batch = tuple[bytes, BatchSpan]


def make_batch(base_offset: int, *, count: int = 1, epoch: int = 1, timestamp_ms: int = 1_000, size: int = 100) -> Batch:
    """A batch of `count` records; `size` bytes of value each, which differ from batch to batch."""
    value = f"{base_offset}@{epoch}/{timestamp_ms};".encode()
    records = [Record(value=(value * (size // len(value) + 1))[:size]) for _ in range(count)]
    data = bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms))
    return data, BatchSpan(base_offset, base_offset + count, epoch, timestamp_ms, len(data))


def fill(log: LogStore, batches: int, *, count: int = 1, epoch: int = 1, size: int = 100, step_ms: int = 1) -> list[Batch]:
    """Append `batches` batches of `count` records, one call each; timestamps rise by `step_ms` from 1000."""
    added = []
    for number in range(batches):
        batch = make_batch(log.end_offset, count=count, epoch=epoch, timestamp_ms=1_000 + number * step_ms, size=size)
        log.append([batch[0]], [batch[1]])
        added.append(batch)
    return added


def data_of(batches: Sequence[Batch]) -> bytes:
    return b"".join(data for data, _ in batches)


def end_of(data: bytes) -> Offset:
    """The end offset of the last batch in `data`."""
    *_, last = iterate_headers(data)
    return Offset(last.end_offset)


def read_all(log: LogStore) -> bytes:
    """Everything in the log, in as many reads as it takes."""
    parts = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, log.end_offset, 1 << 20)
        assert data, f"nothing at {offset} of {log.end_offset}"
        parts.append(data)
        offset = end_of(data)
    return b"".join(parts)
