"""Record batches as a consumer is shown them: the control batches of Raft are empty, at the same offsets.

Consumers of Kafka know two kinds of control records, the markers that end a transaction, and some hand any other kind to the
application or stop. So a control batch of Raft is shown as compaction leaves a batch behind that has lost all its records
(`DefaultRecordBatch.writeEmptyHeader` of Kafka): a header that keeps its offsets, and no record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from raftlake.errors import CorruptBatch
from raftlake.wire.batch_header import (
    CRC_START,
    HEADER_BYTES,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iterate_headers,
)
from raftlake.wire.batch_records import decode_batch
from raftlake.wire.control import ControlType
from raftlake.wire.primitives import BytesLike

_KEY = struct.Struct(">hh")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
#: Attributes, last offset delta, base timestamp; and the number of records.
_FROM_ATTRIBUTES = struct.Struct(">hiq")
_RECORD_COUNT = struct.Struct(">i")

_LENGTH_AT = 8
_CRC_AT = 17
_RECORD_COUNT_AT = 57
_NO_TIMESTAMP = -1


def without_raft_records(data: bytes, control: Sequence[BatchHeader]) -> bytes:
    """`data` with each control batch of Raft among `control` emptied. `control` are the headers of all control batches in
    `data`, in their order. Other bytes stay, and so do markers of transactions. Without such a batch it is `data` itself.

    Raises nothing: a control batch that cannot be read stays as it is.
    """
    of_raft = [header for header in control if _is_of_raft(data, header)]
    if not of_raft:
        return data
    parts: list[BytesLike] = []
    view, position = memoryview(data), 0
    for header in of_raft:
        parts += (view[position : header.position], _emptied(view, header))
        position = header.end_position
    parts.append(view[position:])
    return b"".join(parts)


def end_of_empty(data: BytesLike) -> int | None:
    """The exclusive end offset of `data` where none of its batches holds a record; None where one does, or there is no
    batch."""
    end = None
    for header in iterate_headers(data):
        if header.record_count > 0:
            return None
        end = header.end_offset
    return end


def _is_of_raft(data: bytes, header: BatchHeader) -> bool:
    """The first record says what kind of control batch it is: all records of one are Raft's, or none is."""
    try:
        records = decode_batch(data, header)
        type_: int = _KEY.unpack_from((records[0].key or b"") if records else b"")[1]
    except (CorruptBatch, struct.error):
        return False
    return ControlType.LEADER_CHANGE <= type_ <= ControlType.KRAFT_VOTERS


def _emptied(view: memoryview, header: BatchHeader) -> bytearray:
    """The header alone: neither compressed nor a control batch any more, without a record and without a base timestamp."""
    batch = bytearray(view[header.position : header.position + HEADER_BYTES])
    attributes = header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT)
    _LENGTH.pack_into(batch, _LENGTH_AT, HEADER_BYTES - PREFIX_BYTES)
    _FROM_ATTRIBUTES.pack_into(batch, CRC_START, attributes, header.last_offset_delta, _NO_TIMESTAMP)
    _RECORD_COUNT.pack_into(batch, _RECORD_COUNT_AT, 0)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return batch
