"""One Raft group on this node: its core, its log, its idempotent producers, and the clients that wait for it.

Owns the translation of the core's log actions into calls of the log, and everything that is answered when the high
watermark moves. Knows no other group and no peer. What has to leave the node stays in `outbox` until the turn performs it.

Invariant: `log.end_offset == core.log_end` whenever no action of the group is outstanding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlake.errors import CorruptBatch, DiskFull, ErrorCode, RequestRejected
from raftlake.ports.driver import BatchSpan, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import Action, AppendFetched, AppendLeaderChange, AppendRecords, AppendVoters
from raftlake.raft.core import RaftGroup
from raftlake.raft.messages import FetchedBatch
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.configs.in_force import InForce
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.holds import Holds, is_needed, may_append
from raftlake.replica.partition.intact import require_intact
from raftlake.replica.partition.pending import NO_EPOCH, NOT_WRITTEN, PendingAppend, WaitingAppend
from raftlake.replica.partition.producer_state import NO_PRODUCER, AppendedBatch, ProducerStates
from raftlake.replica.partition.start_points import KnownProducers, LogFacts
from raftlake.replica.partition.voter_log import NO_TIMESTAMP, control_batch, read_batch_voters
from raftlake.replica.partition.wholeness import Wholeness
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batch_header import CONTROL_BIT
from raftlake.wire.batches import BatchHeader, EndMarker, parse_header, read_end_marker, stamp, stamp_time
from raftlake.wire.shown import without_raft_records

#: `prove(group, done)` calls `done` once with whether this node is proven to lead the group still.
Prove = Callable[[GroupId, Callable[[bool], None]], None]


NO_ROOM_FOR_PRODUCERS = (
    "the quorum remembers as many producer ids as it may (producer.ids.max): a new one is taken when others have been idle for "
    "producer.id.expiration.ms, or their topics are deleted"
)


@dataclass(slots=True)
class ReceivedBatch:
    """A batch inside the log bytes of a fetch response."""

    answer: memoryview
    position: int
    header: BatchHeader
    marker: EndMarker | None = None


class Gate(Protocol):
    """Judges the transactions of a node's partitions (`replica.transactions.verification`)."""

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        """Whether a batch may begin a transaction: NONE, or why not; None where that has to be looked up."""

    def why(self, partition: Partition, pending: PendingAppend, error: ErrorCode) -> str:
        """The error of `judge`, or of `may_append`, in words."""

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        """Call `Partition.end_hold` or `Partition.refuse_held` for the producer of a batch, now or later."""


class NoTransactions:
    """Where no keys tell of transactions none begins."""

    def judge(self, partition: Partition, pending: PendingAppend) -> ErrorCode | None:
        return ErrorCode.INVALID_TXN_STATE

    def why(self, partition: Partition, pending: PendingAppend, error: ErrorCode) -> str:
        return "this log has no transactions"

    def look_up(self, partition: Partition, pending: PendingAppend) -> None:
        partition.refuse_held(pending.headers[0].producer_id)


NO_TRANSACTIONS = NoTransactions()
NOT_KNOWN = "the transaction cannot be looked up now; nothing was appended"


class Partition:
    """A group, and who waits for it on this node."""

    def __init__(self, group: GroupId, core: RaftGroup, log: LogStore, facts: LogFacts, wall_ms: Callable[[], int]) -> None:
        self.group = group
        self.core = core
        self.log = log
        self._facts = facts
        self._wall_ms = wall_ms
        #: Told how many bytes each append had.
        self.on_appended: Callable[[int], None] = _nothing
        self.outbox: list[Action] = []
        self.appending: list[PendingAppend] = []
        #: Taken from there, until it is known whether they may begin a transaction.
        self._holds = Holds()
        #: The last epoch of which this node, as its leader, has looked up the quorum's keys of transactions.
        self.keys_known_in = NO_EPOCH
        #: What was taken from there and is not written yet, in this order. Where an election state finds no room, more is taken
        #: before any of it is written.
        self._admitted: list[PendingAppend] = []
        self.waiting: deque[WaitingAppend] = deque()
        self._watermark_waiters: dict[int, Callable[[int], bool]] = {}
        self._waiter_counter = 0
        self.armed_deadline_ms: int | None = None
        self.needs_flush = False
        self.deleted = False
        #: The high watermark as clients see it: everything below is applied here. The core may already know a higher one.
        self.high_watermark = Offset(0)
        #: Where the leader's log ended when it answered last, and in which epoch.
        self._leader_end = (Epoch(-1), Offset(0))
        #: What the topic asks for; None before this node has applied the topic's key.
        self.in_force: InForce | None = None
        #: What clients were shown before the log was repaired. Less is not shown to them again.
        self.shown_before = Offset(0)
        self.wholeness = Wholeness(group, core, log)

    @property
    def is_serving(self) -> bool:
        """This node leads, and what clients see here includes a committed entry of its epoch: nothing they saw elsewhere is
        missing."""
        core = self.core
        return core.is_leader and self.high_watermark > core.epoch_start_offset

    def obey(self, in_force: InForce) -> None:
        """The topic asks for this from now on."""
        self.in_force = in_force
        self.log.limit_segments(in_force.segment_bytes)

    def note_leader_end(self, epoch: Epoch, end: Offset) -> None:
        """The leader of an epoch says where its log ends (-1: it does not say)."""
        if end >= 0:
            self._leader_end = epoch, end

    @property
    def lag(self) -> int:
        """How many offsets this log is behind its leader's, as far as is known here; 0 for the leader's own."""
        core = self.core
        if core.is_leader:
            return 0
        epoch, end = self._leader_end
        known = max(end if epoch == core.epoch else 0, core.high_watermark, core.told_high_watermark)
        return max(0, known - core.log_end)

    def read_intact(self, start: Offset, limit: Offset, size_max: int, *, check_crc: bool = True) -> bytes:
        """Like `log.read`, but never gives damaged bytes. Raises DamagedData."""
        data = self.log.read(start, limit, size_max)
        require_intact(self.group, data, start, self.log.epochs, check_crc=check_crc)
        return data

    def read_shown(self, start: Offset, limit: Offset, size_max: int) -> bytes:
        """Like `read_intact`, for a consumer: the control batches of Raft are empty. Raises DamagedData."""
        data = self.log.read(start, limit, size_max)
        return without_raft_records(data, require_intact(self.group, data, start, self.log.epochs, check_crc=True))

    # --- transactions ---

    @property
    def last_stable_offset(self) -> Offset:
        """The end of what a reader of committed transactions may see: each transaction that begins below it is decided.

        A transaction is decided when its marker is below the high watermark. The offset does not pass the high watermark. It
        never goes back while that does not.
        """
        transactions = self.producers.transactions
        if not transactions.is_used:
            return self.high_watermark
        transactions.commit(self.high_watermark)
        earliest = transactions.earliest_undecided
        if earliest is None or earliest >= self.high_watermark:
            return self.high_watermark
        return Offset(min(max(self.log.start_offset, earliest), self.high_watermark))

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, end) has to leave out, in the order of their markers. `end` is not
        above the last stable offset. Raises StorageError."""
        return self._facts.aborted(start, end)

    # --- compaction ---

    @property
    def is_compacted(self) -> bool:
        """The topic wants of each key the newest record only, as far as this node has applied the topic's key."""
        return self.in_force is not None and self.in_force.compaction is not None

    # --- producers ---

    @property
    def producers(self) -> ProducerStates:
        return self._facts.producers

    def can_begin_at(self, offset: Offset) -> Offset:
        """See `LogFacts.can_begin_at`."""
        return self._facts.can_begin_at(offset)

    def close_facts(self) -> None:
        """See `LogFacts.close`."""
        self._facts.close()

    def producers_at(self, offset: Offset) -> KnownProducers | None:
        """See `LogFacts.producers_at`. Of a compacted log no open transactions are told: their markers may be gone from the log
        that goes on there."""
        known = self._facts.producers_at(offset)
        return known if known is None or not self.is_compacted else known.without_transactions()

    def auxiliary_at(self, offset: Offset) -> bytes | None:
        """What a replica has to know that begins at `offset`, for a copy that ends there; None where the producers are not
        known."""
        producers = self._facts.producers_at(offset)
        return None if producers is None else Auxiliary(producers, self.core.voter_history.at(offset)).encode(offset)

    def roll(self) -> None:
        """Close the active segment of the log. May raise DiskFull: then nothing has changed."""
        self._facts.appended(self.log.roll())

    def save_missing_point(self) -> None:
        """Save the state at the log's end again where the active segment is empty and the disk had no room for it."""
        end = self.log.end_offset
        if self.log.segment_bases[-1] == end > self.log.start_offset and end not in self.log.start_points.offsets:
            self._facts.appended([end])

    def rebuild_producers(self) -> None:
        """After a truncation: what the log still says."""
        self._facts.restore(self._wall_ms(), with_voters=False)

    def save_start_point(self) -> None:
        """The node stops: let the next start have nothing to read."""
        self._facts.save_at_stop()

    def _append(self, chunks: Sequence[bytes | bytearray | memoryview], spans: Sequence[BatchSpan]) -> Sequence[Offset]:
        self.needs_flush = True
        begun = self.log.append(chunks, spans)
        self.on_appended(sum(span.size for span in spans))
        return begun

    # --- the leader's appends ---

    def admit(self, prove: Prove, no_room: str = "", gate: Gate = NO_TRANSACTIONS) -> list[PendingAppend]:
        """Take what waits to be appended; refuse or answer as duplicate what must not be appended again.

        Sequence numbers are checked and recorded here, against the offsets that the batches are about to get. `prove` says
        whether this node still leads the group. `no_room`: why clients may append nothing, "" when they may. `gate` says which
        batches may begin a transaction.
        """
        admitted: list[PendingAppend] = []
        unknown: list[PendingAppend] = []
        next_offset = self.core.log_end
        now_ms = self._wall_ms()
        for pending in self.appending:
            first = pending.headers[0]
            if pending.marker is not None:
                if self._admit_marker(pending, pending.marker, next_offset, now_ms):
                    next_offset = Offset(next_offset + 1)
                    admitted.append(pending)
                continue
            if self._holds and first.producer_id in self._holds:
                self._holds.add(pending)
                continue
            if no_room and pending.refuse is not None:
                self._refuse_for_room(pending, pending.refuse, no_room)
                continue
            if pending.refuse is not None and not self._has_room_for(first):
                self._refuse_for_room(pending, pending.refuse, NO_ROOM_FOR_PRODUCERS)
                continue
            has_sequence = _has_sequence(first)
            try:
                duplicate = self._check_sequence(pending) if has_sequence else None
            except RequestRejected as rejected:
                self._reject(pending, rejected, prove)
                continue
            if duplicate is not None:
                self._wait_for(duplicate.end_offset, duplicate.base_offset, pending)
                continue
            if has_sequence and (first.is_transactional or self.producers.transactions.is_used):
                error = may_append(self.producers, first)
                if error is None:
                    error = gate.judge(self, pending)
                if error is None:
                    self._holds.add(pending)
                    unknown.append(pending)
                    continue
                if error is not ErrorCode.NONE:
                    self._refuse_transaction(pending, error, gate.why(self, pending, error))
                    continue
            for header in pending.headers:
                if header.attributes & CONTROL_BIT:
                    self._note_marker(pending.buffer, header, next_offset, now_ms)
                elif header.producer_id != NO_PRODUCER:
                    self.producers.record(
                        header.producer_id,
                        header.producer_epoch,
                        header.base_sequence,
                        header.record_count,
                        next_offset,
                        now_ms,
                        header.is_transactional,
                    )
                next_offset = Offset(next_offset + header.last_offset_delta + 1)
            admitted.append(pending)
        self.appending.clear()
        self._admitted += admitted
        for pending in unknown:
            gate.look_up(self, pending)
        return admitted

    # --- transactions of the leader's appends ---

    def _refuse_transaction(self, pending: PendingAppend, error: ErrorCode, why: str) -> None:
        if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
            # It comes again, and before what is behind it.
            header = pending.headers[0]
            self.producers.send_back(header.producer_id, header.producer_epoch, header.base_sequence)
        pending.done(error, -1, why)

    def end_hold(self, producer_id: int) -> bool:
        """What waits of a producer may be judged anew, before what came after it. Whether there is anything."""
        held = self._holds.take(producer_id)
        self.appending[:0] = held
        return bool(held)

    def refuse_held(self, producer_id: int) -> None:
        """What waits of a producer cannot be judged now: it is to come again."""
        for pending in self._holds.take(producer_id):
            self._refuse_transaction(pending, ErrorCode.NOT_ENOUGH_REPLICAS, NOT_KNOWN)

    def _admit_marker(self, pending: PendingAppend, marker: EndMarker, offset: Offset, now_ms: int) -> bool:
        """Whether a marker is to be written. One that has nothing to end is done when all before it is committed: an equal one
        may stand there that is not yet."""
        error = pending.stale()
        if error is None and is_needed(self.producers, marker):
            self._facts.end_transaction(marker, offset, now_ms)
            return True
        if error in (None, ErrorCode.NONE):
            self._wait_for(offset, NOT_WRITTEN, pending)
        else:
            pending.done(error, -1)
        return False

    def _note_marker(self, buffer: bytearray | memoryview, header: BatchHeader, offset: Offset, now_ms: int) -> None:
        marker = read_end_marker(memoryview(buffer)[header.position : header.end_position])
        if marker is not None:
            self._facts.end_transaction(marker, offset, now_ms)

    def _has_room_for(self, header: BatchHeader) -> bool:
        return header.producer_id == NO_PRODUCER or self.producers.has_room_for(header.producer_id)

    def _refuse_for_room(self, pending: PendingAppend, refuse: Callable[[str], None], no_room: str) -> None:
        """A batch that comes again is in the log already. What is refused comes again too, and before what is behind it."""
        first = pending.headers[0]
        if first.producer_id != NO_PRODUCER:
            repeated = self.producers.find(first.producer_id, first.producer_epoch, first.base_sequence, first.record_count)
            if repeated is not None:
                self._wait_for(repeated.end_offset, repeated.base_offset, pending)
                return
            self.producers.send_back(first.producer_id, first.producer_epoch, first.base_sequence)
        refuse(no_room)

    def _reject(self, pending: PendingAppend, rejected: RequestRejected, prove: Prove) -> None:
        """A gap is told only by a leader that proves itself. One that was replaced without knowing it lacks what its successor
        has appended, and a client takes a gap for lost records."""
        code, why = rejected.code, rejected.message
        if code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            pending.done(code, -1, why)
            return

        def proven(leads: bool) -> None:
            if leads:
                pending.done(code, -1, why)
            else:
                pending.done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

        prove(self.group, proven)

    def _check_sequence(self, pending: PendingAppend) -> AppendedBatch | None:
        header = pending.headers[0]
        return self.producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            history_trimmed=self.core.log_start > 0,
        )

    def append_records(self, action: AppendRecords) -> None:
        """Stamp base offsets and the epoch into the batches' headers (the CRC does not cover them) and write them. Where the
        topic asks for it, the time is stamped too."""
        admitted: list[PendingAppend] = action.payload  # type: ignore[assignment]
        del self._admitted[: len(admitted)]
        chunks: list[bytearray | memoryview | bytes] = []
        spans: list[BatchSpan] = []
        written: list[tuple[PendingAppend, Offset, Offset]] = []
        offset = action.base_offset
        now_ms = self._wall_ms()
        for pending in admitted:
            first_offset, position = offset, 0
            if pending.stamps_time:
                pending.append_time_ms = now_ms
            for header in pending.headers:
                stamp(pending.buffer, position, offset, action.epoch)
                newest_ms = header.timestamp_ms_max
                if pending.stamps_time:
                    newest_ms = now_ms
                    stamp_time(pending.buffer, header, now_ms)
                end = Offset(offset + header.last_offset_delta + 1)
                spans.append(BatchSpan(offset, end, action.epoch, newest_ms, header.size))
                position += header.size
                offset = end
            chunks.append(pending.buffer)
            written.append((pending, first_offset, offset))
        try:
            begun = self._append(chunks, spans)
        except DiskFull as full:
            # None of it is in the log, and the group starts anew.
            for pending in admitted:
                _refuse(pending, f"nothing was appended: {full.for_clients}")
            raise
        for pending, first_offset, end_offset in written:
            if pending.waits:
                self._wait_for(end_offset, first_offset, pending)
        self._facts.appended(begun)
        for pending, first_offset, _ in written:
            if not pending.waits:
                pending.done(ErrorCode.NONE, first_offset)

    def _wait_for(self, end_offset: int, base_offset: int, pending: PendingAppend) -> None:
        if end_offset <= self.high_watermark or not pending.waits:
            pending.done(ErrorCode.NONE, base_offset)
            return
        entry = WaitingAppend(end_offset, base_offset, pending)
        if self.waiting and self.waiting[-1].end_offset > end_offset:
            # A duplicate of an older batch: keep the queue ordered by what it waits for.
            self.waiting.insert(bisect_right(self.waiting, end_offset, key=lambda waiting: waiting.end_offset), entry)
        else:
            self.waiting.append(entry)

    # --- other writes ---

    def append_control(self, action: AppendLeaderChange | AppendVoters) -> None:
        """Write a control batch without a timestamp: it must not answer a search for records by time."""
        batch = control_batch(action)
        end_offset = action.offset + parse_header(batch).record_count
        self._facts.appended(
            self._append([batch], [BatchSpan(action.offset, end_offset, action.epoch, NO_TIMESTAMP, len(batch))])
        )

    def append_fetched(self, action: AppendFetched) -> None:
        """Write batches from the leader as they came; neighbours of one answer are written as one piece. Raises UnfitBeginning,
        and then nothing was written."""
        self.wholeness.about_to_append(action)
        chunks: list[memoryview] = []
        spans: list[BatchSpan] = []
        run_of: memoryview | None = None
        run_start = run_end = 0
        for batch in action.batches:
            received: ReceivedBatch = batch.payload
            header = received.header
            if received.answer is not run_of or received.position != run_end:
                if run_of is not None:
                    chunks.append(run_of[run_start:run_end])
                run_of, run_start = received.answer, received.position
            run_end = received.position + header.size
            spans.append(BatchSpan(batch.base_offset, batch.end_offset, batch.epoch, header.timestamp_ms_max, header.size))
        if run_of is not None:
            chunks.append(run_of[run_start:run_end])
        begun = self._append(chunks, spans)
        now_ms = self._wall_ms()
        for batch in action.batches:
            self._facts.remember(batch.payload.header, now_ms, batch.payload.marker)
        self._facts.appended(begun)

    def truncate(self, end_offset: Offset) -> None:
        self._facts.stop_saving()
        self.log.truncate_to(end_offset)
        self.rebuild_producers()
        self.needs_flush = True

    def reset(self, start: OffsetAndEpoch, inherited: KnownProducers | None) -> None:
        """Begin anew at `start`: the leader no longer has what lies before it. `inherited` is what it knew of producers."""
        self._facts.stop_saving()
        self.log.reset(start)
        self.wholeness.begun_anew()
        self._facts.reset(inherited)
        self.needs_flush = True

    # --- answers ---

    def show(self, high_watermark: int) -> None:
        """Clients may see what lies below `high_watermark`, unless they have seen more before the log was repaired."""
        if high_watermark >= max(self.shown_before, 1):
            self.on_high_watermark(high_watermark)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Answer everything that waited for offsets below `high_watermark`."""
        self.high_watermark = Offset(high_watermark)
        if self.producers.transactions.has_ended:
            self.producers.transactions.commit(high_watermark)
        waiting = self.waiting
        while waiting and waiting[0].end_offset <= high_watermark:
            entry = waiting.popleft()
            entry.pending.done(ErrorCode.NONE, entry.base_offset)
        if self._watermark_waiters:
            for key, waiter in list(self._watermark_waiters.items()):
                if waiter(high_watermark):
                    self._watermark_waiters.pop(key, None)

    def wait_for_watermark(self, waiter: Callable[[int], bool]) -> Callable[[], None]:
        """Call `waiter` with each new high watermark until it returns True or the returned function is called."""
        self._waiter_counter += 1
        key = self._waiter_counter
        self._watermark_waiters[key] = waiter

        def stop() -> None:
            self._watermark_waiters.pop(key, None)

        return stop

    def refuse_appends(self) -> None:
        """Nothing of what waits to be appended was proposed: say so."""
        refused, self.appending = [*self._holds.take_all(), *self.appending], []
        for pending in refused:
            pending.done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    def on_leadership_lost(self, *, keep_new: bool = False) -> None:
        """Whatever was appended and is not committed may be kept or cut by the next leader: its outcome is unknown. What
        was not yet appended is refused, or goes on waiting with `keep_new`."""
        self.producers.forget_sent_back()
        if not keep_new:
            self.refuse_appends()
        waiting, self.waiting = self.waiting, deque()
        for entry in waiting:
            retry_is_safe = entry.pending.idempotent
            entry.pending.done(ErrorCode.NOT_LEADER_OR_FOLLOWER if retry_is_safe else ErrorCode.REQUEST_TIMED_OUT, -1)

    def on_deleted(self) -> None:
        """The group is gone: let go of everybody who waits for its high watermark, or to be written in this very turn."""
        refused, self._admitted = [*self._holds.take_all(), *self._admitted], []
        for pending in refused:
            pending.done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        waiters, self._watermark_waiters = self._watermark_waiters, {}
        for waiter in waiters.values():
            waiter(self.high_watermark)

    def expire(self, now_ms: int) -> None:
        """Answer the appends that waited longer than their producer wanted."""
        if not any(entry.pending.deadline_ms <= now_ms for entry in self.waiting):
            return
        waiting, self.waiting = self.waiting, deque()
        for entry in waiting:
            if entry.pending.deadline_ms <= now_ms:
                entry.pending.done(ErrorCode.REQUEST_TIMED_OUT, -1)
            else:
                self.waiting.append(entry)


def _has_sequence(header: BatchHeader) -> bool:
    """Whether the batch counts among those of an idempotent producer. A marker does not."""
    return header.producer_id != NO_PRODUCER and not header.is_control


def _nothing(_size: int) -> None:
    """Counts nothing."""


def _refuse(pending: PendingAppend, why: str) -> None:
    if pending.refuse is None:
        pending.done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    else:
        pending.refuse(why)


def split_batches(answer: memoryview, headers: Sequence[BatchHeader]) -> list[FetchedBatch]:
    """Cut received log bytes into one value per batch, without copying; up to a control batch that cannot be read."""
    batches: list[FetchedBatch] = []
    position = 0
    for header in headers:
        voters, marker = None, None
        if header.is_control:
            try:
                batch = answer[position : position + header.size]
                marker = read_end_marker(batch)
                voters = read_batch_voters(batch) if marker is None else None
            except CorruptBatch:
                break
        batches.append(
            FetchedBatch(
                base_offset=Offset(header.base_offset),
                end_offset=Offset(header.base_offset + header.last_offset_delta + 1),
                epoch=Epoch(header.leader_epoch),
                payload=ReceivedBatch(answer, position, header, marker),
                voters=voters,
            )
        )
        position += header.size
    return batches
