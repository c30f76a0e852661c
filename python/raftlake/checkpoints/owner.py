"""The owner key of a checkpoint, `/fs-owner/<pipeline>/<path>`: taken by a command as by a run of a query.

Whoever put the key last owns the checkpoint. Each change of an owner compares the version of the key. So a query that runs
stops with its next write, and its error names the command.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from raftlake.checkpoints.location import Location
from raftlake.checkpoints.space import Change, Space
from raftlake.client.errors import KvConflict
from raftlake.client.sink_keys import time_of
from raftlake.errors import WrongState, printable
from raftlake.kv.lenient_json import facts_of, number_of, text_of

_TRIES = 100


@dataclass(frozen=True, slots=True)
class Owner:
    """The value of an owner key. `run` is the run of a query, or a command."""

    run: str
    query: str
    host: str
    pid: int
    since_ms: int

    @staticmethod
    def here(run: str, query: str, now_ms: int) -> Owner:
        return Owner(run, query, socket.gethostname(), os.getpid(), now_ms)

    @staticmethod
    def decode(value: bytes) -> Owner:
        """Members that are missing are empty, or 0: whatever stands in the key is an owner."""
        facts = facts_of(value)
        run, query, host = (text_of(facts, name) for name in ("run", "query", "host"))
        return Owner(run, query, host, number_of(facts, "pid"), time_of(facts, "since_ms"))

    def encode(self) -> bytes:
        facts = {"run": self.run, "query": self.query, "host": self.host, "pid": self.pid, "since_ms": self.since_ms}
        return json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode()

    @property
    def since(self) -> str:
        """ISO 8601, UTC."""
        return datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def __str__(self) -> str:
        return printable(f"run {self.run} on host {self.host} (process {self.pid}, since {self.since})")


class Ownership:
    """One command and one checkpoint."""

    def __init__(self, space: Space, root: Location, command: str, query: str, now_ms: int) -> None:
        self._space = space
        self._key = root.owner_key
        self.root = root
        self.owner = Owner.here(f"`{command}` {uuid.uuid4()}", query, now_ms)
        self.version = 0

    def take(self) -> Owner | None:
        """Own the checkpoint from now on; the owner before."""
        for _ in range(_TRIES):
            before = self._space.get(self._key)
            change = Change()
            change.put(self._key, self.owner.encode(), over=0 if before is None else before.version)
            try:
                self.version = self._space.commit(change)
            except KvConflict:
                continue
            return None if before is None or before.value is None else Owner.decode(before.value)
        raise WrongState(f"{self.root}: others took the checkpoint {_TRIES} times while this command tried to")

    def explain(self, conflict: KvConflict) -> None:
        """WrongState where somebody else has taken the checkpoint."""
        if self._key not in conflict.current:
            return
        entry = self._space.get(self._key)
        newer = "nobody: its owner key was deleted" if entry is None else str(Owner.decode(entry.value or b""))
        raise WrongState(
            f"{self.root} was taken from this command, and it changes nothing more. The owner is {newer}"
        ) from conflict

    @property
    def compare(self) -> tuple[str, int]:
        return self._key, self.version


def commit_as(owners: Sequence[Ownership], space: Space, change: Change) -> int:
    """Commit a change that only the owners of these checkpoints may make. Raises as `Space.commit`, and WrongState."""
    change.compare.update(ownership.compare for ownership in owners)
    try:
        return space.commit(change)
    except KvConflict as conflict:
        for ownership in owners:
            ownership.explain(conflict)
        raise
