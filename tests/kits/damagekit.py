"""A directory with one log in several segments, whose files tests of damage spoil."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.batches import Batch, fill
from contract.file_faults import without_sync
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage.directory import FileLogDirectory

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 2_000
COUNT = 40

#: A directory, and the batches of its log.
Model = tuple[Path, list[Batch]]


def make_model(place: Path, epochs: Sequence[int]) -> Model:
    """A directory that was closed cleanly: `COUNT` batches in several segments, as many of each epoch."""
    with pytest.MonkeyPatch.context() as patch:
        without_sync(patch)
        directory = reopen(place)
        log = directory.open(GROUP)
        batches = [batch for epoch in epochs for batch in fill(log, COUNT // len(epochs), epoch=epoch)]
        directory.close()
    return place, batches


def copy_of(model: Model, place: Path) -> Path:
    """For a test to spoil."""
    return shutil.copytree(model[0], place / "copy")


def reopen(place: Path) -> FileLogDirectory:
    return FileLogDirectory(place, segment_bytes=SEGMENT_BYTES, post=None)


def segments(place: Path) -> list[Path]:
    return sorted((place / str(GROUP)).glob("*.log"))


def flip(data: bytes, at: int) -> bytes:
    """The same with a bit flipped in the byte at `at`."""
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
