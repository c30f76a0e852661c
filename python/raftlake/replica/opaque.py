"""A quorum whose log is another program's: what may be appended to it through this node, and how its absence of keys is said.

Kafka's own Raft reads every data record of its log back and ends its process at one that it would not have written itself:
with a key, with a header, without a value, or with another time than its batch (KafkaRaftClient's RecordsIterator). Such a
record could never leave the log again, so it never enters it. Knows no meaning of any value.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.config import NodeConfig
from raftlake.wire.batches import BatchHeader, decode_records
from raftlake.wire.primitives import BytesLike


def require_raft_records(batches: BytesLike, headers: Sequence[BatchHeader]) -> None:
    """RequestRejected names the first record that Kafka's Raft would not read. The batches are intact (`validate`)."""
    for header in headers:
        batch = memoryview(batches)[header.position : header.end_position]
        for record in decode_records(batch):
            if problem := _problem(record.key, record.value, record.headers, record.timestamp_ms - header.base_timestamp_ms):
                raise RequestRejected(
                    ErrorCode.INVALID_RECORD,
                    f"record {record.offset - header.base_offset} of a batch has {problem}: Kafka's Raft nodes of this quorum "
                    "would stop at it; send values alone, one time for each batch",
                )


def _problem(key: bytes | None, value: bytes | None, headers: Sequence[object], timestamp_delta_ms: int) -> str | None:
    if key is not None:
        return "a key"
    if not value:
        return "no value"
    if headers:
        return "headers"
    return "a time of its own" if timestamp_delta_ms else None


def no_keys(config: NodeConfig) -> str:
    """Why there is no key-value space here."""
    return f"this node's quorum keeps the log of {config.quorum_group}, which has no key-value space and no other topics"
