"""One partition that this node leads: who copies, who reads copies back, who removes old ones, and that they take turns.

One of them acts at a time, so one call that changes the lineage is under way. Who has ended something comes last: a partition
that is always behind with its copies has them checked, and its old ones removed, all the same. No one acts before the node has
the quorum's keys (`current_keys`). After an unclean election no one acts before the table is taken over. Where another program
has changed the table, local disks are held first (`holder`).
"""

from __future__ import annotations

from functools import partial

from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteTier, TierError, TierFailure
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.adopter import Adopter
from raftlake.replica.tiering.checker import Checker
from raftlake.replica.tiering.copier import Copier
from raftlake.replica.tiering.current_keys import CurrentKeys
from raftlake.replica.tiering.holder import Holder
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remover import Remover
from raftlake.replica.tiering.step import Standing, Step, TierCounts


class LedPartition:
    """Made for one epoch of leadership, and closed with it."""

    def __init__(
        self,
        engine: Engine,
        kv: KvService,
        tier: RemoteTier,
        partition: Partition,
        remote_log: RemoteLog,
        counts: TierCounts,
        findings: Findings,
    ) -> None:
        self._keys = CurrentKeys(engine, kv)
        # An answer calls it, outside the turns that look for damage of the log.
        go_on = partial(findings.guarded, partition.group, self.go_on)
        self.adopter = Adopter(engine, kv, tier, partition, remote_log, counts, go_on)
        self.copier = Copier(engine, kv, tier, partition, counts, go_on)
        self.checker = Checker(engine, kv, tier, partition, counts, go_on)
        self.remover = Remover(engine, kv, tier, partition, counts, go_on)
        others: list[Step] = [self.adopter, self.copier, self.checker, self.remover]
        self.holder = Holder(engine, kv, tier, partition, others, counts, go_on)
        #: In the order of their turns.
        self._steps: list[Step] = [self.copier, self.checker, self.remover]
        self.epoch = partition.core.epoch

    @property
    def is_busy(self) -> bool:
        """A call of the tier, or a proposal, is under way."""
        return self.adopter.is_busy or self.holder.is_busy or any(step.is_busy for step in self._steps)

    @property
    def is_due(self) -> bool:
        """There is something to do besides copies."""
        steps = (self.holder, self.adopter, self.checker, self.remover)
        return self._keys.are_here and any(step.is_due for step in steps)

    @property
    def failing(self) -> Step | None:
        """Who does not get on; what is not copied goes before what is not checked."""
        steps = (self.adopter, self.copier, self.checker, self.remover, self.holder)
        return next((step for step in steps if step.error is not None), None)

    @property
    def error(self) -> TierError | None:
        """What stands in the way."""
        failing = self.failing
        return None if failing is None else failing.error

    def is_alarming(self, since_ms: int) -> bool:
        """Whether something fails that a retry does not mend, or that has failed since then by the wall clock."""
        failing = self.failing
        if failing is None or failing.error is None:
            return False
        return failing.error.failure is not TierFailure.UNKNOWN or failing.failing_since_ms <= since_ms

    def standing(self) -> Standing | Refused:
        """What is copied, as far as this node has applied it."""
        return self.copier.standing()

    def close(self) -> None:
        """The node leads the partition no longer in this epoch."""
        for step in (self.adopter, self.holder, *self._steps):
            step.close()

    def learn(self) -> None:
        """Ask for the quorum's keys, where they are not here. Called in each tick."""
        self._keys.ask()

    def go_on(self) -> None:
        """Let the next one act that has something to do: who has begun something ends it first."""
        if self.is_busy or not self._keys.are_here:
            return
        if self.holder.is_due:
            self.holder.go_on()
            if self.holder.is_busy:
                return
        if self.adopter.is_due:
            self.adopter.go_on()
            return
        for step in sorted(self._steps, key=lambda step: not step.is_midway):
            step.go_on()
            if step.is_busy:
                self._steps.remove(step)
                self._steps.append(step)
                return
