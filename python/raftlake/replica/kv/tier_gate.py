"""What another node may propose for the keys of the remote tier: its own COPY_STARTED and DELETE_STARTED, and how they end.

Judged against the keys as the leader of the metadata log has applied them. A proposal that its condition will refuse passes.
"""

from __future__ import annotations

import re
from dataclasses import replace

from raftlake.kv.commands import ABSENT, Delete, Put, Txn
from raftlake.kv.keys import TIER_PREFIX, tier_key, topic_key
from raftlake.kv.machine import StateMachine
from raftlake.kv.strict_json import Refused
from raftlake.raft.types import NodeId
from raftlake.replica.reserved import recovery_of
from raftlake.replica.reserved_rules import topic_under
from raftlake.tier.entries import Tiered, decode_segment, decode_tiered
from raftlake.wire.ids import id_to_text

#: base64url of 16 bytes, and a partition.
_PARTITION_KEY = re.compile(re.escape(TIER_PREFIX) + r"[A-Za-z0-9_-]{22}/(0|[1-9][0-9]{0,9})")
_BASE_OFFSET = re.compile(r"[0-9]{20}")


def refusal_of_tier(txn: Txn, source: NodeId, machine: StateMachine) -> str | None:
    """Why a node may not propose it; None where it may. The first operation is on a key of the tier."""
    first, *others = txn.changes
    if not isinstance(first, Put) or not _PARTITION_KEY.fullmatch(first.key) or len(txn.key_compares) != 1:
        return "a node changes the tier's keys of one partition at a time, beginning with the partition's"
    compare = txn.key_compares[0]
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
    if (standing is None or wanted.topic != standing.topic) and not _is_of_topic(first.key, wanted.topic, machine):
        return "a key of the tier is made for a partition of a topic that stands, and names the topic"
    if wanted.recovery != ("" if standing is None else standing.recovery):
        return _refusal_of_adoption(first.key, wanted, standing, others, machine)
    if standing is None:
        return _refusal_of_start(wanted, None, source) if not others else "COPY_STARTED changes one key"
    return _refusal_of_change(first.key, wanted, standing, others, source)


def _is_of_topic(key: str, name: str, machine: StateMachine) -> bool:
    """Whether the key is that of a partition of the topic. A key of no topic is taken for one of a deleted topic: the table of
    that name and id is emptied, and made first where there is none. Where the topic is not applied here yet, the node that asks
    tries again."""
    entry = machine.get(topic_key(name))
    topic = None if entry is None else topic_under(name, entry.value)
    partition = int(key.rpartition("/")[2])
    return topic is not None and key == tier_key(id_to_text(topic.topic_id), partition) and partition < topic.partitions


def _refusal_of_adoption(
    key: str, wanted: Tiered, standing: Tiered | None, others: list[Put | Delete], machine: StateMachine
) -> str | None:
    if wanted.recovery != recovery_of(machine):
        return "a table is taken over after the last recovery of the quorum"
    if wanted.incarnation < _first_incarnation(standing):
        return "a table that is taken over begins a new incarnation"
    if wanted.copying is not None or wanted.deleting is not None or wanted.checked_offset:
        return "nothing is under way in a table that was just taken over"
    for other in others:
        base = _base_offset(key, other.key)
        if base is None:
            return "a table is taken over with the keys of its own copies alone"
        segment = decode_segment(other.value) if isinstance(other, Put) else None
        if isinstance(segment, Refused):
            return segment.reason
        if segment is not None and (segment.base_offset != base or not wanted.shows(segment)):
            return "a copy of a table that is taken over stands under its base offset, within what is shown"
    return None


def _first_incarnation(standing: Tiered | None) -> int:
    """The least that a takeover may begin. A key that was made anew from its table names no recovery: its incarnation may be
    the one that this very recovery has begun."""
    if standing is None:
        return 0
    is_made_anew = standing.incarnation > 0 and not standing.recovery
    return standing.incarnation if is_made_anew else standing.incarnation + 1


def _refusal_of_change(key: str, wanted: Tiered, standing: Tiered, others: list[Put | Delete], source: NodeId) -> str | None:
    """By what is to change it is known which step it is."""
    if others and isinstance(others[0], Put):
        return _refusal_of_finish(key, wanted, standing, others)
    if standing.deleting is not None and wanted.deleting is None:
        return _refusal_of_delete_finish(key, wanted, standing, others)
    if others:
        return "COPY_FINISHED and DELETE_FINISHED alone change more than one key"
    if wanted.start_offset != standing.start_offset:
        return _refusal_of_delete_start(wanted, standing, source)
    if wanted.is_held != standing.is_held:
        is_hold = wanted == replace(standing, is_held=wanted.is_held)
        return None if is_hold else "HELD says whether local disks keep what they have, and changes nothing else"
    if wanted.checked_offset != standing.checked_offset:
        is_on = standing.safe_offset < wanted.checked_offset
        is_check = is_on and wanted == replace(standing, checked_offset=wanted.checked_offset)
        return None if is_check else "CHECKED goes on where the checks end, and changes nothing else"
    return _refusal_of_start(wanted, standing, source)


def _refusal_of_start(wanted: Tiered, standing: Tiered | None, source: NodeId) -> str | None:
    copying = wanted.copying
    if copying is None:
        return "COPY_FINISHED follows COPY_STARTED, and tells the copy"
    if copying.node_id != source:
        return f"node {source} may not copy in the name of node {copying.node_id}"
    if standing is None:
        new = Tiered(topic=wanted.topic, start_offset=wanted.end_offset, end_offset=wanted.end_offset)
        return None if wanted == replace(new, copying=copying) else "nothing of the partition is copied yet"
    return None if wanted == replace(standing, copying=copying) else "COPY_STARTED changes nothing but what is being copied"


def _refusal_of_finish(key: str, wanted: Tiered, standing: Tiered, others: list[Put | Delete]) -> str | None:
    first = others[0]
    assert isinstance(first, Put)
    segment = decode_segment(first.value)
    if isinstance(segment, Refused):
        return segment.reason
    if segment.base_offset != standing.end_offset:
        return "COPY_FINISHED goes on where the copies end"
    finished = standing.finish(segment)
    is_checked = finished.safe_offset == segment.base_offset and wanted == finished.check(segment)
    if wanted != finished and not is_checked:
        return "COPY_FINISHED adds the copy, and CHECKED where all before it is checked, and changes nothing else"
    if first.key != f"{key}/{segment.base_offset:020}":
        return "a copy stands under its base offset"
    if not all(isinstance(other, Delete) and _base_offset(key, other.key) is not None for other in others[1:]):
        return "COPY_FINISHED drops the keys of older copies of the partition alone"
    return None


def _refusal_of_delete_start(wanted: Tiered, standing: Tiered, source: NodeId) -> str | None:
    deleting = wanted.deleting
    if deleting is None or deleting.node_id != source:
        return f"DELETE_STARTED tells who deletes, and that is node {source}"
    if not standing.start_offset < wanted.start_offset < standing.end_offset:
        return "DELETE_STARTED goes on where the copies begin, and leaves the newest one"
    is_start = wanted == standing.start_deleting(wanted.start_offset, deleting)
    return None if is_start else "DELETE_STARTED changes nothing but the start of the copies"


def _refusal_of_delete_finish(key: str, wanted: Tiered, standing: Tiered, others: list[Put | Delete]) -> str | None:
    counted = replace(standing, segments=wanted.segments, size=wanted.size, log_bytes=wanted.log_bytes, deleting=None)
    if wanted != counted:
        return "DELETE_FINISHED changes nothing but how much is copied"
    for other in others:
        base = _base_offset(key, other.key) if isinstance(other, Delete) else None
        if base is None or base >= standing.start_offset:
            return "DELETE_FINISHED drops the keys of deleted copies of the partition alone"
    return None


def _base_offset(key: str, other: str) -> int | None:
    """Of the copy that the other key tells, None where it tells none of this partition."""
    rest = other.removeprefix(f"{key}/") if other.startswith(f"{key}/") else ""
    return int(rest) if _BASE_OFFSET.fullmatch(rest) else None
