"""Where a watch begins: a reader that follows the HTML standard and is cut at any moment misses nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from raftlake.kv.commands import Put, Txn
from runtime_fakes import run
from runtime_http_fakes import Front, http_front


@dataclass
class EventSource:
    """A browser's reader of events (WHATWG HTML §9.2.2 and §9.2.6). It asks the same address again, with the last event ID."""

    on: Front
    query: dict[str, str] = field(default_factory=dict)
    #: What the application is handed: the versions of the changes.
    handed: list[int] = field(default_factory=list)
    #: Sent with the next request, unless it is empty.
    last_event_id: str = ""
    _id_buffer: str = ""
    _data_buffer: str = ""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[AsyncIterator[str]]:
        headers = {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}
        self._data_buffer = ""
        self._id_buffer = self.last_event_id
        async with self.on.client.stream("GET", "/v1/watch", params=self.query, headers=headers) as response:
            assert response.status_code == 200, "the standard lets a reader give up for good"
            yield response.aiter_lines()

    async def read(self, lines: AsyncIterator[str], blocks: int) -> None:
        """Take so many blocks, each of which ends with a blank line."""
        while blocks:
            line = await anext(lines)
            if not line:
                self._dispatch()
                blocks -= 1
            elif not line.startswith(":"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    self._data_buffer += value + "\n"
                elif name == "id" and "\0" not in value:
                    self._id_buffer = value

    def _dispatch(self) -> None:
        self.last_event_id = self._id_buffer
        data, self._data_buffer = self._data_buffer, ""
        if data:
            self.handed.append(json.loads(data)["version"])


def put(on: Front, *keys: str) -> int:
    return int(on.node.kv.apply(Txn((), tuple(Put(key, b"v") for key in keys))).offset)


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("between", [1, 2])
def test_a_reader_that_is_cut_before_its_first_event_misses_nothing(before: int, between: int) -> None:
    """It came without `from`, and no heartbeat was due."""

    async def main() -> None:
        async with http_front() as on:
            for number in range(before):
                put(on, f"before{number}")
            reader = EventSource(on)
            async with reader.connected() as lines:
                await reader.read(lines, 1)
            assert (reader.handed, reader.last_event_id) == ([], str(before))
            missed = [put(on, f"between{number}") for number in range(between)]
            async with reader.connected() as lines:
                await reader.read(lines, 1 + between)
                missed.append(put(on, "after"))
                await reader.read(lines, 1)
            assert reader.handed == missed

    run(main())


def test_a_reader_that_is_cut_twice_before_its_first_event_stands_where_it_stood() -> None:
    async def main() -> None:
        async with http_front() as on:
            put(on, "before")
            reader = EventSource(on, {"prefix": "k"})
            for _ in range(2):
                async with reader.connected() as lines:
                    await reader.read(lines, 1)
                assert reader.last_event_id == "1"
                put(on, "other")
            version = put(on, "k")
            async with reader.connected() as lines:
                await reader.read(lines, 2)
            assert reader.handed == [version]

    run(main())


@pytest.mark.parametrize("begin", [0, 2, 5, 9])
def test_a_reader_that_says_where_to_begin_is_told_the_same(begin: int) -> None:
    """Also of a version that the node has not applied yet."""

    async def main() -> None:
        async with http_front() as on:
            for number in range(5):
                put(on, f"k{number}")
            reader = EventSource(on, {"from": str(begin)})
            async with reader.connected() as lines:
                await reader.read(lines, 1)
            assert (reader.handed, reader.last_event_id) == ([], str(begin))
            async with reader.connected() as lines:
                await reader.read(lines, 1 + len(range(begin, 5)))
            assert reader.handed == list(range(begin + 1, 6))

    run(main())


def test_a_reader_that_is_cut_inside_a_transaction_gets_all_of_it() -> None:
    async def main() -> None:
        async with http_front() as on:
            reader = EventSource(on)
            async with reader.connected() as lines:
                await reader.read(lines, 1)
                first, both = put(on, "a"), put(on, "b", "c")
                await reader.read(lines, 2)
            assert (reader.handed, reader.last_event_id) == ([first, both], str(first))
            async with reader.connected() as lines:
                await reader.read(lines, 3)
            assert (reader.handed, reader.last_event_id) == ([first, both, both, both], str(both))

    run(main())


@pytest.mark.parametrize("heartbeat_seconds", [60.0, 0.01])
def test_a_node_that_has_applied_nothing_names_a_version_that_it_takes(heartbeat_seconds: float) -> None:
    """A version below 0 would be refused with 400, after which a browser asks no more."""

    async def main() -> None:
        async with http_front(heartbeat_seconds=heartbeat_seconds) as on:
            reader = EventSource(on)
            blocks = 1 if heartbeat_seconds > 1 else 3
            async with reader.connected() as lines:
                await reader.read(lines, blocks)
            assert reader.last_event_id == "0"
            version = put(on, "k")
            async with reader.connected() as lines:
                await reader.read(lines, 2)
            assert (reader.handed, version) == ([1], 1)

    run(main())
