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
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, code_of, unknown_outcome
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
        # Whether a try may have made the change; whether a leader has put it off, and why, as it said last.
        is_lost = is_put_off = False
        reason = ""
        while True:
            try:
                code, message, was_lost = await self._ask_once(api_key, version, request, deadline)
            except (NoReachableNode, RequestRejected) as error:
                raise _told(what, error, is_lost) from error
            is_lost = is_lost or was_lost
            if code is ErrorCode.NONE or (code is done_before and (is_lost or is_put_off)):
                return
            if code is ErrorCode.REQUEST_TIMED_OUT:
                is_put_off, reason = True, message
            elif reason:
                message = f"{message}; the leader said before: {reason}"
            if code not in RETRIABLE or deadline.is_over():
                raise _told(what, RequestRejected(code, f"{what}: {message}"), is_lost)
            if self._not_yet is not None and code is ErrorCode.REQUEST_TIMED_OUT and message:
                self._not_yet(message)
            await backoff.pause(deadline)

    async def _ask_once(self, api_key: ApiKey, version: int, request: Any, deadline: Deadline) -> tuple[ErrorCode, str, bool]:
        """What the leader says, and whether it may have made the change, or may still: its answer does not come, or it gives no
        reason why the change has to wait. With a reason it has begun nothing."""
        cluster = await self._admin.describe_cluster(deadline.remaining_ms())
        address = cluster.nodes.get(cluster.controller_id)
        if address is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, "the quorum has no leader", False
        try:
            connection = await self._cluster.pool.get(address)
            answer = await self._cluster.request(connection, api_key, version, request, deadline)
        except Disconnected as error:
            return ErrorCode.LEADER_NOT_AVAILABLE, "the leader's connection was lost", error.sent
        code, message = code_of(answer.error_code), answer.error_message or ""
        return code, message, code is ErrorCode.REQUEST_TIMED_OUT and not message

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def _told(what: str, error: RequestRejected | NoReachableNode, is_lost: bool) -> RaftlakeError:
    """What the caller is told of an error, which says nothing of a try before it."""
    if not is_lost:
        return error
    told = f"{what} was sent, and no answer decides (the last try ended with: {error})"
    return unknown_outcome(told, "look at the voters, then decide")
