"""What all who change the tier's keys of a led partition have in common: proposals under a condition, pauses after failures.

A step acts on the quorum's key of the partition as this node has applied it. It has one call of the tier, or one proposal,
under way at a time. A step that is closed has no effect any more.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.keys import tier_key
from raftlake.kv.machine import StateMachine
from raftlake.kv.strict_json import Refused
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, RemoteSegment, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Tiered, decode_segment, decode_tiered
from raftlake.wire.ids import id_to_text

logger = logging.getLogger("raftlake.tier")

RETRY_BACKOFF_MS = 500
RETRY_BACKOFF_MAX_MS = 30_000
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
        return Standing(Tiered(topic=partition.group.topic, start_offset=start, end_offset=start), ABSENT)
    found = decode_tiered(entry.value)
    return found if isinstance(found, Refused) else Standing(found, entry.version)


@dataclass(slots=True)
class TierCounts:
    """What a node has done since its start for the partitions that it leads."""

    segments: int = 0
    #: Of the log, not of the files.
    log_bytes: int = 0
    failures: int = 0
    #: Copies that were read back, and those of them that were not as they were written.
    checks: int = 0
    damaged: int = 0
    #: Removals of files that are finished, and tables of deleted topics that are empty.
    deletions: int = 0
    drops: int = 0


class Step(ABC):
    """Made for one epoch of leadership. `close` ends it: nothing that is under way has an effect here after that. `then` is
    called when something that was under way has ended well."""

    #: What does not succeed, for the log.
    purpose = "not done"

    def __init__(
        self,
        engine: Engine,
        kv: KvService,
        tier: RemoteTier,
        partition: Partition,
        counts: TierCounts | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self._counts = counts or TierCounts()
        self._kv = kv
        self._tier = tier
        self._partition = partition
        self._then = then or self.go_on
        self.epoch: Epoch = partition.core.epoch
        self._topic_id = id_to_text(partition.group.topic_id)
        self._key = tier_key(self._topic_id, partition.group.partition)
        #: What the key said last, with its version: it is asked for in each tick.
        self._read: tuple[int, Standing | Refused] | None = None
        self._is_busy = False
        self._is_closed = False
        #: The quorum refused the last change of the keys. What the tier does well meanwhile does not mend that.
        self._is_refused = False
        self._retry_at_ms = 0
        self.failures = 0
        #: What stands in the way, for the operator, and since when by the wall clock.
        self.error: TierError | None = None
        self.failing_since_ms = 0

    @property
    def group(self) -> GroupId:
        """The partition."""
        return self._partition.group

    @property
    def is_busy(self) -> bool:
        """A call of the tier, or a proposal, is under way."""
        return self._is_busy

    @property
    def _may_act(self) -> bool:
        return not self._is_busy and not self._is_closed and self._engine.now_ms >= self._retry_at_ms

    @property
    def is_midway(self) -> bool:
        """It has begun something, and nothing keeps it from going on."""
        standing = self.standing() if self._may_act and self.error is None else None
        return standing is not None and not isinstance(standing, Refused) and self._has_begun(standing.tiered)

    def _has_begun(self, tiered: Tiered) -> bool:
        """Whether what stands in the key is for this step to end."""
        return False

    def forget_failure(self) -> None:
        """What stood in the way is gone: try again at once. A refusal by the quorum is told anew, where it lasts."""
        self._settle()

    def close(self) -> None:
        """The node leads the partition no longer in this epoch."""
        self._is_closed = True

    @abstractmethod
    def go_on(self) -> None:
        """Do the next step, if there is one and it is time for it."""

    def standing(self) -> Standing | Refused:
        """What is copied, as far as this node has applied it."""
        entry = self._kv.machine.get(self._key)
        if entry is None:
            return standing_of(self._kv.machine, self._partition)
        if self._read is None or self._read[0] != entry.version:
            self._read = (entry.version, standing_of(self._kv.machine, self._partition))
        return self._read[1]

    def _lineage(self, tiered: Tiered) -> Lineage:
        return Lineage(self._partition.group, tiered.incarnation)

    def _segments(self) -> list[tuple[str, RemoteSegment | Refused]]:
        """The newest copies, by their keys, in the order of offsets."""
        entries, _ = self._kv.machine.list(f"{self._key}/", None, SEGMENT_KEYS_MAX + 1)
        return [(key, decode_segment(entry.value)) for key, entry in entries]

    # --- proposals and outcomes ---

    def _propose(self, standing: Standing, operations: Sequence[Put | Delete]) -> None:
        self._is_busy = True
        txn = Txn((Compare(self._key, standing.version),), tuple(operations))
        self._kv.propose_anywhere(txn, self._on_outcome)

    def _on_outcome(self, outcome: ProposeOutcome) -> None:
        if not self._ended():
            return
        if outcome.status is ProposeStatus.DONE:
            # Whether the compare held or not: the key says what comes next.
            if self._is_refused:
                self._settle()
            self._then()
        elif outcome.status is ProposeStatus.REFUSED:
            self._is_refused = True
            why = outcome.reason or "it takes no changes"
            self._stumble(TierError(TierFailure.UNKNOWN, f"the quorum refuses to change {self._key}: {why}"))
        else:
            self._retry_at_ms = self._engine.now_ms + RETRY_BACKOFF_MS

    def _ended(self) -> bool:
        """A call is over. False: nobody is interested in what came of it."""
        self._engine.begin_input()
        self._is_busy = False
        return not self._is_closed

    def _succeed(self) -> None:
        """The tier does what it is asked for."""
        if not self._is_refused:
            self._settle()

    def _settle(self) -> None:
        """Nothing stands in the way, or nothing is left to do."""
        self.failures, self.error, self._retry_at_ms, self._is_refused = 0, None, 0, False

    def _stumble(self, error: TierError, backoff_max_ms: int = RETRY_BACKOFF_MAX_MS) -> None:
        """Try again later, each time after twice as long, and tell the operator when the reason is another one."""
        if self.error is None or self.error.failure is not error.failure:
            logger.warning("%s: %s: %s", self._partition.group, self.purpose, error.reason)
        if self.error is None:
            self.failing_since_ms = self._engine.clock.wall_ms()
        self.error = error
        self._counts.failures += 1
        backoff_ms = min(RETRY_BACKOFF_MS << min(self.failures, 20), backoff_max_ms)
        self.failures += 1
        self._retry_at_ms = self._engine.now_ms + backoff_ms

    def _refuse_key(self, refused: Refused) -> None:
        self._stumble(TierError(TierFailure.UNUSABLE, f"{self._key}: {refused.reason}; {REBUILD}"))
