"""Copies of checkpoints: a fork as another query, an import from a directory, an export into one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from raftlake.checkpoints.directory import Directory, require_new, write_directory
from raftlake.checkpoints.layout import METADATA, relocated
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark
from raftlake.checkpoints.sources import Selection, select
from raftlake.checkpoints.steps import Tools, clear, end, put_mark, require_place
from raftlake.checkpoints.tree import Tree
from raftlake.errors import WrongState

#: So often an export looks whether nothing was changed while it read.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """`batch` is the last one that is committed in the copy; None: none is."""

    query: str
    batch: int | None
    files: int


def fork(tools: Tools, source: Location, target: Location, batch: int | None, base: str | None, told: str) -> Copied:
    """Copy a checkpoint as of a batch, as that of a new query. The source may be in use."""
    require_apart(source, target)
    tree = tools.read(source)
    log_of = tools.log_of(source, tree.require_checkpoint())
    chosen = select(str(source), tree.files, tree.content, batch, log_of=log_of)
    query = tools.new_id()
    metadata = json.dumps({"id": query}, separators=(",", ":")).encode()
    return _install(tools, target, Mark("fork", told, query), chosen, metadata, base or tree.base)


def import_(tools: Tools, source: Path, target: Location, base: str | None, told: str) -> Copied:
    """Copy a checkpoint of a directory into the quorum: the same query goes on there."""
    found = Directory(source)
    chosen = select(str(source), found.names, found.read, None, is_move=True)
    mark = Mark("import", told, found.query)
    return _install(tools, target, mark, chosen, found.read(METADATA), base, found)


def _install(
    tools: Tools,
    target: Location,
    mark: Mark,
    chosen: Selection,
    metadata: bytes,
    base: str | None,
    directory: Directory | None = None,
) -> Copied:
    require_place(tools, target, mark.told)
    ownership, _ = tools.own(target, mark.told, mark.query)
    writer = tools.writer(ownership, blobs=tools.blobs(base))
    # Somebody may have written before the key was taken.
    before = require_place(tools, target, mark.told)
    marked_at = put_mark(tools, writer, target, mark, before.files.get(METADATA))
    clear(writer, before, tools.progress)
    writer.forget_directories()
    files = ((target.below(name), relocated(name, chosen.read(name), str(target))) for name in chosen.names)
    writer.put_all(files, len(chosen.names), tools.progress)
    if directory is not None:
        directory.require_unchanged()
    end(tools, writer, target, metadata, mark.query, marked_at)
    return Copied(mark.query, chosen.batch, len(chosen.names) + 1)


def require_apart(source: Location, target: Location) -> None:
    if source.is_around(target) or target.is_around(source):
        raise WrongState(f"{target} and {source} lie in each other: give a place outside of the checkpoint")


def export(tools: Tools, source: Location, target: Path) -> Copied:
    """Copy a checkpoint into a new directory: the same query goes on there. Nothing is changed in the quorum."""
    require_new(target)
    tree = _steady(tools, source)
    query = tree.require_checkpoint()
    log_of = tools.log_of(source, query)
    chosen = select(str(source), tree.files, tree.content, None, log_of=log_of, is_move=True)
    write_directory(target, tree.content(METADATA), chosen, tools.progress)
    return Copied(query, chosen.batch, len(chosen.names) + 1)


def _steady(tools: Tools, source: Location) -> Tree:
    """The checkpoint as it was at one moment."""
    for _ in range(_LOOKS):
        tree = tools.read(source)
        now = {entry.key: entry.version for entry in tools.space.scan(source.prefix, values=False)}
        if now == {found.location.key: found.version for found in (*tree.files.values(), *tree.directories.values())}:
            return tree
    raise WrongState(f"{source} was changed each of the {_LOOKS} times that it was read: stop the query that writes there")
