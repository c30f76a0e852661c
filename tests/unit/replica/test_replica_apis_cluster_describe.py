"""Membership and what a node tells about the cluster and its quorums, through the messages that clients send."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import DescribeRpc
from raftlake.replica.apis.answers import Answers
from raftlake.replica.apis.find_quorum import find_quorum
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.ids import id_from_kio, id_to_kio, id_to_text
from raftlake.wire.quorum import max_follower_lag, replication_facts
from raftlake.wire.topic_lists import TopicPartitions
from replica_cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Three nodes that have told each other where clients reach them."""
    cluster = Cluster()
    cluster.run(1_000, until=lambda: all(len(node.membership.nodes()) == 3 for node in cluster.nodes.values()))
    return cluster


def _schema(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


def test_metadata_lists_nodes_topics_and_leaders(cluster: Cluster) -> None:
    groups = cluster.create_topic("listed", 2)
    schema = _schema("metadata", 12)
    asked = (schema.MetadataRequestTopic(name="listed", topic_id=None), schema.MetadataRequestTopic(name="no", topic_id=None))
    request = schema.MetadataRequest(topics=asked, include_topic_authorized_operations=False)
    for node in cluster.nodes.values():
        answer = cluster.ask(node, ApiKey.METADATA, request, version=12)
        assert [broker.node_id for broker in answer.brokers] == [1, 2, 3]
        assert answer.controller_id == cluster.leader().config.node_id
        listed, missing = answer.topics
        assert int(missing.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leaders = [cluster.leader(group).config.node_id for group in groups]
        assert [part.leader_id for part in listed.partitions] == leaders


def test_topics_of_the_connectors_are_internal() -> None:
    """Kafka's consumers with a pattern leave them out (exclude.internal.topics), as Spark's Kafka connector does."""
    cluster = Cluster(1)
    names = {"__raftlake-blobs": True, "__raftlake-state-q-0-default": True, "__raftlake": False, "orders": False}
    for name in names:
        cluster.create_topic(name, 1)
    request = _schema("metadata", 12).MetadataRequest(topics=None, include_topic_authorized_operations=False)
    answer = cluster.ask(cluster.leader(), ApiKey.METADATA, request, version=12)
    assert {topic.name: topic.is_internal for topic in answer.topics if topic.name in names} == names


def test_a_controller_is_named_with_its_address_only_and_before_a_node_is_ready() -> None:
    """rskafka gives up where the list of brokers does not hold the controller."""
    cluster, ready_before_all_told = Cluster(), 0
    metadata = _schema("metadata", 12).MetadataRequest(topics=(), include_topic_authorized_operations=False)
    describe = _schema("describe_cluster", 1).DescribeClusterRequest(include_cluster_authorized_operations=False)
    for _ in range(200):
        cluster.run(1)
        for node in cluster.nodes.values():
            for key, request, version in ((ApiKey.METADATA, metadata, 12), (ApiKey.DESCRIBE_CLUSTER, describe, 1)):
                answer = cluster.ask(node, key, request, version=version)
                listed = {broker.node_id if key is ApiKey.METADATA else broker.broker_id for broker in answer.brokers}
                assert answer.controller_id in {*listed, -1}
                assert answer.controller_id != -1 or not node.is_ready()
            ready_before_all_told += node.is_ready() and len(node.membership.nodes()) < 3
    assert all(node.is_ready() for node in cluster.nodes.values()) and ready_before_all_told


@pytest.mark.parametrize("version", range(14))
def test_metadata_answers_in_every_version(cluster: Cluster, version: int) -> None:
    schema = _schema("metadata", version)
    fields = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    known = {name: value for name, value in fields.items() if name in schema.MetadataRequest.__slots__}
    answer = cluster.ask(
        cluster.leader(), ApiKey.METADATA, schema.MetadataRequest(topics=() if version == 0 else None, **known), version=version
    )
    assert type(answer).__version__ == version
    assert len(answer.brokers) == 3


def test_describe_quorum_at_the_leader_and_elsewhere(cluster: Cluster) -> None:
    schema = _schema("describe_quorum", 2)
    request = schema.DescribeQuorumRequest(
        topics=(schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),)),)
    )
    cluster.run(1000)
    leader = cluster.leader()
    (topic,) = cluster.ask(leader, ApiKey.DESCRIBE_QUORUM, request, version=2).topics
    (part,) = topic.partitions
    assert int(part.error_code) == ErrorCode.NONE
    assert sorted(replica.replica_id for replica in part.current_voters) == [1, 2, 3]
    ends = {replica.log_end_offset for replica in part.current_voters}
    assert ends == {leader.partitions[METADATA_GROUP].log.end_offset}
    for follower in cluster.followers():
        (passed_on,) = cluster.ask(follower, ApiKey.DESCRIBE_QUORUM, request, version=2).topics
        assert passed_on.partitions[0].current_voters[0].log_end_offset == part.current_voters[0].log_end_offset
        assert passed_on.partitions[0].leader_id == leader.config.node_id


def test_the_leader_does_not_fetch_and_has_caught_up_just_now(cluster: Cluster) -> None:
    """Kafka's DescribeQuorum shows -1 as the leader's own LastFetchTimestamp."""
    schema = _schema("describe_quorum", 2)
    request = schema.DescribeQuorumRequest(
        topics=(schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),)),)
    )
    cluster.run(1_000)
    leader = cluster.leader()
    for asked in cluster.nodes.values():
        wall_ms = leader.engine.clock.wall_ms()
        part = cluster.ask(asked, ApiKey.DESCRIBE_QUORUM, request, version=2).topics[0].partitions[0]
        fetched = {replica.replica_id: replica.last_fetch_timestamp for replica in part.current_voters}
        assert fetched.pop(leader.config.node_id) == -1
        # A follower may fetch while the question is on its way.
        answered_ms = leader.engine.clock.wall_ms()
        assert len(fetched) == 2 and all(wall_ms - 1_000 <= at_ms <= answered_ms for at_ms in fetched.values())
        (caught_up_ms,) = (
            replica.last_caught_up_timestamp for replica in part.current_voters if replica.replica_id == part.leader_id
        )
        assert wall_ms <= caught_up_ms <= leader.engine.clock.wall_ms()


def test_describe_quorum_of_another_node_s_client_is_never_passed_on(cluster: Cluster) -> None:
    """Two nodes that each take the other for the leader would pass a question to and fro."""
    schema = _schema("describe_quorum", 1)
    request = schema.DescribeQuorumRequest(
        topics=(schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),)),)
    )
    replies: list[Any] = []
    cluster.followers()[0].receive(PeerConnection(), DescribeRpc(request=request), replies.append)
    (reply,) = replies
    (topic,) = reply.response.topics
    assert int(topic.partitions[0].error_code) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert topic.partitions[0].leader_id == cluster.leader().config.node_id
    assert type(reply.response).__version__ == 1


def test_describe_cluster_echoes_the_endpoint_type_and_refuses_unknown_ones(cluster: Cluster) -> None:
    schema = _schema("describe_cluster", 2)
    for endpoint_type, expected in ((1, ErrorCode.NONE), (2, ErrorCode.NONE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        request = schema.DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoint_type, include_fenced_brokers=False
        )
        answer = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_CLUSTER, request, version=2)
        assert int(answer.error_code) == expected
        assert answer.endpoint_type == endpoint_type


def test_a_quorum_formatted_without_a_cluster_id_agrees_on_one(cluster: Cluster) -> None:
    cluster.run(3000)
    ids = {node.cluster_id for node in cluster.nodes.values()}
    assert len(ids) == 1
    assert None not in ids


def test_a_follower_that_stops_fetching_shows_its_lag_in_offsets_and_time() -> None:
    cluster = Cluster()
    down = cluster.followers()[0].config.node_id
    cluster.run(1000)
    cluster.stop(down)
    cluster.create_topic("t")
    cluster.run(5000)
    described = cluster.leader().describer.of(cluster.leader().partitions[METADATA_GROUP])
    lagging = next(row for row in replication_facts(described) if row["nodeId"] == down)
    lag, lag_ms = max_follower_lag(described)
    assert lag == lagging["lag"] > 0
    assert lag_ms >= 4900


def test_a_voter_that_a_leader_has_never_seen_lacks_the_whole_log() -> None:
    cluster = Cluster()
    cluster.run(1000)
    everybody = [*cluster.nodes]
    for node_id in everybody:
        cluster.stop(node_id)
    for node_id in everybody[1:]:
        cluster.start(node_id)
    cluster.run(10_000, until=lambda: any(node.is_ready() for node in cluster.nodes.values()))
    cluster.run(1000)
    leader = cluster.leader()
    described = leader.describer.of(leader.partitions[METADATA_GROUP])
    never_seen = next(row for row in replication_facts(described) if row["nodeId"] == everybody[0])
    assert (never_seen["logEndOffset"], never_seen["lastCaughtUpTimestamp"]) == (-1, -1)
    assert max_follower_lag(described) == (leader.partitions[METADATA_GROUP].log.end_offset + 1, -1)


def test_an_idle_quorum_has_no_lag_and_one_with_a_dead_voter_shows_since_when() -> None:
    cluster = Cluster()
    cluster.run(60_000)
    leader = cluster.leader()
    assert max_follower_lag(leader.describer.of(leader.partitions[METADATA_GROUP]))[1] <= 1000
    cluster.stop(cluster.followers()[0].config.node_id)
    cluster.run(5000)
    lag, lag_ms = max_follower_lag(leader.describer.of(leader.partitions[METADATA_GROUP]))
    assert lag == 0
    assert 4900 <= lag_ms <= 6000


def test_a_follower_knows_who_votes_and_leads_and_nothing_of_the_replicas(cluster: Cluster) -> None:
    follower = cluster.followers()[0]
    described = follower.describer.of(follower.partitions[METADATA_GROUP])
    assert [voter.replica_id for voter in described.voters] == [1, 2, 3]
    assert described.leader_id == cluster.leader().config.node_id
    assert (described.leader, replication_facts(described), max_follower_lag(described)) == (None, [], (-1, -1))


@pytest.mark.parametrize("asked_by", ["leader", "follower"])
def test_find_quorum_names_leader_and_voters_anywhere(cluster: Cluster, asked_by: str) -> None:
    node = cluster.leader() if asked_by == "leader" else cluster.followers()[0]
    request = FindQuorumRequest(None, [TopicPartitions("__cluster_metadata", [0]), TopicPartitions("no", [0])])
    known, unknown = cluster.ask(node, ApiKey.FIND_QUORUM, request).topics
    (part,) = known.partitions
    assert part.leader_id == cluster.leader().config.node_id
    assert part.leader_epoch == cluster.leader().partitions[METADATA_GROUP].core.epoch
    assert [voter.node_id for voter in part.voters] == [1, 2, 3]
    assert unknown.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_find_quorum_of_another_cluster_is_refused(cluster: Cluster) -> None:
    cluster.run(3000)
    answer = cluster.ask(cluster.leader(), ApiKey.FIND_QUORUM, FindQuorumRequest("another", []))
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_find_quorum_is_answered_at_once(cluster: Cluster) -> None:
    answers: list[object] = []
    find_quorum(cluster.leader(), FindQuorumRequest(None, []), answers.append)
    assert len(answers) == 1


@pytest.mark.parametrize("version", range(14))
def test_an_answer_is_made_in_the_version_of_its_request_without_the_fields_that_it_lacks(version: int) -> None:
    schema = _schema("metadata", version)
    fields = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    known = {name: value for name, value in fields.items() if name in schema.MetadataRequest.__slots__}
    answers = Answers(schema.MetadataRequest(topics=(), **known))
    broker = answers.make("MetadataResponseBroker", node_id=1, host="h", port=1, rack=None)
    assert hasattr(broker, "rack") == (version >= 1)


def test_ids_pass_through_kafka_form_and_back() -> None:
    assert id_from_kio(id_to_kio(bytes(range(16)))) == bytes(range(16))
    assert id_to_kio(bytes(16)) is None
    assert id_from_kio(None) == bytes(16)


def test_a_node_that_restarts_alone_denies_no_topic_and_one_with_a_leader_does() -> None:
    """It hosts the topic's groups but has not been told whether the topic was deleted while it was away."""
    cluster = Cluster()
    cluster.create_topic("t")
    everybody = list(cluster.nodes)
    for node_id in everybody:
        cluster.stop(node_id)
    alone = cluster.start(everybody[0])
    cluster.run(3000)
    metadata, delete, configs = _schema("metadata", 12), _schema("delete_topics", 6), _schema("describe_configs", 4)

    def named(*names: str) -> Any:
        asked = tuple(metadata.MetadataRequestTopic(name=name, topic_id=None) for name in names)
        return metadata.MetadataRequest(topics=asked, include_topic_authorized_operations=False)

    every = metadata.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    deleted = delete.DeleteTopicsRequest(
        topics=(delete.DeleteTopicState(name="x", topic_id=None),), timeout=timedelta(seconds=1)
    )
    resource = configs.DescribeConfigsResource(resource_type=2, resource_name="x", configuration_keys=None)
    described = configs.DescribeConfigsRequest(resources=(resource,))

    def codes(node: ReplicaNode) -> list[int]:
        by_name = cluster.ask(node, ApiKey.METADATA, named("t", "x"), version=12).topics
        (of_delete,) = cluster.ask(node, ApiKey.DELETE_TOPICS, deleted, version=6).responses
        (of_configs,) = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, described, version=4).results
        return [int(answer.error_code) for answer in (*by_name, of_delete, of_configs)]

    not_yet, unknown = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(alone) == [not_yet, not_yet, ErrorCode.NOT_CONTROLLER, not_yet]
    answer = cluster.ask(alone, ApiKey.METADATA, every, version=12)
    assert (answer.topics, answer.controller_id) == ((), -1)
    for node_id in everybody[1:]:
        cluster.start(node_id)
    cluster.run(20_000, until=lambda: all(not node.topics.may_miss_some for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        assert codes(node) == [ErrorCode.NONE, unknown, unknown, unknown]
        answer = cluster.ask(node, ApiKey.METADATA, every, version=12)
        assert [topic.name for topic in answer.topics] == ["t"] and answer.controller_id == cluster.leader().config.node_id
    for node_id in everybody[1:]:
        cluster.stop(node_id)
    cluster.run(10_000, until=lambda: alone.topics.may_miss_some)
    # What it knew when it lost the leader it goes on telling; what was created since, it may have missed.
    assert codes(alone)[:2] == [ErrorCode.NONE, not_yet]


@pytest.mark.parametrize("name", ["²", "١", "-1", "+1", " 1", "01", "1_0", "1" * 11, "1" * 5_000, "one"])
def test_a_broker_is_named_by_an_id_as_nodes_write_it(cluster: Cluster, name: str) -> None:
    """`isdigit` takes a superscript two for a digit, and `int` does not."""
    schema = _schema("describe_configs", 4)

    def asked(name: str) -> Any:
        resource = schema.DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=None)
        request = schema.DescribeConfigsRequest(resources=(resource,))
        (told,) = cluster.ask(cluster.leader(), ApiKey.DESCRIBE_CONFIGS, request, version=4).results
        return told

    assert int(asked(name).error_code) == ErrorCode.INVALID_REQUEST
    assert "named by its node id" in asked(name).error_message
    assert [int(asked(known).error_code) for known in ("1", "2", "3")] == [0] * 3
    assert "not part of this quorum" in asked("0").error_message and "not part" in asked("2147483647").error_message


def _topic_configs(cluster: Cluster, node: ReplicaNode, topic: str) -> dict[str, str]:
    schema = _schema("describe_configs", 4)
    resource = schema.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    request = schema.DescribeConfigsRequest(resources=(resource,))
    (told,) = cluster.ask(node, ApiKey.DESCRIBE_CONFIGS, request, version=4).results
    assert int(told.error_code) == ErrorCode.NONE
    assert all(config.read_only == config.name.startswith(("remote.", "raftlake.")) for config in told.configs)
    return {config.name: config.value for config in told.configs}


def test_a_topic_tells_readers_where_its_table_is() -> None:
    """The connector reads history there. A node without a tier says nothing of one, whatever its settings are."""
    cluster = Cluster(tier_uri="s3://history/raftlake")
    (group,) = cluster.create_topic("flights", 1)
    node = cluster.leader()
    assert not {"remote.storage.enable", "raftlake.tier.table.uri"} & _topic_configs(cluster, node, "flights").keys()
    node.remote_log.is_on = True
    told = _topic_configs(cluster, node, "flights")
    assert told["remote.storage.enable"] == "true"
    assert told["raftlake.tier.table.uri"] == f"s3://history/raftlake/flights-{id_to_text(group.topic_id)}"
    cluster = Cluster()
    cluster.create_topic("flights", 1)
    cluster.leader().remote_log.is_on = True
    told = _topic_configs(cluster, cluster.leader(), "flights")
    assert told["remote.storage.enable"] == "true" and "raftlake.tier.table.uri" not in told
