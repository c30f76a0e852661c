"""A quorum of somebody else's log: one group under a given name, no keys, and nothing in it that Kafka's Raft cannot read."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import pytest

from asidekit import hold, result, send
from raftlake.errors import ErrorCode, StorageError
from raftlake.kv.commands import Put, Txn
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.opaque import no_keys, require_raft_records
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, validate
from replica_cluster import Cluster, batch

FOREIGN = GroupId("__raft_performance_test", 0, bytes(15) + b"\x02")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(quorum_group=FOREIGN, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")


def test_the_named_group_is_the_only_one_and_elects(cluster: Cluster) -> None:
    leader = cluster.leader(FOREIGN)
    assert all(list(node.partitions) == [FOREIGN] for node in cluster.nodes.values())
    assert leader.metadata_leader_id == leader.config.node_id
    described = leader.describe()
    assert described is not None and described.leader_id == leader.config.node_id
    cluster.run(1000)
    assert all(node.is_ready() for node in cluster.nodes.values())
    # The LeaderChange is all that is in the log: no addresses, no cluster id.
    assert leader.partitions[FOREIGN].core.log_end == 1


def test_clients_write_to_it_and_read_it(cluster: Cluster) -> None:
    result = cluster.produce(FOREIGN, batch(b"one", b"two"))
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)
    cluster.run(1000)
    for node in cluster.nodes.values():
        assert cluster.fetch(node, FOREIGN, 0).high_watermark == 3


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (Record(timestamp_ms=1, key=b"k", value=b"v"), "a key"),
        (Record(timestamp_ms=1, value=b"v", headers=(("h", b"x"),)), "headers"),
        (Record(timestamp_ms=1, value=b""), "no value"),
        (Record(timestamp_ms=1), "no value"),
        (Record(timestamp_ms=2, value=b"v"), "a time of its own"),
    ],
)
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_record_that_would_stop_kafkas_raft_is_refused(cluster: Cluster, record: Record, word: str, compression: str) -> None:
    fine = Record(timestamp_ms=1, value=b"v")
    result = cluster.produce(FOREIGN, build_batch([fine, record], timestamp_ms=1, compression=compression))
    assert result.error is ErrorCode.INVALID_RECORD
    assert word in (result.error_message or "") and "record 1 " in (result.error_message or "")
    assert cluster.leader(FOREIGN).partitions[FOREIGN].core.log_end == 1


def test_records_are_decoded_aside(cluster: Cluster) -> None:
    """A batch of 150,000 of the smallest records was decoded within one turn."""
    held = hold(cluster, FOREIGN)
    answers = send(cluster, FOREIGN, batch(b"one"))
    cluster.run(1000)
    assert not answers and len(held.jobs) == 1
    held.finish(1)
    cluster.run(1000)
    assert result(answers).base_offset == 1


def test_what_kafkas_raft_writes_itself_is_accepted() -> None:
    batches = batch(b"a", b"b") + build_batch([Record(value=b"c")], timestamp_ms=9, compression="zstd")
    require_raft_records(batches, validate(batches))


def test_there_is_no_key_value_space(cluster: Cluster) -> None:
    leader = cluster.leader(FOREIGN)
    outcomes: list[ProposeOutcome] = []
    for node in cluster.nodes.values():
        node.kv.propose_anywhere(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
        node.kv.propose(Txn(compares=(), ops=(Put("k", b"v"),)), outcomes.append)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.REFUSED] * 6

    results: list[Any] = []
    leader.topics.create("another", 1, {}, lambda *result: results.append(result))
    assert results == [(None, ErrorCode.POLICY_VIOLATION, no_keys(leader.config))]
    leader.topics.delete(leader.names.all()[0], lambda *result: results.append(result))
    assert results[1][1] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_producer_that_wants_an_id_is_told_for_good(cluster: Cluster) -> None:
    schema: Any = importlib.import_module("kio.schema.init_producer_id.v4.request")
    request = schema.InitProducerIdRequest(
        transactional_id=None, transaction_timeout=datetime.timedelta(minutes=1), producer_id=-1, producer_epoch=-1
    )
    answer = cluster.ask(cluster.leader(FOREIGN), ApiKey.INIT_PRODUCER_ID, request, version=4)
    assert int(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION


def test_kafkas_quorum_tool_asks_for_the_metadata_log_and_is_told_of_this_one(cluster: Cluster) -> None:
    schema: Any = importlib.import_module("kio.schema.describe_quorum.v2.request")
    part = schema.PartitionData(partition_index=0)
    request = schema.DescribeQuorumRequest(topics=(schema.TopicData(topic_name="__cluster_metadata", partitions=(part,)),))
    leader = cluster.leader(FOREIGN)
    (topic,) = cluster.ask(leader, ApiKey.DESCRIBE_QUORUM, request, version=2).topics
    assert topic.topic_name == "__cluster_metadata"
    assert int(topic.partitions[0].error_code) == ErrorCode.NONE
    assert topic.partitions[0].leader_id == leader.config.node_id


def test_a_directory_of_another_quorum_is_refused() -> None:
    cluster = Cluster()
    cluster.leader()
    cluster.settings["quorum_group"] = FOREIGN
    cluster.stop(1)
    with pytest.raises(StorageError, match=r"holds __cluster_metadata-0, but quorum\.topic=__raft_performance_test"):
        cluster.start(1)
