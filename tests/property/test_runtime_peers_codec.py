"""Round trips of every peer RPC: what a node means is what its peer hears, in every version that has the fields."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlake.errors import ErrorCode, WireError
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchReply,
    FetchRpc,
    GroupId,
    PeerMessage,
    ProposeReply,
    ProposeRpc,
    ReadOffsetReply,
    ReadOffsetResult,
    ReadOffsetRpc,
)
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import NO_DIRECTORY, UNKNOWN_OFFSET, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from raftlake.runtime.peers import control as peer_control
from raftlake.runtime.peers.codec import PeerCodec, is_from_replica, parse_peer_client_id, peer_client_id, source_of
from raftlake.wire import fetch, produce
from raftlake.wire.api import API_TABLE, ApiKey, decode_request, decode_response, encode_request, encode_response
from raftlake.wire.sync_report import Lagging, SyncReport
from runtime_fakes import TOPIC_ID, FakeNode

VOTERS: dict[Any, Endpoint] = {1: Endpoint("one", 9001), 2: Endpoint("two", 9002), 3: Endpoint("three", 9003)}

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
node_ids = st.integers(-1, 2**31 - 1)
directories = st.one_of(st.just(NO_DIRECTORY), st.binary(min_size=16, max_size=16))
errors = st.sampled_from(list(ErrorCode))
positions = st.builds(OffsetAndEpoch, int64, int32)
keys = st.builds(ReplicaKey, node_ids, directories)
#: The node that answers knows these topics.
groups = st.one_of(
    st.just(METADATA_GROUP),
    st.integers(0, 5).map(lambda partition: GroupId("flights", partition, TOPIC_ID)),
)
cluster_ids = st.one_of(st.none(), st.text("abc-", max_size=5))


def codec(node_id: int = 1) -> PeerCodec:
    made = PeerCodec(node_id=node_id, peers=VOTERS)  # type: ignore[arg-type]
    made.attach(FakeNode())
    return made


def distinct(messages: list[PeerMessage]) -> tuple[PeerMessage, ...]:
    return tuple({message.group: message for message in messages}.values())


def messages_of(bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[PeerMessage, ...]]:
    return st.lists(st.builds(PeerMessage, groups, bodies), min_size=1, max_size=6).map(distinct)


votes = st.builds(
    VoteRequest, candidate=keys, epoch=int32, log_end=positions, pre_vote=st.booleans(), voter_directory_id=directories,
    voter_id=st.just(2),
)  # fmt: skip
begins = st.builds(
    BeginQuorumEpochRequest, leader_id=node_ids, leader_epoch=int32, voter_directory_id=directories, voter_id=st.just(2)
)
ends = st.builds(
    EndQuorumEpochRequest,
    leader_id=node_ids,
    leader_epoch=int32,
    preferred_candidates=st.lists(keys, max_size=3).map(tuple),
)
ANSWERS: dict[type, st.SearchStrategy[Any]] = {
    VoteRequest: st.builds(VoteResponse, error=errors, leader_id=node_ids, leader_epoch=int32, vote_granted=st.booleans()),
    BeginQuorumEpochRequest: st.builds(BeginQuorumEpochResponse, error=errors, leader_id=node_ids, leader_epoch=int32),
    EndQuorumEpochRequest: st.builds(EndQuorumEpochResponse, error=errors, leader_id=node_ids, leader_epoch=int32),
}
controls = st.one_of(messages_of(votes), messages_of(begins), messages_of(ends))


def carried(rpc: Any, sender: int = 1, receiver: int = 2) -> tuple[Any, Any]:
    """What arrives at the receiver when `rpc` is sent: the header and the RPC."""
    api_key, version, message = codec(sender).encode_request(receiver, rpc)  # type: ignore[arg-type]
    frame = b"".join(encode_request(api_key, version, 5, peer_client_id(sender), message))  # type: ignore[arg-type]
    header, arrived = decode_request(bytearray(frame[4:]))
    return header, codec(receiver).decode_request(header, arrived)


def answered(rpc: Any, header: Any, reply: Any, sender: PeerCodec) -> tuple[Any, Any]:
    """What arrives back: the wire's message and the reply that the sender reads out of it."""
    frame = b"".join(encode_response(header, codec(2).encode_reply(header, rpc, reply)))
    _, message = decode_response(header.api_key, header.api_version, memoryview(frame)[4:])
    return message, sender.decode_reply(rpc, message)


@given(controls, cluster_ids)
def test_control_requests(messages: tuple[PeerMessage, ...], cluster_id: str | None) -> None:
    rpc = ControlRpc(cluster_id=cluster_id, messages=messages)
    _, heard = carried(rpc)
    assert heard == rpc


@given(controls, st.data())
def test_control_replies(messages: tuple[PeerMessage, ...], data: st.DataObject) -> None:
    rpc = ControlRpc(cluster_id=None, messages=messages)
    header, heard = carried(rpc)
    bodies = [data.draw(ANSWERS[type(message.body)]) for message in messages]
    reply = ControlReply(
        error=data.draw(errors),
        messages=tuple(PeerMessage(message.group, body) for message, body in zip(heard.messages, bodies, strict=True)),
    )
    message, read = answered(rpc, header, reply, codec())
    assert read == reply
    # A leader without an address stops Kafka's own nodes.
    named = sorted({body.leader_id for body in bodies if body.leader_id in VOTERS})
    told = [(each.node_id, Endpoint(each.host, each.port)) for each in message.node_endpoints]
    assert told == [(node_id, VOTERS[node_id]) for node_id in named]


fetches = st.builds(
    FetchRequest, replica=directories.map(lambda directory: ReplicaKey(1, directory)), leader_epoch=int32, fetch_offset=int64,
    last_fetched_epoch=int32, high_watermark=int64, log_start_offset=int64,
)  # fmt: skip
fetch_rpcs = st.builds(
    FetchRpc,
    cluster_id=cluster_ids,
    replica_id=st.just(1),
    session_id=int32,
    session_epoch=int32,
    wait_ms_max=int32,
    size_max=st.integers(1, 2**31 - 1),
    messages=messages_of(fetches),
    forgotten=st.lists(groups, max_size=4, unique=True).map(
        lambda found: tuple(sorted(found, key=lambda group: group.topic_id))
    ),
)
fetched = st.builds(
    FetchResponse, error=errors, leader_id=node_ids, leader_epoch=int32, high_watermark=int64, log_start_offset=int64,
    diverging=st.none() | positions, snapshot_id=st.none() | positions, leader_log_end=int64,
)  # fmt: skip
numbers = st.lists(node_ids, max_size=3, unique=True).map(sorted).map(tuple)
reports = st.builds(
    SyncReport,
    gone=st.none() | numbers,
    lagging=st.lists(st.builds(Lagging, st.binary(min_size=16, max_size=16), int32, numbers), max_size=6).map(tuple),
)


def in_order(report: SyncReport | None) -> Any:
    return report if report is None else (report.gone, sorted(report.lagging))


@given(fetch_rpcs)
def test_fetch_requests(rpc: FetchRpc) -> None:
    _, heard = carried(rpc)
    assert heard == rpc


@given(fetch_rpcs, st.data())
def test_fetch_replies(rpc: FetchRpc, data: st.DataObject) -> None:
    sender = codec()
    api_key, version, message = sender.encode_request(2, rpc)  # type: ignore[arg-type]
    header, _ = decode_request(bytearray(b"".join(encode_request(api_key, version, 5, "n", message))[4:]))  # type: ignore[arg-type]
    bodies = [data.draw(fetched) for _ in rpc.messages]
    records = [data.draw(st.binary(max_size=3000)) for _ in rpc.messages]
    sent = tuple(
        PeerMessage(message.group, with_records(body, payload))
        for message, body, payload in zip(rpc.messages, bodies, records, strict=True)
    )
    reply = FetchReply(
        error=data.draw(errors), session_id=data.draw(int32), messages=sent, sync_report=data.draw(st.none() | reports)
    )
    _, read = answered(rpc, header, reply, sender)
    assert (read.error, read.session_id) == (reply.error, reply.session_id)
    assert in_order(read.sync_report) == in_order(reply.sync_report)
    assert [message.group for message in read.messages] == [message.group for message in sent]
    for message, body, payload in zip(read.messages, bodies, records, strict=True):
        assert b"".join(batch.payload for batch in message.body.batches) == payload
        # Kafka's own Raft, which has no sessions, is not told where the log ends.
        assert without_records(message.body) == (body if reply.session_id else replace(body, leader_log_end=UNKNOWN_OFFSET))


def with_records(body: FetchResponse, payload: bytes) -> FetchResponse:
    batches = (FetchedBatch(base_offset=0, end_offset=1, epoch=0, payload=payload),) if payload else ()  # type: ignore[arg-type]
    return replaced(body, batches)


def without_records(body: FetchResponse) -> FetchResponse:
    return replaced(body, ())


def replaced(body: FetchResponse, batches: Any) -> FetchResponse:
    return replace(body, batches=batches)


read_results = st.builds(
    lambda error, offset, leader, epoch: {"error": error, "applied_offset": offset, "leader_id": leader, "leader_epoch": epoch},
    errors, int64, node_ids, int32,
)  # fmt: skip


@given(st.lists(groups, unique=True, max_size=5), cluster_ids, int64, st.data())
def test_read_offset(wanted: list[GroupId], cluster_id: str | None, at_ms: int, data: st.DataObject) -> None:
    wanted.sort(key=lambda group: group.topic)
    rpc = ReadOffsetRpc(cluster_id=cluster_id, read_timestamp_ms=at_ms, groups=tuple(wanted), replica_id=1)  # type: ignore[arg-type]
    header, heard = carried(rpc)
    assert heard == rpc
    reply = ReadOffsetReply(
        error=data.draw(errors), results=tuple(ReadOffsetResult(group=group, **data.draw(read_results)) for group in wanted)
    )
    _, read = answered(rpc, header, reply, codec())
    assert read == reply


@given(st.binary(min_size=1, max_size=5000), errors, int64, st.text(max_size=200))
def test_proposals(batch: bytes, error: ErrorCode, offset: int, message: str) -> None:
    rpc = ProposeRpc(batch=batch, source=1)  # type: ignore[arg-type]
    header, heard = carried(rpc)
    assert heard == rpc
    reply = ProposeReply(error=error, base_offset=offset, message=message)  # type: ignore[arg-type]
    _, read = answered(rpc, header, reply, codec())
    assert read == reply


# --- older versions, and peers that are not ours ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_votes_of_every_version_are_understood_and_answered(version: int) -> None:
    schema: Any = importlib.import_module(f"kio.schema.vote.v{version}.request")
    fields: dict[str, Any] = {}
    if version >= 1:
        fields |= {"replica_directory_id": None, "voter_directory_id": None}
    if version >= 2:
        fields["pre_vote"] = True
    part = schema.PartitionData(partition_index=0, replica_epoch=4, replica_id=3, last_offset_epoch=2, last_offset=9, **fields)
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(part,))
    message = schema.VoteRequest(cluster_id="c", topics=(topic,), **({"voter_id": 2} if version >= 1 else {}))
    header, arrived = decode_request(bytearray(b"".join(encode_request(ApiKey.VOTE, version, 1, None, message))[4:]))
    rpc = codec(2).decode_request(header, arrived)
    assert isinstance(rpc, ControlRpc)
    assert rpc.messages == (
        PeerMessage(
            METADATA_GROUP,
            VoteRequest(
                candidate=ReplicaKey(3),  # type: ignore[arg-type]
                epoch=4,  # type: ignore[arg-type]
                log_end=OffsetAndEpoch(9, 2),  # type: ignore[arg-type]
                pre_vote=version >= 2,
                voter_id=2 if version >= 1 else -1,  # type: ignore[arg-type]
            ),
        ),
    )
    answer = VoteResponse(error=ErrorCode.NONE, leader_id=1, leader_epoch=4, vote_granted=True)  # type: ignore[arg-type]
    reply = ControlReply(error=ErrorCode.NONE, messages=(PeerMessage(METADATA_GROUP, answer),))
    _, read = answered(rpc, header, reply, codec(2))
    assert read == reply


@pytest.mark.parametrize(
    ("api", "name"), [(ApiKey.BEGIN_QUORUM_EPOCH, "begin_quorum_epoch"), (ApiKey.END_QUORUM_EPOCH, "end_quorum_epoch")]
)
def test_version_0_of_begin_and_end(api: ApiKey, name: str) -> None:
    schema: Any = importlib.import_module(f"kio.schema.{name}.v0.request")
    successors = {"preferred_successors": (3, 2)} if api is ApiKey.END_QUORUM_EPOCH else {}
    part = schema.PartitionData(partition_index=0, leader_id=1, leader_epoch=7, **successors)
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(part,))
    class_name = "BeginQuorumEpochRequest" if api is ApiKey.BEGIN_QUORUM_EPOCH else "EndQuorumEpochRequest"
    message = getattr(schema, class_name)(cluster_id=None, topics=(topic,))
    header, arrived = decode_request(bytearray(b"".join(encode_request(api, 0, 1, None, message))[4:]))
    rpc = codec(2).decode_request(header, arrived)
    assert isinstance(rpc, ControlRpc)
    (heard,) = rpc.messages
    if isinstance(heard.body, EndQuorumEpochRequest):
        assert [key.id for key in heard.body.preferred_candidates] == [3, 2]
    assert source_of(rpc) == 1
    reply = ControlReply(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
    _, read = answered(rpc, header, reply, codec(2))
    assert read == reply


@pytest.mark.parametrize("version", range(API_TABLE[ApiKey.FETCH].version_min, API_TABLE[ApiKey.FETCH].version_max + 1))
def test_fetches_of_every_version_find_their_group(version: int) -> None:
    """By name up to version 12, by id after; without a session where there is none, as Kafka's own Raft fetches."""
    by_id = version >= 13
    part = fetch.FetchPartition(0, 3, 10, 2, 0, 1000)
    topics = [fetch.FetchTopic(None if by_id else METADATA_TOPIC, METADATA_TOPIC_ID if by_id else None, [part])]
    message = fetch.FetchRequest(wait_ms_max=500, bytes_min=0, topics=topics, replica_id=3)
    header, arrived = decode_request(bytearray(b"".join(encode_request(ApiKey.FETCH, version, 1, None, message))[4:]))
    rpc = codec(2).decode_request(header, arrived)
    assert isinstance(rpc, FetchRpc)
    assert (rpc.replica_id, rpc.session_id, rpc.session_epoch) == (3, 0, -1)
    assert [message.group for message in rpc.messages] == [METADATA_GROUP]
    body = FetchResponse(error=ErrorCode.NONE, leader_id=2, leader_epoch=3)  # type: ignore[arg-type]
    reply = FetchReply(error=ErrorCode.NONE, messages=(PeerMessage(METADATA_GROUP, body),))
    _, answer = decode_response(
        ApiKey.FETCH, version, b"".join(encode_response(header, codec(2).encode_reply(header, rpc, reply)))[4:]
    )
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id) == ((None, METADATA_TOPIC_ID) if by_id else (METADATA_TOPIC, None))
    if version >= 16:
        assert answer.node_endpoints == [(2, "two", 9002)]


def test_a_topic_that_is_not_known_keeps_its_id() -> None:
    unknown = bytes([7] * 16)
    message = fetch.FetchRequest(
        wait_ms_max=0,
        bytes_min=0,
        replica_id=3,
        topics=[fetch.FetchTopic(None, unknown, [fetch.FetchPartition(4, 0, 0, 0, 0, 1)])],
    )
    header, arrived = decode_request(bytearray(b"".join(encode_request(ApiKey.FETCH, 18, 1, None, message))[4:]))
    rpc = codec(2).decode_request(header, arrived)
    assert isinstance(rpc, FetchRpc)
    assert rpc.messages[0].group == GroupId("", 4, unknown)


def test_what_is_a_clients_is_left_alone() -> None:
    consumer = fetch.FetchRequest(wait_ms_max=0, bytes_min=1, topics=[])
    assert not is_from_replica(consumer) and not is_from_replica("other")
    for key, version, client_id, message in (
        (ApiKey.FETCH, 12, "raftlake-node-1", consumer),
        (ApiKey.PRODUCE, 9, "someone", metadata_produce(b"x")),
        (ApiKey.PRODUCE, 9, "raftlake-node-1", produce.ProduceRequest(-1, 0, None, [produce.ProduceTopic("t", None, [])])),
    ):
        header, arrived = decode_request(bytearray(b"".join(encode_request(key, version, 1, client_id, message))[4:]))
        assert codec(2).decode_request(header, arrived) is None


def metadata_produce(records: bytes | None, parts: int = 1) -> produce.ProduceRequest:
    partitions = [produce.ProducePartition(index, records) for index in range(parts)]
    return produce.ProduceRequest(-1, 0, None, [produce.ProduceTopic(METADATA_TOPIC, None, partitions)])


@pytest.mark.parametrize("message", [metadata_produce(None), metadata_produce(b"x", 2), metadata_produce(b"x", 0)])
def test_a_malformed_proposal_ends_its_connection(message: produce.ProduceRequest) -> None:
    header, arrived = decode_request(bytearray(b"".join(encode_request(ApiKey.PRODUCE, 9, 1, "raftlake-node-3", message))[4:]))
    with pytest.raises(WireError, match="a proposal is one batch"):
        codec(2).decode_request(header, arrived)


def test_a_client_asks_read_offset_as_nobody() -> None:
    rpc = ReadOffsetRpc(cluster_id=None, read_timestamp_ms=0, groups=(METADATA_GROUP,))
    key, version, message = codec().encode_request(2, rpc)  # type: ignore[arg-type]
    header, arrived = decode_request(bytearray(b"".join(encode_request(key, version, 1, "my-app", message))[4:]))  # type: ignore[arg-type]
    heard = codec(2).decode_request(header, arrived)
    assert isinstance(heard, ReadOffsetRpc) and heard.replica_id == -1


@given(st.integers(0, 2**31 - 1))
def test_client_ids_of_nodes(node_id: int) -> None:
    assert parse_peer_client_id(peer_client_id(node_id)) == node_id  # type: ignore[arg-type]


@pytest.mark.parametrize("client_id", [None, "", "raftlake-node-", "raftlake-node-x", "raftlake-node-1 ", "xraftlake-node-1"])
def test_other_client_ids(client_id: str | None) -> None:
    assert parse_peer_client_id(client_id) is None


def test_answers_about_what_was_not_asked_are_left_out() -> None:
    asked = ControlRpc(
        cluster_id=None, messages=(PeerMessage(METADATA_GROUP, BeginQuorumEpochRequest(leader_id=1, leader_epoch=1)),)
    )  # type: ignore[arg-type]
    schema: Any = importlib.import_module("kio.schema.begin_quorum_epoch.v1.response")
    parts = tuple(schema.PartitionData(partition_index=i, error_code=0, leader_id=1, leader_epoch=1) for i in (0, 1))
    message = schema.BeginQuorumEpochResponse(
        error_code=0, topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=parts),)
    )
    reply = peer_control.decode_reply(asked, message, METADATA_TOPIC)
    assert [message.group for message in reply.messages] == [METADATA_GROUP]
    stray = fetch.FetchResponse(
        [fetch.FetchTopicResult(None, bytes([9] * 16), [fetch.FetchPartitionResult(0, ErrorCode.NONE)])]
    )
    assert codec().decode_reply(fetch_round(), stray) == FetchReply(error=ErrorCode.NONE)


def fetch_round() -> FetchRpc:
    return FetchRpc(
        cluster_id=None,
        replica_id=1,
        session_id=0,
        session_epoch=0,
        wait_ms_max=0,
        size_max=1,
        messages=(),  # type: ignore[arg-type]
    )
