"""Dear requests of many connections: one in each turn of the line, and none of the others waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raftlake.ports.driver import ListenerUse
from raftlake.runtime.listener import connection as connections
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.runtime.work_line import WorkLine
from raftlake.wire import fetch
from raftlake.wire.api import ApiKey, decode_request, encode_response
from runtime_fakes import Call, FakeNode, connect, fetch_of, find, found, run, served, settle, until

DEAR = find("x" * 3000)


class Turns:
    """The loop of a line, whose turns the test takes."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        loop: Any = self
        self.line = WorkLine(loop, lambda: self.us)
        self.us = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def take(self) -> None:
        """One slice, in which one dear request is served: the clock of it stands still, and the node moves it on."""
        self.calls.pop(0)()


def dear_node(turns: Turns) -> FakeNode:
    """Each request takes it 100 ms, and is answered at once."""

    def serve(call: Call) -> None:
        turns.us += 100_000
        call.reply(found())

    return FakeNode(on_call=serve)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each request as it is decoded."""
    sizes: list[int] = []

    def decode(frame: Any) -> Any:
        sizes.append(len(frame))
        return decode_request(frame)

    monkeypatch.setattr(connections, "decode_request", decode)
    return sizes


def test_one_of_many_dear_requests_is_served_in_each_turn() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            wires = [await connect(on.address) for _ in range(3)]
            for wire in wires:
                wire.send(ApiKey.FIND_QUORUM, 0, DEAR)
                wire.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 3)
            assert on.node.calls == []
            for count in range(1, 7):
                turns.take()
                assert len(on.node.calls) == count
                await settle()
            hosts = [call.client.connection for call in on.node.calls if call.client is not None]
            assert [hosts.index(each) for each in hosts] == [0, 1, 2, 0, 1, 2], "the connections take turns"

    run(main())


def test_a_small_request_of_another_connection_does_not_wait() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            dear, small = await connect(on.address), await connect(on.address)
            dear.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            small.send(ApiKey.FIND_QUORUM, 0, find())
            await small.receive(ApiKey.FIND_QUORUM, 0)
            assert len(on.node.calls) == 1 and turns.line.count == 1

    run(main())


def test_what_is_behind_a_dear_request_keeps_its_place() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=1)
            wire.send(ApiKey.FIND_QUORUM, 0, DEAR, correlation_id=2)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=3)
            await until(lambda: turns.line.count == 1)
            assert len(on.node.calls) == 1
            turns.take()
            assert [(await wire.receive(ApiKey.FIND_QUORUM, 0))[0] for _ in range(3)] == [1, 2, 3]

    run(main())


def test_a_crowd_of_small_requests_takes_turns_behind_the_first_ones(decoded: list[int]) -> None:
    """64 KiB hold thousands of them, and a hundred connections may send as much at once."""

    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            wire = await connect(on.address)
            for number in range(100):
                wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=number)
            await until(lambda: turns.line.count == 1)
            assert len(on.node.calls) == len(decoded) < 100
            served_before = len(decoded)
            turns.take()
            assert len(decoded) == served_before + 1
            while len(on.node.calls) < 100:
                if turns.calls:
                    turns.take()
                await asyncio.sleep(0)
            assert [(await wire.receive(ApiKey.FIND_QUORUM, 0))[0] for _ in range(100)] == list(range(100))

    run(main())


def test_a_dear_request_is_decoded_in_its_turn(decoded: list[int]) -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            assert decoded == []
            turns.take()
            assert len(decoded) == 1 and decoded[0] > 3000

    run(main())


def test_an_answer_that_comes_after_the_turn_is_encoded_in_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        turns, encoded = Turns(), list[object]()

        def encode(header: Any, message: Any) -> Any:
            encoded.append(message)
            return encode_response(header, message)

        monkeypatch.setattr(connections, "encode_response", encode)
        async with served(line=turns.line) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, DEAR, correlation_id=1)
            wire.send(ApiKey.FIND_QUORUM, 0, find(), correlation_id=2)
            await until(lambda: turns.line.count == 1)
            turns.take()
            on.node.calls[1].reply(found("second"))
            on.node.calls[0].reply(found("first"))
            assert len(encoded) == 1 and turns.line.count == 1
            with pytest.raises(Exception, match="answered twice"):
                on.node.calls[0].reply(found("first"))
            turns.take()
            assert [(await wire.receive(ApiKey.FIND_QUORUM, 0))[0] for _ in range(2)] == [1, 2]

    run(main())


@pytest.mark.parametrize("how", ["closed", "aborted", "half closed"])
def test_nothing_is_done_for_a_client_that_has_gone_meanwhile(how: str) -> None:
    """Its connection is not read while its request waits, so nothing else would notice."""

    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            gone, stays = await connect(on.address), await connect(on.address)
            gone.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            stays.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 2)
            leave = {"closed": gone.close, "aborted": gone.writer.transport.abort, "half closed": gone.writer.write_eof}
            leave[how]()
            await settle()
            turns.take()
            if not on.node.calls:
                turns.take()
            assert len(on.node.calls) == 1
            await stays.receive(ApiKey.FIND_QUORUM, 0)
            await until(lambda: on.listener.connection_count == 1)

    run(main())


def test_a_connection_that_the_node_closes_leaves_the_line() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            closed, stays = await connect(on.address), await connect(on.address)
            closed.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            next(iter(on.listener._connections)).close()
            assert turns.line.count == 0
            stays.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            turns.take()
            assert len(on.node.calls) == 1
            await stays.receive(ApiKey.FIND_QUORUM, 0)

    run(main())


def test_a_request_whose_turn_does_not_come_in_time_ends_its_connection() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line, limits=ConnectionLimits(turn_seconds=30)) as on:
            began = asyncio.get_running_loop().time()
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, DEAR)
            wire.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 1)
            on.listener.end_overdue(began + 29)
            turns.take()
            await wire.receive(ApiKey.FIND_QUORUM, 0)
            # The patience of the second begins with its own wait.
            on.listener.end_overdue(asyncio.get_running_loop().time() + 29)
            assert on.listener.connection_count == 1
            on.listener.end_overdue(asyncio.get_running_loop().time() + 31)
            assert await wire.is_closed() and turns.line.count == 0

    run(main())


def test_a_node_never_waits() -> None:
    """A voter's first request, and its later ones. A client that says it is a node which is not known does wait."""

    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            peer, liar = await connect(on.address), await connect(on.address)
            for _ in range(2):
                peer.send(ApiKey.FIND_QUORUM, 0, DEAR, client_id=peer_client_id(2))
                await peer.receive(ApiKey.FIND_QUORUM, 0)
            liar.send(ApiKey.FIND_QUORUM, 0, DEAR, client_id=peer_client_id(77))
            await until(lambda: turns.line.count == 1)
            assert len(on.node.calls) == 2

    run(main())


def test_metadata_of_many_partitions_is_dear_however_small_its_request_is() -> None:
    async def main() -> None:
        turns = Turns()
        partitions = {"few": 200, "many": 201}
        told = lambda message: sum(partitions[topic.name] for topic in message.topics)  # noqa: E731
        async with served(line=turns.line, partitions_told=told, use=ListenerUse.CLIENTS) as on:
            wire = await connect(on.address)
            for name in ("few", "many"):
                wire.send(ApiKey.METADATA, 1, metadata(name))
            await until(lambda: turns.line.count == 1)
            assert len(on.node.calls) == 1
            turns.take()
            assert len(on.node.calls) == 2

    run(main())


def metadata(name: str) -> Any:
    from kio.schema.metadata.v1.request import MetadataRequest, MetadataRequestTopic

    return MetadataRequest(topics=(MetadataRequestTopic(name=name),))  # type: ignore[arg-type]


def large_fetch(replica_id: int = -1) -> fetch.FetchRequest:
    parts = [fetch.FetchPartition(index, -1, 0, -1, 0, 1) for index in range(1000)]
    return fetch.FetchRequest(
        wait_ms_max=0, bytes_min=1, topics=[fetch.FetchTopic("flights", bytes(range(16)), parts)], replica_id=replica_id
    )


def test_a_large_fetch_of_a_consumer_waits_and_a_small_one_does_not() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(line=turns.line) as on:
            small, large = await connect(on.address), await connect(on.address)
            large.send(ApiKey.FETCH, 11, large_fetch())
            await until(lambda: turns.line.count == 1)
            small.send(ApiKey.FETCH, 11, fetch_of())
            await until(lambda: len(on.node.calls) == 1)
            turns.take()
            assert len(on.node.calls) == 2

    run(main())


def test_a_replica_that_sends_a_second_fetch_too_early_is_found_out_in_the_turn_of_it() -> None:
    """A replica that is not known: its large Fetch waits. What it knew as it sent it counts, not what it knows by then."""

    async def main() -> None:
        turns = Turns()
        async with served(line=turns.line) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FETCH, 11, fetch_of())
            wire.send(ApiKey.FETCH, 11, large_fetch(replica_id=77))
            await until(lambda: len(on.node.calls) == 1)
            on.node.calls[0].reply(fetch.FetchResponse([]))
            await until(lambda: turns.line.count == 1)
            turns.take()
            assert await wire.is_closed() and len(on.node.calls) == 1

    run(main())


def test_bytes_that_mean_nothing_close_their_connection_in_their_turn() -> None:
    async def main() -> None:
        turns = Turns()
        async with served(dear_node(turns), line=turns.line) as on:
            wire, other = await connect(on.address), await connect(on.address)
            wire.writer.write((3000).to_bytes(4) + b"\0\3\0\1\0\0\0\1\xff\xff" + b"\xff" * 2990)
            other.send(ApiKey.FIND_QUORUM, 0, DEAR)
            await until(lambda: turns.line.count == 2)
            turns.take()
            assert await wire.is_closed() and on.listener._started_bytes == 0
            if turns.calls:
                turns.take()
            await other.receive(ApiKey.FIND_QUORUM, 0)

    run(main())
