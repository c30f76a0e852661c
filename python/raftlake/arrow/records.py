"""Record batches to Arrow and back, in bulk: what the Spark connector and the remote tier read and write.

Owns nothing itself; needs pyarrow, which a node's own process does not load, and uses numba where it is installed. Two ways
lead to the same rows and bytes: plain Python for small inputs, compiled loops (`kernels`) once a process has moved many rows.
"""

from __future__ import annotations

from raftlake.arrow.decode import DECODED_BYTES_MAX, HEADERS_TYPE, decode_to_arrow, record_schema
from raftlake.arrow.encode import BATCH_BYTES_MAX, encode_from_arrow
from raftlake.arrow.loading import LOADER, PLAIN_ROWS_MAX, KernelLoader
from raftlake.arrow.segment import (
    KIND_ABORTED,
    KIND_CONTROL,
    KIND_DATA,
    NOT_CANONICAL,
    SegmentDecoder,
    decode_segment,
    segment_schema,
)
from raftlake.arrow.segment_batches import ENCODED_COLUMNS, encode_segment

__all__ = [
    "BATCH_BYTES_MAX",
    "DECODED_BYTES_MAX",
    "ENCODED_COLUMNS",
    "HEADERS_TYPE",
    "KIND_ABORTED",
    "KIND_CONTROL",
    "KIND_DATA",
    "LOADER",
    "NOT_CANONICAL",
    "PLAIN_ROWS_MAX",
    "KernelLoader",
    "SegmentDecoder",
    "decode_segment",
    "decode_to_arrow",
    "encode_from_arrow",
    "encode_segment",
    "record_schema",
    "segment_schema",
]
