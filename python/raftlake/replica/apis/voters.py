"""AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82) of KIP-853: an operator, or a node, changes who votes.

They are about the quorum's own log; the other groups follow by themselves. Owns the check of the cluster id and the wire's
forms; everything else is decided by the core. A node that does not lead says so, as Kafka's do: who asks knows from Metadata or
DescribeCluster where the leader is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import PeerReply, VoterReply, VoterRpc
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raftlake.raft.types import NO_LEADER, DirectoryId, Epoch, NodeId, ReplicaKey, VoterEndpoint
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.config import ClientContext
from raftlake.replica.refused_for_good import VOTERS
from raftlake.replica.services import Services
from raftlake.replica.voters.changes import Answered
from raftlake.wire.api import ApiKey
from raftlake.wire.ids import id_from_kio


def add_raft_voter(node: Services, request: Any, client: ClientContext | None, reply: Reply) -> None:
    """Answered when the new set is committed, or appended where `ack_when_committed` is false."""
    waits = getattr(request, "ack_when_committed", True)
    change = AddVoter(voter=_voter(request), endpoints=_listeners(request), ack_when_committed=waits)
    _ask(node, request, change, client, _answerer(request, "AddRaftVoterResponse", reply))


def remove_raft_voter(node: Services, request: Any, client: ClientContext | None, reply: Reply) -> None:
    """Answered when the smaller set is committed."""
    _ask(node, request, RemoveVoter(voter=_voter(request)), client, _answerer(request, "RemoveRaftVoterResponse", reply))


def update_raft_voter(node: Services, request: Any, client: ClientContext | None, reply: Reply) -> None:
    """A voter tells where it is reached; the answer names the leader."""
    answers = Answers(request)
    feature = request.k_raft_version_feature

    def answer(result: AnswerVoterChange) -> None:
        endpoint = node.membership.endpoint(result.leader_id)
        leader = answers.make(
            "CurrentLeader",
            leader_id=result.leader_id,
            leader_epoch=result.leader_epoch,
            host="" if endpoint is None else endpoint.host,
            port=-1 if endpoint is None else endpoint.port,
        )
        reply(answers.make("UpdateRaftVoterResponse", error_code=kafka_error(result.error), current_leader=leader))

    change = UpdateVoter(
        voter=_voter(request),
        endpoints=_listeners(request),
        leader_epoch=Epoch(request.current_leader_epoch),
        kraft_versions=(feature.min_supported_version, feature.max_supported_version),
    )
    _ask(node, request, change, client, answer)


def change_for_peer(node: Services, rpc: VoterRpc, reply: Callable[[PeerReply], None]) -> None:
    """A node asks about its own vote."""
    request: Any = rpc.request
    handler = _HANDLERS[int(type(request).__api_key__)]
    handler(node, request, None, lambda response: reply(VoterReply(response=response)))


def _ask(node: Services, request: Any, change: VoterChange, client: ClientContext | None, reply: Answered) -> None:
    """`client` is None where a node asks. It tells its own log of the answer."""

    def answer(result: AnswerVoterChange) -> None:
        if client is not None:
            node.refused_for_good.note_error(VOTERS, str(change.voter.id), result.error, result.message, client)
        reply(result)

    if request.cluster_id is not None and node.engine.cluster_id not in (None, request.cluster_id):
        message = f"cluster id {request.cluster_id} is not that of this quorum, {node.engine.cluster_id}"
        answer(_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, message))
        return
    partition = node.quorum.partition
    if partition is None:
        answer(_refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node has not opened the quorum's log yet"))
        return
    if isinstance(change, AddVoter | UpdateVoter):
        node.voter_changes.admit(partition, change, answer)
    else:
        node.voter_changes.request(partition, change, answer)


def _refusal(error: ErrorCode, message: str) -> AnswerVoterChange:
    return AnswerVoterChange(request_id=-1, error=error, message=message, leader_id=NO_LEADER, leader_epoch=Epoch(-1))


def _answerer(request: Any, name: str, reply: Reply) -> Any:
    answers = Answers(request)

    def answer(result: AnswerVoterChange) -> None:
        reply(answers.make(name, error_code=kafka_error(result.error), error_message=result.message or None))

    return answer


def _voter(request: Any) -> ReplicaKey:
    return ReplicaKey(NodeId(request.voter_id), DirectoryId(id_from_kio(request.voter_directory_id)))


def _listeners(request: Any) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(each.name, each.host, each.port) for each in request.listeners)


_HANDLERS: dict[int, Callable[[Services, Any, ClientContext | None, Reply], None]] = {
    ApiKey.ADD_RAFT_VOTER: add_raft_voter,
    ApiKey.REMOVE_RAFT_VOTER: remove_raft_voter,
    ApiKey.UPDATE_RAFT_VOTER: update_raft_voter,
}
