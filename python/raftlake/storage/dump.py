"""The files of a data directory as text, for `raftlake dump FILE`: segments, snapshots, indexes, checkpoints, election states.

Reads only and stops at nothing: damage becomes a line of the output. Batch lines carry the words of Kafka's
`kafka-dump-log`, so that both can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from crc32c import crc32c

from raftlake.errors import StorageError, WireError
from raftlake.raft.types import ElectionState
from raftlake.storage import aborted_index, election, election_journal, epochs, meta, partition
from raftlake.storage.cleaned import CLEANED_SUFFIX, SWAP_SUFFIX
from raftlake.storage.files import read_at, storage_error
from raftlake.storage.index import parse_offset_index, parse_time_index
from raftlake.storage.scan import WINDOW_LARGE, BatchAt, BrokenBatch, is_zero, walk
from raftlake.wire.aborted_index import ENTRY as ABORTED_ENTRY
from raftlake.wire.aborted_index import decode as decode_aborted
from raftlake.wire.batches import (
    BatchHeader,
    Record,
    decode_records,
    parse_control_record,
    parse_end_marker,
    parse_header,
)

#: Longer keys and values are cut in the output.
TEXT_SHOWN_MAX = 200


def dump(path: Path, *, records: bool = False) -> Iterator[str]:
    """The lines that describe one file, one at least; with `records` also a line for each record. Raises StorageError when it
    cannot be read or is of no known kind."""
    line = None
    for line in _lines(path, records=records):
        yield line
    if line is None:
        yield f"{path} is empty"


def _lines(path: Path, *, records: bool) -> Iterator[str]:
    by_suffix: dict[str, Callable[[], Iterator[str]]] = {
        ".log": lambda: dump_batches(path, records=records),
        ".checkpoint": lambda: dump_batches(path, records=records),
        ".index": lambda: dump_offset_index(path),
        ".timeindex": lambda: dump_time_index(path),
        aborted_index.SUFFIX: lambda: dump_aborted(path),
    }
    by_name: dict[str, Callable[[bytes], Iterator[str]]] = {
        election.FILE_NAME: dump_election_state,
        election_journal.FILE_NAME: dump_election_states,
        election_journal.COPY_NAME: dump_election_states,
        epochs.FILE_NAME: dump_epochs,
        meta.FILE_NAME: dump_meta,
        partition.METADATA_NAME: lambda data: dump_partition(path, data),
    }
    # A compacted segment has another name until it is put into place.
    suffix = path.with_suffix("").suffix if path.suffix in (CLEANED_SUFFIX, SWAP_SUFFIX) else path.suffix
    if suffix in by_suffix:
        yield from by_suffix[suffix]()
    elif path.name in by_name:
        yield from by_name[path.name](read_whole(path))
    else:
        known = ", ".join([*(f"*{suffix}" for suffix in by_suffix), *by_name])
        raise StorageError(f"{path}: not a file that can be dumped (those are {known})")


def read_whole(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error("read", path, error) from error


def base_offset_of(path: Path) -> int:
    """The base offset in the name of a segment's file. Raises StorageError."""
    base = path.name.partition(".")[0]
    if not (base.isascii() and base.isdigit()):
        raise StorageError(f"{path}: the name of a segment's file is its base offset")
    return int(base)


# --- batches ----------------------------------------------------------------------------------------------------------


def dump_batches(path: Path, *, records: bool) -> Iterator[str]:
    """A line per batch of a segment or snapshot; a last line tells of a reserved or damaged rest."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise storage_error("open", path, error) from error
    try:
        end = os.fstat(descriptor).st_size
        try:
            for batch in walk(descriptor, path, 0, end, epoch_min=-1, window=WINDOW_LARGE):
                yield from describe_batch(path, read_at(descriptor, batch.size, batch.position), batch, records=records)
        except BrokenBatch as broken:
            if is_zero(descriptor, path, broken.position, end):
                yield f"{end - broken.position} zero bytes from position {broken.position} on"
            else:
                yield f"damaged: {broken}"
    finally:
        os.close(descriptor)


def describe_batch(path: Path, data: bytes, batch: BatchAt, *, records: bool) -> Iterator[str]:
    header = parse_header(data)
    is_valid = crc32c(memoryview(data)[21:]) == header.crc
    yield describe_header(header, batch.position, is_valid=is_valid)
    if not is_valid:
        yield f"damaged: {path} at byte {batch.position}: the CRC of the batch is wrong"
    elif records:
        try:
            for record in decode_records(data, include_control=True):
                yield describe_record(record, is_control=header.is_control)
        except WireError as error:
            yield f"| damaged: {path} at byte {batch.position}: {error}"


def describe_header(header: BatchHeader, position: int, *, is_valid: bool) -> str:
    """One batch in the words of kafka-dump-log."""
    last_sequence = -1 if header.base_sequence < 0 else header.base_sequence + header.last_offset_delta
    try:
        codec = header.compression.name.lower()
    except WireError:
        codec = "unknown"
    facts = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "position": position,
        "LogAppendTime" if header.is_log_append_time else "CreateTime": header.timestamp_ms_max,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec,
        "crc": header.crc,
        "isvalid": str(is_valid).lower(),
    }
    return " ".join(f"{name}: {value}" for name, value in facts.items())


def describe_record(record: Record, *, is_control: bool) -> str:
    line = f"| offset: {record.offset} timestamp: {record.timestamp_ms}"
    if is_control:
        marker = parse_end_marker(record.key, record.value)
        if marker is not None:
            commit, coordinator_epoch = marker
            return f"{line} endTxnMarker: {'COMMIT' if commit else 'ABORT'} coordinatorEpoch: {coordinator_epoch}"
        return f"{line} {parse_control_record(record.key, record.value)}"
    headers = "".join(f" {name}={shown(value)}" for name, value in record.headers)
    return f"{line} key: {shown(record.key)} value: {shown(record.value)}" + (f" headers:{headers}" if headers else "")


def shown(value: bytes | None) -> str:
    """Text where it is text, else hexadecimal; cut when long."""
    if value is None:
        return "null"
    cut = value[:TEXT_SHOWN_MAX]
    rest = f"... ({len(value)} bytes)" if len(value) > len(cut) else ""
    try:
        text = cut.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{rest}"
    return (text if text.isprintable() else repr(text)) + rest


# --- the small files --------------------------------------------------------------------------------------------------


def dump_offset_index(path: Path) -> Iterator[str]:
    try:
        last_offsets, positions = parse_offset_index(read_whole(path), base_offset_of(path))
    except ValueError as error:
        yield f"damaged: {path}: {error}"
        return
    for offset, position in zip(last_offsets, positions, strict=True):
        yield f"offset: {offset} position: {position}"


def dump_time_index(path: Path) -> Iterator[str]:
    try:
        times, offsets = parse_time_index(read_whole(path), base_offset_of(path))
    except ValueError as error:
        yield f"damaged: {path}: {error}"
        return
    for time, offset in zip(times, offsets, strict=True):
        yield f"timestamp: {time} offset: {offset}"


def dump_aborted(path: Path) -> Iterator[str]:
    """A line per aborted transaction, in the words of kafka-dump-log."""
    data = memoryview(read_whole(path))
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    try:
        for entry in decode_aborted(data[:whole], base_offset_of(path)):
            yield (
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
                f"lastStableOffset: {entry.last_stable_offset}"
            )
        if whole < len(data):
            yield f"damaged: {path}: {len(data) - whole} bytes behind the last whole entry"
    except WireError as error:
        yield f"damaged: {path}: {error}"


def dump_election_state(data: bytes) -> Iterator[str]:
    try:
        state = election.decode(data)
    except ValueError as error:
        yield f"damaged: {error}: {data!r}"
        return
    yield from _lines_of(state)


def dump_election_states(data: bytes) -> Iterator[str]:
    """Each state that was saved and still stands there, the oldest first: the last one of a partition counts."""
    try:
        for group, state in election_journal.states_of(data, election.decode_entry):
            yield f"{group} topicId: {partition.uuid_text(group.topic_id)} {' '.join(_lines_of(state))}"
    except ValueError as error:
        yield f"damaged: {error}"
        return
    end = sum(len(line) + 1 for line in election_journal.intact_lines(data))
    if data[end:].strip(b"\0"):
        yield f"torn or damaged at byte {end}"


def _lines_of(state: ElectionState) -> Iterator[str]:
    voted = state.voted_key
    yield f"leaderEpoch: {state.epoch}"
    yield f"leaderId: {'none' if state.leader_id is None else state.leader_id}"
    yield f"votedId: {'none' if voted is None else voted.id}"
    if voted is not None:
        yield f"votedDirectoryId: {partition.uuid_text(voted.directory_id)}"


def dump_epochs(data: bytes) -> Iterator[str]:
    try:
        entries = epochs.parse(data)
    except ValueError as error:
        yield f"damaged: {error}: {data!r}"
        return
    for epoch, start in entries:
        yield f"leaderEpoch: {epoch} startOffset: {start}"


def dump_partition(path: Path, data: bytes) -> Iterator[str]:
    try:
        partition.read_topic_id(path.parent)
    except StorageError as error:
        yield f"damaged: {error}"
        return
    yield from data.decode("ascii").splitlines()


def dump_meta(data: bytes) -> Iterator[str]:
    try:
        found = meta.parse_meta(data.decode("utf-8"))
    except ValueError as error:
        yield f"damaged: {error}: {data!r}"
        return
    yield f"cluster.id: {'none' if found.cluster_id is None else found.cluster_id}"
    yield f"node.id: {found.node_id}"
    yield f"directory.id: {partition.uuid_text(found.directory_id)}"
