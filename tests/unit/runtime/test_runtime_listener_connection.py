"""One connection over loopback sockets: answer order, back-pressure, and every kind of bad client."""

from __future__ import annotations

import asyncio
import logging
import struct

import httpx
import pytest

from raftlake.client.kv_answers import may_have_happened, refusal_of
from raftlake.errors import ErrorCode
from raftlake.ports.driver import ClientConnection
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.wire import fetch, produce
from raftlake.wire.api import ApiKey, encode_request
from runtime_fakes import Call, FakeNode, connect, fetch_of, find, found, produce_of, run, served, settle, until


def test_answers_leave_in_request_order() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            for correlation_id in range(5):
                wire.send(ApiKey.FIND_QUORUM, 0, find(str(correlation_id)), correlation_id=correlation_id)
            await until(lambda: len(on.node.calls) == 5)
            for index in (3, 1, 4, 2, 0):
                on.node.calls[index].reply(found(str(index)))
            received = [await wire.receive(ApiKey.FIND_QUORUM, 0) for _ in range(5)]
            assert [(correlation_id, answer.topics[0].name) for correlation_id, answer in received] == [
                (index, str(index)) for index in range(5)
            ]
            wire.close()

    run(main())


def test_tells_the_node_who_asks() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), client_id="first")
            wire.send(ApiKey.FIND_QUORUM, 0, find(), client_id=None)
            await until(lambda: len(on.node.calls) == 2)
            clients = [(call.client.client_id, call.client.host) for call in on.node.calls if call.client]
            assert clients == [("first", "127.0.0.1"), (None, "127.0.0.1")]
            wire.close()

    run(main())


def test_frames_may_come_one_byte_at_a_time() -> None:
    async def main() -> None:
        async with served(FakeNode(on_call=lambda call: call.reply(found()))) as on:
            wire = await connect(on.address)
            for byte in b"".join(encode_request(ApiKey.FIND_QUORUM, 0, 9, "t", find())):
                wire.writer.write(bytes([byte]))
                await wire.writer.drain()
                await asyncio.sleep(0)
            correlation_id, _ = await wire.receive(ApiKey.FIND_QUORUM, 0)
            assert correlation_id == 9
            wire.close()

    run(main())


def test_a_large_frame_arrives_whole_and_owns_its_memory() -> None:
    records = bytes(range(256)) * 12_000

    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.PRODUCE, 9, produce_of(records))
            wire.send(ApiKey.PRODUCE, 9, produce_of(b"second"))
            await until(lambda: len(on.node.calls) == 2)
            first, second = (call.message.topics[0].partitions[0].records for call in on.node.calls)
            assert first == records and second == b"second"
            first[:4] = b"mine"
            assert second == b"second"
            wire.close()

    run(main())


def test_produce_without_acks_has_no_answer_and_holds_up_nothing() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.PRODUCE, 9, produce_of(b"x", acks=0), correlation_id=1)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=2)
            await until(lambda: len(on.node.calls) == 2)
            on.node.calls[1].reply(found())
            on.node.calls[0].reply(None)
            correlation_id, _ = await wire.receive(ApiKey.FIND_QUORUM, 0)
            assert correlation_id == 2
            assert on.metrics.commits == 0
            wire.close()

    run(main())


def test_an_acknowledged_append_is_a_commit() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.PRODUCE, 9, produce_of(b"x"))
            await until(lambda: len(on.node.calls) == 1)
            assert on.metrics.commits == 0
            on.node.calls[0].reply(produce.ProduceResponse([]))
            await wire.receive(ApiKey.PRODUCE, 9)
            assert on.metrics.commits == 1
            assert on.metrics.requests == ["PRODUCE"]
            wire.close()

    run(main())


# --- back-pressure -------------------------------------------------------------------------------------------------------


def test_starts_no_more_requests_than_the_limit() -> None:
    async def main() -> None:
        async with served(limits=ConnectionLimits(requests_max=3)) as on:
            wire = await connect(on.address)
            for correlation_id in range(10):
                wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=correlation_id)
            await until(lambda: len(on.node.calls) == 3)
            await settle()
            assert len(on.node.calls) == 3
            for answered in range(10):
                await until(lambda: len(on.node.calls) > answered)  # noqa: B023
                assert len(on.node.calls) <= answered + 3
                on.node.calls[answered].reply(found())
                correlation_id, _ = await wire.receive(ApiKey.FIND_QUORUM, 0)
                assert correlation_id == answered
            wire.close()

    run(main())


def test_starts_no_request_while_many_checks_of_the_connection_are_aside() -> None:
    """A read of 64 KiB holds a hundred requests that decompress to 16 MiB each."""

    async def main() -> None:
        async with served(limits=ConnectionLimits(checks_aside_max=3)) as on:
            wire = await connect(on.address)
            on.node.on_call = lambda call: set_checks(call, 1)
            for _ in range(5):
                wire.send(ApiKey.PRODUCE, 9, produce_of(b"x"))
            await until(lambda: len(on.node.calls) == 3)
            await settle()
            assert len(on.node.calls) == 3
            # A check that is done is room for one request, whether or not anything can be answered yet.
            for started in (3, 4):
                set_checks(on.node.calls[0], -1)
                await settle()
                assert len(on.node.calls) == started
                connection_of(on.node.calls[0]).on_check_done()
                await settle()
                assert len(on.node.calls) == started + 1
            beside = await connect(on.address)
            beside.send(ApiKey.PRODUCE, 9, produce_of(b"x"))
            await until(lambda: len(on.node.calls) == 6)
            wire.close()
            beside.close()

    run(main())


def set_checks(call: Call, more: int) -> None:
    """So many more checks of the connection are aside."""
    connection_of(call).checks_aside += more


def connection_of(call: Call) -> ClientConnection:
    assert call.client is not None
    return call.client.connection


def test_the_node_is_told_that_a_connection_is_gone() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), client_id="first")
            wire.send(ApiKey.FIND_QUORUM, 0, find(), client_id="second")
            await until(lambda: len(on.node.calls) == 2)
            connections = [call.client.connection for call in on.node.calls if call.client is not None]
            assert connections[0] is connections[1] and not connections[0].is_gone
            wire.close()
            await until(lambda: connections[0].is_gone)

    run(main())


def test_starts_no_more_bytes_than_the_limit_but_always_one_request() -> None:
    async def main() -> None:
        async with served(limits=ConnectionLimits(unanswered_bytes_max=10_000)) as on:
            wire = await connect(on.address)
            for correlation_id in range(4):
                wire.send(ApiKey.PRODUCE, 9, produce_of(bytes(20_000)), correlation_id=correlation_id)
            for answered in range(4):
                await until(lambda: len(on.node.calls) > answered)  # noqa: B023
                await settle()
                assert len(on.node.calls) == answered + 1
                on.node.calls[answered].reply(produce.ProduceResponse([]))
            wire.close()

    run(main())


def test_a_connection_has_one_consumer_fetch_at_a_time() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FETCH, 12, fetch_of(), correlation_id=1)
            wire.send(ApiKey.FETCH, 12, fetch_of(), correlation_id=2)
            await until(lambda: len(on.node.calls) == 1)
            await settle()
            assert len(on.node.calls) == 1
            on.node.calls[0].reply(fetch.FetchResponse([]))
            await until(lambda: len(on.node.calls) == 2)
            wire.close()

    run(main())


def test_a_slow_reader_stops_being_served_and_is_served_again_when_it_reads() -> None:
    records = bytes(1_000_000)
    result = fetch.FetchPartitionResult(0, ErrorCode.NONE, records=records)
    answer = fetch.FetchResponse([fetch.FetchTopicResult("t", None, [result])])

    async def main() -> None:
        node = FakeNode(on_call=lambda call: call.reply(answer))
        async with served(node, limits=ConnectionLimits(unsent_bytes_max=200_000)) as on:
            wire = await connect(on.address)
            # In one write, so that one read of the server may bring them all.
            requests = [b"".join(encode_request(ApiKey.FETCH, 12, index, "t", fetch_of())) for index in range(100)]
            wire.writer.write(b"".join(requests))
            served_before = -1
            while len(node.calls) != served_before:
                served_before = len(node.calls)
                await settle()
            # What is not in the client's own buffers is not even asked of the node.
            assert served_before < 40
            for correlation_id in range(100):
                got, _ = await wire.receive(ApiKey.FETCH, 12)
                assert got == correlation_id
            assert len(node.calls) == 100
            wire.close()

    run(main())


# --- bad clients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2_000_000),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.FETCH, 99, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 5, 1, 500),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(200),
    ],
)
def test_garbage_ends_the_connection_with_one_line(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(limits=ConnectionLimits(request_bytes_max=1_000_000)) as on:
            wire = await connect(on.address)
            wire.writer.write(garbage)
            assert await wire.is_closed()
            other = await connect(on.address)
            other.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)
            assert on.fatal == []
            wire.close()
            other.close()

    with caplog.at_level(logging.INFO, logger="raftlake.listener"):
        run(main())
    (line,) = caplog.messages
    assert line.startswith("closing connection peer=127.0.0.1") and "reason=" in line


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_http_is_told_that_it_came_to_the_wrong_port(method: str) -> None:
    """As a node refuses a request: a client neither tries on, nor takes a write for possibly done."""

    async def main() -> None:
        async with served(limits=ConnectionLimits(request_bytes_max=1_000_000)) as on, httpx.AsyncClient() as client:
            answer = await client.request(method, f"http://{on.address.host}:{on.address.port}/v1/kv/a", content=b"{}")
            assert answer.status_code == 400
            assert "this port speaks Kafka's protocol (the setting listeners)" in str(refusal_of(answer))
            assert "http.listener, whose addresses raftlake.http.servers lists" in str(refusal_of(answer))
            assert not may_have_happened(answer)

    run(main())


def test_http_behind_a_request_of_kafka_is_garbage_as_before() -> None:
    async def main() -> None:
        async with served(FakeNode(on_call=lambda call: call.reply(found()))) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await wire.receive(ApiKey.FIND_QUORUM, 0)
            wire.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await wire.reader.read() == b""

    run(main())


def test_a_flood_of_broken_connections_is_few_lines_and_short_ones(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as on:
            for _ in range(20):
                wire = await connect(on.address)
                wire.send(ApiKey.FIND_QUORUM, 0, find(), client_id="c" * 30_000)
                await until(lambda: bool(on.node.calls))
                on.node.calls.clear()
                wire.writer.write(b"\xff" * 100)
                assert await wire.is_closed()

    with caplog.at_level(logging.INFO, logger="raftlake.listener"):
        run(main())
    lines = [record.getMessage() for record in caplog.records if "closing connection" in record.getMessage()]
    assert 1 <= len(lines) <= 2 and max(map(len, lines)) < 1_000 and "client=cccc" in lines[0]


def test_a_bug_that_each_request_shows_is_one_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        async with served(FakeNode(on_call=fail)) as on:
            for _ in range(20):
                wire = await connect(on.address)
                wire.send(ApiKey.FIND_QUORUM, 0, find())
                assert await wire.is_closed()

    run(main())
    assert 1 <= caplog.text.count("RuntimeError: a bug") <= 2


def test_good_frames_before_a_bad_size_are_still_served() -> None:
    async def main() -> None:
        async with served(FakeNode(on_call=lambda call: call.reply(found()))) as on:
            wire = await connect(on.address)
            wire.writer.write(b"".join(encode_request(ApiKey.FIND_QUORUM, 0, 4, "t", find())) + struct.pack(">i", -7))
            correlation_id, _ = await wire.receive(ApiKey.FIND_QUORUM, 0)
            assert correlation_id == 4
            assert await wire.is_closed()
            wire.close()

    run(main())


def test_answers_for_a_client_that_left_go_nowhere() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            wire.send(ApiKey.FETCH, 12, fetch_of())
            wire.send(ApiKey.FETCH, 12, fetch_of())
            await until(lambda: len(on.node.calls) == 2)
            wire.writer.transport.abort()
            on.node.calls[0].reply(found())
            on.node.calls[1].reply(fetch.FetchResponse([]))
            await until(lambda: on.listener.connection_count == 0)
            assert on.fatal == []

    run(main())


def test_half_a_frame_and_then_nothing_is_harmless() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.writer.write(struct.pack(">i", 100) + b"half")
            await wire.writer.drain()
            wire.close()
            await until(lambda: on.listener.connection_count == 0)
            assert on.node.calls == []

    run(main())


def test_an_unknown_version_of_api_versions_is_answered_in_order() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=1)
            wire.writer.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 2, -1))
            await until(lambda: len(on.node.calls) == 1)
            on.node.calls[0].reply(found())
            assert (await wire.receive(ApiKey.FIND_QUORUM, 0))[0] == 1
            correlation_id, answer = await wire.receive(ApiKey.API_VERSIONS, 0)
            assert correlation_id == 2
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert ApiKey.FETCH in {api.api_key for api in answer.api_keys}
            wire.close()

    run(main())
