"""Topics whose logs find no room when they are opened, on real files: their directories go with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostedkit import FIRST, SECOND, Hosted
from raftlake.errors import DiskFull, TooManyFiles
from raftlake.replica.hosting.queue import NO_ROOM_PAUSE_MS, OPENED_AT_ONCE
from raftlake.storage.partition import CREATE_SUFFIX
from raftlake.storage.segment import Segment


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    found = Hosted(tmp_path)
    yield found
    found.files.abandon()


@pytest.fixture(params=[TooManyFiles, DiskFull])
def no_room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No log gets its first segment, until this is undone."""

    def refuse(*_given: object) -> Segment:
        raise request.param("simulated")

    monkeypatch.setattr(Segment, "create", refuse)
    return monkeypatch


def test_the_directories_of_a_topic_that_was_never_opened_go_with_it(hosted: Hosted, no_room: pytest.MonkeyPatch) -> None:
    """All that are made together, and not only that of the log that found no room. Others were never made."""
    hosted.create(FIRST, OPENED_AT_ONCE + 1)
    assert len(hosted.directories) == OPENED_AT_ONCE and hosted.hosts == {}
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    hosted.delete()
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert hosted.directories == [] and hosted.names.directories() == []


def test_a_name_can_be_used_again_whose_topic_was_never_opened(hosted: Hosted, no_room: pytest.MonkeyPatch) -> None:
    """The node stopped: the directory belonged to another topic id."""
    for _ in range(2):
        hosted.create(FIRST, 2)
        hosted.delete()
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    hosted.create(SECOND, 2)
    no_room.undo()
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert hosted.hosts == {"orders-0": SECOND, "orders-1": SECOND}
    assert hosted.directories == ["orders-0", "orders-1"]


def test_a_topic_that_stays_is_opened_when_there_is_room(hosted: Hosted, no_room: pytest.MonkeyPatch) -> None:
    hosted.create(FIRST, 2)
    no_room.undo()
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert hosted.hosts == {"orders-0": FIRST, "orders-1": FIRST}


def test_a_restart_knows_the_directories_too(hosted: Hosted, no_room: pytest.MonkeyPatch) -> None:
    hosted.create(FIRST, 2)
    hosted.files.abandon()
    restarted = Hosted(hosted.place)
    restarted.create(FIRST, 2)
    restarted.delete()
    no_room.undo()
    restarted.create(SECOND)
    restarted.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert restarted.hosts == {"orders-0": SECOND} and restarted.directories == ["orders-0"]
    restarted.files.abandon()


def test_room_that_ends_between_two_directories_leaves_none_of_them(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = os.rename

    def rename(source: Path, target: Path) -> None:
        if str(source).endswith(f"-1{CREATE_SUFFIX}"):
            raise OSError(errno.ENOSPC, "no space left on device")
        honest(source, target)

    monkeypatch.setattr(os, "rename", rename)
    hosted.create(FIRST, 3)
    assert hosted.directories == ["orders-0"] and hosted.hosts == {}
    hosted.delete()
    monkeypatch.undo()
    hosted.create(SECOND, 3)
    hosted.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert hosted.hosts == {f"orders-{index}": SECOND for index in range(3)}


def test_a_directory_of_an_older_topic_is_not_taken_for_that_of_the_next(hosted: Hosted) -> None:
    """The older one's deletion comes first, by its own name."""
    hosted.create(FIRST)
    hosted.delete()
    hosted.create(SECOND)
    assert hosted.hosts == {}
    hosted.ground.run(NO_ROOM_PAUSE_MS)
    assert hosted.hosts == {"orders-0": SECOND} and hosted.directories == ["orders-0"]
