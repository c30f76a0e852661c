"""A compacted topic: what readers were shown, and what replicas hold in the end, judged by all that was ever committed.

The promises (KIP-58): a reader that begins at the start and comes to the end has the last value of each key, and no key that
was deleted. It may miss a tombstone only when it was slower than `delete.retention.ms`, or when several nodes answered it: each
compacts when it gets to it. Each record that is shown stands in the committed log, at its offset, with all that its producer
gave it. Each replica shows all of that for good.

Knows records only, and nothing of what compaction is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raftlake.raft.types import NodeId
from raftlake.sim.histories.transactions import standing
from raftlake.sim.invariants.base import Violation
from raftlake.wire.batches import Record, decode_records, parse_header

#: What is promised, for the messages.
AS_WRITTEN = "a compacted topic shows what was written, where it was written"
LAST_VALUES = "a full read of a compacted topic shows the last value of each key"
STAYS_DELETED = "a key that was deleted does not come back"


@dataclass(slots=True)
class FullRead:
    """From the beginning of the log to its end, over many answers, perhaps of several nodes."""

    reader: str
    start: int = 0
    #: Where the next answer begins, and in the end: where the log ended, or its stable part.
    position: int = 0
    began_ms: int = 0
    ended_ms: int = 0
    #: How much was committed anywhere when the last answer came.
    committed_end: int = 0
    records: list[Record] = field(default_factory=list)
    #: Those that it was shown records by.
    nodes: set[NodeId] = field(default_factory=set)


class Written:
    """All that was ever committed to one partition."""

    def __init__(self, batches: Sequence[bytes]) -> None:
        data = [batch for batch in batches if not parse_header(batch).is_control]
        self.records: Mapping[int, Record] = {record.offset: record for batch in data for record in decode_records(batch)}
        #: Those whose transactions are not aborted.
        self._visible = standing(batches).visible

    def newest(self, end: int) -> dict[bytes, Record]:
        """By key: its newest record below `end` that is of no aborted transaction."""
        visible = (self.records[offset] for offset in self._visible if offset < end)
        return {record.key: record for record in visible if record.key is not None}

    def is_visible(self, record: Record) -> bool:
        return record.offset in self._visible

    def require_as_written(self, where: str, records: Iterable[Record]) -> None:
        """Raises Violation for a record that does not stand there, or comes out of order."""
        before = -1
        for record in records:
            if self.records.get(record.offset) != record or record.offset <= before:
                detail = f"{where}: {record} behind offset {before}, and {self.records.get(record.offset)} was written there"
                raise Violation(AS_WRITTEN, detail)
            before = record.offset


def check_read(read: FullRead, written: Written, *, trimmed_to: int, retention_ms: int) -> None:
    """Raises Violation. What lies below `trimmed_to` may have been deleted at any time. A reader that took less than
    `retention_ms`, at one node, was shown all tombstones of what it was shown."""
    where = f"{read.reader} from {read.start} at {read.began_ms} ms to {read.position} at {read.ended_ms} ms"
    written.require_as_written(where, read.records)
    visible = [record for record in read.records if written.is_visible(record)]
    shown = {record.key: record for record in visible}
    may_miss_tombstones = len(read.nodes) > 1 or read.ended_ms - read.began_ms >= retention_ms
    for key, newest in written.newest(read.committed_end).items():
        if newest.offset >= read.position or newest.offset < max(read.start, trimmed_to):
            # A node that lags behind others ends early.
            continue
        last = shown.get(key)
        if last == newest:
            continue
        if newest.value is not None:
            raise Violation(LAST_VALUES, f"{where}: {last} is the last of its key, and {newest} was written")
        if last is not None and not may_miss_tombstones:
            raise Violation(STAYS_DELETED, f"{where}: {last} was shown, and not {newest}")


def check_replica(where: str, start: int, batches: Iterable[bytes], written: Written) -> None:
    """In the end, of a log that begins at `start` and has all that is committed. Raises Violation."""
    held = [record for batch in batches if not parse_header(batch).is_control for record in decode_records(batch)]
    written.require_as_written(where, held)
    last = {record.key: record for record in held if written.is_visible(record)}
    for key, newest in written.newest(1 << 62).items():
        found = last.get(key)
        if found == newest or (found is None and (newest.value is None or newest.offset < start)):
            continue
        promise = LAST_VALUES if newest.value is not None else STAYS_DELETED
        raise Violation(promise, f"{where} from {start} on: {found} is the last of its key, and {newest} was written")
