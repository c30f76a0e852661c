"""Appends through everything that goes wrong: leaders that change, answers that get lost, nodes that are silent."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from clientkit import DROP, HANG, FakeQuorum, produced, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import AppendResult, AsyncClient, NewRecord, NoReachableNode
from raftlake.client.lanes import BATCHES_PER_LANE
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch


def batch(*values: bytes) -> bytearray:
    return build_batch([Record(value=value) for value in values], timestamp_ms=1)


def test_append_returns_the_offset() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            first = await client.append("t", "one", key="k", headers=[("h", b"v")], timestamp_ms=77)
            second = await client.append("t", b"two")
            assert (first.topic, first.partition, first.offset, first.count) == ("t", 0, 0, 1)
            assert second.offset == 1
            stored = partition.records()[0]
            assert (stored.key, stored.value, stored.headers, stored.timestamp_ms) == (b"k", b"one", (("h", b"v"),), 77)
            assert partition.records()[1].timestamp_ms > 1_600_000_000_000

    run(test())


def test_a_node_that_has_no_producer_id_yet_is_asked_again() -> None:
    """It could not have a block of ids written, while a leader was elected or its own connection began anew."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            busy = InitProducerIdResponse(
                throttle_time=NO_THROTTLE,
                error_code=KioError.coordinator_load_in_progress,
                producer_id=ProducerId(-1),
                producer_epoch=i16(-1),
            )
            for node in quorum.nodes.values():
                node.once(ApiKey.INIT_PRODUCER_ID, lambda header, message: busy)
            await client.append("t", "v")
            assert partition.values() == [b"v"]

    run(test())


def test_keys_choose_partitions_as_kafka_does_and_keyless_records_take_turns() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", partitions=3)
            assert len({(await client.append("t", "v", key="same")).partition for _ in range(4)}) == 1
            assert {(await client.append("t", "v")).partition for _ in range(3)} == {0, 1, 2}
            assert (await client.append("t", "v", partition=2)).partition == 2
            with pytest.raises(RequestRejected, match="has 3 partitions"):
                await client.append("t", "v", partition=3)

    run(test())


def test_many_appends_in_flight_are_requests_of_their_own_and_stay_in_order() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            values = [f"{n}" for n in range(200)]
            await asyncio.gather(*(client.append("t", value) for value in values))
            assert partition.values() == [value.encode() for value in values]
            assert quorum.nodes[1].count(ApiKey.PRODUCE) == 200

    run(test())


def test_append_many_fills_batches() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=2)
            results = await client.append_many("t", [f"{n}" for n in range(100)])
            assert [result.count for result in results] == [100]
            large = await client.append_many("t", [NewRecord(value=bytes(300_000)) for _ in range(3)], partition=1)
            assert [result.count for result in large] == [1, 1, 1]
            keyed = await client.append_many("t", [(f"k{n}", "v") for n in range(50)])
            assert sorted(result.partition for result in keyed) == [0, 1]
            assert sum(len(partition.records()) for partition in topic.partitions) == 153

    run(test())


def test_a_new_leader_is_found_by_metadata() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "before")
            quorum.move_leader("t", 0, 2)
            result = await client.append("t", "after")
            assert result.offset == 1
            assert partition.values() == [b"before", b"after"]
            assert quorum.nodes[2].count(ApiKey.PRODUCE) == 1

    run(test())


def test_a_new_leader_named_in_the_answer_is_asked_without_metadata() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.append("t", "before")
            quorum.move_leader("t", 0, 3)
            asked = sum(node.count(ApiKey.METADATA) for node in quorum.nodes.values())
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: quorum.not_leader_naming("t", 0, 3))
            await client.append("t", "after")
            assert sum(node.count(ApiKey.METADATA) for node in quorum.nodes.values()) == asked

    run(test())


def test_a_lost_answer_is_not_appended_twice() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "zero")
            node = quorum.nodes[1]

            def append_and_drop(header: object, message: object) -> object:
                quorum._produce(node, message)  # type: ignore[arg-type]
                return DROP

            node.once(ApiKey.PRODUCE, append_and_drop)
            result = await client.append("t", "one")
            assert result.offset == 1
            assert partition.values() == [b"zero", b"one"]

    run(test())


@pytest.mark.parametrize("lost_after", range(BATCHES_PER_LANE + 1))
def test_a_pipeline_that_breaks_anywhere_is_neither_doubled_nor_reordered(lost_after: int) -> None:
    """Of twelve batches in flight on one producer, some are appended before the connection breaks at the leader's death."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            old, new = quorum.nodes[1], quorum.nodes[2]
            for _ in range(lost_after):
                old.once(ApiKey.PRODUCE, lambda *_: None)

            def append_and_die(header: object, message: object) -> object:
                quorum._produce(old, message)  # type: ignore[arg-type]
                quorum.move_leader("t", 0, 2)
                return DROP

            old.once(ApiKey.PRODUCE, append_and_die)
            producer = client.producer()
            values = [f"{n}".encode() for n in range(12)]
            results = await producer.append_batches("t", 0, [batch(value) for value in values])
            assert partition.values() == values
            assert [result.offset for result in results] == list(range(12))
            assert new.count(ApiKey.PRODUCE) >= 12 - lost_after - 1

    run(test())


def test_one_producer_has_at_most_five_batches_in_flight() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, attempt_timeout_ms=300) as client:
            quorum.add_topic("t")
            producer = client.producer()
            await producer.append_batches("t", 0, [batch(b"first")])
            connection = client._pool.get_open(client._cluster.nodes[1], "append")
            assert connection is not None
            in_flight: list[int] = []

            def hang(*_: object) -> object:
                in_flight.append(connection.in_flight)
                return HANG

            quorum.nodes[1].once(ApiKey.PRODUCE, hang)
            await asyncio.gather(*producer.submit_batches("t", 0, [batch(b"x") for _ in range(20)]))
            assert in_flight == [BATCHES_PER_LANE]

    run(test())


def test_a_rejected_batch_fails_alone_in_the_default_producer() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "zero")
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.MESSAGE_TOO_LARGE))
            outcomes = await asyncio.gather(*(client.append("t", f"{n}") for n in range(1, 6)), return_exceptions=True)
            assert isinstance(outcomes[0], RequestRejected) and outcomes[0].code == ErrorCode.MESSAGE_TOO_LARGE
            assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])
            assert sorted(partition.values(), key=str) == [b"2", b"3", b"4", b"5", b"zero"]

    run(test())


def test_after_a_rejected_batch_a_strict_producer_appends_nothing_more() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            producer = client.producer()
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.INVALID_RECORD))
            outcomes = producer.submit_batches("t", 0, [batch(b"bad"), *(batch(b"later") for _ in range(9))])
            ended = await asyncio.gather(*outcomes, return_exceptions=True)
            assert [type(outcome) for outcome in ended] == [RequestRejected] * 10
            assert isinstance(ended[0], RequestRejected) and ended[0].code == ErrorCode.INVALID_RECORD
            assert partition.values() == []
            with pytest.raises(RequestRejected, match="earlier append"):
                await producer.append_batches("t", 0, [batch(b"even later")])

    run(test())


def test_silence_is_an_unknown_outcome() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            quorum.add_topic("t")
            async with AsyncClient(quorum.bootstrap, request_timeout_ms=400, attempt_timeout_ms=200) as client:
                for _ in range(20):
                    quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: HANG)
                with pytest.raises(UnknownOutcome, match="not known"):
                    await client.append("t", "lost?")
                quorum.nodes[1].scripts.clear()
                assert (await client.append("t", "next", timeout_ms=10_000)).count == 1

    run(test())


def test_a_leaderless_partition_is_a_definite_rejection() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=200) as client:
            quorum.add_topic("t", leader_id=-1)
            with pytest.raises(RequestRejected) as caught:
                await client.append("t", "never")
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert quorum.nodes[1].count(ApiKey.PRODUCE) == 0

    run(test())


def test_a_node_that_is_gone_is_an_unreachable_node() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            bootstrap = quorum.bootstrap
            await quorum.nodes[1].stop()
            async with AsyncClient(bootstrap, unreachable_timeout_ms=100) as client:
                with pytest.raises(NoReachableNode) as caught:
                    await client.append("t", "v")
                assert caught.value.bootstrap_servers == (bootstrap,)
                assert bootstrap in caught.value.last_errors
                assert bootstrap in str(caught.value)

    run(test())


def test_a_cancelled_append_leaves_no_gap() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "zero")
            tasks = [asyncio.create_task(client.append("t", f"{n}")) for n in range(1, 40)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(ended[n], asyncio.CancelledError) for n in range(0, 39, 3))
            assert not any(isinstance(ended[n], Exception) for n in range(39) if n % 3)
            values = partition.values()
            assert len(values) == len(set(values))
            assert {f"{n + 1}".encode() for n in range(39) if n % 3} <= set(values)

    run(test())


def test_closing_ends_what_is_in_flight() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum:
            quorum.add_topic("t")
            client = AsyncClient(quorum.bootstrap)
            await client.append("t", "zero")
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: HANG)
            sent = quorum.nodes[1].count(ApiKey.PRODUCE)
            task = asyncio.create_task(client.append("t", "one"))
            while quorum.nodes[1].count(ApiKey.PRODUCE) == sent:
                await asyncio.sleep(0)
            await client.close()
            with pytest.raises(UnknownOutcome):
                await task
            with pytest.raises(RequestRejected, match="closed"):
                await client.append("t", "two")

    run(test())


@pytest.mark.parametrize("refused_with", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
@pytest.mark.parametrize("is_strict", [False, True])
def test_appends_go_on_in_a_topic_that_was_created_again(is_strict: bool, refused_with: ErrorCode | None) -> None:
    """It knows nothing of the producer, whatever the client was told first: every batch is numbered anew, in the old order, and
    what became of the first try cannot matter to a topic that it was not sent to."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            producer = client.producer() if is_strict else client._producer
            await producer.append_batches("t", 0, [batch(b"old"), batch(b"old")])
            partition = quorum.add_topic("t").partitions[0]
            if refused_with is not None:
                code = refused_with
                quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: produced("t", 0, code))
            values = [b"%d" % n for n in range(12)]
            results = await producer.append_batches("t", 0, [batch(value) for value in values])
            assert sorted(partition.values(), key=str) == sorted(values, key=str)
            assert not is_strict or partition.values() == values
            assert [partition.values()[result.offset] for result in results] == values
            assert (await producer.append_batches("t", 0, [batch(b"next")]))[0].offset == 12

    run(test())


def test_a_batch_that_may_be_in_the_log_is_not_numbered_anew() -> None:
    """A node that does not know its predecessors may be a leader that is none any more: the same topic may hold the batch."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            await client.append("t", "zero")
            node = quorum.nodes[1]

            def append_and_time_out(header: object, message: object) -> object:
                quorum._produce(node, message)  # type: ignore[arg-type]
                return produced("t", 0, ErrorCode.REQUEST_TIMED_OUT)

            node.once(ApiKey.PRODUCE, append_and_time_out)
            node.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.UNKNOWN_PRODUCER_ID))
            with pytest.raises(UnknownOutcome):
                await client.append("t", "one")
            assert (await client.append("t", "two")).offset == 2
            assert partition.values() == [b"zero", b"one", b"two"]

    run(test())


def test_a_strict_producer_goes_on_where_a_node_lost_what_it_had_acknowledged() -> None:
    """A lost majority took the last records with it: the next batch was certainly not appended, and takes a new number."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            producer = client.producer()
            await producer.append_batches("t", 0, [batch(b"0"), batch(b"1")])
            del partition.batches[1:]
            for recent in partition.producers.values():
                del recent[1:]
            partition.end_offset = 1
            values = [b"%d" % n for n in range(2, 14)]
            await producer.append_batches("t", 0, [batch(value) for value in values])
            assert partition.values() == [b"0", *values]

    run(test())


def test_a_strict_producer_ends_where_a_later_batch_may_be_in_the_log() -> None:
    """The first one certainly is not and takes a new number; of the second nobody knows, so nothing is appended behind it."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            producer = client.producer()
            await producer.append_batches("t", 0, [batch(b"0")])
            node = quorum.nodes[1]
            node.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.UNKNOWN_PRODUCER_ID))
            node.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.REQUEST_TIMED_OUT))
            outcomes = producer.submit_batches("t", 0, [batch(b"1"), batch(b"2"), batch(b"3")])
            ended = await asyncio.gather(*outcomes, return_exceptions=True)
            assert [type(outcome) for outcome in ended] == [AppendResult, UnknownOutcome, RequestRejected]
            assert partition.values() == [b"0", b"1"]

    run(test())
