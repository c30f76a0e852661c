"""A simulated disk per machine: the log and election ports in memory, with what a crash may take away.

Owns: which bytes are durable. A `MemoryLog` keeps the log as the process sees it (its last image) and the older images
that a crash may still bring back, because the truncation that replaced them was not synced. A crash picks one image and
cuts its unsynced tail at a random batch; a torn write looks the same, since recovery cuts a torn batch by its CRC.
An election file is durable when `save` returns. Refuses to know: nodes, time beyond the flush delay it is given, Raft.

Invariant (ports.LogStore): no image is ever shorter than the last completed flush that covers it, except by a truncation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from random import Random

from raftlake.errors import DamagedData, InvariantViolation, StorageError, UnfitBeginning
from raftlake.ports.driver import BatchSpan, Compacted, Compaction, LogStore, Room, SegmentInfo, TimestampAndOffset
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import BatchSource
from raftlake.raft.types import FIRST_OFFSET, ElectionState, Epoch, Impairment, Offset, OffsetAndEpoch
from raftlake.replica.config import SEGMENT_BYTES
from raftlake.sim.disk.aborted_index import SimulatedAbortedIndex
from raftlake.sim.disk.compaction import Compactor
from raftlake.sim.disk.decay import Decay, Found
from raftlake.sim.disk.log_image import LogImage, Segments, StoredBatch, check_batch_bytes
from raftlake.sim.disk.observer import DiskObserver, SilentObserver
from raftlake.sim.disk.power import ClosedLog, Machine
from raftlake.sim.disk.snapshot_store import SimulatedSnapshots
from raftlake.sim.disk.space import Space
from raftlake.sim.disk.start_points import SimulatedStartPoints
from raftlake.wire.aborted_index import marker_offset_of
from raftlake.wire.batches import parse_header
from raftlake.wire.compaction import cut_empty

SEGMENT_BYTES_DEFAULT = 64 * 1024
#: What an election state needs for a moment: it replaces the one before.
SAVED_BYTES = 1
#: What a directory for damaged files needs.
ASIDE_BYTES = 100


@dataclass(frozen=True, slots=True)
class FlushTicket:
    """What one flush will make durable: the image that was live when it began, up to `end_offset`."""

    log: MemoryLog
    image: LogImage
    end_offset: int


class MemoryLog:
    """`ports.LogStore` in memory. Survives the incarnations of the node: a new one opens the same object after `crash`. Who
    has closed or deleted it and uses it again gets ClosedLog, of the calls of which a real log says that it is closed."""

    def __init__(self, group: GroupId, disk: SimulatedDisk) -> None:
        self.group = group
        self._disk = disk
        #: Oldest first; the last one is what the process sees, the others are what a crash may bring back.
        self._images = [LogImage()]
        self._image = self._images[0]
        self.start_points = SimulatedStartPoints(self, disk.machine, disk.space)
        self.aborted = SimulatedAbortedIndex(self, disk.machine, disk.space)
        #: Bytes in the last segment; None where that has to be found out.
        self._active_size: int | None = None
        self._segments = Segments()
        self._segment_bytes = disk.segment_bytes
        self.decay = Decay()
        self._compactor = Compactor(self, disk)
        #: What a crash may bring back, oldest first; the last one is in force.
        self._noted_starts = [FIRST_OFFSET]
        self.is_partial = False
        self._is_closed = False

    # --- LogStore ---

    @property
    def start_offset(self) -> Offset:
        return Offset(self._image.start)

    @property
    def end_offset(self) -> Offset:
        image = self._image
        return Offset(image.ends[-1] if image.ends else image.start)

    @property
    def epochs(self) -> Sequence[tuple[Epoch, Offset]]:
        epochs = self._image.epochs
        # The epoch before the log start is not shown once the first record has another one.
        return epochs[1:] if len(epochs) > 1 and epochs[0][1] == epochs[1][1] else epochs

    def append(self, chunks: Sequence[bytes | bytearray | memoryview], spans: Sequence[BatchSpan]) -> Sequence[Offset]:
        self._require_open()
        self._disk.machine.port_call("append")
        data = b"".join(chunks)
        self._disk.space.take(len(data), f"append to {self.group}")
        if len(data) != sum(span.size for span in spans):
            raise InvariantViolation(f"{self.group}: {len(data)} bytes do not match the spans {spans}")
        position = 0
        begun: list[Offset] = []
        for span in spans:
            size = self._active_size
            if size is None:
                size = self._segments.of(self._image)[-1].size
            if size and size + span.size > self._segment_bytes:
                begun.append(Offset(span.base_offset))
                self._image.rolled.add(span.base_offset)
                size = 0
            self._append_one(span, data[position : position + span.size])
            self._active_size = size + span.size
            position += span.size
        return begun

    def limit_segments(self, segment_bytes: int) -> None:
        """Simulated disks are small, and so are segments: as much smaller than a real node's."""
        self._segment_bytes = self._scaled(segment_bytes)

    def _scaled(self, segment_bytes: int) -> int:
        return max(1, segment_bytes * self._disk.segment_bytes // SEGMENT_BYTES)

    def roll(self) -> Sequence[Offset]:
        self._require_open()
        self._disk.machine.port_call("roll")
        image = self._image
        if not self._segments.of(image)[-1].size:
            return ()
        self._disk.space.take(SAVED_BYTES, f"begin a segment of {self.group}")
        image.rolled.add(image.end)
        self._active_size = 0
        return (Offset(image.end),)

    def locate(self, start: Offset, end: Offset) -> BatchSource | None:
        self._require_open()
        image = self._image
        if not any(each.base_offset <= start < end <= each.end_offset for each in self.segments()[:-1]):
            raise InvariantViolation(f"{self.group}: [{start}, {end}) is no part of one closed segment")
        if not {start, end} <= {image.start, *image.ends}:
            return None
        return self.read(start, end, 1 << 62)

    def _append_one(self, span: BatchSpan, data: bytes) -> None:
        image = self._image
        if span.base_offset != image.end or span.end_offset <= span.base_offset:
            raise InvariantViolation(f"{self.group}: append of [{span.base_offset}, {span.end_offset}) at log end {image.end}")
        if image.epochs and span.epoch < image.epochs[-1][0]:
            raise InvariantViolation(f"{self.group}: epoch {span.epoch} after {image.epochs[-1][0]}")
        check_batch_bytes(span, data)
        batch = StoredBatch(span.base_offset, span.end_offset, span.epoch, span.timestamp_ms_max, data)
        self._disk.observer.appended(self.group, batch, image.epochs[-1][0] if image.epochs else -1)
        image.batches.append(batch)
        image.ends.append(span.end_offset)
        if not image.epochs or span.epoch > image.epochs[-1][0]:
            image.epochs.append((Epoch(span.epoch), Offset(span.base_offset)))

    def read(self, start: Offset, limit: Offset, size_max: int) -> bytes:
        self._require_open()
        image = self._image
        if not image.start <= start <= image.end:
            raise InvariantViolation(f"{self.group}: read at {start} outside [{image.start}, {image.end}]")
        chunks: list[bytes] = []
        size = 0
        for index in range(bisect_right(image.ends, start), len(image.batches)):
            batch = image.batches[index]
            if batch.end > limit or (chunks and size + len(batch.data) > size_max):
                break
            try:
                data = self.decay.seen(batch) if self.decay.damaged else batch.data
            except DamagedData:
                if chunks:
                    break
                raise
            chunks.append(_cut(batch, start) if batch.base < start and data is batch.data else data)
            size += len(batch.data)
        return b"".join(chunks)

    def truncate_to(self, end_offset: Offset) -> None:
        self._require_open()
        self._disk.machine.port_call("truncate")
        image = self._image
        count = bisect_right(image.ends, end_offset)
        if end_offset < image.start:
            raise InvariantViolation(f"{self.group}: truncation to {end_offset} before the log start {image.start}")
        if end_offset < image.end and end_offset != (image.ends[count - 1] if count else image.start):
            raise InvariantViolation(f"{self.group}: truncation to {end_offset} inside a batch")
        self.start_points.cut(end_offset)
        self._compactor.cut(end_offset)
        self._lower_noted_start(end_offset)
        self._replace(image.cut(count))

    def reset(self, start: OffsetAndEpoch) -> None:
        self._require_open()
        self._disk.machine.port_call("reset")
        self._disk.space.take(SAVED_BYTES, f"begin {self.group} anew")
        self._compactor.forget()
        offset = start.offset
        self._lower_noted_start(offset)
        epochs = [(start.epoch, offset)] if offset else []
        self._replace(LogImage(start=offset, epochs=epochs, synced_end=offset, inherited_end=offset))
        self._disk.observer.log_start_moved(self.group, offset, is_reset=True)

    def _replace(self, image: LogImage) -> None:
        self._images.append(image)
        self._image = image
        self._active_size = None
        self.decay.forget_from(image.end)
        self._disk.observer.log_cut(self.group, self.end_offset)

    def advance_start(self, start_offset: Offset) -> Offset:
        self._require_open()
        self._disk.machine.port_call("advance_start")
        image = self._image
        start_before = image.start
        for segment in self.segments()[:-1]:
            if segment.end_offset > start_offset:
                break
            count = bisect_right(image.ends, segment.end_offset)
            del image.batches[:count], image.ends[:count]
            image.start = segment.end_offset
        self._active_size = None
        if image.start > start_before:
            self._compactor.give_up()
        self.start_points.advance(Offset(image.start))
        self.decay.forget_below(image.start)
        lost = bisect_left(image.aborted, image.start, key=marker_offset_of)
        del image.aborted[:lost]
        image.aborted_synced = max(image.aborted_synced - lost, 0)
        before = [epoch for epoch, offset in image.epochs if offset < image.start]
        if before:
            image.epochs[: len(before)] = [(before[-1], Offset(image.start))]
        self._disk.observer.log_start_moved(self.group, image.start, is_reset=False)
        return Offset(image.start)

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        self._require_open()
        for batch in self._image.batches:
            if batch.timestamp_ms >= timestamp_ms:
                return TimestampAndOffset(batch.timestamp_ms, Offset(batch.base), Epoch(batch.epoch))
        return None

    def latest_timestamp(self) -> TimestampAndOffset | None:
        self._require_open()
        batch = max(self._image.batches, key=lambda batch: batch.timestamp_ms, default=None)
        return None if batch is None else TimestampAndOffset(batch.timestamp_ms, Offset(batch.base), Epoch(batch.epoch))

    @property
    def segment_bases(self) -> Sequence[Offset]:
        return [segment.base_offset for segment in self._segments.of(self._image)]

    def segments(self) -> Sequence[SegmentInfo]:
        self._require_open()
        return self._segments.of(self._image)

    def scrub(self, size_max: int) -> int:
        self._require_open()
        return self.decay.scrub(self._image, self.segments()[-1].base_offset, size_max)

    @property
    def noted_start(self) -> Offset:
        return self._noted_starts[-1]

    def note_start(self, start_offset: Offset) -> None:
        """Written beside the driver: durable some time later."""
        self._noted_starts.append(start_offset)

    def note_partial(self, is_partial: bool) -> None:
        self._require_open()
        self._disk.machine.port_call("note partial")
        if is_partial:
            self._disk.space.take(SAVED_BYTES, f"note what {self.group} is")
        self.is_partial = is_partial

    def save_noted_start(self) -> None:
        """What was noted is durable."""
        del self._noted_starts[:-1]

    def _lower_noted_start(self, end_offset: int) -> None:
        self._noted_starts = [Offset(min(self.noted_start, end_offset))]

    @property
    def compacted_until(self) -> Offset | None:
        return self._compactor.compacted_until

    def compact(self, request: Compaction, done: Callable[[Compacted | StorageError | None], None]) -> None:
        self._require_open()
        self._compactor.begin(request, self._scaled(request.segment_bytes), done)

    def exchange(self, old: Sequence[StoredBatch], new: Sequence[StoredBatch], first_end: int) -> None:
        """Compaction put `new` in the place of `old`, durably. See `LogImage.exchange`."""
        self._images = [image for image in self._images if image.exchange(old, new, first_end)]
        if not self._images or self._images[-1] is not self._image:
            raise InvariantViolation(f"{self.group}: no such segments: [{old[0].base}, {old[-1].end})")
        self._segments = Segments()
        for batch in old:
            self.decay.damaged.pop((batch.base, batch.epoch), None)

    def drop_aborted(self, clean_until: int) -> None:
        """See `FileAbortedIndex.drop_below`: in all that a crash may bring back."""
        for image in self._images:
            count = bisect_left(image.aborted, clean_until, key=marker_offset_of)
            del image.aborted[:count]
            image.aborted_synced = max(image.aborted_synced - count, 0)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedLog(f"{self.group} is closed")

    def close(self) -> MemoryLog:
        """The process lets go of the log. What is returned stands on the disk, for the next open."""
        kept = MemoryLog(self.group, self._disk)
        kept._images, kept._image = list(self._images), self._image
        kept._noted_starts = list(self._noted_starts)
        kept.decay, kept.is_partial = self.decay, self.is_partial
        kept._compactor.take_over(self._compactor)
        self._is_closed = True
        return kept

    def drop(self) -> None:
        """The log is deleted, with all that lies beside it."""
        self._is_closed = self.start_points.is_deleted = self.aborted.is_deleted = True
        self._compactor.forget()

    def damage(self, number: int, byte: int) -> StoredBatch | None:
        """Damage one of the batches that are durable, or with -n the last n of them; None when there is none."""
        durable = self._image.batches[: bisect_right(self._image.ends, self.durable_end)]
        if not durable:
            return None
        targets = [durable[number % len(durable)]] if number >= 0 else durable[number:]
        for target in targets:
            self.decay.damaged[(target.base, target.epoch)] = byte
        return targets[0]

    def cut_off(self, found: Found, *, is_compacted: bool) -> None:
        """Cut the closed log before its damage, durably."""
        image = self.decay.cut(self._image, found)
        if is_compacted:
            self._compactor.begin_anew()
        else:
            self._compactor.forget()
        self._lower_noted_start(image.end)
        self._images = [image]
        self._image = image
        self._active_size = None
        self._disk.observer.log_cut(self.group, self.end_offset)

    # --- durability ---

    @property
    def images(self) -> Sequence[LogImage]:
        """All that a crash may bring back, oldest first; the last one is `image`."""
        return self._images

    @property
    def image(self) -> LogImage:
        """The log as the process sees it."""
        return self._image

    @property
    def batches(self) -> Sequence[StoredBatch]:
        """The batches that the process sees."""
        return self._image.batches

    def first_batch_after(self, offset: int) -> int:
        """Index of the first batch that ends above `offset`."""
        return bisect_right(self._image.ends, offset)

    @property
    def durable_end(self) -> int:
        """Everything below it is in the log whatever a crash picks."""
        return min(image.synced_end for image in self._images)

    def surely_holds(self, batch: StoredBatch, stand_for: Callable[[StoredBatch, StoredBatch], bool] = eq) -> bool:
        """Whether this very batch, or one that may stand for it, survives any crash at this moment: durable in every image that
        a crash may pick."""
        for image in self._images:
            if batch.end > image.synced_end:
                return False
            index = bisect_right(image.ends, batch.base)
            if batch.end > image.start and not stand_for(image.batches[index], batch):
                return False
        return True

    def begin_flush(self) -> FlushTicket:
        """What a sync that starts now will cover."""
        return FlushTicket(self, self._image, self._image.end)

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The sync of `ticket` completed: its image is durable and the images before it can no longer come back."""
        if not any(image is ticket.image for image in self._images):
            return
        while self._images[0] is not ticket.image:
            del self._images[0]
        end = ticket.end_offset
        for image in self._images:
            if image is not ticket.image:
                end = min(end, image.inherited_end)
            image.synced_end = max(image.synced_end, end)

    def settle(self) -> None:
        """A sync that is waited for."""
        self.finish_flush(self.begin_flush())

    def crash(self, rng: Random) -> None:
        """Lose power: one image remains, less a random part of its unsynced tail. Recovery finds only whole batches."""
        image = self._images[rng.randrange(len(self._images))] if len(self._images) > 1 else self._image
        synced = bisect_right(image.ends, image.synced_end)
        unsynced = len(image.batches) - synced
        # Half of the crashes keep everything (kill -9 of the process keeps the page cache), the others cut anywhere.
        kept = synced + (unsynced if rng.randrange(2) else rng.randrange(unsynced + 1))
        image = image.cut(kept)
        # Recovery syncs what it found before it hands out the log: else a second crash could take it after it counted.
        image.synced_end = image.end
        if image.aborted_synced < len(image.aborted):
            # What is left of the index may tell of records that are lost. A start drops that.
            del image.aborted[rng.randrange(image.aborted_synced, len(image.aborted) + 1) :]
            image.aborted_synced = len(image.aborted)
        self._images = [image]
        self._image = image
        self._active_size = None
        self._compactor.crash(rng)
        noted = self._noted_starts
        self._noted_starts = [Offset(min(rng.choice(noted) if len(noted) > 1 else noted[0], image.end))]


def _cut(batch: StoredBatch, start: Offset) -> bytes:
    """A batch that holds `start`; one without records begins there."""
    header = parse_header(batch.data)
    return batch.data if header.record_count or header.is_control else cut_empty(batch.data, start)


class SimulatedDisk:
    """One machine's disk: `ports.LogDirectory` and `ports.ElectionStore` at once, kept over restarts of the node."""

    def __init__(
        self, machine: Machine, observer: DiskObserver | None = None, segment_bytes: int = SEGMENT_BYTES_DEFAULT
    ) -> None:
        self.machine = machine
        self.observer: DiskObserver = observer or SilentObserver()
        self.segment_bytes = segment_bytes
        self.logs: dict[GroupId, MemoryLog] = {}
        self.elections: dict[GroupId, ElectionState] = {}
        #: A sync is over at once.
        self.is_quick = False
        self.space = Space()
        self.snapshots = SimulatedSnapshots(machine, self.observer, self.space)
        #: Damage that is not set aside yet, as the process knows it.
        self._damages: dict[GroupId, tuple[Found, bool]] = {}

    def open(self, group: GroupId) -> MemoryLog:
        self.machine.port_call("open")
        log = self.logs.get(group)
        if log is None:
            log = self.logs[group] = MemoryLog(group, self)
        if self._damages.pop(group, None) is not None:
            # Recovery syncs what it finds.
            log.settle()
        log.decay.look_at_start(log.image)
        return log

    def prepare(self, groups: Sequence[GroupId]) -> None:
        self.machine.port_call("prepare")
        for group in groups:
            if group not in self.logs:
                self.space.take(SAVED_BYTES, f"make a directory for {group}")

    def set_aside(self, group: GroupId, damage: DamagedData, epoch: Epoch) -> str:
        """In steps, each of which a full disk may refuse and a crash may precede. The next call goes on, unless the log was
        opened meanwhile: then it is a log like any other."""
        self.machine.port_call("set aside")
        found, is_compacted = self._damages.get(group) or self._look_at(group, damage)
        log = self.logs[group]
        self.space.take(SAVED_BYTES, f"mark the damage of {group}")
        log.decay.mark(found, epoch)
        self.machine.port_call("cut off damage")
        self.space.take(ASIDE_BYTES, f"set the damage of {group} aside")
        self.snapshots.abandon_unfinished(group)
        if found.batch is None:
            # They could not stand in for it.
            self.snapshots.forget(group)
        log.cut_off(found, is_compacted=is_compacted)
        if any(snapshot_id.offset > log.end_offset for snapshot_id in self.snapshots.ids(group)):
            # The note that the log goes on there. Who opens it sees to that too.
            self.space.take(SAVED_BYTES, f"note where {group} goes on")
        del self._damages[group]
        return found.reason

    def _look_at(self, group: GroupId, damage: DamagedData) -> tuple[Found, bool]:
        """The damage of a log, which is closed then, and whether the log counts as compacted. All of such a log goes: the rest,
        as peers have it, may lack tombstones of what would stay. Raises StorageError where there is no damage."""
        log = self.logs[group]
        is_compacted = log.compacted_until is not None or isinstance(damage, UnfitBeginning)
        found = log.decay.look(log.image, damage, is_whole_lost=is_compacted)
        self._damages[group] = found, is_compacted
        self.logs[group] = log.close()
        return found, is_compacted

    def file_at(self, group: GroupId, offset: int) -> str:
        return f"{group} at {offset}"

    def impairment(self, group: GroupId) -> tuple[Impairment, str] | None:
        return self.logs[group].decay.impairment

    def mend(self, group: GroupId) -> None:
        self.machine.port_call("mend")
        self.logs[group].decay.impairment = None

    def delete(self, groups: Sequence[GroupId]) -> None:
        for group in groups:
            self.machine.port_call("delete")
            log = self.logs.pop(group, None)
            if log is not None:
                log.drop()
            self._damages.pop(group, None)
            self.elections.pop(group, None)
            self.snapshots.forget(group)
            self.observer.log_deleted(group)

    def groups(self) -> Sequence[GroupId]:
        return sorted(self.logs)

    def settle(self, group: GroupId) -> None:
        self.machine.port_call("settle")
        self.logs[group].settle()

    def look_for_room(self, done: Callable[[Room | None], None]) -> None:
        done(self.space.room)

    def give_up_ballast(self) -> bool:
        return self.space.give_up_ballast()

    def flush(self, logs: Sequence[LogStore], done: Callable[[StorageError | None], None], *, may_wait: bool = False) -> None:
        self.machine.port_call("flush")
        tickets = [log.begin_flush() for log in logs if isinstance(log, MemoryLog)]
        assert len(tickets) == len(logs), "a log of another directory"

        def complete() -> None:
            for ticket in tickets:
                ticket.log.finish_flush(ticket)
            done(None)

        def fail() -> None:
            done(StorageError("simulated: fdatasync failed"))

        if may_wait and self.is_quick:
            complete()
        else:
            self.machine.flush_later(complete, fail)

    def checkpoint(self) -> None:
        """This disk always knows what is synced."""
        for log in self.logs.values():
            log.save_noted_start()

    # --- ElectionStore ---

    def load(self, group: GroupId) -> ElectionState | None:
        state = self.elections.get(group)
        log = self.logs.get(group)
        if state is None and log is not None and log.end_offset > 0:
            raise StorageError(f"{group}: the log is not empty but quorum-state is missing")
        return state

    def save(self, states: Mapping[GroupId, ElectionState]) -> None:
        for group, state in states.items():
            # A crash may fall between two files of one call.
            self.machine.port_call("save")
            self.space.take(SAVED_BYTES, f"save the election state of {group}")
            before = self.elections.get(group)
            self.elections[group] = state
            self.observer.election_saved(group, before, state)

    def wipe(self) -> None:
        """All that was on it is gone: it was replaced."""
        for group in self.groups():
            self.snapshots.forget(group)
        self.logs.clear()
        self.elections.clear()
        self._damages.clear()

    def crash(self, rng: Random) -> None:
        """Lose power: every log loses some of its unsynced tail, and no unfinished snapshot survives."""
        self.snapshots.crash(rng)
        self._damages.clear()
        for group in self.groups():
            self.logs[group].crash(rng)
