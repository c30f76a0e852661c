"""The key space as checkpoints are changed in it: lists of any length, and transactions whose outcome is always known.

A transaction that no answer decides is read back: its first put (values of files carry an id) or its first deletion tells
whether it happened. Sent again it happens at most once, since each transaction compares versions that it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from raftlake.client.errors import KvConflict, NoReachableNode
from raftlake.client.types import KvEntry, KvPage
from raftlake.errors import RequestRejected, UnknownOutcome
from raftlake.kv.commands import Delete, DeletePrefix, Put

#: Operations of one transaction, and bytes of its values: a node takes 1,024 and, with keys and heads, 8 MiB.
OPERATIONS_MAX = 500
VALUE_BYTES_MAX = 4 << 20
_TRIES = 4


class KeyValues(Protocol):
    """The part of `Client.kv` that is used here."""

    def get(self, key: str) -> KvEntry | None: ...

    def list(self, prefix: str, *, after: str | None, limit: int, values: bool) -> KvPage: ...

    def txn(
        self, compare: Mapping[str, int], ops: Sequence[Put | Delete | DeletePrefix], *, newest: Mapping[str, int] | None
    ) -> int: ...


@dataclass
class Change:
    """One transaction as it is put together."""

    compare: dict[str, int] = field(default_factory=dict)
    ops: list[Put | Delete] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)
    value_bytes: int = 0

    def put(self, key: str, value: bytes, *, over: int) -> None:
        """Set a key that stands at version `over`; 0: that does not exist."""
        self.compare[key] = over
        self.ops.append(Put(key, value))
        self.value_bytes += len(value)

    def delete(self, key: str, *, at: int) -> None:
        """Delete a key that stands at version `at`."""
        self.compare[key] = at
        self.ops.append(Delete(key))

    def has_room(self, operations: int, value_bytes: int) -> bool:
        """Whether so much more fits into the transaction."""
        return len(self.ops) + operations <= OPERATIONS_MAX and self.value_bytes + value_bytes <= VALUE_BYTES_MAX


class Space:
    def __init__(self, kv: KeyValues) -> None:
        self._kv = kv

    def get(self, key: str) -> KvEntry | None:
        return self._kv.get(key)

    def scan(self, prefix: str, *, values: bool) -> Iterator[KvEntry]:
        """All keys with a prefix, in order. Pages are read one after the other, and are no view of one moment."""
        after: str | None = None
        while True:
            page = self._kv.list(prefix, after=after, limit=1000, values=values)
            yield from page.entries
            if not page.more:
                return
            after = page.last

    def commit(self, change: Change) -> int:
        """The version of the change. KvConflict where a compare did not hold: nothing was changed then. UnknownOutcome where
        the change may still happen."""
        is_open = False
        for _ in range(_TRIES):
            try:
                try:
                    return self._kv.txn(change.compare, change.ops, newest=change.newest)
                except UnknownOutcome as error:
                    is_open, last = True, error
                except KvConflict:
                    if not is_open or (version := self._version_of(change)) is None:
                        raise
                    return version
                if (version := self._version_of(change)) is not None:
                    return version
            except (RequestRejected, NoReachableNode) as refused:
                if not is_open:
                    raise
                # What refuses the look, or the repetition, tells nothing of the try before.
                raise last from refused
        raise last

    def _version_of(self, change: Change) -> int | None:
        """The version at which the change happened, 0 where it is known only that it did; None where nothing shows it."""
        puts = [op for op in change.ops if isinstance(op, Put)]
        if puts:
            found = self._kv.get(puts[0].key)
            return found.version if found is not None and found.value == puts[0].value else None
        key = change.ops[0].key
        found = self._kv.get(key)
        return None if found is not None and found.version == change.compare[key] else 0
