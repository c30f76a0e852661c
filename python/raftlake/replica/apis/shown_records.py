"""What a consumer's Fetch is given of one partition: batches of the remote tier below the local log, else of the log.

Control batches of Raft are empty in it (`wire.shown`). A consumer that goes on behind its last record stays before batches
without records for ever. So such batches never come alone where records lie behind them: the next batches come with them, also
over the end of a segment and from the table into the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from raftlake.errors import DamagedData, ErrorCode, TooManyFiles
from raftlake.ports.tier import TierError
from raftlake.raft.types import Offset
from raftlake.replica.partition.partition import Partition
from raftlake.replica.services import Services
from raftlake.replica.tiering.remote_aborted import NotKnown
from raftlake.wire.batches import end_of_batches, parse_header
from raftlake.wire.fetch_response import AbortedTransaction
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
    #: Of those who read what is committed: the aborted transactions that have records among these.
    aborted: list[AbortedTransaction] = field(default_factory=list)


def read_shown(
    node: Services, partition: Partition, offset: int, size_max: int, stable_end: Offset | None = None
) -> ShownRecords:
    """Batches from the one that holds `offset` on, below the high watermark: about `size_max` bytes, and one batch at least.

    `stable_end`: of those who read what is committed. They get nothing at or above it, and what is aborted of what they get.
    """
    limit = partition.high_watermark if stable_end is None else stable_end
    parts: list[bytes] = []
    aborted: dict[AbortedTransaction, None] = {}
    for _ in range(READS_MAX):
        found = _read(node, partition, offset, size_max, limit)
        if stable_end is not None and found.data:
            found = _with_aborted(node, partition, offset, found)
        if found.error is not ErrorCode.NONE:
            return found
        parts.append(found.data)
        aborted |= dict.fromkeys(found.aborted)
        end = end_of_empty(found.data)
        if end is None or end >= limit:
            break
        offset, size_max = end, max(1, size_max - len(found.data))
    return ShownRecords(parts[0] if len(parts) == 1 else b"".join(parts), missing=found.missing, aborted=list(aborted))


def _with_aborted(node: Services, partition: Partition, offset: int, found: ShownRecords) -> ShownRecords:
    """What was read of one place, once it is known which of its transactions are aborted."""
    if offset >= partition.log.start_offset:
        look = partial(partition.aborted, Offset(offset), Offset(end_of_batches(found.data)))
        known = node.findings.guarded(partition.group, look)
        if known is None:
            return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
        found.aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in known]
        return found
    # The marker may stand in the local log, whose files may fail.
    find = partial(node.remote_aborted.find, partition, parse_header(found.data).base_offset, end_of_batches(found.data))
    aborted = node.findings.guarded(partition.group, find)
    if aborted is None or isinstance(aborted, TierError):
        return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
    if isinstance(aborted, NotKnown):
        return ShownRecords(missing=aborted.missing)
    found.aborted = aborted
    return found


def _read(node: Services, partition: Partition, offset: int, size_max: int, limit: Offset) -> ShownRecords:
    if offset < partition.log.start_offset:
        found = node.remote_reads.find(partition, offset, size_max, limit)
        if isinstance(found, TierError):
            return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
        return ShownRecords(missing=offset) if found is None else ShownRecords(found)
    try:
        return ShownRecords(partition.read_shown(Offset(offset), limit, size_max))
    except DamagedData as damage:
        node.findings.found(partition.group, damage)
    except TooManyFiles as too_many:
        node.findings.on_too_many(too_many)
    return ShownRecords(error=ErrorCode.KAFKA_STORAGE_ERROR)
