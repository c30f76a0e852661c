"""Changing the voters of the quorum (KIP-853) from a client: AddRaftVoter and RemoveRaftVoter at the leader.

A change is made by the leader of the metadata log; the other groups follow by themselves. What the leader refuses only for
now (a new voter that lags, a change under way) is asked for again until the time is up. A change whose answer never came may
have been made: the caller looks at the voters.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from raftlake.client.admin import Admin
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected, NoReachableNode
from raftlake.client.routing import LEADER_BACKOFF_MS_MAX, RETRIABLE
from raftlake.errors import ErrorCode, RequestRejected, unknown_outcome
from raftlake.wire.api import ApiKey

#: Hears why the leader has not made a change yet, each time that the leader says so.
NotYet = Callable[[str], None]
#: The name under which voters say where their peers reach them (Kafka's CONTROLLER listener).
LISTENER_NAME = "CONTROLLER"


class VoterAdmin:
    def __init__(self, cluster: Cluster, admin: Admin, not_yet: NotYet | None = None) -> None:
        self._cluster = cluster
        self._admin = admin
        self._not_yet = not_yet

    async def add(self, node_id: int, directory_id: bytes, host: str, port: int, timeout_ms: float | None = None) -> None:
        """Make a replica that fetches, an observer, a voter. RequestRejected says why not."""
        schema: Any = importlib.import_module("kio.schema.add_raft_voter.v1.request")
        deadline = self._deadline(timeout_ms)
        request = schema.AddRaftVoterRequest(
            cluster_id=None,
            timeout=timedelta(milliseconds=max(1, int(deadline.remaining_ms()))),
            voter_id=node_id,
            voter_directory_id=uuid.UUID(bytes=directory_id),
            listeners=(schema.Listener(name=LISTENER_NAME, host=host, port=port),),
        )
        await self._ask(ApiKey.ADD_RAFT_VOTER, 1, request, f"add voter {node_id}", ErrorCode.DUPLICATE_VOTER, deadline)

    async def remove(self, node_id: int, directory_id: bytes, timeout_ms: float | None = None) -> None:
        """Let a replica vote no longer. RequestRejected says why not."""
        schema: Any = importlib.import_module("kio.schema.remove_raft_voter.v0.request")
        request = schema.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=uuid.UUID(bytes=directory_id)
        )
        what = f"remove voter {node_id}"
        await self._ask(ApiKey.REMOVE_RAFT_VOTER, 0, request, what, ErrorCode.VOTER_NOT_FOUND, self._deadline(timeout_ms))

    async def _ask(
        self, api_key: ApiKey, version: int, request: Any, what: str, done_before: ErrorCode, deadline: Deadline
    ) -> None:
        """Ask the leader, also a new one, until it says yes or no. `done_before` is what a repeated request is told."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
        was_sent = is_lost = False
        # Why the leader has not done it yet, as it said last.
        reason = ""
        unknown = unknown_outcome(f"{what} was sent, and no answer decides", "look at the voters, then decide")
        while True:
            try:
                cluster = await self._admin.describe_cluster(deadline.remaining_ms())
            except NoReachableNode as error:
                if is_lost:
                    raise unknown from error
                raise
            address = cluster.nodes.get(cluster.controller_id)
            code, message = ErrorCode.LEADER_NOT_AVAILABLE, "the quorum has no leader"
            if address is not None:
                try:
                    connection = await self._cluster.pool.get(address)
                    answer = await self._cluster.request(connection, api_key, version, request, deadline)
                    code, message = ErrorCode(int(answer.error_code)), answer.error_message or ""
                except Disconnected as error:
                    was_sent = True
                    is_lost = is_lost or error.sent
                    message = "the leader's connection was lost"
            if code is ErrorCode.NONE or (code is done_before and was_sent):
                return
            if code is ErrorCode.REQUEST_TIMED_OUT:
                was_sent, reason = True, message
            elif reason:
                message = f"{message}; the leader said before: {reason}"
            if code not in RETRIABLE:
                raise RequestRejected(code, f"{what}: {message}")
            if deadline.is_over():
                # With a reason the leader says "not yet": it has begun nothing.
                is_decided = bool(message) if code is ErrorCode.REQUEST_TIMED_OUT else not is_lost
                if not is_decided:
                    raise unknown
                raise RequestRejected(code, f"{what}: {message}")
            if self._not_yet is not None and code is ErrorCode.REQUEST_TIMED_OUT and message:
                self._not_yet(message)
            await backoff.pause(deadline)

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)
