"""Executor: one range of offsets as Arrow record batches, from the log or from the topic's Delta table.

Bytes are fetched in large pieces, the next piece while the last one is decoded, and many record batches of the log become one
Arrow batch. The client leaves out the batches of aborted transactions. The invariant: a range is yielded whole, or the task
fails; only with `failOnDataLoss` false may its beginning be missing. Another node is asked before a task fails, and the other
source: what was trimmed from the log since the plan is in the table, and the nodes serve what this machine cannot read of a
table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_raftlake.data_loss import report_data_loss
from pyspark_raftlake.errors import IncompleteRange, LostRows
from pyspark_raftlake.patience import is_outage
from raftlake.arrow.records import DECODED_BYTES_MAX, decode_to_arrow
from raftlake.client.errors import OffsetOutOfRange
from raftlake.client.types import IsolationLevel
from raftlake.errors import CorruptBatch, ErrorCode, RaftlakeError, RequestRejected
from raftlake.wire.batch_header import iterate_headers, require_crc

if TYPE_CHECKING:
    from pyspark_raftlake.planning import RangePartition
    from pyspark_raftlake.table_reader import TableReader
    from raftlake.client.types import FetchedBytes

_log = logging.getLogger(__name__)

#: One fetch. With records of 100 bytes this is an Arrow batch of about 60,000 rows.
FETCH_BYTES_MAX = 8 << 20
FETCH_BYTES_MIN = 64 << 10
#: Guess of the first fetch; later ones know better.
RECORD_BYTES_GUESS = 1 << 10
#: How long a node may hold a fetch that it has nothing for.
WAIT_MS = 500
#: The client says so only after it has asked the nodes anew.
TOPIC_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
#: A node has the offset, on a disk or in a table that it cannot read.
UNREADABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
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


class _Source(Enum):
    LOG = "the log"
    TABLE = "the table"


class _NotHere(Exception):
    """A source does not have an offset. It begins at `start`; None: it does not tell."""

    def __init__(self, cause: Exception, start: int | None = None, *, is_lost: bool = True) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.start = start
        #: Whether the offset is not there any more, as far as the source tells. Else the source cannot be read.
        self.is_lost = is_lost


class _RangeReader:
    def __init__(self, client: FetchClient, task: RangePartition) -> None:
        self._client = client
        self._task = task
        self._range = task.range
        self._node_id = task.node_id
        #: Nodes that sent damage, and nodes in whose place others sent it.
        self._left: set[int | None] = set()
        self._bytes_per_offset = float(RECORD_BYTES_GUESS)
        sources = {_Source.LOG: task.reads_log, _Source.TABLE: task.table is not None}
        self._sources = [source for source, is_there in sources.items() if is_there]
        if task.table is not None and task.table.files is not None:
            self._sources.reverse()
        self._table: TableReader | None = None

    def read(self) -> Iterator[Any]:
        position, end = self._range.start, self._range.end
        source = self._sources[0]
        refusals: dict[_Source, _NotHere] = {}
        while position < end:
            rows = self._of_log(position) if source is _Source.LOG else self._of_table(position)
            is_amid = False
            try:
                for behind, batches in rows:
                    is_amid = True
                    yield from batches
                    position, is_amid = behind, False
                    refusals.clear()
                # Only a table ends before the range does.
                refusals[source] = _NotHere(IncompleteRange(f"{self._range}: the table ends at {position}"))
            except _NotHere as refusal:
                refusals[source] = refusal
            except (IncompleteRange, CorruptBatch) as failure:
                # Behind the first row of a piece the other source would give rows twice.
                if is_amid:
                    raise
                refusals[source] = _NotHere(failure, is_lost=False)
            if position >= end:
                return
            others = [other for other in self._sources if other not in refusals]
            if others:
                _log.warning("%s: %s; reading from %s", self._range, refusals[source], others[0].value)
                source = others[0]
                continue
            position, source = self._after_refusals(position, refusals)
            refusals.clear()

    def _after_refusals(self, position: int, refusals: Mapping[_Source, _NotHere]) -> tuple[int, _Source]:
        """Where to go on, and from which source, when no source has an offset: that is lost data, unless a source cannot be
        read."""
        for refusal in refusals.values():
            if not refusal.is_lost:
                raise refusal.cause
        begins = [(refusal.start, source) for source, refusal in refusals.items() if refusal.start is not None]
        resume, source = min(begins, key=lambda begin: begin[0], default=(self._range.end, self._sources[0]))
        told = refusals.get(_Source.LOG) or refusals[_Source.TABLE]
        self._report_lost(position, min(self._range.end, resume), told.cause)
        return min(self._range.end, resume), source

    def _of_table(self, position: int) -> Iterator[tuple[int, list[Any]]]:
        """Rows of the table, each batch with the offset behind it. _NotHere where the table does not show the offset, or cannot
        be read."""
        task = self._task
        assert task.table is not None
        try:
            # Imported late: most tasks need no table.
            if self._table is None:
                from pyspark_raftlake.table_reader import TableReader

                self._table = TableReader(
                    task.table, self._range, include_headers=task.include_headers, reads_committed=task.reads_committed
                )
            for behind, batch in self._table.rows(position, self._range.end):
                yield behind, [] if batch is None else [batch]
        except LostRows as lost:
            raise _NotHere(lost, lost.start) from lost
        except (RaftlakeError, ImportError) as problem:
            raise _NotHere(problem, is_lost=False) from problem

    def _of_log(self, position: int) -> Iterator[tuple[int, Iterable[Any]]]:
        """Records of the log, each piece with the offset behind it. _NotHere where the log begins later."""
        end = self._range.end
        if self._task.topic_id is None:
            # One that has the name by now is another topic.
            gone = RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self._range.topic} was gone at the plan")
            self._report_lost(position, end, gone)
            yield end, []
            return
        progressed_at = time.monotonic()
        fetching: Future[FetchedBytes] | None = None
        while position < end:
            if fetching is None:
                fetching = self._fetch(position)
            try:
                fetched = fetching.result()
            except RaftlakeError as error:
                fetching = None
                if is_outage(error):
                    self._require_patience(position, progressed_at, error)
                    continue
                if not isinstance(error, RequestRejected):
                    raise
                if error.code == ErrorCode.OFFSET_NOT_AVAILABLE or self._is_proven_there(position, error):
                    # No node could answer for it yet, as after an election. The offset is there, or it will be.
                    self._require_patience(position, progressed_at)
                    continue
                if error.code in UNREADABLE:
                    raise _NotHere(error, is_lost=False) from error
                self._refuse(position, error)
                yield end, []
                return
            asked = self._node_id
            if fetched.node_id != asked:
                # The chosen node is down or behind: stay with the leader.
                self._node_id = None
            next_position = min(fetched.next_offset, end)
            if next_position <= position:
                if not self._reaches_beyond(position):
                    self._report_lost(position, end, IncompleteRange(f"the log ends at or before {position}"))
                    yield end, []
                    return
                self._require_patience(position, progressed_at)
                fetching = None
                continue
            self._learn_size(fetched, position)
            fetching = self._fetch(next_position) if next_position < end else None
            try:
                batches = self._decode(fetched, position)
            except CorruptBatch as damage:
                self._leave_damaged(fetched.node_id, asked, damage)
                fetching = None
                continue
            yield next_position, batches
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
            isolation=IsolationLevel.READ_COMMITTED if self._task.reads_committed else IsolationLevel.READ_UNCOMMITTED,
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
        return self._reaches_beyond(position)

    def _reaches_beyond(self, position: int) -> bool:
        """Whether the log reaches beyond the position, as its leader proves. While nobody can say, it may."""
        try:
            ends = self._client.read_offset(self._range.topic, [self._range.partition])
        except RaftlakeError as refused:
            if isinstance(refused, RequestRejected) and refused.code in TOPIC_GONE:
                return False
            if is_outage(refused):
                return True
            raise
        return ends[self._range.partition] > position

    def _refuse(self, position: int, error: RequestRejected) -> None:
        """_NotHere where the log begins later. Where it ends before, the rest of the range is lost data. Raises whatever is
        something else."""
        if isinstance(error, OffsetOutOfRange) and error.log_start_offset > position:
            raise _NotHere(error, error.log_start_offset) from error
        if not isinstance(error, OffsetOutOfRange) and error.code not in TOPIC_GONE:
            raise error
        # The topic was deleted, and perhaps another one has its name.
        self._report_lost(position, self._range.end, error)

    def _leave_damaged(self, node_id: int, asked: int | None, damage: CorruptBatch) -> None:
        """A node that sends damaged batches has a bad disk; the other replicas hold the same offsets. A node that was asked and
        did not answer is left too: the next answer in its place would be as damaged."""
        self._left |= {node_id, asked}
        sound = [node for node in self._task.replicas if node not in self._left]
        if not sound:
            raise damage
        _log.warning("%s: node %d sent damage (%s); reading from node %d", self._range, node_id, damage, sound[0])
        self._node_id = sound[0]

    def _require_patience(self, position: int, progressed_at: float, cause: RaftlakeError | None = None) -> None:
        """Another try, unless there was no progress for as long as the query may wait."""
        self._node_id = None
        stalled_ms = (time.monotonic() - progressed_at) * 1000
        if stalled_ms > self._task.quorum.patience.total_ms:
            told = "" if cause is None else f": {cause}"
            raise IncompleteRange(f"{self._range}: no node had offset {position} for {stalled_ms:.0f} ms{told}")

    def _report_lost(self, position: int, resume: int, cause: Exception) -> None:
        partition = f"{self._range.topic}-{self._range.partition}"
        message = f"Cannot fetch records in [{position}, {resume}) of {partition} ({cause})"
        report_data_loss(message, fail=self._task.fail_on_data_loss)
