"""The HTTP front itself: routes, methods, operations, and the bounds of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from raftlake.errors import StorageError
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError, TierFailure
from raftlake.raft.types import Offset
from raftlake.replica.tiering.tiering import TierStatus
from raftlake.runtime.admission import AddressLimit
from raftlake.runtime.http.base import HttpError, Response, head_bytes
from raftlake.runtime.http.connection import HEAD_BYTES_MAX, HEAD_SECONDS, STALL_SECONDS
from runtime_fakes import run, settle, until
from runtime_http_fakes import Front, http_front


def test_unknown_paths_and_methods() -> None:
    async def main() -> None:
        async with http_front() as on:
            for path in ("/", "/v1/kv2", "/v1/txn/", "/metrics/x"):
                answer = await on.client.get(path)
                assert (answer.status_code, answer.headers["x-raftlake-offset"]) == (404, "0")
            for method, path, allowed in (
                ("POST", "/v1/kv/k", "GET, HEAD, PUT, DELETE"),
                ("PUT", "/v1/kv", "GET, HEAD"),
                ("GET", "/v1/txn", "POST"),
                ("POST", "/metrics", "GET, HEAD"),
                ("POST", "/v1/watch", "GET"),
            ):
                answer = await on.client.request(method, path)
                assert (answer.status_code, answer.headers["allow"]) == (405, allowed)

    run(main())


def test_a_quorum_of_another_log_has_no_keys() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.config = replace(on.node.config, quorum_group=GroupId("other", 0, bytes(range(16))))
            for path in ("/v1/kv", "/v1/kv/k", "/v1/txn", "/v1/watch"):
                answer = await on.client.get(path)
                assert answer.status_code == 404
                assert "no key-value space" in answer.json()["error"]
            assert (await on.client.get("/health/ready")).status_code == 200

    run(main())


def test_what_the_tier_holds_of_each_partition() -> None:
    error = TierError(TierFailure.DAMAGED, "partition=0/x.parquet is not as it was written")
    status = TierStatus(
        group=GroupId("orders", 0, bytes(16)),
        copied_end=Offset(9),
        start_offset=Offset(3),
        checked_end=Offset(7),
        high_watermark=Offset(10),
        lag_ms=5,
        failures=2,
        error=error,
        failing_since_ms=1_700_000_000_000,
    )

    async def main() -> None:
        async with http_front() as on:
            assert (await on.client.get("/v1/tier")).status_code == 404
            gone = SimpleNamespace(warnings=())
            on.node.tiering = SimpleNamespace(is_on=True, warnings=(), gone=gone, statuses=lambda: [status])
            told = (await on.client.get("/v1/tier")).json()
            assert told == {
                "partitions": [
                    {
                        "topic": "orders",
                        "partition": 0,
                        "startOffset": 3,
                        "copiedEndOffset": 9,
                        "checkedEndOffset": 7,
                        "highWatermark": 10,
                        "lagMs": 5,
                        "failures": 2,
                        "failingSinceMs": 1_700_000_000_000,
                        "error": {"failure": "damaged", "reason": error.reason},
                    }
                ]
            }
            gone.warnings = ("the table of the deleted topic fares is not removed",)
            assert (await on.client.get("/v1/tier")).json()["deletedTopics"] == list(gone.warnings)

    run(main())


def test_health() -> None:
    async def main() -> None:
        async with http_front() as on:
            assert (await on.client.get("/health/live")).json() == {"live": True}
            assert (await on.client.get("/health/ready")).json() == {"ready": True, "leaderId": 1}
            on.node.damage.impaired["orders-0"] = "x.log is damaged at byte 61"
            for path in ("live", "ready"):
                answer = await on.client.get(f"/health/{path}")
                assert (answer.status_code, answer.json()["impaired"]) == (200, {"orders-0": "x.log is damaged at byte 61"})
            on.node.damage.impaired.clear()
            on.node.reports.alarms["orders-0"] = "refused epoch 9"
            for path in ("live", "ready"):
                answer = await on.client.get(f"/health/{path}")
                assert (answer.status_code, answer.json()["epochs"]) == (200, {"orders-0": "refused epoch 9"})
                assert "impaired" not in answer.json()
            on.node.reports.alarms.clear()
            on.node.kv.room.warnings = ("the key space is nearly full",)
            for path in ("live", "ready"):
                assert (await on.client.get(f"/health/{path}")).json()["warnings"] == ["the key space is nearly full"]
            on.node.kv.room.warnings = ()
            on.node.tiering.warnings = ("orders-0: not copied to the tier",)
            for path in ("live", "ready"):
                assert (await on.client.get(f"/health/{path}")).json()["warnings"] == ["orders-0: not copied to the tier"]
            on.node.tiering.warnings = ()
            on.node.cluster_identity.warnings = ("node 4 is of another cluster",)
            for path in ("live", "ready"):
                assert (await on.client.get(f"/health/{path}")).json()["warnings"] == ["node 4 is of another cluster"]
            on.node.cluster_identity.warnings = ()
            on.node.ready = False
            assert (await on.client.get("/health/ready")).status_code == 503
            assert (await on.client.get("/health/live")).status_code == 200
            on.node.fatal = StorageError("the disk")
            dead = await on.client.get("/health/live")
            assert (dead.status_code, dead.json()) == (503, {"live": False, "error": "the disk"})
            assert (await on.client.get("/health/live?x=1")).status_code == 400

    run(main())


def test_metrics_are_prometheus_text() -> None:
    async def main() -> None:
        async with http_front() as on:
            answer = await on.client.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert "\nraftlake_number_of_voters 2.0\n" in answer.text

    run(main())


def test_every_answer_carries_the_offset_that_it_reflects() -> None:
    assert b"x-raftlake-offset: 7\r\n" in head_bytes(Response(200), 7)
    assert b"x-raftlake-offset: 5\r\n" in head_bytes(Response(200, offset=5), 7)
    assert head_bytes(HttpError(503, "no", headers=((b"retry-after", b"1"),)).response(), 0).endswith(b"\r\nretry-after: 1\r\n")


# --- bounds of a connection ------------------------------------------------------------------------------------------------


async def raw(on: Front, data: bytes) -> bytes:
    """Send bytes and read until the server closes or stops sending the one answer."""
    reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        answer = await reader.read(65536)
        writer.close()
        return answer
    return b""


def test_a_head_without_end_is_refused() -> None:
    async def main() -> None:
        async with http_front() as on:
            endless_line = await raw(on, b"GET /" + b"x" * (2 * HEAD_BYTES_MAX))
            assert endless_line.startswith(b"HTTP/1.1 400") or endless_line == b""
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(b"GET /health/live HTTP/1.1\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(HEAD_BYTES_MAX // 1000 + 10):
                    writer.write(b"x-more: " + b"y" * 1000 + b"\r\n")
                    await writer.drain()
            with contextlib.suppress(ConnectionError):
                assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
            await until(lambda: on.front.connection_count == 0)
            assert (await on.client.get("/health/live")).status_code == 200

    run(main())


@pytest.mark.parametrize("headers", [1, 70])
@pytest.mark.parametrize("size", [HEAD_BYTES_MAX - 100, HEAD_BYTES_MAX + 5000])
def test_a_large_head_is_refused_also_where_it_comes_at_once(size: int, headers: int) -> None:
    """The bound is on the head itself, whatever the packets that it comes in, and not on the body behind it."""

    async def main() -> None:
        async with http_front() as on:
            start = b"PUT /v1/kv/a HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\nconnection: close\r\n"
            line = (size - len(start) - 2) // headers
            head = start + (b"x-y: " + b"y" * (line - len(b"x-y: \r\n")) + b"\r\n") * headers + b"\r\n"
            asked = asyncio.create_task(raw(on, head + bytes(100_000)))
            answer = await asked
            assert answer.startswith(b"HTTP/1.1 200" if size < HEAD_BYTES_MAX else b"HTTP/1.1 400"), answer
            assert (on.node.kv.machine.get("a") is None) == (size > HEAD_BYTES_MAX)

    run(main())


def test_garbage_is_refused_as_everything_else_is() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.kv.apply(put("k", b"v"))
            for garbage in (b"\x00\x00\x00\x10garbage\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"):
                head, _, body = (await raw(on, garbage)).partition(b"\r\n\r\n")
                status, *headers = head.decode().split("\r\n")
                assert status == "HTTP/1.1 400 Bad Request"
                named = dict(header.split(": ") for header in headers)
                assert named == {
                    "content-type": "application/json",
                    "content-length": str(len(body)),
                    "x-raftlake-offset": str(on.node.kv.machine.applied_offset),
                    "connection": "close",
                }
                assert json.loads(body) == {"error": "this is no HTTP/1.1 request"}
            assert (await on.client.get("/health/live")).status_code == 200
            assert on.fatal == []

    run(main())


def test_connections_have_a_limit() -> None:
    async def main() -> None:
        async with http_front(connections_max=2) as on:
            held = [await asyncio.open_connection(on.address.host, on.address.port) for _ in range(2)]
            await until(lambda: on.front.connection_count == 2)
            assert await raw(on, b"GET /health/live HTTP/1.1\r\nhost: h\r\n\r\n") == b""
            for _, writer in held:
                writer.close()
            await until(lambda: on.front.connection_count == 0)
            assert (await on.client.get("/health/live")).status_code == 200

    run(main())


def test_an_address_has_a_limit_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with http_front(addresses=AddressLimit(2)) as on:
            held = [await asyncio.open_connection(on.address.host, on.address.port) for _ in range(2)]
            await until(lambda: on.front.connection_count == 2)
            for _ in range(3):
                reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
                assert await reader.read(-1) == b""
                writer.close()
            assert on.front.connection_count == 2 and on.metrics.refused == {"max.connections.per.ip": 3}
            held[0][1].close()
            await until(lambda: on.front.connection_count == 1)
            assert (await on.client.get("/health/live")).status_code == 200
            held[1][1].close()

    run(main())
    assert caplog.text.count("refusing connection") == 1


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def main() -> None:
        async with http_front() as on:
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(
                b"GET /health/live HTTP/1.1\r\nhost: h\r\n\r\nGET /none HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
            )
            answers = (await reader.read()).decode()
            assert answers.index("HTTP/1.1 200") < answers.index("HTTP/1.1 404")
            writer.close()

    run(main())


def test_what_is_under_way_when_the_node_stops_is_answered_as_what_it_is() -> None:
    """A read may be asked elsewhere; a write may have happened. Neither is an internal error."""

    async def main() -> None:
        async with http_front() as on:
            on.node.kv.read = lambda *_: None  # type: ignore[method-assign, assignment]
            on.node.kv.propose = lambda *_: None  # type: ignore[method-assign, assignment]
            read = asyncio.create_task(on.client.get("/v1/kv/a"))
            write = asyncio.create_task(on.client.put("/v1/kv/a", content=b"v"))
            await until(lambda: len(on.front.exchanges) == 2)
            on.front.close()
            await on.front.abandon()
            answer = await read
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "ask another" in answer.json()["error"]
            answer = await write
            assert answer.status_code == 504 and "unknown" in answer.json()["error"]

    run(main())


def test_a_watch_under_way_when_the_node_stops_ends() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with on.client.stream("GET", "/v1/watch") as stream:
                assert stream.status_code == 200
                await on.front.abandon()
                seen = b""
                with contextlib.suppress(httpx.RemoteProtocolError):
                    async for chunk in stream.aiter_bytes():
                        seen += chunk
                assert seen in (b"", b": watch\nid: 0\n\n")
            await until(lambda: on.front.connection_count == 0)

    run(main())


# --- clients that take their time ------------------------------------------------------------------------------------------


def later(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest.mark.parametrize("sent", [b"", b"GET /health/live HTTP/1.1\r\nhost"])
def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async def main() -> None:
        async with http_front() as on:
            still = later(HEAD_SECONDS - 1)
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(sent)
            await until(lambda: on.front.connection_count == 1)
            await settle()
            on.front.end_overdue(still)
            assert on.front.connection_count == 1
            on.front.end_overdue(later(HEAD_SECONDS + 1))
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 408") and b"\r\nx-raftlake-offset: " in answer
            writer.close()

    run(main())


def test_between_two_requests_a_client_has_longer() -> None:
    async def main() -> None:
        async with http_front() as on:
            assert (await on.client.get("/health/live")).status_code == 200
            on.front.end_overdue(later(HEAD_SECONDS + 1))
            assert on.front.connection_count == 1
            assert (await on.client.get("/health/live")).status_code == 200

    run(main())


def test_half_a_body_is_not_waited_for_and_holds_no_room() -> None:
    """Sixty-four clients that announce a megabyte and send none of it must not keep everybody from writing."""

    async def main() -> None:
        async with http_front() as on:
            writers = []
            still = later(STALL_SECONDS - 1)
            for _ in range(64):
                _, writer = await asyncio.open_connection(on.address.host, on.address.port)
                writer.write(b"PUT /v1/kv/k HTTP/1.1\r\nhost: h\r\ncontent-length: 1048576\r\n\r\nx")
                writers.append(writer)
            await until(lambda: len(on.front.exchanges) == 64)
            await settle()
            refused = await on.client.put("/v1/kv/other", content=b"v")
            assert refused.status_code == 503 and "nothing changed" in refused.json()["error"]
            on.front.end_overdue(still)
            assert len(on.front.exchanges) == 64
            on.front.end_overdue(later(STALL_SECONDS + 1))
            await until(lambda: not on.front.exchanges)
            assert (await on.client.put("/v1/kv/other", content=b"v")).status_code == 200
            for writer in writers:
                writer.close()

    run(main())


def test_a_client_that_takes_no_answer_is_ended_and_a_waiting_one_is_not() -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(12):
                on.node.kv.apply(put(f"k{number}", bytes(1 << 20)))
            narrow = socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            narrow.connect((on.address.host, on.address.port))
            narrow.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=narrow)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /v1/kv?values=true HTTP/1.1\r\nhost: h\r\n\r\n")
            await until(lambda: len(on.front._writers) > 0)
            on.node.kv.read = lambda *_: None  # type: ignore[method-assign, assignment]
            waiting = asyncio.create_task(on.client.get("/v1/kv/a"))
            await until(lambda: len(on.front.exchanges) == 2)
            await settle()
            on.front.end_overdue(later(2 * STALL_SECONDS))
            await until(lambda: on.front._answers.held == 0)
            assert on.front.connection_count == 1 and not waiting.done()
            await on.front.abandon()
            assert (await waiting).status_code == 503
            writer.transport.abort()

    run(main())


def test_too_many_bytes_of_answers_are_refused() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.kv.apply(put("k", bytes(1 << 20)))
            with on.front._answers.hold(127 << 20):
                refused = await on.client.get("/v1/kv?values=true")
                assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
                assert (await on.client.get("/v1/kv")).status_code == 200
            whole = await on.client.get("/v1/kv?values=true")
            assert whole.status_code == 200 and len(whole.json()["entries"][0]["value"]) > 1 << 20

    run(main())
