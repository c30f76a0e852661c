"""What the remote tier promises (promise 8), as far as the quorum's keys and the local logs go. The store itself judges each
commit (`sim.tier`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raftlake.kv.keys import tier_key
from raftlake.ports.tier import Lineage, LineageEnd
from raftlake.replica.node import ReplicaNode
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.tier.entries import Tiered, decode_tiered
from raftlake.wire.ids import id_to_text

NOTHING_UNCOPIED = "nothing is deleted here before the table shows it"
KEYS_FOLLOW = "the quorum's keys tell of no copy that the table does not show"
ALL_COPIED = "without faults everything committed is copied to the tier"


def check_tier(nodes: Iterable[ReplicaNode], ends: Mapping[Lineage, LineageEnd]) -> None:
    """At any moment, for all running nodes. Raises Violation."""
    for node in nodes:
        for lineage, shown in ends.items():
            end = 0 if shown.last is None else shown.last.end_offset
            partition = node.partitions.get(lineage.group)
            if partition is not None and partition.log.start_offset > end:
                detail = f"node {node.config.node_id}: {lineage.group} begins at {partition.log.start_offset}, copied is {end}"
                raise Violation(NOTHING_UNCOPIED, detail)
            tiered = tiered_of(node, lineage)
            if tiered is not None and tiered.end_offset > max(end, tiered.start_offset):
                detail = f"node {node.config.node_id}: {lineage.group} is copied up to {tiered.end_offset}, shown is {end}"
                raise Violation(KEYS_FOLLOW, detail)


def tiered_of(node: ReplicaNode, lineage: Lineage) -> Tiered | None:
    """What the keys say, as the node has applied them."""
    entry = node.kv.machine.get(tier_key(id_to_text(lineage.group.topic_id), lineage.group.partition))
    tiered = None if entry is None else decode_tiered(entry.value)
    return tiered if isinstance(tiered, Tiered) else None


def uncopied(nodes: Iterable[ReplicaNode], ends: Mapping[Lineage, LineageEnd], committed: CommittedLogs) -> list[str]:
    """What is not copied yet, or not known to be, one line each."""
    found: list[str] = []
    for lineage, shown in ends.items():
        end, wanted = 0 if shown.last is None else shown.last.end_offset, committed.of(lineage.group).end
        if end != wanted:
            found.append(f"{lineage.group} is copied up to {end} of {wanted}")
        for node in nodes:
            tiered = tiered_of(node, lineage)
            if tiered is not None and (tiered.end_offset != end or tiered.copying is not None):
                found.append(f"node {node.config.node_id} has {tiered} for {lineage.group}, which is copied up to {end}")
    return found
