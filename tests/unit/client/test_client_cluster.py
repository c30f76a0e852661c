"""Finding nodes: bootstrap, metadata refresh, nodes that are down, wrong bytes; topics."""

from __future__ import annotations

import asyncio
import math
import pickle
from dataclasses import replace

import pytest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode as KioError
from kio.schema.types import BrokerId

from clientkit import HANG, FakeQuorum, run
from clientkit_answers import NO_THROTTLE, describe_topic, metadata
from raftlake.client import AsyncClient, Client, KvConflict, NoReachableNode, OffsetOutOfRange, types
from raftlake.client.connection import open_connection
from raftlake.client.errors import Disconnected
from raftlake.client.partitioner import murmur2, partition_for_key
from raftlake.client.types import Address, ClientConfig, parse_servers
from raftlake.errors import ConfigError, ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey


def test_one_live_bootstrap_server_is_enough() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum:
            quorum.add_topic("t")
            bootstrap = quorum.bootstrap
            await quorum.nodes[2].stop()
            await quorum.nodes[3].stop()
            async with AsyncClient(bootstrap) as client:
                for _ in range(3):
                    assert await client.partitions("t") == [0]

    run(test())


def test_unreachable_nodes_are_named_with_their_errors() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum:
            bootstrap = quorum.bootstrap
            for node in quorum.nodes.values():
                await node.stop()
            async with AsyncClient(bootstrap, unreachable_timeout_ms=50) as client:
                with pytest.raises(NoReachableNode) as caught:
                    await client.describe_cluster()
                assert sorted(caught.value.last_errors) == sorted(bootstrap.split(","))
                assert all("refused" in error for error in caught.value.last_errors.values())

    run(test())


def test_an_outage_is_waited_for_and_a_wrong_address_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was answered once knows that the address is right."""
    monkeypatch.setattr(types, "FIRST_CONTACT_MS", 30)

    async def test() -> None:
        async with FakeQuorum(2) as quorum:
            quorum.add_topic("t")
            bootstrap = quorum.bootstrap
            async with AsyncClient(bootstrap) as client:
                assert await client.partitions("t") == [0]
                for node in quorum.nodes.values():
                    await node.stop()
                asked = asyncio.create_task(client.append("t", b"v"))
                async with AsyncClient(bootstrap) as late:
                    # It gives up long after the first one has found no node.
                    with pytest.raises(NoReachableNode):
                        await late.partitions("t")
                assert not asked.done()
                for node in quorum.nodes.values():
                    await node.start()
                assert (await asked).offset == 0

    run(test())


def test_by_default_an_outage_of_two_minutes_is_outlived() -> None:
    config = ClientConfig(bootstrap=(Address("h", 1),))
    assert config.request_timeout_ms >= 150_000
    assert (config.unreachable_ms(was_reached=False), config.unreachable_ms(was_reached=True)) == (10_000, math.inf)
    assert ClientConfig(bootstrap=(Address("h", 1),), unreachable_timeout_ms=5).unreachable_ms(was_reached=True) == 5


def test_a_node_that_talks_garbage_is_left_for_another() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum:
            quorum.add_topic("t")

            async def talk_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(100)
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                writer.close()

            server = await asyncio.start_server(talk_garbage, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            async with server, AsyncClient(f"127.0.0.1:{port},{quorum.bootstrap}") as client:
                assert await client.partitions("t") == [0]
            async with server_at_garbage(talk_garbage) as only, AsyncClient(only, unreachable_timeout_ms=50) as client:
                words = "it speaks HTTP, and not Kafka's protocol: bootstrap servers .* `listeners` .*, and not `http.listener`"
                with pytest.raises(NoReachableNode, match=words):
                    await client.partitions("t")

    run(test())


class server_at_garbage:
    def __init__(self, talk: object) -> None:
        self._talk = talk

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)  # type: ignore[arg-type]
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()


@pytest.mark.parametrize("changes", [False, True])
def test_a_paused_node_keeps_a_new_client_from_the_others_only_shortly(changes: bool) -> None:
    """Its system takes the connection, but not even the first question on it is answered."""

    async def test() -> None:
        async with FakeQuorum(3) as quorum:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.API_VERSIONS] = lambda header, message: HANG
            async with AsyncClient(quorum.bootstrap, stall_check_ms=20, connect_timeout_ms=60_000) as client:
                if changes:
                    await client.create_topic("u", 1)
                else:
                    assert await client.partitions("t") == [0]
            assert quorum.nodes[1].count(ApiKey.API_VERSIONS) >= 1, "it was asked first"

    run(test())


def test_a_silent_node_is_given_up_after_one_attempt() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum:
            quorum.add_topic("t")
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: HANG)
            quorum.nodes[2].once(ApiKey.METADATA, lambda *_: HANG)
            async with AsyncClient(quorum.bootstrap, attempt_timeout_ms=100) as client:
                assert await client.partitions("t") == [0]

    run(test())


def test_a_node_that_speaks_other_versions_is_a_clear_rejection() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.nodes[1].once(
                ApiKey.API_VERSIONS,
                lambda *_: ApiVersionsResponse(error_code=KioError.none, api_keys=(), throttle_time=NO_THROTTLE),
            )
            with pytest.raises(RequestRejected, match="does not speak METADATA version 12"):
                await client.partitions("t")

    run(test())


def test_callers_share_one_metadata_request() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.describe_cluster()
            await asyncio.gather(*(client.append("t", "v") for _ in range(20)))
            assert quorum.nodes[1].count(ApiKey.METADATA) == 1

    run(test())


def test_a_lagging_node_does_not_bring_back_an_older_leader() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            quorum.move_leader("t", 0, 2)
            assert (await client.describe_topic("t")).partitions[0].leader_id == 2
            partition = quorum.topics["t"].partitions[0]
            partition.leader_id, partition.epoch = 1, 1
            assert (await client.describe_topic("t")).partitions[0].leader_id == 2
            quorum.topics["t"].topic_id = bytes(range(16))
            assert (await client.describe_topic("t")).partitions[0].leader_id == 1

    run(test())


def test_servers_are_parsed_or_refused_by_name() -> None:
    assert parse_servers("a:1, b:2,a:1") == (Address("a", 1), Address("b", 2))
    assert parse_servers(["[::1]:9092"]) == (Address("::1", 9092),)
    assert str(Address("::1", 9092)) == "[::1]:9092"
    for wrong in ("", "host", "host:", ":1", "host:0", "host:65536", "host:x", "a:1,host"):
        with pytest.raises(ConfigError, match="bootstrap"):
            parse_servers(wrong)
    for nothing in (None, 9092, b"a:1"):
        with pytest.raises(ConfigError, match=r"expected \"host:port,host:port\", got"):
            parse_servers(nothing)  # type: ignore[arg-type]


def test_settings_are_checked_when_the_client_is_made() -> None:
    with pytest.raises(ConfigError, match="request_timeout_ms"):
        Client("h:1", request_timeout_ms=0)
    with pytest.raises(ConfigError, match="h1"):
        Client("h1")


#: From Kafka's own tests of Utils.murmur2.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF
    assert partition_for_key(data, 7) == (expected & 0x7FFFFFFF) % 7


@pytest.mark.parametrize(
    "error",
    [NoReachableNode(["a:1"], {"a:1": "refused"}), OffsetOutOfRange("t", 0, 5, 1, 2), KvConflict({"k": 3})],
)
def test_errors_survive_pickling(error: Exception) -> None:
    """Spark carries a task's exception to the driver as a pickle."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_nodes_without_a_leader_deny_no_topic_and_the_time_that_they_get_is_the_requests_own() -> None:
    """What a node answers that was started alone: LEADER_NOT_AVAILABLE for any name, and no controller beside an empty list."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum:
            quorum.add_topic("t")

            def without_leader(header: object, message: object) -> object:
                names = [topic.name for topic in message.topics or ()]  # type: ignore[attr-defined]
                answer = metadata(quorum, quorum.nodes[1], message)
                error = KioError.leader_not_available
                topics = tuple(replace(describe_topic(quorum, name), error_code=error, partitions=()) for name in names)
                return replace(answer, controller_id=BrokerId(-1), topics=topics)

            settings = {"unknown_topic_grace_ms": 5.0, "request_timeout_ms": 300.0}
            async with AsyncClient(quorum.bootstrap, **settings) as client:
                for node in quorum.nodes.values():
                    node.standing[ApiKey.METADATA] = without_leader
                for ask in (client.describe_topic("t"), client.describe_topic("x"), client.list_offsets("t", {0: -1})):
                    with pytest.raises(RequestRejected, match="hears of a leader") as caught:
                        await ask
                    assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
                with pytest.raises(RequestRejected, match="which topics exist") as caught:
                    await client.topics()
                assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
                # One node that knows is enough, and says at once what there is not.
                del quorum.nodes[2].standing[ApiKey.METADATA]
                assert [topic.name for topic in await client.topics()] == ["t"]
                assert await client.partitions("t") == [0]
                with pytest.raises(RequestRejected, match="does not exist"):
                    await client.describe_topic("x")
                await quorum.nodes[2].stop()
                with pytest.raises(RequestRejected, match="hears of a leader"):
                    await client.topics()
                await quorum.nodes[2].start()
                # What the client knew before does not count for an answer now.
                quorum.nodes[2].standing[ApiKey.METADATA] = without_leader
                with pytest.raises(RequestRejected, match="hears of a leader"):
                    await client.describe_topic("t")

    run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        *("127.0.0.1:22:33", "h:1:2", "a..b:9", "[::g]:1", "h:" + "1" * 5_000),
        *("a" * 300 + ":1", "a" * 64 + ".b:1"),
    ],
)
def test_what_is_no_host_is_said_before_anything_is_asked(wrong: str) -> None:
    """The system's resolver raises UnicodeError for some, and others were taken for hosts that do not answer."""
    with pytest.raises(ConfigError, match="is not host:port") as caught:
        parse_servers(f"good:1,{wrong}")
    assert len(str(caught.value)) < 400
    assert parse_servers("xn--bcher-kva.example.:1,bücher.example:2,::1:3,[fe80::1%eth0]:4") == (
        Address("xn--bcher-kva.example.", 1), Address("bücher.example", 2), Address("::1", 3), Address("fe80::1%eth0", 4),
    )  # fmt: skip


@pytest.mark.parametrize("address", [Address("a" * 300, 9092), Address("h..x", 9092)])
def test_an_address_that_a_node_makes_up_is_one_that_does_not_answer(address: Address) -> None:
    async def test() -> None:
        with pytest.raises(Disconnected, match="no address to connect to") as caught:
            await open_connection(address, ClientConfig(bootstrap=(address,)))
        assert not caught.value.sent

    run(test())
