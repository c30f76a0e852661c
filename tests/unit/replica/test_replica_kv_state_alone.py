"""The services of the key-value space, each alone on an engine: the state, the gate, the room, the refused keys, proposals."""

from __future__ import annotations

from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, ORDERS, TWO, Ground, Noted
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn, encode, put
from raftlake.kv.keys import node_key, topic_key
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import PeerReply, ProposeReply, ProposeRpc
from raftlake.raft.events import FailureReason
from raftlake.replica.kv.forwarding import Forwarding
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.proposals import ProposalGate
from raftlake.replica.kv.refused_keys import RefusedKeys
from raftlake.replica.kv.room import Admission, KvRoom, NoRoom
from raftlake.replica.kv.service import KvService
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic
from raftlake.wire.batches import Record, build_batch

TOPIC = Topic("orders", ORDERS.topic_id, 3)
CREATION = put(topic_key("orders"), TOPIC.encode(), 0)


def service(ground: Ground) -> tuple[KvService, KvState]:
    engine, state, quorum = ground.engine, KvState(), Quorum(ground.engine)
    kv = KvService(
        engine,
        state,
        quorum=quorum,
        disk=Noted(refusal_of=""),  # type: ignore[arg-type]
        findings=Noted(),  # type: ignore[arg-type]
        reads=Noted(),  # type: ignore[arg-type]
        gate=ProposalGate(engine, state, Names(engine.config)),
        refused_keys=RefusedKeys(engine, state),
        room=KvRoom(engine, state),
    )
    ground.on_high_watermark = kv.advance
    return kv, state


def test_the_state_counts_the_topics_that_its_keys_describe() -> None:
    state = KvState()
    assert (dict(state.topics), state.partition_count) == ({}, 1)
    state.machine.apply(1, encode(CREATION))
    assert (dict(state.topics), state.partition_count) == ({"orders": TOPIC}, 4)


def test_the_gate_lets_nodes_write_what_is_theirs_and_clients_users_keys() -> None:
    ground = Ground()
    names = Names(ground.engine.config)
    gate = ProposalGate(ground.engine, KvState(), names)
    own = put(node_key(TWO), b'{"host": "h", "port": 1}', 0)
    assert gate.refusal(put("k", b"v"), Origin.CLIENT, ME) is None
    assert gate.refusal(own, Origin.CLIENT, ME) is not None
    assert gate.refusal(own, Origin.PEER, TWO) is None
    assert gate.refusal(own, Origin.PEER, ME) is not None, "no node speaks for another"
    assert gate.refusal(CREATION, Origin.PEER, TWO) is None
    names.add(Topic("other", ORDERS.topic_id, 1))
    assert gate.refusal(CREATION, Origin.PEER, TWO) == "the id is another topic's"
    assert gate.count == 3


def test_the_room_counts_what_is_under_way_until_it_is_settled() -> None:
    ground = Ground(kv_quota_bytes=100_000)
    ground.lead()
    room = KvRoom(ground.engine, KvState())
    first = room.reserve(put("a", b"x" * 60_000))
    assert isinstance(first, Admission) and room.under_way > 0
    second = room.reserve(put("b", b"x" * 60_000))
    assert isinstance(second, NoRoom) and second.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    room.settle(first)
    assert isinstance(room.reserve(put("b", b"x" * 60_000)), Admission)


@pytest.mark.parametrize("limit", [4, 3])
def test_the_room_for_partitions_counts_those_that_are_just_being_created(limit: int) -> None:
    ground = Ground(partitions_max=limit)
    partition, state = ground.lead(), KvState()
    room = KvRoom(ground.engine, state)
    early = room.reserve(CREATION)
    assert isinstance(early, NoRoom) and early.error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has not applied all"
    state.machine.advance_to(partition.core.log_end)
    assert isinstance(room.reserve(CREATION), Admission if limit == 4 else NoRoom)
    again = room.reserve(put(topic_key("more"), Topic("more", b"m" * 16, 1).encode(), 0))
    assert isinstance(again, NoRoom if limit == 4 else Admission)


def test_a_reserved_key_that_means_nothing_is_counted_for_each_version() -> None:
    state = KvState()
    refused = RefusedKeys(Ground().engine, state)
    for offset in (1, 2):
        state.machine.apply(offset, encode(Txn(compares=(), ops=(Put(topic_key("t"), b"nonsense"),))))
        refused.on_applied(offset + 1)
        refused.on_applied(offset + 1)
    assert refused.count == 2
    refused.on_ignored(topic_key("t"), "it is spoilt", 2)
    refused.on_ignored(topic_key("u"), "it is spoilt", 2)
    assert refused.count == 3


def test_what_is_proposed_in_one_turn_is_one_batch_and_told_when_it_is_applied() -> None:
    ground = Ground()
    kv, state = service(ground)
    partition = ground.lead()
    applied: list[int] = []
    kv.listeners.append(applied.append)
    outcomes: list[ProposeOutcome] = []
    for name in ("a", "b"):
        kv.propose(put(name, b"v"), outcomes.append)
    assert partition.appending == [] and ground.engine.to_append
    kv.batch_collected()
    (pending,) = partition.appending
    assert pending.headers[0].record_count == 2
    before = len(applied)
    ground.append_waiting(partition)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.DONE] * 2
    assert state.machine.get("a") is not None and applied[before:] == [partition.core.log_end]


def test_a_node_that_does_not_lead_or_may_not_refuses_to_propose() -> None:
    ground = Ground(3)
    kv, _ = service(ground)
    ground.host()
    outcomes: list[ProposeOutcome] = []
    kv.propose(put("k", b"v"), outcomes.append)
    kv.propose(CREATION, outcomes.append)
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.NOT_LEADER, ProposeStatus.REFUSED]


def test_a_leader_tells_the_node_that_forwards_why_it_refuses() -> None:
    ground = Ground()
    kv, _ = service(ground)
    ground.lead()
    own = put(node_key(TWO), b'{"host": "h", "port": 1}', 0)
    record = Record(offset=0, key=None, value=encode(own))
    batch = bytes(build_batch([record], base_offset=0, leader_epoch=0, timestamp_ms=0))
    replies: list[PeerReply] = []
    kv.receive(ProposeRpc(batch=batch, source=ME), Origin.PEER, replies.append)
    (reply,) = replies
    assert isinstance(reply, ProposeReply) and reply.error is ErrorCode.POLICY_VIOLATION
    assert reply.message == "node 1 may not speak for node 2"


# --- forwarding ---

Done = Any


def forwarded(answer: PeerReply | FailureReason) -> tuple[list[ProposeOutcome], list[int], int]:
    """A proposal that the leader, node 2, answers: what becomes of it, which results were waited for, how many tries."""
    ground = Ground(3, propose_timeout_ms=100)
    quorum = Noted()
    quorum.leader_id = TWO  # type: ignore[attr-defined]
    outcomes: list[ProposeOutcome] = []
    awaited: list[int] = []
    here: list[object] = []
    Forwarding(
        ground.engine,
        quorum,  # type: ignore[arg-type]
        put("k", b"v"),
        outcomes.append,
        propose=lambda *given: here.append(given),
        await_result=lambda offset, done: awaited.append(offset),
    ).attempt()
    tries = 0
    while ground.wires.sent:
        peer, rpc, done = ground.wires.sent.pop(0)
        assert peer == TWO and isinstance(rpc, ProposeRpc) and rpc.source == ME
        tries += 1
        done(answer)
        ground.run(50)
    assert here == []
    return outcomes, awaited, tries


def test_a_proposal_that_the_leader_has_committed_is_told_by_this_nodes_own_apply() -> None:
    assert forwarded(ProposeReply(error=ErrorCode.NONE, base_offset=7)) == ([], [7], 1)  # type: ignore[arg-type]


def test_a_proposal_that_may_have_been_appended_is_not_tried_again_and_one_without_a_leader_is() -> None:
    assert forwarded(FailureReason.TIMED_OUT) == ([ProposeOutcome(ProposeStatus.UNKNOWN)], [], 1)
    outcomes, _, tries = forwarded(ProposeReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert [outcome.status for outcome in outcomes] == [ProposeStatus.NOT_LEADER] and tries > 1


def test_the_leader_proposes_by_itself() -> None:
    ground = Ground()
    ground.lead()
    here: list[Any] = []
    forwarding = Forwarding(
        ground.engine,
        Quorum(ground.engine),
        put("k", b"v"),
        here.append,
        propose=lambda txn, done, origin: here.append((txn, origin)),
        await_result=lambda offset, done: None,
    )
    forwarding.attempt()
    assert here == [(put("k", b"v"), Origin.SELF)] and ground.wires.sent == []
    assert METADATA_GROUP in ground.engine.partitions
