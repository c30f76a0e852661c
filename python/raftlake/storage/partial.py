"""The file that says that a log does not hold yet all that was committed when it was begun (`ports.LogStore.note_partial`).

`partial` in a partition's directory is empty. It is there, durably, before the first batch of such a log is, and goes when the
log has caught up. `replica.partition.wholeness` makes use of it.
"""

from __future__ import annotations

from pathlib import Path

from raftlake.storage.files import delete_file, replace_file

FILE_NAME = "partial"


def is_noted(path: Path) -> bool:
    """Of the log in `path`."""
    return (path / FILE_NAME).exists()


def note(path: Path, is_partial: bool) -> None:
    """Durable when it returns. Raises StorageError; DiskFull: then nothing was noted."""
    if is_partial:
        replace_file(path / FILE_NAME, b"")
    else:
        delete_file(path / FILE_NAME)
