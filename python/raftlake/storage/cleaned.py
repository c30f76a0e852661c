"""Compacted segments on their way into a log: what they are called until then, and how they take the place of others.

A pass writes `<base>.log.cleaned` with its index files, synced. The new segment stands for a group of neighbours, from the
base of the first to the end of the last. It is put into place in these steps:

1. `<base>.log.cleaned` becomes `<base>.log.swap`, and the directory is synced. From here on the group is the new one.
2. The files of the old segments go. The first one's index of aborted transactions stays.
3. `<base>.log.swap` becomes `<base>.log`, the index files get their names, and the directory is synced.

A start deletes what is `.cleaned`, and finishes what is `.swap`. The names are Kafka's.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from raftlake.raft.types import Offset
from raftlake.storage.aborted_index import SUFFIX as ABORTED_SUFFIX
from raftlake.storage.descriptors import open_file, spared
from raftlake.storage.files import storage_error, sync_directory
from raftlake.storage.index_files import SUFFIXES as INDEX_SUFFIXES
from raftlake.storage.scan import WINDOW_HEADERS, walk
from raftlake.storage.segment import file_name

logger = logging.getLogger("raftlake.storage")

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_SWAP_NAME = re.compile(r"([0-9]{20})\.log\.swap")
_SEGMENT_NAME = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A new segment that a pass has written, for a group of old ones."""

    base_offset: Offset
    #: Exclusive.
    end_offset: Offset
    size: int
    timestamp_ms_max: int
    #: The bases of the old segments, ascending.
    sources: tuple[Offset, ...]


def cleaned_path(directory: Path, base: Offset, suffix: str = ".log") -> Path:
    """Where a pass writes a file of the new segment."""
    return directory / (file_name(base, suffix) + CLEANED_SUFFIX)


def swap_path(directory: Path, base: Offset) -> Path:
    """The new segment, which counts already."""
    return directory / (file_name(base) + SWAP_SUFFIX)


def commit(directory: Path, base: Offset) -> None:
    """Step 1, but for the sync. Raises StorageError; then the old segments count."""
    try:
        os.rename(cleaned_path(directory, base), swap_path(directory, base))
    except OSError as error:
        raise storage_error("rename", cleaned_path(directory, base), error) from error


def put_in_place(directory: Path, base: Offset, sources: Sequence[Offset], unlink: Callable[[Path], None]) -> None:
    """Steps 2 and 3. `unlink` deletes a large file. Raises StorageError; the next start goes on."""
    path = directory
    try:
        for old in sources:
            for suffix in (*INDEX_SUFFIXES, ABORTED_SUFFIX):
                path = directory / file_name(old, suffix)
                if suffix != ABORTED_SUFFIX or old != base:
                    path.unlink(missing_ok=True)
            path = directory / file_name(old)
            if path.exists():
                unlink(path)
        path = directory / file_name(base)
        os.rename(swap_path(directory, base), path)
        for suffix in INDEX_SUFFIXES:
            path = cleaned_path(directory, base, suffix)
            if path.exists():
                os.rename(path, directory / file_name(base, suffix))
        path = directory
        sync_directory(directory)
    except OSError as error:
        raise storage_error("put into place", path, error) from error


def finish_swaps(directory: Path) -> None:
    """A start, before it looks for segments: put into place what a crash left between two steps. The index files of the new
    segment are made anew when it is opened. Raises StorageError, DamagedData."""
    swaps = list_swaps(directory)
    if not swaps:
        return
    bases = _bases(directory, _SEGMENT_NAME)
    for base in swaps:
        end = _end_of(swap_path(directory, base), base)
        put_in_place(directory, base, [old for old in bases if base <= old < end], Path.unlink)


def _end_of(path: Path, base: Offset) -> Offset:
    """Where the batches of a segment lead to."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as error:
        raise storage_error("open", path, error) from error
    try:
        end = base
        for batch in walk(descriptor, path, 0, os.fstat(descriptor).st_size, offset=base, window=WINDOW_HEADERS):
            end = batch.end_offset
    finally:
        os.close(descriptor)
    return end


def discard_cleaned(directory: Path, unlink: Callable[[Path], None] = Path.unlink) -> None:
    """Delete what passes have left that did not come to their end. A directory of such a name is not of a pass: it is told of,
    and stays. Raises StorageError."""
    for name in _names(directory):
        if name.endswith(CLEANED_SUFFIX):
            if (directory / name).is_dir():
                logger.warning("%s is a directory, and no file of a compaction: it is left alone", directory / name)
                continue
            try:
                unlink(directory / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_error("delete", directory / name, error) from error


def list_swaps(directory: Path) -> list[Offset]:
    """The bases of new segments that count and are not in place. Raises StorageError."""
    return _bases(directory, _SWAP_NAME)


def _bases(directory: Path, name: re.Pattern[str]) -> list[Offset]:
    return [Offset(int(match[1])) for match in map(name.fullmatch, _names(directory)) if match is not None]


def _names(directory: Path) -> list[str]:
    try:
        return sorted(spared(lambda: os.listdir(directory)))
    except OSError as error:
        raise storage_error("list", directory, error) from error
