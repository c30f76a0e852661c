"""Vote, BeginQuorumEpoch and EndQuorumEpoch between nodes: what the cores of one turn say to one peer travels in one RPC.

Out: requests are collected during the turn and sent by kind and destination. In: each group's core answers its part;
the RPC is answered when all parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
    GroupId,
    MarkersReply,
    MarkersRpc,
    PeerMessage,
    PeerReply,
    PeerRpc,
    ReadOffsetReply,
    ReadOffsetRpc,
)
from raftlake.raft.actions import Respond, SendRequest
from raftlake.raft.events import FailureReason, RequestFailed, RequestReceived, ResponseReceived
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import NO_LEADER, Epoch, NodeId
from raftlake.replica.engine import Engine
from raftlake.replica.replication.fetch_server import FetchServer

#: Another cluster's requests are refused at the top, before any group sees them.
FOREIGN: Mapping[type[PeerRpc], PeerReply] = {
    rpc: reply(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
    for rpc, reply in (
        (ControlRpc, ControlReply),
        (FetchRpc, FetchReply),
        (FetchSnapshotRpc, FetchSnapshotReply),
        (ReadOffsetRpc, ReadOffsetReply),
        (MarkersRpc, MarkersReply),
    )
}


class _Collector:
    """The parts of one incoming RPC, answered in any order, replied to in the order in which they came."""

    __slots__ = ("_missing", "_parts", "_reply")

    def __init__(self, size: int, reply: Callable[[PeerReply], None]) -> None:
        self._parts: list[PeerMessage | None] = [None] * size
        self._missing = size
        self._reply = reply

    def put(self, index: int, message: PeerMessage) -> None:
        assert self._parts[index] is None
        self._parts[index] = message
        self._missing -= 1
        if self._missing == 0:
            self._reply(ControlReply(error=ErrorCode.NONE, messages=tuple(part for part in self._parts if part)))


class ControlPlane:
    def __init__(self, engine: Engine, fetch_server: FetchServer) -> None:
        self._engine = engine
        self._fetch_server = fetch_server
        self._outbox: dict[tuple[NodeId, type[Request]], list[PeerMessage]] = {}
        self._request_counter = 0
        #: Requests that a core has not answered yet: where its part of the reply belongs.
        self._unanswered: dict[int, tuple[_Collector, int, PeerMessage]] = {}
        #: When each peer last said that it gives up leading a group: as a rule because it stops.
        self._resigned_at_ms: dict[NodeId, int] = {}

    # --- in ---

    def receive(self, rpc: ControlRpc, reply: Callable[[PeerReply], None]) -> None:
        if not rpc.messages:
            reply(ControlReply(error=ErrorCode.NONE))
            return
        collector = _Collector(len(rpc.messages), reply)
        for index, message in enumerate(rpc.messages):
            request = message.body
            assert isinstance(request, VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest)
            if isinstance(request, EndQuorumEpochRequest) and request.leader_id in self._engine.config.voters:
                self._resigned_at_ms[request.leader_id] = self._engine.now_ms
            partition = self._engine.partitions.get(message.group)
            if partition is None:
                refusal = refuse(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                collector.put(index, PeerMessage(message.group, refusal))
                continue
            self._request_counter += 1
            self._unanswered[self._request_counter] = (collector, index, message)
            if isinstance(request, VoteRequest):
                # Whether the leader has been heard of lately decides about pre-votes.
                self._engine.confirm_peers(partition)
            self._engine.step(partition, RequestReceived(request_id=self._request_counter, request=request))

    def resigned_since(self, since_ms: int) -> list[NodeId]:
        """The peers that gave up leading at that time or later."""
        return [peer for peer, at_ms in self._resigned_at_ms.items() if at_ms >= since_ms]

    def respond(self, action: Respond) -> None:
        collector, index, message = self._unanswered.pop(action.request_id)
        collector.put(index, PeerMessage(message.group, action.response))

    def refuse_all(self, group: GroupId) -> None:
        """The group is gone, or begins anew: answer for it what it was asked and has not answered."""
        pending = [number for number, (_, _, message) in self._unanswered.items() if message.group == group]
        for number in pending:
            collector, index, message = self._unanswered.pop(number)
            assert isinstance(message.body, VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest)
            collector.put(index, PeerMessage(group, refuse(message.body, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))

    # --- out ---

    def send(self, message: PeerMessage, action: SendRequest) -> None:
        self._outbox.setdefault((action.destination, type(action.request)), []).append(message)

    def send_all(self) -> None:
        """End of turn."""
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, {}
        for (peer, _kind), messages in outbox.items():
            sent = tuple(messages)
            rpc = ControlRpc(cluster_id=self._engine.cluster_id, messages=sent)
            self._engine.network.send(peer, rpc, self._reply_handler(peer, sent))

    def _reply_handler(self, peer: NodeId, sent: tuple[PeerMessage, ...]) -> Callable[[PeerReply | FailureReason], None]:
        def on_reply(reply: PeerReply | FailureReason) -> None:
            self._engine.begin_input()
            answers: dict[object, Response] = {}
            reason = FailureReason.TIMED_OUT
            if isinstance(reply, ControlReply):
                answers = {part.group: part.body for part in reply.messages}  # type: ignore[misc]
                if reply.error is ErrorCode.UNSUPPORTED_VERSION:
                    reason = FailureReason.UNSUPPORTED_VERSION
            elif isinstance(reply, FailureReason):
                reason = reply
            for message in sent:
                partition = self._engine.partitions.get(message.group)
                if partition is None:
                    continue
                request: Request = message.body  # type: ignore[assignment]
                answer = answers.get(message.group)
                if answer is None or answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    # A peer that has not created the group yet is asked again, like one that is down.
                    self._engine.step(partition, RequestFailed(peer=peer, request=request, reason=reason))
                    continue
                self._engine.step(partition, ResponseReceived(source=peer, request=request, response=answer))
                if isinstance(request, BeginQuorumEpochRequest):
                    # The peer wants to fetch this group now: do not make it wait for the round that it left here before.
                    self._fetch_server.release_replica(peer)

        return on_reply


def refuse(request: Request, error: ErrorCode) -> Response:
    """An answer that carries nothing but an error."""
    match request:
        case VoteRequest():
            return VoteResponse(error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1), vote_granted=False)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1))
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1))
        case FetchRequest():
            return FetchResponse(error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1))
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1))
