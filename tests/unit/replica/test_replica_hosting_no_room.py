"""Topics whose logs find no room when they are opened, on real files: their directories go with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import Ground, Noted
from raftlake.errors import DiskFull, TooManyFiles
from raftlake.kv.commands import Delete, Txn, encode, put
from raftlake.kv.keys import topic_key
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.queue import NO_ROOM_PAUSE_MS, OPENED_AT_ONCE
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.partition import CREATE_SUFFIX
from raftlake.storage.segment import Segment

FIRST, SECOND = b"1" * 16, b"2" * 16


class Hosted:
    """The services that host groups, over a data directory. The keys are those of the test."""

    def __init__(self, place: Path) -> None:
        self.ground, self.place, self.state = Ground(), place, KvState()
        engine = self.ground.engine
        self.ground.lead()
        self.files = FileLogDirectory(place, post=None)
        engine.logs, engine.elections = self.files, FileElectionStore(place)
        self.names, quorum, disk = Names(engine.config), Quorum(engine), Noted()
        self.kv: Any = SimpleNamespace(machine=self.state.machine, state=self.state, listeners=[])
        self.hosting = Hosting(
            engine,
            names=self.names,
            quorum=quorum,
            reports=Noted(),  # type: ignore[arg-type]
            producers=ProducerCare(engine),
            disk=disk,  # type: ignore[arg-type]
            damage=DamageControl(engine, self.names, quorum),
            kv=self.kv,
            snapshots=Noted(),  # type: ignore[arg-type]
        )
        self.names.found(self.files.groups())
        TopicRegistry(engine, names=self.names, quorum=quorum, disk=disk, kv=self.kv, hosting=self.hosting)  # type: ignore[arg-type]

    def commit(self, txn: Txn) -> None:
        machine, partition = self.state.machine, self.ground.engine.partitions[METADATA_GROUP]
        offset = partition.log.end_offset
        self.ground.append(partition, encode(txn))
        machine.apply(offset, encode(txn))
        machine.advance_to(partition.core.log_end)
        for listener in self.kv.listeners:
            listener(machine.applied_offset)

    def create(self, topic_id: bytes, partitions: int = 1) -> None:
        self.commit(put(topic_key("orders"), Topic("orders", topic_id, partitions).encode()))

    def delete(self) -> None:
        self.commit(Txn((), (Delete(topic_key("orders")),)))

    @property
    def hosts(self) -> dict[str, bytes]:
        """The groups of topics, and the ids of their topics."""
        return {str(group): group.topic_id for group in self.ground.engine.partitions if group != METADATA_GROUP}

    @property
    def directories(self) -> list[str]:
        return sorted(path.name for path in self.place.iterdir() if path.name.startswith("orders-"))


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
