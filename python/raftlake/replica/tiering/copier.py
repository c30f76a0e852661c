"""One partition that this node leads, and its copies to the remote tier: one at a time, in the order of offsets.

The quorum's key of the partition says what comes next, as far as this node has applied it. So a copier goes on where any other
leader stopped, and remembers nothing that it could not do without:

1. Nothing is under way: propose COPY_STARTED for the next range.
2. COPY_STARTED of this copier stands: have the tier make the copy.
3. The copy is shown: have it read back, and propose COPY_FINISHED, with CHECKED where that went well. Else the checker sees to
   it, and copies go on.
4. COPY_STARTED of another copier stands, or a call ended without a known outcome: claim the lineage. What the table shows by
   then decides: COPY_FINISHED of that copy, or 1 again.

The compare-and-set of each proposal keeps two leaders from taking turns. The leader epoch in each call of the tier keeps an old
leader's call from having an effect after the claim of a new one.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.kv.commands import Delete, Put
from raftlake.kv.keys import tier_segment_key
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import CopyRequest, LineageEnd, RemoteSegment, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.step import REBUILD, Standing, Step, TierCounts
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Copying, Tiered, encode_segment, encode_tiered
from raftlake.tier.plan import Range, epochs_within, next_range
from raftlake.wire.ids import id_to_text

SEGMENT_ID_BYTES = 16


class Copier(Step):
    """See `Step`."""

    purpose = "not copied to the tier"

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
        #: The copy that this copier has announced, and may still make.
        self._own: str | None = None
        #: The version of the key at which the lineage was claimed: what was under way there is not shown.
        self._claimed_at = -1
        #: A copy that the table shows, and the key of that version does not say so yet.
        self._shown: tuple[int, RemoteSegment] | None = None
        #: It was read back as it was written.
        self._is_checked = False
        #: The last copy failed. A claim that goes well does not say that the next one will not.
        self._has_failed = False

    def _has_begun(self, tiered: Tiered) -> bool:
        return tiered.copying is not None

    def go_on(self) -> None:
        if not self._may_act:
            return
        standing = self.standing()
        if isinstance(standing, Refused):
            self._refuse_key(standing)
            return
        tiered = standing.tiered
        if self._shown is not None and self._shown[0] != standing.version:
            # Finished, or the keys were made anew: what the table shows by now is told by a claim.
            self._shown, self._own = None, None
        if self._shown is not None and self._shown[1].base_offset == tiered.end_offset:
            self._finish(standing, self._shown[1])
        elif tiered.copying is not None and tiered.copying.segment_id == self._own:
            self._copy(standing, tiered.copying)
        elif tiered.copying is not None and self._claimed_at != standing.version:
            self._claim(standing)
        else:
            self._start(standing)

    # --- the four steps ---

    def _start(self, standing: Standing) -> None:
        tiered = standing.tiered
        parts = self._parts(tiered.end_offset)
        if not parts:
            self._settle()
            return
        if tiered.end_offset < self._partition.log.start_offset:
            self._stumble(TierError(TierFailure.UNUSABLE, self._gap(tiered)))
            return
        segment_id = self._new_id()
        copying = Copying(
            segment_id=segment_id,
            base_offset=tiered.end_offset,
            end_offset=parts[-1].end_offset,
            leader_epoch=self.epoch,
            node_id=self._engine.config.node_id,
        )
        self._own = segment_id
        self._propose(standing, [Put(self._key, encode_tiered(tiered.start(copying)))])

    def _parts(self, copied_end: Offset) -> list[Range]:
        partition = self._partition
        points = partition.log.start_points.offsets
        return next_range(partition.log.segments(), copied_end, partition.last_stable_offset, points.__contains__)

    def _copy(self, standing: Standing, copying: Copying) -> None:
        partition, tiered = self._partition, standing.tiered
        parts = self._parts(copying.base_offset)
        known = partition.auxiliary_at(copying.end_offset)
        if known is None or not parts or parts[-1].end_offset != copying.end_offset:
            # The log was repaired since it was announced, or points were saved: announce what is there now.
            self._own = None
            self._claimed_at = self._version()
            return
        sources = [partition.log.locate(part.base_offset, part.end_offset) for part in parts]
        if None in sources:
            self._stumble(TierError(TierFailure.UNUSABLE, self._amid_a_batch(tiered)))
            return
        request = CopyRequest(
            lineage=self._lineage(tiered),
            segment_id=copying.segment_id,
            base_offset=copying.base_offset,
            end_offset=copying.end_offset,
            leader_epoch=self.epoch,
            epochs=epochs_within(partition.log.epochs, Range(copying.base_offset, copying.end_offset)),
            sources=tuple(source for source in sources if source is not None),
            auxiliary=known,
            aborted=tuple(partition.aborted(copying.base_offset, copying.end_offset)),
            is_continued=tiered.end_offset > tiered.start_offset,
        )
        self._is_busy = True
        self._tier.copy(request, lambda outcome: self._on_copied(standing.version, outcome))

    def _on_copied(self, version: int, outcome: RemoteSegment | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            # Whether it is shown is told by a claim. A new try has a new name.
            self._own, self._has_failed = None, True
            self._stumble(outcome)
            return
        self._shown, self._is_checked, self._has_failed = (version, outcome), False, False
        self._counts.segments += 1
        self._counts.log_bytes += outcome.log_bytes
        self._succeed()
        standing = self.standing()
        if isinstance(standing, Refused) or standing.tiered.safe_offset < outcome.base_offset:
            # Something before it waits to be read back.
            self._then()
            return
        self._is_busy = True
        self._tier.check(self._lineage(standing.tiered), outcome, self._on_checked)

    def _on_checked(self, outcome: TierError | None) -> None:
        if self._ended():
            self._is_checked = outcome is None
            self._counts.checks += outcome is None
            self._then()

    def _claim(self, standing: Standing) -> None:
        self._is_busy = True
        self._tier.claim(self._lineage(standing.tiered), self.epoch, lambda outcome: self._on_claimed(standing, outcome))

    def _on_claimed(self, standing: Standing, outcome: LineageEnd | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            self._stumble(outcome)
            return
        tiered, last = standing.tiered, outcome.last
        end_shown = tiered.start_offset if last is None else last.end_offset
        if end_shown == tiered.end_offset:
            self._claimed_at = standing.version
        elif last is not None and last.base_offset == tiered.end_offset:
            self._shown, self._is_checked, self._has_failed = (standing.version, last), False, False
        elif last is None:
            self._stumble(TierError(TierFailure.UNUSABLE, self._gone(tiered)))
            return
        else:
            self._stumble(TierError(TierFailure.ELSEWHERE, self._mismatch(tiered, end_shown)))
            return
        if not self._has_failed:
            self._succeed()
        self._then()

    def _finish(self, standing: Standing, shown: RemoteSegment) -> None:
        finished = standing.tiered.finish(shown)
        if self._is_checked and finished.safe_offset == shown.base_offset:
            finished = finished.check(shown)
        operations: list[Put | Delete] = [
            Put(self._key, encode_tiered(finished)),
            Put(tier_segment_key(self._topic_id, self._partition.group.partition, shown.base_offset), encode_segment(shown)),
        ]
        known = self._segments()
        operations += [Delete(key) for key, _ in known[: max(0, len(known) + 1 - SEGMENT_KEYS_MAX)]]
        self._propose(standing, operations)

    # --- words ---

    def _version(self) -> int:
        standing = self.standing()
        return -1 if isinstance(standing, Refused) else standing.version

    def _new_id(self) -> str:
        return id_to_text(bytes(self._engine.rng.randrange(256) for _ in range(SEGMENT_ID_BYTES)))

    def _gap(self, tiered: Tiered) -> str:
        return (
            f"the table ends at {tiered.end_offset}, and the log begins at {self._partition.log.start_offset}: nothing shows "
            "the records between them, and nothing more is copied. `raftlake tier undo TABLE` brings back what other programs "
            "removed. Where it finds nothing, `raftlake tier rebuild-metadata` names the version to RESTORE"
        )

    def _amid_a_batch(self, tiered: Tiered) -> str:
        return f"{self._key} says that the table ends at {tiered.end_offset}, which is amid a batch here; {REBUILD}"

    def _gone(self, tiered: Tiered) -> str:
        return (
            f"the table shows no record, and {self._key} tells of copies up to {tiered.end_offset}: the table that has them is "
            "gone. Mount its share, or put it back: copies then go on by themselves"
        )

    def _mismatch(self, tiered: Tiered, end_shown: Offset) -> str:
        return f"{self._key} says that the table ends at {tiered.end_offset}, and it ends at {end_shown}; {REBUILD}"
