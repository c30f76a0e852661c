"""What an operator asks about transactions: which are under way, which hang, and to end what hangs (KIP-664).

A transaction hangs in a partition where it is open and no coordinator will end it there. No time decides that. A partition's
leader lets a transaction begin only while the coordinator has it, and the coordinator takes it for complete only once each
partition has its marker. So the leader is asked, then the coordinator, then the leader once more: what stands in both answers
of the leader, and not between them at the coordinator, hangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v1.request import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kio.static.primitive import i16, i32

from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Deadline
from raftlake.client.errors import NoReachableNode
from raftlake.client.routing import RETRIABLE, ask_leaders
from raftlake.client.transactions import Coordinator
from raftlake.client.types import Address, HangingTransaction, TransactionDescription
from raftlake.errors import ErrorCode, RequestRejected, code_of, unknown_outcome
from raftlake.wire.api import ApiKey
from raftlake.wire.durations import to_milliseconds

_DESCRIBE_PRODUCERS_VERSION = 0
_WRITE_MARKERS_VERSION = 1
#: States in which partitions may still wait for a marker.
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")


class _Opened(NamedTuple):
    """What is open in a partition: the producer, its epoch, where it begins."""

    producer_id: int
    epoch: int
    start_offset: int


class TransactionAdmin:
    def __init__(self, cluster: Cluster, coordinator: Coordinator) -> None:
        self._cluster = cluster
        self._coordinator = coordinator

    async def under_way(self, prefix: str, deadline: Deadline) -> tuple[TransactionDescription, ...]:
        """Those that are open, or decided and not complete, of transactional ids that begin so; the oldest first."""
        names = await self._coordinator.listed(deadline, states=_UNDER_WAY)
        rows = await self._coordinator.rows([name for name in names if name.startswith(prefix)], deadline)
        found = [_description(row) for row in rows if row.transaction_state in _UNDER_WAY]
        return tuple(sorted(found, key=lambda each: (each.started_ms, each.transactional_id)))

    async def describe(self, transactional_id: str, deadline: Deadline) -> TransactionDescription:
        """RequestRejected(TRANSACTIONAL_ID_NOT_FOUND) where there is none."""
        rows = await self._coordinator.rows([transactional_id], deadline)
        if not rows:
            told = f"there is no transactional id {transactional_id!r}"
            raise RequestRejected(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, told)
        return _description(rows[0])

    async def hanging(self, topic: str, partitions: Iterable[int], deadline: Deadline) -> tuple[HangingTransaction, ...]:
        """Those that hang in partitions of a topic, by partition and offset. Of a partition the 2,000 oldest open ones are
        looked at, as many as one answer of a node tells."""
        found: list[HangingTransaction] = []
        for partition in sorted(partitions):
            suspects = await self._open_at(topic, partition, deadline)
            if suspects:
                known = await self._known_at((topic, partition), {each.producer_id for each in suspects}, deadline)
                suspects = {each: row for each, row in suspects.items() if each.producer_id not in known}
            if suspects:
                still_open = await self._open_at(topic, partition, deadline)
                found += [_hanging(topic, partition, row) for each, row in still_open.items() if each in suspects]
        return tuple(found)

    async def abort_hanging(self, found: HangingTransaction, deadline: Deadline) -> None:
        """Write the marker of an abort, committed on a majority. RequestRejected(INVALID_TXN_STATE) where a coordinator has the
        transaction, or ends it otherwise. One that has a marker meanwhile is not ended again. UnknownOutcome: the leader was
        asked, and has not told in time what became of it."""
        topic = WritableTxnMarkerTopic(name=TopicName(found.topic), partition_indexes=(i32(found.partition),))
        marker = WritableTxnMarker(
            producer_id=ProducerId(found.producer_id),
            producer_epoch=i16(found.epoch),
            transaction_result=False,
            topics=(topic,),
            coordinator_epoch=i32(max(0, found.coordinator_epoch)),
        )
        request = WriteTxnMarkersRequest(markers=(marker,))
        undecided = False

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, bool | ErrorCode]:
            nonlocal undecided
            connection = await self._cluster.pool.get(address)
            lost_before, undecided = undecided, True
            answer = await self._cluster.request(
                connection, ApiKey.WRITE_TXN_MARKERS, _WRITE_MARKERS_VERSION, request, deadline
            )
            results = {
                int(part.partition_index): True if part.error_code == 0 else code_of(part.error_code)
                for marker in answer.markers
                for topic in marker.topics
                for part in topic.partitions
            }
            # A refusal decides this question, and not one before it whose answer was lost.
            undecided = lost_before or ErrorCode.REQUEST_TIMED_OUT in results.values()
            return results

        try:
            await ask_leaders(self._cluster, found.topic, [found.partition], deadline, ask)
        except (RequestRejected, NoReachableNode) as error:
            passes = not isinstance(error, RequestRejected) or error.code in RETRIABLE
            if not undecided or not passes:
                raise
            who = f"producer {found.producer_id} epoch {found.epoch} in {found.topic}-{found.partition}"
            then = "look for hanging transactions, or abort it again, which does no harm"
            raise unknown_outcome(f"the abort of {who} was not answered in time ({error})", then) from None

    async def _open_at(self, topic: str, partition: int, deadline: Deadline) -> dict[_Opened, Any]:
        """What the leader of a partition tells of its open transactions, by offset."""

        async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, list[Any] | ErrorCode]:
            asked = TopicRequest(name=TopicName(topic), partition_indexes=tuple(i32(each) for each in partitions))
            request = DescribeProducersRequest(topics=(asked,))
            connection = await self._cluster.pool.get(address)
            answer = await self._cluster.request(
                connection, ApiKey.DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSION, request, deadline
            )
            return {
                int(part.partition_index): list(part.active_producers) if part.error_code == 0 else code_of(part.error_code)
                for found in answer.topics
                for part in found.partitions
            }

        rows = (await ask_leaders(self._cluster, topic, [partition], deadline, ask))[partition]
        opened = [
            (_Opened(int(row.producer_id), int(row.producer_epoch), int(row.current_txn_start_offset)), row) for row in rows
        ]
        return dict(sorted((each for each in opened if each[0].start_offset >= 0), key=lambda each: each[0].start_offset))

    async def _known_at(self, place: tuple[str, int], producer_ids: Iterable[int], deadline: Deadline) -> set[int]:
        """Those of the producers whose transaction the coordinator will end in that partition."""
        names = await self._coordinator.listed(deadline, states=_UNDER_WAY, producer_ids=sorted(producer_ids))
        found = [_description(row) for row in await self._coordinator.rows(names, deadline)]
        return {each.producer_id for each in found if each.state in _UNDER_WAY and place in each.partitions}


def _description(row: Any) -> TransactionDescription:
    started_ms = round(row.transaction_start_time.timestamp() * 1000)
    return TransactionDescription(
        transactional_id=str(row.transactional_id),
        producer_id=int(row.producer_id),
        epoch=int(row.producer_epoch),
        state=str(row.transaction_state),
        timeout_ms=to_milliseconds(row.transaction_timeout),
        started_ms=max(-1, started_ms),
        partitions=tuple(sorted((str(data.topic), int(index)) for data in row.topics for index in data.partitions)),
    )


def _hanging(topic: str, partition: int, row: Any) -> HangingTransaction:
    return HangingTransaction(
        topic=topic,
        partition=partition,
        producer_id=int(row.producer_id),
        epoch=int(row.producer_epoch),
        start_offset=int(row.current_txn_start_offset),
        last_written_ms=int(row.last_timestamp),
        coordinator_epoch=int(row.coordinator_epoch),
    )
