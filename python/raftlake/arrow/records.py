"""Record batches to Arrow and back, in bulk: what the Spark connector reads and writes.

Owns nothing itself; needs pyarrow, which a node does not load, and uses numba where it is installed. Two ways lead to the
same rows and bytes: plain Python for small inputs, compiled loops (`kernels`) once a process has moved many rows.
"""

from __future__ import annotations

from raftlake.arrow.decode import DECODED_BYTES_MAX, HEADERS_TYPE, decode_to_arrow, record_schema
from raftlake.arrow.encode import BATCH_BYTES_MAX, encode_from_arrow
from raftlake.arrow.loading import LOADER, PLAIN_ROWS_MAX, KernelLoader

__all__ = [
    "BATCH_BYTES_MAX",
    "DECODED_BYTES_MAX",
    "HEADERS_TYPE",
    "LOADER",
    "PLAIN_ROWS_MAX",
    "KernelLoader",
    "decode_to_arrow",
    "encode_from_arrow",
    "record_schema",
]
