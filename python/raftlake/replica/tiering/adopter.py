"""One partition that this node leads after an unclean election, and its table: the leader's history takes it over first.

`raftlake recover` notes itself in the quorum (`INCARNATION_KEY`). A partition whose key names no recovery, or an older one, may
have a table that shows what the leader never had. So before anything else the leader has the tier begin a new incarnation
(`RemoteTier.adopt`), and puts what the table shows then in place of the keys. A recovery adopts each table once.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.kv.commands import Delete, Put
from raftlake.kv.keys import tier_segment_key
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import AdoptRequest, LineageFacts, RemoteTier, TierError
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.reserved import recovery_of
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.step import Standing, Step, TierCounts
from raftlake.tier.entries import Tiered, adopted, encode_segment, encode_tiered


class Adopter(Step):
    """See `Step`."""

    purpose = "its table is not taken over after the recovery, and nothing is copied"

    def __init__(
        self,
        engine: Engine,
        kv: KvService,
        tier: RemoteTier,
        partition: Partition,
        remote_log: RemoteLog,
        counts: TierCounts | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(engine, kv, tier, partition, counts, then)
        self._remote_log = remote_log
        #: What the table shows since it was taken over, and the key of that version does not say so yet.
        self._facts: tuple[int, LineageFacts] | None = None

    @property
    def is_due(self) -> bool:
        """The table is of the time before the recovery: nobody else may act."""
        standing = self.standing()
        return not isinstance(standing, Refused) and standing.tiered.recovery != recovery_of(self._kv.machine)

    def go_on(self) -> None:
        standing = self.standing() if self._may_act and self.is_due else None
        if standing is None or isinstance(standing, Refused):
            return
        if self._facts is not None and self._facts[0] == standing.version:
            self._finish(standing, self._facts[1])
        else:
            # Keys that were made anew want to be taken over once more: the table may show more by now.
            self._adopt(standing)

    def _adopt(self, standing: Standing) -> None:
        partition = self._partition
        request = AdoptRequest(
            group=partition.group,
            leader_epoch=self.epoch,
            recovery=recovery_of(self._kv.machine),
            epochs=tuple(self._remote_log.epochs(partition)),
            log_start=partition.log.start_offset,
            end_offset=partition.high_watermark,
            is_continued=standing.tiered.end_offset > standing.tiered.start_offset,
        )
        self._is_busy = True
        self._tier.adopt(request, lambda outcome: self._on_adopted(standing, outcome))

    def _on_adopted(self, standing: Standing, outcome: LineageFacts | TierError) -> None:
        if not self._ended():
            return
        if isinstance(outcome, TierError):
            self._stumble(outcome)
            return
        self._facts = standing.version, outcome
        self._succeed()
        self._then()

    def _finish(self, standing: Standing, facts: LineageFacts) -> None:
        tiered: Tiered = adopted(facts, recovery_of(self._kv.machine))
        index = self._partition.group.partition
        shown = {tier_segment_key(self._topic_id, index, each.base_offset): encode_segment(each) for each in facts.newest}
        gone = [Delete(key) for key, _ in self._segments() if key not in shown]
        self._propose(standing, [Put(self._key, encode_tiered(tiered)), *(Put(*each) for each in shown.items()), *gone])
