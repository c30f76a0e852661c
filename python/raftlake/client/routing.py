"""Asking the leader of each partition, through leader changes: the retry loop that every partition API shares.

Knows nothing of the messages: `ask` sends one request for some partitions to one node and returns per partition a result or an
error code. What is retriable is asked again, after fresh metadata; every other error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected
from raftlake.client.types import Address
from raftlake.errors import ErrorCode, RequestRejected

T = TypeVar("T")
Ask = Callable[[Address, "list[int]", Deadline], Awaitable[Mapping[int, T | ErrorCode]]]

#: Errors that pass by themselves or with another leader.
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)

#: Answers after which a change may have been made.
_MAY_BE_DONE = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)

#: While a leader is being elected it pays to look again soon.
LEADER_BACKOFF_MS_MAX = 100


async def ask_leaders(
    cluster: Cluster,
    topic_name: str,
    partitions: Iterable[int],
    deadline: Deadline,
    ask: Ask[T],
    *,
    changes: bool = False,
    topic_id: bytes | None = None,
) -> dict[int, T]:
    """The result of every partition; raises the first error that does not pass, or the last one when the time is over.

    `topic_id`: a node that names another topic is not believed, as it may lag, and lead that topic still.
    RequestRejected(UNKNOWN_TOPIC_ID) where no node names this one within the grace.

    `changes`: what is asked changes something, and names the topic by its name. Once it may have been done, no topic that was
    created under the name since is asked: RequestRejected(UNKNOWN_TOPIC_ID).
    """
    left = list(dict.fromkeys(partitions))
    results: dict[int, T] = {}
    backoff = Backoff(cluster.config.retry_backoff_ms, LEADER_BACKOFF_MS_MAX)
    topic = await cluster.topic_with(topic_name, left, deadline, topic_id=topic_id)
    failure = RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic_name!r} has no leader")
    while True:
        by_leader: dict[Address, list[int]] = {}
        for partition in left:
            address = cluster.leader_address(topic, partition)
            if address is not None:
                by_leader.setdefault(address, []).append(partition)
        answers = await asyncio.gather(*(_ask_or_fail(ask, address, group, deadline) for address, group in by_leader.items()))
        for answer, was_sent in answers:
            may_be_done = any(result in _MAY_BE_DONE or not isinstance(result, ErrorCode) for result in answer.values())
            if changes and was_sent and may_be_done:
                topic_id = topic.topic_id
            for partition, result in answer.items():
                if not isinstance(result, ErrorCode):
                    results[partition] = result
                    continue
                failure = RequestRejected(result, f"{topic_name}-{partition}")
                if result not in RETRIABLE:
                    raise failure
        left = [partition for partition in left if partition not in results]
        if not left:
            return results
        if deadline.is_over():
            raise failure
        await backoff.pause(deadline)
        topic = await cluster.topic_with(topic_name, left, deadline, topic_id=topic_id, is_retry=True)


async def _ask_or_fail(
    ask: Ask[T], address: Address, partitions: list[int], deadline: Deadline
) -> tuple[Mapping[int, T | ErrorCode], bool]:
    """The results, and whether the leader may have received the request."""
    try:
        return await ask(address, partitions, deadline), True
    except Disconnected as error:
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION), error.sent
