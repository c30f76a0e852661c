"""The Kafka listener: who serves which request, how many connections there may be, and what an error costs whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from raftlake.errors import ErrorCode, InvariantViolation, StorageError, TooManyFiles
from raftlake.ports.driver import ListenerUse
from raftlake.ports.peer_rpcs import ControlReply, ControlRpc, FetchReply, FetchRpc, ProposeRpc
from raftlake.runtime.admission import PENDING_MAX, AddressLimit
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire import produce
from raftlake.wire.api import ApiKey
from runtime_fakes import (
    Call,
    FakeNode,
    FakePeers,
    Wire,
    api_versions,
    begin_quorum_epoch,
    connect,
    fetch_of,
    find,
    found,
    produce_of,
    run,
    served,
    settle,
    until,
)

# --- who serves what -------------------------------------------------------------------------------------------------------


def test_peers_requests_go_to_receive() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.BEGIN_QUORUM_EPOCH, 1, begin_quorum_epoch())
            wire.send(ApiKey.FETCH, 17, fetch_of(replica_id=2))
            metadata = produce.ProduceTopic("__cluster_metadata", None, [produce.ProducePartition(0, b"batch")])
            wire.send(ApiKey.PRODUCE, 12, produce.ProduceRequest(-1, 0, None, [metadata]), client_id="raftlake-node-2")
            wire.send(ApiKey.PRODUCE, 12, produce.ProduceRequest(-1, 0, None, [metadata]), client_id="someone")
            await until(lambda: len(on.node.calls) == 4)
            kinds = [type(call.message) for call in on.node.calls]
            assert kinds == [ControlRpc, FetchRpc, ProposeRpc, produce.ProduceRequest]
            connections = {id(call.connection) for call in on.node.calls[:3]}
            assert len(connections) == 1 and on.node.calls[3].connection is None
            assert on.alive == [2, 2]
            on.node.calls[0].reply(ControlReply(error=ErrorCode.NONE))
            _, answer = await wire.receive(ApiKey.BEGIN_QUORUM_EPOCH, 1)
            assert answer.topics == ()
            wire.close()

    run(main())


def test_a_replica_that_does_not_wait_for_its_answer_is_cut_off() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FETCH, 17, fetch_of(replica_id=2))
            wire.send(ApiKey.FETCH, 17, fetch_of(replica_id=2))
            assert await wire.is_closed()
            assert len(on.node.calls) <= 1
            wire.close()
            patient = await connect(on.address)
            for _ in range(3):
                before = len(on.node.calls)
                patient.send(ApiKey.FETCH, 17, fetch_of(replica_id=2))
                await until(lambda: len(on.node.calls) == before + 1)  # noqa: B023
                on.node.calls[-1].reply(FetchReply(error=ErrorCode.NONE))
                await patient.receive(ApiKey.FETCH, 17)
            patient.close()

    run(main())


def test_the_listener_for_peers_serves_peers_and_api_versions_only() -> None:
    async def main() -> None:
        async with served(use=ListenerUse.PEERS) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.API_VERSIONS, 3, api_versions())
            await wire.receive(ApiKey.API_VERSIONS, 3)
            wire.send(ApiKey.BEGIN_QUORUM_EPOCH, 1, begin_quorum_epoch())
            await until(lambda: len(on.node.calls) == 1)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            assert await wire.is_closed()
            assert len(on.node.calls) == 1
            wire.close()

    run(main())


# --- limits of connections ---------------------------------------------------------------------------------------------------


def test_beyond_the_limit_only_peers_are_let_in() -> None:
    async def main() -> None:
        async with served(connections_max=2) as on:
            wires = [await connect(on.address) for _ in range(4)]
            await until(lambda: on.listener.connection_count == 4)
            wires[2].send(ApiKey.FIND_QUORUM, 0, find())
            assert await wires[2].is_closed()
            wires[3].send(ApiKey.FETCH, 17, fetch_of(replica_id=3))
            await until(lambda: len(on.node.calls) == 1)
            wires[0].send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 2)
            for wire in wires:
                wire.close()

    run(main())


def test_a_flood_of_silent_connections_does_not_keep_a_voter_out() -> None:
    """Where too many wait with their first request, the longest silent goes."""

    async def main() -> None:
        async with served(connections_max=1) as on:
            wires = [await connect(on.address) for _ in range(PENDING_MAX + 3)]
            assert await wires[1].is_closed() and await wires[2].is_closed()
            assert on.listener.connection_count == PENDING_MAX + 1
            voter = await connect(on.address)
            voter.send(ApiKey.FETCH, 17, fetch_of(replica_id=3))
            await until(lambda: len(on.node.calls) == 1)
            assert on.metrics.refused == ["max.connections"] * 3
            for wire in [*wires, voter]:
                wire.close()

    run(main())


def ask_as(node_id: int, client_id: str) -> list[Callable[[Wire], None]]:
    """The first requests by which a connection says that it is a node's."""
    return [
        lambda wire: wire.send(ApiKey.PRODUCE, 12, produce_of(b"x"), client_id=f"raftlake-node-{node_id}"),
        lambda wire: wire.send(ApiKey.FETCH, 17, fetch_of(replica_id=node_id), client_id=client_id),
        lambda wire: wire.send(ApiKey.BEGIN_QUORUM_EPOCH, 1, begin_quorum_epoch(node_id), client_id=client_id),
    ]


def test_connections_that_say_they_are_nodes_are_no_way_round_the_limit() -> None:
    """2,060 of them kept everybody out. Only who bears the number of a known node has a place beside the clients."""

    async def main() -> None:
        async with served(connections_max=3, peers=FakePeers(voters={2})) as on:
            for ask in ask_as(77, "raft-client-77"):
                before = len(on.node.calls)
                ask(await connect(on.address))
                await until(lambda: len(on.node.calls) == before + 1)  # noqa: B023
            assert not any(connection.is_peer for connection in on.listener._connections)
            for client_id in ("raftlake-node-77", "someone"):
                stranger = await connect(on.address)
                stranger.send(ApiKey.FIND_QUORUM, 0, find(), client_id=client_id)
                assert await stranger.is_closed()
            for ask in ask_as(2, "raft-client-2"):
                before = len(on.node.calls)
                ask(await connect(on.address))
                await until(lambda: len(on.node.calls) == before + 1)  # noqa: B023

    run(main())


def test_an_address_has_so_many_connections_and_is_refused_in_few_words(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(addresses=AddressLimit(2)) as on:
            first, _ = await connect(on.address), await connect(on.address)
            await until(lambda: on.listener.connection_count == 2)
            for _ in range(5):
                assert await (await connect(on.address)).is_closed()
            assert on.metrics.refused == ["max.connections.per.ip"] * 5
            first.close()
            await until(lambda: on.listener.connection_count == 1)
            again = await connect(on.address)
            again.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)

    run(main())
    assert caplog.text.count("refusing connection") == 1 and "max.connections.per.ip=2" in caplog.text


# --- the memory of all connections together ----------------------------------------------------------------------------------


def test_connections_wait_for_room_and_get_it_in_turn() -> None:
    async def main() -> None:
        async with served(started_bytes_max=30_000) as on:
            wires = [await connect(on.address) for _ in range(4)]
            for wire in wires:
                wire.send(ApiKey.PRODUCE, 9, produce_of(bytes(20_000)))
            await until(lambda: len(on.node.calls) == 1)
            for answered in range(4):
                await until(lambda: len(on.node.calls) > answered)  # noqa: B023
                await settle()
                assert len(on.node.calls) == answered + 1
                on.node.calls[answered].reply(produce.ProduceResponse([]))
            for wire in wires:
                await wire.receive(ApiKey.PRODUCE, 9)
                wire.close()
            assert on.listener._started_bytes == 0

    run(main())


def test_a_connection_that_is_lost_gives_its_room_back() -> None:
    async def main() -> None:
        async with served(started_bytes_max=30_000) as on:
            first, second = await connect(on.address), await connect(on.address)
            first.send(ApiKey.PRODUCE, 9, produce_of(bytes(20_000)))
            await until(lambda: len(on.node.calls) == 1)
            second.send(ApiKey.PRODUCE, 9, produce_of(bytes(20_000)))
            await settle()
            assert len(on.node.calls) == 1
            first.writer.transport.abort()
            await until(lambda: len(on.node.calls) == 2)
            on.node.calls[0].reply(produce.ProduceResponse([]))
            on.node.calls[1].reply(produce.ProduceResponse([]))
            await second.receive(ApiKey.PRODUCE, 9)
            assert on.listener._started_bytes == 0
            second.close()

    run(main())


def test_a_request_that_failed_gives_its_room_back() -> None:
    def fail(call: Call) -> None:
        raise KeyError("bug")

    async def main() -> None:
        async with served(FakeNode(on_call=fail)) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            assert await wire.is_closed()
            await until(lambda: on.listener.connection_count == 0)
            assert on.listener._started_bytes == 0
            wire.close()

    run(main())


def test_a_file_that_cannot_be_opened_costs_the_connection_and_not_the_node(caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call) -> None:
        raise TooManyFiles("cannot open /data/x.log: Too many open files (EMFILE)")

    async def main() -> None:
        async with served(FakeNode(on_call=fail)) as on:
            for _ in range(3):
                wire = await connect(on.address)
                wire.send(ApiKey.FIND_QUORUM, 0, find())
                assert await wire.is_closed()
                wire.close()
            assert on.fatal == []

    with caplog.at_level(logging.INFO):
        run(main())
    assert len([line for line in caplog.messages if "EMFILE" in line]) == 1


# --- what goes wrong inside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "is_fatal"), [(StorageError("disk"), True), (InvariantViolation("we"), True), (KeyError("bug"), False)]
)
def test_errors_of_the_node(error: Exception, is_fatal: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call) -> None:
        raise error

    async def main() -> None:
        async with served(FakeNode(on_call=fail)) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            assert await wire.is_closed()
            assert on.fatal == ([error] if is_fatal else [])
            wire.close()

    run(main())
    assert ("failed to serve FIND_QUORUM version 0" in caplog.text) is not is_fatal


def test_a_failed_assertion_stops_the_node() -> None:
    def fail(call: Call) -> None:
        raise AssertionError("one fact")

    async def main() -> None:
        async with served(FakeNode(on_call=fail)) as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            assert await wire.is_closed()
            (fatal,) = on.fatal
            assert isinstance(fatal, InvariantViolation) and "one fact" in str(fatal)
            wire.close()

    run(main())


def test_an_answer_that_cannot_be_encoded_costs_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)
            on.node.calls[0].reply("not an answer")
            assert await wire.is_closed()
            assert on.fatal == []
            wire.close()

    run(main())
    assert "failed to encode the answer" in caplog.text


def test_a_second_answer_is_our_bug() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)
            on.node.calls[0].reply(found())
            with pytest.raises(InvariantViolation, match="answered twice"):
                on.node.calls[0].reply(found())
            wire.close()

    run(main())


def test_closing_sends_what_was_answered_and_waits_for_it() -> None:
    async def main() -> None:
        async with served() as on:
            wire = await connect(on.address)
            wire.send(ApiKey.FIND_QUORUM, 0, find())
            await until(lambda: len(on.node.calls) == 1)
            on.node.calls[0].reply(found())
            on.listener.close()
            await on.listener.wait_closed()
            assert on.listener.connection_count == 0
            await wire.receive(ApiKey.FIND_QUORUM, 0)
            assert await wire.is_closed()
            with pytest.raises(ConnectionError):
                await connect(on.address)
            wire.close()

    run(main())


def test_wire_helper_sees_an_open_connection_as_open() -> None:
    """The tests above lean on `is_closed`; it must not say so of a connection that is open."""

    async def main() -> None:
        async with served() as on:
            wire: Wire = await connect(on.address)
            watching = asyncio.ensure_future(wire.is_closed())
            await settle()
            assert not watching.done()
            watching.cancel()
            wire.close()

    run(main())


def test_a_peer_does_not_wait_behind_clients_who_wait_for_it() -> None:
    """Appends that fill the node wait for commits; what commits them is the next Fetch of a follower."""

    async def main() -> None:
        async with served(started_bytes_max=30_000) as on:
            client, replica, forwarder = [await connect(on.address) for _ in range(3)]
            client.send(ApiKey.PRODUCE, 9, produce_of(bytes(29_990)))
            await until(lambda: len(on.node.calls) == 1)
            replica.send(ApiKey.FETCH, 17, fetch_of(replica_id=3), client_id="raft-client-3")
            await until(lambda: len(on.node.calls) == 2)
            forwarder.send(ApiKey.PRODUCE, 9, produce_of(b"x"), client_id=peer_client_id(2))
            await until(lambda: len(on.node.calls) == 3)
            for wire in (client, replica, forwarder):
                wire.close()

    run(main())


def test_consumers_wait_while_others_do_not_take_their_answers() -> None:
    async def main() -> None:
        async with served(unsent_bytes_max=1000) as on:
            on.listener.hold_unsent(1001)
            consumer, producer = await connect(on.address), await connect(on.address)
            consumer.send(ApiKey.FETCH, 16, fetch_of(replica_id=-1))
            producer.send(ApiKey.PRODUCE, 9, produce_of(b"x"))
            await until(lambda: len(on.node.calls) == 1)
            await settle()
            assert isinstance(on.node.calls[0].message, produce.ProduceRequest)
            on.listener.hold_unsent(-1001)
            await until(lambda: len(on.node.calls) == 2)
            for wire in (consumer, producer):
                wire.close()

    run(main())
