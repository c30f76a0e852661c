"""Whatever is committed below `/raftlake/`, every node lives on and takes or ignores it alike: as it is applied, after a
restart, and from a snapshot.

Committed for real, by the leader of a quorum, whose gate is not asked: an older or a broken node may have let it through.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftlake.errors import RequestRejected
from raftlake.kv.commands import KEY_BYTES_MAX, Delete, Put, Txn, encode
from raftlake.kv.keys import CLUSTER_KEY, NODES_PREFIX, PRODUCERS_NEXT_KEY, RESERVED_PREFIX, TOPICS_PREFIX
from raftlake.kv.strict_json import Refused
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.refused_keys import TOLD_MAX
from raftlake.replica.reserved import decode
from raftlake.replica.transactions.producer_ids import ProducerIds
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster
from reservedkit import commit, wait_for_one_view

TOPIC_IDS = [bytes([number]) * 16 for number in (1, 2)]
UNIQUE = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

suffixes = st.one_of(
    st.sampled_from(
        ["evil", "", "1", "2", "9", "01", "-1", "2147483648", "9" * 900, "a\0b", "../../../pwned", "..", ".", "t", "u", "a/b"]
    ),
    st.sampled_from(["__cluster_metadata", "next", "x" * 249, "x" * 250, "\ud800", "\U0010ffff", "\u202e", "t-0"]),
    st.text(max_size=20),
    st.just("x" * KEY_BYTES_MAX),
)
keys = st.one_of(
    st.sampled_from([CLUSTER_KEY, PRODUCERS_NEXT_KEY, "/raftlake/incarnation", "/raftlake/producers/", "/raftlake/nodes"]),
    st.builds(str.__add__, st.sampled_from([NODES_PREFIX, TOPICS_PREFIX, RESERVED_PREFIX]), suffixes),
)
numbers = st.one_of(st.sampled_from([0, 1, 3, -1, 10**9, 2**31, 2**63, 10**30]), st.booleans(), st.floats(), st.none())
texts = st.one_of(st.sampled_from(["", "h", "::1", "a b", "\ud800", "\0", "x" * 300, *map(id_to_text, TOPIC_IDS)]), st.text())
plain = st.one_of(numbers, texts)
trees = st.recursive(plain, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)))
FIELDS = ["host", "port", "http_host", "http_port", "cluster_id", "id", "partitions", "configs", "voters"]
FIELDS += ["directory", "endpoints", "directoryId", "nodeId", "epoch"]
#: What a node writes, with some fields spoilt.
voters = st.fixed_dictionaries({"id": numbers, "directory": texts, "endpoints": trees})
objects = st.dictionaries(st.sampled_from(FIELDS), st.one_of(trees, st.lists(voters, max_size=3)), max_size=8)
topics = st.fixed_dictionaries(
    {"id": st.sampled_from([id_to_text(topic_id) for topic_id in TOPIC_IDS]), "partitions": st.sampled_from([1, 2, 3])}
)
nodes = st.fixed_dictionaries({"host": st.just("h"), "port": st.just(1)})
values = st.one_of(
    st.one_of(objects, trees, topics, nodes).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=50),
    st.sampled_from(
        [
            b"{}",
            b"\xff\xfe\xfd",
            b"1" * 5000,
            b'{"port": %s}' % (b"1" * 5000),
            b"[" * 200_000,
            b'{"host":' * 100_000,
            b"-5",
            b"99999999999999999999",
            b'{"partitions": 1000000000, "id": "%s"}' % id_to_text(TOPIC_IDS[0]).encode(),
        ]
    ),
)
operations = st.one_of(st.tuples(keys, values), st.tuples(keys, st.none()))
raw_records = st.one_of(st.binary(max_size=60), st.just(b"\x01\x00\x00\x00\x01\x01\x00\x02\xff\xfe\x00\x00\x00\x00"))


def command(key: str, value: bytes | None) -> bytes | None:
    """The record of a change; None where not even a transaction can hold it."""
    try:
        return encode(Txn((), (Delete(key) if value is None else Put(key, value),)))
    except RequestRejected:
        return None


@pytest.fixture(scope="module")
def running() -> Cluster:
    # The keys may end a topic and begin another one with its id, which honest nodes never do. The invariants know a log by that
    # id, and would miss the records of the first one.
    cluster = Cluster(is_watched=False)
    cluster.run(2_000, until=lambda: all(node.cluster_id is not None for node in cluster.nodes.values()))
    return cluster


@UNIQUE
@given(changes=st.lists(operations, min_size=1, max_size=30), raw=st.lists(raw_records, max_size=3))
@example(changes=[("a", None)], raw=[b""])
def test_every_node_applies_anything_and_takes_or_ignores_it_alike(
    running: Cluster, changes: list[tuple[str, bytes | None]], raw: list[bytes]
) -> None:
    commands = [record for key, value in changes if (record := command(key, value)) is not None]
    commit(running, [*commands, *raw, encode(Txn((), ()))])
    wait_for_one_view(running)
    for node in running.nodes.values():
        given_out: list[int | None] = []
        ProducerIds(node.kv).take(given_out.append)
        running.run(15_000, until=lambda given_out=given_out: bool(given_out))
        assert given_out[0] is not None


@settings(UNIQUE, max_examples=12)
@given(changes=st.lists(operations, min_size=1, max_size=30))
def test_a_restart_makes_the_same_of_the_log(changes: list[tuple[str, bytes | None]]) -> None:
    cluster = Cluster()
    commit(cluster, [*(record for key, value in changes if (record := command(key, value)) is not None), encode(Txn((), ()))])
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.leader()
    wait_for_one_view(cluster)
    cluster.create_topic("afterwards")


@settings(UNIQUE, max_examples=12)
@given(changes=st.lists(operations, min_size=1, max_size=30))
def test_a_snapshot_makes_the_same_of_the_keys(changes: list[tuple[str, bytes | None]]) -> None:
    cluster = Cluster(snapshot_bytes_between=2_000, segment_bytes=4_096, is_watched=False)
    lagging = cluster.followers()[0].config.node_id
    cluster.stop(lagging)
    commit(cluster, [*(record for key, value in changes if (record := command(key, value)) is not None), encode(Txn((), ()))])
    log = cluster.leader().partitions[METADATA_GROUP].log
    for _ in range(100):
        if log.start_offset > 0:
            break
        commit(cluster, [encode(Txn((), (Put("filler", bytes(3_000)),)))])
        cluster.run(300)
    assert log.start_offset > 0, "the follower has to be given a snapshot"
    node = cluster.start(lagging)
    cluster.run(10_000, until=node.is_ready)
    wait_for_one_view(cluster)
    # And from its own snapshot at the next start.
    cluster.stop(lagging)
    cluster.run(10_000, until=cluster.start(lagging).is_ready)
    wait_for_one_view(cluster)
    cluster.create_topic("afterwards")


@settings(max_examples=400, deadline=None)
@given(key=keys, value=values, version=st.integers(1, 2**62))
def test_no_decoder_raises(key: str, value: bytes, version: int) -> None:
    found = decode(key, value, version, 10_000)
    assert isinstance(found, Refused) or found == decode(key, value, version, 10_000)


def test_the_keys_that_are_remembered_as_told_have_an_end() -> None:
    cluster = Cluster()
    evil = [command(f"{NODES_PREFIX}evil{number}", b"{}") or b"" for number in range(TOLD_MAX + 50)]
    commit(cluster, evil)
    for node in cluster.nodes.values():
        assert node.kv.refused_keys.count == len(evil)
        assert len(node.kv.refused_keys._told) == TOLD_MAX


def test_an_entry_that_means_nothing_is_counted_by_each_node_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    evil = command(f"{NODES_PREFIX}evil", b"{}")
    assert evil is not None
    commit(cluster, [evil, evil])
    assert [node.kv.refused_keys.count for node in cluster.nodes.values()] == [2, 2, 2]
    told = [record.getMessage() for record in caplog.records if "/raftlake/nodes/evil" in record.getMessage()]
    assert len(told) == len(cluster.nodes)
    cluster.stop(NodeId(1))
    node = cluster.start(NodeId(1))
    cluster.run(5_000, until=node.is_ready)
    assert node.kv.refused_keys.count == 2
