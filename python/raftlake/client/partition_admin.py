"""What is done with a topic's partitions: more of them are made, and their records deleted.

For records each leader is asked for its own partitions. A request that is repeated finds its own work done.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from raftlake.client.admin import PARTITIONS_MAX, Admin
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import NoReachableNode
from raftlake.client.routing import RETRIABLE, ask_leaders
from raftlake.client.types import Address, TopicDescription
from raftlake.errors import ErrorCode, RequestRejected, WireError, code_of, unknown_outcome
from raftlake.wire.api import ApiKey

CREATE_PARTITIONS_VERSION = 3
DELETE_RECORDS_VERSION = 2
#: Why a topic keeps its records.
_KEPT = {
    ErrorCode.POLICY_VIOLATION: "the topic has cleanup.policy=compact; set it to compact,delete or delete first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "this is the quorum's own log, which nodes alone clean up",
}


class PartitionAdmin:
    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin

    async def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_ms: float | None = None) -> dict[int, int]:
        """By partition: delete what lies below the offset (-1: below the high watermark). Returns by partition where it begins
        then. RequestRejected(OFFSET_OUT_OF_RANGE): above the high watermark. UnknownOutcome: a leader was asked, and has not
        told in time what became of it."""
        undecided: set[int] = set()

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
            remaining_ms = min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)
            request = delete_records_request(topic, {each: offsets[each] for each in partitions}, remaining_ms)
            connection = await self._cluster.pool.get(address)
            lost_before = set(undecided)
            undecided.update(partitions)
            answer = await self._cluster.request(connection, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request, deadline)
            results = delete_records_results(answer)
            for each, result in results.items():
                # A refusal decides this question, and not one before it whose answer was lost.
                is_refused = each not in lost_before and result is not ErrorCode.REQUEST_TIMED_OUT
                if is_refused or not isinstance(result, ErrorCode):
                    undecided.discard(each)
            return results

        try:
            return await ask_leaders(self._cluster, topic, offsets, self._deadline(timeout_ms), ask)
        except (RequestRejected, NoReachableNode) as error:
            if isinstance(error, RequestRejected) and error.code in _KEPT:
                # DeleteRecords has no room for the reason, which the node's log tells.
                raise RequestRejected(error.code, f"{error.message}: {_KEPT[error.code]}") from None
            passes = not isinstance(error, RequestRejected) or error.code in RETRIABLE
            if not undecided or not passes:
                raise
            places = ", ".join(f"{topic}-{partition}" for partition in sorted(undecided))
            then = "look where these partitions begin, or delete again, which does no harm"
            raise unknown_outcome(f"the deletion of records of {places} was not answered in time ({error})", then) from None

    async def create_partitions(self, topic: str, count: int, timeout_ms: float | None = None) -> TopicDescription:
        """Let a topic have `count` partitions, and wait until all of them have leaders. RequestRejected(INVALID_PARTITIONS)
        where it has as many already, or more."""
        if not -PARTITIONS_MAX <= count <= PARTITIONS_MAX:
            told = f"{count} partitions for topic {topic!r}: no request names, and no quorum has, so many"
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, told)
        deadline = self._deadline(timeout_ms)
        remaining_ms = min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)
        request = create_partitions_request(topic, count, remaining_ms)
        was_sent = False
        backoff = Backoff(self._cluster.config.retry_backoff_ms, self._cluster.config.retry_backoff_ms_max)
        while True:
            answer, sent_before = await self._cluster.ask_any(
                ApiKey.CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION, request, deadline, changes=True
            )
            was_sent = was_sent or sent_before
            code, message = create_partitions_result(answer)
            is_done = code is ErrorCode.NONE
            if code is ErrorCode.INVALID_PARTITIONS and was_sent:
                # Its own work, if it has exactly so many.
                described = await self._admin.describe_topic(topic, deadline.remaining_ms())
                is_done = len(described.partitions) == count
            if is_done:
                return await self._admin.wait_for_leaders(topic, deadline, count)
            await self._admin.pause_or_raise(code, f"{count} partitions for topic {topic!r}", backoff, deadline, message)
            was_sent = was_sent or code is ErrorCode.REQUEST_TIMED_OUT

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def create_partitions_request(topic: str, count: int, timeout_ms: float) -> Any:
    """The request for one topic; the node may take `timeout_ms`."""
    schema: Any = importlib.import_module(f"kio.schema.create_partitions.v{CREATE_PARTITIONS_VERSION}.request")
    return schema.CreatePartitionsRequest(
        topics=(schema.CreatePartitionsTopic(name=topic, count=count, assignments=None),),
        timeout=timedelta(milliseconds=max(1, int(timeout_ms))),
        validate_only=False,
    )


def create_partitions_result(answer: Any) -> tuple[ErrorCode, str]:
    """What became of the one topic that was asked for."""
    if len(answer.results) != 1:
        raise WireError(f"CreatePartitions answered for {len(answer.results)} topics instead of one")
    return code_of(answer.results[0].error_code), answer.results[0].error_message or ""


def delete_records_request(topic: str, offsets: Mapping[int, int], timeout_ms: float) -> Any:
    """The request for partitions of one topic; the node may take `timeout_ms`."""
    schema: Any = importlib.import_module(f"kio.schema.delete_records.v{DELETE_RECORDS_VERSION}.request")
    partitions = tuple(
        schema.DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in offsets.items()
    )
    return schema.DeleteRecordsRequest(
        topics=(schema.DeleteRecordsTopic(name=topic, partitions=partitions),),
        timeout=timedelta(milliseconds=max(1, int(timeout_ms))),
    )


def delete_records_results(answer: Any) -> dict[int, int | ErrorCode]:
    """By partition where it begins, or why nothing was deleted."""
    return {
        int(part.partition_index): int(part.low_watermark) if part.error_code == 0 else code_of(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }
