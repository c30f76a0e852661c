"""Of how many leaders are the records of a log that is not whole yet? Those of two may not fit together.

Compaction removes a tombstone where all replicas had it in their logs (`replica.compaction.floor`). A replica that begins its
log anew has it no more. It takes the older value from a leader whose log still has both. The next leader may have removed both,
and the tombstone never comes. A marker of a transaction can be missed in the same way. Within one epoch that cannot happen: the
leader's log lost the older value before the pass that removes the tombstone began, so the replica finds neither.

So until the log is whole all of it has to come from the leader of one epoch, or nothing may be removed of what the next one
adds. Whole is a log that holds all that was committed when this node began it, or found it damaged.

That is for a log that lost records, and for an observer's. A voter has had all that compaction relied on, so its log is whole
at each moment, also where the voter comes late to the first record. To doubt it would cost the voter its vote for nothing.

A restart must not forget that a log is not whole. Of a damaged one the mark of the damage tells it. An observer notes it before
the first batch, and the note goes when the log is whole.
"""

from __future__ import annotations

from raftlake.ports.driver import LogStore
from raftlake.raft.actions import AppendFetched
from raftlake.raft.core import RaftGroup
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.partition.intact import require_all_records

#: Of no leader: the log held records when it was opened.
LAY_HERE = Epoch(-1)


class Wholeness:
    """Of one log, as it was opened: one that is impaired, empty, or noted as partial is not whole, until it turns out to be a
    voter's. What the log notes raises StorageError."""

    def __init__(self, group: object, core: RaftGroup, log: LogStore) -> None:
        self._group = group
        self._core = core
        self._log = log
        self.is_whole = core.impairment is None and log.end_offset > log.start_offset and not log.is_partial
        #: The epoch of the leader from which the first records came.
        self._begun_in = LAY_HERE

    def about_to_append(self, action: AppendFetched) -> None:
        """Raises UnfitBeginning where these batches do not complete what is here."""
        is_empty = self._log.end_offset == self._log.start_offset
        if is_empty and not self.is_whole and not self._log.is_partial and self._core.impairment is None:
            if self._core.is_voter:
                self.is_whole = True
            else:
                self._log.note_partial(True)
        if self.is_whole:
            return
        if is_empty:
            self._begun_in = action.leader_epoch
        elif self._begun_in != action.leader_epoch:
            require_all_records(self._group, (batch.payload.header for batch in action.batches))

    def committed(self, high_watermark: Offset) -> None:
        """All below `high_watermark` is committed, and is here."""
        if not self.is_whole and self._core.impairment is None and self._core.has_caught_up(high_watermark):
            self.mended()

    def begun_anew(self) -> None:
        """The log is empty: its leader has deleted what lay here, and more."""
        self.is_whole = False

    def mended(self) -> None:
        """The core has again what it had lost."""
        if self._log.is_partial:
            self._log.note_partial(False)
        self.is_whole = True
