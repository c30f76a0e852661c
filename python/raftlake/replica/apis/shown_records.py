"""What a consumer's Fetch is given of one partition: batches of the remote tier below the local log, else of the log.

Control batches of Raft are empty in it (`wire.shown`). A consumer that goes on behind its last record stays before batches
without records for ever. So such batches never come alone where records lie behind them: the next batches come with them, also
over the end of a segment and from the table into the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.errors import DamagedData, ErrorCode, TooManyFiles
from raftlake.ports.tier import TierError
from raftlake.raft.types import Offset
from raftlake.replica.partition.partition import Partition
from raftlake.replica.services import Services
from raftlake.wire.shown import end_of_empty

#: Reads for one partition of an answer: each gives at least one batch.
READS_MAX = 16


@dataclass(slots=True)
class ShownRecords:
    """Whole batches. With an error there are none. `missing` is the offset whose piece of the remote tier has to be asked for,
    -1 where none has."""

    data: bytes = b""
    error: ErrorCode = ErrorCode.NONE
    missing: int = -1


def read_shown(node: Services, partition: Partition, offset: int, size_max: int) -> ShownRecords:
    """Batches from the one that holds `offset` on, below the high watermark: about `size_max` bytes, and one batch at least."""
    parts: list[bytes] = []
    for _ in range(READS_MAX):
        found = _read(node, partition, offset, size_max)
        if found.error is not ErrorCode.NONE:
            return found
        parts.append(found.data)
        end = end_of_empty(found.data)
        if end is None or end >= partition.high_watermark:
            break
        offset, size_max = end, max(1, size_max - len(found.data))
    return ShownRecords(parts[0] if len(parts) == 1 else b"".join(parts), missing=found.missing)


def _read(node: Services, partition: Partition, offset: int, size_max: int) -> ShownRecords:
    if offset < partition.log.start_offset:
        found = node.remote_reads.find(partition, offset, size_max)
        if isinstance(found, TierError):
            return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
        return ShownRecords(missing=offset) if found is None else ShownRecords(found)
    try:
        return ShownRecords(partition.read_shown(Offset(offset), partition.high_watermark, size_max))
    except DamagedData as damage:
        node.findings.found(partition.group, damage)
    except TooManyFiles as too_many:
        node.findings.on_too_many(too_many)
    return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
