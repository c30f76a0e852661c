"""Whether a Produce request's records can be read, looked at so that the node is kept from nothing else by it.

Owns what one request may cost. A few kilobytes can decompress to gigabytes: the batches of a request may together decompress to
DECOMPRESSED_TIMES_MAX times its size, DECOMPRESSED_BYTES_MIN in any case and DECOMPRESSED_BYTES_MAX at most. Honest zeros fit:
most producers bound a batch by what it holds uncompressed, and Java's splits one that is refused as MESSAGE_TOO_LARGE. Blocks
that hold little count as more (`wire.compression`). Each batch costs the leader and every follower some steps, however small it
is: beside one for each partition, which is all that Kafka takes, a request may hold EXTRA_BATCHES_MAX.

What is small is checked at once, headers and checksums too; and what the requests of one turn decompress has an end together,
for a thousand small ones fit into one read. From the first partition on that is not, a request goes aside (`ports.Aside`), and
so does what the same connection sends for the same partitions before it is done, so that its appends keep their order. How
long it waits there is for `check_line`.
What goes into another program's log is decoded record by record (`replica.opaque`), always aside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected
from raftlake.ports.driver import Aside
from raftlake.ports.tier import TIME_MS_MAX
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.aside.check_line import Asker, Checked, CheckLine, Done
from raftlake.replica.engine import Engine
from raftlake.replica.opaque import require_raft_records
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.producer_state import NO_PRODUCER
from raftlake.wire.batch_header import CODEC_MASK, TooManyBatches, UnreadableBatch
from raftlake.wire.batches import HEADER_BYTES, BatchHeader, parse_header, validate
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX, PayloadTooLarge, decompress_counting
from raftlake.wire.primitives import BytesLike
from raftlake.wire.record_check import require_keys, require_records

DECOMPRESSED_TIMES_MAX = 8
DECOMPRESSED_BYTES_MIN = 16 << 20
EXTRA_BATCHES_MAX = 1_000
#: What a request may hold, uncompressed, to be checked at once: 150,000 of the smallest records, or some 20 ms.
INLINE_BYTES = 1 << 20
#: The same for a topic that takes no record without a key: each record is looked at twice.
KEYED_INLINE_BYTES = 1 << 18
#: A compressed byte may take as long as so many others.
PACKED_TIMES = 4

Records = bytearray | memoryview


class RequestBudget:
    """What is left to one request. Used by one thread at a time: aside once it was aside."""

    __slots__ = ("_extra_batches_left", "_inline_left", "_left", "_limit", "is_aside")

    def __init__(self, request_bytes: int) -> None:
        self._limit = min(DECOMPRESSED_BYTES_MAX, max(DECOMPRESSED_BYTES_MIN, DECOMPRESSED_TIMES_MAX * request_bytes))
        self._left = self._limit
        self._extra_batches_left = EXTRA_BATCHES_MAX
        self._inline_left = INLINE_BYTES
        self.is_aside = False

    def check(self, records: Records, inline: Allowance | None, *, needs_keys: bool = False) -> list[BatchHeader] | None:
        """The headers of the batches of one partition. None where that would take too long `inline`, at once: nothing but the
        allowance has changed then. Raises RequestRejected."""
        if inline is not None and len(records) > self._inline_left:
            return None
        before = self._left, self._inline_left
        headers = self._headers(records)
        for header in headers:
            payload = memoryview(records)[header.position + HEADER_BYTES : header.end_position]
            is_packed = header.attributes & CODEC_MASK
            content = self._unpacked(header, payload, inline) if is_packed else self._plain(payload, inline)
            if content is None or (needs_keys and inline is not None and len(content) > KEYED_INLINE_BYTES):
                self._left, self._inline_left = before
                return None
            require_records(content, header.record_count)
            if needs_keys:
                require_keys(content, header.record_count)
        self._extra_batches_left -= len(headers) - 1
        return headers

    def _headers(self, records: Records) -> list[BatchHeader]:
        try:
            headers = validate(records, count_max=1 + self._extra_batches_left)
        except TooManyBatches as many:
            raise RequestRejected(
                ErrorCode.INVALID_RECORD,
                f"the request holds more than {EXTRA_BATCHES_MAX} batches beside one for each partition: put more records into "
                "a batch, or fewer batches into a request",
            ) from many
        except UnreadableBatch as unreadable:
            raise RequestRejected(ErrorCode.INVALID_RECORD, str(unreadable)) from unreadable
        except CorruptBatch as corrupt:
            # After this code clients send the batch again.
            raise RequestRejected(ErrorCode.CORRUPT_MESSAGE, str(corrupt)) from corrupt
        for header in headers:
            if header.producer_id != NO_PRODUCER or header.attributes:
                _require_clients(header)
        if len(headers) > 1 and any(header.producer_id != NO_PRODUCER for header in headers):
            raise RequestRejected(ErrorCode.INVALID_RECORD, "an idempotent producer sends one batch per partition and request")
        return headers

    def _plain(self, payload: memoryview, inline: Allowance | None) -> memoryview | None:
        if inline is not None and len(payload) > self._inline_left:
            return None
        self._inline_left -= len(payload)
        return payload

    def _unpacked(self, header: BatchHeader, payload: memoryview, inline: Allowance | None) -> BytesLike | None:
        """What a compressed batch holds; None where that would take too long."""
        if self._left == 0:
            raise self._too_large()
        allowed = self._left
        if inline is not None:
            allowed = min(self._left, self._inline_left, inline.left)
            if PACKED_TIMES * len(payload) > allowed:
                return None
        try:
            content, cost = decompress_counting(header.compression, payload, allowed, is_new=True)
        except PayloadTooLarge as error:
            if inline is not None:
                inline.left -= allowed
            if allowed < self._left:
                return None
            # Whatever else the request holds is not worth a look.
            self._left = 0
            raise self._too_large() from error
        except CorruptBatch as corrupt:
            # The CRC is right: the client compressed it so, and sending it again would change nothing.
            raise RequestRejected(ErrorCode.INVALID_RECORD, str(corrupt)) from corrupt
        except MemoryError as error:
            # After this code clients try again, and an idempotent producer goes on.
            raise RequestRejected(
                ErrorCode.NOT_ENOUGH_REPLICAS, "this node has no memory to check the records now; nothing was appended"
            ) from error
        if inline is not None:
            inline.left -= cost
        self._inline_left -= cost
        self._left = max(0, self._left - cost)
        return content

    def _too_large(self) -> RequestRejected:
        return RequestRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batches of this request decompress to more than {self._limit} bytes, which is what a request of its size may "
            "hold: send smaller batches, or fewer at a time",
        )


def _require_clients(header: BatchHeader) -> None:
    """RequestRejected for what only nodes write, or what tells less of its producer than it has to."""
    if header.is_control:
        raise RequestRejected(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional and header.producer_id == NO_PRODUCER:
        raise RequestRejected(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if header.producer_id != NO_PRODUCER and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise RequestRejected(ErrorCode.INVALID_RECORD, "an idempotent batch needs a producer epoch and a first sequence")


def first_of_idempotent(records: Records) -> BatchHeader | None:
    """The header of what was refused before it was looked at; None where it is no batch of an idempotent producer. The CRC is
    checked, since a damaged header may name any producer and any sequence number."""
    try:
        if parse_header(records).producer_id == NO_PRODUCER:
            return None
        (header,) = validate(records, count_max=1)
        _require_clients(header)
    except (CorruptBatch, RequestRejected):
        return None
    return header


def _require_times(header: BatchHeader) -> None:
    """RequestRejected for a time that no table of the tier can hold: the partition's copies would end there for ever."""
    for time_ms in (header.base_timestamp_ms, header.timestamp_ms_max):
        if not -TIME_MS_MAX <= time_ms <= TIME_MS_MAX:
            raise RequestRejected(
                ErrorCode.INVALID_TIMESTAMP,
                f"a record's timestamp is {time_ms} ms: with a remote tier it may be {TIME_MS_MAX} at most, or as far below 0. "
                "Kafka's timestamps are milliseconds since 1970",
            )


class RecordChecks:
    """`aside` takes what is large. `is_tiered`: records are copied to tables, which do not hold every time."""

    def __init__(self, engine: Engine, allowance: Allowance, aside: Aside, *, is_tiered: bool = False) -> None:
        self._is_opaque = engine.config.is_opaque
        self._is_tiered = is_tiered
        self._allowance = allowance
        self.line = CheckLine(engine, aside)

    def check(self, partition: Partition, asker: Asker, budget: RequestBudget, records: Records, done: Done) -> None:
        """Call `done` now or later; for one partition and connection in the order of the calls."""
        needs_keys = partition.is_compacted
        if not (budget.is_aside or self._is_opaque or self.line.is_under_way(asker, partition.group)):
            try:
                headers = self._look(budget, records, self._allowance, needs_keys)
            except RequestRejected as rejected:
                done(rejected)
                return
            if headers is not None:
                done(headers)
                return
        budget.is_aside = True
        look = partial(self._look, budget, records, None, needs_keys)
        self.line.add(asker, partition.group, len(records), partial(_attempt, look), done)

    def _look(
        self, budget: RequestBudget, records: Records, inline: Allowance | None, needs_keys: bool
    ) -> list[BatchHeader] | None:
        headers = budget.check(records, inline, needs_keys=needs_keys)
        if headers is not None and self._is_tiered:
            for header in headers:
                _require_times(header)
        if headers is not None and self._is_opaque:
            require_raft_records(records, headers)
        return headers


def _attempt(look: Callable[..., list[BatchHeader] | None]) -> Checked:
    try:
        headers = look()
        assert headers is not None
    except RequestRejected as rejected:
        # Not the one that was raised: its traceback would keep what was decompressed until the next full collection.
        return RequestRejected(rejected.code, rejected.message)
    return headers
