"""The epoch history of one log: at which offset each leader epoch began.

Owns the list that `leader-epoch-checkpoint` holds on disk; it never looks at records. From it come the answers to "which
epoch has the record before this offset" and "where does that epoch end", on which log reconciliation rests (KIP-595
"FetchRequest Handling" step 3). Invariant: epochs and start offsets both ascend strictly, and every epoch listed has at
least one record at or after the log start - save the last one of a log that retention has emptied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from raftlake.errors import require
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch


class EpochHistory:
    """Epochs and their first offsets, ascending.

    `start_epoch` is the epoch of the record just before the log start (0 when there never was one). A log that tells us
    only epochs from its start on leaves that open; then the first listed epoch stands in for it, which at worst
    makes a replica that ends exactly at our log start begin there anew.
    """

    __slots__ = ("_epochs", "_starts", "last_epoch", "last_start", "log_start", "start_epoch")

    def __init__(self, entries: Sequence[tuple[Epoch, Offset]], log_start: Offset, log_end: Offset) -> None:
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        self.log_start = log_start
        self.start_epoch = entries[0][0] if entries and log_start > 0 else Epoch(0)
        #: Epoch of the last record, `start_epoch` for an empty log; `last_start` is that epoch's first offset.
        self.last_epoch = self.start_epoch
        self.last_start = log_start
        for epoch, start in entries:
            if start < log_end:
                self.assign(epoch, start)
        self.advance_start(log_start)
        if not self._epochs and entries and log_start > 0:
            self.start_epoch = self.last_epoch = entries[-1][0]

    def entries(self) -> tuple[tuple[Epoch, Offset], ...]:
        """(epoch, first offset) pairs, ascending."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: Epoch, start: Offset) -> None:
        """The record at `start`, the next one of the log, has `epoch`. A repeated epoch changes nothing."""
        if self._epochs and epoch == self.last_epoch:
            return
        require(epoch >= self.last_epoch, f"epoch {epoch} at offset {start} goes back behind epoch {self.last_epoch}")
        if self._starts and start == self.last_start == self.log_start:
            # Retention has deleted every record; the last epoch was only remembered, and `start_epoch` does that too.
            self._epochs.clear()
            self._starts.clear()
        require(not self._starts or start > self.last_start, f"epoch {epoch} starts at {start}, not after {self.last_start}")
        self._epochs.append(epoch)
        self._starts.append(start)
        self.last_epoch = epoch
        self.last_start = start

    def know_epoch_before_start(self, epoch: Epoch) -> None:
        """Somebody else (a snapshot that ends at the log start) knows the epoch of the record before the first one."""
        self.start_epoch = epoch
        if not self._epochs:
            self.last_epoch = epoch

    def truncate_to(self, end_offset: Offset) -> None:
        """Forget every epoch that starts at or after the new log end (also when no record goes: KAFKA-10706)."""
        keep = bisect_left(self._starts, end_offset)
        del self._epochs[keep:], self._starts[keep:]
        self._refresh_last()

    def advance_start(self, log_start: Offset) -> None:
        """Forget what lies before the new log start, save the epoch of the record just before it."""
        self.start_epoch = self.epoch_before(log_start)
        self.log_start = log_start
        drop = bisect_right(self._starts, log_start) - 1
        if drop >= 0:
            del self._epochs[:drop], self._starts[:drop]
            self._starts[0] = log_start
        self._refresh_last()

    def reset(self, start: OffsetAndEpoch) -> None:
        """The log is empty and begins at `start.offset`; the record before it has `start.epoch` (KAFKA-10761)."""
        self._epochs.clear()
        self._starts.clear()
        self.log_start = start.offset
        self.start_epoch = start.epoch
        self._refresh_last()

    def epoch_before(self, offset: Offset) -> Epoch:
        """The epoch of the record at `offset - 1`, for `offset` from the log start to the log end."""
        index = bisect_left(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else self.start_epoch

    def has_epoch(self, epoch: Epoch) -> bool:
        """Whether some record of this log has `epoch`."""
        index = bisect_left(self._epochs, epoch)
        return index < len(self._epochs) and self._epochs[index] == epoch

    def first_offset(self, epoch: Epoch) -> Offset:
        """The first offset of an epoch that `has_epoch`, the log start if it began before that."""
        return self._starts[bisect_left(self._epochs, epoch)]

    def floor_end(self, epoch: Epoch, log_end: Offset) -> OffsetAndEpoch:
        """The largest epoch <= `epoch` of this log and its end offset; the log start where all its epochs are larger."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return OffsetAndEpoch(self.log_start, min(epoch, self.start_epoch))
        end = self._starts[index] if index < len(self._starts) else log_end
        return OffsetAndEpoch(end, self._epochs[index - 1])

    def contains(self, position: OffsetAndEpoch, log_end: Offset) -> bool:
        """Whether this log reaches `position.offset` and its record just before that offset has `position.epoch`."""
        return self.log_start <= position.offset <= log_end and self.epoch_before(position.offset) == position.epoch

    def _refresh_last(self) -> None:
        if self._epochs:
            self.last_epoch = self._epochs[-1]
            self.last_start = self._starts[-1]
        else:
            self.last_epoch = self.start_epoch
            self.last_start = self.log_start
