"""The quorum's keys of one partition, made anew from its table alone: for keys that are lost, spoilt, or say what is not there.

It is the operator's word too that the tier shall go by what the table shows now (`RemoteTier.accept`), where other programs
have changed it. A table with a hole, with an offset twice, or without its beginning is refused, and nothing is changed. So is
one that ends before the log of any voter begins: once that voter leads, nobody is served the records between the two. Of a
voter that does not answer the key tells how far it may have deleted. Where a table lost what was read back, the key first
says that nothing more is deleted, and the voters are asked once more.

Only the leader of the metadata log does it, for no other node could prove to it what a table shows. The keys are replaced under
a condition on what stood there before the table was read. So a copy that is announced or finished meanwhile is not forgotten:
the table is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.keys import tier_key, tier_segment_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import LineageFacts, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.reserved import recovery_of
from raftlake.replica.tiering.local_start import LocalStarts
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
        ask_starts: Callable[[Callable[[LocalStarts], None]], None],
        done: Callable[[Rebuilt], None],
    ) -> None:
        """`ask_starts`: where the local logs of the partition begin at the voters."""
        self._kv = kv
        self._tier = tier
        self._group = group
        self._ask_starts = ask_starts
        self._done = done
        self._key = tier_key(id_to_text(group.topic_id), group.partition)
        self._tries = TRIES
        #: The voters that did not tell where their logs begin, and why.
        self._silent = ""

    def begin(self) -> None:
        """Read the table, and then replace the keys."""
        entry = self._kv.machine.get(self._key)
        version = ABSENT if entry is None else entry.version
        known = None if entry is None else decode_tiered(entry.value)
        # Before a table is taken over after a recovery, it may show less than the key says.
        is_known = isinstance(known, Tiered) and known.recovery == recovery_of(self._kv.machine)
        standing = known if isinstance(known, Tiered) and is_known else None
        if self._recovery() != recovery_of(self._kv.machine):
            self._accept(version, standing, None)
        else:
            self._ask_starts(lambda starts: self._on_starts(version, standing, starts))

    def _on_starts(self, version: int, standing: Tiered | None, starts: LocalStarts) -> None:
        reach, self._silent = starts.last, starts.silent
        if starts.silent:
            if standing is None:
                self._done(Rebuilt(error=TierError(TierFailure.UNKNOWN, self._nobody_tells(starts.silent))))
                return
            reach = max(reach, standing.safe_offset)
        self._accept(version, standing, reach)

    def _accept(self, version: int, standing: Tiered | None, reach: Offset | None) -> None:
        # Deleted records need no rows: that is the way out where files are lost for good.
        begin = None if standing is None else max(standing.start_offset, self._kv.state.records_from(self._group))
        self._tier.accept(self._group, begin, reach, lambda outcome: self._on_facts(version, standing, outcome))

    def _on_facts(self, version: int, standing: Tiered | None, outcome: LineageFacts | TierError) -> None:
        if isinstance(outcome, TierError):
            silent = f". No answer came from {self._silent}" if self._silent else ""
            self._done(Rebuilt(error=replace(outcome, reason=f"{outcome.reason}{silent}")))
        elif standing is not None and not standing.is_held and outcome.end_offset < standing.safe_offset:
            # Until they hear of the new end, local disks delete up to the old one.
            held = Put(self._key, encode_tiered(replace(standing, is_held=True)))
            self._kv.propose(Txn((Compare(self._key, version),), (held,)), self._on_held, Origin.SELF)
        else:
            self._replace(version, outcome)

    def _on_held(self, outcome: ProposeOutcome) -> None:
        if outcome.status is not ProposeStatus.DONE or outcome.result is None:
            self._done(Rebuilt(outcome=outcome))
        else:
            self._try_again()

    def _replace(self, version: int, outcome: LineageFacts) -> None:
        tiered = adopted(outcome, self._recovery())
        topic_id, index = id_to_text(self._group.topic_id), self._group.partition
        shown = {tier_segment_key(topic_id, index, each.base_offset): encode_segment(each) for each in outcome.newest}
        known, _ = self._kv.machine.list(f"{self._key}/", None, SEGMENT_KEYS_MAX + 1)
        operations: list[Put | Delete] = [Put(self._key, encode_tiered(tiered))]
        operations += [Put(*each) for each in shown.items()]
        operations += [Delete(key) for key, _ in known if key not in shown]
        txn = Txn((Compare(self._key, version),), tuple(operations))
        self._kv.propose(txn, lambda told: self._on_outcome(tiered, told), Origin.SELF)

    def _nobody_tells(self, silent: str) -> str:
        return (
            f"these voters do not tell where their logs of {self._group} begin: {silent}; nothing was changed: start them, or "
            "take them out of the voters (`raftlake voters remove`), and try again"
        )

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
        else:
            self._try_again()

    def _try_again(self) -> None:
        if self._tries > 1:
            self._tries -= 1
            self.begin()
        else:
            reason = f"the keys changed each time that the table of {self._group} was read; nothing was changed: try again"
            self._done(Rebuilt(error=TierError(TierFailure.ELSEWHERE, reason)))
