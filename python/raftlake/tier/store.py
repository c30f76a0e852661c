"""Files beside a Delta table, through delta-rs' own store: one way to a local path, S3, Azure and Google Cloud Storage.

On a local path a file counts only when it is synced, and delta-rs syncs nothing. Object stores answer when a file is durable.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from crc32c import crc32c
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from raftlake.tier.failures import STORE_ERRORS

#: pyarrow ships no types.
Arrow: TypeAlias = Any

#: What the file systems of Linux and macOS allow for the name of a directory.
NAME_BYTES_MAX = 255

_READ_BYTES = 8 << 20


class OutputFile:
    """A file that is being written, for pyarrow; its size and its CRC-32C so far."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._stream.write(content)
        self.crc = crc32c(content, self.crc)
        self.size += len(content)
        return len(content)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """The store decides when it sends what."""

    def close(self) -> None:
        """pyarrow has written all. `finish` decides whether there is a file."""
        self.closed = True

    def finish(self) -> None:
        """The file is complete in the store when this returns."""
        self._stream.close()


class Store:
    """The files of one table. Paths are relative to it. Any method may raise one of STORE_ERRORS."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._handler = DeltaStorageHandler(uri, dict(options))
        self._files = PyFileSystem(self._handler)
        self._local = local_path(uri)

    def create(self, path: str) -> OutputFile:
        """A new file, in place of one that is there."""
        # pyarrow's own wrapper hands over a kind of buffer that delta-rs does not take.
        return OutputFile(self._handler._handler.open_output_stream(path, None))

    def write(self, path: str, data: bytes) -> None:
        file = self.create(path)
        file.write(data)
        file.finish()

    def duplicate(self, path: str, to: str) -> None:
        """The same bytes as another file."""
        file = self.create(to)
        with self.open(path) as source:
            while part := source.read(_READ_BYTES):
                file.write(part)
        file.finish()

    def open(self, path: str) -> Arrow:
        """A file to read from, as pyarrow has them. FileNotFoundError where there is none."""
        if self._local is not None:
            # Through Python each piece would be copied once more: a fifth of the time of reading rows.
            return pa.OSFile(os.path.join(self._local, path))
        return self._files.open_input_file(path)

    def read(self, path: str) -> bytes | None:
        """All of a small file; None where there is none."""
        try:
            with self.open(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        info = self._files.get_file_info(path)
        return int(info.size) if info.type is FileType.File else None

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory; none where it is not there."""
        found = self._files.get_file_info(FileSelector(directory, allow_not_found=True))
        return [posixpath.basename(info.path) for info in found if info.type is FileType.File]

    def directories(self) -> list[str]:
        """The names of the directories that lie directly here."""
        found = self._files.get_file_info(FileSelector("", allow_not_found=True))
        return [info.path.strip("/") for info in found if info.type is FileType.Directory]

    def checksum(self, path: str) -> int:
        """The CRC-32C of a file as the store has it."""
        crc = 0
        with self.open(path) as file:
            while part := file.read(_READ_BYTES):
                crc = crc32c(part, crc)
        return crc

    def discard(self, paths: Sequence[str]) -> None:
        """Delete files that no commit names, where the store lets us: VACUUM finds what is left of them."""
        for path in paths:
            with contextlib.suppress(*STORE_ERRORS):
                self._handler.delete_file(path)

    def sync(self, paths: Sequence[str], where_there: Sequence[str] = ()) -> None:
        """Make files and their names durable on a local path."""
        if self._local is None:
            return
        files = [self._local / path for path in paths]
        files += [path for path in (self._local / path for path in where_there) if path.exists()]
        parents = {parent for path in files for parent in path.parents if parent.is_relative_to(self._local)}
        for path in [*files, *sorted(parents | {self._local}, reverse=True), self._local.parent]:
            with _descriptor(path) as descriptor:
                os.fsync(descriptor)


@contextlib.contextmanager
def _descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def local_path(uri: str) -> Path | None:
    """The directory that a URI names on this machine; None for a store elsewhere."""
    if "://" not in uri:
        return Path(uri)
    parts = urllib.parse.urlsplit(uri)
    return Path(urllib.parse.unquote(parts.path)) if parts.scheme == "file" else None


def fits(uri: str) -> bool:
    """Whether there can be a directory of that name."""
    place = local_path(uri)
    return place is None or len(os.fsencode(place.name)) <= NAME_BYTES_MAX


def absolute(uri: str) -> str:
    """A URI that means the same wherever a process runs."""
    place = local_path(uri)
    return uri.rstrip("/") if place is None else str(place.absolute())


def sink(file: OutputFile) -> Arrow:
    """The file as pyarrow writes to it."""
    return pa.PythonFile(file, mode="w")
