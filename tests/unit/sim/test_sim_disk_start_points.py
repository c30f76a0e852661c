"""Start points in memory: durable at once, cut with their log and trimmed with it, and never lost by a crash between."""

from __future__ import annotations

import pytest

from raftlake.errors import DiskFull, StorageError
from raftlake.raft.types import Offset
from raftlake.sim.disk.log_image import LogImage
from raftlake.sim.disk.space import Space
from raftlake.sim.disk.start_points import SimulatedStartPoints


class Crash(Exception):
    pass


class Machine:
    """Counts port calls; crashes at one of them when told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crashes = False

    def port_call(self, name: str) -> None:
        self.calls.append(name)
        if self.crashes:
            raise Crash(name)


class Log:
    def __init__(self) -> None:
        self.images = [LogImage()]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def log() -> Log:
    return Log()


def points_at(log: Log, machine: Machine, *offsets: int) -> SimulatedStartPoints:
    points = SimulatedStartPoints(log, machine)
    for offset in offsets:
        points.save(Offset(offset), b"producers %d" % offset, b"voters %d" % offset)
    return points


def test_what_is_saved_is_loaded_in_any_order_and_listed_in_theirs(log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 30, 9, 100)
    assert list(points.offsets) == [9, 30, 100]
    assert points.load(Offset(30)) == (b"producers 30", b"voters 30")
    points.save(Offset(30), b"later", b"")
    assert points.load(Offset(30)) == (b"later", b"")
    with pytest.raises(StorageError, match="no start point at 31"):
        points.load(Offset(31))
    assert machine.calls == ["save start point"] * 4


def test_a_crash_comes_before_anything_has_happened(log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 10, 20)
    machine.crashes = True
    with pytest.raises(Crash):
        points.save(Offset(30), b"", b"")
    with pytest.raises(Crash):
        points.delete([Offset(10)])
    assert list(points.offsets) == [10, 20]


def test_deleting_nothing_is_no_call(log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 10, 20, 30)
    points.delete([])
    assert "delete start points" not in machine.calls
    points.delete([Offset(10), Offset(15), Offset(30)])
    assert list(points.offsets) == [20]


def test_a_cut_takes_the_points_above_it_out_of_every_version_that_a_crash_may_bring_back(log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 10, 20, 21)
    log.images.append(log.images[0].cut(0))
    points.cut(Offset(20))
    assert [sorted(image.points) for image in log.images] == [[10, 20], [10, 20]]


def test_a_new_version_of_the_log_has_points_of_its_own(log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 10)
    log.images.append(LogImage(start=50))
    assert list(points.offsets) == []
    points.save(Offset(60), b"", b"")
    log.images.pop()
    assert list(points.offsets) == [10]


@pytest.mark.parametrize(
    ("start", "left"),
    [(9, [10, 20, 30]), (10, [10, 20, 30]), (19, [10, 20, 30]), (20, [20, 30]), (29, [20, 30]), (30, [30]), (99, [30])],
)
def test_the_last_point_up_to_the_start_of_the_log_stays(start: int, left: list[int], log: Log, machine: Machine) -> None:
    points = points_at(log, machine, 10, 20, 30)
    points.advance(Offset(start))
    assert list(points.offsets) == left


def test_a_point_in_pieces_is_there_when_it_is_finished_and_each_piece_is_a_port_call(log: Log, machine: Machine) -> None:
    points = points_at(log, machine)
    writer = points.begin(Offset(5), 4)
    writer.append(b"first ")
    writer.append(b"second")
    assert list(points.offsets) == []
    writer.finish(b"head", b"voters")
    writer.abandon()
    assert points.load(Offset(5)) == (b"headfirst second", b"voters")
    assert machine.calls == ["append to start point"] * 2 + ["finish start point"]


@pytest.mark.parametrize("how", ["crash", "abandon"])
def test_of_a_point_that_is_not_finished_nothing_is_left(log: Log, machine: Machine, how: str) -> None:
    points = points_at(log, machine, 3)
    writer = points.begin(Offset(5), 4)
    writer.append(b"rows")
    machine.crashes = how == "crash"
    if machine.crashes:
        with pytest.raises(Crash):
            writer.finish(b"head", b"voters")
    else:
        writer.abandon()
    assert list(points.offsets) == [3]


def test_a_full_disk_takes_no_piece(log: Log, machine: Machine) -> None:
    space = Space()
    points = SimulatedStartPoints(log, machine, space)
    writer = points.begin(Offset(5), 4)
    space.fill(5)
    writer.append(b"rows")
    with pytest.raises(DiskFull):
        writer.append(b"rows")
    assert list(points.offsets) == []
