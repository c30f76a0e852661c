"""Calls that wait for the same thing in one outage: each has its own time, and what was sent is never told to be not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode as KioError
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId as KioProducerId
from kio.static.primitive import i16

from clientkit import DROP, HANG, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import AppendResult, AsyncClient, NewRecord, NoReachableNode
from raftlake.client.deadline import Deadline
from raftlake.client.lanes import ProducerIds
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch

LITTLE_MS, MUCH_MS = 200, 15_000
NO_ID = InitProducerIdResponse(
    throttle_time=NO_THROTTLE,
    error_code=KioError.coordinator_not_available,
    producer_id=KioProducerId(-1),
    producer_epoch=i16(-1),
)


def outage_test(test: Callable[[FakeQuorum, AsyncClient], Awaitable[None]], **settings: int) -> None:
    async def body() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, **settings) as client:
            quorum.add_topic("t", partitions=2)
            await client.describe_cluster()
            await test(quorum, client)

    run(body())


async def turns(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def begun(*calls: Awaitable[AppendResult]) -> list[asyncio.Future[AppendResult]]:
    """The calls, which wait by now."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await turns()
    return tasks


async def require_waiting(*calls: asyncio.Future[AppendResult]) -> None:
    done, _ = await asyncio.wait(calls, timeout=0.1)
    assert not done, [call.exception() for call in done]


async def known_and_down(quorum: FakeQuorum, client: AsyncClient) -> None:
    """The topic is known, and the node is down, as the client knows: it sends nothing."""
    await client.append("t", b"0", partition=0)
    connection = client._producer._senders["t", 0]._connection
    await quorum.nodes[1].stop()
    while connection is not None and connection.is_open:
        await asyncio.sleep(0)


def test_a_call_with_much_time_survives_one_with_little() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await quorum.nodes[1].stop()
        (little,) = await begun(client.append("t", b"a", timeout_ms=LITTLE_MS))
        much, also = await begun(*(client.append("t", value, timeout_ms=MUCH_MS) for value in ("b", "c")))
        with pytest.raises(NoReachableNode):
            await little
        await require_waiting(much, also)
        await quorum.nodes[1].start()
        assert {(await much).count, (await also).count} == {1}

    outage_test(test)


def test_a_call_with_little_time_does_not_wait_for_one_with_much() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await quorum.nodes[1].stop()
        (much,) = await begun(client.append("t", b"b", timeout_ms=MUCH_MS))
        (little,) = await begun(client.append("t", b"a", timeout_ms=LITTLE_MS))
        with pytest.raises(NoReachableNode, match=r"127\.0\.0\.1"):
            await asyncio.wait_for(little, 5)
        await require_waiting(much)
        much.cancel()

    outage_test(test)


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("little_first", [False, True])
def test_batches_of_one_partition_wait_together_and_each_in_its_own_time(is_strict: bool, little_first: bool) -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await known_and_down(quorum, client)
        producer = client.producer() if is_strict else client._producer
        times = {"little": LITTLE_MS, "much": MUCH_MS}
        names = ["little", "much"] if little_first else ["much", "little"]
        appends = [producer.append("t", NewRecord(value=b"v", partition=0), times[name]) for name in names]
        calls = dict(zip(names, await begun(*appends), strict=True))
        with pytest.raises(RaftlakeError):
            await asyncio.wait_for(asyncio.shield(calls["little"]), 5)
        if is_strict and little_first:
            # As behind any batch that was not appended.
            with pytest.raises(RequestRejected):
                await calls["much"]
            return
        await require_waiting(calls["much"])
        await quorum.nodes[1].start()
        await calls["much"]

    outage_test(test)


def test_what_was_sent_and_has_no_time_left_is_not_told_to_be_refused() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await client.append("t", b"0", partition=0)
        stopping: list[asyncio.Task[None]] = []

        def appended_and_gone(header: object, message: object) -> object:
            quorum._produce(quorum.nodes[1], message)  # type: ignore[arg-type]
            stopping.append(asyncio.create_task(quorum.nodes[1].stop()))
            return DROP

        quorum.nodes[1].once(ApiKey.PRODUCE, appended_and_gone)
        (little,) = await begun(client.append("t", b"a", partition=0, timeout_ms=LITTLE_MS))
        while not stopping:
            await asyncio.sleep(0)
        (much,) = await begun(client.append("t", b"b", partition=0, timeout_ms=MUCH_MS))
        with pytest.raises(UnknownOutcome):
            await asyncio.wait_for(little, 5)
        await require_waiting(much)
        await quorum.nodes[1].start()
        await much
        assert quorum.topics["t"].partitions[0].values() == [b"0", b"a", b"b"]

    outage_test(test)


def test_a_batch_without_room_ends_in_its_time() -> None:
    """Nothing fails, and nothing is found anew: five batches are in flight, and the sixth one waits for their answers."""

    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        producer = client.producer()
        await producer.append("t", NewRecord(value=b"0", partition=0), MUCH_MS)
        quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: HANG)
        batches = [build_batch([Record(value=b"v")], timestamp_ms=1) for _ in range(6)]
        long = producer.submit_batches("t", 0, batches[:5], MUCH_MS)
        (late,) = producer.submit_batches("t", 0, batches[5:], LITTLE_MS)
        await asyncio.wait([late], timeout=5)
        assert late.done() and isinstance(late.exception(), RequestRejected)
        await require_waiting(*long)

    outage_test(test, stall_check_ms=60_000)


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_producer_id_is_asked_for_in_the_time_of_all(is_strict: bool) -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await client.partitions("t")
        producer = client.producer() if is_strict else client._producer
        quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: NO_ID
        batch = build_batch([Record(value=b"v")], timestamp_ms=1)
        (little,) = producer.submit_batches("t", 0, [batch], LITTLE_MS)
        (other,) = producer.submit_batches("t", 1, [batch], MUCH_MS)
        (same,) = producer.submit_batches("t", 0, [batch], MUCH_MS)
        await asyncio.wait([little], timeout=5)
        assert isinstance(little.exception(), RequestRejected)
        left = [other] if is_strict else [other, same]
        await require_waiting(*left)
        del quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID]
        assert [(await outcome).offset for outcome in left] == [0] * len(left)
        await asyncio.wait([same])

    outage_test(test)


@pytest.mark.parametrize("turns_before", [0, 1, 2, 30])
def test_who_comes_while_an_id_is_asked_for_has_its_own_time(turns_before: int) -> None:
    """It was asked for in the time of the first batch alone."""

    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await client.partitions("t")
        quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: NO_ID
        batch = build_batch([Record(value=b"v")], timestamp_ms=1)
        (little,) = client._producer.submit_batches("t", 0, [batch], LITTLE_MS)
        await turns(turns_before)
        (much,) = client._producer.submit_batches("t", 0, [batch], MUCH_MS)
        await asyncio.wait([little], timeout=5)
        assert isinstance(little.exception(), RequestRejected)
        await require_waiting(much)
        del quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID]
        assert (await much).offset == 0

    outage_test(test)


def test_who_comes_while_the_leader_is_looked_for_has_its_own_time() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await known_and_down(quorum, client)
        batch = build_batch([Record(value=b"v")], timestamp_ms=1)
        (little,) = client._producer.submit_batches("t", 0, [batch], LITTLE_MS)
        await turns()
        (much,) = client._producer.submit_batches("t", 0, [batch], MUCH_MS)
        await asyncio.wait([little], timeout=5)
        assert isinstance(little.exception(), RaftlakeError) and not isinstance(little.exception(), UnknownOutcome)
        await require_waiting(much)
        await quorum.nodes[1].start()
        assert (await much).offset == 1

    outage_test(test)


def test_a_refusal_ends_all_that_wait_at_once() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await client.partitions("t")
        refused = InitProducerIdResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.policy_violation,
            producer_id=KioProducerId(-1),
            producer_epoch=i16(-1),
        )
        quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: refused
        calls = await begun(*(client.append("t", b"v", partition=0, timeout_ms=MUCH_MS) for _ in range(3)))
        for call in calls:
            with pytest.raises(RequestRejected) as caught:
                await asyncio.wait_for(call, 5)
            assert caught.value.code is ErrorCode.POLICY_VIOLATION

    outage_test(test)


def test_lanes_are_not_given_up_for_want_of_time() -> None:
    """The first lane is full, and the second one has no id in the time of those that wait. Later there is one."""

    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await client.append("t", b"0", partition=0)
        node = quorum.nodes[1]
        node.standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: NO_ID
        held = [client.append("t", b"held", partition=0, timeout_ms=MUCH_MS) for _ in range(5)]
        node.once(ApiKey.PRODUCE, lambda *_: HANG)
        calls = await begun(*held)
        with pytest.raises(RequestRejected):
            await client.append("t", b"a", partition=0, timeout_ms=LITTLE_MS)
        sender = client._producer._senders["t", 0]
        assert sender._lanes_max == client.config.append_lanes_max
        for call in calls:
            call.cancel()

    outage_test(test, stall_check_ms=60_000)


def test_an_id_is_asked_for_once_and_kept() -> None:
    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        ids = ProducerIds(client._cluster)
        quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID] = lambda *_: NO_ID
        little = asyncio.create_task(ids.shared(0, Deadline(LITTLE_MS)))
        await asyncio.sleep(0)
        much = asyncio.create_task(ids.shared(0, Deadline(MUCH_MS)))
        await asyncio.sleep(0)
        late = asyncio.create_task(ids.shared(0, Deadline(1)))
        for one in (little, late):
            with pytest.raises(RequestRejected, match="no producer id"):
                await one
        del quorum.nodes[1].standing[ApiKey.INIT_PRODUCER_ID]
        assert await much == await ids.shared(0, Deadline(0)) != await ids.shared(1, Deadline(MUCH_MS))

    outage_test(test)


def test_callers_without_any_node_share_one_search_for_it() -> None:
    """Each began anew when the one before had failed, and twenty ended one after the other."""

    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        await quorum.nodes[1].stop()
        searches, search = [], client._cluster._ask_metadata

        def counted(*arguments: Any) -> Any:
            searches.append(arguments)
            return search(*arguments)

        client._cluster._ask_metadata = counted  # type: ignore[method-assign]
        calls = await begun(*(client.append("t", b"v", timeout_ms=MUCH_MS) for _ in range(20)))
        for call in calls:
            with pytest.raises(NoReachableNode):
                await asyncio.wait_for(call, 5)
        assert len(searches) == 1

    outage_test(test, unreachable_timeout_ms=200, stall_check_ms=50)


def test_an_operation_that_began_long_before_an_outage_ends_nobody_in_it() -> None:
    """`unreachable_timeout_ms` is the time without a node, and not that of an operation which began before."""

    async def test(quorum: FakeQuorum, client: AsyncClient) -> None:
        old = Deadline(MUCH_MS)
        old._started -= 10
        await quorum.nodes[1].stop()
        began_at = asyncio.get_running_loop().time()
        new = Deadline(MUCH_MS)
        calls = [asyncio.create_task(client._cluster.refresh_topic("t", deadline)) for deadline in (old, new)]
        for call in calls:
            with pytest.raises(NoReachableNode):
                await asyncio.wait_for(call, 5)
            assert asyncio.get_running_loop().time() - began_at >= 0.2

    outage_test(test, unreachable_timeout_ms=200, stall_check_ms=50)


@pytest.mark.parametrize("second_ms", [0, 0.2, 300])
def test_a_batch_that_has_no_time_left_costs_no_other_one_its_outcome(second_ms: float) -> None:
    """On the loop of `Client`, whose handle of a time that is over does not know its time: the second caller got an error of
    the loop, and its batch was appended later."""

    async def test() -> None:
        async with FakeQuorum(1) as quorum:
            quorum.add_topic("t").partitions[0].leader_id = -1
            async with AsyncClient(quorum.bootstrap) as client:
                await client.partitions("t")
                limits = (0, second_ms, 5000)
                outcomes = [asyncio.create_task(client.append("t", b"%d" % n, timeout_ms=ms)) for n, ms in enumerate(limits)]
                await asyncio.wait(outcomes[:2])
                quorum.topics["t"].partitions[0].leader_id = 1
                for refused in outcomes[:2]:
                    assert isinstance(refused.exception(), RaftlakeError)
                assert (await outcomes[2]).offset == 0
                assert quorum.topics["t"].partitions[0].values() == [b"2"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 20))
