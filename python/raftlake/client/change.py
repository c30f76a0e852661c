"""A change of the quorum that any node takes: it is asked for until an answer decides it, or the time is over.

Owns what is known of the tries so far. Invariant: once a try may have been carried out, a later refusal is none of the change:
it tells nothing of the try before it. Such a change ends as an UnknownOutcome. Requests go by the name of a topic: once a try
may have been carried out, no further one is sent to a topic that was created under the name since.
"""

from __future__ import annotations

from typing import Any

from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import NoReachableNode
from raftlake.client.routing import RETRIABLE
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, unknown_outcome
from raftlake.wire.api import ApiKey


class Change:
    """`what` names it in errors, as in "create topic 't'". `topic`: the name of the one that is changed."""

    def __init__(self, cluster: Cluster, what: str, deadline: Deadline, topic: str | None = None) -> None:
        self._cluster = cluster
        self._what = what
        self._deadline = deadline
        self._topic = topic
        #: The id of the topic as it was known before a try that may be done. None: no such topic was known.
        self._topic_id: bytes | None = None
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_ms_max)
        #: Whether a try that no answer decided was sent.
        self.may_be_done = False

    async def ask(self, api_key: ApiKey, version: int, request: object) -> Any:
        """The answer of some node. NoReachableNode where none answers, and UnknownOutcome where the change may be done."""
        try:
            if self._topic is not None and not self.may_be_done:
                self._topic_id = await self._cluster.topic_id(self._topic, self._deadline)
            if self.may_be_done:
                await self._look()
            answer, _ = await self._cluster.ask_any(
                api_key, version, request, self._deadline, changes=True, before_repeating=self._look
            )
        except (NoReachableNode, RequestRejected) as error:
            raise self.told(error) from None
        return answer

    async def _look(self) -> None:
        """Before a try behind one that may be done: RequestRejected unless the name still means the same topic."""
        self.may_be_done = True
        if self._topic is not None and self._topic_id is not None:
            await self._cluster.topic_with(self._topic, (), self._deadline, topic_id=self._topic_id, is_retry=True)

    async def pause_or_raise(self, code: ErrorCode, message: str) -> None:
        """After a refusal: wait to try again. Raises for one that does not pass, or when the time is over."""
        self.may_be_done = self.may_be_done or code is ErrorCode.REQUEST_TIMED_OUT
        if code not in RETRIABLE or self._deadline.is_over():
            raise self.told(RequestRejected(code, f"{self._what}: {message}" if message else self._what))
        await self._backoff.pause(self._deadline)

    def told(self, error: RequestRejected | NoReachableNode) -> RaftlakeError:
        """What the caller is told of an error: it says nothing of the tries before it."""
        if not self.may_be_done:
            return error
        # A node that has no answer in time says nothing that helps.
        is_reason = not (isinstance(error, RequestRejected) and error.code is ErrorCode.REQUEST_TIMED_OUT)
        last = f" (the last try ended with: {error})" if is_reason else ""
        return unknown_outcome(f"{self._what} was sent, and no answer decides{last}", "look whether it was, then decide")
