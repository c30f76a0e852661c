"""Idempotent producers of one partition: which sequence numbers were appended last, and where.

Pure bookkeeping over batch headers. It is rebuilt from the log (every batch names its producer, epoch and first
sequence), so it survives failover and restart without a file of its own. As in Kafka the last five batches of a
producer are kept: a retry of any of them is answered with its first offset instead of being appended again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from raftlake.errors import ErrorCode, RequestRejected

BATCHES_KEPT = 5
SEQUENCE_MODULUS = 1 << 31
NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


@dataclass(slots=True)
class ProducerEntry:
    epoch: int
    batches: deque[AppendedBatch]


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    """The sequence number of a batch's last record; numbers wrap after 2^31 - 1."""
    return (base_sequence + record_count - 1) % SEQUENCE_MODULUS


class ProducerStates:
    """Per producer id: its epoch and its last batches."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, count: int, *, history_trimmed: bool
    ) -> AppendedBatch | None:
        """The batch that this one repeats, or None when it is the next one. Raises `RequestRejected` otherwise.

        `history_trimmed`: retention has removed the start of the log, so an unknown producer may be an old one.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if base_sequence != 0 and not history_trimmed:
                raise RequestRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} is new here and must start at sequence 0, not {base_sequence}",
                )
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
        last_sequence = last_sequence_of(base_sequence, count)
        for batch in entry.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if base_sequence != expected:
            raise RequestRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} epoch {epoch}: expected sequence {expected}, got {base_sequence}",
            )
        return None

    def record(self, producer_id: int, epoch: int, base_sequence: int, count: int, base_offset: int) -> None:
        """Remember a batch that was appended at `base_offset`; it was checked, or was checked by the leader it came from."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch, deque(maxlen=BATCHES_KEPT))
        entry.batches.append(
            AppendedBatch(base_sequence, last_sequence_of(base_sequence, count), base_offset, base_offset + count)
        )
