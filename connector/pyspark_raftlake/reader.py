"""Executor: one range of offsets as Arrow record batches.

Bytes are fetched in large pieces, the next piece while the last one is decoded, and many record batches of the log become one
Arrow batch. The invariant: a range is yielded whole, or the task fails; only with `failOnDataLoss` false may its beginning
be missing. Another node is asked before a task fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_raftlake.data_loss import report_data_loss
from pyspark_raftlake.errors import IncompleteRange
from raftlake.arrow.records import DECODED_BYTES_MAX, decode_to_arrow
from raftlake.client.errors import OffsetOutOfRange
from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected
from raftlake.wire.batch_header import iterate_headers, require_crc

if TYPE_CHECKING:
    from pyspark_raftlake.planning import RangePartition
    from raftlake.client.types import FetchedBytes

_log = logging.getLogger(__name__)

#: One fetch. With records of 100 bytes this is an Arrow batch of about 60,000 rows.
FETCH_BYTES_MAX = 8 << 20
FETCH_BYTES_MIN = 64 << 10
#: Guess of the first fetch; later ones know better.
RECORD_BYTES_GUESS = 1 << 10
#: How long a node may hold a fetch that it has nothing for.
WAIT_MS = 500
#: Without any progress for this long, the task fails.
STALL_MS_MAX = 60_000
#: The client says so only after it has asked the nodes anew.
TOPIC_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
#: Payload of one Arrow batch. Compressed records can hold much more than was fetched.
ARROW_BYTES_MAX = 128 << 20


class FetchClient(Protocol):
    """The part of `raftlake.client.Client` that reading needs."""

    def submit_fetch(self, topic: str, partition: int, offset: int, **arguments: Any) -> Future[FetchedBytes]: ...

    def read_offset(self, topic: str, partitions: Iterable[int]) -> dict[int, int]: ...


def read_range(client: FetchClient, task: RangePartition) -> Iterator[Any]:
    """The records of the task's range as pyarrow.RecordBatch, in order.

    Raises IncompleteRange, DataLoss, or what the client raises.
    """
    return _RangeReader(client, task).read()


class _RangeReader:
    def __init__(self, client: FetchClient, task: RangePartition) -> None:
        self._client = client
        self._task = task
        self._range = task.range
        self._node_id = task.node_id
        self._damaged: set[int] = set()
        self._bytes_per_offset = float(RECORD_BYTES_GUESS)

    def read(self) -> Iterator[Any]:
        position, end = self._range.start, self._range.end
        progressed_at = time.monotonic()
        fetching: Future[FetchedBytes] | None = None
        while position < end:
            if fetching is None:
                fetching = self._fetch(position)
            try:
                fetched = fetching.result()
            except RequestRejected as error:
                fetching = None
                if error.code == ErrorCode.OFFSET_NOT_AVAILABLE or self._is_proven_there(position, error):
                    # No node could answer for it yet, as after an election. The offset is there, or it will be.
                    self._require_patience(position, progressed_at)
                else:
                    position = self._after_refusal(position, error)
                continue
            if fetched.node_id != self._node_id:
                # The chosen node is down or behind: stay with the leader.
                self._node_id = None
            next_position = min(fetched.next_offset, end)
            if next_position <= position:
                self._require_patience(position, progressed_at)
                fetching = None
                continue
            self._learn_size(fetched, position)
            fetching = self._fetch(next_position) if next_position < end else None
            try:
                batches = self._decode(fetched, position)
            except CorruptBatch as damage:
                self._leave_damaged(fetched.node_id, damage)
                fetching = None
                continue
            yield from batches
            position, progressed_at = next_position, time.monotonic()

    def _fetch(self, position: int) -> Future[FetchedBytes]:
        left = (self._range.end - position) * self._bytes_per_offset * 1.1
        return self._client.submit_fetch(
            self._range.topic,
            self._range.partition,
            position,
            bytes_max=int(min(FETCH_BYTES_MAX, max(FETCH_BYTES_MIN, left))),
            wait_ms=WAIT_MS,
            limit_offset=self._range.end,
            replica=self._node_id,
            topic_id=self._task.topic_id,
        )

    def _learn_size(self, fetched: FetchedBytes, position: int) -> None:
        size = sum(len(buffer) for buffer in fetched.buffers)
        self._bytes_per_offset = max(1.0, size / max(1, fetched.next_offset - position))

    def _decode(self, fetched: FetchedBytes, position: int) -> Iterable[Any]:
        """One Arrow batch; one per record batch when all together would be too large."""
        try:
            return self._rows(fetched.buffers, position, ARROW_BYTES_MAX)
        except RequestRejected as error:
            if error.code != ErrorCode.MESSAGE_TOO_LARGE:
                raise
            return self._decode_one_by_one(fetched, position)

    def _decode_one_by_one(self, fetched: FetchedBytes, position: int) -> Iterator[Any]:
        """Each record batch is decoded when the rows of the one before it are used. Damage is found before the first row:
        afterwards no other node could be asked."""
        batches = [(buffer, header) for buffer in fetched.buffers for header in iterate_headers(buffer)]
        for buffer, header in batches:
            require_crc(buffer, header)
        return (
            rows
            for buffer, header in batches
            for rows in self._rows([buffer[header.position : header.end_position]], position, DECODED_BYTES_MAX)
        )

    def _rows(self, buffers: Sequence[memoryview], position: int, bytes_max: int) -> list[Any]:
        batch = decode_to_arrow(
            buffers,
            topic=self._range.topic,
            partition=self._range.partition,
            start_offset=position,
            end_offset=self._range.end,
            include_headers=self._task.include_headers,
            decoded_bytes_max=bytes_max,
        )
        return [batch] if batch.num_rows else []

    def _is_proven_there(self, position: int, error: RequestRejected) -> bool:
        """Whether the log reaches beyond the position although a node has said that it ends before: a leader that was replaced
        and does not know it yet, cut off from the others, says so of all that came later."""
        if not isinstance(error, OffsetOutOfRange) or error.log_start_offset > position:
            return False
        try:
            ends = self._client.read_offset(self._range.topic, [self._range.partition])
        except RequestRejected as refused:
            if refused.code in TOPIC_GONE:
                return False
            raise
        return ends[self._range.partition] > position

    def _after_refusal(self, position: int, error: RequestRejected) -> int:
        """Where to go on after lost data; raises whatever is not lost data."""
        end = self._range.end
        if isinstance(error, OffsetOutOfRange) and error.log_start_offset > position:
            resume = min(end, error.log_start_offset)
        elif isinstance(error, OffsetOutOfRange) or error.code in TOPIC_GONE:
            # The log ends before: the topic was deleted, and perhaps another one has its name.
            resume = end
        else:
            raise error
        partition = f"{self._range.topic}-{self._range.partition}"
        self._report(f"Cannot fetch records in [{position}, {resume}) of {partition} ({error})")
        return resume

    def _leave_damaged(self, node_id: int, damage: CorruptBatch) -> None:
        """A node that sends damaged batches has a bad disk; the other replicas hold the same offsets."""
        self._damaged.add(node_id)
        sound = [node for node in self._task.replicas if node not in self._damaged]
        if not sound:
            raise damage
        _log.warning("%s: node %d sent damage (%s); reading from node %d", self._range, node_id, damage, sound[0])
        self._node_id = sound[0]

    def _require_patience(self, position: int, progressed_at: float) -> None:
        self._node_id = None
        stalled_ms = (time.monotonic() - progressed_at) * 1000
        if stalled_ms > STALL_MS_MAX:
            raise IncompleteRange(f"{self._range}: no node had offset {position} for {stalled_ms:.0f} ms")

    def _report(self, message: str) -> None:
        report_data_loss(message, fail=self._task.fail_on_data_loss)
