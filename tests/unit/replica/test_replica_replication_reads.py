"""Linearizable reads (KIP-650 ReadOffset) at the leader and at followers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from raftlake.errors import DiskFull, ErrorCode
from raftlake.kv.commands import put
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    FetchReply,
    FetchRpc,
    PeerMessage,
    PeerReply,
    PeerRpc,
    ReadOffsetReply,
    ReadOffsetResult,
    ReadOffsetRpc,
)
from raftlake.raft.events import FailureReason
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Epoch, NodeId, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication import reads
from replica_cluster import Cluster, batch


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


def _read(cluster: Cluster, node: object, group: object) -> ReadOffsetResult:
    results: list[ReadOffsetResult] = []
    node.engine.begin_input()  # type: ignore[attr-defined]
    node.reads.read(group, results.append)  # type: ignore[attr-defined]
    cluster.run(20_000, until=lambda: bool(results))
    return results[0]


def test_a_linearizable_read_covers_every_acknowledged_append_wherever_it_is_asked(cluster: Cluster) -> None:
    (group,) = cluster.create_topic("linearizable")
    for node in cluster.nodes.values():
        acknowledged = cluster.produce(group, batch(b"x")).base_offset
        result = _read(cluster, node, group)
        assert result.error is ErrorCode.NONE
        assert result.applied_offset > acknowledged
        assert node.partitions[group].high_watermark >= result.applied_offset


def test_reads_at_one_node_share_rounds() -> None:
    cluster = Cluster()
    follower = cluster.followers()[0]
    sent: list[object] = []
    send = follower.engine.network.send
    follower.engine.network.send = lambda peer, rpc, done: (  # type: ignore[method-assign]
        sent.append(rpc) if isinstance(rpc, ReadOffsetRpc) else None,
        send(peer, rpc, done),
    )[1]
    results: list[ReadOffsetResult] = []
    for _ in range(64):
        follower.kv.read(True, results.append)
    cluster.run(1000, until=lambda: len(results) == 64)
    assert len(sent) == 2, "one for the first, one for all that gathered behind it"


@pytest.mark.parametrize("asked_before", [1, 2])
def test_a_read_whose_group_was_closed_meanwhile_waits_until_it_is_open(
    monkeypatch: pytest.MonkeyPatch, asked_before: int
) -> None:
    """The proven offset came while there was no room to open the metadata log again. The read was answered from what the node
    had applied, without an acknowledged write."""
    cluster = Cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    leader.kv.propose(put("k", b"old"), lambda outcome: None)
    cluster.run(3_000, until=lambda: value_at(follower) == b"old")
    asked: list[Callable[[], None]] = []
    send = follower.engine.network.send

    def holding(peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        if isinstance(rpc, ReadOffsetRpc):
            asked.append(partial(send, peer, rpc, done))
        else:
            send(peer, rpc, done)

    monkeypatch.setattr(follower.engine.network, "send", holding)
    leader.kv.propose(put("k", b"new"), lambda outcome: None)
    cluster.run(500, until=lambda: value_at(leader) == b"new")
    assert value_at(follower) == b"old"
    seen: list[tuple[ErrorCode, bytes | None]] = []
    for _ in range(asked_before):
        follower.kv.read(True, lambda result: seen.append((result.error, value_at(follower))))
    with monkeypatch.context() as full:

        def no_room(group: object) -> None:
            raise DiskFull("no space left")

        full.setattr(follower.engine.logs, "open", no_room)
        follower.turn._restarts.without_room(follower.partitions[METADATA_GROUP])
        asked.pop(0)()
        cluster.run(300)
        assert seen == [] and METADATA_GROUP not in follower.partitions
    monkeypatch.setattr(follower.engine.network, "send", send)
    for ask in asked:
        ask()
    cluster.run(5_000, until=lambda: len(seen) == asked_before)
    assert seen == [(ErrorCode.NONE, b"new")] * asked_before


@pytest.mark.parametrize("is_closed_for_long", [False, True])
def test_a_read_that_waits_for_the_watermark_goes_on_when_its_group_is_opened_anew(
    monkeypatch: pytest.MonkeyPatch, *, is_closed_for_long: bool
) -> None:
    """The log that told of high watermarks was closed: the read ended with its time, though the node had the offset before."""
    cluster = Cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    leader.kv.propose(put("k", b"old"), lambda outcome: None)
    cluster.run(3_000, until=lambda: value_at(follower) == b"old")
    held: list[Callable[[], None]] = []
    holds = [True]
    send = follower.engine.network.send

    def holding(peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        def answered(reply: PeerReply | FailureReason) -> None:
            held.append(partial(done, reply)) if holds[0] else done(reply)

        send(peer, rpc, answered if isinstance(rpc, FetchRpc) else done)

    monkeypatch.setattr(follower.engine.network, "send", holding)
    cluster.run(600)
    leader.kv.propose(put("k", b"new"), lambda outcome: None)
    cluster.run(500, until=lambda: value_at(leader) == b"new")
    seen: list[tuple[ErrorCode, bytes | None]] = []
    began_ms = follower.engine.clock.now_ms()
    follower.kv.read(True, lambda result: seen.append((result.error, value_at(follower))))
    cluster.run(50)
    assert value_at(follower) == b"old" and not seen, "it knows the offset, and waits for it"
    with monkeypatch.context() as full:

        def no_room(group: object) -> None:
            raise DiskFull("no space left")

        if is_closed_for_long:
            full.setattr(follower.engine.logs, "open", no_room)
        follower.turn._restarts.without_room(follower.partitions[METADATA_GROUP])
        cluster.run(100)
    holds[0] = False
    for answer in held:
        answer()
    cluster.run(9_000, until=lambda: bool(seen))
    assert seen == [(ErrorCode.NONE, b"new")]
    assert follower.engine.clock.now_ms() - began_ms < follower.engine.config.read_timeout_ms


def test_reads_whose_group_is_closed_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a crowd asked for all of it, again and again: the node answered nothing else for seconds."""
    cluster = Cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    cluster.run(600)
    send = follower.engine.network.send
    monkeypatch.setattr(
        follower.engine.network, "send", lambda peer, rpc, done: None if isinstance(rpc, FetchRpc) else send(peer, rpc, done)
    )
    leader.kv.propose(put("k", b"new"), lambda outcome: None)
    cluster.run(100)
    seen: list[object] = []
    for _ in range(20):
        follower.kv.read(True, seen.append)
    cluster.run(50)
    assert not seen, "they know the offset, and wait for it"
    asked = [0]
    honest = reads.GroupReads._ask

    def ask(group_reads: reads.GroupReads) -> None:
        asked[0] += 1
        honest(group_reads)

    def no_room(group: object) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr(reads.GroupReads, "_ask", ask)
    monkeypatch.setattr(follower.engine.logs, "open", no_room)
    follower.turn._restarts.without_room(follower.partitions[METADATA_GROUP])
    cluster.run(1_000)
    pauses = 1_000 / follower.config.raft.retry_backoff_ms
    assert not seen and pauses / 2 < asked[0] <= pauses + 2


def test_a_read_that_comes_in_the_pause_is_asked_for_with_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.followers()[0]
    groups = [node.partitions.pop(METADATA_GROUP)]
    asked = [0]
    honest = reads.GroupReads._ask

    def ask(group_reads: reads.GroupReads) -> None:
        asked[0] += 1
        honest(group_reads)

    monkeypatch.setattr(reads.GroupReads, "_ask", ask)
    group_reads = reads.GroupReads(node.engine, METADATA_GROUP, node.reads.ask_core)
    results: list[ReadOffsetResult] = []
    node.engine.begin_input()
    for _ in range(20):
        group_reads.read(results.append, local=False)
    assert asked[0] == 1
    node.partitions[METADATA_GROUP] = groups.pop()
    cluster.run(5_000, until=lambda: len(results) == 20)
    assert {result.error for result in results} == {ErrorCode.NONE}


def value_at(node: ReplicaNode) -> bytes | None:
    entry = node.kv.machine.get("k")
    return None if entry is None else entry.value


def test_a_leader_cut_off_from_the_majority_never_answers_a_read() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    old = cluster.leader(group)
    me = old.config.node_id
    cluster.cut(me)
    answers: list[ReadOffsetReply] = []
    rpc = ReadOffsetRpc(cluster_id=None, read_timestamp_ms=0, groups=(group,))
    old.receive(PeerConnection(), rpc, answers.append)  # type: ignore[arg-type]
    cluster.run(9_000)
    assert not answers
    cluster.run(3_000, until=lambda: bool(answers))
    assert answers[0].results[0].error is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("epochs_ahead", [0, 1])
def test_a_round_with_a_fetch_of_a_later_epoch_proves_no_leader(epochs_ahead: int) -> None:
    """Simulator, seeds 797008267 and 797011128: a leader that had been replaced answered a read. A voter that had elected
    another asked it for records too, in the session of before. The refused Fetch counted as one that stood."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    old = cluster.leader(group)
    me, core = old.config.node_id, old.partitions[group].core
    cluster.run(100)
    cluster.cut(me)
    voter, connection = next(other for other in cluster.voters if other != me), PeerConnection()

    def fetch(session_id: int, session_epoch: int, epoch: int) -> FetchReply:
        replies: list[FetchReply] = []
        request = FetchRequest(
            replica=ReplicaKey(voter),
            leader_epoch=Epoch(epoch),
            fetch_offset=core.log_end,
            last_fetched_epoch=core.epoch,
            high_watermark=core.high_watermark,
        )
        rpc = FetchRpc(
            cluster_id=None,
            replica_id=voter,
            session_id=session_id,
            session_epoch=session_epoch,
            wait_ms_max=0,
            size_max=1 << 20,
            messages=(PeerMessage(group, request),),
        )
        old.receive(connection, rpc, replies.append)  # type: ignore[arg-type]
        cluster.run(50, until=lambda: bool(replies))
        return replies[0]

    session_id = fetch(0, 0, core.epoch).session_id
    results: list[ReadOffsetResult] = []
    old.reads.read(group, results.append)
    fetch(session_id, 1, core.epoch + epochs_ahead)
    fetch(session_id, 2, core.epoch + epochs_ahead)
    assert [result.error for result in results] == ([] if epochs_ahead else [ErrorCode.NONE])


def test_a_single_voter_answers_reads_by_itself() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("alone")
    cluster.produce(group, batch(b"x"))
    assert _read(cluster, cluster.leader(group), group).applied_offset == 2


def test_more_reads_than_a_node_will_hold_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.replica.replication.reads.READS_MAX", 3)
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    results: list[ReadOffsetResult] = []
    for _ in range(5):
        leader.reads.read(group, results.append)
    assert [result.error for result in results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    cluster.run(1_000, until=lambda: len(results) == 5)
    assert [result.error for result in results[2:]] == [ErrorCode.NONE] * 3
    assert _read(cluster, leader, group).error is ErrorCode.NONE, "their room is free again"


def test_reads_that_end_without_an_answer_free_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlake.replica.replication.reads.READS_MAX", 1)
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    me = leader.config.node_id
    cluster.cut(me)
    assert _read(cluster, leader, group).error is ErrorCode.REQUEST_TIMED_OUT
    cluster.heal()
    cluster.run(5_000)
    assert _read(cluster, leader, group).error is ErrorCode.NONE


@pytest.mark.parametrize("gathered", [1, 2])
def test_a_read_behind_a_question_whose_askers_have_given_up_is_asked(gathered: int) -> None:
    """Nobody was left to ask for when that question failed. The read behind it waited for another one to come."""
    cluster = Cluster()
    cluster.run(1_000)
    follower = cluster.followers()[0]
    machine, network = cluster.machines[follower.config.node_id], follower.engine.network
    send, is_silent = network.send, True

    def sending(peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        if isinstance(rpc, ReadOffsetRpc) and is_silent:
            cluster.after(follower.config.raft.request_timeout_ms, lambda: machine.run(done, FailureReason.TIMED_OUT))
        else:
            send(peer, rpc, done)

    network.send = sending  # type: ignore[method-assign]
    first: list[ReadOffsetResult] = []
    later: list[ReadOffsetResult] = []
    machine.run(follower.reads.read, follower.config.quorum_group, first.append)
    timeout_ms = follower.config.read_timeout_ms
    cluster.run(timeout_ms - 1_000)
    for _ in range(gathered):
        machine.run(follower.reads.read, follower.config.quorum_group, later.append)
    cluster.run(999)
    is_silent = False
    cluster.run(follower.config.raft.request_timeout_ms + 100, until=lambda: len(later) == gathered)
    assert [result.error for result in first] == [ErrorCode.REQUEST_TIMED_OUT]
    assert [result.error for result in later] == [ErrorCode.NONE] * gathered
