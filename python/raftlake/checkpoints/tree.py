"""A checkpoint as it lies in the key space: its files with their versions, and what they hold.

`Tree.read` reads all keys below a directory; small files come with their content. Pages are read one after the other: a
checkpoint that a query writes at the same time may change in between. Files are never changed, only made and deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raftlake.checkpoints.blobs import Blobs, base_of
from raftlake.checkpoints.layout import METADATA, Layout
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark, uuid_of
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.space import Space
from raftlake.errors import WrongState

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A file or a directory, at a version. `size` is that of the key's value, in bytes."""

    location: Location
    node: Node
    version: int
    size: int


@dataclass(frozen=True)
class Tree:
    """`files` and `directories` by their names below `root`, in order. `home` is the directory itself; the root of a pipeline
    has no key."""

    root: Location
    home: Found | None
    files: dict[str, Found]
    directories: dict[str, Found]
    blobs: Blobs

    @staticmethod
    def read(space: Space, root: Location, blobs: Blobs) -> Tree:
        files: dict[str, Found] = {}
        directories: dict[str, Found] = {}
        for entry in space.scan(root.prefix, values=True):
            value = entry.value or b""
            found = Found(Location.of_key(entry.key), Node.decode(entry.key, value), entry.version, len(value))
            (directories if found.node.is_directory else files)[root.relative(entry.key)] = found
        return Tree(root, find(space, root), files, directories, blobs)

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.directories

    @property
    def layout(self) -> Layout:
        return Layout.of(self.files)

    def content(self, name: str) -> bytes:
        """Of a file. Raises as `Blobs.content`, and WrongState where there is no such file."""
        found = self.files.get(name)
        if found is None:
            raise WrongState(f"{self.root} has no file {name}: it was removed, or is damaged")
        return self.blobs.content(found.location, found.node)

    @property
    def mark(self) -> Mark | None:
        return Mark.decode(self.content(METADATA)) if METADATA in self.files else None

    @property
    def query(self) -> str | None:
        """The id of the query; None where this is no checkpoint, or one that a command is changing."""
        return uuid_of(self.content(METADATA)) if METADATA in self.files else None

    def require_checkpoint(self, told: str = "") -> str:
        """The id of the query. WrongState where there is none, and where another command than `told` was broken off."""
        mark = self.mark
        if mark is not None:
            if mark.is_of(told):
                return mark.query
            raise WrongState(mark.told_of(self.root))
        query = self.query
        if query is None:
            raise WrongState(f"{self.root} {self._why_no_checkpoint()}")
        self.require_no_other()
        return query

    def _why_no_checkpoint(self) -> str:
        if self.files:
            return "is no checkpoint: it has no file `metadata` with the id of a query"
        if self.home is None:
            return "does not exist"
        return "has no files, and is no checkpoint" if self.home.node.is_directory else "is a file; a checkpoint is a directory"

    def require_no_other(self) -> None:
        """WrongState where other checkpoints lie below this one."""
        for name, found in self.files.items():
            if name.endswith(f"/{METADATA}") and not name.startswith("state/") and uuid_of(self.content(name)):
                raise WrongState(f"{self.root} holds another checkpoint, {found.location.parent}: give that one")

    @property
    def base(self) -> str | None:
        """Where its large files are, as a `file:` URI."""
        bases = [base for found in self.files.values() if found.node.is_blob and (base := base_of(found.node.uri))]
        return bases[0] if bases else None


def find(space: Space, location: Location) -> Found | None:
    """What stands at a place."""
    entry = None if location.is_root else space.get(location.key)
    if entry is None or entry.value is None:
        return None
    return Found(location, Node.decode(entry.key, entry.value), entry.version, len(entry.value))
