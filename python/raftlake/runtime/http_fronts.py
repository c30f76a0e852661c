"""The HTTP listeners of a node: one for all, or keys at one and health and metrics at another (`http.ops.listener`)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from raftlake.errors import RaftlakeError
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.front import HttpFront, Serves
from raftlake.runtime.http.metrics_page import MetricsPage
from raftlake.runtime.http.ops import OpsHandlers
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.settings.settings import Settings
from raftlake.runtime.work_line import WorkLine


class HttpFronts:
    """All fronts show one page of metrics, which is built once."""

    def __init__(
        self,
        settings: Settings,
        node: ReplicaNode,
        metrics: NodeMetrics,
        house: WorkLine,
        line: WorkLine,
        now_us: Callable[[], int],
        on_fatal: Callable[[RaftlakeError], None],
    ) -> None:
        self._settings = settings
        self._node = node
        self._metrics = metrics
        self._line = line
        #: Apart from the line of all: a watch of little goes on while dear requests wait.
        self._watch_line = WorkLine(asyncio.get_running_loop(), now_us)
        self._on_fatal = on_fatal
        page = MetricsPage(node, metrics, house, now_us, partitions_max=settings.metrics_partitions_max)
        self._ops = OpsHandlers(node, page, str(settings.data_dir))
        self._fronts: dict[str, HttpFront] = {}

    async def start(self, listening: socket.socket, for_ops: socket.socket | None) -> None:
        """Serve on sockets that are bound and listen."""
        await self._add("http", Serves.ALL if for_ops is None else Serves.DATA, listening)
        if for_ops is not None:
            await self._add("ops", Serves.OPS, for_ops)

    async def _add(self, name: str, serves: Serves, listening: socket.socket) -> None:
        settings = self._settings
        self._fronts[name] = HttpFront(
            self._node,
            self._metrics,
            self._ops,
            serves=serves,
            connections_max=settings.connections_max,
            addresses=settings.new_address_limit(),
            hosts=settings.allowed_hosts,
            on_fatal=self._on_fatal,
            line=self._line,
            watch_line=self._watch_line,
        )
        await self._fronts[name].start(listening)

    def connection_counts(self) -> dict[str, int]:
        return {name: front.connection_count for name, front in self._fronts.items()}

    def close(self) -> None:
        for front in self._fronts.values():
            front.close()

    async def wait_closed(self) -> None:
        """After `close`: wait until the requests that were under way are answered."""
        await asyncio.gather(*(front.wait_closed() for front in self._fronts.values()))

    async def abandon(self) -> None:
        """See `HttpFront.abandon`."""
        await asyncio.gather(*(front.abandon() for front in self._fronts.values()))
