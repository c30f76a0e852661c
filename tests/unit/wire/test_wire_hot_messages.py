"""Produce and Fetch: record bytes are neither copied nor detached, sizes are right, amounts are bounded, defaults hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.wire import common, fetch, fetch_response, parts, produce, topic_lists
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, decode_response, encode_request, encode_response
from raftlake.wire.batches import Record, build_batch, stamp, validate
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
)
from raftlake.wire.fetch_response import SnapshotId
from raftlake.wire.find_quorum import FindQuorumPartitionResult, FindQuorumRequest, FindQuorumResponse, FindQuorumTopicResult
from raftlake.wire.primitives import BytesLike
from raftlake.wire.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)
from raftlake.wire.read_offset import ReadOffsetPartitionResult, ReadOffsetRequest, ReadOffsetResponse, ReadOffsetTopicResult
from raftlake.wire.topic_lists import TopicPartitions

TOPIC_ID = bytes(range(16))


def frame_of(pieces: list[BytesLike]) -> bytearray:
    whole = bytearray(b"".join(pieces))
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


def header(key: ApiKey, version: int) -> RequestHeader:
    return RequestHeader(key, version, 1, None)


@pytest.mark.parametrize("version", [8, 12, 13])
def test_produced_records_are_a_slice_of_the_frame(version: int) -> None:
    batch = build_batch([Record(value=b"v" * 5000)], timestamp_ms=1)
    request = ProduceRequest(-1, 1000, None, [ProduceTopic("t", TOPIC_ID, [ProducePartition(0, batch)])])
    pieces = encode_request(ApiKey.PRODUCE, version, 1, "c", request)
    assert any(piece is batch for piece in pieces)
    frame = frame_of(pieces)
    _, decoded = decode_request(frame)
    records = decoded.topics[0].partitions[0].records
    stamp(records, 0, 77, 3)
    assert validate(records)[0].base_offset == 77
    assert bytes(records) in bytes(frame)


def test_fetched_records_are_sent_from_where_they_lie() -> None:
    large, small = bytes(1 << 20), b"small"
    response = FetchResponse(
        [
            FetchTopicResult(
                "t", TOPIC_ID, [FetchPartitionResult(n, ErrorCode.NONE, records=r) for n, r in enumerate((large, small, large))]
            )
        ]
    )
    pieces = encode_response(header(ApiKey.FETCH, 17), response)
    assert sum(piece is large for piece in pieces) == 2
    assert sum(len(piece) for piece in pieces if piece is not large) < 200
    _, decoded = decode_response(ApiKey.FETCH, 17, frame_of(pieces))
    assert [result.records for result in decoded.topics[0].partitions] == [large, small, large]


@pytest.mark.parametrize("size", [0, 1, parts.COPY_BYTES_MAX, parts.COPY_BYTES_MAX + 1])
def test_sizes_are_right_around_the_copying_limit(size: int) -> None:
    response = FetchResponse([FetchTopicResult("t", None, [FetchPartitionResult(0, ErrorCode.NONE, records=bytes(size))])])
    assert decode_response(ApiKey.FETCH, 11, frame_of(encode_response(header(ApiKey.FETCH, 11), response)))[1] == response


def test_a_raft_fetch_as_kafka_4_sends_it() -> None:
    """Version 18 of a voter: topic by id, the replica's state, directory and high watermark in tagged fields."""
    frame = bytes.fromhex(
        "0001 0012 00000007 0001 63 00"  # key, version, correlation id, client id "c", no tags
        "000001f4 00000000 00100000 00"  # waits 500 ms, min 0, max 1 MiB, read uncommitted
        "00000000 ffffffff"  # no session
        "02 000102030405060708090a0b0c0d0e0f"  # one topic
        "02 00000000 00000003 0000000000000005 00000002 0000000000000000 00000000"  # one partition
        "02 00 10 ffffffffffffffffffffffffffffffff 01 08 0000000000000004 00"  # its tags, the topic's tags
        "01 01"  # nothing forgotten, no rack
        "02 00 02 02 78 01 0d 00000002 ffffffffffffffff 00".replace(" ", "")  # cluster "x", replica 2
    )
    got, request = decode_request(frame)
    assert got == RequestHeader(ApiKey.FETCH, 18, 7, "c")
    partition = FetchPartition(0, 3, 5, 2, 0, 0, b"\xff" * 16, 4)
    assert request == FetchRequest(
        wait_ms_max=500,
        bytes_min=0,
        bytes_max=1 << 20,
        topics=[FetchTopic(None, TOPIC_ID, [partition])],
        cluster_id="x",
        replica_id=2,
    )
    assert frame_of(encode_request(ApiKey.FETCH, 18, 7, "c", request)) == frame


@pytest.mark.parametrize("version", [12, 17, 18])
def test_a_replica_says_that_its_disk_is_low_in_a_tag_of_our_own(version: int) -> None:
    partition = FetchPartition(0, 3, 5, 2, 0, 0, b"\xff" * 16, 4)
    topics = [FetchTopic("t" if version == 12 else None, None if version == 12 else TOPIC_ID, [partition])]
    request = FetchRequest(wait_ms_max=500, bytes_min=0, topics=topics, cluster_id="x" * 22, replica_id=2)
    well = frame_of(encode_request(ApiKey.FETCH, version, 7, "c", request))
    request.disk_is_low = True
    low = frame_of(encode_request(ApiKey.FETCH, version, 7, "c", request))
    tag_10_000_without_a_value = b"\x90\x4e\x00"
    assert low.endswith(tag_10_000_without_a_value) and len(low) == len(well) + 3
    assert [decode_request(frame)[1].disk_is_low for frame in (well, low)] == [False, True]


def test_fields_that_a_version_lacks_are_not_sent() -> None:
    request = FetchRequest(
        wait_ms_max=1,
        bytes_min=2,
        topics=[FetchTopic("t", TOPIC_ID, [FetchPartition(0, 3, 5, 2, 7, 9, b"d" * 16, 4)])],
        forgotten=[ForgottenTopic("u", TOPIC_ID, [1, 2])],
        session_id=8,
        session_epoch=9,
        rack_id="r",
        cluster_id="x",
        replica_id=2,
        replica_epoch=6,
    )
    _, oldest = decode_request(frame_of(encode_request(ApiKey.FETCH, 4, 1, None, request)))
    assert oldest == FetchRequest(
        wait_ms_max=1, bytes_min=2, replica_id=2, topics=[FetchTopic("t", None, [FetchPartition(0, -1, 5, -1, -1, 9)])]
    )
    result = FetchPartitionResult(0, ErrorCode.FENCED_LEADER_EPOCH, current_leader=LeaderAndEpoch(1, 2))
    response = FetchResponse([FetchTopicResult("t", None, [result])], node_endpoints=[NodeEndpoint(1, "h", 9)])
    _, old = decode_response(ApiKey.FETCH, 11, frame_of(encode_response(header(ApiKey.FETCH, 11), response)))
    assert old.topics[0].partitions[0].current_leader is None
    assert old.node_endpoints == []


def test_answers_name_leaders_and_where_they_are() -> None:
    endpoints = [NodeEndpoint(1, "host", 9092), NodeEndpoint(2, "::1", 70_000)]
    fetched = FetchPartitionResult(
        3,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        diverging_epoch=EpochEndOffset(4, 99),
        current_leader=LeaderAndEpoch(1, 5),
        snapshot_id=SnapshotId(10, 2),
        records=None,
    )
    response = FetchResponse([FetchTopicResult(None, TOPIC_ID, [fetched])], node_endpoints=endpoints)
    assert decode_response(ApiKey.FETCH, 16, frame_of(encode_response(header(ApiKey.FETCH, 16), response)))[1] == response
    produced = ProducePartitionResult(
        3, ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="no", current_leader=LeaderAndEpoch(1, 5)
    )
    answer = ProduceResponse([ProduceTopicResult("t", None, [produced])], node_endpoints=endpoints)
    assert decode_response(ApiKey.PRODUCE, 10, frame_of(encode_response(header(ApiKey.PRODUCE, 10), answer)))[1] == answer


def test_private_answers() -> None:
    read = ReadOffsetResponse(
        "c", ErrorCode.NONE, [ReadOffsetTopicResult("t", [ReadOffsetPartitionResult(1, ErrorCode.NONE, 7, 2, 3)])]
    )
    frame = frame_of(encode_response(header(ApiKey.READ_OFFSET, 0), read))
    assert frame == bytes.fromhex("00000001 00 0263 0000 02 0274 02 00000001 0000 0000000000000007 00000002 00000003 00 00 00")
    assert decode_response(ApiKey.READ_OFFSET, 0, frame) == (1, read)
    found = FindQuorumResponse(
        ErrorCode.NONE,
        [FindQuorumTopicResult("t", [FindQuorumPartitionResult(1, ErrorCode.NONE, 2, 3, [NodeEndpoint(2, "h", 9)])])],
    )
    frame = frame_of(encode_response(header(ApiKey.FIND_QUORUM, 0), found))
    assert frame == bytes.fromhex(
        "00000001 00 0000 02 0274 02 00000001 0000 00000002 00000003 02 00000002 0268 00000009 00 00 00 00"
    )
    assert decode_response(ApiKey.FIND_QUORUM, 0, frame) == (1, found)


def test_the_number_of_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all topics, and in what a fetch session forgets: an element costs more than its bytes."""
    for module in (fetch, produce, topic_lists):
        monkeypatch.setattr(module, "PARTITIONS_MAX", 10)
    assert common.PARTITIONS_MAX >= 100_000, "a follower asks for all that it has"

    def produced(topics: int, count: int) -> ProduceRequest:
        return ProduceRequest(1, 1, None, [ProduceTopic("t", None, [ProducePartition(n, b"") for n in range(count)])] * topics)

    def fetched(topics: int, count: int) -> FetchRequest:
        asked = [FetchPartition(n, -1, 0, -1, -1, 1) for n in range(count)]
        return FetchRequest(wait_ms_max=0, bytes_min=0, topics=[FetchTopic("t", None, asked)] * topics)

    def asked(topics: int, count: int) -> list[TopicPartitions]:
        return [TopicPartitions("t", list(range(count)))] * topics

    forgetful = FetchRequest(wait_ms_max=0, bytes_min=0, topics=[], forgotten=[ForgottenTopic("t", None, range(11))])
    decode_request(frame_of(encode_request(ApiKey.PRODUCE, 9, 1, None, produced(2, 4))))
    decode_request(frame_of(encode_request(ApiKey.FETCH, 12, 1, None, fetched(2, 4))))
    decode_request(frame_of(encode_request(ApiKey.READ_OFFSET, 0, 1, None, ReadOffsetRequest(None, 0, asked(2, 4)))))
    for key, version, request in (
        (ApiKey.PRODUCE, 9, produced(2, 5)),
        (ApiKey.PRODUCE, 3, produced(11, 0)),
        (ApiKey.FETCH, 12, fetched(2, 5)),
        (ApiKey.FETCH, 4, fetched(11, 0)),
        (ApiKey.FETCH, 12, forgetful),
        (ApiKey.READ_OFFSET, 0, ReadOffsetRequest(None, 0, asked(2, 5))),
        (ApiKey.FIND_QUORUM, 0, FindQuorumRequest(None, asked(11, 0))),
    ):
        with pytest.raises(WireError, match="more than 10 partitions"):
            decode_request(frame_of(encode_request(key, version, 1, None, request)))


def test_record_errors_of_other_servers_are_read_over() -> None:
    """Kafka names the records at fault; the message says it in words."""
    body = "00000001 02 0274 02 00000000 0057 ffffffffffffffff ffffffffffffffff ffffffffffffffff".replace(
        " ", ""
    ) + "02 00000004 04626164 00 04616c6c 00 00 00000000 00".replace(" ", "")
    _, answer = decode_response(ApiKey.PRODUCE, 9, bytes.fromhex("00000001 00" + body[8:]))
    assert answer.topics[0].partitions[0].error_message == "all"
    assert answer.topics[0].partitions[0].error is ErrorCode.INVALID_RECORD


def replica_fetch(**changes: object) -> FetchRequest:
    """A follower's request as most are: one partition, a session, a cluster id as Kafka makes them."""
    partition = FetchPartition(3, 7, 1 << 40, 6, 5, 1 << 20, bytes(range(16, 32)), 1 << 39)
    request = FetchRequest(
        wait_ms_max=500,
        bytes_min=0,
        bytes_max=8 << 20,
        session_id=5,
        session_epoch=77,
        cluster_id="AAAAAAAAAAAAAAAAAAAAAQ",
        replica_id=2,
        replica_epoch=-1,
        topics=[FetchTopic(None, TOPIC_ID, [partition])],
    )
    return replace(request, **changes)


def replica_answer(records: BytesLike, **changes: object) -> FetchResponse:
    result = FetchPartitionResult(3, ErrorCode.NONE, 1 << 40, 9, 5, None, -1, records, None, LeaderAndEpoch(1, 7), None)
    return replace(FetchResponse([FetchTopicResult(None, TOPIC_ID, [result])], 0, ErrorCode.NONE, 5), **changes)


def test_the_fixed_layout_of_a_replicas_fetch_is_the_general_one(monkeypatch: pytest.MonkeyPatch) -> None:
    request = replica_fetch()
    out = bytearray()
    assert fetch._write_one_partition(out, request)
    view = memoryview(out)
    assert fetch._read_one_partition(view, 0) == request
    assert fetch._decode_any(view, 0, 18) == (request, len(out))
    monkeypatch.setattr(fetch, "_write_one_partition", lambda out, request: False)
    general = frame_of(encode_request(ApiKey.FETCH, 18, 1, None, request))
    assert general.endswith(out)


@pytest.mark.parametrize("records", [b"", b"x" * 100, b"y" * 300, b"z" * 5000], ids=len)
def test_the_fixed_layout_of_an_answer_is_the_general_one(records: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    response = replica_answer(records)
    head = header(ApiKey.FETCH, 18)
    quick = frame_of(encode_response(head, response))
    view = memoryview(quick)
    read, general = fetch_response._read_one_partition(view, 5), fetch_response._decode_any(view, 5, 18)
    assert (read, len(quick)) == general
    assert read is not None and bytes(read.topics[0].partitions[0].records or b"") == records
    monkeypatch.setattr(fetch_response, "_write_one_partition", lambda parts, response: False)
    assert frame_of(encode_response(head, response)) == quick


@pytest.mark.parametrize("at", range(fetch._ONE_PARTITION.size))
def test_a_changed_byte_of_a_replicas_fetch_is_read_as_the_general_way_reads_it(at: int) -> None:
    out = bytearray()
    assert fetch._write_one_partition(out, replica_fetch())
    out[at] ^= 0x01
    view = memoryview(out)
    quick = fetch._read_one_partition(view, 0)
    if quick is not None:
        assert fetch._decode_any(view, 0, 18) == (quick, len(out))


@pytest.mark.parametrize(
    "request_",
    [
        replica_fetch(topics=[]),
        replica_fetch(cluster_id=None),
        replica_fetch(cluster_id="short"),
        replica_fetch(rack_id="r"),
        replica_fetch(forgotten=[ForgottenTopic(None, TOPIC_ID, (1,))]),
        replica_fetch(replica_id=-1),
    ],
    ids=["nothing", "no cluster", "another cluster id", "rack", "forgotten", "consumer"],
)
def test_other_shapes_take_the_general_way(request_: FetchRequest) -> None:
    assert not fetch._write_one_partition(bytearray(), request_)
    _, decoded = decode_request(frame_of(encode_request(ApiKey.FETCH, 18, 1, None, request_)))
    assert [list(topic.partitions) for topic in decoded.forgotten] == [list(topic.partitions) for topic in request_.forgotten]
    assert replace(decoded, forgotten=[]) == replace(request_, forgotten=[])


def produce_one(name: str = "flights", records: bytes = b"r" * 300) -> ProduceRequest:
    return ProduceRequest(-1, 1000, None, [ProduceTopic(name, None, [ProducePartition(3, memoryview(records))])])


@pytest.mark.parametrize("version", [9, 10, 12])
@pytest.mark.parametrize("name", ["", "t", "flights", "x" * 126, "x" * 127, "x" * 249], ids=len)
@pytest.mark.parametrize("records", [b"", b"r", b"r" * 300, b"r" * 70_000], ids=len)
def test_the_short_way_of_a_produce_request_is_the_general_one(version: int, name: str, records: bytes) -> None:
    request = produce_one(name, records)
    pieces = parts.Parts()
    produce.encode_request(pieces, request, version)
    frame = memoryview(frame_of(pieces.finish()))
    general = produce._decode_any(frame, 0, version)
    assert general == (request, len(frame))
    assert produce._read_one_partition(frame, 0) == (request if 1 <= len(name) + 1 < 0x80 else None)
    assert produce.decode_request(frame, 0, version) == general


@pytest.mark.parametrize(
    "request_",
    [
        ProduceRequest(-1, 1000, "txn", produce_one().topics),
        ProduceRequest(-1, 1000, None, []),
        ProduceRequest(-1, 1000, None, produce_one().topics * 2),
        ProduceRequest(-1, 1000, None, [ProduceTopic("t", None, produce_one().topics[0].partitions * 2)]),
        ProduceRequest(-1, 1000, None, [ProduceTopic("t", None, [])]),
    ],
    ids=["transactional", "no topic", "two topics", "two partitions", "no partition"],
)
def test_produce_requests_of_other_shapes_take_the_general_way(request_: ProduceRequest) -> None:
    pieces = parts.Parts()
    produce.encode_request(pieces, request_, 9)
    frame = memoryview(frame_of(pieces.finish()))
    assert produce._read_one_partition(frame, 0) is None
    assert produce.decode_request(frame, 0, 9) == (request_, len(frame))


@pytest.mark.parametrize("version", [9, 10, 12])
@pytest.mark.parametrize("name", ["", "flights", "x" * 126, "x" * 127], ids=len)
def test_the_short_way_of_a_produce_answer_is_the_general_one(version: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = ProducePartitionResult(3, ErrorCode.NONE, 1 << 40, -1, 7)
    response = ProduceResponse([ProduceTopicResult(name, None, [result])], 5)
    head = header(ApiKey.PRODUCE, version)
    quick = frame_of(encode_response(head, response))
    monkeypatch.setattr(produce, "_write_one_partition", lambda out, response: False)
    assert frame_of(encode_response(head, response)) == quick
    assert decode_response(ApiKey.PRODUCE, version, quick)[1] == response
    view = memoryview(quick)
    general = produce._decode_any_response(view, 5, version)
    assert general == (response, len(quick))
    assert produce._read_one_result(view, 5) == (response if 1 <= len(name) + 1 < 0x80 else None)


@pytest.mark.parametrize("version", [9, 10, 12])
@pytest.mark.parametrize(
    "result",
    [
        ProducePartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderAndEpoch(2, 5)),
        ProducePartitionResult(0, ErrorCode.INVALID_RECORD, error_message="why"),
        ProducePartitionResult(0, ErrorCode.INVALID_RECORD, error_message=""),
    ],
    ids=["leader", "message", "empty message"],
)
def test_produce_answers_that_say_more_take_the_general_way(version: int, result: ProducePartitionResult) -> None:
    if version < 10 and result.current_leader is not None:
        result = replace(result, current_leader=None, error_message="no such field yet")
    response = ProduceResponse([ProduceTopicResult("t", None, [result])])
    frame = memoryview(frame_of(encode_response(header(ApiKey.PRODUCE, version), response)))
    assert produce._read_one_result(frame, 5) is None
    assert produce.decode_response(frame, 5, version) == (response, len(frame))


def test_produce_answers_about_more_partitions_take_the_general_way() -> None:
    result = ProducePartitionResult(3, ErrorCode.NONE, 7)
    one, two = ProduceTopicResult("t", None, [result]), ProduceTopicResult("u", None, [result, result])
    for topics in ([], [one, one], [two]):
        frame = memoryview(frame_of(encode_response(header(ApiKey.PRODUCE, 9), ProduceResponse(topics))))
        assert produce.decode_response(frame, 5, 9) == (ProduceResponse(topics), len(frame))
