"""Fenced changes of the files of a checkpoint, in transactions that a node takes.

Each transaction compares the owner keys, and the versions of all that it changes. A file is put with a compare of the directory
around it, so that no file stands without its directories. A transaction is whole, and the work as a whole may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from raftlake.checkpoints.blobs import INLINE_BYTES, Blobs
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.owner import Ownership, commit_as
from raftlake.checkpoints.space import Change, Space
from raftlake.checkpoints.tree import Found, Progress, find
from raftlake.client.errors import KvConflict
from raftlake.errors import WrongState


class Writer:
    """Changes files as the owner of the checkpoints in `owners`. `clock` gives ms since 1970."""

    def __init__(self, space: Space, blobs: Blobs, owners: Sequence[Ownership], clock: Callable[[], int]) -> None:
        self._space = space
        self._blobs = blobs
        self._owners = owners
        self._clock = clock
        #: Directories that are there, with their versions.
        self._directories: dict[Location, int] = {}

    def commit(self, change: Change, gone: Sequence[Found] = ()) -> int:
        """The blobs of `gone` go, whose files the change takes away. WrongState where another program changed the files
        meanwhile, or took the checkpoint."""
        garbage: list[tuple[Node, str]] = []
        for found in gone:
            intent = self._blobs.discard(change, found.location, found.node)
            if intent is not None:
                garbage.append((found.node, intent))
        try:
            version = commit_as(self._owners, self._space, change)
        except KvConflict as conflict:
            raise WrongState(
                f"{self._owners[0].root}: another program changes these files at the same time ({conflict}). Repeat the command"
            ) from conflict
        for node, intent in garbage:
            self._blobs.remove(node, intent)
        return version

    def forget_directories(self) -> None:
        """Look anew which directories are there, after some were deleted."""
        self._directories.clear()

    def make_directories(self, location: Location) -> None:
        """A directory and those around it, as far as they are missing."""
        if location.is_root or location in self._directories:
            return
        self.make_directories(location.parent)
        found = find(self._space, location)
        if found is not None and not found.node.is_directory:
            raise WrongState(f"{location} is a file")
        if found is None:
            change = Change()
            self._compare_directory(change, location)
            change.put(location.key, Node.directory(self._clock()).encode(), over=0)
            version = self.commit(change)
            found = None if version else find(self._space, location)
            self._directories[location] = version if found is None else found.version
        else:
            self._directories[location] = found.version

    def _compare_directory(self, change: Change, location: Location) -> None:
        around = location.parent
        if not around.is_root:
            change.compare.setdefault(around.key, self._directories[around])

    def put(self, location: Location, content: bytes, *, over: int) -> int:
        """One file, in a transaction of its own; its version."""
        change = Change()
        self._add(change, location, content, over=over)
        return self.commit(change)

    def _add(self, change: Change, location: Location, content: bytes, *, over: int) -> None:
        """Add a file of any size to a change; its directory is made at once."""
        if len(content) <= INLINE_BYTES:
            self.add(change, location, content, over=over)
            return
        self.make_directories(location.parent)
        self._compare_directory(change, location)
        node, intent, version = self._blobs.write(location, content)
        change.put(location.key, node.encode(), over=over)
        change.delete(intent, at=version)

    def rewrite(self, found: Found, location: Location, content: bytes) -> None:
        """A file to a new place, with another content there."""
        change = Change()
        self._add(change, location, content, over=0)
        change.delete(found.location.key, at=found.version)
        self.commit(change, [found])

    def add(self, change: Change, location: Location, content: bytes, *, over: int = 0) -> None:
        """Add a small file to a change, over the version that stands there; its directory is made at once."""
        self.make_directories(location.parent)
        self._compare_directory(change, location)
        change.put(location.key, Node.inline(self._clock(), content).encode(), over=over)

    def put_all(self, files: Iterable[tuple[Location, bytes]], count: int, progress: Progress) -> None:
        """New files, many in a transaction; their number is `count`."""
        change = Change()
        done = 0
        for location, content in files:
            self.make_directories(location.parent)
            done += 1
            if not len(content) <= INLINE_BYTES:
                self.put(location, content, over=0)
                continue
            value = Node.inline(self._clock(), content).encode()
            if not change.has_room(1, len(value)):
                self.commit(change)
                progress("files copied", done - 1, count)
                change = Change()
            self._compare_directory(change, location)
            change.put(location.key, value, over=0)
        if change.ops:
            self.commit(change)
        progress("files copied", done, count)

    def delete_all(self, files: Sequence[Found], progress: Progress) -> None:
        """Files and their blobs."""
        for at in range(0, len(files), _SLICE):
            change = Change()
            gone = files[at : at + _SLICE]
            for found in gone:
                change.delete(found.location.key, at=found.version)
            self.commit(change, gone)
            progress("files deleted", min(at + _SLICE, len(files)), len(files))

    def delete_directories(self, directories: Iterable[Found]) -> None:
        """Directories whose files are gone, inner ones first. One that has files of somebody else stays."""
        for found in sorted(directories, key=lambda found: found.location.key.count("/"), reverse=True):
            change = Change(newest={found.location.prefix: 0})
            change.delete(found.location.key, at=found.version)
            self.commit(change)

    def move_all(self, files: Sequence[Found], target: Callable[[Found], Location], progress: Progress) -> None:
        """Files to new places; blobs stay where they are."""
        change = Change()
        for number, found in enumerate(files):
            location = target(found)
            self.make_directories(location.parent)
            value = found.node.encode()
            if not change.has_room(2, len(value)):
                self.commit(change)
                progress("files moved", number, len(files))
                change = Change()
            self._compare_directory(change, location)
            change.put(location.key, value, over=0)
            change.delete(found.location.key, at=found.version)
        if change.ops:
            self.commit(change)
        progress("files moved", len(files), len(files))


#: Files that one transaction deletes: each may have the intent of a blob beside.
_SLICE = 250
