"""DescribeProducers (61): who writes to a partition, and which transactions are open there (KIP-664).

Any node that hosts the partition answers, as Kafka's do. A partition may know a million producers: they are looked through a
slice at a time, and PRODUCERS_MAX of a request are told. Those come first whose transactions are open, the oldest before the
others, since they hold the last stable offset; then those that have written last.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.services import Services
from raftlake.wire.producer_snapshot import ProducerRow

#: Some 30 ms of work.
PRODUCERS_MAX = 2_000


def describe_producers(node: Services, request: Any, reply: Reply) -> None:
    node.producers.in_slices(_describing(node, request, reply))


def _describing(node: Services, request: Any, reply: Reply) -> Slices:
    make, left = Answers(request).make, PRODUCERS_MAX
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            group = node.names.resolve_group(topic.name, index)
            partition = node.engine.partitions.get(group)
            found: list[ProducerRow] = []
            for rows in partition.producers.last_rows() if partition is not None and left > 0 else ():
                found = _first(left, [*found, *rows])
                yield
            left -= len(found)
            error = node.names.why_unknown(group) if partition is None else ErrorCode.NONE
            producers = tuple(_state(make, row) for row in found)
            code = kafka_error(error)
            why = node.names.told_unknown(group) if partition is None else None
            found_here = {"error_code": code, "error_message": why, "active_producers": producers}
            partitions.append(make("PartitionResponse", partition_index=index, **found_here))
        topics.append(make("TopicResponse", name=topic.name, partitions=tuple(partitions)))
    reply(make("DescribeProducersResponse", topics=tuple(topics)))


def _first(count: int, rows: Iterable[ProducerRow]) -> list[ProducerRow]:
    return nlargest(count, rows, key=_importance)


def _importance(row: ProducerRow) -> tuple[bool, int]:
    is_open = row.transaction_first_offset >= 0
    return is_open, -row.transaction_first_offset if is_open else row.timestamp_ms


def _state(make: Any, row: ProducerRow) -> Any:
    return make(
        "ProducerState",
        producer_id=row.producer_id,
        producer_epoch=row.epoch,
        last_sequence=row.last_sequence,
        last_timestamp=row.timestamp_ms,
        coordinator_epoch=row.coordinator_epoch,
        current_txn_start_offset=row.transaction_first_offset,
    )
