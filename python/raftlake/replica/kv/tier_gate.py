"""What another node may propose for the keys of the remote tier: COPY_STARTED in its own name, and COPY_FINISHED.

Judged against the keys as the leader of the metadata log has applied them. A proposal that its condition will refuse passes.
"""

from __future__ import annotations

import re

from raftlake.kv.commands import ABSENT, Delete, Put, Txn
from raftlake.kv.keys import TIER_PREFIX
from raftlake.kv.machine import StateMachine
from raftlake.kv.strict_json import Refused
from raftlake.raft.types import NodeId
from raftlake.tier.entries import Tiered, decode_segment, decode_tiered

#: base64url of 16 bytes, and a partition.
_PARTITION_KEY = re.compile(re.escape(TIER_PREFIX) + r"[A-Za-z0-9_-]{22}/(0|[1-9][0-9]{0,9})")
_BASE_OFFSET = re.compile(r"[0-9]{20}")


def refusal_of_tier(txn: Txn, source: NodeId, machine: StateMachine) -> str | None:
    """Why a node may not propose it; None where it may. The first operation is on a key of the tier."""
    first, *others = txn.ops
    if not isinstance(first, Put) or not _PARTITION_KEY.fullmatch(first.key) or len(txn.compares) != 1:
        return "a node changes the tier's keys of one partition at a time, beginning with the partition's"
    compare = txn.compares[0]
    if compare.key != first.key or compare.version < ABSENT:
        return "a node changes the tier's keys under a condition on the partition's"
    wanted = decode_tiered(first.value)
    if isinstance(wanted, Refused):
        return wanted.reason
    entry = machine.get(first.key)
    if compare.version != (ABSENT if entry is None else entry.version):
        return None
    standing = None if entry is None else decode_tiered(entry.value)
    if isinstance(standing, Refused):
        return f"the key is spoilt: {standing.reason}"
    if wanted.copying is not None:
        return _refusal_of_start(wanted, standing, source) if not others else "COPY_STARTED changes one key"
    return _refusal_of_finish(first.key, wanted, standing, others)


def _refusal_of_start(wanted: Tiered, standing: Tiered | None, source: NodeId) -> str | None:
    copying = wanted.copying
    assert copying is not None
    if copying.node_id != source:
        return f"node {source} may not copy in the name of node {copying.node_id}"
    if standing is None:
        is_new = wanted.start_offset == wanted.end_offset and wanted.segments == wanted.size == wanted.incarnation == 0
        return None if is_new else "nothing of the partition is copied yet"
    return None if wanted == standing.start(copying) else "COPY_STARTED changes nothing but what is being copied"


def _refusal_of_finish(key: str, wanted: Tiered, standing: Tiered | None, others: list[Put | Delete]) -> str | None:
    if standing is None or not others or not isinstance(others[0], Put):
        return "COPY_FINISHED follows COPY_STARTED, and tells the copy"
    segment = decode_segment(others[0].value)
    if isinstance(segment, Refused):
        return segment.reason
    if segment.base_offset != standing.end_offset or wanted != standing.finish(segment):
        return "COPY_FINISHED goes on where the copies end"
    if others[0].key != f"{key}/{segment.base_offset:020}":
        return "a copy stands under its base offset"
    if not all(isinstance(other, Delete) and _is_segment_of(key, other.key) for other in others[1:]):
        return "COPY_FINISHED drops the keys of older copies of the partition alone"
    return None


def _is_segment_of(key: str, other: str) -> bool:
    return other.startswith(f"{key}/") and _BASE_OFFSET.fullmatch(other.removeprefix(f"{key}/")) is not None
