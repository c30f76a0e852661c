"""CreatePartitions (37): topics get more partitions. Any node takes it, as CreateTopics, and answers once it has applied it.

The new partitions begin with those who vote at that time. A key routes to another partition from then on, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, Reply, kafka_error, once
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.refused_for_good import GROW
from raftlake.replica.reserved import OWN_LOG, Topic
from raftlake.replica.services import Services

TIMED_OUT = "the time of the request is over; look whether the topic has its partitions before trying again"


def create_partitions(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _Growth(node, request, client, reply).begin()


class _Growth:
    """One request. Each of its topics is answered once; the request when all are, or when its time is over."""

    def __init__(self, node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
        self._node = node
        self._request = request
        self._client = client
        self._reply = reply
        self._asked = once(request.topics, lambda topic: topic.name)
        self._results: dict[str, tuple[ErrorCode, str]] = {}
        self._is_over = False

    def begin(self) -> None:
        node = self._node
        times = Counter(topic.name for topic in self._request.topics)
        timeout_ms = max(0, int(self._request.timeout.total_seconds() * 1000))
        for topic in self._asked:
            done = partial(self._on_done, topic.name)
            if times[topic.name] > 1:
                done(None, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            elif topic.assignments is not None:
                told = "replicas cannot be assigned, since every partition lives on all voters: leave them out"
                done(None, ErrorCode.INVALID_REPLICA_ASSIGNMENT, told)
            elif topic.name == METADATA_TOPIC:
                done(None, ErrorCode.INVALID_TOPIC_EXCEPTION, OWN_LOG)
            elif self._request.validate_only:
                done(None, *node.topics.refusal_of_growth(topic.name, topic.count))
            else:
                node.topics.grow(topic.name, topic.count, done)
        if not self._asked:
            self._end()
        elif not self._is_over:
            node.engine.timers.schedule(node.engine.now_ms + timeout_ms, self._end)

    def _on_done(self, name: str, _topic: Topic | None, error: ErrorCode, message: str) -> None:
        self._node.refused_for_good.note_error(GROW, name, error, message, self._client)
        self._results[name] = error, message
        if len(self._results) == len(self._asked):
            self._end()

    def _end(self) -> None:
        """What is not decided yet may be done all the same."""
        if self._is_over:
            return
        self._is_over = True
        answers = Answers(self._request)
        results = []
        for topic in self._asked:
            error, message = self._results.get(topic.name, (ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT))
            results.append(
                answers.make(
                    "CreatePartitionsTopicResult",
                    name=topic.name,
                    error_code=kafka_error(error),
                    error_message=message or None,
                )
            )
        self._reply(answers.make("CreatePartitionsResponse", results=tuple(results)))
