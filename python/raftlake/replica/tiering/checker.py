"""One partition that this node leads, and the reading back of its copies: one at a time, in the order of offsets.

Nothing is deleted from local disks before the store has given back what was written (`Tiered.checked_offset`). Who checks is
the leader, once for each copy. Replicas and later leaders know it from the quorum's key. A copier reads back what it has just
made. What it did not, or what did not go well, is seen to here. A check that fails stops no copies: the local log has the
records still, and keeps them.
"""

from __future__ import annotations

from raftlake.kv.commands import Put
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.replica.tiering.step import Standing, Step
from raftlake.tier.entries import Tiered, encode_tiered

#: Between two looks at a copy that is damaged: each reads the whole file.
BACKOFF_MAX_MS = 300_000


class Checker(Step):
    """See `Step`."""

    purpose = "not read back from the tier, so its records stay on local disks"

    @property
    def is_due(self) -> bool:
        """A copy waits for its check."""
        standing = self.standing() if self._may_act else None
        return standing is not None and not isinstance(standing, Refused) and _is_behind(standing.tiered)

    def go_on(self) -> None:
        standing = self.standing() if self._may_act else None
        if standing is None:
            return
        if isinstance(standing, Refused) or not _is_behind(standing.tiered):
            # Of a key that cannot be read the copier tells.
            self._settle()
            return
        tiered = standing.tiered
        self._is_busy = True
        known = (segment for _, segment in self._segments() if isinstance(segment, RemoteSegment))
        waiting = next((each for each in known if _is_next(tiered, each)), None)
        if waiting is None:
            # Its key is folded already.
            self._tier.find(self._lineage(tiered), tiered.safe_offset, self._on_found)
        else:
            self._check(standing, waiting)

    def _on_found(self, outcome: RemoteState | TierError) -> None:
        if not self._ended():
            return
        standing = self.standing()
        if isinstance(outcome, TierError):
            self._stumble(outcome, BACKOFF_MAX_MS)
        elif isinstance(standing, Refused) or not _is_behind(standing.tiered):
            return
        elif _is_next(standing.tiered, outcome.cut or outcome.segment):
            self._is_busy = True
            self._check(standing, outcome.cut or outcome.segment)
        else:
            reason = f"no file of its table is the copy of offset {standing.tiered.safe_offset} as it was written"
            self._stumble(TierError(TierFailure.ABSENT, reason), BACKOFF_MAX_MS)

    def _check(self, standing: Standing, segment: RemoteSegment) -> None:
        lineage, version = self._lineage(standing.tiered), standing.version
        self._tier.check(lineage, segment, lambda outcome: self._on_checked(version, segment, outcome))

    def _on_checked(self, version: int, segment: RemoteSegment, outcome: TierError | None) -> None:
        if not self._ended():
            return
        if outcome is not None:
            self._counts.damaged += outcome.failure is TierFailure.DAMAGED
            self._stumble(outcome, BACKOFF_MAX_MS)
            return
        self._counts.checks += 1
        self._succeed()
        standing = self.standing()
        # Keys that were made anew meanwhile may tell of another table: it is read back once more.
        if not isinstance(standing, Refused) and standing.version == version and _is_next(standing.tiered, segment):
            self._propose(standing, [Put(self._key, encode_tiered(standing.tiered.check(segment)))])


def _is_behind(tiered: Tiered) -> bool:
    return tiered.safe_offset < tiered.end_offset


def _is_next(tiered: Tiered, segment: RemoteSegment) -> bool:
    """Whether it is this copy that has to be read back next."""
    return segment.base_offset <= tiered.safe_offset < segment.end_offset <= tiered.end_offset
