"""The front and the client APIs over services that the test names: where a request goes, and what stays outside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, ORDERS, TWO, Ground, Noted
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.ports.driver import ListenerUse, Origin, PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    DescribeRpc,
    MarkersReply,
    MarkersRpc,
    ProposeReply,
    ProposeRpc,
    VoterRpc,
)
from raftlake.raft.events import PeerUnreachable
from raftlake.raft.types import Offset
from raftlake.replica.apis import Apis
from raftlake.replica.config import ClientContext
from raftlake.replica.front import Front
from raftlake.replica.names import Names
from raftlake.replica.quorum import Quorum
from raftlake.replica.services import Services
from raftlake.replica.voters.cluster_identity import ClusterIdentity
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.find_quorum import FindQuorumRequest
from raftlake.wire.topic_lists import TopicPartitions


def fronted(ground: Ground) -> tuple[Front, dict[str, Noted]]:
    noted: dict[str, Any] = {
        name: Noted()
        for name in ("apis", "control", "fetch_server", "fetchers", "kv", "marker_desk", "reads", "snapshot_transfer")
    }
    identity = ClusterIdentity(ground.engine, Quorum(ground.engine), Noted())  # type: ignore[arg-type]
    return Front(ground.engine, identity=identity, **noted), noted


def called(noted: dict[str, Noted]) -> list[str]:
    return [f"{name}.{method}" for name, service in noted.items() for method in service.names]


def test_an_rpc_of_another_cluster_reaches_no_service() -> None:
    ground = Ground(cluster_id="ours")
    front, noted = fronted(ground)
    replies: list[Any] = []
    for claimed in ("theirs", "ours", None):
        front.receive(PeerConnection(), ControlRpc(cluster_id=claimed, messages=()), replies.append)
        front.receive(PeerConnection(), MarkersRpc(cluster_id=claimed, replica_id=TWO, markers=()), replies.append)
    foreign = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert replies == [ControlReply(error=foreign), MarkersReply(error=foreign)]
    assert called(noted) == ["control.receive"] * 2 + ["marker_desk.receive"] * 2


def test_requests_that_nodes_pass_on_go_to_the_apis_and_commands_to_the_key_space() -> None:
    front, noted = fronted(Ground())
    connection = PeerConnection(listener=ListenerUse.CLIENTS)
    markers = MarkersRpc(cluster_id=None, replica_id=TWO, markers=())
    for rpc in (DescribeRpc(request=None), VoterRpc(request=None), ProposeRpc(batch=b"", source=TWO), markers):
        front.receive(connection, rpc, lambda reply: None)
    assert called(noted) == ["apis.describe_for_peer", "apis.change_for_peer", "kv.receive", "marker_desk.receive"]
    assert noted["kv"].calls[0][1][1] is Origin.CLIENT, "who says so at a listener of clients is none"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_node_whose_command_is_committed_is_brought_it_soon(error: ErrorCode) -> None:
    ground = Ground()
    front, noted = fronted(ground)
    answers: list[Any] = []
    front.receive(PeerConnection(), ProposeRpc(batch=b"", source=TWO), answers.append)
    ((_, (_, _, reply)),) = noted["kv"].calls
    assert not noted["fetch_server"].calls
    reply(ProposeReply(error=error, base_offset=Offset(5)))
    hastened = [("hasten", (ground.engine.config.quorum_group, TWO))]
    assert noted["fetch_server"].calls == (hastened if error is ErrorCode.NONE else [])
    assert answers == [ProposeReply(error=error, base_offset=Offset(5))]


def test_each_input_reads_the_clock_once_and_first() -> None:
    ground = Ground()
    front, noted = fronted(ground)
    ground.time.ms = 7
    front.handle(RequestHeader(ApiKey.METADATA, 0, 1, "test"), None, ClientContext("test", "h"), lambda answer: None)
    assert ground.engine.now_ms == 7 and called(noted) == ["apis.handle"]


def test_a_leader_minds_an_unreachable_peer_and_a_group_without_a_leader_does_not() -> None:
    stepped: list[Any] = []
    for ground in (Ground(), Ground(3)):
        partition = ground.host()
        ground.engine.step = lambda partition, event: stepped.append((partition, event))  # type: ignore[method-assign]
        fronted(ground)[0].peer_unreachable(TWO)
        if partition.core.is_leader:
            assert stepped == [(partition, PeerUnreachable(peer=TWO))]
    assert len(stepped) == 1


def test_groups_that_follow_an_unreachable_peer_are_to_hear_of_it_again_and_no_others() -> None:
    ground = Ground(3)
    front, noted = fronted(ground)
    followed = SimpleNamespace(group=ORDERS, core=SimpleNamespace(is_leader=False, leader_id=TWO))
    led = SimpleNamespace(group=METADATA_GROUP, core=SimpleNamespace(is_leader=True, leader_id=ME))
    ground.engine.partitions = {METADATA_GROUP: led, ORDERS: followed}  # type: ignore[dict-item]
    ground.engine.step = lambda partition, event: None  # type: ignore[method-assign]
    front.peer_unreachable(TWO)
    assert noted["fetchers"].calls == [("lose", (TWO, ORDERS))]


def test_a_broken_invariant_in_a_timer_ends_the_node() -> None:
    ground = Ground()
    front, _ = fronted(ground)

    def fail() -> None:
        raise InvariantViolation("a bug")

    ground.engine.timers.schedule(0, fail)
    front.on_deadline()
    assert isinstance(ground.engine.fatal, InvariantViolation)


def test_the_apis_need_of_a_node_no_more_than_its_named_services() -> None:
    """FindQuorum is answered from the names, the quorum and the engine: the other services are not touched."""
    ground = Ground()
    ground.lead()
    engine, unused = ground.engine, Noted()
    own: dict[str, Any] = {"engine": engine, "names": Names(engine.config), "quorum": Quorum(engine)}
    others = {name: unused for name in Services.__dataclass_fields__ if name not in own}
    answers: list[Any] = []
    request = FindQuorumRequest(
        cluster_id=None, topics=[TopicPartitions("__cluster_metadata", [0, 0]), TopicPartitions("t", [0])]
    )
    header = RequestHeader(ApiKey.FIND_QUORUM, 0, 1, "test")
    Apis(Services(**own, **others)).handle(header, request, ClientContext("test", "h"), answers.append)
    found = [[(part.error, part.leader_id) for part in topic.partitions] for topic in answers[0].topics]
    assert found == [[(ErrorCode.NONE, 1)], [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]]
    assert unused.calls == []
