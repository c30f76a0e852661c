"""One partition that this node leads, and its copies to the remote tier: one at a time, in the order of offsets.

The quorum's key of the partition says what comes next, as far as this node has applied it. So a copier goes on where any other
leader stopped, and remembers nothing that it could not do without:

1. Nothing is under way: propose COPY_STARTED for the next range.
2. COPY_STARTED of this copier stands: have the tier make the copy.
3. The copy is shown: propose COPY_FINISHED.
4. COPY_STARTED of another copier stands, or a call ended without a known outcome: claim the lineage. What the table shows by
   then decides: COPY_FINISHED of that copy, or 1 again.

The compare-and-set of each proposal keeps two leaders from taking turns. The leader epoch in each call of the tier keeps an old
leader's call from having an effect after the claim of a new one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.keys import tier_key, tier_segment_key
from raftlake.kv.machine import StateMachine
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import (
    CopyRequest,
    Lineage,
    LineageEnd,
    RemoteSegment,
    RemoteTier,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Copying, Tiered, decode_tiered, encode_segment, encode_tiered
from raftlake.tier.plan import Range, epochs_within, next_range
from raftlake.wire.ids import id_to_text

logger = logging.getLogger("raftlake.tier")

RETRY_BACKOFF_MS = 500
RETRY_BACKOFF_MAX_MS = 30_000
SEGMENT_ID_BYTES = 16
REBUILD = "`raftlake tier rebuild-metadata` makes the keys anew from the table"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the quorum's key says, and at which version."""

    tiered: Tiered
    version: int


def standing_of(machine: StateMachine, partition: Partition) -> Standing | Refused:
    """What is copied of a partition. One without a key begins at its log's start."""
    entry = machine.get(tier_key(id_to_text(partition.group.topic_id), partition.group.partition))
    if entry is None:
        start = partition.log.start_offset
        return Standing(Tiered(start_offset=start, end_offset=start), ABSENT)
    found = decode_tiered(entry.value)
    return found if isinstance(found, Refused) else Standing(found, entry.version)


@dataclass(slots=True)
class TierCounts:
    """What the copiers of a node have done since its start."""

    segments: int = 0
    #: Of the log, not of the files.
    log_bytes: int = 0
    failures: int = 0


class Copier:
    """Made for one epoch of leadership. `close` ends it: nothing that is under way has an effect here after that."""

    def __init__(
        self, engine: Engine, kv: KvService, tier: RemoteTier, partition: Partition, counts: TierCounts | None = None
    ) -> None:
        self._engine = engine
        self._counts = counts or TierCounts()
        self._kv = kv
        self._tier = tier
        self._partition = partition
        self.epoch: Epoch = partition.core.epoch
        self._topic_id = id_to_text(partition.group.topic_id)
        self._key = tier_key(self._topic_id, partition.group.partition)
        self._is_busy = False
        self._is_closed = False
        #: The copy that this copier has announced, and may still make.
        self._own: str | None = None
        #: The version of the key at which the lineage was claimed: what was under way there is not shown.
        self._claimed_at = -1
        #: A copy that the table shows, and the key does not say so yet.
        self._shown: RemoteSegment | None = None
        self._retry_at_ms = 0
        self.failures = 0
        #: What stands in the way, for the operator.
        self.error: TierError | None = None

    @property
    def is_busy(self) -> bool:
        """A call of the tier, or a proposal, is under way."""
        return self._is_busy

    def close(self) -> None:
        """The node leads the partition no longer in this epoch."""
        self._is_closed = True

    def standing(self) -> Standing | Refused:
        """What is copied, as far as this node has applied it."""
        return standing_of(self._kv.machine, self._partition)

    def go_on(self) -> None:
        """Do the next step, if there is one and it is time for it."""
        if self._is_busy or self._is_closed or self._engine.now_ms < self._retry_at_ms:
            return
        standing = self.standing()
        if isinstance(standing, Refused):
            self._stumble(TierError(TierFailure.UNUSABLE, f"{self._key}: {standing.reason}; {REBUILD}"))
            return
        tiered = standing.tiered
        if self._shown is not None and self._shown.base_offset == tiered.end_offset:
            self._finish(standing, self._shown)
        elif tiered.copying is not None and tiered.copying.segment_id == self._own:
            self._copy(tiered, tiered.copying)
        elif tiered.copying is not None and self._claimed_at != standing.version:
            self._claim(standing)
        else:
            self._start(standing)

    # --- the four steps ---

    def _start(self, standing: Standing) -> None:
        tiered = standing.tiered
        parts = self._parts(tiered.end_offset)
        if not parts:
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
        return next_range(partition.log.segments(), copied_end, partition.high_watermark, points.__contains__)

    def _copy(self, tiered: Tiered, copying: Copying) -> None:
        partition = self._partition
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
            lineage=Lineage(partition.group, tiered.incarnation),
            segment_id=copying.segment_id,
            base_offset=copying.base_offset,
            end_offset=copying.end_offset,
            leader_epoch=self.epoch,
            epochs=epochs_within(partition.log.epochs, Range(copying.base_offset, copying.end_offset)),
            sources=tuple(source for source in sources if source is not None),
            auxiliary=known,
        )
        self._is_busy = True
        self._tier.copy(request, self._on_copied)

    def _on_copied(self, outcome: RemoteSegment | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            # Whether it is shown is told by a claim. A new try has a new name.
            self._own = None
            self._stumble(outcome)
            return
        self._shown = outcome
        self._counts.segments += 1
        self._counts.log_bytes += outcome.log_bytes
        self._succeed()
        self.go_on()

    def _claim(self, standing: Standing) -> None:
        self._is_busy = True
        lineage = Lineage(self._partition.group, standing.tiered.incarnation)
        self._tier.claim(lineage, self.epoch, lambda outcome: self._on_claimed(standing, outcome))

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
            self._shown = last
        else:
            self._stumble(TierError(TierFailure.ELSEWHERE, self._mismatch(tiered, end_shown)))
            return
        self._succeed()
        self.go_on()

    def _finish(self, standing: Standing, shown: RemoteSegment) -> None:
        operations: list[Put | Delete] = [
            Put(self._key, encode_tiered(standing.tiered.finish(shown))),
            Put(tier_segment_key(self._topic_id, self._partition.group.partition, shown.base_offset), encode_segment(shown)),
        ]
        known, _ = self._kv.machine.list(f"{self._key}/", None, SEGMENT_KEYS_MAX + 1)
        operations += [Delete(key) for key, _ in known[: max(0, len(known) + 1 - SEGMENT_KEYS_MAX)]]
        self._propose(standing, operations)

    # --- proposals and outcomes ---

    def _propose(self, standing: Standing, operations: list[Put | Delete]) -> None:
        self._is_busy = True
        txn = Txn((Compare(self._key, standing.version),), tuple(operations))
        self._kv.propose_anywhere(txn, self._on_outcome)

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        if not self._ended():
            return
        if outcome.status is ProposeStatus.DONE:
            # Whether the compare held or not: the key says what comes next.
            self.go_on()
        else:
            self._retry_at_ms = self._engine.now_ms + RETRY_BACKOFF_MS

    def _ended(self) -> bool:
        """A call is over. False: nobody is interested in what came of it."""
        self._engine.begin_input()
        self._is_busy = False
        return not self._is_closed

    def _succeed(self) -> None:
        self.failures, self.error, self._retry_at_ms = 0, None, 0

    def _stumble(self, error: TierError) -> None:
        """Try again later, each time after twice as long, and tell the operator when the reason is another one."""
        if self.error is None or self.error.failure is not error.failure:
            logger.warning("%s: not copied to the tier: %s", self._partition.group, error.reason)
        self.error = error
        self._counts.failures += 1
        backoff_ms = min(RETRY_BACKOFF_MS << min(self.failures, 10), RETRY_BACKOFF_MAX_MS)
        self.failures += 1
        self._retry_at_ms = self._engine.now_ms + backoff_ms

    def _version(self) -> int:
        standing = self.standing()
        return -1 if isinstance(standing, Refused) else standing.version

    def _new_id(self) -> str:
        return id_to_text(bytes(self._engine.rng.randrange(256) for _ in range(SEGMENT_ID_BYTES)))

    def _gap(self, tiered: Tiered) -> str:
        return (
            f"the table ends at {tiered.end_offset}, and the log begins at {self._partition.log.start_offset}: the records "
            "between them are gone. Nothing more is copied"
        )

    def _amid_a_batch(self, tiered: Tiered) -> str:
        return f"{self._key} says that the table ends at {tiered.end_offset}, which is amid a batch here; {REBUILD}"

    def _mismatch(self, tiered: Tiered, end_shown: Offset) -> str:
        return f"{self._key} says that the table ends at {tiered.end_offset}, and it ends at {end_shown}; {REBUILD}"
