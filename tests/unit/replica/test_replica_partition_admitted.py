"""What a partition has taken from its clients and not written yet: each is answered once, whatever becomes of the group."""

from __future__ import annotations

import pytest

from enginekit import ORDERS, Ground
from raftlake.errors import ErrorCode
from raftlake.raft.actions import AppendRecords
from raftlake.raft.events import AppendRequested
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.wire.batches import Record, build_batch, iterate_headers


class Client:
    """Appends to a partition, and notes the answers by the value that was sent."""

    def __init__(self, ground: Ground, partition: Partition) -> None:
        self.ground, self.partition = ground, partition
        self.answers: list[tuple[str, ErrorCode, int]] = []

    def send(self, value: str) -> None:
        batch = build_batch([Record(value=value.encode())], base_offset=0, leader_epoch=0, timestamp_ms=1)

        def done(error: ErrorCode, offset: int) -> None:
            self.answers.append((value, error, offset))

        self.partition.appending.append(PendingAppend(batch, tuple(iterate_headers(batch)), 1 << 40, done, idempotent=False))

    def take(self, *values: str) -> None:
        """The partition takes them; its disk holds the actions up."""
        for value in values:
            self.send(value)
        admitted = self.partition.admit(lambda group, done: done(True))
        assert len(admitted) == len(values)
        self.ground.engine.step(self.partition, AppendRequested(record_counts=(1,) * len(values), payload=admitted))


@pytest.fixture
def client() -> Client:
    ground = Ground()
    return Client(ground, ground.lead(ORDERS))


def test_what_was_taken_twice_before_it_was_written_is_answered_when_the_group_goes(client: Client) -> None:
    """Simulator seed 809001978: a full disk held the group's election state up, and the first of two was never answered."""
    client.take("a", "b")
    client.take("c")
    client.partition.on_deleted()
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert client.answers == [("a", refused, -1), ("b", refused, -1), ("c", refused, -1)]


def test_what_is_written_is_not_refused_when_the_group_goes(client: Client) -> None:
    client.take("a", "b")
    client.take("c")
    first, second = (action for action in client.partition.outbox if isinstance(action, AppendRecords))
    client.partition.append_records(first)
    client.partition.on_deleted()
    assert client.answers == [("c", ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert second.base_offset == 3


def test_both_are_written_in_their_order_when_there_is_room_again(client: Client) -> None:
    client.take("a", "b")
    client.take("c")
    client.ground.perform(client.partition)
    assert client.answers == [("a", ErrorCode.NONE, 1), ("b", ErrorCode.NONE, 2), ("c", ErrorCode.NONE, 3)]
    client.partition.on_deleted()
    assert len(client.answers) == 3
