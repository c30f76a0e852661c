"""Record batches of format v2, all in one place for their users: headers, records, control records, compression.

Owns nothing itself: `batch_header` is what the append path needs, `batch_records` builds and reads records, `control` knows
the records of Raft and the markers of transactions, `compression` the codecs. `records` (Arrow, in bulk) is imported by those
who have Arrow.
"""

from __future__ import annotations

from raftlake.wire.batch_header import (
    HEADER_BYTES,
    BatchHeader,
    end_of_batches,
    iterate_headers,
    parse_header,
    stamp,
    stamp_time,
    validate,
)
from raftlake.wire.batch_records import Record, assemble_batch, build_batch, decode_batch, decode_records
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX, Compression
from raftlake.wire.control import (
    ControlType,
    EndMarker,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    OtherControl,
    VoterEntry,
    end_marker_batch,
    kraft_version_record,
    kraft_voters_record,
    leader_change_batch,
    parse_control_record,
    parse_end_marker,
    read_end_marker,
    voters_batch,
    voters_set_by,
)

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "HEADER_BYTES",
    "BatchHeader",
    "Compression",
    "ControlType",
    "EndMarker",
    "KRaftVersion",
    "KRaftVoters",
    "LeaderChange",
    "OtherControl",
    "Record",
    "VoterEntry",
    "assemble_batch",
    "build_batch",
    "decode_batch",
    "decode_records",
    "end_marker_batch",
    "end_of_batches",
    "iterate_headers",
    "kraft_version_record",
    "kraft_voters_record",
    "leader_change_batch",
    "parse_control_record",
    "parse_end_marker",
    "parse_header",
    "read_end_marker",
    "stamp",
    "stamp_time",
    "validate",
    "voters_batch",
    "voters_set_by",
]
