"""Topic configs in tests: a node's surroundings, and the requests that clients send to read and change configs."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.configs.definitions import Surroundings
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
HERE = Endpoint("h", 9092)
#: Code and message of a refusal, (0, None) for none.
Told = tuple[int, str | None]


def around(*, majority: int = 2, is_tiered: bool = False, **settings: Any) -> Surroundings:
    """Of a node with these settings."""
    node = NodeConfig(node_id=NodeId(1), voters={NodeId(1): HERE}, listener=HERE, **settings)
    return Surroundings(node=node, majority=majority, is_tiered=is_tiered)


def schema(name: str, version: int) -> Any:
    """kio's module of a request."""
    return importlib.import_module(f"kio.schema.{name}.v{version}.request")


# --- requests -------------------------------------------------------------------------------------------------------------


def create(
    cluster: Cluster, name: str, configs: dict[str, str | None] | None = None, partitions: int = 1, **fields: Any
) -> Any:
    """The answer to CreateTopics for one topic. `fields` are those of the request."""
    made = schema("create_topics", 7)
    asked = tuple(made.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
    topic = made.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=(), configs=asked)
    request = made.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5), **fields)
    (answer,) = cluster.ask(cluster.leader(), ApiKey.CREATE_TOPICS, request, version=7).topics
    return answer


def created(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> list[GroupId]:
    """The groups of a new topic, hosted everywhere. Underscores in names of configs stand for dots."""
    answer = create(cluster, name, {key.replace("_", "."): value for key, value in configs.items()}, partitions)
    assert int(answer.error_code) == ErrorCode.NONE, answer.error_message
    groups = [GroupId(name, index, answer.topic_id.bytes) for index in range(partitions)]
    cluster.run(2_000, until=lambda: all(group in node.partitions for node in cluster.nodes.values() for group in groups))
    return groups


def alteration(*resources: tuple[int, str, list[tuple[str, int, str | None]]], version: int = 1, only: bool = False) -> Any:
    """IncrementalAlterConfigs: resources as (type, name, changes), changes as (name, operation, value). `only`: nothing is
    changed."""
    made = schema("incremental_alter_configs", version)
    asked = tuple(
        made.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                made.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
            ),
        )
        for kind, name, changes in resources
    )
    return made.IncrementalAlterConfigsRequest(resources=asked, validate_only=only)


def replacement(*resources: tuple[int, str, list[tuple[str, str | None]]], version: int = 2, only: bool = False) -> Any:
    """AlterConfigs: resources as (type, name, configs)."""
    made = schema("alter_configs", version)
    asked = tuple(
        made.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(made.AlterableConfig(name=key, value=value) for key, value in configs),
        )
        for kind, name, configs in resources
    )
    return made.AlterConfigsRequest(resources=asked, validate_only=only)


def send(cluster: Cluster, request: Any, node: ReplicaNode | None = None) -> dict[str, Told]:
    """What is said of each resource of an alteration or a replacement, by name."""
    answer = cluster.ask(
        node or cluster.leader(), ApiKey(type(request).__api_key__), request, version=int(type(request).__version__)
    )
    return {each.resource_name: (int(each.error_code), each.error_message) for each in answer.responses}


def alter(cluster: Cluster, topic: str, *delete: str, node: ReplicaNode | None = None, **configs: str) -> None:
    """Set some configs of a topic and delete others, and wait until all nodes that run have applied it."""
    changes: list[tuple[str, int, str | None]] = [(key.replace("_", "."), SET, value) for key, value in configs.items()]
    changes += [(key, DELETE, None) for key in delete]
    told = send(cluster, alteration((TOPIC, topic, changes)), node)
    assert told == {topic: (0, None)}, told
    settle(cluster)


def settle(cluster: Cluster) -> None:
    """Wait until all nodes that run have applied what the leader of the metadata log has."""
    applied = cluster.leader().kv.machine.applied_offset
    cluster.run(5_000, until=lambda: all(node.kv.machine.applied_offset >= applied for node in cluster.nodes.values()))


def described(
    cluster: Cluster, topic: str, node: ReplicaNode | None = None, *, kind: int = TOPIC, version: int = 4, **fields: Any
) -> dict[str, Any]:
    """What a node tells of each config of a topic."""
    made = schema("describe_configs", version)
    resource = made.DescribeConfigsResource(resource_type=kind, resource_name=topic, configuration_keys=None)
    request = made.DescribeConfigsRequest(resources=(resource,), **fields)
    (told,) = cluster.ask(node or cluster.leader(), ApiKey.DESCRIBE_CONFIGS, request, version=version).results
    assert int(told.error_code) == ErrorCode.NONE, told.error_message
    return {config.name: config for config in told.configs}


def own(cluster: Cluster, topic: str, node: ReplicaNode | None = None) -> dict[str, str]:
    """What a topic says itself, as a node knows it."""
    return {name: config.value for name, config in described(cluster, topic, node).items() if config.config_source == 1}
