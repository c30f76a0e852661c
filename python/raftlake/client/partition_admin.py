"""What is done with a topic's partitions: their records deleted.

Each leader is asked for its own partitions. A request that is repeated finds its own work done.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Deadline
from raftlake.client.routing import ask_leaders
from raftlake.client.types import Address
from raftlake.errors import ErrorCode, code_of
from raftlake.wire.api import ApiKey

DELETE_RECORDS_VERSION = 2


class PartitionAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_ms: float | None = None) -> dict[int, int]:
        """By partition: delete what lies below the offset (-1: below the high watermark). Returns by partition where it begins
        then. RequestRejected(OFFSET_OUT_OF_RANGE): above the high watermark."""

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
            remaining_ms = min(deadline.remaining_ms(), self._cluster.config.attempt_timeout_ms)
            request = delete_records_request(topic, {each: offsets[each] for each in partitions}, remaining_ms)
            connection = await self._cluster.pool.get(address)
            answer = await self._cluster.request(connection, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request, deadline)
            return delete_records_results(answer)

        return await ask_leaders(self._cluster, topic, offsets, self._deadline(timeout_ms), ask)

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)


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
