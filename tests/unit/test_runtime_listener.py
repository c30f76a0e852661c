"""The Kafka listener over loopback sockets: answer order, limits, back-pressure, and every kind of bad client."""

from __future__ import annotations

import asyncio
import importlib
import logging
import struct
from typing import Any

import pytest

from raftlake.errors import ErrorCode, InvariantViolation, StorageError
from raftlake.ports import ControlReply, ControlRpc, FetchReply, FetchRpc, ProposeRpc
from raftlake.runtime.connection import ConnectionLimits
from raftlake.runtime.listener import EXTRA_CONNECTIONS
from raftlake.wire import fetch, find_quorum, produce
from raftlake.wire.api import ApiKey, encode_request
from runtime_fakes import Call, FakeNode, Wire, connect, run, served, settle, until


def find(topic: str = "t") -> find_quorum.FindQuorumRequest:
    """The simplest client request: answered by `found`."""
    return find_quorum.FindQuorumRequest(None, [find_quorum.FindQuorumTopic(topic, [0])])


def found(topic: str = "t") -> find_quorum.FindQuorumResponse:
    return find_quorum.FindQuorumResponse(ErrorCode.NONE, [find_quorum.FindQuorumTopicResult(topic, [])])


def produce_of(records: bytes, acks: int = -1) -> produce.ProduceRequest:
    return produce.ProduceRequest(acks, 1000, None, [produce.ProduceTopic("t", None, [produce.ProducePartition(0, records)])])


def fetch_of(replica_id: int = -1) -> fetch.FetchRequest:
    return fetch.FetchRequest(wait_ms_max=0, bytes_min=1, topics=[], replica_id=replica_id)


def begin_quorum_epoch(leader_id: int = 2) -> Any:
    schema = importlib.import_module("kio.schema.begin_quorum_epoch.v1.request")
    part = schema.PartitionData(partition_index=0, voter_directory_id=None, leader_id=leader_id, leader_epoch=1)
    topic = schema.TopicData(topic_name="__cluster_metadata", partitions=(part,))
    return schema.BeginQuorumEpochRequest(cluster_id=None, voter_id=1, topics=(topic,), leader_endpoints=())


def api_versions() -> Any:
    schema = importlib.import_module("kio.schema.api_versions.v3.request")
    return schema.ApiVersionsRequest(client_software_name="t", client_software_version="1")


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
        async with served(peers_only=True) as on:
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


def test_connections_far_beyond_the_limit_are_dropped_at_once() -> None:
    async def main() -> None:
        async with served(connections_max=1) as on:
            wires = [await connect(on.address) for _ in range(EXTRA_CONNECTIONS + 3)]
            closed = await asyncio.gather(*(wire.is_closed() for wire in wires[EXTRA_CONNECTIONS + 1 :]))
            assert all(closed)
            assert on.listener.connection_count == EXTRA_CONNECTIONS + 1
            for wire in wires:
                wire.close()

    run(main())


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
