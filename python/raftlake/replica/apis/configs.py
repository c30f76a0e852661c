"""DescribeConfigs (32), and what all requests about configs share: the resources that they name, and what this node is.

Every node answers for all topics, from what it has applied. Of other nodes it knows the addresses alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.raft.types import NodeId
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.config import ClientContext
from raftlake.replica.configs.definitions import READ_ONLY, ConfigType, Surroundings, compacts
from raftlake.replica.configs.described import Described, Source, Synonym, described
from raftlake.replica.hosting.topics import NO_LEADER_YET
from raftlake.replica.refused_for_good import DESCRIBE
from raftlake.replica.reserved import Topic, fault_of_spelling
from raftlake.replica.services import Services
from raftlake.wire.ids import table_uri

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
MIN_IN_SYNC = "min.insync.replicas"
#: Of 2^31 - 1.
NODE_ID_DIGITS = 10

#: Topics that one answer tells of: as many take some 0.2 s.
TOPICS_TOLD_MAX = 1_000
TOO_MANY = f"one request is told of {TOPICS_TOLD_MAX} topics: ask for the others in another one"
#: The names that are asked for, None for all.
Wanted = set[str] | None


def surroundings(node: Services) -> Surroundings:
    """What decides at this node which values a topic can have."""
    return Surroundings(node=node.engine.config, majority=_majority(node), is_tiered=node.remote_log.is_on)


def describe_configs(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    """`reply` at once."""
    answers = Answers(request)
    left, results = TOPICS_TOLD_MAX, []
    for resource, wanted in _resources(request).values():
        is_topic = resource.resource_type == RESOURCE_TOPIC and node.names.topic(resource.resource_name) is not None
        has_room = left > 0 or not is_topic
        results.append(_described_resource(node, request, client, answers, resource, wanted, has_room=has_room))
        left -= is_topic
    reply(answers.make("DescribeConfigsResponse", results=tuple(results)))


def _resources(request: Any) -> dict[tuple[int, str], tuple[Any, Wanted]]:
    """Each resource once, with all that is asked of it."""
    found: dict[tuple[int, str], tuple[Any, Wanted]] = {}
    for resource in request.resources:
        key, keys = (resource.resource_type, resource.resource_name), resource.configuration_keys
        first, wanted = found.get(key, (resource, set()))
        found[key] = (first, None if wanted is None or keys is None else wanted.union(keys))
    return found


def _described_resource(
    node: Services,
    request: Any,
    client: ClientContext,
    answers: Answers,
    resource: Any,
    wanted: Wanted,
    *,
    has_room: bool,
) -> Any:
    error, message = ErrorCode.NONE, None
    configs: Iterable[Described] = ()
    try:
        if not has_room:
            raise RequestRejected(ErrorCode.INVALID_REQUEST, TOO_MANY)
        configs = _configs_of(node, resource.resource_type, resource.resource_name)
    except RequestRejected as rejected:
        error, message = rejected.code, rejected.message
        node.refused_for_good.note_error(DESCRIBE, resource.resource_name, error, message, client)
    return answers.make(
        "DescribeConfigsResult",
        error_code=kafka_error(error),
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            answers.make(
                "DescribeConfigsResourceResult",
                name=config.name,
                value=config.value,
                read_only=_is_read_only(node, resource, config.name),
                config_source=config.source,
                is_sensitive=False,
                synonyms=_synonyms(answers, config) if request.include_synonyms else (),
                config_type=config.type,
                documentation=config.documentation if getattr(request, "include_documentation", False) else None,
            )
            for config in configs
            if wanted is None or config.name in wanted
        ),
    )


def _is_read_only(node: Services, resource: Any, name: str) -> bool:
    """The settings of a node stand in a file, and the quorum's own log has no key."""
    return resource.resource_type == RESOURCE_BROKER or name in READ_ONLY or resource.resource_name == node.names.own.name


def _synonyms(answers: Answers, config: Described) -> tuple[Any, ...]:
    return tuple(
        answers.make("DescribeConfigsSynonym", name=each.name, value=each.value, source=each.source) for each in config.synonyms
    )


def _configs_of(node: Services, kind: int, name: str) -> list[Described]:
    """Raises RequestRejected."""
    if kind == RESOURCE_BROKER:
        return _broker_configs(node, name)
    if kind != RESOURCE_TOPIC:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here")
    topic = node.names.topic(name)
    if topic is not None:
        return topic_configs(node, topic)
    fault = fault_of_spelling(name)
    if fault is not None:
        raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if node.topics.may_miss_some:
        raise RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE, f"{NO_LEADER_YET}; topic {name!r} is not known so far")
    raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")


def topic_configs(node: Services, topic: Topic) -> list[Described]:
    """All configs of a topic, and with a tier what readers look for."""
    told = {name: _plain(name, value, Source.DEFAULT) for name, value in _tier_configs(node, topic).items()}
    return [*(each for each in described(topic.configs, surroundings(node)) if each.name not in told), *told.values()]


def _plain(name: str, value: str, source: Source) -> Described:
    return Described(
        name=name,
        value=value,
        source=source,
        type=ConfigType.STRING,
        synonyms=(Synonym(name, value, source),),
        documentation=READ_ONLY.get(name),
    )


def _majority(node: Services) -> int:
    """How many voters have to have a record before it is acknowledged. Kafka's tools compare the replicas in sync with it."""
    return len(node.quorum.latest) // 2 + 1


def _tier_configs(node: Services, topic: Topic) -> Mapping[str, str]:
    """Whether the topic has history in a remote tier, and where readers find it. How a node reaches the store is its secret."""
    if not node.remote_log.is_on or compacts(topic.configs):
        return {}
    uri = node.engine.config.tier_uri
    place = {} if uri is None else {"raftlake.tier.table.uri": table_uri(uri, topic.name, topic.topic_id)}
    return {"remote.storage.enable": "true", **place}


def _is_node_id(name: str) -> bool:
    """Digits as a node writes them: one spelling for each node, and none that `int` knows and Kafka does not."""
    return name.isascii() and name.isdigit() and len(name) <= NODE_ID_DIGITS and (name == "0" or name[0] != "0")


def _broker_configs(node: Services, name: str) -> list[Described]:
    """A broker resource names a node by id. The HTTP address of every node is known; the rest only of this one.

    Without a name the resource stands for the dynamic defaults of all brokers, and there are none."""
    if not name:
        return []
    if not _is_node_id(name):
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"a broker is named by its node id, not by {name!r}")
    node_id = NodeId(int(name))
    endpoint = node.membership.endpoint(node_id)
    if endpoint is None:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"node {node_id} is not part of this quorum")
    http = node.membership.http_endpoint(node_id)
    configs = {"node.id": str(node_id), "listeners": f"PLAINTEXT://{endpoint}"}
    if http is not None:
        configs["http.listener"] = str(http)
    if node_id == node.engine.config.node_id:
        configs |= _own_configs(node)
    return [_plain(key, value, Source.STATIC_BROKER) for key, value in sorted(configs.items())]


def _own_configs(node: Services) -> dict[str, str]:
    config = node.engine.config
    return {
        "auto.create.topics.enable": str(config.auto_create_topics).lower(),
        "log.segment.bytes": str(config.segment_bytes),
        "message.max.bytes": str(config.message_bytes_max),
        MIN_IN_SYNC: str(_majority(node)),
        "retention.bytes": str(config.retention_bytes),
        "retention.ms": str(config.retention_ms),
        "quorum.voters": ",".join(f"{voter}@{at}" for voter, at in node.quorum.addresses().items()),
        "quorum.election.timeout.ms": str(config.raft.election_timeout_ms),
        "quorum.fetch.timeout.ms": str(config.raft.fetch_timeout_ms),
        "transaction.max.timeout.ms": str(config.transaction_timeout_ms_max),
    }
