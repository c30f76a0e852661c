"""Watches: no gap, whole transactions, resumable, and bounded whoever reads."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keyspace import pack
from raftlake.runtime.http.watch_cursor import encode_change
from runtime_fakes import run, until
from runtime_http_fakes import Front, http_front


def put(on: Front, *keys: str) -> int:
    """One transaction that writes each key's name into it; its version."""
    return int(on.node.kv.apply(Txn((), tuple(Put(key, key.encode()) for key in keys))).offset)


class Events:
    """Reads events off a stream: each a dict of its fields, heartbeats as {"comment": ...}. `began`: the id that came first."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.began = -1

    async def begin(self) -> Events:
        first = await self.next()
        assert first.keys() == {"comment", "id"}
        self.began = int(first["id"])
        return self

    async def next(self) -> dict[str, Any]:
        event: dict[str, Any] = {}
        async for line in self._lines:
            if not line:
                return event
            if line.startswith(":"):
                event["comment"] = line[1:].strip()
                continue
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
        return {"end": True}

    async def take(self, count: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(count)]


@contextlib.asynccontextmanager
async def watching(on: Front, **query: str) -> AsyncIterator[Events]:
    headers = {"Last-Event-ID": query.pop("last_event_id")} if "last_event_id" in query else {}
    async with on.client.stream("GET", "/v1/watch", params=query, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        yield await Events(response).begin()


def data_of(key: str, version: int) -> dict[str, Any]:
    return {"key": key, "version": version, "value": base64.b64encode(key.encode()).decode()}


def test_streams_changes_of_a_prefix_as_they_happen() -> None:
    async def main() -> None:
        async with http_front() as on:
            put(on, "a/0")
            async with watching(on, prefix="a/") as events:
                put(on, "b/1")
                put(on, "a/1")
                assert await events.next() == {"event": "put", "id": "3", "data": data_of("a/1", 3)}
                on.node.kv.apply(Txn((), (Delete("a/1"),)))
                assert await events.next() == {"event": "delete", "id": "4", "data": {"key": "a/1", "version": 4}}

    run(main())


def test_resumes_after_a_version_without_gap_or_repetition() -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(6):
                put(on, f"k{number}")
            async with watching(on, **{"from": "2"}) as events:
                versions = [event["data"]["version"] for event in await events.take(4)]
                assert versions == [3, 4, 5, 6]
            async with watching(on, last_event_id="5", prefix="k") as events:
                assert (await events.next())["id"] == "6"
                put(on, "k9")
                assert (await events.next())["id"] == "7"

    run(main())


@pytest.mark.parametrize(
    ("resume_from", "last_event_id", "first"),
    [("1", "4", 5), ("4", "2", 3), ("0", "6", 7), ("6", "0", 1), ("3", "", 4), ("5", "5", 6)],
)
def test_a_reader_that_reconnects_goes_on_behind_the_last_event_that_it_saw(
    resume_from: str, last_event_id: str, first: int
) -> None:
    """It sends its old address again, with the `from` that it began at: Last-Event-ID counts, and `from` only without one."""

    async def main() -> None:
        async with http_front() as on:
            for number in range(1, 7):
                put(on, f"k{number}")
            async with watching(on, **{"from": resume_from, "last_event_id": last_event_id}) as events:
                put(on, "k7")
                versions = [event["data"]["version"] for event in await events.take(8 - first)]
                assert versions == list(range(first, 8))

    run(main())


def test_the_position_that_counts_is_the_one_that_is_looked_at() -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(100):
                put(on, f"k{number}")
            gone = await on.client.get("/v1/watch", params={"from": "99"}, headers={"Last-Event-ID": "1"})
            assert (gone.status_code, gone.json()["from"], gone.json()["oldest"]) == (410, 1, 36)
            async with watching(on, **{"from": "1", "last_event_id": "99"}) as events:
                assert (await events.next())["id"] == "100"
            for wrong in ("x", "-1", "9" * 20):
                answer = await on.client.get("/v1/watch", params={"from": "99"}, headers={"Last-Event-ID": wrong})
                accepted = "accepted is a whole number from 0 to 9223372036854775807"
                assert (answer.status_code, answer.json()) == (400, {"error": f"Last-Event-ID='{wrong}': {accepted}"})
                answer = await on.client.get("/v1/watch", params={"from": wrong})
                assert (answer.status_code, answer.json()) == (400, {"error": f"from='{wrong}': {accepted}"})

    run(main())


def test_the_oldest_version_that_is_kept_is_kept_and_the_one_before_is_gone() -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(100):
                put(on, f"k{number}")
            async with watching(on, **{"from": "36"}) as events:
                assert [event["id"] for event in await events.take(64)] == [str(version) for version in range(37, 101)]
            assert (await on.client.get("/v1/watch", params={"from": "35"})).status_code == 410

    run(main())


def test_only_the_last_change_of_a_transaction_carries_the_id() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with watching(on, **{"from": "0"}) as events:
                put(on, "x", "y", "z")
                first, second, third = await events.take(3)
                assert ("id" in first, "id" in second, third["id"]) == (False, False, "1")
                assert {event["data"]["version"] for event in (first, second, third)} == {1}

    run(main())


def test_more_changes_than_one_piece_holds() -> None:
    async def main() -> None:
        async with http_front() as on:
            on.node.kv.machine.history._changes_max = 10_000
            for number in range(700):
                put(on, f"k{number}")
            async with watching(on, **{"from": "0"}) as events:
                assert [event["id"] for event in await events.take(700)] == [str(version) for version in range(1, 701)]

    run(main())


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_watch_from_now_begins_with_the_very_next_change(before: int) -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(before):
                put(on, f"before{number}")
            async with watching(on) as events:
                version = put(on, "next")
                put(on, "later")
                assert [event["data"]["version"] for event in await events.take(2)] == [version, version + 1]

    run(main())


@pytest.mark.parametrize("sizes", [(1, 200, 200, 200), (300, 300, 1), (1, 256, 1, 1), (600,)])
def test_a_large_transaction_is_sent_whole_though_it_is_more_than_a_piece(sizes: tuple[int, ...]) -> None:
    """Sizes in KiB. A reader goes on behind the version of the last change that it was sent."""

    async def main() -> None:
        async with http_front() as on:
            for turn in "ab":
                on.node.kv.apply(Txn((), (Put(f"{turn}/small", b"s"),)))
                on.node.kv.apply(Txn((), tuple(Put(f"{turn}/{i}", bytes(size << 10)) for i, size in enumerate(sizes))))
            async with watching(on, **{"from": "0"}) as events:
                seen = [(event["data"]["key"], event.get("id")) for event in await events.take(2 * (1 + len(sizes)))]
                expected: list[tuple[str, str | None]] = []
                for version, turn in ((1, "a"), (3, "b")):
                    expected.append((f"{turn}/small", str(version)))
                    expected += [(f"{turn}/{i}", None) for i in range(len(sizes) - 1)]
                    expected.append((f"{turn}/{len(sizes) - 1}", str(version + 1)))
                assert seen == expected

    run(main())


def test_a_version_that_is_no_longer_kept_is_gone() -> None:
    async def main() -> None:
        async with http_front() as on:
            for number in range(100):
                put(on, f"k{number}")
            answer = await on.client.get("/v1/watch", params={"from": "1"})
            assert answer.status_code == 410
            assert (answer.json()["from"], answer.json()["oldest"]) == (1, 36)
            assert (await on.client.get("/v1/watch", params={"from": "x"})).status_code == 400
            assert (await on.client.get("/v1/watch", params={"form": "1"})).status_code == 400

    run(main())


def test_heartbeats_move_the_resume_point_on() -> None:
    async def main() -> None:
        async with http_front(heartbeat_seconds=0.01) as on:
            async with watching(on, prefix="quiet/") as events:
                put(on, "busy")
                while True:
                    beat = await events.next()
                    assert beat["comment"] == "heartbeat"
                    if beat["id"] == "1":
                        break

    run(main())


def test_a_reader_that_falls_behind_is_told_and_closed() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with watching(on) as events:
                # Applied in one turn of the loop: more than the history holds, before the watcher can look.
                for number in range(200):
                    put(on, f"k{number}")
                event = await events.next()
                assert event["event"] == "compacted"
                assert event["data"]["oldest"] == 136
                assert await events.next() == {"end": True}

    run(main())


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    async def main() -> None:
        async with http_front(stall_seconds=0.05) as on:
            on.node.kv.machine.history._bytes_max = 1 << 30
            reader, writer = await asyncio.open_connection(on.address.host, on.address.port, limit=1024)
            writer.write(b"GET /v1/watch HTTP/1.1\r\nhost: h\r\n\r\n")
            await until(lambda: on.front.connection_count == 1)
            await reader.readuntil(b"\r\n\r\n")
            for number in range(40):
                on.node.kv.apply(Txn((), (Put(f"k{number}", bytes(1 << 20)),)))
            await until(lambda: on.front.connection_count == 0)
            writer.close()

    run(main())


def test_a_reader_that_leaves_is_forgotten() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with watching(on):
                await until(lambda: len(on.front._watchers._all) == 1)
            await until(lambda: not on.front._watchers._all)

    run(main())


def test_stopping_ends_the_streams() -> None:
    async def main() -> None:
        async with http_front() as on:
            async with watching(on) as events:
                put(on, "last")
                assert (await events.next())["id"] == "1"
                on.front.close()
                assert await events.next() == {"end": True}
                await on.front.wait_closed()

    run(main())


@pytest.mark.parametrize(("value", "kind"), [(b"\xff", "put"), (None, "delete")])
def test_an_event_is_one_line_of_data(value: bytes | None, kind: str) -> None:
    text = encode_change(("line\nbreak", 5, None if value is None else pack(5, value)), is_last=True).decode()
    assert text.startswith(f"event: {kind}\nid: 5\ndata: ") and text.endswith("\n\n")
    assert json.loads(text.splitlines()[2].removeprefix("data: "))["key"] == "line\nbreak"
