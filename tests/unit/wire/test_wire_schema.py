"""The codecs compiled from kio's dataclasses: what may be null, what is bounded, what a message of the wrong shape gets."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, ClassVar

import pytest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.update_raft_voter.v0 import response as update_raft_voter

from raftlake.errors import ErrorCode, InvariantViolation, WireError
from raftlake.wire.durations import milliseconds
from raftlake.wire.schema import decode, encode, entity_codec


def roundtrip(message: Any) -> bytes:
    out = bytearray()
    encode(out, message)
    assert decode(type(message), memoryview(out), 0) == (message, len(out))
    return bytes(out)


def test_null_and_empty_are_told_apart() -> None:
    by_id = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=None),), timeout=milliseconds(5))
    by_name = DeleteTopicsRequest(topics=(DeleteTopicState(name="", topic_id=None),), timeout=milliseconds(5))
    assert roundtrip(by_id) == b"\x02" + b"\x00" + bytes(16) + b"\x00" + b"\x00\x00\x00\x05" + b"\x00"
    assert roundtrip(by_name)[1] == 1


def test_our_error_codes_go_out_as_kios_do() -> None:
    ours, theirs = bytearray(), bytearray()
    for out, code in ((ours, ErrorCode.FENCED_LEADER_EPOCH), (theirs, KioErrorCode.fenced_leader_epoch)):
        encode(out, DescribeQuorumResponse(error_code=code, error_message=None, topics=(), nodes=()))  # type: ignore[arg-type]
    assert ours == theirs


def test_tagged_fields_at_their_defaults_are_left_out() -> None:
    plain = ApiVersionsResponse(error_code=KioErrorCode.none, api_keys=(), throttle_time=milliseconds(0))
    assert roundtrip(plain)[-1] == 0
    assert roundtrip(dataclasses.replace(plain, zk_migration_ready=True))[-4:] == b"\x01\x03\x01\x01"


def test_a_tagged_field_must_fill_its_length() -> None:
    with pytest.raises(WireError, match="tagged field 3 has 2 bytes"):
        decode(ApiVersionsResponse, memoryview(b"\x00\x00\x01\x00\x00\x00\x00\x01\x03\x02\x01\x01"), 0)


@pytest.mark.parametrize("body", ["00", "ffffffff07", "ffffffff0f", "05"])
def test_array_lengths_are_checked_before_anything_is_allocated(body: str) -> None:
    """kio's own reader allocates what the second and the third of these claim, and the process ends."""
    with pytest.raises(WireError):
        decode(CreateTopicsRequest, memoryview(bytes.fromhex(body) + bytes(20)), 0)


def test_the_fewest_bytes_of_a_message_are_known() -> None:
    """The state: name, id, tags. The request: topics, timeout, validate only, tags."""
    assert entity_codec(DeleteTopicState).size_min == 1 + 16 + 1
    assert entity_codec(CreateTopicsRequest).size_min == 1 + 4 + 1 + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreign:
    __flexible__: ClassVar[bool] = True
    content: bytes = dataclasses.field(metadata={"kafka_type": "float64"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagged:
    __flexible__: ClassVar[bool] = True
    number: int = dataclasses.field(metadata={"kafka_type": "int32", "tag": 0})


@pytest.mark.parametrize("entity", [Foreign, Tagged])
def test_a_schema_that_is_not_understood_is_not_guessed(entity: Any) -> None:
    # As in kio's modules, the types of fields are types and not text.
    for field, type_ in zip(dataclasses.fields(entity), (bytes,), strict=True):
        field.type = type_
    with pytest.raises(InvariantViolation):
        entity_codec(entity)


@pytest.mark.parametrize("version", [5, 6])
def test_byte_strings(version: int) -> None:
    """A member's subscription within JoinGroup; 6 is the first flexible version."""
    module = importlib.import_module(f"kio.schema.join_group.v{version}.request")
    protocol = module.JoinGroupRequestProtocol(name="range", metadata=b"\x00\xff\x01")
    out = bytearray()
    encode(out, protocol)
    assert out == (b"\x06range\x04\x00\xff\x01\x00" if version == 6 else b"\x00\x05range\x00\x00\x00\x03\x00\xff\x01")
    assert decode(type(protocol), memoryview(out), 0) == (protocol, len(out))
    null = b"\x06range\x00\x00" if version == 6 else b"\x00\x05range\xff\xff\xff\xff"
    with pytest.raises(WireError, match="may not be null"):
        decode(type(protocol), memoryview(null), 0)
    with pytest.raises(WireError, match="byte string"):
        decode(type(protocol), memoryview(bytes(out[:-2])), 0)


def test_a_tagged_structure_that_is_not_sent_is_kafkas_default() -> None:
    """kio names no default for UpdateRaftVoterResponse.CurrentLeader; Kafka leaves it out when no leader is known."""
    unknown = update_raft_voter.CurrentLeader(host="", port=0)  # type: ignore[arg-type]
    answer = update_raft_voter.UpdateRaftVoterResponse(
        throttle_time=milliseconds(0), error_code=KioErrorCode.none, current_leader=unknown
    )
    out = bytearray()
    encode(out, answer)
    assert out == bytes(6) + b"\x00", "throttle time, error, no tagged field"
    assert decode(type(answer), memoryview(out), 0) == (answer, len(out))
    assert (unknown.leader_id, unknown.leader_epoch) == (-1, -1)
