"""The meaning of reserved keys: what nodes write is read back, and anything else is refused without an exception."""

from __future__ import annotations

import json

import pytest

from raftlake.kv.keys import CLUSTER_KEY, INCARNATION_KEY, NODES_PREFIX, PRODUCERS_NEXT_KEY, TOPICS_PREFIX
from raftlake.kv.machine import Entry
from raftlake.kv.strict_json import BRACKETS_MAX, VALUE_BYTES_MAX, Refused
from raftlake.raft.types import DirectoryId, NodeId, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_TOPIC_ID, Endpoint, NodeConfig
from raftlake.replica.reserved import (
    PRODUCER_IDS_BLOCK,
    VOTERS_MAX,
    NodeAddresses,
    Topic,
    decode,
    decode_node,
    decode_producers_next,
    decode_topic,
    first_free_producer_id,
)
from raftlake.replica.voters.membership import addresses_value, cluster_value
from raftlake.wire.ids import id_to_text

TOPIC_ID = bytes(range(1, 17))
MANY = 10_000


def voters(count: int) -> VoterSet:
    found = VoterSet({})
    for number in range(1, count + 1):
        key = ReplicaKey(NodeId(number), DirectoryId(number.to_bytes(16, "big")))
        found = found.with_voter(key, (VoterEndpoint("CONTROLLER", f"h{number}", 9093),))
    return found


def topic(**fields: object) -> bytes:
    return json.dumps({"id": id_to_text(TOPIC_ID), "partitions": 1, **fields}).encode()


@pytest.mark.parametrize(
    "written",
    [
        Topic("t", TOPIC_ID, 1),
        Topic("x" * 249, TOPIC_ID, MANY, {"a": "b"}),
        Topic("T.-_9", TOPIC_ID, 2, {}, voters(3)),
        Topic("wide", TOPIC_ID, 2, {}, voters(VOTERS_MAX)),
    ],
)
def test_a_topic_is_read_back_as_it_was_written(written: Topic) -> None:
    assert decode_topic(written.name, written.encode(), MANY) == written


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../../pwned", "a/b", "a\0b", "x" * 250, "ü", "a b", "a\n", "__cluster_metadata", "\\", "٣"]
)
def test_a_topic_with_a_name_that_kafka_refuses_is_none(name: str) -> None:
    assert isinstance(decode_topic(name, topic(), MANY), Refused)


@pytest.mark.parametrize(
    "partitions", [0, -1, MANY + 1, 10**9, 10**30, True, 1.0, "1", None, [1], {}], ids=lambda found: str(found)[:10]
)
def test_a_topic_has_from_one_to_the_limit_of_partitions(partitions: object) -> None:
    assert isinstance(decode_topic("t", topic(partitions=partitions), MANY), Refused)
    assert isinstance(decode_topic("t", topic(partitions=MANY), MANY), Topic)


@pytest.mark.parametrize(
    "topic_id", [bytes(16), METADATA_TOPIC_ID, bytes(8) + b"12345678"], ids=["zero", "metadata", "reserved"]
)
def test_the_ids_that_kafka_keeps_for_itself_are_no_topics(topic_id: bytes) -> None:
    assert isinstance(decode_topic("t", topic(id=id_to_text(topic_id)), MANY), Refused)


HOSTILE_VALUES = [
    b"",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b"{}",
    b"NaN",
    b'{"host": NaN}',
    b"1" * 5000,
    b'{"id": %s}' % (b"1" * 5000),
    b"[" * 100_000,
    b"{" * 100_000,
    b'{"a":' * 50_000,
    b'{"host": {"a": {"b": []}}, "port": []}',
    b'{"host": "\\ud800", "port": 1}',
    b'{"host": "h\\u0000", "port": 1}',
    b'{"host": "h\\r\\nLocation: x", "port": 1}',
    b'{"host": "", "port": 1}',
    b'{"host": "h", "port": true}',
    b'{"host": "h", "port": 1.5}',
    b'{"host": "h", "port": 65536}',
    b'{"host": "h", "port": -1}',
    b'{"host": "h", "port": 1, "http_port": 1}',
    b'{"host": "%s", "port": 1}' % (b"h" * 256),
    b'{"cluster_id": "x\\nnode.id=7"}',
    b'{"cluster_id": ["x"]}',
    b'{"id": 1, "partitions": 1}',
    b'{"directoryId": 1}',
]


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=lambda value: repr(value[:30]))
@pytest.mark.parametrize(
    "key", [f"{NODES_PREFIX}1", CLUSTER_KEY, PRODUCERS_NEXT_KEY, INCARNATION_KEY, f"{TOPICS_PREFIX}t", "/raftlake/unknown"]
)
def test_a_value_that_no_node_writes_is_refused_with_a_short_reason(key: str, value: bytes) -> None:
    found = decode(key, value, 10, MANY)
    assert isinstance(found, Refused)
    assert 0 < len(found.reason) < 400


@pytest.mark.parametrize(
    "name", ["evil", "", "-1", "+1", "01", "1_0", "1.0", "٣", "2147483648", "9" * 5000, "1/2", " 1", "1 ", "1\0"]
)
def test_a_node_has_a_number(name: str) -> None:
    assert isinstance(decode_node(NODES_PREFIX + name, b'{"host": "h", "port": 1}'), Refused)


def test_the_addresses_of_a_node_are_read_back() -> None:
    listener, http = Endpoint("::1", 9092), Endpoint("h.example", 8080)
    for front in (None, http):
        config = NodeConfig(node_id=NodeId(7), voters={}, listener=listener, http_listener=front)
        assert decode_node(f"{NODES_PREFIX}7", addresses_value(config)) == NodeAddresses(NodeId(7), listener, front, 2)


@pytest.mark.parametrize(("told", "known"), [("", 0), (', "transaction_version": 1', 1), (', "transaction_version": 7', 7)])
def test_a_node_of_an_older_release_tells_no_transaction_version(told: str, known: int) -> None:
    found = decode_node(f"{NODES_PREFIX}7", b'{"host": "h", "port": 1' + told.encode() + b"}")
    assert found == NodeAddresses(NodeId(7), Endpoint("h", 1), None, known)
    assert isinstance(decode_node(f"{NODES_PREFIX}7", b'{"host": "h", "port": 1, "transaction_version": -1}'), Refused)


def test_fields_of_later_versions_do_no_harm() -> None:
    assert isinstance(decode_topic("t", topic(tier={"uri": ["s3"]}), MANY), Topic)
    assert isinstance(decode_node(f"{NODES_PREFIX}1", b'{"host": "h", "port": 1, "rack": null}'), NodeAddresses)


@pytest.mark.parametrize("written", [id_to_text(TOPIC_ID), "prod", "a" * 64])
def test_the_id_of_a_cluster_is_read_back(written: str) -> None:
    assert decode(CLUSTER_KEY, cluster_value(written), 1, MANY) == written


@pytest.mark.parametrize("written", ["", "a" * 65, "a:b", "a\nnode.id=9", "a\n"])
def test_a_cluster_has_a_name_that_a_directory_can_be_formatted_for(written: str) -> None:
    assert isinstance(decode(CLUSTER_KEY, cluster_value(written), 1, MANY), Refused)


def test_limits_of_this_module_are_reached_before_those_of_the_interpreter() -> None:
    nested = b'{"id": "x", "a": ' + b"[" * BRACKETS_MAX + b"]" * BRACKETS_MAX + b"}"
    assert "brackets" in str(decode_topic("t", nested, MANY))
    large = topic(configs={"a": "x" * VALUE_BYTES_MAX})
    assert "bytes" in str(decode_topic("t", large, MANY))
    crowd = voters(VOTERS_MAX + 1)
    assert isinstance(decode_topic("t", Topic("t", TOPIC_ID, 1, {}, crowd).encode(), MANY), Refused)


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1.0", b"01", b" 1", b"\xd9\xa3", b"9" * 5000, b"1_000", b"11000"])
def test_spoilt_producer_ids_go_on_above_all_that_can_have_been_given_out(value: bytes) -> None:
    assert isinstance(decode_producers_next(value, 10), Refused)
    assert first_free_producer_id(Entry(value, 10)) == 10 * PRODUCER_IDS_BLOCK


def test_producer_ids_go_on_where_the_key_says() -> None:
    assert first_free_producer_id(None) == 0
    assert first_free_producer_id(Entry(b"0", 10)) == 0
    assert first_free_producer_id(Entry(b"%d" % (10 * PRODUCER_IDS_BLOCK), 10)) == 10 * PRODUCER_IDS_BLOCK


UNFIT = [*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xDBFF, 0xDC00, 0xDFFF]
UNFIT += [0xFDD0, 0xFDEF, 0xFFFE, 0xFFFF, 0x1FFFE, 0x1FFFF, 0x10FFFE, 0x10FFFF]
#: Assigned in Unicode 15 to 17, never, and for private use: Pythons differ, or will.
FIT = [0x20, 0x7E, 0xA0, 0x2027, 0x202F, 0x2065, 0x206A, 0xD7FF, 0xE000, 0xFDCF, 0xFDF0, 0xFFFD, 0x10000, 0x0378, 0x1E4D0]
FIT += [0x2FFC, 0x1C89, 0x16D40, 0x088F, 0x10940, 0x1FFFD, 0x10FFFD]


@pytest.mark.parametrize("points", [UNFIT, FIT], ids=["unfit", "fit"])
def test_what_a_text_may_hold_is_no_question_of_the_unicode_version(points: list[int]) -> None:
    wrong = []
    for point in points:
        found = decode_topic("t", topic(configs={"a" + chr(point): "b"}), MANY)
        value = decode_topic("t", topic(configs={"a": chr(point) + "b"}), MANY)
        assert isinstance(found, Refused) is isinstance(value, Refused)
        if isinstance(found, Refused) is (points is FIT):
            wrong.append(f"{point:04x}")
    assert wrong == []
