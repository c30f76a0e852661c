"""What is done with a topic's partitions: more of them are made, and their records deleted.

For records each leader is asked for its own partitions. A request that is repeated finds its own work done. It changes no topic
that was created under the name meanwhile.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from raftlake.client.admin import PARTITIONS_MAX, Admin
from raftlake.client.change import Change
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Deadline
from raftlake.client.errors import NoReachableNode
from raftlake.client.routing import ask_leaders
from raftlake.client.types import Address, TopicDescription
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, WireError, code_of, unknown_outcome
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
        begins: dict[int, int] = {}

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
            remaining_ms = min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)
            request = delete_records_request(topic, {each: offsets[each] for each in partitions}, remaining_ms)
            connection = await self._cluster.pool.get(address)
            lost_before = set(undecided)
            undecided.update(partitions)
            answer = await self._cluster.request(connection, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request, deadline)
            results = delete_records_results(answer)
            for each, result in results.items():
                if not isinstance(result, ErrorCode):
                    begins[each] = result
                # A refusal decides this question, and not one before it whose answer was lost: settings change meanwhile. But
                # an offset above the high watermark was above it before, too.
                decides_it = each not in lost_before and result is not ErrorCode.REQUEST_TIMED_OUT
                is_refused = decides_it or result is ErrorCode.OFFSET_OUT_OF_RANGE
                if is_refused or not isinstance(result, ErrorCode):
                    undecided.discard(each)
            return results

        try:
            return await ask_leaders(self._cluster, topic, offsets, self._deadline(timeout_ms), ask, changes=True)
        except (RequestRejected, NoReachableNode) as error:
            raise _why_not_all(topic, error, undecided, begins) from None

    async def create_partitions(self, topic: str, count: int, timeout_ms: float | None = None) -> TopicDescription:
        """Let a topic have `count` partitions, and wait until all of them have leaders. RequestRejected(INVALID_PARTITIONS)
        where it has as many already, or more."""
        if not -PARTITIONS_MAX <= count <= PARTITIONS_MAX:
            told = f"{count} partitions for topic {topic!r}: no request names, and no quorum has, so many"
            raise RequestRejected(ErrorCode.INVALID_PARTITIONS, told)
        deadline = self._deadline(timeout_ms)
        remaining_ms = min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)
        request = create_partitions_request(topic, count, remaining_ms)
        change = Change(self._cluster, f"{count} partitions for topic {topic!r}", deadline, topic=topic)
        while True:
            answer = await change.ask(ApiKey.CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION, request)
            code, message = create_partitions_result(answer)
            is_done = code is ErrorCode.NONE
            if code is ErrorCode.INVALID_PARTITIONS and change.may_be_done:
                is_done = await self._has_exactly(topic, count, change, deadline)
            if is_done:
                return await self._admin.wait_for_leaders(topic, deadline, count)
            await change.pause_or_raise(code, message)

    async def _has_exactly(self, topic: str, count: int, change: Change, deadline: Deadline) -> bool:
        """Whether what was refused is its own work, done before."""
        try:
            return len((await self._admin.describe_topic(topic, deadline.remaining_ms())).partitions) == count
        except (RequestRejected, NoReachableNode) as error:
            raise change.told(error) from None

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


def _why_not_all(
    topic: str, error: RequestRejected | NoReachableNode, undecided: Collection[int], begins: Mapping[int, int]
) -> RaftlakeError:
    """The error of a deletion that is not done in all partitions: it may be in `undecided`, and is in those of `begins`."""
    reason = str(error)
    if isinstance(error, RequestRejected) and error.code in _KEPT:
        # DeleteRecords has no room for the reason, which the node's log tells.
        reason = f"{reason}: {_KEPT[error.code]}"
    done = ", ".join(f"{topic}-{partition} (it begins at {begin} now)" for partition, begin in sorted(begins.items()))
    also = f"; deleted all the same: records of {done}" if done else ""
    if undecided:
        places = ", ".join(f"{topic}-{partition}" for partition in sorted(undecided))
        then = "look where these partitions begin, or delete again, which does no harm"
        return unknown_outcome(f"the deletion of records of {places} was not answered in time ({reason}){also}", then)
    if isinstance(error, NoReachableNode):
        return RequestRejected(ErrorCode.NETWORK_EXCEPTION, reason + also) if done else error
    return RequestRejected(error.code, reason.removeprefix(f"{error.code.name}: ") + also)


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
