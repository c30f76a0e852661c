"""The tables of deleted topics: the leader of the metadata log finds the tier's keys of topics that are gone, has their tables
emptied, and deletes the keys.

The keys stay until the table is empty. So whoever leads next, or starts again, goes on. One topic is seen to at a time. One
whose table cannot be emptied has its next turn behind the others. Each tick does a bounded piece: the keys are walked topic by
topic, and partition by partition.

A topic whose key holds a value that means nothing is not gone: its data stays, here as on local disks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from raftlake.errors import WireError
from raftlake.kv.commands import Compare, Delete, Txn
from raftlake.kv.keys import TIER_PREFIX, topic_key
from raftlake.kv.strict_json import Refused
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import RemoteTier, TierError
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome
from raftlake.replica.kv.service import KvService
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved_rules import PARTITIONS_MAX, topic_under
from raftlake.replica.tiering.step import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS, TierCounts
from raftlake.tier.entries import decode_tiered
from raftlake.wire.ids import id_from_text

logger = logging.getLogger("raftlake.tier")

#: Topics, or partitions of a deleted one, that a tick looks at.
LOOKS_PER_TICK = 100
#: Keys that one transaction deletes.
KEYS_PER_TXN = 100
#: Topics of which is told what stands in the way.
TOLD_MAX = 20
#: Follows all characters of partitions and offsets.
_BEHIND = "~"


@dataclass(slots=True)
class _Gone:
    """A topic that is gone, with what its keys have told so far."""

    topic_id: str
    name: str = ""
    #: One more than the highest.
    partitions: int = 0
    #: The last key that was looked at.
    seen: str | None = None
    is_read: bool = False
    is_dropped: bool = False


class GoneTopics:
    def __init__(self, engine: Engine, kv: KvService, quorum: Quorum, tier: RemoteTier, counts: TierCounts) -> None:
        self._engine = engine
        self._kv = kv
        self._quorum = quorum
        self._tier = tier
        self._counts = counts
        #: The epoch in which this node leads the metadata log, and looks.
        self._epoch = -1
        #: The last topic that was looked at.
        self._seen: str | None = None
        self._gone: _Gone | None = None
        self._is_busy = False
        self._retry_at_ms = 0
        self._failures = 0
        #: What stands in the way, by topic.
        self._errors: dict[str, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What stands in the way, for a health check."""
        return tuple(self._errors.values()) if self._leads() else ()

    def tick(self) -> None:
        """Called a few times a second."""
        if not self._leads():
            # What is under way means nothing any more: `_ended` compares the epochs.
            self._epoch, self._gone, self._is_busy = -1, None, False
            self._errors.clear()
            return
        partition = self._quorum.partition
        assert partition is not None
        if self._epoch != partition.core.epoch:
            self._epoch, self._gone, self._seen, self._is_busy = partition.core.epoch, None, None, False
        if not self._is_busy and self._engine.now_ms >= self._retry_at_ms:
            self._go_on()

    def _leads(self) -> bool:
        partition = self._quorum.partition
        # What it shows it has applied: a topic whose end is older than this leader is gone here.
        return partition is not None and partition.group == METADATA_GROUP and partition.is_serving

    def _go_on(self) -> None:
        gone = self._gone = self._gone or self._find()
        if gone is None:
            return
        if not gone.is_read:
            self._read(gone)
        if gone.is_read and not gone.is_dropped:
            self._drop(gone)
        elif gone.is_dropped:
            self._delete_keys(gone)

    # --- which topics are gone ---

    def _find(self) -> _Gone | None:
        known = self._kv.state.topic_ids
        for _ in range(LOOKS_PER_TICK):
            found, _ = self._kv.machine.list(TIER_PREFIX, self._seen, 1)
            if not found:
                self._seen = None
                return None
            topic_id = found[0][0].removeprefix(TIER_PREFIX).partition("/")[0]
            self._seen = f"{TIER_PREFIX}{topic_id}/{_BEHIND}"
            try:
                is_known = id_from_text(topic_id) in known
            except WireError:
                # No table is named so. A release that took such a key from any node may have left it.
                continue
            if not is_known:
                return _Gone(topic_id)
        return None

    def _read(self, gone: _Gone) -> None:
        """What the name and the highest partition of a deleted topic are."""
        prefix = f"{TIER_PREFIX}{gone.topic_id}/"
        for _ in range(LOOKS_PER_TICK):
            found, _ = self._kv.machine.list(prefix, gone.seen, 1)
            if not found:
                self._be_sure(gone)
                return
            key, entry = found[0]
            index = _partition_in(key, prefix)
            gone.seen = f"{prefix}{index}/{_BEHIND}"
            if index.isdecimal() and int(index) < PARTITIONS_MAX:
                gone.partitions = max(gone.partitions, int(index) + 1)
            tiered = decode_tiered(entry.value)
            gone.name = gone.name if isinstance(tiered, Refused) else tiered.topic

    def _be_sure(self, gone: _Gone) -> None:
        entry = self._kv.machine.get(topic_key(gone.name)) if gone.name else None
        if not gone.name:
            self._fail(f"the keys below {TIER_PREFIX}{gone.topic_id} name no topic: its table stays where it is", gone)
        elif entry is not None and topic_under(gone.name, entry.value) is None:
            # It is spoilt: the topic may have been this one.
            self._gone = None
        else:
            gone.is_read = True

    # --- its end ---

    def _drop(self, gone: _Gone) -> None:
        self._is_busy = True
        epoch = self._epoch
        group = GroupId(gone.name, 0, id_from_text(gone.topic_id))
        self._tier.drop(group, gone.partitions, lambda outcome: self._on_dropped(epoch, gone, outcome))

    def _on_dropped(self, epoch: int, gone: _Gone, outcome: TierError | None) -> None:
        if not self._ended(epoch):
            return
        if outcome is not None:
            self._fail(f"the table of the deleted topic {gone.name} ({gone.topic_id}) is not removed: {outcome.reason}", gone)
            return
        self._failures = 0
        self._errors.pop(gone.topic_id, None)
        self._counts.drops += 1
        gone.is_dropped = True
        self._delete_keys(gone)

    def _delete_keys(self, gone: _Gone) -> None:
        prefix = f"{TIER_PREFIX}{gone.topic_id}/"
        found, has_more = self._kv.machine.list(prefix, None, KEYS_PER_TXN)
        if not found:
            self._gone = None
            return
        if has_more:
            # The key of a partition goes with all that is below it: what is left names the topic to who looks anew.
            last = _partition_in(found[-1][0], prefix)
            found = tuple(entry for entry in found if _partition_in(entry[0], prefix) != last) or found
        self._is_busy = True
        epoch = self._epoch
        compares = tuple(Compare(key, entry.version) for key, entry in found)
        deletes = tuple(Delete(key) for key, _ in found)

        def on_outcome(outcome: ProposeOutcome) -> None:
            if self._ended(epoch) and (outcome.result is None or not outcome.result.succeeded):
                # Somebody who did not know yet has written there: look at the topic anew.
                self._gone = None

        self._kv.propose(Txn(compares, deletes), on_outcome, Origin.SELF)

    def _ended(self, epoch: int) -> bool:
        self._engine.begin_input()
        if epoch != self._epoch:
            return False
        self._is_busy = False
        return True

    def _fail(self, reason: str, gone: _Gone) -> None:
        self._gone = None
        is_told = gone.topic_id in self._errors
        if not is_told:
            logger.warning("%s", reason)
        if is_told or len(self._errors) < TOLD_MAX:
            self._errors[gone.topic_id] = reason
        self._counts.failures += 1
        self._retry_at_ms = self._engine.now_ms + min(RETRY_BACKOFF_MS << min(self._failures, 10), RETRY_BACKOFF_MAX_MS)
        self._failures += 1


def _partition_in(key: str, prefix: str) -> str:
    """The part of a key below the prefix of a topic that names the partition."""
    return key.removeprefix(prefix).partition("/")[0]
