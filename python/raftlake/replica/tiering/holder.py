"""One partition that this node leads, and what local disks keep while another program has changed its table.

What was read back may be gone from the table since then. So the leader says in the quorum's key that nothing is deleted from
local disks (`Tiered.is_held`), as soon as a call of the tier is answered so. From then on it asks the tier again and again.
Once the table is as the tier left it, the leader takes its word back, and all who were refused try again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from raftlake.kv.commands import Put
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteSegment, RemoteState, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.step import Standing, Step, TierCounts
from raftlake.tier.entries import Tiered, encode_tiered

#: Answers that say nothing of what others have done.
_NO_WORD = (TierFailure.CHANGED, TierFailure.UNKNOWN, TierFailure.UNUSABLE)


class Holder(Step):
    """See `Step`. `others` are the steps of the same partition."""

    purpose = "its table was changed by another program, so its records stay on local disks"

    def __init__(
        self,
        engine: Engine,
        kv: KvService,
        tier: RemoteTier,
        partition: Partition,
        others: list[Step],
        counts: TierCounts | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(engine, kv, tier, partition, counts, then)
        self._others = others

    @property
    def is_due(self) -> bool:
        """The key does not say yet what a step was told, or it is time to ask again."""
        return self._next() is not None or self._is_over

    @property
    def _is_over(self) -> bool:
        """What stood in the way here is gone: the keys were made anew, or no step is refused any more."""
        standing = self.standing()
        if self.error is None or isinstance(standing, Refused) or standing.tiered.is_held:
            return False
        # A hold that the quorum has refused is said again, as long as there is a reason for it.
        return not (self._is_refused and self._refused())

    def go_on(self) -> None:
        if self._is_over:
            self._settle()
            self._let_go()
        standing = self._next()
        if standing is None:
            return
        if not standing.tiered.is_held:
            self._say(standing, is_held=True)
            return
        self._is_busy = True
        newest = next((each for _, each in reversed(self._segments()) if isinstance(each, RemoteSegment)), None)
        if newest is not None:
            self._ask(standing.tiered, newest)
        else:
            last = Offset(standing.tiered.end_offset - 1)
            self._tier.find(self._lineage(standing.tiered), last, self._on_found)

    def _next(self) -> Standing | None:
        standing = self.standing() if self._may_act else None
        if standing is None or isinstance(standing, Refused) or standing.tiered.start_offset == standing.tiered.end_offset:
            return None
        return standing if standing.tiered.is_held or self._refused() else None

    def _refused(self) -> list[Step]:
        return [step for step in self._others if step.error is not None and step.error.failure is TierFailure.CHANGED]

    def _say(self, standing: Standing, *, is_held: bool) -> None:
        self._propose(standing, [Put(self._key, encode_tiered(replace(standing.tiered, is_held=is_held)))])

    def _let_go(self) -> None:
        """Who was refused tries again at once."""
        self._succeed()
        for step in self._refused():
            step.forget_failure()

    # --- whether it is undone ---

    def _on_found(self, outcome: RemoteState | TierError) -> None:
        if not self._ended():
            return
        standing = self.standing()
        if isinstance(outcome, TierError):
            self._stumble(outcome)
        elif not isinstance(standing, Refused):
            self._is_busy = True
            self._ask(standing.tiered, outcome.segment)

    def _ask(self, tiered: Tiered, segment: RemoteSegment) -> None:
        """A check is refused before it reads anything."""
        self._tier.check(self._lineage(tiered), segment, self._on_checked)

    def _on_checked(self, outcome: TierError | None) -> None:
        if not self._ended():
            return
        if outcome is not None and outcome.failure in _NO_WORD:
            self._stumble(outcome)
            return
        self._let_go()
        standing = self.standing()
        if not isinstance(standing, Refused) and standing.tiered.is_held:
            self._say(standing, is_held=False)
