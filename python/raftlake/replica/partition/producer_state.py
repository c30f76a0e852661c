"""Idempotent producers of one partition: which sequence numbers were appended last, and where.

Pure bookkeeping over batch headers. It follows from the log (every batch names its producer, epoch and first sequence) and is
kept beside it in Kafka's form, so that it survives failover, restart and retention. As in Kafka the last five batches of
a producer are kept: a retry of any of them is answered with its first offset instead of being appended again. Sequences are
noted before their batches are in the log; `freeze` tells how things stood at an offset that the log has just reached.

A row of a transactional batch also holds where the open transaction of its producer begins, and every row the coordinator's
epoch of the producer's last marker. So open transactions are saved, frozen and restored as the producers are (`transactions`).

There may be a million producers. So each is one string of bytes, the very rows that Kafka's file has, and whatever looks at all
of them does so in slices: meanwhile what is known is held as it is, and what changes is kept beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.raft.types import Offset
from raftlake.replica.partition.transactions import EndedTransaction, Transactions
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.control import EndMarker
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow

BATCHES_KEPT = 5
SEQUENCE_MODULUS = 1 << 31
NO_PRODUCER = -1
#: Unknown producers that are remembered from one request to the next.
SENT_BACK_MAX = 10_000
#: Looked at together: some 0.5 ms.
SLICE_PRODUCERS = 2_048
#: Copied together: some ms.
STIRRED_PRODUCERS = 16 * SLICE_PRODUCERS
ENDLESS = 1 << 62

#: Of a row: epoch, last sequence, last offset, records less one, and when this node last saw its producer write, in
#: milliseconds since 1970 (not what the records say, which may be any time).
_BATCH = struct.Struct(">8xhiqiq12x")
_SEEN = struct.Struct(">26xq12x")
#: Of a row: the coordinator's epoch, and the first offset of the open transaction.
_TRANSACTION = struct.Struct(">34xiq")
_TAIL = struct.Struct(">iq")
_NO_TRANSACTION = _TAIL.pack(-1, -1)
_ID = struct.Struct(">q")
#: Last sequence and last offset of a row without a batch.
_NO_BATCH = struct.pack(">iq", -1, -1)
_KEPT_BYTES = (BATCHES_KEPT - 1) * ENTRY.size


def _epoch(row: bytes) -> bytes:
    """The producer's epoch in a row. Spelled out: mypyc does not compile a slice of bytes that has a name."""
    return row[8:10]


def _has_batch(rows: bytes) -> bool:
    """Whether the rows tell of batches. One row without a batch is left of a producer whose epoch a marker has raised."""
    return rows[10:22] != _NO_BATCH


def closed_rows(rows: bytes | memoryview) -> bytes:
    """The rows, which tell of no open transaction."""
    closed = bytearray(rows)
    for start in range(0, len(closed), ENTRY.size):
        closed[start + 38 : start + 46] = _NO_TRANSACTION[4:]
    return bytes(closed)


class AppendedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    """The sequence number of a batch's last record; numbers wrap after 2^31 - 1."""
    return (base_sequence + record_count - 1) % SEQUENCE_MODULUS


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` comes behind `other`, where numbers may have wrapped between the two."""
    return 0 < (sequence - other) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2


class ProducerTally:
    """How many producer ids the partitions of a node remember together, and how many they may."""

    __slots__ = ("count", "ids_max")

    def __init__(self, ids_max: int = ENDLESS) -> None:
        self.count = 0
        self.ids_max = ids_max

    @property
    def is_full(self) -> bool:
        return self.count >= self.ids_max


class ProducerStates:
    """Per producer id: its epoch and its last batches."""

    __slots__ = (
        "_changed",
        "_count",
        "_entries",
        "_holds",
        "_refused",
        "_sent_back",
        "_tally",
        "_undo",
        "has_forgotten",
        "row_count",
        "transactions",
    )

    def __init__(self, tally: ProducerTally | None = None) -> None:
        self._tally = tally or ProducerTally()
        #: The rows of each producer, oldest first and of one epoch.
        self._entries: dict[int, bytes] = {}
        #: Goes before `_entries`, which is not changed while somebody holds it; b"" for a producer that is forgotten.
        self._changed: dict[int, bytes] = {}
        self._holds = 0
        self._count = 0
        #: The batches of all producers.
        self.row_count = 0
        #: The first sequence of each unknown producer (with its epoch) that was sent back, oldest first; see `check`.
        self._sent_back: dict[tuple[int, int], int] = {}
        #: Those of them that were refused for another reason than their sequence (`send_back`).
        self._refused: dict[tuple[int, int], None] = {}
        #: What stood in place of the rows of batches that `settle` has not heard of: (base offset, producer id, rows).
        self._undo: list[tuple[int, int, bytes]] = []
        #: Some producers wrote to the log and are not known any more.
        self.has_forgotten = False
        #: As of all batches that were recorded.
        self.transactions = Transactions()

    def __len__(self) -> int:
        return self._count

    def _rows(self, producer_id: int) -> bytes:
        """b"" for a producer that is not known."""
        found = self._changed.get(producer_id) if self._changed else None
        return self._entries.get(producer_id, b"") if found is None else found

    def _put(self, producer_id: int, rows: bytes, old: bytes) -> None:
        self.row_count += (len(rows) - len(old)) // ENTRY.size
        change = (not old) - (not rows)
        self._count += change
        self._tally.count += change
        if self._holds or self._changed:
            self._changed[producer_id] = rows
        elif rows:
            self._entries[producer_id] = rows
        else:
            del self._entries[producer_id]

    def drop(self) -> None:
        """Others stand in place of these: they count no more."""
        self._tally.count -= self._count
        self._tally = ProducerTally()

    @property
    def is_stirred(self) -> bool:
        """So much changes just now that `freeze` would take long."""
        return len(self._changed) > STIRRED_PRODUCERS

    def has_room_for(self, producer_id: int) -> bool:
        """Whether one more producer may be remembered, or this one is known."""
        return not self._tally.is_full or bool(self._rows(producer_id))

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, count: int, *, history_trimmed: bool
    ) -> AppendedBatch | None:
        """The batch that this one repeats, or None when it is the next one. Raises `RequestRejected` otherwise.

        `history_trimmed`: retention has removed the start of the log, so an unknown producer may be an old one.
        """
        rows = self._rows(producer_id)
        if not rows:
            if (not history_trimmed and not self.has_forgotten) or (producer_id, epoch) in self._refused:
                self._require_first_or_second_coming(producer_id, epoch, base_sequence)
            return None
        known_epoch, last_sequence, *_ = _BATCH.unpack_from(rows, len(rows) - ENTRY.size)
        if epoch < known_epoch:
            raise RequestRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id}: the batch has epoch {epoch}, the newest is {known_epoch}; make a new producer",
            )
        if epoch > known_epoch:
            if base_sequence != 0:
                raise RequestRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} must start epoch {epoch} at sequence 0, not {base_sequence}",
                )
            return None
        expected = (last_sequence + 1) % SEQUENCE_MODULUS
        if base_sequence != expected:
            repeated = self.find(producer_id, epoch, base_sequence, count)
            if repeated is not None:
                return repeated
            raise RequestRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {epoch}: expected sequence {expected}, got {base_sequence}",
            )
        return None

    def find(self, producer_id: int, epoch: int, base_sequence: int, count: int) -> AppendedBatch | None:
        """The batch of the last ones that has these very sequence numbers."""
        last_sequence = last_sequence_of(base_sequence, count)
        for known_epoch, known_last, last_offset, offset_delta, _ in _BATCH.iter_unpack(self._rows(producer_id)):
            if known_epoch == epoch and known_last == last_sequence and offset_delta == count - 1:
                return AppendedBatch(base_sequence, last_sequence, last_offset - offset_delta, last_offset + 1)
        return None

    def _require_first_or_second_coming(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Let an unknown producer begin at 0; or amid its sequence once it has been sent back, by an error after which all
        clients send again what it has under way, the oldest first.

        Kafka takes such a batch at once. But its predecessors may have been refused a moment ago, by this node or the last
        leader, and come again: they would be out of order. This log has lost nothing that could excuse the gap, except by
        being another than the producer believes: the topic was deleted and created again. UNKNOWN_PRODUCER_ID (KIP-360)
        would say so, but ends librdkafka where one of the batches under way had been refused before.
        """
        producer = (producer_id, epoch)
        sent_back = self._sent_back.get(producer)
        if base_sequence == 0 if sent_back is None else not is_after(base_sequence, sent_back):
            return
        if sent_back is None:
            self._note_sent_back(producer, base_sequence)
        raise RequestRejected(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"producer {producer_id} is new here and begins with sequence {base_sequence}: send again, the oldest first",
        )

    def send_back(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """A batch was refused and comes again. Of a producer that is not known here nothing behind it is taken before."""
        producer = (producer_id, epoch)
        known = self._sent_back.get(producer)
        if not self._rows(producer_id) and (known is None or is_after(known, base_sequence)):
            self._note_sent_back(producer, base_sequence)
            self._refused[producer] = None

    def _note_sent_back(self, producer: tuple[int, int], base_sequence: int) -> None:
        self._sent_back[producer] = base_sequence
        if len(self._sent_back) > SENT_BACK_MAX:
            oldest = next(iter(self._sent_back))
            del self._sent_back[oldest]
            self._refused.pop(oldest, None)

    def forget_sent_back(self) -> None:
        """This node leads no more. What it refuses until it leads again comes a second time too, and before the rest."""
        self._sent_back.clear()
        self._refused.clear()

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        count: int,
        base_offset: int,
        now_ms: int,
        transactional: bool = False,
    ) -> None:
        """Remember a batch that was appended at `base_offset`; it was checked, or was checked by the leader it came from. A
        transactional one opens a transaction where its producer has none."""
        old = self._rows(producer_id)
        last_offset = base_offset + count - 1
        last_sequence = last_sequence_of(base_sequence, count)
        coordinator_epoch = first_offset = -1
        kept = old
        if transactional or self.transactions.is_used:
            coordinator_epoch, first_offset = self._carried(producer_id, old, base_offset, transactional)
            if not _has_batch(old):
                kept = b""
        rows = ENTRY.pack(producer_id, epoch, last_sequence, last_offset, count - 1, now_ms, coordinator_epoch, first_offset)
        if _epoch(kept) == _epoch(rows):
            rows = kept[-_KEPT_BYTES:] + rows
        if self._sent_back:
            self._sent_back.pop((producer_id, epoch), None)
            self._refused.pop((producer_id, epoch), None)
        self._undo.append((base_offset, producer_id, old))
        self._put(producer_id, rows, old)

    def _carried(self, producer_id: int, old: bytes, base_offset: int, transactional: bool) -> tuple[int, int]:
        """The coordinator's epoch and the first offset of the open transaction for the next row of a producer."""
        first_offset = self.transactions.first_offset_of(producer_id)
        if first_offset is None and transactional:
            self.transactions.begin(producer_id, base_offset)
            first_offset = base_offset
        coordinator_epoch = _TRANSACTION.unpack_from(old, len(old) - ENTRY.size)[0] if old else -1
        return coordinator_epoch, -1 if first_offset is None else first_offset

    def end_transaction(self, marker: EndMarker, offset: int, now_ms: int) -> AbortedTransaction | None:
        """Remember a marker that was appended at `offset`. Returns what it says of the transaction when it has aborted one.

        A marker raises the epoch of its producer, whose batches are then forgotten, as Kafka does. It never lowers the epoch.
        """
        producer_id = marker.producer_id
        old = self._rows(producer_id)
        first_offset = self.transactions.end(producer_id, offset)
        tail = _TAIL.pack(marker.coordinator_epoch, -1)
        if old and marker.epoch <= int.from_bytes(_epoch(old), "big", signed=True):
            rows = b"".join([old[start : start + 34] + tail for start in range(0, len(old), ENTRY.size)])
            rows = rows[: len(rows) - 20] + _ID.pack(now_ms) + tail
        else:
            rows = ENTRY.pack(producer_id, marker.epoch, -1, -1, 0, now_ms, marker.coordinator_epoch, -1)
        self._undo.append((offset, producer_id, old))
        self._put(producer_id, rows, old)
        if first_offset is None or marker.commit:
            return None
        earliest_open = self.transactions.earliest_open
        return AbortedTransaction(producer_id, first_offset, offset, offset + 1 if earliest_open is None else earliest_open)

    def close_transactions(self, below: Offset) -> None:
        """The open transactions that begin below an offset are decided, and their markers are gone: compaction took them."""
        for producer_id, first_offset in self.open_transactions.items():
            if first_offset < below:
                old = self._rows(producer_id)
                self.transactions.decide(producer_id)
                self._put(producer_id, closed_rows(old), old)

    def open_transaction(self, producer_id: int) -> Offset | None:
        """Where the open transaction of a producer begins, None where it has none. Batches count that are about to be in the
        log."""
        first_offset = self.transactions.first_offset_of(producer_id)
        return None if first_offset is None else Offset(first_offset)

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction by producer id, the earliest first."""
        return self.transactions.open

    def last_row(self, producer_id: int) -> ProducerRow | None:
        """The newest that is known of a producer; None where it is not known. After a marker that raised its epoch the last
        sequence and the last offset are -1."""
        rows = self._rows(producer_id)
        return ProducerRow(*ENTRY.unpack_from(rows, len(rows) - ENTRY.size)) if rows else None

    def last_rows(self) -> Iterator[list[ProducerRow]]:
        """The newest that is known of each producer, a slice at a time. Meanwhile others may write; close it when done."""
        self._holds += 1
        try:
            known = iter(list(self._entries) + [each for each in self._changed if each not in self._entries])
            while found := list(islice(known, SLICE_PRODUCERS)):
                rows = [self.last_row(producer_id) for producer_id in found]
                yield [row for row in rows if row is not None]
        finally:
            self.release()
        for _ in self.merging():
            pass

    def settle(self, end_offset: int) -> None:
        """The log reaches to `end_offset`, and no question about an earlier end will come."""
        if self._undo and self._undo[-1][0] < end_offset:
            self._undo.clear()
        elif self._undo:
            self._undo = [each for each in self._undo if each[0] >= end_offset]

    # --- all of them ---

    def freeze(self, offset: int) -> FrozenProducers:
        """What the records below `offset` say, which is not below the last `settle`; to be released."""
        changed = dict(self._changed)
        row_count = self.row_count
        for base_offset, producer_id, rows in reversed(self._undo):
            if base_offset >= offset:
                known = changed.get(producer_id)
                row_count += (len(rows) - len(self._entries.get(producer_id, b"") if known is None else known)) // ENTRY.size
                changed[producer_id] = rows
        self._holds += 1
        return FrozenProducers(self, self._entries, changed, row_count)

    def release(self) -> None:
        """What was frozen, or held by `expiring`, is not looked at any more. `merging` is to follow."""
        self._holds -= 1

    def merging(self) -> Iterator[None]:
        """Put what has changed where it belongs, a slice at a time."""
        while self._changed and not self._holds:
            for _ in range(min(SLICE_PRODUCERS, len(self._changed))):
                producer_id, rows = self._changed.popitem()
                if rows:
                    self._entries[producer_id] = rows
                else:
                    self._entries.pop(producer_id, None)
            yield

    def packed(self, offset: int) -> bytes:
        """What the records below `offset` say, all at once: each producer's batches, oldest first."""
        frozen = self.freeze(offset)
        try:
            return b"".join(frozen.slices())
        finally:
            frozen.release_at_once()

    def at(self, offset: int) -> list[ProducerRow]:
        """`packed`, decoded."""
        return [ProducerRow(*fields) for fields in ENTRY.iter_unpack(self.packed(offset))]

    def restore(self, packed: bytes | memoryview, ended: Iterable[EndedTransaction] = ()) -> None:
        """Begin with what `packed` told, or Kafka's own file; `ended` are the transactions whose markers were not known to be
        committed there. Nothing is known yet."""
        entries = self._entries
        #: The producers with rows that markers or transactions have left.
        marked: set[int] = set()
        for position in range(0, len(packed), ENTRY.size):
            row = bytes(packed[position : position + ENTRY.size])
            (producer_id,) = _ID.unpack_from(row)
            old = entries.get(producer_id, b"")
            entries[producer_id] = old[-_KEPT_BYTES:] + row if _epoch(old) == _epoch(row) else row
            if row[34:46] != _NO_TRANSACTION:
                marked.add(producer_id)
        self._count = len(entries)
        self.row_count = sum(map(len, entries.values())) // ENTRY.size
        self._tally.count += self._count
        found = [(_TRANSACTION.unpack_from(entries[each], len(entries[each]) - ENTRY.size)[1], each) for each in marked]
        self.transactions.is_used = bool(marked)
        self.transactions.restore((each for each in found if each[0] >= 0), ended)

    def expire(self, seen_before_ms: int) -> None:
        """Forget who has not written since, all at once."""
        for _ in self.expiring(seen_before_ms):
            pass

    def expiring(self, seen_before_ms: int) -> Iterator[None]:
        """Forget who has not written since and has no open transaction, a slice at a time."""
        is_open = self.transactions.is_open
        self._holds += 1
        try:
            entries = iter(self._entries.items())
            while found := list(islice(entries, SLICE_PRODUCERS)):
                for producer_id, rows in found:
                    seen_ms = _SEEN.unpack_from(rows, len(rows) - ENTRY.size)[0]
                    if seen_ms < seen_before_ms and producer_id not in self._changed and not is_open(producer_id):
                        self._put(producer_id, b"", rows)
                        self.has_forgotten = True
                yield
        finally:
            self.release()
        yield from self.merging()


class FrozenProducers:
    """All producers as they were at one offset."""

    __slots__ = ("_changed", "_entries", "_states", "row_count")

    def __init__(self, states: ProducerStates, entries: dict[int, bytes], changed: dict[int, bytes], row_count: int) -> None:
        self._states = states
        self._entries = entries
        self._changed = changed
        self.row_count = row_count

    def slices(self) -> Iterator[bytes]:
        """Their rows, each once; a piece may be empty."""
        changed = self._changed
        entries = iter(self._entries.items())
        while found := list(islice(entries, SLICE_PRODUCERS)):
            yield b"".join(
                [changed.pop(producer_id, rows) for producer_id, rows in found] if changed else [rows for _, rows in found]
            )
        new = iter(changed.values())
        while rest := list(islice(new, SLICE_PRODUCERS)):
            yield b"".join(rest)

    def release(self) -> Iterator[None]:
        """Nothing more is asked of it; what is left to do comes in slices."""
        self._states.release()
        return self._states.merging()

    def release_at_once(self) -> None:
        for _ in self.release():
            pass
