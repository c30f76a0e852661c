"""The quorum's keys of one partition, made anew from its table alone: for keys that are lost, spoilt, or say what is not there.

It is the operator's word too that the tier shall go by what the table shows now (`RemoteTier.accept`), where other programs
have changed it. A table with a hole, with an offset twice, or without its beginning is refused, and nothing is changed. So is
one that ends before the log of the partition's leader begins: it would serve nothing any more.

Only the leader of the metadata log does it, for no other node could prove to it what a table shows. The keys are replaced under
a condition on what stood there before the table was read. So a copy that is announced or finished meanwhile is not forgotten:
the table is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.keys import tier_key, tier_segment_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import LineageFacts, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.reserved import recovery_of
from raftlake.replica.tiering.local_start import Told
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Tiered, adopted, decode_tiered, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

#: How often a table is read while its partition is being copied.
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What became of it. `tiered` is what the keys say now, None where nothing was changed."""

    tiered: Tiered | None = None
    #: Why nothing was changed; what the tier says, or the quorum.
    error: TierError | None = None
    outcome: ProposeOutcome | None = None


class Rebuild:
    """One run for one partition. `done` is called once."""

    def __init__(
        self,
        kv: KvService,
        tier: RemoteTier,
        group: GroupId,
        ask_start: Callable[[Told], None],
        done: Callable[[Rebuilt], None],
    ) -> None:
        """`ask_start`: where the local log of the partition's leader begins."""
        self._kv = kv
        self._tier = tier
        self._group = group
        self._ask_start = ask_start
        self._done = done
        self._key = tier_key(id_to_text(group.topic_id), group.partition)
        self._tries = TRIES

    def begin(self) -> None:
        """Read the table, and then replace the keys."""
        entry = self._kv.machine.get(self._key)
        version = ABSENT if entry is None else entry.version
        known = None if entry is None else decode_tiered(entry.value)
        # Before a table is taken over after a recovery, it may show less than the key says.
        is_known = isinstance(known, Tiered) and known.recovery == recovery_of(self._kv.machine)
        begin = known.start_offset if isinstance(known, Tiered) and is_known else None
        if self._recovery() != recovery_of(self._kv.machine):
            self._accept(version, begin, None)
        else:
            self._ask_start(lambda start: self._on_start(version, begin, start))

    def _on_start(self, version: int, begin: Offset | None, start: Offset | str) -> None:
        """A table that ends before it would serve nothing any more."""
        if isinstance(start, str):
            reason = f"nobody tells where the log of {self._group} begins: {start}; nothing was changed: try again"
            self._done(Rebuilt(error=TierError(TierFailure.UNKNOWN, reason)))
        else:
            self._accept(version, begin, start)

    def _accept(self, version: int, begin: Offset | None, reach: Offset | None) -> None:
        self._tier.accept(self._group, begin, reach, lambda outcome: self._on_facts(version, outcome))

    def _on_facts(self, version: int, outcome: LineageFacts | TierError) -> None:
        if isinstance(outcome, TierError):
            self._done(Rebuilt(error=outcome))
            return
        tiered = adopted(outcome, self._recovery())
        topic_id, index = id_to_text(self._group.topic_id), self._group.partition
        shown = {tier_segment_key(topic_id, index, each.base_offset): encode_segment(each) for each in outcome.newest}
        known, _ = self._kv.machine.list(f"{self._key}/", None, SEGMENT_KEYS_MAX + 1)
        operations: list[Put | Delete] = [Put(self._key, encode_tiered(tiered))]
        operations += [Put(*each) for each in shown.items()]
        operations += [Delete(key) for key, _ in known if key not in shown]
        txn = Txn((Compare(self._key, version),), tuple(operations))
        self._kv.propose(txn, lambda told: self._on_outcome(tiered, told), Origin.SELF)

    def _recovery(self) -> str:
        """What the key says of it, as far as it can be read. Else the leader takes the table over, as after a recovery."""
        entry = self._kv.machine.get(self._key)
        known = None if entry is None else decode_tiered(entry.value)
        return known.recovery if isinstance(known, Tiered) else ""

    def _on_outcome(self, tiered: Tiered, outcome: ProposeOutcome) -> None:
        if outcome.status is not ProposeStatus.DONE or outcome.result is None:
            self._done(Rebuilt(outcome=outcome))
        elif outcome.result.succeeded:
            self._done(Rebuilt(tiered=tiered))
        elif self._tries > 1:
            self._tries -= 1
            self.begin()
        else:
            reason = f"the keys changed each time that the table of {self._group} was read; nothing was changed: try again"
            self._done(Rebuilt(error=TierError(TierFailure.ELSEWHERE, reason)))
