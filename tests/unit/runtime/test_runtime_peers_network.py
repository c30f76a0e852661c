"""The way to the peers against scripted servers: order, time, loss, reconnecting, and news of dead processes."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from peerkit import FAST, Net, Peer, answered, ask, begin, fetch_round, network, scripted
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import ControlReply, FetchReply, GroupId, ProposeReply, ProposeRpc, ReadOffsetRpc
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.replica.config import Endpoint
from raftlake.runtime.sockets import bind
from raftlake.wire import fetch
from raftlake.wire.api import ApiKey, encode_response, response_type
from runtime_fakes import LOOPBACK, TOPIC_ID, address_of, run, settle, until


def test_every_kind_of_rpc_gets_its_answer() -> None:
    async def test(peer: Peer, net: Net) -> None:
        rpcs = [
            begin(),
            fetch_round(),
            ProposeRpc(batch=b"batch"),
            ReadOffsetRpc(cluster_id=None, read_timestamp_ms=1, groups=()),
        ]
        results = [ask(net, rpc) for rpc in rpcs]
        await until(lambda: all(results))
        assert [type(result[0]).__name__ for result in results] == [
            "ControlReply",
            "FetchReply",
            "ProposeReply",
            "ReadOffsetReply",
        ]
        assert results[2] == [ProposeReply(error=ErrorCode.NONE, base_offset=42)]  # type: ignore[arg-type]
        assert all(len(result) == 1 for result in results)
        assert {header.client_id for header, _, _ in peer.requests} == {"raftlake-node-1"}
        assert net.unreachable == []

    scripted(test)


def test_a_parked_fetch_or_proposal_does_not_hold_up_a_vote() -> None:
    async def test(peer: Peer, net: Net) -> None:
        fetching, proposing = ask(net, fetch_round()), ask(net, ProposeRpc(batch=b"x"))
        await until(lambda: len(peer.requests) == 2)
        beginning = ask(net, begin())
        await until(lambda: len(peer.requests) == 3)
        peer.answer(2)
        await until(lambda: bool(beginning))
        assert not fetching and not proposing
        assert len({id(writer) for _, _, writer in peer.requests}) == 3

    scripted(test, auto=False)


def test_answers_of_one_connection_come_in_order() -> None:
    async def test(peer: Peer, net: Net) -> None:
        results = [ask(net, begin()) for _ in range(20)]
        await until(lambda: len(peer.requests) == 20)
        assert len(peer.writers) == 1
        correlation_ids = [header.correlation_id for header, _, _ in peer.requests]
        assert correlation_ids == sorted(set(correlation_ids))
        for index in range(20):
            peer.answer(index)
            await until(lambda: bool(results[index]))  # noqa: B023
            assert not any(results[index + 1 :])

    scripted(test, auto=False)


def test_a_peer_that_never_answers_times_out_and_is_connected_anew() -> None:
    async def test(peer: Peer, net: Net) -> None:
        first, second = ask(net, begin()), ask(net, begin())
        await until(lambda: bool(first and second))
        assert first == second == [FailureReason.TIMED_OUT]
        peer.auto = True
        assert isinstance(await answered(net, begin()), ControlReply)
        (first_writer, *_, last_writer) = (writer for _, _, writer in peer.requests)
        assert last_writer is not first_writer
        # It was this node that closed the connection: nothing is known of the peer's process.
        assert net.unreachable == []

    scripted(test, FAST, auto=False)


def test_a_peer_that_is_of_another_cluster_is_told_of_and_no_other_refusal_is() -> None:
    async def test(peer: Peer, net: Net) -> None:
        errors = [
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ]
        told: list[tuple[int, Endpoint]] = []
        net.network.on_foreign = lambda node_id, address: told.append((node_id, address))
        for index, error in enumerate(errors):
            got = ask(net, begin())
            await until(lambda: len(peer.requests) == index + 1)  # noqa: B023
            header, _, writer = peer.requests[index]
            answer: Any = response_type(ApiKey(header.api_key), header.api_version)
            writer.writelines(encode_response(header, answer(error_code=error, topics=())))
            await until(lambda: bool(got))  # noqa: B023
            assert got == [ControlReply(error=error)]
        assert told == [(2, peer.address)] * 2 and net.unreachable == []

    scripted(test, auto=False)


def test_a_fetch_has_its_wait_on_top_of_the_timeout() -> None:
    async def test(peer: Peer, net: Net) -> None:
        for rpc in (begin(), fetch_round()):
            await answered(net, rpc)
        peer.auto = False
        loop = asyncio.get_running_loop()
        started = loop.time()
        ended: list[tuple[str, Any, float]] = []
        for name, rpc in (("long", fetch_round(wait_ms=100)), ("short", begin())):
            net.network.send(2, rpc, lambda told, name=name: ended.append((name, told, loop.time() - started)))  # type: ignore[arg-type, misc]
        await until(lambda: len(ended) == 2)
        assert [(name, told) for name, told, _ in ended] == [
            ("short", FailureReason.TIMED_OUT),
            ("long", FailureReason.TIMED_OUT),
        ]
        assert ended[1][2] >= 0.159

    scripted(test, FAST)


def test_a_peer_that_dies_is_news_and_fails_what_was_under_way() -> None:
    async def test(peer: Peer, net: Net) -> None:
        fetching = ask(net, fetch_round(wait_ms=500))
        await until(lambda: len(peer.requests) == 1)
        peer.drop()
        await until(lambda: bool(fetching))
        assert fetching == [FailureReason.DISCONNECTED]
        assert net.unreachable == [2]
        # A refused connect says it once more.
        refused = ask(net, fetch_round())
        await until(lambda: bool(refused))
        assert refused == [FailureReason.DISCONNECTED]
        assert net.unreachable == [2, 2]

    scripted(test, auto=False)


def test_a_forwarded_request_that_costs_its_connection_is_no_news() -> None:
    """Kafka's own nodes close a connection on which an API comes that they do not know; they lead on undisturbed."""

    async def test(peer: Peer, net: Net) -> None:
        fetching = ask(net, fetch_round(wait_ms=500))
        await until(lambda: len(peer.requests) == 1)
        reading = ask(net, ReadOffsetRpc(cluster_id=None, read_timestamp_ms=1, groups=()))
        await until(lambda: len(peer.requests) == 2)
        peer.writers[1].transport.abort()
        await until(lambda: bool(reading))
        assert reading == [FailureReason.DISCONNECTED]
        assert net.unreachable == [] and not fetching

    scripted(test, auto=False)


def test_a_peer_that_was_never_there_is_no_news() -> None:
    async def main() -> None:
        with bind(LOOPBACK, "listeners") as free:
            nobody = address_of(free)
        async with network({2: nobody}) as net:
            for _ in range(3):
                refused = ask(net, begin())
                await until(lambda: bool(refused))  # noqa: B023
                assert refused == [FailureReason.DISCONNECTED]
            assert net.unreachable == []

    run(main())


def test_a_peer_outside_the_voters_cannot_be_reached() -> None:
    async def main() -> None:
        async with network({}) as net:
            got = ask(net, begin(), to=9)
            await until(lambda: bool(got))
            assert got == [FailureReason.DISCONNECTED]

    run(main())


def test_requests_wait_for_the_backoff_and_then_go_out() -> None:
    async def main() -> None:
        peer = Peer()
        with bind(LOOPBACK, "listeners") as free:
            peer.address = address_of(free)
        slow = RaftConfig(request_timeout_ms=5000, retry_backoff_ms=100, retry_backoff_ms_max=100)
        async with network({2: peer.address}, slow) as net:
            loop = asyncio.get_running_loop()
            asked_at = loop.time()
            refused = ask(net, begin())
            await until(lambda: bool(refused))
            await peer.start()
            waiting = ask(net, begin())
            await until(lambda: bool(waiting))
            assert isinstance(waiting[0], ControlReply)
            assert loop.time() - asked_at >= 0.099
        peer.stop()

    run(main())


def test_a_sign_of_life_ends_the_backoff() -> None:
    async def main() -> None:
        peer = Peer()
        with bind(LOOPBACK, "listeners") as free:
            peer.address = address_of(free)
        glacial = RaftConfig(request_timeout_ms=600_000, retry_backoff_ms=300_000, retry_backoff_ms_max=300_000)
        async with network({2: peer.address}, glacial) as net:
            refused = ask(net, begin())
            await until(lambda: bool(refused))
            await peer.start()
            waiting = ask(net, begin())
            net.network.notice_alive(2)  # type: ignore[arg-type]
            await until(lambda: bool(waiting))
            assert isinstance(waiting[0], ControlReply)
        peer.stop()

    run(main())


@pytest.mark.parametrize(
    "garbage", [struct.pack(">i", -1), struct.pack(">i", 5 << 20), struct.pack(">ii", 4, 77), struct.pack(">i", 5) + b"short"]
)
def test_garbage_from_a_peer_ends_the_connection_only(garbage: bytes) -> None:
    async def test(peer: Peer, net: Net) -> None:
        got = ask(net, begin())
        await until(lambda: len(peer.requests) == 1)
        peer.writers[0].write(garbage)
        await until(lambda: bool(got))
        assert got == [FailureReason.DISCONNECTED]
        assert net.unreachable == []
        peer.auto = True
        again = ask(net, begin())
        await until(lambda: bool(again))
        assert isinstance(again[0], ControlReply)

    scripted(test, auto=False)


def test_an_answer_without_a_request_ends_the_connection() -> None:
    async def test(peer: Peer, net: Net) -> None:
        got = ask(net, begin())
        await until(lambda: bool(got))
        peer.answer(0)
        again: list[Any] = []
        while not (again and isinstance(again[0], ControlReply)):
            again = ask(net, begin())
            await until(lambda: bool(again))  # noqa: B023
        assert len(peer.writers) == 2

    scripted(test)


def test_records_of_an_answer_are_slices_of_the_frame() -> None:
    group = GroupId("flights", 3, TOPIC_ID)
    records = bytes(range(256)) * 100

    async def test(peer: Peer, net: Net) -> None:
        got = ask(net, fetch_round())
        await until(lambda: len(peer.requests) == 1)
        header, _, writer = peer.requests[0]
        net.network.codec._names[TOPIC_ID] = "flights"
        result = fetch.FetchPartitionResult(3, ErrorCode.NONE, records=records)
        writer.writelines(encode_response(header, fetch.FetchResponse([fetch.FetchTopicResult(None, TOPIC_ID, [result])])))
        await until(lambda: bool(got))
        assert isinstance(got[0], FetchReply)
        (message,) = got[0].messages
        assert message.group == group
        (batch,) = message.body.batches  # type: ignore[union-attr]
        assert isinstance(batch.payload, memoryview) and batch.payload == records

    scripted(test, auto=False)


def test_a_peer_that_is_being_connected_is_in_touch_and_one_that_refuses_is_not() -> None:
    """Kafka's nodes close a connection that is idle for ten minutes: the next request opens it anew."""

    async def test(peer: Peer, net: Net) -> None:
        assert net.network.peers_in_touch() == []
        got = ask(net, begin())
        assert (net.network.connected_peers(), net.network.peers_in_touch()) == ([], [2])
        await until(lambda: bool(got))
        assert (net.network.connected_peers(), net.network.peers_in_touch()) == ([2], [2])
        peer.drop()
        await until(lambda: net.network.connected_peers() == [])
        assert net.network.peers_in_touch() == []
        refused = ask(net, begin())
        await until(lambda: bool(refused))
        await settle()
        assert refused == [FailureReason.DISCONNECTED] and net.network.peers_in_touch() == []

    scripted(test)


def test_closing_reports_nothing_more() -> None:
    async def test(peer: Peer, net: Net) -> None:
        got = ask(net, begin())
        await until(lambda: len(peer.requests) == 1)
        net.network.close()
        peer.answer(0)
        peer.drop()
        await settle()
        assert got == [] and net.unreachable == []

    scripted(test, auto=False)
