"""Changes of one checkpoint: rewound to a batch, renamed, deleted. Each takes the checkpoint first, so that a query that runs
stops with its next write, and its error names the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raftlake.checkpoints.copies import require_apart
from raftlake.checkpoints.layout import METADATA, is_after, names_paths, problems, relocated
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import RENAME, Mark
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.owner import Owner
from raftlake.checkpoints.sources import require_no_problem
from raftlake.checkpoints.space import Change
from raftlake.checkpoints.steps import Tools, clear, end, is_unused_target, put_mark, put_marks, require_place
from raftlake.checkpoints.tree import Found, Tree
from raftlake.checkpoints.writer import Writer
from raftlake.errors import WrongState

#: What the names of topics with changes of state begin with; an id and a dash follow.
CHANGELOG_TOPICS = "__raftlake-state-"


@dataclass(frozen=True, slots=True)
class Changed:
    """`files` were removed or moved. `owner` had the checkpoint before; None: nobody had, or nothing was to do."""

    query: str
    files: int
    owner: Owner | None


def rewind(tools: Tools, root: Location, batch: int, told: str) -> Changed:
    """Take a checkpoint back to a batch: the next run begins with the batch behind it."""
    tree = tools.read(root)
    query = tree.require_checkpoint(told)
    _require_rewindable(tools, tree, query, batch)
    if tree.mark is None and not _behind(tree, batch):
        return Changed(query, 0, None)
    ownership, owner = tools.own(root, told, query)
    writer = tools.writer(ownership)
    # A query that ran until now may have written since.
    tree = tools.read(root)
    tree.require_checkpoint(told)
    _require_rewindable(tools, tree, query, batch)
    found = tree.files[METADATA]
    before = _metadata_of(tree)
    marked_at = found.version
    if tree.mark is None:
        marked_at = put_mark(tools, writer, root, Mark("rewind", told, query, before.decode()), found)
    gone = _behind(tree, batch)
    writer.delete_all(gone, tools.progress)
    end(tools, writer, root, before, query, marked_at)
    return Changed(query, len(gone), owner)


def _behind(tree: Tree, batch: int) -> list[Found]:
    return [found for name, found in tree.files.items() if is_after(name, batch)]


def _require_rewindable(tools: Tools, tree: Tree, query: str, batch: int) -> None:
    layout = tree.layout
    has_changelog = tools.changelog_of(tree.root, query) is not None
    require_no_problem(str(tree.root), batch, problems(layout, batch, tree.content, has_changelog=has_changelog))


def rename(tools: Tools, source: Location, target: Location, told: str) -> Changed:
    """Move a checkpoint. The bytes of large files, and topics with changes of state, stay where they are."""
    require_apart(source, target)
    query = tools.read(source).require_checkpoint(told)
    require_place(tools, target, told)
    of_source, owner = tools.own(source, told, query)
    of_target, _ = tools.own(target, told, query)
    tree = tools.read(source)
    tree.require_checkpoint(told)
    writer = tools.writer(of_source, of_target, blobs=tools.blobs(tree.base))
    there = require_place(tools, target, told)
    before = _metadata_of(tree)
    # Read before anything is marked: what cannot be read here would leave a checkpoint that nobody can use.
    rewritten = _rewritten(tree, target)
    mark = Mark(RENAME, told, query, before.decode())
    source_at, target_at = _mark_both(tools, writer, mark, tree, there)
    _move_files(tools, writer, tree, target, rewritten)
    writer.delete_directories(tree.directories.values())
    change = Change(newest={source.prefix: source_at})
    change.put(target.below(METADATA).key, Node.inline(tools.clock(), before).encode(), over=target_at)
    change.delete(source.below(METADATA).key, at=source_at)
    if tree.home is not None:
        change.delete(source.key, at=tree.home.version)
    if (changelog := tools.changelog_of(source, query)) is not None:
        old = tools.space.get(target.changelog_key)
        change.put(target.changelog_key, changelog.of(query), over=0 if old is None else old.version)
        change.delete(source.changelog_key, at=changelog.version)
    writer.commit(change)
    return Changed(query, len(tree.files), owner)


def _mark_both(tools: Tools, writer: Writer, mark: Mark, source: Tree, target: Tree) -> tuple[int, int]:
    """The versions of the two marks. They are put at once: a target that was marked alone would stand in the way of all others
    where the rename is given up."""
    unmarked = {tree.root: tree.files.get(METADATA) for tree in (target, source) if tree.mark is None}
    marked_at = {tree.root: tree.files[METADATA].version for tree in (target, source) if tree.root not in unmarked}
    if unmarked:
        marked_at |= dict.fromkeys(unmarked, put_marks(tools, writer, mark, unmarked))
    return marked_at[source.root], marked_at[target.root]


def _metadata_of(tree: Tree) -> bytes:
    """What Spark's file `metadata` is when no command is under way."""
    mark = tree.mark
    return tree.content(METADATA) if mark is None else mark.before.encode()


def _rewritten(tree: Tree, target: Location) -> dict[str, bytes]:
    """The content at the target of each file that has another one there."""
    contents = {name: tree.content(name) for name in tree.files if names_paths(name)}
    moved = {name: relocated(name, content, str(target)) for name, content in contents.items()}
    return {name: content for name, content in moved.items() if content != contents[name]}


def _move_files(tools: Tools, writer: Writer, tree: Tree, target: Location, rewritten: Mapping[str, bytes]) -> None:
    for name, content in rewritten.items():
        writer.rewrite(tree.files[name], target.below(name), content)
    moved = [found for name, found in tree.files.items() if name != METADATA and name not in rewritten]
    writer.move_all(moved, lambda found: target.below(tree.root.relative(found.location.key)), tools.progress)


def delete(tools: Tools, root: Location, told: str, delete_topics: Callable[[str], None]) -> Changed:
    """Delete a checkpoint, and topics with changes of its state. Its owner key stays, and names the command. `delete_topics`
    deletes those whose names begin with a text."""
    tree = tools.read(root)
    query = _deletable(tree)
    ownership, owner = tools.own(root, told, query)
    writer = tools.writer(ownership)
    tree = tools.read(root)
    _deletable(tree)
    marked_at = put_mark(tools, writer, root, Mark("delete", told, query), tree.files[METADATA])
    clear(writer, tree, tools.progress)
    change = Change(newest={root.prefix: marked_at})
    change.delete(root.below(METADATA).key, at=marked_at)
    if tree.home is not None:
        change.delete(root.key, at=tree.home.version)
    if (changelog := tools.changelog_of(root, query)) is not None:
        delete_topics(f"{CHANGELOG_TOPICS}{changelog.changelog_id}-")
        change.delete(root.changelog_key, at=changelog.version)
    writer.commit(change)
    return Changed(query, len(tree.files), owner)


def _deletable(tree: Tree) -> str:
    """The id of the query. WrongState for a checkpoint that is half elsewhere, and for what is none."""
    mark = tree.mark
    if mark is None:
        return tree.require_checkpoint()
    if mark.holds_the_only_copy and not is_unused_target(tree):
        raise WrongState(mark.told_of(tree.root))
    return mark.query
