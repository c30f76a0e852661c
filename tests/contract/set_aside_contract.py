"""What every log does once it is closed or deleted, and how every directory sets damage aside on a full disk.

A test module derives `Test...` from `SetAsideContract`, and says how a log is damaged and how a disk refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from contract.batches import data_of, fill, make_batch, read_all
from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.driver import Compaction, LogDirectory, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Impairment, Offset, OffsetAndEpoch

GROUP = GroupId("orders", 3, bytes(range(16)))
OTHER = GroupId("orders", 4, bytes(range(16)))
SEGMENT_BYTES = 2_000
COUNT = 40
EPOCH = Epoch(2)
#: Where the damage is: the first batch, one in a closed segment, the newest one.
PLACES = [0, 15, COUNT - 1]


def _compaction(log: LogStore) -> Compaction:
    return Compaction(
        dirty_from=Offset(0),
        until=log.segment_bases[1],
        now_ms=1,
        delete_retention_ms=1,
        tombstones_below=Offset(0),
        aborted=(),
        last_batches=frozenset(),
        keys_max=100,
        segment_bytes=SEGMENT_BYTES,
    )


def uses(log: LogStore) -> dict[str, Callable[[], object]]:
    """Each of them raises StorageError once the log is closed. `log` has several segments, and is still open."""
    data, span = make_batch(log.end_offset, epoch=EPOCH)
    end, base, request = log.end_offset, log.segment_bases[1], _compaction(log)
    return {
        "append": lambda: log.append([data], [span]),
        "read": lambda: log.read(Offset(0), end, 10),
        "truncate_to": lambda: log.truncate_to(Offset(1)),
        "truncate_to the end": lambda: log.truncate_to(end),
        "reset": lambda: log.reset(OffsetAndEpoch(Offset(100), EPOCH)),
        "advance_start": lambda: log.advance_start(base),
        "find_timestamp": lambda: log.find_timestamp(1),
        "latest_timestamp": log.latest_timestamp,
        "segments": log.segments,
        "roll": log.roll,
        "locate": lambda: log.locate(Offset(0), base),
        "locate nothing": lambda: log.locate(end, end),
        "note_partial": lambda: log.note_partial(True),
        "scrub": lambda: log.scrub(100),
        "compact": lambda: log.compact(request, lambda _compacted: None),
    }


def uses_of_files(log: LogStore) -> dict[str, Callable[[], object]]:
    """The same of what lies beside a log, once that is deleted."""
    return {
        "save a start point": lambda: log.start_points.save(Offset(10), b"producers", b"voters"),
        "begin a start point": lambda: log.start_points.begin(Offset(10), 4),
        "load a start point": lambda: log.start_points.load(Offset(5)),
        "delete a start point": lambda: log.start_points.delete([Offset(5)]),
    }


NAMES = [
    "append", "read", "truncate_to", "truncate_to the end", "reset", "advance_start", "find_timestamp", "latest_timestamp",
    "segments", "roll", "locate", "locate nothing", "note_partial", "scrub", "compact",
]  # fmt: skip
NAMES_OF_FILES = ["save a start point", "begin a start point", "load a start point", "delete a start point"]


class SetAsideContract(ABC):
    """The suite. `directory` holds one log of COUNT synced batches, in several segments."""

    #: So many steps of `set_aside` can be refused.
    steps: int

    @abstractmethod
    def open_directory(self, place: Path) -> LogDirectory: ...

    @abstractmethod
    def flush(self, directory: LogDirectory, log: LogStore) -> None:
        """Sync the log, and wait for that."""

    @abstractmethod
    def restart(self, directory: LogDirectory) -> LogDirectory:
        """The process ends at once, and another one opens the same directory."""

    @abstractmethod
    def close(self, directory: LogDirectory) -> None: ...

    @abstractmethod
    def damage(self, directory: LogDirectory, log: LogStore, offset: int) -> None:
        """Flip a bit of the batch at `offset`."""

    @abstractmethod
    def refusing(self, directory: LogDirectory, step: int) -> AbstractContextManager[None]:
        """The step of `set_aside` finds no room, 0 being the first; those before it do."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Iterator[LogDirectory]:
        opened = self.open_directory(tmp_path)
        yield opened
        self.close(opened)

    @pytest.fixture
    def log(self, directory: LogDirectory) -> LogStore:
        log = directory.open(GROUP)
        self.batches = fill(log, COUNT, epoch=EPOCH)
        assert len(log.segments()) > 3
        self.flush(directory, log)
        log.start_points.save(Offset(5), b"producers", b"voters")
        return log

    def set_aside(self, directory: LogDirectory, offset: int) -> str:
        return directory.set_aside(GROUP, DamagedData("found by a test", offset=offset), EPOCH)

    def reopen(self, directory: LogDirectory) -> LogStore:
        """As a node opens it: what an open finds damaged is set aside."""
        try:
            return directory.open(GROUP)
        except DamagedData as damage:
            directory.set_aside(GROUP, damage, EPOCH)
            return directory.open(GROUP)

    # --- closed logs ---

    @pytest.mark.parametrize("name", NAMES + NAMES_OF_FILES)
    def test_a_deleted_log_refuses_every_use(self, directory: LogDirectory, log: LogStore, name: str) -> None:
        use = {**uses(log), **uses_of_files(log)}[name]
        directory.delete([GROUP])
        for _ in range(2):
            with pytest.raises(StorageError) as caught:
                use()
            assert not isinstance(caught.value, (DamagedData, DiskFull))

    @pytest.mark.parametrize("name", NAMES)
    def test_a_log_that_was_set_aside_refuses_every_use(self, directory: LogDirectory, log: LogStore, name: str) -> None:
        use = uses(log)[name]
        self.damage(directory, log, 15)
        self.set_aside(directory, 15)
        again = directory.open(GROUP)
        assert again is not log
        with pytest.raises(StorageError, match="closed"):
            use()
        end = again.end_offset
        assert end == 15 and again.segments()[-1].end_offset == end
        fill(again, 1, epoch=EPOCH)
        assert again.end_offset == end + 1

    def test_the_next_log_of_a_deleted_one_is_of_use(self, directory: LogDirectory, log: LogStore) -> None:
        directory.delete([GROUP])
        again = directory.open(GROUP)
        fill(again, COUNT, epoch=EPOCH)
        again.start_points.save(Offset(5), b"producers", b"voters")
        for name, use in {**uses(again), **uses_of_files(again)}.items():
            if name not in ("truncate_to", "reset", "advance_start", "compact", "locate nothing"):
                use()

    def test_a_closed_log_delays_no_flush(self, directory: LogDirectory, log: LogStore) -> None:
        other = directory.open(OTHER)
        fill(other, 2)
        directory.delete([GROUP])
        self.flush(directory, other)
        assert self.restart(directory).open(OTHER).end_offset == 2

    # --- damage that is set aside ---

    def require_outcome(self, directory: LogDirectory, offset: int) -> None:
        log = directory.open(GROUP)
        assert (log.start_offset, log.end_offset) == (0, offset)
        assert read_all(log) == data_of(self.batches[:offset])
        noted = directory.impairment(GROUP)
        assert noted is not None and noted[0].epoch == EPOCH and noted[0].end_offset >= COUNT

    @pytest.mark.parametrize("offset", PLACES)
    def test_a_log_is_cut_before_its_damage(self, directory: LogDirectory, log: LogStore, offset: int) -> None:
        self.damage(directory, log, offset)
        self.set_aside(directory, offset)
        self.require_outcome(directory, offset)
        self.require_outcome(self.restart(directory), offset)

    @pytest.mark.parametrize("offset", PLACES)
    def test_whatever_step_is_refused_the_next_call_goes_on(self, directory: LogDirectory, log: LogStore, offset: int) -> None:
        self.damage(directory, log, offset)
        for step in (*range(self.steps), self.steps - 1, 0):
            with self.refusing(directory, step), pytest.raises(DiskFull):
                self.set_aside(directory, offset)
            with pytest.raises(StorageError, match="closed"):
                log.segments()
        self.set_aside(directory, offset)
        self.require_outcome(directory, offset)

    @pytest.mark.parametrize("offset", PLACES)
    def test_an_open_or_a_restart_between_two_steps_leads_to_the_same_end(
        self, directory: LogDirectory, log: LogStore, offset: int
    ) -> None:
        self.damage(directory, log, offset)
        for step in range(self.steps):
            with self.refusing(directory, step), suppress(DamagedData, DiskFull):
                self.set_aside(directory, offset)
            again = self.reopen(directory)
            assert again.end_offset in (offset, COUNT)
            directory = self.restart(directory)
            again = self.reopen(directory)
            if again.end_offset == offset:
                break
            # A start does not look into closed segments.
            assert again.end_offset == COUNT and offset != COUNT - 1
        else:
            self.set_aside(directory, offset)
        self.require_outcome(directory, offset)

    def test_a_refused_directory_forgets_what_it_found_with_the_log(self, directory: LogDirectory, log: LogStore) -> None:
        self.damage(directory, log, 15)
        with self.refusing(directory, 0), pytest.raises(DiskFull):
            self.set_aside(directory, 15)
        directory.delete([GROUP])
        fill(directory.open(GROUP), 20)
        with pytest.raises(StorageError, match=r"found by a test|not there"):
            self.set_aside(directory, 15)

    def test_the_second_damage_is_set_aside_like_the_first(self, directory: LogDirectory, log: LogStore) -> None:
        self.damage(directory, log, 30)
        self.set_aside(directory, 30)
        again = directory.open(GROUP)
        self.damage(directory, again, 10)
        self.set_aside(directory, 10)
        self.require_outcome(directory, 10)

    def test_a_log_without_damage_is_not_cut(self, directory: LogDirectory, log: LogStore) -> None:
        with pytest.raises(StorageError) as caught:
            self.set_aside(directory, 10)
        assert not isinstance(caught.value, (DamagedData, DiskFull))
        assert self.restart(directory).open(GROUP).end_offset == COUNT

    def test_a_replica_that_is_whole_again_stays_so(self, directory: LogDirectory, log: LogStore) -> None:
        self.damage(directory, log, 15)
        self.set_aside(directory, 15)
        directory.open(GROUP)
        directory.mend(GROUP)
        assert directory.impairment(GROUP) is None
        assert self.restart(directory).impairment(GROUP) is None

    def test_less_is_never_noted_than_before(self, directory: LogDirectory, log: LogStore) -> None:
        for offset in (20, 10):
            self.damage(directory, directory.open(GROUP), offset)
            self.set_aside(directory, offset)
        noted = directory.impairment(GROUP)
        assert noted is not None and noted[0] == Impairment(EPOCH, Offset(COUNT))
