"""The last copy that a table shows of a lineage, whoever rewrote the files since then.

Normally the newest file of the partition is as its leader wrote it, and the file of auxiliary bytes beside it has all facts.
After OPTIMIZE rows of several copies are in one file: then the rows tell which copy it is. The file of auxiliary bytes has the
facts of that copy as it was written, and the quorum's keys go by these: a file of OPTIMIZE may be gone tomorrow.
"""

from __future__ import annotations

import posixpath
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raftlake.arrow.records import segment_schema
from raftlake.ports.tier import Lineage, RemoteSegment, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.failures import TierProblem
from raftlake.tier.foreign_commits import PUT_BACK
from raftlake.tier.remote_segments import SEGMENT_KEY, NamedSegment, auxiliary_name, file_name, from_json, unpack_auxiliary
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import TopicTable

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: What is read of a file that somebody rewrote.
_SCHEMA: Arrow = pa.schema(
    [segment_schema().field(name) for name in ("offset", "timestamp", "leader_epoch", "segment_id", "incarnation")]
)


def last_segment(table: TopicTable, lineage: Lineage, last_offset: int) -> RemoteSegment:
    """The copy that ends with `last_offset`, the version of the lineage's `txn`. TierProblem where the table does not show it:
    somebody has removed rows, or added some."""
    partition = lineage.group.partition
    files = [file for file in table.files(partition) if file.may_hold(lineage.incarnation)]
    behind = next((file for file in files if file.offset_max is not None and file.offset_max > last_offset), None)
    if behind is not None and behind.is_of(lineage.incarnation):
        raise _foreign(table, f"{behind.path} has rows of partition {partition} behind offset {last_offset}, the last one")
    for file in files:
        if file.offset_max is not None and file.offset_max < last_offset:
            break
        named = _as_written(table, file)
        if named is not None and named.is_shown_by(lineage) and named.segment.end_offset - 1 == last_offset:
            return named.segment
    for file in files:
        if (segment := _from_rows(table, lineage, file, files, last_offset)) is not None:
            return segment
    raise _foreign(table, f"the rows of partition {partition} up to offset {last_offset} are not in it any more")


def _foreign(table: TopicTable, what: str) -> TierProblem:
    return TierProblem(TierFailure.UNUSABLE, f"the table at {table.uri} is not as it was left: {what}: {PUT_BACK}")


def _as_written(table: TopicTable, file: TableFile) -> NamedSegment | None:
    """The facts of a file that is as its leader wrote it; None for another one."""
    segment_id = posixpath.basename(file.path).removesuffix(".parquet")
    if (size := table.store.size(file.path)) != file.size:
        raise _foreign(
            table, f"{file.path} has {size} bytes and not {file.size}" if size is not None else f"{file.path} is gone"
        )
    named = _auxiliary(table, segment_id)
    if named is not None and (named.segment.file, named.segment.size) == (file.path, file.size):
        return named
    with table.store.open(file.path) as source:
        footer = pq.read_metadata(source).metadata or {}
    facts = footer.get(SEGMENT_KEY.encode())
    named = None if facts is None else from_json(facts, size=file.size, crc=0, file=file.path)
    if named is None or file_name(named.partition, named.segment.segment_id) != file.path:
        return None
    return from_json(facts or b"", size=file.size, crc=table.store.checksum(file.path), file=file.path)


def _auxiliary(table: TopicTable, segment_id: str) -> NamedSegment | None:
    data = table.store.read(auxiliary_name(segment_id))
    unpacked = None if data is None else unpack_auxiliary(data)
    return None if unpacked is None else unpacked[0]


def _from_rows(
    table: TopicTable, lineage: Lineage, file: TableFile, files: list[TableFile], last_offset: int
) -> RemoteSegment | None:
    rows = _rows(table, lineage, file)
    ends = rows.filter(pc.equal(rows["offset"], last_offset))
    if not ends.num_rows:
        return None
    segment_id = ends["segment_id"][0].as_py()
    known = _auxiliary(table, segment_id)
    if known is not None and known.is_shown_by(lineage) and known.segment.end_offset - 1 == last_offset:
        # As it was written: a check compares it with these facts, and asks the rows where the file is gone.
        return known.segment
    # Rows of one copy may be in several files.
    parts = [rows, *(_rows(table, lineage, other) for other in files if other is not file)]
    rows = pa.concat_tables(parts).filter(pc.equal(pc.field("segment_id"), segment_id)).sort_by("offset")
    epochs: list[tuple[Epoch, Offset]] = []
    for epoch, offset in zip(rows["leader_epoch"].to_pylist(), rows["offset"].to_pylist(), strict=True):
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((Epoch(epoch), Offset(offset)))
    return RemoteSegment(
        segment_id=segment_id,
        base_offset=Offset(rows["offset"][0].as_py()),
        end_offset=Offset(last_offset + 1),
        leader_epoch=epochs[-1][0] if known is None else known.segment.leader_epoch,
        epochs=tuple(epochs),
        timestamp_ms_max=max(pc.max(rows["timestamp"].cast(pa.int64())).as_py() // 1000, -1),
        log_bytes=0 if known is None else known.segment.log_bytes,
        size=file.size,
        crc=table.store.checksum(file.path),
        file=file.path,
    )


def _rows(table: TopicTable, lineage: Lineage, file: TableFile) -> Arrow:
    with table.store.open(file.path) as source:
        # Other writers have other types of text.
        rows = pq.ParquetFile(source).read(columns=_SCHEMA.names).select(_SCHEMA.names).cast(_SCHEMA)
    return rows.filter(pc.less_equal(rows["incarnation"], lineage.incarnation))
