"""What compaction may leave out of a log, and what it must not touch (KIP-58, KIP-534; Kafka's LogCleaner).

Judged at the moment when new segments take the place of old ones, with the records themselves: nothing of what compaction is
made of is used here. A record goes only if

- a newer record of its key stands in the log below the end of the pass, or
- it is of an aborted transaction, or has no key, or
- it is a tombstone or a marker whose delete horizon has passed, and no voter lacks it that has what it is about. What a voter
  that has lost its log, or a new observer, gets is judged when it is appended (`refetched`). A tombstone goes by the horizon
  that a pass of this node gave it: a reader here has `delete.retention.ms` from when older values went.

What stays is as it was: key, value, headers, time and offset of each record, the leader epoch of each offset, the producer and
sequence of each batch that keeps records, control records of Raft, and the newest batch of each producer. What passes is noted
as a version of the committed log, and is accepted wherever a replica holds it or fetches it.

At the end of a pass nothing may be left of what the pass has to remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import StoredBatch, check_batch_bytes, span_of
from raftlake.sim.disk.observer import Installed
from raftlake.sim.invariants.base import ClusterView, Invariant, Violation
from raftlake.sim.invariants.committed_log import CommittedLog, CommittedLogs
from raftlake.sim.invariants.fates import Fates
from raftlake.sim.invariants.refetched import Refetched
from raftlake.wire.batches import BatchHeader, Record, decode_records, parse_header

#: Attribute of a batch whose base timestamp is its delete horizon (KIP-534).
HORIZON_BIT = 0x40
CODEC_MASK, LOG_APPEND_TIME_BIT = 0x07, 0x08
#: What a batch without records need not keep of its attributes.
OF_RECORDS = CODEC_MASK | LOG_APPEND_TIME_BIT | HORIZON_BIT


@dataclass(slots=True)
class _Pass:
    """One pass under way on a node."""

    request: Compaction
    #: By key: its newest record that is not aborted, of the log as the pass found it, below the end of the pass.
    newest: Mapping[bytes, int]


class _Group:
    """What is known of one group: its committed log, and the records of batches that were looked at."""

    def __init__(self, committed: CommittedLog) -> None:
        self.committed = committed
        self.fates = Fates(committed.batches)
        self.refetched = Refetched()
        self._records: dict[StoredBatch, list[Record]] = {}

    def records(self, batch: StoredBatch) -> list[Record]:
        """Control records too."""
        found = self._records.get(batch)
        if found is None:
            found = self._records[batch] = list(decode_records(batch.data, include_control=True))
        return found

    def newest(self, batches: Iterable[StoredBatch], end: int) -> dict[bytes, int]:
        """By key: its newest record that is not aborted."""
        found: dict[bytes, int] = {}
        for batch in batches:
            header = parse_header(batch.data)
            if batch.base >= end:
                break
            if not header.is_control and not self.fates.is_aborted(header):
                found.update((record.key, record.offset) for record in self.records(batch) if record.key is not None)
        return found

    def last_of(self, key: bytes) -> int:
        """Where the newest committed record of a key stands; -1 where there is none."""
        return self.newest(self.committed.batches, self.committed.end).get(key, -1)

    def held_of(self, batches: Sequence[StoredBatch], marker_offset: int) -> int | None:
        """Where a batch of the transaction begins that the marker at an offset ends; None where these hold none."""
        (marker,) = self.committed.batches_between(marker_offset, marker_offset + 1)
        held = self.of_transaction(batches, parse_header(marker.data))
        return None if held is None else held.base

    def of_transaction(self, batches: Sequence[StoredBatch], marker: BatchHeader) -> StoredBatch | None:
        """A batch of the transaction that the marker ends."""
        begin = self.fates.begin_of(marker.base_offset, marker.producer_id)
        for batch in batches:
            if batch.base >= marker.base_offset:
                break
            header = parse_header(batch.data)
            is_data = header.is_transactional and not header.is_control
            if batch.end > begin and is_data and header.producer_id == marker.producer_id:
                return batch
        return None

    def horizons_of_tombstones(self, batches: Iterable[StoredBatch], end: int, now_ms: int) -> list[int]:
        """The delete horizons that are not over, of batches with tombstones that end at or below `end`."""
        headers = [(batch, parse_header(batch.data)) for batch in batches if batch.end <= end]
        return [
            header.base_timestamp_ms
            for batch, header in headers
            if header.attributes & HORIZON_BIT
            and header.base_timestamp_ms > now_ms
            and any(record.value is None for record in self.records(batch))
        ]


class CompactionRules(Invariant):
    promise = "compaction removes only what nobody needs"
    told = "a replica that fetches its log anew brings nothing back"

    def __init__(self, view: ClusterView, committed: CommittedLogs) -> None:
        super().__init__(view)
        self._committed = committed
        self._groups: dict[GroupId, _Group] = {}
        self._passes: dict[tuple[NodeId, GroupId], _Pass] = {}

    def _known(self, group: GroupId) -> _Group:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group(self._committed.of(group))
        return known

    def on_log_cut(self, node_id: NodeId, group: GroupId, end_offset: int) -> None:
        if self._committed.of(group).end > end_offset:
            self._known(group).refetched.lost(node_id, end_offset, self._committed.of(group).end)

    def on_log_start(self, node_id: NodeId, group: GroupId, start_offset: int, is_reset: bool) -> None:
        if is_reset:
            self.on_log_cut(node_id, group, start_offset)

    def on_append(self, node_id: NodeId, group: GroupId, batch: StoredBatch, epoch_before: int) -> None:
        log = self.view.log_of(node_id, group)
        assert log is not None
        committed_end = self._committed.of(group).end
        if batch.base == log.start_offset < committed_end:
            self._known(group).refetched.begins(node_id, committed_end)
        known = self._groups.get(group)
        if known is None or node_id not in known.refetched:
            return
        before = [each for each in log.batches if each.end <= batch.base]
        fault = known.refetched.fault_of(before, batch, known.records(batch), known.newest, known.last_of, known.held_of)
        if fault is not None:
            raise Violation(self.told, f"node {node_id} {group} {fault}")
        known.refetched.caught_up(node_id, batch.end)

    def on_compacted(self, node_id: NodeId, group: GroupId, installed: Installed) -> None:
        log = self.view.log_of(node_id, group)
        assert log is not None
        known = self._known(group)
        here = self._passes.get((node_id, group))
        if here is None or here.request is not installed.request:
            here = _Pass(installed.request, known.newest(_log_before(log, installed), installed.request.until))
            self._passes[node_id, group] = here
        try:
            _Judge(self.view, known, here, log).judge(installed.before, installed.after)
        except _Wrong as wrong:
            raise self.fail(f"node {node_id} {group}: {wrong}; {installed.request}") from wrong
        for batch in installed.after:
            known.committed.versions.add(batch)

    def on_pass_ended(self, node_id: NodeId, group: GroupId, request: Compaction, compacted: Compacted) -> None:
        log = self.view.log_of(node_id, group)
        assert log is not None
        known = self._known(group)
        end = compacted.clean_until
        if not request.dirty_from <= end <= request.until or (end == request.dirty_from < request.until):
            raise self._unclean(f"node {node_id} {group} is told to be clean up to {end}; {request}")
        newest, horizon_ms = known.newest(log.batches, end), request.now_ms + request.delete_retention_ms
        for batch in log.batches:
            header = parse_header(batch.data)
            if batch.end > end or header.is_control:
                continue
            for record in known.records(batch):
                if record.key is None or newest.get(record.key) != record.offset:
                    raise self._unclean(f"node {node_id} {group}: {record} is left below {end}; {request}")
                if record.value is None and batch.base >= request.dirty_from and header.delete_horizon_ms != horizon_ms:
                    raise self._unclean(f"node {node_id} {group}: {record} may go at {header.delete_horizon_ms}; {request}")
        ahead = known.horizons_of_tombstones(log.batches, end, request.now_ms)
        if ahead and (compacted.next_horizon_ms is None or compacted.next_horizon_ms > min(ahead)):
            raise self._unclean(f"node {node_id} {group}: {compacted.next_horizon_ms} is told of the horizons {ahead}")

    def _unclean(self, detail: str) -> Violation:
        return Violation("a pass of compaction leaves one record of each key", detail)


class _Wrong(Exception):
    """What compaction did wrong."""


def _log_before(log: MemoryLog, installed: Installed) -> list[StoredBatch]:
    first, last = log.first_batch_after(installed.after[0].base), log.first_batch_after(installed.after[-1].end)
    return [*log.batches[:first], *installed.before, *log.batches[last:]]


class _Judge:
    """Of one installation on one node."""

    def __init__(self, view: ClusterView, known: _Group, here: _Pass, log: MemoryLog) -> None:
        self._view = view
        self._known = known
        self._pass = here
        self._log = log

    def judge(self, before: Sequence[StoredBatch], after: Sequence[StoredBatch]) -> None:
        """Raises _Wrong."""
        self._require_settled(before)
        position = 0
        for new in after:
            check_batch_bytes(span_of(new), new.data)
            covered: list[StoredBatch] = []
            while position < len(before) and before[position].end <= new.end:
                covered.append(before[position])
                position += 1
            if not covered or (covered[0].base, covered[-1].end) != (new.base, new.end):
                raise _Wrong(f"[{new.base}, {new.end}) does not begin and end with what stood there: {_places(covered)}")
            for old in covered:
                self._judge_batch(old, new)
        if position < len(before):
            raise _Wrong(f"nothing stands in the place of {_places(before[position:])}")

    def _require_settled(self, before: Sequence[StoredBatch]) -> None:
        """Only what is committed, and decided, is compacted."""
        committed, until = self._known.committed, self._pass.request.until
        if not before[-1].end <= until <= committed.end:
            raise _Wrong(f"it takes all up to {before[-1].end}, and {committed.end} is committed")
        for old in before:
            header = parse_header(old.data)
            is_data = header.is_transactional and not header.is_control
            if is_data and self._known.fates.marker_of(header) is None:
                raise _Wrong(f"the transaction of [{old.base}, {old.end}) is not decided")
            stand_for = committed.versions.stand_for
            if any(not stand_for(old, each) for each in committed.batches_between(old.base, old.end)):
                raise _Wrong(f"[{old.base}, {old.end}) was not as it was committed")

    def _judge_batch(self, old: StoredBatch, new: StoredBatch) -> None:
        if old == new:
            return
        if old.epoch != new.epoch:
            raise _Wrong(f"[{old.base}, {old.end}) was of epoch {old.epoch}, and is of {new.epoch}")
        was, is_ = parse_header(old.data), parse_header(new.data)
        if was.is_control and not was.is_transactional:
            raise _Wrong(f"the control batch at {old.base} changed")
        keeps_header = is_.producer_id >= 0 or is_.record_count > 0
        if keeps_header:
            self._require_same_header(was, is_)
        elif _header_of_records(is_) != (0, -1, -1, -1, -1, -1):
            raise _Wrong(f"the empty batch at {new.base} says more than its offsets: {is_}")
        elif was.producer_id >= 0 and self._known.fates.is_newest(was):
            raise _Wrong(f"the newest batch of producer {was.producer_id} is gone: {was}")
        kept = self._require_same_records(old, new)
        self._judge_horizon(was, is_, kept)
        gone = [record for record in self._known.records(old) if record.offset not in kept]
        for record in gone:
            if was.is_control:
                self._justify_marker(was, record)
            else:
                self._justify(was, record)

    def _require_same_header(self, was: BatchHeader, is_: BatchHeader) -> None:
        of_records = HORIZON_BIT if is_.record_count else OF_RECORDS

        def lasting(header: BatchHeader) -> tuple[int, ...]:
            producer = header.producer_id, header.producer_epoch, header.base_sequence
            return header.base_offset, header.end_offset, header.attributes & ~of_records, *producer

        if lasting(was) != lasting(is_):
            raise _Wrong(f"the batch {was} became {is_}")

    def _require_same_records(self, old: StoredBatch, new: StoredBatch) -> dict[int, Record]:
        """The records of `old` that are left in `new`."""
        stood = {record.offset: record for record in self._known.records(old)}
        left = [record for record in self._known.records(new) if old.base <= record.offset < old.end]
        kept = {record.offset: record for record in left}
        wrong = [record for record in left if stood.get(record.offset) != record]
        if wrong or list(kept) != sorted(kept) or len(kept) < len(left):
            raise _Wrong(f"{wrong or left} in the place of {list(stood.values())}")
        header = parse_header(new.data)
        times = [record.timestamp_ms for record in left]
        is_own_time = bool(times) and not header.is_log_append_time
        if is_own_time and header.timestamp_ms_max != max(times):
            raise _Wrong(f"{header} has a record of {max(times)}")
        if header.is_log_append_time and times and header.timestamp_ms_max != parse_header(old.data).timestamp_ms_max:
            raise _Wrong(f"{header} has lost the time of its leader")
        return kept

    # --- what is gone --------------------------------------------------------------------------------------------------

    def _justify(self, was: BatchHeader, record: Record) -> None:
        if record.key is None or self._known.fates.is_aborted(was):
            return
        if self._pass.newest.get(record.key, -1) > record.offset:
            return
        if record.value is not None:
            raise _Wrong(f"{record} is gone, and is the newest of its key")
        self._require_passed(was, f"the tombstone {record}")
        if record.offset >= self._pass.request.dirty_from:
            raise _Wrong(f"the tombstone {record} is gone together with the older values of its key")
        for voter, log in self._voters_without(record.offset):
            older = self._known.newest(log.batches, record.offset)
            if record.key in older:
                raise _Wrong(f"the tombstone {record} is gone, and voter {voter} has the key at {older[record.key]}")
        self._known.refetched.tombstones[record.offset] = record.key

    def _justify_marker(self, was: BatchHeader, record: Record) -> None:
        self._require_passed(was, f"the marker at {record.offset}")
        left = self._known.of_transaction(self._log.batches, was)
        if left is not None:
            raise _Wrong(f"the marker at {record.offset} is gone before its batch [{left.base}, {left.end})")
        for voter, log in self._voters_without(record.offset):
            held = self._known.of_transaction(log.batches, was)
            if held is not None:
                raise _Wrong(f"the marker at {record.offset} is gone, and voter {voter} has its batch at {held.base}")
        self._known.refetched.markers.add(record.offset)

    def _voters_without(self, offset: int) -> Iterable[tuple[NodeId, MemoryLog]]:
        """The voters whose logs end at or below `offset`, without those that fetch their logs anew."""
        voters = self._known.committed.voters or self._view.static_voters
        for voter in voters.voters.values():
            log = self._view.log_of(voter.id, self._log.group)
            if log is None or self._view.is_lost(voter) or self._known.refetched.has_lost(voter.id):
                continue
            if log.end_offset <= offset:
                yield voter.id, log

    # --- delete horizons -----------------------------------------------------------------------------------------------

    def _require_passed(self, was: BatchHeader, what: str) -> None:
        request = self._pass.request
        if not was.attributes & HORIZON_BIT:
            raise _Wrong(f"{what} is gone, and had no delete horizon")
        if was.base_timestamp_ms > request.now_ms or was.last_offset >= request.tombstones_below:
            raise _Wrong(f"{what} is gone before its time {was.base_timestamp_ms}")

    def _judge_horizon(self, was: BatchHeader, is_: BatchHeader, kept: Mapping[int, Record]) -> None:
        request, had, has = self._pass.request, was.attributes & HORIZON_BIT, is_.attributes & HORIZON_BIT
        if not kept or (had and has and is_.base_timestamp_ms == was.base_timestamp_ms) or not (had or has):
            return
        is_dirty = request.dirty_from <= was.base_offset and was.end_offset <= request.until
        is_first_seen = not was.is_control and is_dirty and any(record.value is None for record in kept.values())
        if had and not (has and is_first_seen):
            raise _Wrong(f"the delete horizon of {was} changed: {is_}")
        if is_.base_timestamp_ms != request.now_ms + request.delete_retention_ms:
            raise _Wrong(f"the delete horizon of {is_} is not {request.now_ms} + {request.delete_retention_ms}")
        if not was.is_control and not is_first_seen:
            raise _Wrong(f"{is_} got a delete horizon")


def _header_of_records(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_timestamp_ms,
        header.timestamp_ms_max,
    )


def _places(batches: Sequence[StoredBatch]) -> str:
    return ", ".join(f"[{batch.base}, {batch.end})" for batch in batches) or "nothing"
