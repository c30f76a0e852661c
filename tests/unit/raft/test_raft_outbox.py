"""Requests of one kind to several voters: one under way to each, failed ones due again after their backoff."""

from __future__ import annotations

from raftkit.replica import CONFIG, Replica
from raftlake.raft import actions as do
from raftlake.raft import outbox
from raftlake.raft.messages import BeginQuorumEpochRequest
from raftlake.raft.roles import Outbox
from raftlake.raft.types import Epoch, NodeId

NOW = 1_000
TWO, THREE = NodeId(2), NodeId(3)


def request(voter: NodeId) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(leader_id=NodeId(1), leader_epoch=Epoch(6), voter_id=voter)


def send(replica: Replica, box: Outbox, now_ms: int) -> list[int]:
    """Send to 2 and 3 whatever is due; who was sent to."""
    replica.core.actions = []
    outbox.send_due(replica.core, box, (TWO, THREE), request, now_ms)
    return [action.destination for action in replica.core.actions if isinstance(action, do.SendRequest)]


def test_one_request_under_way_to_each() -> None:
    replica, box = Replica(), Outbox()
    assert send(replica, box, NOW) == [2, 3]
    assert send(replica, box, NOW + 10_000) == []
    assert outbox.take(box, TWO, box.in_flight[TWO])
    assert send(replica, box, NOW) == [2]


def test_only_the_answer_to_what_is_under_way_counts() -> None:
    replica, box = Replica(), Outbox()
    send(replica, box, NOW)
    sent = dict(box.in_flight)
    assert not outbox.take(box, TWO, sent[THREE])
    assert not outbox.take(box, NodeId(9), sent[TWO])
    assert not outbox.take(box, TWO, request(TWO)), "an earlier one that says the same"
    assert outbox.take(box, TWO, sent[TWO])
    assert not outbox.take(box, TWO, sent[TWO]), "a duplicate"
    send(replica, box, NOW)
    assert not outbox.take(box, TWO, sent[TWO]), "a duplicate that comes when the next is under way"
    assert outbox.take(box, THREE, sent[THREE])


def test_a_failed_request_waits_for_its_retry_time() -> None:
    replica, box = Replica(), Outbox()
    send(replica, box, NOW)
    outbox.take(box, TWO, box.in_flight[TWO])
    outbox.schedule_retry(replica.core, box, TWO, NOW)
    due_ms = NOW + CONFIG.retry_backoff_ms
    assert outbox.next_retry_ms(box) == due_ms
    assert send(replica, box, due_ms - 1) == []
    assert send(replica, box, due_ms) == [2]
    assert outbox.next_retry_ms(box) is None


def test_a_growing_backoff_doubles_up_to_its_bound() -> None:
    replica, box = Replica(), Outbox()
    waits = []
    for _ in range(8):
        outbox.schedule_growing_retry(replica.core, box, TWO, NOW)
        waits.append(box.retry_at_ms[TWO] - NOW)
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]


def test_the_earliest_retry_is_the_next() -> None:
    replica, box = Replica(), Outbox()
    outbox.schedule_retry(replica.core, box, THREE, NOW + 5)
    outbox.schedule_retry(replica.core, box, TWO, NOW)
    assert outbox.next_retry_ms(box) == NOW + CONFIG.retry_backoff_ms
