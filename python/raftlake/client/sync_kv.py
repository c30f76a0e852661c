"""The key-value space for programs without an event loop: `Client.kv`, each method that of `AsyncKv`.

Knows only how to hand work to the client's loop; what the work is, and every promise, is in `kv`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from raftlake.client.aio import AsyncClient
from raftlake.client.types import KvEntry, KvEvent, KvPage
from raftlake.kv.commands import Delete, Put

T = TypeVar("T")


class Call(Protocol):
    """Runs work of the AsyncClient on its loop and waits for it."""

    def __call__(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T: ...


class Iterate(Protocol):
    """Turns an asynchronous iterator into an ordinary one."""

    def __call__(self, make: Callable[[AsyncClient], AsyncIterator[T]]) -> Iterator[T]: ...


class Kv:
    """The key-value space; see `AsyncKv`."""

    def __init__(self, call: Call, iterate: Iterate) -> None:
        self._call = call
        self._iterate = iterate

    def get(self, key: str, *, linearizable: bool = True, timeout_ms: float | None = None) -> KvEntry | None:
        """The entry, or None."""
        return self._call(lambda client: client.kv.get(key, linearizable=linearizable, timeout_ms=timeout_ms))

    def put(
        self,
        key: str,
        value: bytes,
        *,
        if_version: int | None = None,
        create: bool = False,
        timeout_ms: float | None = None,
    ) -> int:
        """Set a key and return its new version; KvConflict when the condition does not hold."""
        return self._call(lambda client: client.kv.put(key, value, if_version=if_version, create=create, timeout_ms=timeout_ms))

    def delete(self, key: str, *, if_version: int | None = None, timeout_ms: float | None = None) -> int:
        """Delete a key; returns the version of the change."""
        return self._call(lambda client: client.kv.delete(key, if_version=if_version, timeout_ms=timeout_ms))

    def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int = 1000,
        values: bool = False,
        linearizable: bool = True,
        timeout_ms: float | None = None,
    ) -> KvPage:
        """One page of the keys below `prefix` in key order."""
        return self._call(
            lambda client: client.kv.list(
                prefix, after=after, limit=limit, values=values, linearizable=linearizable, timeout_ms=timeout_ms
            )
        )

    def txn(self, compare: Mapping[str, int], ops: Sequence[Put | Delete], *, timeout_ms: float | None = None) -> int:
        """All of `ops` at one version, which is returned, if every key of `compare` has its version; else KvConflict."""
        return self._call(lambda client: client.kv.txn(compare, ops, timeout_ms=timeout_ms))

    def watch(self, prefix: str = "", *, from_version: int | None = None) -> Iterator[KvEvent]:
        """The changes below `prefix` from `from_version` on, for ever."""
        return self._iterate(lambda client: client.kv.watch(prefix, from_version=from_version))
