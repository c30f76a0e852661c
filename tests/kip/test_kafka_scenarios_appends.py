"""Kafka's own scenarios, by the names of its tests (4.3.1): appends, and fetches as the driver answers them.

Kafka gathers appends of several threads in a BatchAccumulator and drains it after a linger time. Here one thread takes requests
and ends its turn with one append per group: each docstring names Kafka's test and says what of it is left in that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raftkit.replica import Replica
from raftlake.errors import ErrorCode, InvariantViolation
from raftlake.ports.driver import BatchSpan, PeerConnection
from raftlake.ports.peer_rpcs import ControlRpc, FetchReply, FetchRpc, GroupId, PeerMessage
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse, VoteRequest
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication.fetcher import cut_into_batches
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.batches import decode_records, iterate_headers
from replica_cluster import Cluster, batch, produce_request


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def produced(answers: list[Any]) -> list[tuple[ErrorCode, int]]:
    results = [answer.topics[0].partitions[0] for answer in answers]
    return [(result.error, result.base_offset) for result in results]


def counted_appends(node: ReplicaNode, group: GroupId) -> list[int]:
    """The number of batches of each write to the group's log from now on."""
    writes: list[int] = []
    log = node.partitions[group].log
    append = log.append

    def counting(chunks: Any, spans: Any) -> Sequence[Offset]:
        writes.append(len(spans))
        return append(chunks, spans)

    log.append = counting  # type: ignore[method-assign]
    return writes


def fetch_round(core: Any, group: GroupId, *, offset: int, epoch: int, wait_ms: int = 500, size_max: int = 1 << 20) -> FetchRpc:
    """Replica 9 fetches one group without a session, as Kafka's own Raft does."""
    body = FetchRequest(
        replica=ReplicaKey(NodeId(9)),
        leader_epoch=core.epoch,
        fetch_offset=Offset(offset),
        last_fetched_epoch=Epoch(epoch),
        high_watermark=Offset(2**62),
    )
    return FetchRpc(
        cluster_id=None,
        replica_id=NodeId(9),
        session_id=0,
        session_epoch=-1,
        wait_ms_max=wait_ms,
        size_max=size_max,
        messages=(PeerMessage(group, body),),
    )


def ask(cluster: Cluster, node: ReplicaNode, rpc: FetchRpc) -> list[FetchReply]:
    replies: list[FetchReply] = []
    node.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    cluster.run(1)
    return replies


# --- requests -------------------------------------------------------------------------------------------------------


def test_purgatory_fetch_timeout(cluster: Cluster) -> None:
    """KafkaRaftClientTest.testPurgatoryFetchTimeout: nothing came, so after its wait the fetch is answered, without records."""
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    core = leader.partitions[group].core
    cluster.run(1_000)
    replies = ask(cluster, leader, fetch_round(core, group, offset=core.log_end, epoch=core.epoch))
    cluster.run(498)
    assert replies == []
    cluster.run(5, until=lambda: bool(replies))
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert (message.body.error, message.body.batches) == (ErrorCode.NONE, ())
    assert message.body.leader_id == leader.config.node_id


def test_a_negative_wait_is_none_at_all(cluster: Cluster) -> None:
    """KafkaRaftClientTest.testInvalidFetchRequest: Kafka refuses a negative wait as INVALID_REQUEST; ours does not wait."""
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    core = leader.partitions[group].core
    cluster.run(1_000)
    replies = ask(cluster, leader, fetch_round(core, group, offset=core.log_end, epoch=core.epoch, wait_ms=-1))
    assert [reply.error for reply in replies] == [ErrorCode.NONE]


@pytest.mark.parametrize(("size_max", "batches"), [(1, 1), (1 << 20, 3)])
def test_fetch_max_bytes_always_returns_at_least_one_batch(cluster: Cluster, size_max: int, batches: int) -> None:
    """KafkaRaftClientFetchTest.testFetchMaxBytesAlwaysReturnsAtLeastOneBatch,
    KafkaRaftClientFetchTest.testFetchMaxBytesAlwaysReturnsAllBatchesForLargeMax
    """
    (group,) = cluster.create_topic("t")
    for value in (b"aaa", b"bbb"):
        cluster.produce(group, batch(value))
    leader = cluster.leader(group)
    replies = ask(cluster, leader, fetch_round(leader.partitions[group].core, group, offset=0, epoch=0, size_max=size_max))
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert len(cut_into_batches(message.body).batches) == batches


@pytest.mark.parametrize(("claimed", "is_refused"), [("own", False), (None, False), ("", True), ("invalid-uuid", True)])
def test_vote_request_cluster_id_validation(cluster: Cluster, claimed: str | None, is_refused: bool) -> None:
    """KafkaRaftClientTest.testVoteRequestClusterIdValidation"""
    cluster.run(3_000)
    leader = cluster.leader()
    core = leader.partitions[METADATA_GROUP].core
    vote = VoteRequest(
        candidate=ReplicaKey(core.other_voters[0]),
        epoch=core.epoch,
        log_end=OffsetAndEpoch(Offset(0), Epoch(0)),
        pre_vote=False,
    )
    cluster_id = leader.cluster_id if claimed == "own" else claimed
    replies: list[Any] = []
    rpc = ControlRpc(cluster_id=cluster_id, messages=(PeerMessage(METADATA_GROUP, vote),))
    leader.receive(PeerConnection(), rpc, replies.append)
    cluster.run(1)
    assert replies[0].error is (ErrorCode.INCONSISTENT_CLUSTER_ID if is_refused else ErrorCode.NONE)
    if not is_refused:
        (answer,) = replies[0].messages
        assert (answer.body.vote_granted, answer.body.leader_id) == (False, leader.config.node_id)


# --- leadership lost, leadership won --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["follower", "voted", "unattached"])
def test_accumulator_cleared_after_losing_leadership(cluster: Cluster, how: str) -> None:
    """KafkaRaftClientTest.testAccumulatorClearedAfterBecomingFollower,
    KafkaRaftClientTest.testAccumulatorClearedAfterBecomingVoted,
    KafkaRaftClientTest.testAccumulatorClearedAfterBecomingUnattached: what waits for the end of the turn is refused,
    not kept.
    """
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(500)
    core = leader.partitions[group].core
    end, epoch, other = core.log_end, Epoch(core.epoch + 1), leader.partitions[group].core.other_voters[0]
    last = OffsetAndEpoch(end if how == "voted" else Offset(0), core.history.last_epoch if how == "voted" else Epoch(0))
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"a")))
    body: BeginQuorumEpochRequest | VoteRequest
    if how == "follower":
        body = BeginQuorumEpochRequest(leader_id=other, leader_epoch=epoch)
    else:
        body = VoteRequest(candidate=ReplicaKey(other), epoch=epoch, log_end=last, pre_vote=False)
    rpc = ControlRpc(cluster_id=None, messages=(PeerMessage(group, body),))
    leader.receive(PeerConnection(), rpc, lambda reply: None)
    cluster.run(0)
    assert core.role_name == ("Follower" if how == "follower" else "Unattached")
    assert (core.voted_key is not None) == (how == "voted")
    assert produced(answers) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert core.log_end == end


@pytest.mark.parametrize("log", [((), 0), (((1, 0), (2, 6)), 9)], ids=["empty log", "with records"])
def test_handle_leader_change_fires_after_listener_reaches_epoch_start_offset(log: Any) -> None:
    """KafkaRaftClientTest.testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffset,
    KafkaRaftClientTest.testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffsetOnEmptyLog
    """
    replica = Replica.leader(epoch=5, voters=(1, 2), log=log)
    start = log[1]
    assert not replica.core.is_serving_leader
    replica.fetch(2, *((3, 1) if start else (0, 0)))
    assert (replica.core.is_serving_leader, replica.core.high_watermark) == (False, 0)
    replica.fetch(2, start + 1, 5)
    assert (replica.core.is_serving_leader, replica.core.high_watermark) == (True, start + 1)


def test_the_node_serves_only_what_it_has_applied(cluster: Cluster) -> None:
    """KafkaRaftClientTest.testHandleLeaderChangeFiresAfterListenerReachesEpochStartOffset: the core may know the high watermark
    before the node has applied up to it; clients see the node's.
    """
    (group,) = cluster.create_topic("t")
    partition = cluster.leader(group).partitions[group]
    assert partition.is_serving
    partition.high_watermark = partition.core.epoch_start_offset
    assert partition.core.is_serving_leader
    assert not partition.is_serving


# --- J. gathering appends -------------------------------------------------------------------------------------------


def test_appends_of_a_turn_are_one_write(cluster: Cluster) -> None:
    """BatchAccumulatorTest.testLingerBeginsOnFirstWrite, BatchAccumulatorTest.testSingleBatchAccumulation: there is no
    linger time; all that arrives before the turn ends is one append and one write.
    """
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(500)
    writes = counted_appends(leader, group)
    sent = [cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(bytes([value])))) for value in range(5)]
    cluster.run(100, until=lambda: all(sent))
    assert writes == [5]
    assert [produced(answers) for answers in sent] == [[(ErrorCode.NONE, 1 + value)] for value in range(5)]


def test_nothing_to_append_is_no_append(cluster: Cluster) -> None:
    """BatchAccumulatorTest.testLingerIgnoredIfAccumulatorEmpty, BatchAccumulatorTest.testCloseWhenEmpty"""
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(500)
    writes = counted_appends(leader, group)
    for _ in range(50):
        leader.engine.begin_input()
        leader.engine.request_turn()
        cluster.run(10)
    assert writes == []


def test_a_large_turn_keeps_its_batches_apart(cluster: Cluster) -> None:
    """BatchAccumulatorTest.testMultipleBatchAccumulation: requests are not merged into batches of a largest size; each
    keeps the batches of its producer, in the order of arrival.
    """
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    sent = [
        cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"x" * size, b"y")))
        for size in (1, 100_000, 10, 50_000)
    ]
    cluster.run(100, until=lambda: all(sent))
    log = leader.partitions[group].log
    written = log.read(Offset(1), log.end_offset, 1 << 20)
    assert [header.base_offset for header in iterate_headers(written)] == [1, 3, 5, 7]
    assert [len(record.value or b"") for record in decode_records(written)] == [1, 1, 100_000, 1, 10, 1, 50_000, 1]


def test_appends_that_an_answer_brings_about_are_not_lost(cluster: Cluster) -> None:
    """BatchAccumulatorTest.testDrainDoesNotBlockWithConcurrentAppend: a client that sends the next request from within
    the answer to the last one, in the middle of a turn, is served by the same turn or the next.
    """
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    offsets: list[int] = []

    def send_next(answer: Any) -> None:
        offsets.append(answer.topics[0].partitions[0].base_offset)
        if len(offsets) < 20:
            send()

    def send() -> None:
        request = produce_request(group, batch(b"next"))
        leader.handle(RequestHeader(ApiKey.PRODUCE, 9, 1, "test"), request, ClientContext("test", "127.0.0.1"), send_next)

    send()
    cluster.run(1_000, until=lambda: len(offsets) == 20)
    assert offsets == list(range(1, 21))


def test_the_leader_change_comes_before_appends_of_its_epoch() -> None:
    """BatchAccumulatorTest.testForceDrainBeforeAppendLeaderChangeMessage,
    BatchAccumulatorTest.testLeaderChangeMessageWritten: the first record of an epoch is its LeaderChange, whatever
    waits.
    """
    replica = Replica.candidate(epoch=6, log=(((1, 0),), 4))
    replica.answer_vote(2, granted=True)
    (change,) = replica.took(do.AppendLeaderChange)
    replica.append(3)
    (append,) = replica.took(do.AppendRecords)
    assert (change.offset, change.epoch) == (4, 6)
    assert (append.base_offset, append.epoch) == (5, 6)


@pytest.mark.parametrize(("base_offset", "epoch"), [(5, 6), (3, 6), (4, 0)])
def test_invalid_control_record_offset_and_epoch(cluster: Cluster, base_offset: int, epoch: int) -> None:
    """BatchAccumulatorTest.testInvalidControlRecordOffset, BatchAccumulatorTest.testInvalidControlRecordEpoch: a log
    takes a batch only at its end, and no epoch that goes back.
    """
    (group,) = cluster.create_topic("t")
    cluster.produce(group, batch(b"a", b"b", b"c"))
    log = cluster.leader(group).partitions[group].log
    assert log.end_offset == 4
    raw = batch(b"x", base_offset=base_offset, leader_epoch=epoch)
    with pytest.raises(InvariantViolation):
        log.append([raw], [BatchSpan(base_offset, base_offset + 1, epoch, 1, len(raw))])
    assert log.end_offset == 4


def test_append_failed_with_not_leader(cluster: Cluster) -> None:
    """KafkaRaftClientTest.testAppendFailedWithNotLeaderException, and for the core, which must not be asked at all,
    KafkaRaftClientTest.testAppendFailedWithFencedEpoch: a Produce names no epoch.
    """
    (group,) = cluster.create_topic("t")
    answer = cluster.produce(group, batch(b"x"), node=cluster.followers(group)[0])
    assert (answer.error, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    with pytest.raises(InvariantViolation):
        Replica.follower(epoch=6).step(on.AppendRequested(record_counts=(1,), payload=None))


def test_append_failed_with_record_batch_too_large(cluster: Cluster) -> None:
    """KafkaRaftClientTest.testAppendFailedWithRecordBatchTooLargeException"""
    (group,) = cluster.create_topic("t")
    end = cluster.leader(group).partitions[group].core.log_end
    result = cluster.produce(group, batch(bytes(cluster.leader(group).config.message_bytes_max)))
    assert result.error is ErrorCode.MESSAGE_TOO_LARGE
    assert cluster.leader(group).partitions[group].core.log_end == end
