"""Notices a leader that takes appends and answers none: one that was paused, or cut off from the others.

Its requests would end only with their time limit. So after a while without an answer another node is asked who leads; if it
is somebody else, the connection is closed, which ends the requests on it at once. Knows nothing of batches and retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlake.client.cluster import Cluster
from raftlake.client.connection import Connection
from raftlake.client.deadline import Deadline
from raftlake.errors import RaftlakeError


class StallWatch:
    """One per partition. `get_connection` returns the connection that owes an answer, or None when nothing is in flight."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, get_connection: Callable[[], Connection | None]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._get_connection = get_connection
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        #: Seconds on the loop's clock.
        self._answered_at = 0.0

    def on_send(self) -> None:
        if self._timer is None:
            self._answered_at = self._cluster.now()
            self._start_timer()

    def on_answer(self) -> None:
        self._answered_at = self._cluster.now()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._cluster.config.stall_check_ms / 1000, self._check)

    def _check(self) -> None:
        self._timer = None
        connection = self._get_connection()
        if connection is None:
            return
        self._start_timer()
        stalled_ms = (self._cluster.now() - self._answered_at) * 1000
        if stalled_ms >= self._cluster.config.stall_check_ms and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._ask_others(connection), name="who leads")
            self._task.add_done_callback(self._asked)

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._task = None

    async def _ask_others(self, connection: Connection) -> None:
        deadline = Deadline(self._cluster.config.attempt_timeout_ms)
        try:
            topic = await self._cluster.refresh_topic(self._topic, deadline, avoid=connection.address)
        except RaftlakeError:
            # No node can tell: the time limit of the requests in flight decides.
            return
        leader = self._cluster.leader_address(topic, self._partition)
        if leader is not None and leader != connection.address:
            connection.close("another node leads")
