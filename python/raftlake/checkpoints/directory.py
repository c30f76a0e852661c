"""A checkpoint as files in a local directory: read for an import, written by an export.

Files that Hadoop keeps beside (`.offsets.0.crc` and the like) and temporary files begin with a dot and are no part of it. A
directory appears with all of its files, by one rename.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from raftlake.checkpoints.layout import METADATA, relocated
from raftlake.checkpoints.mark import uuid_of
from raftlake.checkpoints.sources import Selection
from raftlake.checkpoints.tree import Progress
from raftlake.errors import InvalidInput, MachineError, WrongState


class Directory:
    """The files below a directory, as they are when this is made."""

    def __init__(self, path: Path) -> None:
        _require_text(path)
        self.path = Path(os.path.realpath(path))
        try:
            is_directory = self.path.is_dir()
        except OSError as error:
            raise _unreadable(path, error) from error
        if not is_directory:
            raise WrongState(f"{path} is no directory")
        self._seen = self._look()
        self.names = frozenset(self._seen)
        query = uuid_of(self.read(METADATA)) if METADATA in self.names else None
        if query is None:
            raise WrongState(f"{path} is no checkpoint: it has no file `metadata` with the id of a query")
        self.query = query

    def _look(self) -> dict[str, tuple[int, int]]:
        """The size in bytes and the time in ns of each file."""
        found: dict[str, tuple[int, int]] = {}
        for home, directories, files in os.walk(self.path, onerror=_raise):
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            for name in files:
                if name.startswith("."):
                    continue
                file = Path(home, name)
                try:
                    state = file.stat()
                except OSError as error:
                    raise _unreadable(file, error) from error
                found[file.relative_to(self.path).as_posix()] = (state.st_size, state.st_mtime_ns)
        return found

    def read(self, name: str) -> bytes:
        """The content of a file."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise _unreadable(self.path / name, error) from error

    def require_unchanged(self) -> None:
        """WrongState where a file was made, changed or deleted since: a query writes there."""
        now = self._look()
        if changed := sorted(name for name in {*self._seen, *now} if self._seen.get(name) != now.get(name)):
            raise WrongState(f"{self.path} was changed while it was read ({changed[0]}): stop the query that writes there")


def _raise(error: OSError) -> None:
    raise _unreadable(Path(error.filename), error) from error


def _unreadable(path: Path, error: OSError) -> MachineError:
    return MachineError(f"{path} cannot be read: {error.strerror or error}")


def _require_text(path: Path) -> None:
    """InvalidInput for a path that cannot stand in a mark, or in a file of a checkpoint."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{str(path)!r} is not valid Unicode text") from error


def require_new(path: Path) -> None:
    """WrongState where something stands there, but an empty directory."""
    _require_text(path)
    try:
        is_new = not path.is_symlink() and (not path.exists() or (path.is_dir() and not any(path.iterdir())))
    except OSError as error:
        raise _unreadable(path, error) from error
    if not is_new:
        raise WrongState(f"{path} exists: give a new or an empty directory")


def write_directory(path: Path, metadata: bytes, chosen: Selection, progress: Progress) -> None:
    """Write a checkpoint, `metadata` last. What a broken-off
    call leaves is named `.<name>.part-…`."""
    require_new(path)
    path = path.absolute()
    part = path.with_name(f".{path.name}.part-{uuid.uuid4().hex[:8]}")
    try:
        part.mkdir(parents=True)
        for number, name in enumerate(chosen.names, 1):
            _write(part / name, relocated(name, chosen.read(name), f"file:{path}"))
            progress("files written", number, len(chosen.names))
        _write(part / METADATA, metadata)
        for home, _, _ in os.walk(part):
            _sync(Path(home))
        if path.exists():
            path.rmdir()
        part.rename(path)
        _sync(path.parent)
    except OSError as error:
        raise MachineError(f"{error.filename or path} cannot be written: {error.strerror or error}") from error
    finally:
        # After the rename there is nothing of that name.
        shutil.rmtree(part, ignore_errors=True)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _sync(directory: Path) -> None:
    """What was created and renamed in a directory is on disk."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
