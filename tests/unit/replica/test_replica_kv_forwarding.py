"""The way of a proposal to the leader: what is tried again, what is unknown, and what a refusal for want of room says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlake.errors import ErrorCode
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import PeerReply, PeerRpc, ProposeReply, ProposeRpc
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.replica.kv.forwarding import NO_ROOM_AT_THE_LEADER
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from replica_cluster import Cluster

Answers = list[PeerReply | FailureReason]


def forwarded(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> tuple[ProposeOutcome, int]:
    """What becomes of a proposal whose tries are answered so, and how many there were."""
    cluster = Cluster()
    cluster.leader()
    follower: ReplicaNode = cluster.followers()[0]
    tries: list[ProposeRpc] = []
    real = follower.engine.network.send

    def send(peer: NodeId, rpc: PeerRpc, done: Callable[[PeerReply | FailureReason], None]) -> None:
        if not isinstance(rpc, ProposeRpc):
            real(peer, rpc, done)
            return
        tries.append(rpc)
        answer = answers[min(len(tries), len(answers)) - 1]
        cluster.after(1, lambda: done(answer))

    monkeypatch.setattr(follower.engine.network, "send", send)
    outcomes: list[ProposeOutcome] = []
    follower.kv.propose_anywhere(put("k", b"v"), outcomes.append)
    cluster.run(30_000, until=lambda: bool(outcomes))
    return outcomes[0], len(tries)


@pytest.mark.parametrize(
    "answer", [FailureReason.DISCONNECTED, FailureReason.TIMED_OUT, ProposeReply(error=ErrorCode.REQUEST_TIMED_OUT)]
)
def test_what_may_have_been_appended_is_unknown_and_not_tried_again(
    answer: PeerReply | FailureReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forwarded([answer], monkeypatch) == (ProposeOutcome(ProposeStatus.UNKNOWN), 1)


def test_a_node_that_does_not_lead_is_asked_again_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ProposeReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    outcome, tries = forwarded([elsewhere, elsewhere, ProposeReply(error=ErrorCode.INVALID_RECORD)], monkeypatch)
    assert (outcome, tries) == (ProposeOutcome(ProposeStatus.REFUSED), 3)
    outcome, tries = forwarded([elsewhere], monkeypatch)
    assert outcome.status is ProposeStatus.NOT_LEADER and tries > 100


@pytest.mark.parametrize("code", NO_ROOM_AT_THE_LEADER)
def test_a_refusal_for_want_of_room_says_so(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, tries = forwarded([ProposeReply(error=code)], monkeypatch)
    told = code if code is ErrorCode.INVALID_PARTITIONS else ErrorCode.POLICY_VIOLATION
    assert tries == 1
    assert outcome == ProposeOutcome(ProposeStatus.REFUSED, reason=NO_ROOM_AT_THE_LEADER[code], error=told)


@pytest.mark.parametrize(("message", "told"), [("it is full", "it is full"), ("", "see its log")], ids=["now", "before"])
def test_a_refusal_by_the_leaders_rules_says_why(message: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders of before said nothing but the code."""
    outcome, tries = forwarded([ProposeReply(error=ErrorCode.POLICY_VIOLATION, message=message)], monkeypatch)
    assert tries == 1
    assert outcome == ProposeOutcome(ProposeStatus.REFUSED, reason=f"the leader refused the change: {told}")


def test_a_topic_beyond_the_leaders_limit_is_refused_by_a_follower_for_good() -> None:
    """It said NOT_CONTROLLER, after which clients ask the next node, and the next."""
    cluster = Cluster(partitions_max=10)
    leader = cluster.leader()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    node = cluster.start(follower, partitions_max=100)
    cluster.run(2_000, until=node.is_ready)
    assert cluster.leader() is leader
    answers: list[tuple[object, ErrorCode, str]] = []
    for name in ("first", "second"):
        node.topics.create(name, 6, {}, lambda *answer: answers.append(answer))
        cluster.run(5_000, until=lambda: bool(answers))
        _, error, message = answers.pop()
    assert error is ErrorCode.INVALID_PARTITIONS
    assert "exceed the limit" in message


def test_a_follower_learns_of_its_command_in_one_round_behind_the_commit() -> None:
    """High watermarks wait for records otherwise, and records for a replica that a majority can do without."""
    cluster = Cluster()
    leader, followers = cluster.leader(), cluster.followers()
    waits = leader.config.replica_fetch_linger_ms
    cluster.run(500)
    for follower in (*followers, *followers):
        began_ms = cluster.now_ms
        outcomes: list[ProposeOutcome] = []
        follower.kv.propose_anywhere(put("k", b"v"), outcomes.append)
        cluster.run(1000, until=lambda outcomes=outcomes: bool(outcomes))  # type: ignore[misc]
        # Of the 5 ms four are hops of one ms: there, to the log of the other follower and back, here.
        assert outcomes[0].status is ProposeStatus.DONE and cluster.now_ms - began_ms <= waits
        cluster.run(100)
