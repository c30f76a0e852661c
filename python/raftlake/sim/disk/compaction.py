"""Compaction of one simulated log: a pass takes time, and puts one group of segments after the other in the place of the old.

Owns the passes of a log and what a crash leaves of `compacted_until`. What is written comes of `wire.compaction`, as on a real
disk. A group of segments is installed at once: a port call stands before each, where the machine may crash. So a crash leaves
some groups as they were. What is installed is durable, in every image of the log that a crash may bring back. An image that has
other records there is older than what is committed, and gone: the new segment took the name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Protocol

from raftlake.errors import DamagedData, InvariantViolation, StorageError
from raftlake.ports.driver import Compacted, Compaction, SegmentInfo
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.sim.disk.decay import Decay
from raftlake.sim.disk.log_image import LogImage, StoredBatch, stored
from raftlake.sim.disk.observer import DiskObserver, Installed
from raftlake.sim.disk.power import Machine
from raftlake.sim.disk.space import Space
from raftlake.wire.batches import parse_header
from raftlake.wire.compaction import KeyMap, Rewriter

#: A group of segments is read and written in the time of so many syncs.
SYNCS_PER_GROUP = 4
SALT = b"of no matter"
Done = Callable[[Compacted | StorageError | None], None]


class Disk(Protocol):
    """What a pass needs of the disk of its log."""

    @property
    def machine(self) -> Machine: ...

    @property
    def observer(self) -> DiskObserver: ...

    @property
    def space(self) -> Space: ...


class Log(Protocol):
    """The log that is compacted."""

    group: GroupId
    decay: Decay

    @property
    def image(self) -> LogImage: ...

    def segments(self) -> Sequence[SegmentInfo]: ...

    def drop_aborted(self, clean_until: int) -> None:
        """No record of the aborted transactions is left whose markers are below: drop their entries."""

    def exchange(self, old: Sequence[StoredBatch], new: Sequence[StoredBatch], first_end: int) -> None:
        """See `LogImage.exchange`: in all that a crash may bring back."""


class Compactor:
    """The passes of one log. Kept, with its log, over restarts of the node."""

    def __init__(self, log: Log, disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._pass: _Pass | None = None
        #: What a crash may bring back, oldest first; the last one is in force.
        self._hints: list[Offset | None] = [None]

    @property
    def compacted_until(self) -> Offset | None:
        """See `ports.LogStore`."""
        return self._hints[-1]

    def begin(self, request: Compaction, segment_bytes: int, done: Done) -> None:
        """Begin a pass. A segment that has become as large as `segment_bytes` takes no other one."""
        log = self._log
        self._disk.machine.port_call("compact")
        closed = log.segments()[:-1]
        if self._pass is not None or all(request.until != segment.end_offset for segment in closed):
            raise InvariantViolation(f"{log.group}: {request} with {self._pass} over {closed}")
        if self.compacted_until is None:
            # Durable before the first segment changes: from now on the log is one that was compacted.
            self._hints = [request.dirty_from]
        self._pass = _Pass(self, log, self._disk, request, segment_bytes, done)
        self._pass.go_on_after(1)

    def note(self, clean_until: Offset) -> None:
        """The pass is over, and the log is compacted up to there. It is durable once `end` is called."""
        self._disk.machine.port_call("note what is compacted")
        self._hints.append(clean_until)

    def end(self) -> None:
        """The caller is told of the end."""
        self._pass = None
        self._hints = self._hints[-1:]

    def give_up(self) -> None:
        """The log is not what it was: a pass under way comes to nothing."""
        if self._pass is not None:
            self._pass.is_given_up = True
            self._pass = None

    def cut(self, end_offset: int) -> None:
        """The log is about to be cut to `end_offset`."""
        if self._pass is not None and end_offset < self._pass.until:
            self.give_up()
        # Durably: no crash brings a higher one back.
        self._hints = [None if hint is None else min(hint, Offset(end_offset)) for hint in self._hints]

    def forget(self) -> None:
        """The log is gone, or what is left of it was never compacted."""
        self.give_up()
        self._hints = [None]

    def begin_anew(self) -> None:
        """Durably: nothing of the log is left, and what it will hold may have been compacted elsewhere."""
        self.give_up()
        self._hints = [Offset(0)]

    def take_over(self, earlier: Compactor) -> None:
        """The log was closed, and its passes came to nothing: this one goes on from what is noted."""
        earlier.give_up()
        self._hints = list(earlier._hints)

    def crash(self, rng: Random) -> None:
        """Lose power: the newest notes may be lost."""
        self._pass = None
        if len(self._hints) > 1:
            self._hints = [self._hints[rng.randrange(len(self._hints))]]

    def runs(self, other: _Pass) -> bool:
        return self._pass is other


class _Pass:
    def __init__(self, compactor: Compactor, log: Log, disk: Disk, request: Compaction, segment_bytes: int, done: Done) -> None:
        self._compactor = compactor
        self._log = log
        self._disk = disk
        self._request = request
        self._segment_bytes = segment_bytes
        self._done = done
        self.is_given_up = False
        self.until = request.until
        self._steps = self._run()
        self._keys = KeyMap(request, SALT)
        self._rewriter = Rewriter(self._keys, request)
        self._before = self._after = 0

    def go_on_after(self, syncs: int) -> None:
        """Take the next step when that time is over."""

        def complete() -> None:
            if syncs > 1:
                self.go_on_after(syncs - 1)
            else:
                self._go_on()

        self._disk.machine.flush_later(complete, self._fail)

    def _fail(self) -> None:
        if self.is_given_up:
            self._done(None)
        elif self._compactor.runs(self):
            self._end_with(StorageError("simulated: the sync of a compacted segment failed"))

    def _go_on(self) -> None:
        if self.is_given_up:
            self._done(None)
        elif self._compactor.runs(self):
            try:
                next(self._steps)
            except StopIteration:
                self._complete()
            except StorageError as error:
                self._end_with(error)
            else:
                self.go_on_after(SYNCS_PER_GROUP)

    def _end_with(self, error: StorageError) -> None:
        self._compactor.end()
        self._done(error)

    def _complete(self) -> None:
        self._compactor.end()
        compacted = Compacted(
            clean_until=Offset(self._keys.clean_until),
            bytes_before=self._before,
            bytes_after=self._after,
            records_removed=self._rewriter.records_removed,
            next_horizon_ms=self._rewriter.next_horizon_ms,
        )
        self._disk.observer.pass_ended(self._log.group, self._request, compacted)
        self._done(compacted)

    def _run(self) -> Iterator[None]:
        """Each step is a moment at which the machine may have crashed, or the log may have changed."""
        self._map_keys()
        yield
        for segments in list(self._groups()):
            old, new = self._rewrite(segments)
            self._disk.space.take(sum(len(batch.data) for batch in new), "compact a segment", is_needed=False)
            yield
            if len(segments) > 1 or old != new:
                self._install(old, new, segments[0].end_offset)
        self._compactor.note(Offset(self._keys.clean_until))
        yield
        self._log.drop_aborted(self._keys.clean_until)

    def _read(self, start: int, end: int) -> Iterator[StoredBatch]:
        image, decay = self._log.image, self._log.decay
        for batch in image.batches:
            if start < batch.end <= end:
                if (batch.base, batch.epoch) in decay.damaged:
                    raise DamagedData(f"simulated: compaction cannot read the batch at {batch.base}", offset=Offset(batch.base))
                yield batch

    def _map_keys(self) -> None:
        for batch in self._read(self._request.dirty_from, self._request.until):
            if not self._keys.add(batch.data, parse_header(batch.data)):
                break

    def _groups(self) -> Iterator[list[SegmentInfo]]:
        """Neighbours that fit in one segment even if nothing of them goes. One that is not compacted to its end is the first of
        its group: what aborted transactions leave there is still found by the index of that segment."""
        group: list[SegmentInfo] = []
        for segment in self._log.segments()[:-1]:
            if segment.base_offset >= self._keys.clean_until or segment.end_offset > self._request.until:
                break
            is_whole = segment.end_offset <= self._keys.clean_until
            if group and not (is_whole and sum(each.size for each in group) + segment.size <= self._segment_bytes):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _rewrite(self, segments: Sequence[SegmentInfo]) -> tuple[list[StoredBatch], list[StoredBatch]]:
        old = list(self._read(segments[0].base_offset, segments[-1].end_offset))
        new = [data for batch in old for data in self._rewriter.rewrite(batch.data, parse_header(batch.data))]
        new += self._rewriter.end_segment()
        return old, [stored(data) for data in new]

    def _install(self, old: list[StoredBatch], new: list[StoredBatch], first_end: int) -> None:
        self._disk.machine.port_call("install compacted segments")
        self._before += sum(len(batch.data) for batch in old)
        self._after += sum(len(batch.data) for batch in new)
        self._log.exchange(old, new, first_end)
        self._disk.observer.segments_compacted(self._log.group, Installed(request=self._request, before=old, after=new))
