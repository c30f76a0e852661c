"""What the remote tier promises (promise 8), as far as the quorum's keys and the local logs go. The store itself judges each
commit (`sim.tier`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

from raftlake.kv.keys import TIER_PREFIX, TOPICS_PREFIX, tier_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.tier import Lineage, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved_rules import topic_under
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.tier_table import NOT_OURS, Shown
from raftlake.tier.entries import Tiered, decode_tiered
from raftlake.wire.batches import decode_records, parse_header
from raftlake.wire.ids import id_to_text

NOTHING_UNCHECKED = "nothing is deleted here before the table gave it back"
KEYS_FOLLOW = "the quorum's keys tell of no copy that the table does not show"
NO_GAP = "the table shows what the quorum's keys say without a gap"
STARTED_FIRST = "nothing leaves a table before the quorum's keys say so"
NO_FALSE_ALARM = "no leader asks an operator to mend what is well"
ALL_COPIED = "without faults everything committed is copied to the tier"

Tables = Mapping[Lineage, Shown]


class CommittedKeys:
    """The key space as the committed metadata log makes it, whatever a node has applied of it."""

    def __init__(self, committed: CommittedLogs) -> None:
        self._log = committed.of(METADATA_GROUP)
        self._machine = StateMachine()
        self._batches = 0

    def machine(self) -> StateMachine:
        """All that is committed so far."""
        for batch in self._log.batches[self._batches :]:
            if not parse_header(batch.data, 0).is_control:
                for record in decode_records(batch.data):
                    self._machine.apply(record.offset, record.value or b"")
            self._machine.advance_to(batch.end)
        self._batches = len(self._log.batches)
        return self._machine

    def tiered(self, lineage: Lineage) -> Tiered | None:
        """What is committed of a lineage."""
        return tiered_in(self.machine(), lineage)

    def may_delete(self, lineage: Lineage, until: Offset) -> bool:
        """Whether DELETE_STARTED says that records below `until` go. With the topic all of it goes."""
        tiered = self.tiered(lineage)
        return tiered is None or until <= tiered.start_offset


def check_tier(nodes: Iterable[ReplicaNode], tables: Tables, keys: CommittedKeys) -> None:
    """At any moment, for all running nodes. Raises Violation."""
    for lineage, shown in tables.items():
        _check_table(lineage, shown, keys.tiered(lineage))
    for node in nodes:
        _check_alarms(node)
        for lineage, shown in tables.items():
            end = 0 if shown.newest is None else shown.newest.end_offset
            partition = node.partitions.get(lineage.group)
            if partition is not None and not shown.is_dropped:
                standing = keys.tiered(lineage)
                safe = shown.checked_end(Offset(0) if standing is None else standing.start_offset)
                start = partition.log.start_offset
                if start > safe:
                    detail = f"node {node.config.node_id}: {lineage.group} begins at {start}, checked is {safe}"
                    raise Violation(NOTHING_UNCHECKED, detail)
            tiered = tiered_in(node.kv.machine, lineage)
            if tiered is not None and tiered.end_offset > max(end, tiered.start_offset):
                detail = f"node {node.config.node_id}: {lineage.group} is copied up to {tiered.end_offset}, shown is {end}"
                raise Violation(KEYS_FOLLOW, detail)


def _check_alarms(node: ReplicaNode) -> None:
    """Nothing spoils keys and logs here: so only the store may say what a retry does not mend."""
    for status in node.tiering.statuses():
        error = status.error
        if error is not None and error.failure is TierFailure.UNUSABLE and error != NOT_OURS:
            raise Violation(NO_FALSE_ALARM, f"node {node.config.node_id}: {status.group}: {error.reason}")


def _check_table(lineage: Lineage, shown: Shown, tiered: Tiered | None) -> None:
    for before, after in pairwise(shown.segments):
        if before.end_offset != after.base_offset:
            raise Violation(NO_GAP, f"{lineage.group}: {after.base_offset} follows {before.end_offset}")
    if tiered is None or tiered.incarnation != lineage.incarnation or shown.newest is None or shown.is_dropped:
        return
    start = shown.start_offset
    is_whole = start <= tiered.start_offset if tiered.deleting is not None else start == tiered.start_offset
    if not is_whole or tiered.end_offset > shown.newest.end_offset:
        end = shown.newest.end_offset
        said = f"[{tiered.start_offset}, {tiered.end_offset})"
        raise Violation(NO_GAP, f"{lineage.group}: the keys say {said}, the table has [{start}, {end})")


def tiered_in(machine: StateMachine, lineage: Lineage) -> Tiered | None:
    """What the keys say of a lineage."""
    entry = machine.get(tier_key(id_to_text(lineage.group.topic_id), lineage.group.partition))
    return None if entry is None else _tiered(entry.value)


@lru_cache(maxsize=256)
def _tiered(value: bytes) -> Tiered | None:
    """Every node and every look has the same few values: a tenth of a run with a tier went into reading them again."""
    tiered = decode_tiered(value)
    return tiered if isinstance(tiered, Tiered) else None


def uncopied(nodes: Iterable[ReplicaNode], tables: Tables, committed: CommittedLogs) -> list[str]:
    """What is not copied yet, not read back, half deleted, or not known to be, one line each."""
    found: list[str] = []
    for lineage, shown in tables.items():
        end, wanted = 0 if shown.newest is None else shown.newest.end_offset, committed.of(lineage.group).end
        if end != wanted:
            found.append(f"{lineage.group} is copied up to {end} of {wanted}")
        for node in nodes:
            tiered = tiered_in(node.kv.machine, lineage)
            is_over = tiered is not None and tiered.copying is None and tiered.deleting is None
            if tiered is not None and not (is_over and tiered.end_offset == end == tiered.safe_offset):
                found.append(f"node {node.config.node_id} has {tiered} for {lineage.group}, which is copied up to {end}")
    return found


def undropped(tables: Tables, keys: CommittedKeys) -> list[str]:
    """Tables of deleted topics that show something, and keys of them, one line each."""
    machine = keys.machine()
    topics = [
        topic_under(key.removeprefix(TOPICS_PREFIX), entry.value) for key, entry in machine.list(TOPICS_PREFIX, None, 1000)[0]
    ]
    alive = {id_to_text(topic.topic_id) for topic in topics if topic is not None}
    told = [key for key, _ in machine.list(TIER_PREFIX, None, 1 << 20)[0]]
    found = [
        f"{key} stands, and its topic is gone" for key in told if key.removeprefix(TIER_PREFIX).partition("/")[0] not in alive
    ]
    for lineage, shown in tables.items():
        if shown.segments and id_to_text(lineage.group.topic_id) not in alive:
            found.append(f"{lineage.group} is gone, and its table shows {len(shown.segments)} copies")
    return found
