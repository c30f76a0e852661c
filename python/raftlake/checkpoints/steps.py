"""What each command that changes a checkpoint is made of: the owner key taken, the mark put, the work, the mark replaced.

A command that was broken off is given again: it finds its mark, and goes on or begins anew. Until it has ended no query starts
on the checkpoint, and no older run can write there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from raftlake.checkpoints.blobs import Blobs
from raftlake.checkpoints.changelog_topics import StoreLog, Topics
from raftlake.checkpoints.layout import METADATA
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import LogBlobs
from raftlake.checkpoints.mark import MARKED, RENAME, Mark, uuid_of
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.owner import Owner, Ownership
from raftlake.checkpoints.space import Change, Space
from raftlake.checkpoints.tree import Found, Progress, Tree, find
from raftlake.checkpoints.writer import Writer
from raftlake.errors import WrongState
from raftlake.kv.lenient_json import facts_of, text_of


@dataclass(frozen=True)
class Tools:
    """What all work needs. `clock` gives ms since 1970; `new_id` a new id of a query."""

    space: Space
    log: LogBlobs
    topics: Topics
    clock: Callable[[], int]
    new_id: Callable[[], str]
    progress: Progress

    def blobs(self, base: str | None = None) -> Blobs:
        return Blobs(self.space, self.log, self.clock, base)

    def read(self, root: Location) -> Tree:
        return Tree.read(self.space, root, self.blobs())

    def own(self, root: Location, told: str, query: str) -> tuple[Ownership, Owner | None]:
        """Take a checkpoint for the command `told`; the owner before."""
        ownership = Ownership(self.space, root, told, query, self.clock())
        return ownership, ownership.take()

    def writer(self, *owners: Ownership, blobs: Blobs | None = None) -> Writer:
        return Writer(self.space, blobs or self.blobs(), owners, self.clock)

    def log_of(self, root: Location, query: str) -> Callable[[str], StoreLog] | None:
        """The log of each store of a query; None where its state is in files alone."""
        changelog = self.changelog_of(root, query)
        return None if changelog is None else partial(StoreLog, self.topics, changelog.changelog_id)

    def changelog_of(self, root: Location, query: str) -> Changelog | None:
        """The topics with the changes of a query's state; None where its state is in files alone."""
        entry = self.space.get(root.changelog_key)
        facts = {} if entry is None else facts_of(entry.value)
        changelog_id, of_query = text_of(facts, "id"), text_of(facts, "query")
        if entry is None or not changelog_id:
            return None
        # While a command changes the checkpoint, both this key and `metadata` name its mark.
        is_of_query = of_query == query or of_query.startswith(MARKED)
        return Changelog(changelog_id, entry.version) if is_of_query else None


@dataclass(frozen=True, slots=True)
class Changelog:
    """The key of `QuorumStateStoreProvider` at a version: `changelog_id` is in the names of the topics."""

    changelog_id: str
    version: int

    def of(self, query: str) -> bytes:
        """The value of the key. What names no query of `metadata` is collected as garbage."""
        return json.dumps({"id": self.changelog_id, "query": query}, separators=(",", ":")).encode()


def put_mark(tools: Tools, writer: Writer, root: Location, mark: Mark, found: Found | None) -> int:
    """Put the mark over `metadata`; its version."""
    return put_marks(tools, writer, mark, {root: found})


def put_marks(tools: Tools, writer: Writer, mark: Mark, places: Mapping[Location, Found | None]) -> int:
    """Put the mark over `metadata` in all of these places, or in none; its version there."""
    change = Change()
    for root, found in places.items():
        writer.add(change, root.below(METADATA), mark.encode(), over=0 if found is None else found.version)
        if found is not None and (changelog := tools.changelog_of(root, mark.query)) is not None:
            change.put(root.changelog_key, changelog.of(mark.shown), over=changelog.version)
    # The mark has in `before` what a large `metadata` was.
    version = writer.commit(change, [found for found in places.values() if found is not None])
    if version:
        return version
    marked = find(tools.space, next(iter(places)).below(METADATA))
    return 0 if marked is None else marked.version


def is_unused_target(tree: Tree) -> bool:
    """Whether a rename to this place was broken off before its first file came: all files are at the source still."""
    mark = tree.mark
    return mark is not None and mark.doing == RENAME and mark.told.endswith(f" {tree.root}") and set(tree.files) == {METADATA}


def end(tools: Tools, writer: Writer, root: Location, metadata: bytes, query: str, marked_at: int) -> None:
    """Replace the mark by the true `metadata`: from now on a query may start."""
    change = Change()
    change.put(root.below(METADATA).key, Node.inline(tools.clock(), metadata).encode(), over=marked_at)
    if (changelog := tools.changelog_of(root, query)) is not None:
        change.put(root.changelog_key, changelog.of(query), over=changelog.version)
    writer.commit(change)


def require_place(tools: Tools, target: Location, told: str) -> Tree:
    """The tree at the target of a copy: empty, or what the same command left when it was broken off. WrongState for any other,
    and for a place in a checkpoint."""
    around = target
    while not around.is_root:
        around = around.parent
        found = find(tools.space, around.below(METADATA))
        content = b"" if found is None else tools.blobs().content(found.location, found.node)
        if uuid_of(content) or Mark.decode(content):
            raise WrongState(f"{target} lies in the checkpoint {around}: give a place outside of it")
    tree = tools.read(target)
    mark = tree.mark
    if not tree.is_empty and not (mark is not None and mark.is_of(told)):
        if mark is not None:
            way = f", or delete what it left (raftlake checkpoints delete {target})" if is_unused_target(tree) else ""
            raise WrongState(f"{mark.told_of(target)}{way}")
        raise WrongState(f"{target} exists: give a new place, or delete it first (raftlake checkpoints delete {target})")
    if tree.home is not None and not tree.home.node.is_directory:
        raise WrongState(f"{target} is a file")
    return tree


def clear(writer: Writer, tree: Tree, progress: Progress) -> None:
    """Delete all of a tree but `metadata` and the directory itself."""
    writer.delete_all([found for name, found in tree.files.items() if name != METADATA], progress)
    writer.delete_directories(tree.directories.values())
