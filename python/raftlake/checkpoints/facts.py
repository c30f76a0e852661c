"""What is to be told of checkpoints: a few facts of each in a list, and all of one. Values are ready for JSON.

Nothing is changed and nobody is fenced. What a running query changes meanwhile may be seen or not.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from raftlake.checkpoints.blobs import INLINE_BYTES
from raftlake.checkpoints.layout import METADATA, Layout, batch_of, log_json, offsets_of, operator_facts, problems
from raftlake.checkpoints.location import FILES_ROOT, Location
from raftlake.checkpoints.mark import Mark, uuid_of
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.owner import Owner
from raftlake.checkpoints.steps import Tools
from raftlake.checkpoints.tree import Tree
from raftlake.client.types import KvEntry
from raftlake.errors import InvalidInput, MachineError, RequestRejected, WrongState


def list_checkpoints(tools: Tools, within: Location | None) -> list[dict[str, Any]]:
    """The checkpoints below a place, or all. `keyBytes` is what counts for the quota of the key space."""
    prefix = FILES_ROOT if within is None else within.key
    sizes: dict[str, int] = {}
    for entry in tools.space.scan(prefix, values=False):
        if within is None or within.is_around(Location.of_key(entry.key)):
            sizes[entry.key] = entry.size
    roots = {key.removesuffix(f"/{METADATA}") for key in sizes if key.endswith(f"/{METADATA}")}
    metadata = {key: tools.space.get(f"{key}/{METADATA}") for key in sorted(roots)}
    checkpoints = {key: row for key, entry in metadata.items() if entry and (row := _row(tools, key, entry)) is not None}
    names: defaultdict[str, list[str]] = defaultdict(list)
    for key, size in sizes.items():
        root = _root_of(key, checkpoints)
        if root is not None:
            names[root].append(Location.of_key(root).relative(key))
            checkpoints[root]["keyBytes"] += size
            checkpoints[root]["keys"] += 1
    for key, row in checkpoints.items():
        layout = Layout.of(names[key])
        row["lastBatch"] = layout.offsets[-1] if layout.offsets else None
        row["lastCommitted"] = layout.commits[-1] if layout.commits else None
        row["owner"] = owner_of(tools, Location.of_key(key))
    return [checkpoints[key] for key in sorted(checkpoints)]


def _row(tools: Tools, key: str, entry: KvEntry) -> dict[str, Any] | None:
    """None for what is no checkpoint, and for one whose `metadata` cannot be read here. Anybody may write such a key."""
    try:
        node = Node.decode(entry.key, entry.value or b"")
        if node.is_blob and node.length > INLINE_BYTES:
            return None
        content = tools.blobs().content(Location.of_key(entry.key), node)
    except (InvalidInput, MachineError, RequestRejected, WrongState):
        return None
    mark = Mark.decode(content)
    query = mark.query if mark is not None else uuid_of(content)
    if query is None:
        return None
    facts: dict[str, Any] = {"path": str(Location.of_key(key)), "query": query, "keys": 0, "keyBytes": 0}
    return {**facts, "brokenOff": None if mark is None else mark.told}


def _root_of(key: str, roots: dict[str, dict[str, Any]]) -> str | None:
    while key not in roots:
        key = key.rpartition("/")[0]
        if not key:
            return None
    return key


def owner_of(tools: Tools, root: Location) -> dict[str, Any] | None:
    entry = tools.space.get(root.owner_key)
    if entry is None:
        return None
    owner = Owner.decode(entry.value or b"")
    return {"run": owner.run, "query": owner.query, "host": owner.host, "pid": owner.pid, "since": owner.since}


def show_checkpoint(tools: Tools, root: Location) -> dict[str, Any]:
    """All batches with their offsets, the state, the owner. WrongState where there is no checkpoint."""
    tree = tools.read(root)
    mark = tree.mark
    query = mark.query if mark is not None else tree.require_checkpoint()
    layout = tree.layout
    changelog = tools.changelog_of(root, query)
    return {
        "path": str(root),
        "query": query,
        "brokenOff": None if mark is None else mark.told,
        "owner": owner_of(tools, root),
        "lastBatch": layout.offsets[-1] if layout.offsets else None,
        "lastCommitted": layout.commits[-1] if layout.commits else None,
        "files": len(tree.files),
        "bytes": sum(found.node.length for found in tree.files.values()),
        "keyBytes": sum(found.size for found in tree.files.values()),
        "blobs": sum(found.node.is_blob for found in tree.files.values()),
        "changelog": None if changelog is None else changelog.changelog_id,
        "batches": [_batch(tree, layout, batch, changelog is not None) for batch in _batches(layout)],
        "state": [_operator(tree, layout, operator) for operator in layout.operators],
    }


def _batches(layout: Layout) -> list[int]:
    return sorted({*layout.offsets, *layout.commits})


def _batch(tree: Tree, layout: Layout, batch: int, has_changelog: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"batch": batch, "committed": batch in layout.commits, "offsets": None, "timestampMs": None}
    if batch in layout.offsets:
        content = tree.content(f"offsets/{batch}")
        facts["offsets"] = offsets_of(content)
        facts["timestampMs"] = log_json(content).get("batchTimestampMs")
        facts["watermarkMs"] = log_json(content).get("batchWatermarkMs")
    found = problems(layout, batch, tree.content, has_changelog=has_changelog) if facts["committed"] else ["not committed"]
    return {**facts, "canGoOn": not found, "why": found[0] if found else None}


def _operator(tree: Tree, layout: Layout, operator: int) -> dict[str, Any]:
    facts = operator_facts(layout, operator, tree.content) or {}
    home = f"state/{operator}/"
    stores = {store: files for store, files in layout.state.items() if store.startswith(home)}
    versions = [file.version for files in stores.values() for file in files]
    names = sorted({store.split("/", 3)[3] if store.count("/") > 2 else "default" for store in stores})
    return {
        "operator": operator,
        "name": facts.get("operatorInfo", {}).get("operatorName"),
        "stores": [info.get("storeName") for info in facts.get("stateStoreInfo", [])] or names,
        "partitions": len({store.split("/")[2] for store in stores}),
        "versions": [min(versions), max(versions)] if versions else None,
        "files": sum(name.startswith(home) and batch_of(name) is None for name in tree.files),
        "bytes": sum(found.node.length for name, found in tree.files.items() if name.startswith(home)),
    }
