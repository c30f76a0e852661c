"""What has ever been committed, as the first node showed it; the ground on which several invariants stand.

Owns one list of batches per group: the bytes below the highest high watermark that any replica has reached, and the voter sets
in them. Once a batch is in it, it is there for good. Owns also what may stand in its place: the batches that compaction made,
each judged when it was installed (`compaction_rules`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import VoterSet
from raftlake.replica.partition.voter_log import read_batch_voters
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.wire.batches import HEADER_BYTES, parse_header


class Versions:
    """The batches that compaction made of committed ones. A follower may hold them because it fetched them."""

    def __init__(self) -> None:
        self._batches: set[StoredBatch] = set()
        #: Of batches without records and producer: the lowest base, by end and epoch.
        self._empty: dict[tuple[int, int], int] = {}

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: StoredBatch) -> None:
        """The caller has judged it."""
        self._batches.add(batch)
        if _is_plain_empty(batch):
            key = batch.end, batch.epoch
            self._empty[key] = min(batch.base, self._empty.get(key, batch.base))

    def __contains__(self, batch: StoredBatch) -> bool:
        """Whether it was judged, or is the end of an empty batch that was judged: a follower goes on amid such a one."""
        if batch in self._batches:
            return True
        base = self._empty.get((batch.end, batch.epoch))
        return base is not None and base < batch.base and _is_plain_empty(batch)

    def stand_for(self, held: StoredBatch, batch: StoredBatch) -> bool:
        """Whether a log that holds `held` holds all that it has to hold of the committed `batch`."""
        return held == batch or (held.base <= batch.base and batch.end <= held.end and held in self)


def _is_plain_empty(batch: StoredBatch) -> bool:
    header = parse_header(batch.data)
    fields = header.record_count, header.attributes, header.producer_id, header.base_sequence, header.timestamp_ms_max
    return fields == (0, 0, -1, -1, -1) and header.size == HEADER_BYTES


class CommittedLog:
    """The committed batches of one group, ascending and without a gap."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self._ends: list[int] = []
        #: For each batch the epoch of the replica that first said that it is committed.
        self._commit_epochs: list[int] = []
        #: The voter sets among the batches and their offsets, ascending.
        self.voter_sets: list[tuple[int, VoterSet]] = []
        self.versions = Versions()

    @property
    def voters(self) -> VoterSet | None:
        """Who votes by what is committed; None where no log says so yet (kraft.version 0)."""
        return self.voter_sets[-1][1] if self.voter_sets else None

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def end_before(self, epoch: int) -> int:
        """The end of what was committed in epochs before `epoch`."""
        count = bisect_left(self._commit_epochs, epoch)
        return self._ends[count - 1] if count else 0

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the batch that ends at `offset`; None when no committed batch does."""
        index = bisect_left(self._ends, offset)
        return self.batches[index].epoch if index < len(self._ends) and self._ends[index] == offset else None

    def first_difference(self, log: MemoryLog, start: int, end: int) -> StoredBatch | None:
        """The first committed batch in [start, end) that `log` holds otherwise or not at all; None when there is none.

        What `log` no longer holds because retention removed it is no difference, nor is what compaction may leave of it.
        """
        start = max(start, log.start_offset)
        index = bisect_right(self._ends, start)
        held = log.batches
        position = log.first_batch_after(start)
        while index < len(self.batches) and self.batches[index].base < end:
            batch = self.batches[index]
            if position >= len(held) or not (held[position] == batch or self.versions.stand_for(held[position], batch)):
                return batch
            index += 1
            # One batch may stand for several.
            position += held[position].end <= batch.end
        return None

    def batches_between(self, start: int, end: int) -> list[StoredBatch]:
        """The committed batches that end above `start` and begin below `end`."""
        first = bisect_right(self._ends, start)
        return self.batches[first : bisect_left(self._ends, end) + 1] if start < end else []

    def extend(self, log: MemoryLog, end: int, epoch: int) -> bool:
        """Take over what `log` holds up to `end`, committed in `epoch`; False when `end` is not the end of one of its batches
        or a batch is missing."""
        held = log.batches
        position = log.first_batch_after(self.end)
        while self.end < end:
            if position >= len(held) or held[position].base != self.end or held[position].end > end:
                return False
            self._take(held[position])
            # An older leader may learn late; what it committed the newer ones had to hold all the same.
            self._commit_epochs.append(max(epoch, self._commit_epochs[-1] if self._commit_epochs else 0))
            position += 1
        return True

    def _take(self, batch: StoredBatch) -> None:
        self.batches.append(batch)
        self._ends.append(batch.end)
        voters = read_batch_voters(batch.data) if parse_header(batch.data, 0).is_control else None
        if voters is not None:
            self.voter_sets.append((batch.base, voters))


class CommittedLogs:
    """One `CommittedLog` per group."""

    def __init__(self) -> None:
        self._logs: dict[GroupId, CommittedLog] = {}

    def of(self, group: GroupId) -> CommittedLog:
        log = self._logs.get(group)
        if log is None:
            log = self._logs[group] = CommittedLog()
        return log

    def groups(self) -> list[GroupId]:
        """The groups with something committed, in the order in which it was first seen."""
        return list(self._logs)
