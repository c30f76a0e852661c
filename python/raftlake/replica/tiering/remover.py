"""One partition that this node leads, and what total retention removes from its table: whole files, the oldest first.

The quorum's key says what comes next, as with copies:

1. The oldest files are too old, or too much, or their records are deleted (DeleteRecords): propose DELETE_STARTED. Clients see
   the new start at once.
2. DELETE_STARTED stands, whoever proposed it: have the tier remove the files, and tell what it still shows.
3. Both is answered: propose DELETE_FINISHED.

A removal may be repeated at any time. What the key's start has passed is never shown again, so a call of an old leader that
comes late removes nothing that a later one keeps.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.kv.commands import Delete, Put
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import LineageFacts, RemoteFile, RemoteSegment, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.step import REBUILD, RETRY_BACKOFF_MS, Standing, Step, TierCounts
from raftlake.tier.entries import Deleting, Tiered, encode_tiered
from raftlake.tier.retention import TotalRule

#: Files that one look asks for, and that one removal ends at most.
OLDEST_MAX = 100


class Remover(Step):
    """See `Step`."""

    purpose = "nothing removed from its table"

    def __init__(
        self,
        engine: Engine,
        kv: KvService,
        tier: RemoteTier,
        partition: Partition,
        counts: TierCounts | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(engine, kv, tier, partition, counts, then)
        #: Each removal is a commit on the table: not more of them than of copies.
        self._interval_ms = max(engine.config.retention_check_interval_ms, engine.config.tier_target_lag_ms)
        self._next_look_ms = engine.now_ms
        #: The oldest files, as they were told when the table began at that offset.
        self._oldest: tuple[Offset, tuple[RemoteFile, ...]] | None = None

    @property
    def _rule(self) -> TotalRule:
        """What the topic asks for at present: all, before its key is known."""
        asked = self._partition.in_force
        return TotalRule(-1, -1) if asked is None else TotalRule(asked.retention_bytes, asked.retention_ms)

    def _has_begun(self, tiered: Tiered) -> bool:
        return tiered.deleting is not None

    @property
    def is_due(self) -> bool:
        """A removal has begun, or it is time to look whether one should."""
        standing = self.standing() if self._may_act else None
        if standing is None or isinstance(standing, Refused):
            return False
        return standing.tiered.deleting is not None or self._may_look(standing.tiered)

    def go_on(self) -> None:
        standing = self.standing() if self._may_act else None
        if standing is None:
            return
        if isinstance(standing, Refused):
            # The copier tells of it.
            self._settle()
        elif standing.tiered.deleting is not None:
            self._delete(standing.tiered)
        elif self._may_look(standing.tiered):
            self._next_look_ms = self._engine.now_ms + self._interval_ms
            self._look(standing.tiered)
        elif self.error is not None and not self._may_end_something(standing.tiered):
            self._settle()

    # --- what is to be removed ---

    def _may_look(self, tiered: Tiered) -> bool:
        return self._engine.now_ms >= self._next_look_ms and self._may_end_something(tiered)

    def _may_end_something(self, tiered: Tiered) -> bool:
        has_deleted = tiered.start_offset < self._deleted_below
        return tiered.start_offset < tiered.end_offset and self._rule.may_end_something(self._total_bytes(tiered), has_deleted)

    @property
    def _deleted_below(self) -> Offset:
        return self._kv.state.records_from(self._partition.group)

    def _total_bytes(self, tiered: Tiered) -> int:
        """In the table, and behind it. A segment that the copies end in does not count: rather too little goes."""
        behind = (each.size for each in self._partition.log.segments() if each.base_offset >= tiered.end_offset)
        return tiered.log_bytes + sum(behind)

    def _look(self, tiered: Tiered) -> None:
        if self._oldest is not None and self._oldest[0] == tiered.start_offset:
            if self._first_kept(tiered, self._oldest[1]) is None:
                self._settle()
                return
            # Somebody may have rewritten the files since they were told.
            self._oldest = None
        self._is_busy = True
        start = tiered.start_offset
        self._tier.oldest(self._lineage(tiered), OLDEST_MAX, lambda outcome: self._on_oldest(start, outcome))

    def _on_oldest(self, start: Offset, outcome: tuple[RemoteFile, ...] | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            # The pauses of failures are enough: nothing was removed.
            self._next_look_ms = self._engine.now_ms
            self._stumble(outcome)
            return
        self._succeed()
        # Files without times are judged by what follows them.
        self._oldest = (start, outcome) if any(file.timestamp_ms_max >= 0 for file in outcome) else None
        standing = self.standing()
        if isinstance(standing, Refused) or standing.tiered.start_offset != start or standing.tiered.deleting is not None:
            return
        until = self._first_kept(standing.tiered, outcome)
        # Where a rewritten file begins before the start, some of what is told has been ended already.
        if until is not None and until > start:
            self._start(standing, until)

    def _first_kept(self, tiered: Tiered, files: tuple[RemoteFile, ...]) -> Offset | None:
        return self._rule.first_kept(
            files,
            total_bytes=self._total_bytes(tiered),
            copied_end=tiered.end_offset,
            wall_ms=self._engine.clock.wall_ms(),
            deleted_below=self._deleted_below,
        )

    def _start(self, standing: Standing, until: Offset) -> None:
        deleting = Deleting(leader_epoch=self.epoch, node_id=self._engine.config.node_id)
        self._propose(standing, [Put(self._key, encode_tiered(standing.tiered.start_deleting(until, deleting)))])

    # --- removing it ---

    def _delete(self, tiered: Tiered) -> None:
        self._is_busy = True
        self._tier.delete(
            self._lineage(tiered), self.epoch, tiered.start_offset, lambda outcome: self._on_deleted(tiered, outcome)
        )

    def _on_deleted(self, tiered: Tiered, outcome: Offset | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            self._stumble(outcome)
            return
        self._is_busy = True
        self._tier.facts(self._lineage(tiered), self._on_facts)

    def _on_facts(self, outcome: LineageFacts | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            self._stumble(outcome)
            return
        standing = self.standing()
        if isinstance(standing, Refused) or standing.tiered.deleting is None:
            return
        tiered = standing.tiered
        if outcome.end_offset == tiered.end_offset:
            self._succeed()
            self._counts.deletions += 1
            self._next_look_ms = self._engine.now_ms + self._interval_ms
            self._finish(standing, outcome)
        elif tiered.copying is not None:
            # The copy is shown, and its COPY_FINISHED counts it: that comes first.
            self._retry_at_ms = self._engine.now_ms + RETRY_BACKOFF_MS
            self._then()
        else:
            reason = f"{self._key} says that the table ends at {tiered.end_offset}, and it ends at {outcome.end_offset}"
            self._stumble(TierError(TierFailure.ELSEWHERE, f"{reason}; {REBUILD}"))

    def _finish(self, standing: Standing, facts: LineageFacts) -> None:
        start = standing.tiered.start_offset
        ended = [
            Delete(key)
            for key, segment in self._segments()
            if isinstance(segment, RemoteSegment) and segment.base_offset < start
        ]
        self._propose(standing, [Put(self._key, encode_tiered(standing.tiered.finish_deleting(facts))), *ended])
