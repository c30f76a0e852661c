"""Reading and offsets: cuts, replicas, errors, leader changes."""

from __future__ import annotations

import asyncio

import pytest

from clientkit import DROP, FakePartition, FakeQuorum, fetched, run
from raftlake.client import EARLIEST, LATEST, AsyncClient, IsolationLevel, OffsetOutOfRange
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, decode_records, parse_header
from raftlake.wire.shown import without_raft_records


def fill(partition: FakePartition, *sizes: int) -> None:
    """Batches of so many records; the value of each record is its offset."""
    for sequence, size in enumerate(sizes):
        values = [str(partition.end_offset + n).encode() for n in range(size)]
        built = build_batch(
            [Record(value=value) for value in values],
            timestamp_ms=1,
            producer_id=sequence,
            producer_epoch=0,
            base_sequence=0,
        )
        assert partition.append(built)[0] == ErrorCode.NONE


def test_read_returns_records_from_the_offset_on() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 3, 3)
            records = await client.read("t", 0, 1)
            assert [(record.topic, record.partition, record.offset) for record in records] == [("t", 0, n) for n in range(1, 6)]
            assert [record.value for record in records] == [b"1", b"2", b"3", b"4", b"5"]
            assert len(await client.read("t", 0, 1, max_records=2)) == 2
            assert await client.read("t", 0, 6, max_wait_ms=0) == []

    run(test())


def test_fetch_raw_cuts_at_the_limit_and_names_the_next_offset() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 3, 3, 3)
            fetched_bytes = await client.fetch_raw("t", 0, 4, limit_offset=6)
            assert (fetched_bytes.next_offset, fetched_bytes.high_watermark, fetched_bytes.log_start_offset) == (6, 9, 0)
            (buffer,) = fetched_bytes.buffers
            assert [record.offset for record in decode_records(buffer)] == [3, 4, 5]
            inside = await client.fetch_raw("t", 0, 4, limit_offset=5)
            assert inside.next_offset == 6
            empty = await client.fetch_raw("t", 0, 9, wait_ms=0)
            assert (empty.buffers, empty.next_offset) == ((), 9)

    run(test())


def test_a_read_steps_over_batches_without_records_to_the_exact_end() -> None:
    """As a node shows the control records of Raft: one record of offset 0, three of 3, and one at the end."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            for count, is_control in ((1, True), (2, False), (3, True), (1, False), (1, True)):
                records = [Record(key=b"\0\0\0\2")] * count
                batch = bytes(build_batch(records, base_offset=partition.end_offset, timestamp_ms=0, control=is_control))
                shown = without_raft_records(batch, [parse_header(batch)]) if is_control else batch
                partition.batches.append(shown)
                partition.end_offset += count
            for offset in range(8):
                records_read = await client.read("t", 0, offset, max_wait_ms=0)
                assert [record.offset for record in records_read] == [each for each in (1, 2, 6) if each >= offset]
                whole = await client.fetch_raw("t", 0, offset, wait_ms=0)
                assert (whole.next_offset, whole.high_watermark) == (8, 8)
            inside = await client.fetch_raw("t", 0, 3, limit_offset=6)
            assert inside.next_offset == 6 and list(decode_records(inside.buffers[0])) == []

    run(test())


def test_a_read_asks_again_while_the_node_fetches_history_from_the_tier() -> None:
    """An answer without a byte below the end is not the end. It comes again for the second piece."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 2, 2)
            for start in (0, 2):
                for _ in range(2):
                    quorum.nodes[1].once(ApiKey.FETCH, lambda *_: fetched(topic.topic_id, 0, ErrorCode.NONE, 4))
                got = await client.read("t", 0, start, max_wait_ms=0)
                assert [record.offset for record in got] == list(range(start, 4))

    run(test())


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_a_read_ends_at_the_end_of_its_isolation_level(isolation: IsolationLevel) -> None:
    """Behind an open transaction a reader of what is committed does not wait; the other one does."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 1, 2)
            answer = fetched(topic.topic_id, 0, ErrorCode.NONE, 3)
            answer.topics[0].partitions[0].last_stable_offset = 1
            quorum.nodes[1].once(ApiKey.FETCH, lambda *_: answer)
            got = await client.read("t", 0, 1, max_wait_ms=0, isolation=isolation)
            assert [record.offset for record in got] == ([] if isolation is IsolationLevel.READ_COMMITTED else [1, 2])

    run(test())


def test_history_that_does_not_come_in_time_is_an_error_that_names_the_offset() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 2)
            for _ in range(100):
                quorum.nodes[1].once(ApiKey.FETCH, lambda *_: fetched(topic.topic_id, 0, ErrorCode.NONE, 2))
            with pytest.raises(RequestRejected, match=r"t-0 at 1: node 1 has not read it") as caught:
                await client.read("t", 0, 1, max_wait_ms=0, timeout_ms=50)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(test())


def test_any_replica_and_a_named_one_are_asked() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 1)
            assert (await client.fetch_raw("t", 0, 0, replica=3)).node_id == 3
            assert {(await client.fetch_raw("t", 0, 0, replica="any")).node_id for _ in range(3)} == {1, 2, 3}
            assert (await client.fetch_raw("t", 0, 0)).node_id == 1

    run(test())


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_what_a_follower_cannot_serve_is_asked_of_the_leader(code: ErrorCode) -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 2)
            quorum.nodes[2].once(ApiKey.FETCH, lambda *_: fetched(topic.topic_id, 0, code))
            assert (await client.fetch_raw("t", 0, 1, replica=2)).node_id == 1

    run(test())


def test_a_leader_that_cannot_answer_yet_is_asked_again_from_the_same_offset() -> None:
    """As after an election: it is neither an empty answer nor the end of what there is."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 2)
            for _ in range(3):
                quorum.nodes[1].once(ApiKey.FETCH, lambda *_: fetched(topic.topic_id, 0, ErrorCode.OFFSET_NOT_AVAILABLE))
            assert [record.offset for record in await client.read("t", 0, 1)] == [1]
            asked = [request for key, request in quorum.nodes[1].requests if key == ApiKey.FETCH]
            assert [request.topics[0].partitions[0].fetch_offset for request in asked] == [1] * 4

    run(test())


def test_a_follower_that_lags_behind_the_limit_is_not_waited_for() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t")
            fill(topic.partitions[0], 2)
            quorum.nodes[2].once(ApiKey.FETCH, lambda *_: fetched(topic.topic_id, 0, ErrorCode.NONE, 0))
            answer = await client.fetch_raw("t", 0, 0, replica=2, limit_offset=2)
            assert (answer.node_id, answer.next_offset) == (1, 2)

    run(test())


def test_an_offset_that_the_leader_does_not_hold_is_out_of_range() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 2)
            with pytest.raises(OffsetOutOfRange, match="holds 0 up to 2") as caught:
                await client.read("t", 0, 5)
            assert (caught.value.log_start_offset, caught.value.high_watermark) == (0, 2)

    run(test())


def test_a_fetch_goes_on_after_a_lost_connection_and_a_new_leader() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 2)
            await client.read("t", 0, 0)

            def die(header: object, message: object) -> object:
                quorum.move_leader("t", 0, 2)
                return DROP

            quorum.nodes[1].once(ApiKey.FETCH, die)
            assert (await client.fetch_raw("t", 0, 0)).node_id == 2

    run(test())


def test_a_missing_topic_is_named() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            with pytest.raises(RequestRejected, match="'absent' does not exist") as caught:
                await client.read("absent", 0, 0)
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test())


def test_a_topic_may_appear_within_the_grace() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: None)
            asked = asyncio.create_task(client.partitions("late"))
            while not quorum.nodes[1].count(ApiKey.METADATA):
                await asyncio.sleep(0)
            quorum.add_topic("late", partitions=2)
            assert await asked == [0, 1]

    run(test())


def test_offsets_come_from_each_partitions_leader() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=3)
            for index, partition in enumerate(topic.partitions):
                partition.leader_id = index + 1
                fill(partition, index + 1)
            assert await client.list_offsets("t", {0: LATEST, 1: LATEST, 2: EARLIEST}) == {0: 1, 1: 2, 2: 0}
            assert await client.read_offset("t") == {0: 1, 1: 2, 2: 3}
            quorum.move_leader("t", 2, 1)
            assert await client.read_offset("t", [2]) == {2: 3}
            assert await client.list_offsets("t", {2: LATEST}) == {2: 3}

    run(test())


def test_stream_follows_every_partition() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=2)
            fill(topic.partitions[0], 2)
            fill(topic.partitions[1], 3)
            seen: list[tuple[int, int]] = []
            stream = client.stream("t", start=EARLIEST)
            async for record in stream:
                seen.append((record.partition, record.offset))
                if len(seen) == 5:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
            assert sorted(seen) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]

    run(test())


def test_stream_raises_what_ends_it() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            fill(quorum.add_topic("t").partitions[0], 1)
            stream = client.stream("t", start={0: 9})
            with pytest.raises(OffsetOutOfRange):
                await anext(stream)

    run(test())
