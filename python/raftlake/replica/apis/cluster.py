"""Who is in the cluster and how its quorums stand: Metadata (3), DescribeCluster (60) and DescribeQuorum (55).

Every node answers all of them from what it has applied; only the figures of a quorum's replicas are its leader's.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import DescribeReply, DescribeRpc, GroupId, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.apis.answers import Answers, Reply, kafka_error, once
from raftlake.replica.apis.log_dirs import partitions_described
from raftlake.replica.config import INTERNAL_PREFIX, METADATA_TOPIC, ClientContext
from raftlake.replica.hosting.first_leaders import leader_for_clients
from raftlake.replica.quorum import LISTENER_NAME
from raftlake.replica.refused_for_good import DESCRIBE_NODES, LOOK_UP
from raftlake.replica.reserved import Topic, fault_of_spelling
from raftlake.replica.services import Services
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_from_kio, id_to_kio
from raftlake.wire.metadata import PartitionLeadership, TopicMetadata
from raftlake.wire.quorum import ReplicaDescription

BROKERS, CONTROLLERS = 1, 2


# --- Metadata ---


def metadata(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers = Answers(request)
    gone, nodes = node.in_sync.gone(), node.in_sync.present()
    if request.topics is None or (not request.topics and _version(request) == 0):
        topics = [_known_topic(node, nodes, gone, _version(request), topic) for topic in node.names.all()]
    else:
        # Before version 4 a client could not forbid it.
        creates = getattr(request, "allow_auto_topic_creation", True)
        asked_for = once(request.topics, _name_or_id)
        topics = [_asked_topic(node, nodes, gone, _version(request), asked, client, creates=creates) for asked in asked_for]
    reply(
        answers.make(
            "MetadataResponse",
            brokers=tuple(
                answers.make("MetadataResponseBroker", node_id=node_id, host=endpoint.host, port=endpoint.port, rack=None)
                for node_id, endpoint in nodes.items()
            ),
            cluster_id=node.engine.cluster_id,
            # A node that does not know yet which topics exist names no controller: a list of all has no other place to say so.
            controller_id=_controller(node, nodes) if node.topics.is_current else NO_LEADER,
            error_code=kafka_error(ErrorCode.NONE),
            topics=tuple(topics),
        )
    )


def _controller(node: Services, nodes: Container[NodeId]) -> NodeId:
    """The leader of the quorum's log, where `nodes`, those that the answer lists, hold it. Clients look its address up there,
    and some of them give up on an id that is not among them."""
    leader_id = node.quorum.leader_id
    return leader_id if leader_id in nodes else NO_LEADER


def partitions_told(node: Services, request: Any) -> int:
    """How many partitions the answer to a request for Metadata, or for log directories, lists: what the answer costs follows
    from it."""
    if type(request).__api_key__ == ApiKey.DESCRIBE_LOG_DIRS:
        return partitions_described(node, request)
    if request.topics is None or (not request.topics and _version(request) == 0):
        return node.kv.state.partition_count
    topics = (_topic_asked(node, asked) for asked in once(request.topics, _name_or_id))
    return sum(topic.partitions for topic in topics if topic is not None)


def _topic_asked(node: Services, asked: Any) -> Topic | None:
    topic_id = id_from_kio(getattr(asked, "topic_id", None))
    return node.names.by_id(topic_id) if any(topic_id) else node.names.topic(asked.name or "")


def _version(request: Any) -> int:
    return int(type(request).__version__)


def _name_or_id(asked: Any) -> str | bytes:
    topic_id = id_from_kio(getattr(asked, "topic_id", None))
    return topic_id if any(topic_id) else asked.name or ""


def _asked_topic(
    node: Services,
    nodes: Container[NodeId],
    gone: frozenset[NodeId],
    version: int,
    asked: Any,
    client: ClientContext,
    *,
    creates: bool,
) -> TopicMetadata:
    topic_id = id_from_kio(getattr(asked, "topic_id", None))
    by_id = any(topic_id)
    topic = _topic_asked(node, asked)
    if topic is not None:
        return _known_topic(node, nodes, gone, version, topic)
    error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fault = None if by_id else fault_of_spelling(asked.name or "")
    if fault is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
        node.refused_for_good.note_error(LOOK_UP, asked.name or "", error, fault, client)
    elif node.topics.may_miss_some:
        # What it has not applied yet is not known not to exist. Clients ask again after this error.
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif not by_id and creates and node.auto_creation.want(asked.name, client):
        # Clients ask again after it, until the topic has come about.
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return TopicMetadata(version, error, asked.name, topic_id, is_internal=False, replicas=(), partitions=[])


def _known_topic(
    node: Services, nodes: Container[NodeId], gone: frozenset[NodeId], version: int, topic: Topic
) -> TopicMetadata:
    """What is known of a topic. `nodes` are those that the answer lists."""
    partitions = []
    for group in topic.groups():
        hosted = node.engine.partitions.get(group)
        leader_id = leader_for_clients(hosted, nodes)
        error = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else ErrorCode.NONE
        epoch = -1 if hosted is None else hosted.core.epoch
        lagging = () if hosted is None else node.in_sync.lagging(hosted)
        partitions.append(PartitionLeadership(error, group.partition, leader_id, epoch, lagging))
    is_internal = topic.name == METADATA_TOPIC or topic.name.startswith(INTERNAL_PREFIX)
    replicas = node.quorum.latest.ids
    offline = tuple(sorted(gone.intersection(replicas)))
    return TopicMetadata(version, ErrorCode.NONE, topic.name, topic.topic_id, is_internal, replicas, partitions, offline)


# --- cluster and quorum ---


def describe_cluster(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers = Answers(request)
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    error, message = ErrorCode.NONE, None
    nodes = node.in_sync.present()
    if endpoint_type not in (BROKERS, CONTROLLERS):
        error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type}: accepted are 1 and 2"
        node.refused_for_good.note_error(DESCRIBE_NODES, client.client_id or "", error, message, client)
    reply(
        answers.make(
            "DescribeClusterResponse",
            error_code=kafka_error(error),
            error_message=message,
            endpoint_type=endpoint_type,
            cluster_id=node.engine.cluster_id or "",
            controller_id=_controller(node, nodes),
            brokers=tuple(
                answers.make(
                    "DescribeClusterBroker",
                    broker_id=node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=None,
                    is_fenced=False,
                )
                for node_id, endpoint in nodes.items()
            ),
        )
    )


def describe_quorum_api(node: Services, request: Any, reply: Reply) -> None:
    """The leader alone knows the lags. A question about one group goes to its leader, as Kafka's brokers pass it on to their
    controller (its tools ask any broker and do not look further); where that fails, and for several groups at once, the
    answer is NOT_LEADER with the leader's name."""
    asked = _partitions_described(request)
    one = next(iter(asked.items())) if len(asked) == 1 else ("", [])
    partition = node.engine.partitions.get(_group_described(node, one[0], one[1][0])) if len(one[1]) == 1 else None
    if partition is None or partition.core.is_leader or partition.core.leader_id == NO_LEADER:
        reply(_describe_locally(node, request))
        return

    def answered(outcome: PeerReply | FailureReason) -> None:
        node.engine.begin_input()
        reply(outcome.response if isinstance(outcome, DescribeReply) else _describe_locally(node, request))

    node.engine.network.send(partition.core.leader_id, DescribeRpc(request=_about_one(request)), answered)


def _partitions_described(request: Any) -> dict[str, list[int]]:
    """The partitions by topic, each once."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.topic_name, {}).update(dict.fromkeys(part.partition_index for part in topic.partitions))
    return {name: list(indexes) for name, indexes in asked.items()}


def _about_one(request: Any) -> Any:
    """The question about one partition without its repetitions: what is passed on is small."""
    topic = next(topic for topic in request.topics if topic.partitions)
    return replace(request, topics=(replace(topic, partitions=topic.partitions[:1]),))


def describe_for_peer(node: Services, rpc: DescribeRpc, reply: Callable[[PeerReply], None]) -> None:
    """The question of another node's client: answered from here, never passed on again."""
    reply(DescribeReply(response=_describe_locally(node, rpc.request)))


def _describe_locally(node: Services, request: Any) -> object:
    answers = Answers(request)
    topics = []
    for name, indexes in _partitions_described(request).items():
        partitions = [_quorum_partition(node, answers, _group_described(node, name, index)) for index in indexes]
        topics.append(answers.make("TopicData", topic_name=name, partitions=tuple(partitions)))
    nodes = tuple(
        answers.make(
            "Node",
            node_id=node_id,
            listeners=(answers.make("Listener", name=LISTENER_NAME, host=endpoint.host, port=endpoint.port),),
        )
        for node_id, endpoint in node.quorum.addresses().items()
        if _version(request) >= 2
    )
    return answers.make(
        "DescribeQuorumResponse",
        error_code=kafka_error(ErrorCode.NONE),
        error_message=None,
        topics=tuple(topics),
        nodes=nodes,
    )


def _group_described(node: Services, topic: str, partition: int) -> GroupId:
    """Kafka's quorum tool knows the metadata log alone; to it, any other log that a quorum may keep goes by that name."""
    own = node.engine.config.quorum_group
    return own if (topic, partition) == (METADATA_TOPIC, own.partition) else node.names.resolve_group(topic, partition)


def _quorum_partition(node: Services, answers: Answers, group: GroupId) -> Any:
    partition = node.engine.partitions.get(group)
    error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, node.names.told_unknown(group)
    leader_id, epoch, high_watermark = int(NO_LEADER), 0, -1
    voters: list[Any] = []
    observers: list[Any] = []
    if partition is not None:
        described = node.describer.of(partition)
        leader_id, epoch = described.leader_id, described.leader_epoch
        error = ErrorCode.NONE if partition.core.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        message = f"{group} has no leader" if leader_id == NO_LEADER else f"node {leader_id} leads {group}: ask it"
        if partition.core.is_leader:
            high_watermark = described.high_watermark
            voters = [_replica_state(answers, replica) for replica in described.voters]
            observers = [_replica_state(answers, replica) for replica in described.observers]
    return answers.make(
        "PartitionData",
        partition_index=group.partition,
        error_code=kafka_error(error),
        error_message=None if error is ErrorCode.NONE else message,
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        current_voters=tuple(voters),
        observers=tuple(observers),
    )


def _replica_state(answers: Answers, replica: ReplicaDescription) -> Any:
    return answers.make(
        "ReplicaState",
        replica_id=replica.replica_id,
        replica_directory_id=id_to_kio(replica.directory_id),
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_timestamp_ms,
        last_caught_up_timestamp=replica.last_caught_up_timestamp_ms,
    )
