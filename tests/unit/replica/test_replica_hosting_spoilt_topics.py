"""Topics whose keys are spoilt: the data stays on every node, whenever that came to know of them; an operator has a way out."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kio.static.primitive import i32Timedelta

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete, Put, Txn, encode, put
from raftlake.kv.keys import topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.reserved import Topic
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster, batch
from reservedkit import commit, trim, wait_for_one_view

OTHER_ID = bytes(range(1, 17))
GARBAGE = [
    b"",
    b"\xff\xfe",
    b"{}",
    b'{"id": "%s", "partitions": 1000000000}' % id_to_text(OTHER_ID).encode(),
    Topic("kept", OTHER_ID, 3).encode(),
]
ids = pytest.mark.parametrize("spoilt", GARBAGE, ids=lambda value: repr(value[:20]))


def filled(cluster: Cluster, name: str = "kept", partitions: int = 3) -> list[GroupId]:
    """A topic with a record in each partition."""
    groups = cluster.create_topic(name, partitions)
    for group in groups:
        assert cluster.produce(group, batch(b"precious")).error is ErrorCode.NONE
    return groups


def on_disk(cluster: Cluster, node_id: NodeId) -> set[GroupId]:
    return set(cluster.disks[node_id].groups()) - {METADATA_GROUP}


def require_data(cluster: Cluster, groups: list[GroupId]) -> None:
    """Every node hosts the groups, and has their records."""

    def has_all(node: ReplicaNode) -> bool:
        hosted = [node.partitions[group] for group in groups if group in node.partitions]
        return len(hosted) == len(groups) and all(b"precious" in _bytes_of(partition) for partition in hosted)

    cluster.run(15_000, until=lambda: all(has_all(node) for node in cluster.nodes.values()))
    for node_id in cluster.nodes:
        assert on_disk(cluster, node_id) >= set(groups)


def _bytes_of(partition: Any) -> bytes:
    return bytes(partition.log.read(partition.log.start_offset, partition.log.end_offset, 1 << 20))


def restart(cluster: Cluster, node_id: NodeId) -> None:
    cluster.stop(node_id)
    cluster.run(15_000, until=cluster.start(node_id).is_ready)


def roll(cluster: Cluster) -> None:
    for node_id in list(cluster.nodes):
        restart(cluster, node_id)


def delete_at(cluster: Cluster, node: ReplicaNode, name: str) -> Any:
    schema = importlib.import_module("kio.schema.delete_topics.v5.request")
    request = schema.DeleteTopicsRequest(topic_names=(name,), timeout=i32Timedelta.parse(datetime.timedelta(seconds=1)))
    return cluster.ask(node, ApiKey.DELETE_TOPICS, request, version=5).responses[0]


def create_at(cluster: Cluster, node: ReplicaNode, name: str, *, validate_only: bool = False) -> Any:
    schema = importlib.import_module("kio.schema.create_topics.v7.request")
    topic = schema.CreatableTopic(name=name, num_partitions=1, replication_factor=-1, assignments=(), configs=())
    request = schema.CreateTopicsRequest(topics=(topic,), validate_only=validate_only)
    return cluster.ask(node, ApiKey.CREATE_TOPICS, request, version=7).topics[0]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(snapshot_bytes_between=2_000, segment_bytes=4_096)


@contextmanager
def earlier_release() -> Iterator[None]:
    """Meanwhile nodes take any value, as they did before there were rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReservedRules, "take", lambda rules, key, *_: rules.drop(key))
        yield


# --- what is put over a topic ----------------------------------------------------------------------------------------


@ids
def test_a_spoilt_key_deletes_nothing_and_a_restart_and_a_snapshot_change_that_in_nothing(
    cluster: Cluster, spoilt: bytes
) -> None:
    groups = filled(cluster)
    before = cluster.leader().names.topic("kept")
    away = cluster.followers()[0].config.node_id
    commit(cluster, [encode(put(topic_key("kept"), spoilt))])
    require_data(cluster, groups)
    roll(cluster)
    require_data(cluster, groups)
    cluster.stop(away)
    commit(cluster, [encode(put(topic_key("kept"), spoilt))])
    trim(cluster)
    cluster.run(15_000, until=cluster.start(away).is_ready)
    require_data(cluster, groups)
    roll(cluster)
    require_data(cluster, groups)
    wait_for_one_view(cluster)
    assert before is not None and all(node.names.topic("kept") == before for node in cluster.nodes.values())
    assert cluster.produce(groups[-1], batch(b"more")).error is ErrorCode.NONE


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_node_that_joins_later_learns_the_topic_that_it_never_saw(cluster: Cluster, is_trimmed: bool) -> None:
    groups = filled(cluster)
    away = cluster.followers()[0].config.node_id
    cluster.stop(away)
    commit(cluster, [encode(put(topic_key("kept"), b"{}"))])
    if is_trimmed:
        trim(cluster)
    cluster.wipe(away)
    cluster.run(15_000, until=cluster.start(away).is_ready)
    require_data(cluster, groups)
    wait_for_one_view(cluster)


def test_one_spoilt_operation_leaves_the_others_of_its_transaction_in_effect(cluster: Cluster) -> None:
    groups = filled(cluster)
    ops = (Put("mine", b"1"), Put(topic_key("kept"), b"{}"), Put(topic_key("new"), Topic("new", OTHER_ID, 1).encode()))
    (outcome,) = commit(cluster, [encode(Txn((), ops))])
    assert outcome.result.succeeded
    assert [key for key, _ in outcome.result.ignored] == [topic_key("kept")], "the proposer hears that it took no effect"
    require_data(cluster, groups)
    for node in cluster.nodes.values():
        entries = [node.kv.machine.get(key) for key in ("mine", topic_key("kept"), topic_key("new"))]
        assert {entry and entry.version for entry in entries} == {outcome.result.offset}
        assert node.names.topic("new") == Topic("new", OTHER_ID, 1)


def test_what_takes_no_effect_is_counted_by_each_node_and_told_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    filled(cluster)
    commit(cluster, [encode(put(topic_key("kept"), value)) for value in (b"{}", b"\xff")])
    commit(cluster, [encode(put(topic_key("twin"), Topic("twin", _id_of(cluster, "kept"), 1).encode()))])
    assert [node.kv.refused_keys.count for node in cluster.nodes.values()] == [3, 3, 3]
    told = [record.getMessage() for record in caplog.records if topic_key("kept") in record.getMessage()]
    assert len(told) == 3 and all("takes no effect" in line for line in told)


def _id_of(cluster: Cluster, name: str) -> bytes:
    topic = cluster.leader().names.topic(name)
    assert topic is not None
    return topic.topic_id


def test_a_committed_deletion_is_one_and_stays(cluster: Cluster) -> None:
    groups = filled(cluster)
    commit(cluster, [encode(put(topic_key("kept"), b"{}")), encode(Txn((), (Delete(topic_key("kept")),)))])
    for _ in range(2):
        cluster.run(5_000, until=lambda: not any(on_disk(cluster, node_id) for node_id in cluster.nodes))
        assert all(node.names.all() == [] for node in cluster.nodes.values())
        # What is put there afterwards begins anew, and only if it is good.
        commit(cluster, [encode(put(topic_key("kept"), b"{}"))])
        trim(cluster)
        roll(cluster)
    assert not any(group in node.partitions for node in cluster.nodes.values() for group in groups)


def test_spoiling_the_older_of_two_names_with_one_id_deletes_nothing(cluster: Cluster) -> None:
    groups = filled(cluster)
    commit(cluster, [encode(put(topic_key("a"), Topic("a", _id_of(cluster, "kept"), 3).encode()))])
    commit(cluster, [encode(put(topic_key("kept"), b"{}"))])
    require_data(cluster, groups)
    roll(cluster)
    require_data(cluster, groups)
    assert all([topic.name for topic in node.names.all()] == ["kept"] for node in cluster.nodes.values())


# --- the way out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["never", "", "a/b", "..", "__cluster_metadata", "x" * 300])
def test_a_key_that_never_was_a_topic_can_be_deleted_at_any_node(cluster: Cluster, name: str) -> None:
    leader = cluster.leader()
    for node in [leader, *cluster.followers()]:
        commit(cluster, [encode(put(topic_key(name), b"{}"))])
        assert int(delete_at(cluster, node, name).error_code) == ErrorCode.NONE
        cluster.run(1_000, until=lambda: all(each.kv.machine.get(topic_key(name)) is None for each in cluster.nodes.values()))
    assert int(delete_at(cluster, leader, name).error_code) != ErrorCode.NONE
    assert METADATA_GROUP in leader.partitions


@pytest.mark.parametrize("spoilt", [b"", b"{}", b"\xff" * 100_000])
def test_creating_over_a_spoilt_key_says_what_to_do_and_that_helps(cluster: Cluster, spoilt: bytes) -> None:
    node = cluster.followers()[0]
    commit(cluster, [encode(put(topic_key("never"), spoilt))])
    for validate_only in (True, False):
        refused = create_at(cluster, node, "never", validate_only=validate_only)
        assert int(refused.error_code) == ErrorCode.POLICY_VIOLATION
        assert "/raftlake/topics/never" in refused.error_message
        assert "`raftlake topics delete never`" in refused.error_message
    assert int(delete_at(cluster, node, "never").error_code) == ErrorCode.NONE
    assert int(create_at(cluster, node, "never").error_code) == ErrorCode.NONE
    assert int(create_at(cluster, node, "never").error_code) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_whose_put_took_no_effect_was_not_created(cluster: Cluster) -> None:
    groups, leader = filled(cluster), cluster.leader()
    taken = _id_of(cluster, "kept")
    leader.topics._new_id = lambda: taken  # type: ignore[method-assign]
    refused = create_at(cluster, leader, "twin")
    assert int(refused.error_code) == ErrorCode.POLICY_VIOLATION
    assert "the id is that of the topic 'kept'" in refused.error_message
    require_data(cluster, groups)
    assert int(delete_at(cluster, leader, "twin").error_code) == ErrorCode.NONE
    require_data(cluster, groups)


# --- what earlier releases have left ---------------------------------------------------------------------------------


def test_data_under_a_key_that_was_spoilt_before_stays_until_the_key_is_deleted(cluster: Cluster) -> None:
    groups = filled(cluster)
    with earlier_release():
        commit(cluster, [encode(put(topic_key("kept"), b"{}"))])
        trim(cluster)
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)
    for _ in range(2):
        # From the snapshot nobody can tell what stood there.
        for node_id in cluster.voters:
            cluster.start(node_id)
        cluster.leader()
        cluster.run(15_000, until=lambda: all(node.topics.is_spoilt("kept") for node in cluster.nodes.values()))
        for node_id in cluster.nodes:
            assert on_disk(cluster, node_id) == set(groups)
        wait_for_one_view(cluster)
        assert all(set(node.partitions) == {METADATA_GROUP} for node in cluster.nodes.values()), "no node hosts a part of it"
        for node_id in list(cluster.nodes):
            cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.leader()
    node = cluster.followers()[0]
    cluster.run(15_000, until=node.is_ready)
    assert "topics delete kept" in create_at(cluster, node, "kept").error_message
    assert int(delete_at(cluster, node, "kept").error_code) == ErrorCode.NONE
    cluster.run(5_000, until=lambda: not any(on_disk(cluster, node_id) for node_id in cluster.nodes))
    require_data(cluster, filled(cluster))


@pytest.mark.parametrize("is_twin", [False, True])
@pytest.mark.parametrize("ends_with", [None, Topic("kept", bytes(range(2, 18)), 1).encode()])
def test_a_snapshot_with_a_spoilt_key_deletes_nothing_of_a_node_that_runs(
    cluster: Cluster, ends_with: bytes | None, is_twin: bool
) -> None:
    groups = filled(cluster)
    away = cluster.followers()[0]
    away_id = away.config.node_id
    cluster.cut(away_id)
    with earlier_release():
        commands = [encode(put(topic_key("kept"), b"{}"))]
        if is_twin:
            commands.append(encode(put(topic_key("twin"), Topic("twin", groups[0].topic_id, 1).encode())))
        commit(cluster, commands, without=[away_id])
        trim(cluster, without=[away_id])
    cluster.heal()
    cluster.run(20_000, until=lambda: away.topics.is_spoilt("kept") and away.is_ready())
    assert on_disk(cluster, away_id) >= set(groups)
    assert [topic.name for topic in away.names.all()] == ["twin"] * is_twin, "no node knows what stood there"
    assert not any(group in away.partitions for group in groups)
    roll(cluster)
    assert on_disk(cluster, away_id) >= set(groups)
    # A good value over it, or the key's end, is the end of what was there.
    commit(cluster, [encode(Txn((), (Delete(topic_key("kept")) if ends_with is None else Put(topic_key("kept"), ends_with),)))])
    cluster.run(10_000, until=lambda: not on_disk(cluster, away_id).intersection(groups))
    wait_for_one_view(cluster)
