"""`Checkpoints`: the checkpoints of a quorum, for programs and notebooks. `raftlake checkpoints` is made of it.

Every method that changes something is safe to break off and to call again with the same arguments: it finds what it did, and
ends it. Errors: WrongState says what stands against the change, before anything was changed or with the way to go on;
ConfigError is for names and options; UnknownOutcome for a last step that no node confirmed.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftlake.checkpoints import changes, copies, facts
from raftlake.checkpoints.changes import Changed
from raftlake.checkpoints.copies import Copied
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import LogBlobs
from raftlake.checkpoints.space import Space
from raftlake.checkpoints.steps import Tools
from raftlake.checkpoints.tree import Progress

if TYPE_CHECKING:
    from raftlake.client import Client

_COMMAND = "raftlake checkpoints"


def _silent(what: str, done: int, count: int) -> None:
    """Nobody is told."""


class Checkpoints:
    """`client` is that of the quorum. `progress(what, done, count)` is called as long work goes on."""

    def __init__(self, client: Client, progress: Progress = _silent) -> None:
        self._client = client
        self._tools = Tools(Space(client.kv), LogBlobs(client), client, _now_ms, lambda: str(uuid.uuid4()), progress)

    def list(self, within: str | None = None) -> list[dict[str, Any]]:
        """The checkpoints of all pipelines, or below a place like `raftlake://orders`: `path`, `query`, `lastBatch`,
        `lastCommitted`, `keys`, `keyBytes`, `owner`, and `brokenOff`, the command that has to be repeated."""
        return facts.list_checkpoints(self._tools, None if within is None else Location.parse(within))

    def show(self, path: str) -> dict[str, Any]:
        """One checkpoint: the same, `batches` with the offsets of each source, `state` with operators, stores and versions.
        `canGoOn` of a batch: whether a query can be rewound to it, or forked from it."""
        return facts.show_checkpoint(self._tools, Location.parse(path))

    def fork(self, source: str, target: str, *, batch: int | None = None, base_uri: str | None = None) -> Copied:
        """Copy a checkpoint as of a batch (the last one that is committed) as that of a query with an id of its own. A query
        that uses the source is not disturbed. `base_uri` is a `file:` URI: where large files go, by default to those of the
        source."""
        option = "" if batch is None else f" --batch {batch}"
        from_, to = Location.parse(source), Location.parse(target)
        return copies.fork(self._tools, from_, to, batch, base_uri, f"{_COMMAND} fork {from_} {to}{option}")

    def rewind(self, path: str, batch: int) -> Changed:
        """Take a checkpoint back to a batch. A query that runs on it stops with its next write."""
        root = Location.parse(path)
        return changes.rewind(self._tools, root, batch, f"{_COMMAND} rewind {root} --batch {batch}")

    def rename(self, source: str, target: str) -> Changed:
        """Move a checkpoint to another path, or pipeline. A query that runs on it stops with its next write."""
        from_, to = Location.parse(source), Location.parse(target)
        return changes.rename(self._tools, from_, to, f"{_COMMAND} rename {from_} {to}")

    def delete(self, path: str) -> Changed:
        """Delete a checkpoint with its state. A query that runs on it stops with its next write."""
        root = Location.parse(path)
        return changes.delete(self._tools, root, f"{_COMMAND} delete {root}", self._delete_topics)

    def import_(self, source: str | Path, target: str, *, base_uri: str | None = None) -> Copied:
        """Copy a checkpoint of a local directory into the quorum. Its query has to be stopped, and goes on there. `base_uri` is
        a `file:` URI: where large files go, by default into the quorum."""
        # `Path.resolve` ends with an error of its own where a link leads to itself.
        from_, to = Path(os.path.realpath(source)), Location.parse(target)
        return copies.import_(self._tools, from_, to, base_uri, f"{_COMMAND} import {from_} {to}")

    def export(self, source: str, target: str | Path) -> Copied:
        """Copy a checkpoint into a new local directory. Nothing is changed in the quorum: stop the query before it is started
        from the copy."""
        return copies.export(self._tools, Location.parse(source), Path(target))

    def _delete_topics(self, prefix: str) -> None:
        for topic in self._client.topics():
            if topic.name.startswith(prefix):
                self._client.delete_topic(topic.name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
