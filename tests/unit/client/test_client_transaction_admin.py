"""What an operator asks about transactions: what is under way, what hangs, and the marker that ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_producers.v0 import response as producers
from kio.schema.describe_transactions.v0 import response as described
from kio.schema.errors import ErrorCode as KioError
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.list_transactions.v0 import response as listed
from kio.schema.types import BrokerId, ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v1 import response as markers
from kio.static.primitive import i16, i32, i64

from clientkit import FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import AsyncClient, HangingTransaction, TransactionDescription
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.durations import milliseconds, moment

OPEN = TransactionDescription(
    transactional_id="open",
    producer_id=5,
    epoch=1,
    state="Ongoing",
    timeout_ms=60_000,
    started_ms=1_700_000_000_123,
    partitions=(("t", 0),),
)
#: In partition 0: producer id and where its open transaction begins; -1 where none is open.
Rows = dict[int, int]


class Nodes(FakeQuorum):
    """The first one coordinates and leads. `looks` are what the leader tells of partition 0, in turn; the last one stays."""

    def __init__(self, *looks: Rows, known: tuple[TransactionDescription, ...] = (OPEN,)) -> None:
        super().__init__(1)
        self.known = known
        self.looks = list(looks)
        self.refusals: list[KioError] = []
        self.marked: list[Any] = []
        self.add_topic("t", 1)
        standing: dict[ApiKey, Callable[[Any, Any], Any]] = {
            ApiKey.FIND_COORDINATOR: lambda *_: self.found(),
            ApiKey.LIST_TRANSACTIONS: lambda _, message: self.listing(message),
            ApiKey.DESCRIBE_TRANSACTIONS: lambda _, message: self.description(message),
            ApiKey.DESCRIBE_PRODUCERS: lambda *_: self.open_there(),
            ApiKey.WRITE_TXN_MARKERS: lambda _, message: self.write(message),
        }
        self.nodes[1].standing.update(standing)

    def found(self) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            error_message=None,
            node_id=BrokerId(1),
            host="127.0.0.1",
            port=i32(self.nodes[1].port),
        )

    def listing(self, message: Any) -> listed.ListTransactionsResponse:
        rows = [
            listed.TransactionState(
                transactional_id=TransactionalId(each.transactional_id),
                producer_id=ProducerId(each.producer_id),
                transaction_state=each.state,
            )
            for each in self.known
            if (not message.state_filters or each.state in message.state_filters)
            and (not message.producer_id_filters or each.producer_id in message.producer_id_filters)
        ]
        return listed.ListTransactionsResponse(
            throttle_time=NO_THROTTLE, error_code=KioError.none, unknown_state_filters=(), transaction_states=tuple(rows)
        )

    def description(self, message: Any) -> described.DescribeTransactionsResponse:
        by_id = {each.transactional_id: each for each in self.known}
        rows = tuple(_row(str(name), by_id.get(str(name))) for name in message.transactional_ids)
        return described.DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=rows)

    def open_there(self) -> producers.DescribeProducersResponse:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        rows = tuple(
            producers.ProducerState(
                producer_id=ProducerId(producer_id),
                producer_epoch=i32(1),
                last_sequence=i32(0),
                last_timestamp=i64(9_000),
                coordinator_epoch=i32(-1),
                current_txn_start_offset=i64(offset),
            )
            for producer_id, offset in look.items()
        )
        part = producers.PartitionResponse(
            partition_index=i32(0), error_code=KioError.none, error_message=None, active_producers=rows
        )
        topic = producers.TopicResponse(name=TopicName("t"), partitions=(part,))
        return producers.DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    def write(self, message: Any) -> markers.WriteTxnMarkersResponse:
        (asked,) = message.markers
        self.marked.append(asked)
        code = self.refusals.pop(0) if self.refusals else KioError.none
        part = markers.WritableTxnMarkerPartitionResult(partition_index=i32(0), error_code=code)
        topic = markers.WritableTxnMarkerTopicResult(name=TopicName("t"), partitions=(part,))
        result = markers.WritableTxnMarkerResult(producer_id=asked.producer_id, topics=(topic,))
        return markers.WriteTxnMarkersResponse(markers=(result,))


def _row(name: str, found: TransactionDescription | None) -> described.TransactionState:
    started_ms = -1 if found is None else found.started_ms
    return described.TransactionState(
        error_code=KioError.transactional_id_not_found if found is None else KioError.none,
        transactional_id=TransactionalId(name),
        transaction_state="" if found is None else found.state,
        transaction_timeout=milliseconds(0 if found is None else found.timeout_ms),
        transaction_start_time=moment(started_ms),
        producer_id=ProducerId(-1 if found is None else found.producer_id),
        producer_epoch=i16(-1 if found is None else found.epoch),
        topics=tuple(
            described.TopicData(topic=TopicName(topic), partitions=(i32(partition),))
            for topic, partition in (() if found is None else found.partitions)
        ),
    )


def changed(found: TransactionDescription, **fields: Any) -> TransactionDescription:
    return replace(found, **fields)


def test_what_is_under_way_comes_oldest_first_with_all_that_is_known() -> None:
    older = changed(OPEN, transactional_id="older", producer_id=6, state="PrepareAbort", started_ms=OPEN.started_ms - 1)
    over = changed(OPEN, transactional_id="over", producer_id=7, state="CompleteAbort", started_ms=-1, partitions=())

    async def test() -> None:
        async with Nodes({}, known=(OPEN, older, over)) as quorum, AsyncClient(quorum.bootstrap) as client:
            assert await client.transactions() == (older, OPEN)
            assert await client.transactions("op") == (OPEN,)
            assert await client.describe_transaction("over") == over
            with pytest.raises(RequestRejected, match="no transactional id 'gone'") as refused:
                await client.describe_transaction("gone")
            assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(test())


@pytest.mark.parametrize(
    ("looks", "known", "hanging"),
    [
        ([{5: 10, 9: -1}], (OPEN,), []),
        ([{5: 10, 8: 20}], (OPEN,), [(8, 20)]),
        # The coordinator has a transaction of the producer that is over, or that has not this partition.
        ([{5: 10}], (changed(OPEN, state="CompleteAbort"),), [(5, 10)]),
        ([{5: 10}], (changed(OPEN, partitions=(("t", 1), ("u", 0))),), [(5, 10)]),
        # It is decided: the marker is on its way.
        ([{5: 10}], (changed(OPEN, state="PrepareAbort"),), []),
        # It has ended, or ended and begun anew, between the two looks at the partition.
        ([{8: 20}, {8: -1}], (), []),
        ([{8: 20}, {8: 30}], (), []),
        # What has begun between the looks is not judged.
        ([{8: 20}, {8: 20, 9: 40}], (), [(8, 20)]),
    ],
)
def test_what_hangs_is_open_before_and_after_the_coordinator_was_asked(
    looks: list[Rows], known: tuple[TransactionDescription, ...], hanging: list[tuple[int, int]]
) -> None:
    async def test() -> None:
        async with Nodes(*looks, known=known) as quorum, AsyncClient(quorum.bootstrap) as client:
            found = await client.hanging_transactions("t", [0])
            assert [(each.producer_id, each.start_offset) for each in found] == hanging
            assert {(each.topic, each.partition, each.last_written_ms) for each in found} <= {("t", 0, 9_000)}

    run(test())


def test_the_marker_of_an_abort_ends_what_hangs_and_is_repeated_at_the_next_leader() -> None:
    found = HangingTransaction(
        topic="t", partition=0, producer_id=8, epoch=1, start_offset=20, last_written_ms=1, coordinator_epoch=-1
    )

    async def test() -> None:
        async with Nodes({}) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.refusals = [KioError.not_leader_or_follower]
            await client.abort_hanging(found)
            assert len(quorum.marked) == 2
            told = quorum.marked[-1]
            assert (told.producer_id, told.producer_epoch, told.coordinator_epoch) == (8, 1, 0)
            assert told.transaction_result is False
            quorum.refusals = [KioError.invalid_txn_state]
            with pytest.raises(RequestRejected) as refused:
                await client.abort_hanging(found)
            assert refused.value.code is ErrorCode.INVALID_TXN_STATE

    run(test())


@pytest.mark.parametrize(
    ("refusals", "is_known"),
    [
        ([KioError.not_leader_or_follower] * 500, True),
        ([KioError.request_timed_out, *[KioError.not_leader_or_follower] * 500], False),
        ([KioError.request_timed_out, KioError.invalid_txn_state], True),
    ],
)
def test_an_abort_of_what_hangs_that_no_answer_decides_is_told_so(refusals: list[KioError], is_known: bool) -> None:
    found = HangingTransaction(
        topic="t", partition=0, producer_id=8, epoch=1, start_offset=20, last_written_ms=1, coordinator_epoch=-1
    )

    async def test() -> None:
        async with Nodes({}) as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=500) as client:
            quorum.refusals = list(refusals)
            with pytest.raises(RequestRejected if is_known else UnknownOutcome) as caught:
                await client.abort_hanging(found)
            told = "the abort of producer 8 epoch 1 in t-0 was not answered in time"
            assert is_known or (str(caught.value).startswith(told) and "does no harm" in str(caught.value))

    run(test())
