"""Idempotent producers of one partition: which sequence numbers were appended last, and where.

Pure bookkeeping over batch headers. It follows from the log (every batch names its producer, epoch and first sequence) and is
kept beside it in Kafka's form, so that it survives failover, restart and retention. As in Kafka the last five batches of
a producer are kept: a retry of any of them is answered with its first offset instead of being appended again. Sequences are
noted before their batches are in the log; `at` tells how things stood at an offset that the log has just reached.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.producer_snapshot import ProducerRow

BATCHES_KEPT = 5
SEQUENCE_MODULUS = 1 << 31
NO_PRODUCER = -1
#: Unknown producers that are remembered from one request to the next.
SENT_BACK_MAX = 10_000


class AppendedBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


class ProducerEntry(NamedTuple):
    epoch: int
    #: When this node last saw it write, in milliseconds since 1970; not what its records say, which may be any time.
    seen_ms: int
    batches: tuple[AppendedBatch, ...]


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    """The sequence number of a batch's last record; numbers wrap after 2^31 - 1."""
    return (base_sequence + record_count - 1) % SEQUENCE_MODULUS


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` comes behind `other`, where numbers may have wrapped between the two."""
    return 0 < (sequence - other) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2


class ProducerStates:
    """Per producer id: its epoch and its last batches."""

    __slots__ = ("_entries", "_refused", "_sent_back", "_undo", "has_forgotten")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        #: The first sequence of each unknown producer (with its epoch) that was sent back, oldest first; see `check`.
        self._sent_back: dict[tuple[int, int], int] = {}
        #: Those of them that were refused for another reason than their sequence (`send_back`).
        self._refused: dict[tuple[int, int], None] = {}
        #: What stood in place of the entries of batches that `settle` has not heard of: (base offset, producer id, entry).
        self._undo: list[tuple[int, int, ProducerEntry | None]] = []
        #: Some producers wrote to the log and are not known any more.
        self.has_forgotten = False

    def __len__(self) -> int:
        return len(self._entries)

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, count: int, *, history_trimmed: bool
    ) -> AppendedBatch | None:
        """The batch that this one repeats, or None when it is the next one. Raises `RequestRejected` otherwise.

        `history_trimmed`: retention has removed the start of the log, so an unknown producer may be an old one.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if (not history_trimmed and not self.has_forgotten) or (producer_id, epoch) in self._refused:
                self._require_first_or_second_coming(producer_id, epoch, base_sequence)
            return None
        if epoch < entry.epoch:
            raise RequestRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {entry.epoch}, the batch epoch {epoch}"
            )
        if epoch > entry.epoch:
            if base_sequence != 0:
                raise RequestRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} must start epoch {epoch} at sequence 0, not {base_sequence}",
                )
            return None
        repeated = self.find(producer_id, epoch, base_sequence, count)
        if repeated is not None:
            return repeated
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if base_sequence != expected:
            raise RequestRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {epoch}: expected sequence {expected}, got {base_sequence}",
            )
        return None

    def find(self, producer_id: int, epoch: int, base_sequence: int, count: int) -> AppendedBatch | None:
        """The batch of the last ones that has these very sequence numbers."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        last_sequence = last_sequence_of(base_sequence, count)
        for batch in entry.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
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
        if producer_id not in self._entries and (known is None or is_after(known, base_sequence)):
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

    def record(self, producer_id: int, epoch: int, base_sequence: int, count: int, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was appended at `base_offset`; it was checked, or was checked by the leader it came from."""
        entry = self._entries.get(producer_id)
        batch = AppendedBatch(base_sequence, last_sequence_of(base_sequence, count), base_offset, base_offset + count)
        kept = entry.batches[1 - BATCHES_KEPT :] if entry is not None and entry.epoch == epoch else ()
        if self._sent_back:
            self._sent_back.pop((producer_id, epoch), None)
            self._refused.pop((producer_id, epoch), None)
        self._undo.append((base_offset, producer_id, entry))
        self._entries[producer_id] = ProducerEntry(epoch, now_ms, (*kept, batch))

    def settle(self, end_offset: int) -> None:
        """The log reaches to `end_offset`, and nobody will ask how things stood before that."""
        if self._undo and self._undo[-1][0] < end_offset:
            self._undo.clear()
        elif self._undo:
            self._undo = [each for each in self._undo if each[0] >= end_offset]

    def at(self, offset: int) -> list[ProducerRow]:
        """What the records below `offset` say, which is not below the last `settle`: each producer's batches, oldest first."""
        entries: dict[int, ProducerEntry | None] = dict(self._entries)
        entries.update({each[1]: each[2] for each in reversed(self._undo) if each[0] >= offset})
        return [
            ProducerRow(
                producer_id,
                entry.epoch,
                batch.last_sequence,
                batch.end_offset - 1,
                batch.end_offset - 1 - batch.base_offset,
                entry.seen_ms,
            )
            for producer_id, entry in entries.items()
            if entry is not None
            for batch in entry.batches
        ]

    def restore(self, rows: list[ProducerRow]) -> None:
        """Begin with what `at` told."""
        for row in rows:
            count = row.offset_delta + 1
            base_sequence = (row.last_sequence - row.offset_delta) % SEQUENCE_MODULUS
            base_offset = row.last_offset - row.offset_delta
            self.record(row.producer_id, row.epoch, base_sequence, count, base_offset, row.timestamp_ms)
        self._undo.clear()

    def expire(self, seen_before_ms: int) -> None:
        """Forget who has not written since."""
        idle = [producer_id for producer_id, entry in self._entries.items() if entry.seen_ms < seen_before_ms]
        for producer_id in idle:
            del self._entries[producer_id]
        if idle:
            self.has_forgotten = True
