"""The coordinator of transactions is told, and consumer groups are refused: in every version, and for good."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from raftlake.errors import ErrorCode
from raftlake.replica.apis.groups import NO_GROUPS, WHY
from raftlake.replica.node import ReplicaNode
from raftlake.wire.api import API_TABLE, ApiKey, RequestHeader, decode_response, encode_response
from replica_cluster import Cluster

GROUP, TRANSACTION, SHARE = 0, 1, 2
MEMBER_APIS = {
    ApiKey.JOIN_GROUP: ("join_group", "JoinGroupRequest"),
    ApiKey.SYNC_GROUP: ("sync_group", "SyncGroupRequest"),
    ApiKey.HEARTBEAT: ("heartbeat", "HeartbeatRequest"),
    ApiKey.LEAVE_GROUP: ("leave_group", "LeaveGroupRequest"),
    ApiKey.OFFSET_COMMIT: ("offset_commit", "OffsetCommitRequest"),
    ApiKey.OFFSET_FETCH: ("offset_fetch", "OffsetFetchRequest"),
    ApiKey.ADD_OFFSETS_TO_TXN: ("add_offsets_to_txn", "AddOffsetsToTxnRequest"),
    ApiKey.TXN_OFFSET_COMMIT: ("txn_offset_commit", "TxnOffsetCommitRequest"),
}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def _made(module: Any, name: str, **values: Any) -> Any:
    """A request of one version: of `values` those that it has."""
    cls = getattr(module, name)
    return cls(**{field: value for field, value in values.items() if field in get_type_hints(cls)})


def _find_coordinator(cluster: Cluster, version: int, key_type: int, node: ReplicaNode | None = None) -> Any:
    """The refusal, or the place, that a node answers with."""
    module = importlib.import_module(f"kio.schema.find_coordinator.v{version}.request")
    request = _made(module, "FindCoordinatorRequest", key_type=key_type, key="g", coordinator_keys=("g",))
    answer = cluster.ask(node or cluster.leader(), ApiKey.FIND_COORDINATOR, request, version=version)
    return answer.coordinators[0] if version >= 4 else answer


@pytest.mark.parametrize("version", range(7))
def test_every_node_is_the_coordinator_of_every_group(cluster: Cluster, version: int) -> None:
    """A client that only assigns partitions asks for it as well, and must not be told of an error."""
    found = _find_coordinator(cluster, version, GROUP)
    me = cluster.leader().config
    assert (int(found.error_code), found.node_id, found.host, found.port) == (0, me.node_id, me.listener.host, me.listener.port)


@pytest.mark.parametrize("version", range(1, 7))
def test_all_nodes_name_the_leader_of_the_metadata_log_as_the_coordinator_of_transactions(
    cluster: Cluster, version: int
) -> None:
    leader = cluster.leader().config
    cluster.run(3_000, until=lambda: all(len(node.membership.nodes()) == 3 for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        found = _find_coordinator(cluster, version, TRANSACTION, node)
        told = (int(found.error_code), found.node_id, found.host, found.port)
        assert told == (0, leader.node_id, leader.listener.host, leader.listener.port)


def test_without_a_leader_nobody_coordinates_transactions() -> None:
    cluster = Cluster()
    node, *others = cluster.nodes
    for other in others:
        cluster.stop(other)
    cluster.run(3_000)
    found = _find_coordinator(cluster, 3, TRANSACTION, cluster.nodes[node])
    assert (int(found.error_code), found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("version", range(1, 7))
def test_nobody_coordinates_share_groups(cluster: Cluster, version: int) -> None:
    refused = _find_coordinator(cluster, version, SHARE)
    assert (int(refused.error_code), refused.node_id, refused.error_message) == (ErrorCode.INVALID_REQUEST, -1, WHY)
    assert "no consumer groups" in WHY and "assign partitions" in WHY


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, version) for key in MEMBER_APIS for version in range(API_TABLE[key].version_min, API_TABLE[key].version_max + 1)],
)
def test_what_a_member_asks_for_is_refused_in_every_version(cluster: Cluster, api_key: ApiKey, version: int) -> None:
    request = _member_request(api_key, version)
    topics = getattr(request, "topics", ())
    answer = cluster.ask(cluster.leader(), api_key, request, version=version)
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=7, client_id="c")
    frame = b"".join(bytes(part) for part in encode_response(header, answer))
    assert decode_response(api_key, version, bytearray(frame[4:]))[1] == answer
    if topics:
        (topic,) = answer.topics
        (partition,) = topic.partitions
        assert (topic.name, partition.partition_index, int(partition.error_code)) == ("t", 3, NO_GROUPS)
    else:
        assert int(answer.error_code) == NO_GROUPS


def _member_request(api_key: ApiKey, version: int, group: str = "g") -> Any:
    package, name = MEMBER_APIS[api_key]
    module = importlib.import_module(f"kio.schema.{package}.v{version}.request")
    topics: tuple[Any, ...] = ()
    if api_key is ApiKey.OFFSET_COMMIT:
        part = _made(
            module,
            "OffsetCommitRequestPartition",
            partition_index=3,
            committed_offset=9,
            committed_metadata=None,
            commit_timestamp=0,
        )
        topics = (module.OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    elif api_key is ApiKey.TXN_OFFSET_COMMIT:
        part = _made(module, "TxnOffsetCommitRequestPartition", partition_index=3, committed_offset=9, committed_metadata=None)
        topics = (module.TxnOffsetCommitRequestTopic(name="t", partitions=(part,)),)
    elif api_key is ApiKey.OFFSET_FETCH:
        topics = (module.OffsetFetchRequestTopic(name="t", partition_indexes=(3,)),)
    return _made(
        module,
        name,
        group_id=group,
        transactional_id="tx",
        producer_id=1,
        producer_epoch=0,
        member_id="m",
        generation_id=1,
        generation_id_or_member_epoch=1,
        session_timeout=timedelta(seconds=1),
        rebalance_timeout=timedelta(seconds=1),
        retention_time=timedelta(seconds=1),
        protocol_type="consumer",
        protocol_name="range",
        protocols=(),
        assignments=(),
        members=(),
        topics=topics,
        require_stable=False,
    )


WHATS = {
    ApiKey.JOIN_GROUP: "let a consumer join a group",
    ApiKey.SYNC_GROUP: "serve a member of a group",
    ApiKey.HEARTBEAT: "serve a member of a group",
    ApiKey.LEAVE_GROUP: "serve a member of a group",
    ApiKey.OFFSET_COMMIT: "keep the offsets of a group",
    ApiKey.OFFSET_FETCH: "tell the offsets of a group",
    ApiKey.ADD_OFFSETS_TO_TXN: "keep the offsets of a group",
    ApiKey.TXN_OFFSET_COMMIT: "keep the offsets of a group",
}


@pytest.mark.parametrize("api_key", MEMBER_APIS)
def test_the_node_says_once_what_it_refused_to_whom_and_why(api_key: ApiKey) -> None:
    """The answers have no room for it. A consumer that commits comes again every five seconds."""
    cluster = Cluster(1)
    node, told = cluster.leader(), []
    node.refused_for_good.listeners.append(told.append)
    version = API_TABLE[api_key].version_max
    for _ in range(3):
        for group in ("billing", "audit"):
            cluster.ask(node, api_key, _member_request(api_key, version, group), version=version)
    assert [(each.kind.what, each.subject, each.why) for each in told] == [
        (WHATS[api_key], "billing", WHY),
        (WHATS[api_key], "audit", WHY),
    ]
    assert {each.client for each in told} == {cluster.client}


@pytest.mark.parametrize("version", [3, 6])
def test_the_node_says_once_which_share_group_it_refused(version: int) -> None:
    cluster = Cluster(1)
    told: list[Any] = []
    cluster.leader().refused_for_good.listeners.append(told.append)
    for _ in range(2):
        _find_coordinator(cluster, version, SHARE)
    _find_coordinator(cluster, version, GROUP)
    assert [(each.kind.subject, each.subject) for each in told] == [("group", "g")]
