"""A process killed before every single system call of an operation: the log is then the old one, the new one, or, for
deletions, something in between that is whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.batches import data_of, fill, read_all
from contract.file_faults import leave, outcomes_of_kills, without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.log import FileLog

GROUP = GroupId("orders", 0, bytes(range(16)))
Opened = tuple[FileLogDirectory, FileLog]
Shape = tuple[int, int, tuple[tuple[int, int], ...]]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    without_sync(monkeypatch)

    def fresh() -> Iterator[Path]:
        for number in itertools.count():
            path = tmp_path / str(number)
            path.mkdir()
            yield path

    return fresh()


def opened(path: Path) -> Opened:
    directory = FileLogDirectory(path, segment_bytes=1_000, post=None)
    return directory, directory.open(GROUP)


def shape_after_restart(state: Opened) -> Shape:
    directory, log = opened(leave(state[0]))
    log.verify()
    shape = (log.start_offset, log.end_offset, tuple(log.epochs))
    fill(log, 3, epoch=9)
    assert log.end_offset == shape[1] + 3
    leave(directory)
    return shape


def start_with(places: Iterator[Path], batches: int = 20) -> Callable[[], Opened]:
    def start() -> Opened:
        state = opened(next(places))
        fill(state[1], batches // 2, epoch=1)
        fill(state[1], batches // 2, epoch=2)
        state[0].flush([state[1]], lambda error: None)
        return state

    return start


FULL: Shape = (0, 20, ((1, 0), (2, 10)))


def test_a_reset_is_all_or_nothing(places: Iterator[Path]) -> None:
    seen = outcomes_of_kills(
        start_with(places), lambda state: state[1].reset(OffsetAndEpoch(Offset(50), Epoch(4))), shape_after_restart
    )
    assert set(seen) == {FULL, (50, 50, ((4, 50),))}
    assert seen == sorted(seen), "once it is done it stays done"


@pytest.mark.parametrize("end", [19, 14, 10, 3, 0])
def test_a_truncation_leaves_a_prefix_between_the_old_and_the_new(places: Iterator[Path], end: int) -> None:
    seen = outcomes_of_kills(start_with(places), lambda state: state[1].truncate_to(Offset(end)), shape_after_restart)
    ends = [shape[1] for shape in seen]
    assert ends[0] == 20
    assert ends[-1] == end
    assert ends == sorted(ends, reverse=True)
    for start, last, epochs in seen:
        assert start == 0
        assert epochs == tuple(entry for entry in FULL[2] if entry[1] < last)


def test_retention_leaves_whole_segments(places: Iterator[Path]) -> None:
    seen = outcomes_of_kills(start_with(places), lambda state: void(state[1].advance_start(Offset(15))), shape_after_restart)
    starts = [shape[0] for shape in seen]
    assert starts == sorted(starts)
    assert starts[0] == 0 < starts[-1] <= 15
    assert {shape[1] for shape in seen} == {20}
    for start, _, epochs in seen:
        assert epochs == (((1, start), (2, 10)) if start < 10 else ((2, start),))


def void(_: object) -> None:
    return


def test_an_append_that_rolls_leaves_a_prefix(places: Iterator[Path]) -> None:
    def act(state: Opened) -> None:
        fill(state[1], 20, epoch=5)
        state[0].flush([state[1]], lambda error: None)

    for start, end, epochs in outcomes_of_kills(start_with(places), act, shape_after_restart):
        assert start == 0
        assert 20 <= end <= 40
        assert epochs == (FULL[2] if end == 20 else (*FULL[2], (5, 20)))


def test_a_group_is_created_or_not(places: Iterator[Path]) -> None:
    other = GroupId("other", 1, bytes(range(16)))

    def look(state: Opened) -> bool:
        directory, _ = opened(leave(state[0]))
        exists = other in directory.groups()
        assert directory.open(other).end_offset == 0
        leave(directory)
        return exists

    seen = outcomes_of_kills(start_with(places), lambda state: void(state[0].open(other)), look)
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


def test_a_group_is_deleted_or_not(places: Iterator[Path]) -> None:
    def look(state: Opened) -> tuple[bool, int]:
        path = leave(state[0])
        directory = FileLogDirectory(path, post=None)
        exists = GROUP in directory.groups()
        end = directory.open(GROUP).end_offset
        assert not list(path.glob("*-delete"))
        leave(directory)
        return exists, end

    seen = outcomes_of_kills(start_with(places), lambda state: state[0].delete([GROUP]), look)
    assert set(seen) == {(True, 20), (False, 0)}


def test_an_election_state_is_the_old_or_the_new_one(places: Iterator[Path]) -> None:
    old = {GroupId("many", number): ElectionState(epoch=Epoch(1)) for number in range(3)}
    new = {group: ElectionState(epoch=Epoch(2), voted_key=ReplicaKey(NodeId(1))) for group in old}

    def start() -> FileElectionStore:
        store = FileElectionStore(next(places))
        store.save(old)
        return store

    def look(store: FileElectionStore) -> list[bool]:
        loaded = [store.load(group) for group in old]
        assert all(state in (old[group], new[group]) for group, state in zip(old, loaded, strict=True))
        return [state == new[group] for group, state in zip(old, loaded, strict=True)]

    seen = outcomes_of_kills(start, lambda store: store.save(new), look)
    assert seen[0] == [False] * 3
    assert seen[-1] == [True] * 3


def test_reading_after_a_restart_gives_the_same_bytes(places: Iterator[Path]) -> None:
    directory, log = opened(next(places))
    batches = fill(log, 30)
    directory, log = opened(leave(directory))
    assert read_all(log) == data_of(batches)
    leave(directory)
