"""The key space as a surviving directory has it, and what it says of the tables: how far each partition was copied.

Read are the newest snapshot that is whole, and the log behind it. The end of the log may never have been committed, and the
lost nodes may have known more: what is not here may have been all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from raftlake.errors import CorruptBatch, WireError
from raftlake.kv.keys import TIER_PREFIX, start_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.partition.snapshot_files import scan
from raftlake.replica.reserved import RecordStart
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.runtime.recovery.lost_majority import headers_in
from raftlake.storage.directory import FileLogDirectory
from raftlake.tier.entries import Tiered, decode_tiered
from raftlake.wire.batches import decode_records
from raftlake.wire.ids import id_from_text, id_to_text

_PAGE = 1_000


def key_space(logs: FileLogDirectory) -> StateMachine:
    """Raises StorageError, DamagedData."""
    machine = StateMachine(rules=ReservedRules)
    for snapshot_id in reversed(logs.snapshots.ids(METADATA_GROUP)):
        try:
            batches = scan(logs.snapshots, METADATA_GROUP, snapshot_id)
            machine.restore(record.value or b"" for batch in batches for record in decode_records(batch.data))
        except (CorruptBatch, WireError):
            # An older one and the log say the same; `examine` tells of damage.
            continue
        break
    log = logs.open(METADATA_GROUP)
    for chunk, header in headers_in(METADATA_GROUP, log, Offset(max(log.start_offset, machine.applied_offset))):
        for record in decode_records(memoryview(chunk)[header.position : header.end_position]):
            # A command is never at 0.
            if record.offset >= max(machine.applied_offset, 1):
                machine.apply(record.offset, record.value or b"")
    return machine


def starts_within(machine: StateMachine, ends: Mapping[tuple[bytes, int], Offset], recovery: str) -> dict[str, bytes]:
    """The keys of deleted records that tell of more than is left, as they are to be after the recovery of that name. Without it
    new records would stand below an old start, and nobody would see them. `ends` are those of the logs, by topic id and
    partition; a log that is not named is empty. What an interrupted recovery wrote is written again."""
    assert isinstance(machine.rules, ReservedRules)
    found: dict[str, bytes] = {}
    for group, start in sorted(machine.rules.starts.items()):
        end = ends.get(group, Offset(0))
        if start.offset > end or start.recovery == recovery:
            found[start_key(id_to_text(group[0]), group[1])] = RecordStart(min(start.offset, end), recovery).encode()
    return found


def copied_partitions(machine: StateMachine) -> Mapping[GroupId, Tiered]:
    """What the keys say of the partitions whose tables show records. Keys that mean nothing are left out."""
    found: dict[GroupId, Tiered] = {}
    after: str | None = None
    is_more = True
    while is_more:
        entries, is_more = machine.list(TIER_PREFIX, after, _PAGE)
        for key, entry in entries:
            after = key
            topic_id, slash, partition = key.removeprefix(TIER_PREFIX).partition("/")
            tiered = decode_tiered(entry.value) if slash and partition.isdecimal() else None
            if not isinstance(tiered, Tiered) or tiered.end_offset <= tiered.start_offset:
                continue
            with suppress(WireError):
                found[GroupId(tiered.topic, int(partition), id_from_text(topic_id))] = tiered
    return found
