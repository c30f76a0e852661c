"""Emptying a log in one step: the announcement, the deletion, and what a crash in between is finished by.

`reset-pending` is written durably before anything goes, and removed last. Until then every open of the log carries the reset
out again, so a log is the old one or the new, empty one. Refuses to know why a log begins anew.
"""

from __future__ import annotations

from pathlib import Path

from raftlake.errors import StorageError
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.storage.aborted_index import SUFFIX as ABORTED_SUFFIX
from raftlake.storage.cleaned import SWAP_SUFFIX
from raftlake.storage.descriptors import spared
from raftlake.storage.epochs import LeaderEpochs
from raftlake.storage.files import FilePool, durable_names, read_file, replace_file, storage_error
from raftlake.storage.segment import Segment
from raftlake.storage.start_points import SUFFIXES as POINT_SUFFIXES

#: A reset that has begun and must be finished: `0\n<offset> <epoch>\n`.
RESET_FILE_NAME = "reset-pending"


def announce_reset(path: Path, start: OffsetAndEpoch) -> None:
    """Say durably that everything goes. Raises StorageError."""
    replace_file(path / RESET_FILE_NAME, f"0\n{start.offset} {start.epoch}\n".encode())


def perform_reset(path: Path, start: OffsetAndEpoch, pool: FilePool, epochs: LeaderEpochs) -> Segment:
    """Carry out the reset that RESET_FILE_NAME announces; a crash anywhere in here is finished by the next open."""
    with durable_names(path):
        try:
            for file in spared(lambda: sorted(path.iterdir())):
                # What is `.cleaned` goes when its pass has ended: a worker may be at it.
                if file.suffix in (".log", SWAP_SUFFIX, ".index", ".timeindex", ABORTED_SUFFIX, *POINT_SUFFIXES):
                    pool.disposal.unlink(file)
            segment = Segment.create(path, start.offset, pool)
            epochs.reset_to(start)
            pool.room.retrying(epochs.save)
            (path / RESET_FILE_NAME).unlink()
        except OSError as error:
            raise storage_error("reset", path, error) from error
    return segment


def read_pending_reset(path: Path) -> OffsetAndEpoch | None:
    """The reset that a crash interrupted. Raises StorageError when its file is damaged."""
    file = path / RESET_FILE_NAME
    data = read_file(file)
    if data is None:
        return None
    try:
        version, position, rest = data.decode("ascii").split("\n")
        offset, epoch = position.split(" ")
        if version != "0" or rest:
            raise ValueError(f"unexpected content {data!r}")
        return OffsetAndEpoch(Offset(int(offset)), Epoch(int(epoch)))
    except ValueError as error:
        raise StorageError(f"{file} is damaged: {error}") from error
