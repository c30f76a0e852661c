"""The log on disk against a model that is a list of batches, under any sequence of operations, kills and restarts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contract.batches import Batch, data_of, end_of, make_batch
from contract.file_faults import Killed, killed_at, without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.directory import FileLogDirectory

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 900


class LogMachine(RuleBasedStateMachine):
    """The model: where the log starts, the epoch before that, and its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        without_sync(self.patch)
        self.place = Path(tempfile.mkdtemp(prefix="raftlake-log-"))
        self.start = 0
        self.epoch_before = 0
        self.batches: list[Batch] = []

    @initialize()
    def open(self) -> None:
        self.directory = FileLogDirectory(self.place, segment_bytes=SEGMENT_BYTES, post=None, files_max=2)
        self.log = self.directory.open(GROUP)

    def teardown(self) -> None:
        self.directory.abandon()
        self.patch.undo()
        shutil.rmtree(self.place)

    @property
    def end(self) -> int:
        return self.batches[-1][1].end_offset if self.batches else self.start

    @property
    def epoch(self) -> int:
        return self.batches[-1][1].epoch if self.batches else self.epoch_before

    @property
    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = [(self.epoch_before, self.start)] if self.start else []
        for _, span in self.batches:
            if not found or span.epoch > found[-1][0]:
                found.append((span.epoch, span.base_offset))
        return found[1:] if len(found) > 1 and found[0][1] == found[1][1] else found

    def new_batches(self, shapes: list[tuple[int, int, int, int]]) -> list[Batch]:
        offset, epoch = self.end, self.epoch
        made = []
        for count, epoch_step, size, timestamp_ms in shapes:
            epoch += epoch_step
            made.append(make_batch(offset, count=count, epoch=epoch, size=size, timestamp_ms=timestamp_ms))
            offset += count
        return made

    shapes = st.lists(
        st.tuples(
            st.integers(1, 4), st.sampled_from([0, 0, 0, 1, 3]), st.sampled_from([0, 50, 300, 1_000]), st.integers(0, 50)
        ),
        min_size=1,
        max_size=6,
    )

    @rule(shapes=shapes)
    def append(self, shapes: list[tuple[int, int, int, int]]) -> None:
        made = self.new_batches(shapes)
        self.log.append([data for data, _ in made], [span for _, span in made])
        self.batches += made

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        kept = int(share * len(self.batches))
        end = self.batches[kept][1].base_offset if kept < len(self.batches) else self.end
        self.log.truncate_to(Offset(end))
        del self.batches[kept:]

    @rule(ahead=st.integers(0, 20), epoch_step=st.integers(0, 3))
    def reset(self, ahead: int, epoch_step: int) -> None:
        self.epoch_before = self.epoch + epoch_step
        self.start = self.end + ahead
        self.batches = []
        if self.start == 0:
            self.epoch_before = 0
        self.log.reset(OffsetAndEpoch(Offset(self.start), Epoch(self.epoch_before)))

    @rule(share=st.floats(0, 1.2))
    def retain(self, share: float) -> None:
        self.moved_to(self.log.advance_start(Offset(self.start + int(share * (self.end - self.start)))))

    def moved_to(self, start: int) -> None:
        gone = [batch for batch in self.batches if batch[1].end_offset <= start]
        if gone:
            self.epoch_before = gone[-1][1].epoch
            del self.batches[: len(gone)]
        assert self.start <= start == (self.batches[0][1].base_offset if self.batches else start)
        self.start = start

    @rule()
    def flush(self) -> None:
        results: list[object] = []
        self.directory.flush([self.log], results.append)
        assert results == [None]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.directory.close()
        else:
            self.directory.abandon()
        self.open()

    @rule(shapes=shapes, call=st.integers(0, 12))
    def append_and_be_killed(self, shapes: list[tuple[int, int, int, int]], call: int) -> None:
        made = self.new_batches(shapes)
        try:
            with killed_at(call):
                for data, span in made:
                    self.log.append([data], [span])
        except Killed:
            pass
        self.directory.abandon()
        self.open()
        kept = [batch for batch in made if batch[1].end_offset <= self.log.end_offset]
        self.batches += kept

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1), call=st.integers(0, 8))
    def truncate_and_be_killed(self, share: float, call: int) -> None:
        kept = int(share * len(self.batches))
        end = self.batches[kept][1].base_offset if kept < len(self.batches) else self.end
        before = self.end
        try:
            with killed_at(call):
                self.log.truncate_to(Offset(end))
        except Killed:
            pass
        self.directory.abandon()
        self.open()
        assert end <= self.log.end_offset <= before
        self.batches = [batch for batch in self.batches if batch[1].end_offset <= self.log.end_offset]

    @rule(share=st.floats(0, 1), call=st.integers(0, 8))
    def retain_and_be_killed(self, share: float, call: int) -> None:
        try:
            with killed_at(call):
                self.log.advance_start(Offset(self.start + int(share * (self.end - self.start))))
        except Killed:
            pass
        self.directory.abandon()
        self.open()
        self.moved_to(self.log.start_offset)

    @rule(share=st.floats(0, 1), width=st.integers(0, 30), size_max=st.sampled_from([0, 200, 700, 5_000]))
    def read(self, share: float, width: int, size_max: int) -> None:
        start = self.start + int(share * (self.end - self.start))
        limit = min(start + width, self.end)
        data = self.log.read(Offset(start), Offset(limit), size_max)
        following = [batch for batch in self.batches if batch[1].end_offset > start]
        if not following or following[0][1].end_offset > limit:
            assert data == b""
            return
        count = next(number for number in range(len(following) + 1) if len(data_of(following[:number])) == len(data))
        assert data == data_of(following[:count])
        assert count >= 1
        assert end_of(data) <= limit
        assert count == 1 or len(data) <= size_max

    @rule(timestamp_ms=st.integers(0, 51))
    def find_timestamp(self, timestamp_ms: int) -> None:
        expected = next((span.base_offset for _, span in self.batches if span.timestamp_ms_max >= timestamp_ms), None)
        found = self.log.find_timestamp(timestamp_ms)
        assert (None if found is None else found.offset) == expected

    @invariant()
    def same_as_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert list(self.log.epochs) == self.epochs
        newest = max((span.timestamp_ms_max for _, span in self.batches), default=None)
        latest = self.log.latest_timestamp()
        assert (None if latest is None else latest.timestamp_ms) == newest

    @invariant()
    def all_bytes_are_there(self) -> None:
        if not hasattr(self, "log"):
            return
        parts = []
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            parts.append(self.log.read(offset, self.log.end_offset, 1 << 20))
            offset = end_of(parts[-1])
        assert b"".join(parts) == data_of(self.batches)


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestLogAgainstModel = LogMachine.TestCase
