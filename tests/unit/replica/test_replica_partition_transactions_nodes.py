"""Transactions on nodes: the leader derives at the append what followers derive from its batches, and a start from the log."""

from __future__ import annotations

import pytest

from enginekit import ORDERS, AnyTransaction, Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition, split_batches
from raftlake.replica.partition.pending import PendingAppend
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batches import iterate_headers, leader_change_batch
from replica_cluster import Cluster, batch
from transactionkit import data_batch, end_marker, marker_batch

Answers = list[tuple[ErrorCode, int]]


def pending(data: bytearray, answers: Answers) -> PendingAppend:
    def done(error: ErrorCode, offset: int) -> None:
        answers.append((error, offset))

    return PendingAppend(data, tuple(iterate_headers(data)), 1 << 40, done, idempotent=True)


class Orders:
    """A topic on three nodes."""

    def __init__(self, **options: int) -> None:
        self.cluster = Cluster(3, **options)
        (self.group,) = self.cluster.create_topic("orders")

    def append(self, data: bytearray) -> int:
        """Have the leader append a batch; where it begins, once it is committed everywhere."""
        node, answers = self.cluster.leader(self.group), Answers()
        partition = node.partitions[self.group]

        def queue() -> None:
            # The keys of the quorum know none of these transactions.
            node.turn._gate = AnyTransaction()
            partition.appending.append(pending(data, answers))
            node.engine.mark_appending(partition)

        self.cluster.machines[node.config.node_id].run(queue)
        self.cluster.run(5_000, until=lambda: bool(answers))
        assert answers[0][0] is ErrorCode.NONE
        self.agree()
        return answers[0][1]

    def agree(self) -> None:
        def is_even() -> bool:
            ends = {(each.high_watermark, each.core.log_end) for each in self.partitions}
            return len(ends) == 1 and len(set(ends.pop())) == 1

        self.cluster.run(5_000, until=is_even)
        partitions = self.partitions
        assert len({each.last_stable_offset for each in partitions}) == 1
        assert len({tuple(each.producers.open_transactions.items()) for each in partitions}) == 1
        end = partitions[0].last_stable_offset
        assert len({tuple(each.aborted(Offset(0), end)) for each in partitions}) == 1
        rows = [sorted(row._replace(timestamp_ms=0) for row in each.producers.at(each.log.end_offset)) for each in partitions]
        assert all(each == rows[0] for each in rows)

    @property
    def partitions(self) -> list[Partition]:
        return [node.partitions[self.group] for node in self.cluster.nodes.values()]

    def restart(self, node_id: NodeId) -> None:
        self.cluster.stop(node_id)
        self.cluster.leader(self.group)
        self.cluster.start(node_id)
        self.cluster.run(5_000, until=lambda: self.group in self.cluster.nodes[node_id].partitions)
        self.agree()


def test_leader_and_followers_derive_the_same_over_failovers_and_starts() -> None:
    orders = Orders(segment_bytes=1_500)
    first = orders.append(data_batch(7, 0, count=2))
    for number in range(6):
        orders.append(data_batch(8, number))
        orders.append(marker_batch(8, commit=number % 2 == 0))
    assert all(each.last_stable_offset == first for each in orders.partitions)
    for _ in range(2):
        orders.restart(orders.cluster.leader(orders.group).config.node_id)
        assert all(each.producers.open_transaction(7) == first for each in orders.partitions)
    marker = orders.append(marker_batch(7, epoch=1))
    for partition in orders.partitions:
        assert partition.last_stable_offset == partition.high_watermark > marker
        found = partition.aborted(Offset(0), partition.high_watermark)
        assert len(found) == 4 and found[-1] == AbortedTransaction(7, first, marker, marker + 1)
    orders.restart(orders.cluster.followers(orders.group)[0].config.node_id)


def test_a_follower_that_begins_behind_a_snapshot_knows_the_open_transactions() -> None:
    orders = Orders(segment_bytes=1_500, retention_bytes=2_000, retention_check_interval_ms=1_000)
    late = orders.cluster.followers(orders.group)[0].config.node_id
    first = orders.append(data_batch(7, 0))
    orders.cluster.stop(late)
    for number in range(60):
        assert orders.cluster.produce(orders.group, batch(b"x" * 100)).error is ErrorCode.NONE, number
    orders.cluster.run(20_000)
    leader = orders.cluster.leader(orders.group).partitions[orders.group]
    assert leader.log.start_offset > first, "retention has taken the beginning of the transaction"
    orders.cluster.start(late)
    orders.cluster.run(20_000, until=lambda: _start(orders.cluster, late, orders.group) >= leader.log.start_offset)
    orders.agree()
    marker = orders.append(marker_batch(7))
    for partition in orders.partitions:
        assert partition.aborted(partition.log.start_offset, partition.high_watermark) == [
            AbortedTransaction(7, first, marker, marker + 1)
        ]


def _start(cluster: Cluster, node_id: NodeId, group: GroupId) -> int:
    node: ReplicaNode = cluster.nodes[node_id]
    return node.partitions[group].log.start_offset if group in node.partitions else -1


# --- the leader alone -------------------------------------------------------------------------------------------------------


@pytest.fixture
def led() -> tuple[Ground, Partition]:
    ground = Ground()
    return ground, ground.lead(ORDERS)


def test_a_leader_notes_batches_and_markers_at_the_offsets_that_they_get(led: tuple[Ground, Partition]) -> None:
    ground, partition = led
    answers: Answers = []
    begin = partition.log.end_offset
    two = data_batch(8, 0) + data_batch(8, 1, count=2)
    for data in (data_batch(7, 0, count=2), two, marker_batch(7), marker_batch(8, epoch=4), data_batch(7, 2)):
        partition.appending.append(pending(data, answers))
    ground.append_waiting(partition)
    assert answers == [(ErrorCode.NONE, begin + each) for each in (0, 2, 5, 6, 7)]
    assert partition.producers.open_transactions == {7: begin + 7} and partition.last_stable_offset == begin + 7
    assert partition.aborted(Offset(0), Offset(begin + 7)) == [
        AbortedTransaction(7, begin, begin + 5, begin + 2),
        AbortedTransaction(8, begin + 2, begin + 6, begin + 7),
    ]
    row = partition.producers.last_row(8)
    assert row is not None and (row.epoch, row.last_sequence, row.coordinator_epoch) == (4, -1, 3)


def test_a_marker_is_taken_whatever_sequences_and_room_are(led: tuple[Ground, Partition]) -> None:
    """It has no sequence of its own, and a full disk or a full list of producers is no reason to leave a transaction open."""
    ground, partition = led
    answers: Answers = []
    partition.appending.append(pending(data_batch(7, 0), answers))
    ground.append_waiting(partition)
    partition.producers._tally.ids_max = 1
    for producer_id in (7, 7, 12):
        partition.appending.append(pending(marker_batch(producer_id), answers))
    admitted = partition.admit(lambda group, done: done(True), "the disk is full", gate=AnyTransaction())
    assert len(admitted) == 3 and [error for error, _ in answers] == [ErrorCode.NONE]
    assert partition.producers.open_transactions == {}


def test_a_transaction_that_is_not_written_yet_is_known(led: tuple[Ground, Partition]) -> None:
    """So the next batch of its producer opens no other one, and the last stable offset does not move for it."""
    _, partition = led
    end = partition.log.end_offset
    partition.appending.append(pending(data_batch(7, 0), []))
    partition.admit(lambda group, done: done(True), gate=AnyTransaction())
    assert partition.producers.open_transaction(7) == end == partition.log.end_offset
    assert partition.last_stable_offset == partition.high_watermark == end


def test_received_markers_are_read_once_and_damaged_ones_end_what_is_taken() -> None:
    good, bad = marker_batch(7, base_offset=5), marker_batch(8, base_offset=6)
    voters = leader_change_batch(4, 1, -1, 1, (1,), (1,))
    bad[70] ^= 1
    answer = memoryview(bytes(voters + good + bad))
    found = split_batches(answer, list(iterate_headers(answer)))
    assert [each.base_offset for each in found] == [4, 5]
    assert [each.payload.marker for each in found] == [None, end_marker(7)]
