"""The numbers of a lane: batches of several records, the wrap of 2^31, lanes that fail, and who goes first for want of room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId as KioProducerId
from kio.static.primitive import i16

from clientkit import DROP, FakeQuorum, produced, run
from clientkit_answers import NO_THROTTLE, metadata
from raftlake.client import AppendResult, AsyncClient, NewRecord
from raftlake.client.lanes import BATCHES_PER_LANE, Lane, ProducerId
from raftlake.client.producer import BATCH_BYTES, AsyncProducer
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, decode_records, parse_header


def batch(*values: bytes) -> bytearray:
    return build_batch([Record(value=value) for value in values], timestamp_ms=1)


# --- the lane itself -------------------------------------------------------------------------------------------------------


def test_a_lane_numbers_records_and_not_batches() -> None:
    lane = Lane(ProducerId(7, 0), bytes(16))
    assert [lane.take(count) for count in (1, 3, 2, 1)] == [(0, 0), (1, 1), (2, 4), (3, 6)]
    assert lane.next_sequence == 7


@pytest.mark.parametrize(
    ("start", "count", "following"), [(2**31 - 1, 1, 0), (2**31 - 2, 1, 2**31 - 1), (2**31 - 2, 5, 3), (2**30 - 1, 1, 2**30)]
)
def test_sequences_begin_again_behind_the_largest(start: int, count: int, following: int) -> None:
    lane = Lane(ProducerId(7, 0), bytes(16), next_sequence=start)
    assert lane.take(count) == (0, start)
    assert lane.take(1) == (1, following)


def test_the_oldest_batch_without_an_outcome_decides_about_the_room() -> None:
    """A node remembers the last five of a producer: the first must not fall out of them while it may have to come again."""
    lane = Lane(ProducerId(7, 0), bytes(16))
    for _ in range(BATCHES_PER_LANE):
        assert lane.has_room
        lane.take(1)
    assert not lane.has_room
    for number in (1, 2, 4):
        lane.close(number)
        assert not lane.has_room
    lane.close(0)
    # The fourth is the oldest now, and two places behind it are taken.
    assert lane.has_room
    for number in range(BATCHES_PER_LANE, BATCHES_PER_LANE + 3):
        assert lane.take(1)[0] == number
    assert not lane.has_room
    lane.close(3)
    lane.close(3)
    assert lane.has_room


# --- on the wire -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("drop_at", [None, 0, 1, 4])
def test_batches_of_several_records_follow_one_another(lanes: int, drop_at: int | None) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            partition = quorum.add_topic("t").partitions[0]
            node = quorum.nodes[1]
            codes: list[int] = []
            arrived: list[tuple[int, int, int]] = []

            def on_produce(header: object, message: Any) -> Any:
                parsed = parse_header(message.topics[0].partitions[0].records)
                arrived.append((parsed.producer_id, parsed.base_sequence, parsed.record_count))
                if len(arrived) - 1 == drop_at:
                    return DROP
                answer = quorum._produce(node, message)
                codes.append(answer.topics[0].partitions[0].error)
                return answer

            node.standing[ApiKey.PRODUCE] = on_produce
            counts = [1, 3, 1, 2, 5, 1, 1, 4, 2, 1, 3, 3]
            batches = [batch(*(b"%d.%d" % (index, place) for place in range(count))) for index, count in enumerate(counts)]
            results = await AsyncProducer(client._cluster, lanes_max=lanes).append_batches("t", 0, batches)
            assert [result.count for result in results] == counts
            assert set(codes) == {ErrorCode.NONE}
            values = partition.values()
            assert [values[result.offset] for result in results] == [b"%d.0" % index for index in range(len(counts))]
            assert len(values) == sum(counts)
            for producer_id in partition.producers:
                taken = sorted({(sequence, count) for producer, sequence, count in arrived if producer == producer_id})
                assert [sequence for sequence, _ in taken] == [sum(c for _, c in taken[:i]) for i in range(len(taken))]

    run(test())


def test_an_earlier_failure_moves_the_gap_of_a_strict_producer_back() -> None:
    """The fourth batch is refused for good before the second is. The third, which was to be sent again, may not stand then."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            partition = quorum.add_topic("t").partitions[0]
            node = quorum.nodes[1]
            refusals = {b"1": [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.INVALID_RECORD], b"3": [ErrorCode.INVALID_RECORD]}

            def on_produce(header: object, message: Any) -> Any:
                (record,) = decode_records(message.topics[0].partitions[0].records)
                left = refusals.get(record.value or b"", [])
                return produced("t", 0, left.pop(0)) if left else quorum._produce(node, message)

            node.standing[ApiKey.PRODUCE] = on_produce
            outcomes = client.producer().submit_batches("t", 0, [batch(b"%d" % number) for number in range(7)])
            ended = await asyncio.gather(*outcomes, return_exceptions=True)
            assert isinstance(ended[0], AppendResult)
            assert [type(one) for one in ended[1:]] == [RequestRejected] * 6
            assert partition.values() == [b"0"]

    run(test())


def test_batches_that_have_their_places_go_before_those_that_have_lost_theirs() -> None:
    """There is no further producer id. What has to leave its lane waits for the other one, whose batches wait behind it."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            partition = quorum.add_topic("t").partitions[0]
            node = quorum.nodes[1]
            refused = InitProducerIdResponse(
                throttle_time=NO_THROTTLE,
                error_code=KioError.cluster_authorization_failed,
                producer_id=KioProducerId(-1),
                producer_epoch=i16(-1),
            )
            producer = AsyncProducer(client._cluster, lanes_max=2)
            await producer.append_batches("t", 0, [batch(b"both lanes") for _ in range(4 * BATCHES_PER_LANE)])
            assert len(partition.producers) == 2
            node.standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: refused
            node.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.INVALID_RECORD))
            for _ in range(2 * BATCHES_PER_LANE - 1):
                node.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
            codes: list[int] = []

            def on_produce(header: object, message: Any) -> Any:
                answer = quorum._produce(node, message)
                codes.append(answer.topics[0].partitions[0].error)
                return answer

            node.standing[ApiKey.PRODUCE] = on_produce
            batches = [batch(b"%d" % number) for number in range(2 * BATCHES_PER_LANE + 3)]
            ended = await asyncio.gather(*producer.submit_batches("t", 0, batches), return_exceptions=True)
            assert isinstance(ended[0], RequestRejected) and ended[0].code is ErrorCode.INVALID_RECORD
            assert [type(one) for one in ended[1:]] == [AppendResult] * (len(batches) - 1)
            assert codes == [ErrorCode.NONE] * (len(batches) - 1), "no number was skipped"
            values = partition.values()[4 * BATCHES_PER_LANE :]
            assert sorted(values, key=str) == sorted((b"%d" % number for number in range(1, len(batches))), key=str)

    run(test())


@pytest.mark.parametrize("hasty", [0, 1])
def test_who_has_less_time_does_not_end_the_others(hasty: int) -> None:
    """No node can say at first who leads. The time of one of two is over meanwhile."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            partition = quorum.add_topic("t").partitions[0]
            node = quorum.nodes[1]
            producer = client._producer
            limits_ms = [60_000 - 30_000 * (number == hasty) for number in range(2)]
            outcomes = [
                outcome
                for number, limit_ms in enumerate(limits_ms)
                for outcome in producer.submit_batches("t", 0, [batch(b"%d" % number)], limit_ms)
            ]

            def on_metadata(header: object, message: Any) -> Any:
                answer = metadata(quorum, node, message)
                sender = producer._senders["t", 0]
                if not sender._waiting[hasty].deadline.is_over():
                    sender._waiting[hasty].deadline._at = 0.0
                    object.__setattr__(answer.topics[0], "error_code", KioError.leader_not_available)
                return answer

            node.standing[ApiKey.METADATA] = on_metadata
            ended = await asyncio.gather(*outcomes, return_exceptions=True)
            assert isinstance(ended[hasty], RequestRejected)
            assert isinstance(ended[1 - hasty], AppendResult)
            assert partition.values() == [b"%d" % (1 - hasty)]

    run(test())


def test_every_batch_of_many_records_is_as_full_as_the_first() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            quarter = NewRecord(value=bytes(BATCH_BYTES // 4 - 16))
            results = await client.append_many("t", [quarter] * 10)
            assert [result.count for result in results] == [4, 4, 2]
            larger = NewRecord(value=bytes(BATCH_BYTES // 4 - 15))
            assert [result.count for result in await client.append_many("t", [larger] * 7)] == [3, 3, 1]
            large = NewRecord(value=bytes(BATCH_BYTES))
            results = await client.append_many("t", [quarter, large, quarter, quarter])
            assert [result.count for result in results] == [1, 1, 2]

    run(test())
