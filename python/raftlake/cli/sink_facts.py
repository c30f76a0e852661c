"""What `raftlake sinks` gathers: the quorum's keys of exactly-once sinks, decoded. And the end of what a sink has left open.

A sink whose keys are gone may have transactions that are open still: a forgetting that was broken off leaves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftlake.client import sink_keys as keys
from raftlake.client.errors import KvConflict
from raftlake.errors import RaftlakeError
from raftlake.kv.commands import OPERATIONS_MAX

if TYPE_CHECKING:
    from raftlake.client import Client
    from raftlake.client.types import KvEntry, OpenTransaction


class SinkMissing(RaftlakeError):
    """No sink has that app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    app: str
    owner: keys.Owner
    last: keys.CommittedBatch
    #: The newest version of its keys; 0 where it has none.
    version: int

    @property
    def prefix(self) -> str:
        """Of its keys."""
        return keys.app_prefix(self.app)

    def facts(self) -> dict[str, Any]:
        return {
            "app": self.app,
            "batch": self.last.batch,
            "rows": self.last.rows,
            "tasks": self.last.tasks,
            "topics": dict(self.last.topics),
            "committedMs": self.last.at_ms,
            "committedBy": self.last.run,
            "isReplanned": self.last.is_replanned,
            "owner": {
                "run": self.owner.run,
                "query": self.owner.query,
                "host": self.owner.host,
                "pid": self.owner.pid,
                "sinceMs": self.owner.since_ms,
                "generation": self.owner.generation,
            },
        }


def find(client: Client) -> list[Sink]:
    """All sinks, by app."""
    found: dict[str, dict[str, KvEntry]] = {}
    for entry in _entries(client, keys.APPS):
        name, _, what = entry.key.removeprefix(keys.APPS).partition("/")
        found.setdefault(keys.app_of(name), {})[what] = entry
    return [_sink(name, entries) for name, entries in sorted(found.items())]


def read(client: Client, name: str) -> Sink:
    """The sink, also one that has no keys."""
    prefix = keys.app_prefix(name)
    return _sink(name, {entry.key.removeprefix(prefix): entry for entry in _entries(client, prefix)})


def require(client: Client, name: str) -> Sink:
    """The sink; SinkMissing where there is none."""
    sink = read(client, name)
    if not sink.version:
        raise missing(name)
    return sink


def missing(name: str) -> SinkMissing:
    return SinkMissing(f"no sink has the app {name!r}; `raftlake sinks list` names them")


def open_transactions(client: Client, name: str) -> tuple[OpenTransaction, ...]:
    """Those of the tasks of a sink that nobody has ended yet."""
    prefix = keys.app_transactions(name)
    return tuple(each for each in client.open_transactions(prefix) if keys.is_task_of(prefix, each.transactional_id))


def abort(client: Client, left: Sequence[OpenTransaction]) -> None:
    """Abort what is open still of these."""
    ends = [each.end(commit=False) for each in left]
    while ends:
        try:
            client.kv.txn({}, ends[:OPERATIONS_MAX])
            del ends[:OPERATIONS_MAX]
        except KvConflict as conflict:
            # A task, or its coordinator, has ended some meanwhile. No command ends the others with them.
            rest = [end for end in ends if end.producer_id not in conflict.refused]
            if len(rest) == len(ends):
                raise
            ends = rest


def _sink(name: str, entries: dict[str, KvEntry]) -> Sink:
    owner, last = entries.get("owner"), entries.get("batch")
    return Sink(
        app=name,
        owner=keys.decode_owner(None if owner is None else owner.value),
        last=keys.decode_batch(None if last is None else last.value),
        version=max((entry.version for entry in entries.values()), default=0),
    )


def _entries(client: Client, prefix: str) -> list[KvEntry]:
    found: list[KvEntry] = []
    after: str | None = None
    while True:
        page = client.kv.list(prefix, after=after, values=True)
        found += page.entries
        if not page.more:
            return found
        after = page.last
