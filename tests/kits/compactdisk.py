"""Logs on disk that are compacted: a directory with keyed batches in several closed segments, and one pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compactkit import NOW_MS, RETENTION_MS
from contract.batches import read_all
from raftlake.errors import StorageError
from raftlake.ports.driver import BatchSpan, Compacted, Compaction, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 1_000
Pairs = Sequence[tuple[str | None, str | None]]


def opened(path: Path, *, segment_bytes: int = SEGMENT_BYTES) -> tuple[FileLogDirectory, FileLog]:
    path.mkdir(exist_ok=True)
    directory = FileLogDirectory(path, segment_bytes=segment_bytes, post=None)
    return directory, directory.open(GROUP)


def put(log: LogStore, pairs: Pairs, *, epoch: int = 1, time_ms: int = NOW_MS, **fields: object) -> Offset:
    """Append one batch; returns its base offset."""
    records = [
        Record(key=None if key is None else key.encode(), value=None if value is None else value.encode())
        for key, value in pairs
    ]
    base = log.end_offset
    batch = bytes(build_batch(records, base_offset=base, leader_epoch=epoch, timestamp_ms=time_ms, **fields))  # type: ignore[arg-type]
    log.append([batch], [BatchSpan(base, base + len(records), epoch, time_ms, len(batch))])
    return base


def fill_keys(log: LogStore, rounds: int, *, keys: int = 5, epoch: int = 1, first: int = 0) -> None:
    """Batches of two records. Each round writes each key once. Times rise."""
    for number in range(first, first + rounds):
        for key in range(keys):
            pairs = [(f"k{key}", f"{number}" * 40), (f"only-{number}-{key}", "x") if number % 4 == 0 else (f"k{key}", "last")]
            put(log, pairs, epoch=epoch, time_ms=NOW_MS + number * 10)


def request_for(log: FileLog, **changes: object) -> Compaction:
    """Over all closed segments, from the log start."""
    fields: dict[str, object] = {
        "dirty_from": log.start_offset,
        "until": log.segment_bases[-1],
        "now_ms": NOW_MS,
        "delete_retention_ms": RETENTION_MS,
        "tombstones_below": Offset(1 << 62),
        "aborted": (),
        "last_batches": frozenset(),
        "keys_max": 1_000_000,
        "segment_bytes": SEGMENT_BYTES,
    }
    return Compaction(**(fields | changes))  # type: ignore[arg-type]


def compacted(log: FileLog, **changes: object) -> Compacted:
    """A pass that goes well."""
    result = tried(log, **changes)
    assert isinstance(result, Compacted), result
    return result


def tried(log: FileLog, **changes: object) -> Compacted | StorageError | None:
    told: list[Compacted | StorageError | None] = []
    log.compact(request_for(log, **changes), told.append)
    (result,) = told
    return result


def newest_values(log: LogStore) -> dict[bytes, bytes]:
    """What a reader of the whole log knows of each key."""
    state: dict[bytes, bytes] = {}
    for record in decode_records(read_all(log)):
        if record.key is not None and record.value is not None:
            state[record.key] = record.value
        elif record.key is not None:
            state.pop(record.key, None)
    return state


def epochs_of(log: LogStore) -> dict[int, int]:
    """The leader epoch of each offset. `AssertionError` where offsets are missing."""
    found: dict[int, int] = {}
    for header in iterate_headers(read_all(log)):
        assert header.base_offset == (max(found) + 1 if found else log.start_offset)
        found.update(dict.fromkeys(range(header.base_offset, header.end_offset), header.leader_epoch))
    return found


def files_of(log: FileLog) -> list[str]:
    return sorted(path.name for path in log.path.iterdir() if path.name[:20].isdigit())
