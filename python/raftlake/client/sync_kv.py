"""The key-value space for programs without an event loop: `Client.kv`, each method that of `AsyncKv`.

A module of its own, imported with the first use of `Client.kv`: the HTTP client behind it takes longer to import than all else.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.client.aio import AsyncClient
from raftlake.client.blocking import Facade, blocking, iterating
from raftlake.client.kv import AsyncKv
from raftlake.client.loop_thread import LoopThread


class Kv:
    """The key-value space of a `Client`."""

    def __init__(self, client: Facade[AsyncClient]) -> None:
        self._client = client

    get = blocking(AsyncKv.get)
    put = blocking(AsyncKv.put)
    delete = blocking(AsyncKv.delete)
    delete_prefix = blocking(AsyncKv.delete_prefix)
    list = blocking(AsyncKv.list)
    txn = blocking(AsyncKv.txn)
    watch = iterating(AsyncKv.watch)

    def _reach(self) -> tuple[LoopThread, Callable[[], AsyncKv]]:
        running, client = self._client._reach()
        return running, lambda: client().kv
