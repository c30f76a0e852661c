"""The services between nodes, each alone on an engine: rounds out, rounds in, votes, and reads that wait for a proof."""

from __future__ import annotations

from typing import Any

from enginekit import ME, METADATA_GROUP, ORDERS, THREE, TWO, Ground, Noted
from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import ControlReply, ControlRpc, FetchReply, FetchRpc, GroupId, PeerMessage, ReadOffsetResult
from raftlake.raft import actions as do
from raftlake.raft.events import FailureReason, RequestFailed
from raftlake.raft.messages import FetchRequest, VoteRequest, VoteResponse
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.names import Names
from raftlake.replica.quorum import Quorum
from raftlake.replica.replication.control import ControlPlane
from raftlake.replica.replication.fetch_server import LEADERLESS_WAIT_MS, FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.replica.replication.proofs import AwaitedProofs
from raftlake.replica.replication.reads import ReadService


def fetching(offset: int, replica_id: NodeId = ME, epoch: int = 1) -> FetchRequest:
    return FetchRequest(
        replica=ReplicaKey(replica_id),
        leader_epoch=Epoch(epoch),
        fetch_offset=Offset(offset),
        last_fetched_epoch=Epoch(0),
        high_watermark=Offset(0),
    )


def server(ground: Ground, proofs: AwaitedProofs | None = None) -> FetchServer:
    engine = ground.engine
    disk = DiskWatch(engine, Quorum(engine))
    return FetchServer(engine, Names(engine.config), disk, Findings(engine), proofs or AwaitedProofs())


def round_of(*messages: PeerMessage, wait_ms: int = 500) -> FetchRpc:
    return FetchRpc(
        cluster_id=None, replica_id=TWO, session_id=0, session_epoch=0, wait_ms_max=wait_ms, size_max=1 << 20, messages=messages
    )


# --- proofs ---


def test_a_group_waits_for_a_proof_as_long_as_one_of_its_reads_does() -> None:
    proofs = AwaitedProofs()
    for group in (ORDERS, METADATA_GROUP, ORDERS):
        proofs.add(group)
    assert proofs.groups() == [ORDERS, METADATA_GROUP]
    proofs.remove(ORDERS)
    assert proofs.groups() == [ORDERS, METADATA_GROUP]
    proofs.remove(ORDERS)
    assert proofs.groups() == [METADATA_GROUP]
    proofs.drop(METADATA_GROUP)
    proofs.drop(ORDERS)
    assert proofs.groups() == []


# --- rounds out ---


def test_one_round_asks_one_peer_for_all_groups_and_one_group_asks_one_peer() -> None:
    ground = Ground(3)
    fetchers = Fetchers(ground.engine, DiskWatch(ground.engine, Quorum(ground.engine)))
    for group in (METADATA_GROUP, ORDERS):
        ground.host(group)
        fetchers.fetch(TWO, group, fetching(0))
    fetchers.fetch(THREE, ORDERS, fetching(0))
    assert fetchers.has_rounds
    fetchers.send_rounds()
    asked = {peer: [message.group for message in rpc.messages] for peer, rpc, _ in ground.wires.sent}  # type: ignore[union-attr]
    assert asked == {TWO: [METADATA_GROUP], THREE: [ORDERS]}
    assert not fetchers.has_rounds


def test_a_full_node_fetches_nothing_and_its_core_asks_again() -> None:
    ground = Ground(3)
    partition = ground.host()
    disk = DiskWatch(ground.engine, Quorum(ground.engine))
    fetchers, stepped = Fetchers(ground.engine, disk), []
    disk.is_full = True
    ground.engine.step = lambda partition, event: stepped.append(event)  # type: ignore[method-assign]
    fetchers.fetch(TWO, partition.group, fetching(0))
    fetchers.send_rounds()
    assert stepped == [RequestFailed(peer=TWO, request=fetching(0), reason=FailureReason.TIMED_OUT)]
    assert ground.wires.sent == []


# --- rounds in ---


def test_a_round_about_an_unknown_group_is_answered_a_little_later() -> None:
    ground = Ground(3)
    fetch_server, replies = server(ground), []
    fetch_server.receive(PeerConnection(), round_of(PeerMessage(ORDERS, fetching(0, TWO))), replies.append)
    ground.run(LEADERLESS_WAIT_MS - 1)
    fetch_server.send_answers()
    assert replies == [], "who asks without any pause would be a load"
    ground.run(1)
    assert fetch_server.has_answers
    fetch_server.send_answers()
    (reply,) = replies
    assert isinstance(reply, FetchReply)
    assert [message.body.error for message in reply.messages] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetch_server.answer_sequence == 1


def test_a_replica_gets_the_records_of_a_leader() -> None:
    ground = Ground()
    partition = ground.lead()
    ground.append(partition, b"one", b"two")
    fetch_server, replies = server(ground), []
    epoch = partition.core.epoch
    request = PeerMessage(METADATA_GROUP, fetching(0, TWO, epoch))
    fetch_server.receive(PeerConnection(), round_of(request), replies.append)
    (answer,) = [action for action in ground.perform(partition) if isinstance(action, do.AnswerFetch)]
    fetch_server.answer(METADATA_GROUP, answer)
    fetch_server.release()
    fetch_server.send_answers()
    (reply,) = replies
    body: Any = reply.messages[0].body
    assert body.error is ErrorCode.NONE and body.high_watermark == partition.high_watermark
    assert bytes(body.batches[0].payload) == partition.log.read(Offset(0), partition.log.end_offset, 1 << 20)


# --- votes ---


VOTE = do.SendRequest(
    destination=TWO,
    request=VoteRequest(candidate=ReplicaKey(TWO), epoch=Epoch(1), log_end=OffsetAndEpoch(Offset(0), Epoch(0)), pre_vote=True),
)


def test_the_votes_of_all_groups_travel_in_one_rpc_and_a_group_without_an_answer_asks_again() -> None:
    ground = Ground(3)
    control = ControlPlane(ground.engine, server(ground))
    for group in (METADATA_GROUP, ORDERS):
        ground.host(group)
        control.send(PeerMessage(group, VOTE.request), VOTE)
    control.send_all()
    ((peer, rpc, done),) = ground.wires.sent
    assert isinstance(rpc, ControlRpc)
    assert (peer, [message.group for message in rpc.messages]) == (TWO, [METADATA_GROUP, ORDERS])
    stepped: dict[GroupId, str] = {}
    ground.engine.step = lambda partition, event: stepped.update({partition.group: type(event).__name__})  # type: ignore[method-assign]
    granted = VoteResponse(error=ErrorCode.NONE, leader_id=NodeId(-1), leader_epoch=Epoch(0), vote_granted=True)
    done(ControlReply(error=ErrorCode.NONE, messages=(PeerMessage(METADATA_GROUP, granted),)))
    assert stepped == {METADATA_GROUP: "ResponseReceived", ORDERS: "RequestFailed"}


def test_a_request_is_answered_when_all_its_groups_are() -> None:
    ground = Ground(3)
    partition = ground.host()
    ground.perform(partition)
    control, replies = ControlPlane(ground.engine, server(ground)), []
    asked: list[object] = []
    ground.engine.confirm_peers = asked.append
    messages = tuple(PeerMessage(group, VOTE.request) for group in (METADATA_GROUP, ORDERS))
    control.receive(ControlRpc(cluster_id=None, messages=messages), replies.append)
    assert replies == [] and asked == [partition], "whether the leader was heard of decides about a pre-vote"
    (answer,) = [action for action in ground.perform(partition) if isinstance(action, do.Respond)]
    control.respond(answer)
    (reply,) = replies
    assert [message.group for message in reply.messages] == [METADATA_GROUP, ORDERS]
    assert reply.messages[1].body.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- reads ---


def test_a_leader_without_other_voters_proves_a_read_at_once() -> None:
    ground = Ground()
    partition, proofs = ground.lead(), AwaitedProofs()
    reads, results = ReadService(ground.engine, Names(ground.engine.config), server(ground, proofs), proofs), []
    reads.read(METADATA_GROUP, results.append)
    assert proofs.groups() == [METADATA_GROUP] and results == []
    for action in ground.perform(partition):
        assert isinstance(action, do.AnswerRead)
        reads.answered(action)
    (result,) = results
    assert isinstance(result, ReadOffsetResult)
    assert (result.error, result.applied_offset) == (ErrorCode.NONE, partition.high_watermark)
    assert proofs.groups() == []


def test_a_read_that_nobody_answers_ends_with_its_time_and_one_of_an_unknown_group_at_once() -> None:
    ground = Ground(3, read_timeout_ms=300)
    ground.host()
    names = Noted(why_unknown=ErrorCode.UNKNOWN_TOPIC_ID)
    proofs = AwaitedProofs()
    reads, results = ReadService(ground.engine, names, server(ground, proofs), proofs), []  # type: ignore[arg-type]
    reads.read(ORDERS, results.append)
    assert [result.error for result in results] == [ErrorCode.UNKNOWN_TOPIC_ID]
    reads.read(METADATA_GROUP, results.append)
    ground.run(299)
    assert len(results) == 1
    ground.run(1)
    assert results[1].error is ErrorCode.REQUEST_TIMED_OUT
