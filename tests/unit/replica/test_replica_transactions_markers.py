"""The markers that end transactions in a partition: when they are written, when they are answered, and when there is nothing to
write."""

from __future__ import annotations

from functools import partial

import pytest

from enginekit import Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.pending import PendingAppend
from raftlake.wire.batches import EndMarker, end_marker_batch, iterate_headers, read_end_marker
from replica_cluster import Cluster, batch
from txnkit import (
    PRODUCER,
    ByHand,
    begin,
    decide,
    end,
    fenced,
    hold_keys,
    lead,
    marker_of,
    produce,
    put,
    records,
    send_marker,
    transaction,
    write_marker,
)


@pytest.fixture
def cluster() -> Cluster:
    return ByHand()


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("orders")
    return group


def markers(node: ReplicaNode, group: GroupId) -> list[EndMarker]:
    """Those in the log, in their order."""
    log = node.partitions[group].log
    data = log.read(log.start_offset, log.end_offset, 1 << 20)
    found = [read_end_marker(data[each.position : each.end_position]) for each in iterate_headers(data) if each.is_control]
    return [marker for marker in found if marker is not None]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction_on_all_nodes(cluster: Cluster, group: GroupId, commit: bool) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=commit)
    marker = marker_of(decided, commit=commit, coordinator_epoch=3)
    assert write_marker(cluster, group, marker, at) is ErrorCode.NONE
    leader = cluster.leader(group).partitions[group]
    assert leader.high_watermark == leader.last_stable_offset == 3, "answered when it is committed"
    cluster.run(1_000)
    for node in cluster.nodes.values():
        partition = node.partitions[group]
        assert markers(node, group) == [marker]
        assert (partition.producers.open_transaction(PRODUCER), partition.last_stable_offset) == (None, 3)
        assert [(each.producer_id, each.first_offset) for each in partition.aborted(Offset(0), Offset(3))] == (
            [] if commit else [(PRODUCER, 1)]
        )


def test_a_marker_that_comes_again_is_written_once(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    marker = marker_of(decided, commit=True)
    told = [send_marker(cluster.leader(group), group, marker, at) for _ in range(3)]
    cluster.run(5_000, until=lambda: all(told))
    assert told == [[ErrorCode.NONE]] * 3
    assert write_marker(cluster, group, marker, at) is ErrorCode.NONE
    put(cluster, decided.completed())
    assert write_marker(cluster, group, marker, at) is ErrorCode.NONE
    assert markers(cluster.leader(group), group) == [marker]


def test_a_repetition_waits_for_the_commit_of_the_first_one(cluster: Cluster, group: GroupId) -> None:
    """What is not committed may be lost, and the transaction would be open again after it was answered as ended."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    leader = cluster.leader(group)
    # Known in this leadership, so nothing but the marker itself waits for others.
    assert leader.partitions[group].keys_known_in == leader.partitions[group].core.epoch
    cluster.cut(leader.config.node_id)
    marker = marker_of(decided, commit=True)
    told = [send_marker(leader, group, marker, at) for _ in range(2)]
    cluster.run(100)
    assert leader.partitions[group].producers.open_transaction(PRODUCER) is None
    assert told == [[], []]
    cluster.heal()
    cluster.run(5_000, until=lambda: all(told))
    assert told == [[ErrorCode.NONE]] * 2
    assert len(markers(leader, group)) == 1


def test_a_partition_without_records_of_the_transaction_gets_no_marker(cluster: Cluster, group: GroupId) -> None:
    decided, at = decide(cluster, begin(cluster, group), commit=True)
    assert write_marker(cluster, group, marker_of(decided, commit=True), at) is ErrorCode.NONE
    assert cluster.leader(group).partitions[group].log.end_offset == 1


def test_a_leader_that_was_replaced_does_not_say_that_there_is_nothing_to_end(cluster: Cluster, group: GroupId) -> None:
    """Its successor may have what it lacks."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    marker = marker_of(decided, commit=True)
    assert write_marker(cluster, group, marker, at) is ErrorCode.NONE
    leader = cluster.leader(group)
    cluster.cut(leader.config.node_id)
    told = send_marker(leader, group, marker, at)
    cluster.run(50)
    assert not told
    cluster.run(20_000, until=lambda: bool(told))
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_only_the_leader_writes_markers(cluster: Cluster, group: GroupId) -> None:
    decided, at = decide(cluster, begin(cluster, group), commit=True)
    follower = cluster.followers(group)[0]
    assert send_marker(follower, group, marker_of(decided, commit=True), at) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    nowhere = GroupId("nowhere", 0, b"n" * 16)
    assert send_marker(follower, nowhere, marker_of(decided, commit=True), at) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_raised_epoch_ends_the_transaction_and_fences_the_producer(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    aborted = fenced(found)
    at = put(cluster, aborted)
    # Not known to the partition yet: the transaction is open, and goes on.
    assert produce(cluster, group, records(b"b", sequence=1)).error is ErrorCode.NONE
    assert write_marker(cluster, group, marker_of(aborted, commit=False), at) is ErrorCode.NONE
    assert produce(cluster, group, records(b"c", sequence=2)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    partition = cluster.leader(group).partitions[group]
    assert partition.last_stable_offset == 4
    assert [each.first_offset for each in partition.aborted(Offset(0), Offset(4))] == [1]


def test_a_producer_is_fenced_where_its_transaction_has_no_records(cluster: Cluster, group: GroupId) -> None:
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    end(cluster, found, group, commit=True)
    aborted = fenced(begin(cluster, group))
    at = put(cluster, aborted)
    assert write_marker(cluster, group, marker_of(aborted, commit=False), at) is ErrorCode.NONE
    row = cluster.leader(group).partitions[group].producers.last_row(PRODUCER)
    assert row is not None and row.epoch == 1
    assert len(markers(cluster.leader(group), group)) == 2
    assert write_marker(cluster, group, marker_of(aborted, commit=False), at) is ErrorCode.NONE
    assert len(markers(cluster.leader(group), group)) == 2


def test_a_late_marker_does_not_end_the_next_transaction(cluster: Cluster, group: GroupId) -> None:
    """A coordinator that was replaced sends its marker again, when the producer has begun anew with the same epoch."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    late = marker_of(decided, commit=True)
    assert write_marker(cluster, group, late, at) is ErrorCode.NONE
    put(cluster, decided.completed())
    begin(cluster, group)
    produce(cluster, group, records(b"b", sequence=1))
    assert write_marker(cluster, group, late, at) is ErrorCode.NONE
    partition = cluster.leader(group).partitions[group]
    assert partition.producers.open_transaction(PRODUCER) == 3
    # Nor does the other outcome, once it is decided.
    _, at = decide(cluster, transaction(group), commit=True)
    assert write_marker(cluster, group, marker_of(decided, commit=False), at) is ErrorCode.NONE
    assert partition.producers.open_transaction(PRODUCER) == 3


def test_a_marker_waits_until_the_decision_is_applied_here(cluster: Cluster) -> None:
    """Else a late batch, judged by older keys, would begin the transaction anew behind it."""
    groups = cluster.create_topic("spread", 3)
    group = next(group for group in groups if cluster.leader(group) is not cluster.leader())
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    leader = cluster.leader(group)
    go_on = hold_keys(cluster, leader)
    decided = found.decided(True)
    at = put(cluster, decided, everywhere=False)
    told = send_marker(leader, group, marker_of(decided, commit=True), at)
    cluster.run(200)
    assert not told and not markers(leader, group)
    go_on()
    cluster.run(5_000, until=lambda: bool(told))
    assert told == [ErrorCode.NONE]
    assert len(markers(leader, group)) == 1


def test_a_new_leader_judges_a_marker_by_keys_that_it_has_looked_up(cluster: Cluster) -> None:
    """It has records of the next transaction in its log, and the applied keys still call the one before decided."""
    groups = cluster.create_topic("spread", 3)
    group = next(group for group in groups if cluster.leader(group) is not cluster.leader())
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    decided, at = decide(cluster, found, commit=True)
    late = marker_of(decided, commit=True)
    assert write_marker(cluster, group, late, at) is ErrorCode.NONE
    old, metadata = cluster.leader(group), cluster.leader()
    (third,) = [node for node in cluster.nodes.values() if node not in (old, metadata)]
    go_on = hold_keys(cluster, third)
    put(cluster, decided.completed(), everywhere=False)
    ongoing = put(cluster, transaction(group), everywhere=False)
    cluster.run(1_000, until=lambda: old.kv.machine.applied_offset >= ongoing)
    assert produce(cluster, group, records(b"b", sequence=1)).error is ErrorCode.NONE
    lead(cluster, third, group)
    stale = third.kv.state.transaction_of(PRODUCER)
    assert stale is not None and stale.is_prepared, "the case that is to be tested"
    told = send_marker(third, group, late, at)
    cluster.run(50)
    assert not told
    go_on()
    cluster.run(5_000, until=lambda: bool(told))
    assert told == [ErrorCode.NONE]
    assert third.partitions[group].producers.open_transaction(PRODUCER) == 3


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_goes_on_under_the_next_leader(cluster: Cluster, group: GroupId, commit: bool) -> None:
    """Between the batch and the marker the leader is gone; the coordinator asks the new one."""
    found = begin(cluster, group)
    produce(cluster, group, records(b"a", sequence=0))
    cluster.stop(cluster.leader(group).config.node_id)
    leader = cluster.leader(group)
    assert leader.partitions[group].last_stable_offset == 1
    decided = found.decided(commit)
    at = put(cluster, decided)
    assert write_marker(cluster, group, marker_of(decided, commit=commit), at) is ErrorCode.NONE
    partition = leader.partitions[group]
    assert partition.last_stable_offset == partition.high_watermark
    assert len(partition.aborted(Offset(0), partition.high_watermark)) == (not commit)


def test_transactions_of_several_producers_end_one_by_one(cluster: Cluster, group: GroupId) -> None:
    ids = {
        producer_id: begin(cluster, group, producer_id=producer_id, transactional_id=str(producer_id))
        for producer_id in (1, 2, 3)
    }
    for producer_id in ids:
        assert (
            produce(cluster, group, records(b"a", sequence=0, producer_id=producer_id), transactional_id=str(producer_id)).error
            is ErrorCode.NONE
        )
    partition = cluster.leader(group).partitions[group]
    stable = []
    for producer_id, commit in ((2, True), (1, False), (3, True)):
        end(cluster, ids[producer_id], group, commit=commit)
        stable.append(partition.last_stable_offset)
    # Records at 1, 2 and 3, markers at 4, 5 and 6.
    assert stable == [1, 3, 7]
    assert [each[:3] for each in partition.aborted(Offset(0), Offset(7))] == [(1, 1, 5)]


def test_full_disks_do_not_keep_a_transaction_from_its_end() -> None:
    ground = Ground()
    partition = ground.lead()
    done: list[tuple[ErrorCode, int]] = []

    def queue(data: bytearray, marker: EndMarker | None = None) -> None:
        headers = tuple(iterate_headers(data))
        answer = lambda error, offset: done.append((error, offset))  # noqa: E731
        refuse = None if marker else lambda why: done.append((ErrorCode.NOT_ENOUGH_REPLICAS, -1))
        partition.appending.append(PendingAppend(data, headers, 1 << 40, answer, False, refuse=refuse, marker=marker))

    queue(records(b"a", sequence=0))
    ground.append_waiting(partition)
    marker = EndMarker(producer_id=PRODUCER, epoch=0, commit=True, coordinator_epoch=0)
    queue(batch(b"x"))
    queue(end_marker_batch(marker, 1), marker)
    admitted = partition.admit(lambda group, done: done(True), "the disk is full")
    assert [each.marker for each in admitted] == [marker]
    assert done == [(ErrorCode.NONE, 1), (ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert partition.keys_known_in == Epoch(-1)


# --- no room for producers --------------------------------------------------------------------------------------------

NO_ROOM = ErrorCode.NOT_ENOUGH_REPLICAS


class Forgetful:
    """A node that remembers three producers, and a partition that has forgotten some: any transaction may be open there."""

    def __init__(self, *known: int) -> None:
        self.cluster = Cluster(1, producer_ids_max=3)
        (self.group,) = self.cluster.create_topic("orders")
        self.cluster.produce(self.group, batch(b"x"))
        self.node = self.cluster.leader(self.group)
        self.producers = self.node.partitions[self.group].producers
        for producer_id in known:
            sent = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert self.cluster.produce(self.group, sent).error is ErrorCode.NONE
        self.producers.has_forgotten = True

    def abort(self, *producer_ids: int, epoch: int = 0) -> list[ErrorCode]:
        """As clients ask, in one turn."""
        told: dict[int, ErrorCode] = {}
        self.node.engine.begin_input()
        for number, producer_id in enumerate(producer_ids):
            marker = EndMarker(producer_id=producer_id, epoch=epoch, commit=False, coordinator_epoch=0)
            self.node.markers.write_for_client(self.group, marker, partial(told.__setitem__, number))
        self.cluster.run(5_000, until=lambda: len(told) == len(producer_ids))
        return [told[number] for number in range(len(producer_ids))]


@pytest.mark.parametrize("known", [(), (1,), (1, 2), (1, 2, 3)])
def test_clients_markers_of_unknown_producers_stay_within_the_bound(known: tuple[int, ...]) -> None:
    """Each is remembered. A thousand came with a request, whatever producer.ids.max said."""
    world = Forgetful(*known)
    room = 3 - len(known)
    end = world.node.partitions[world.group].log.end_offset
    assert world.abort(11, 12, 13, 14) == [ErrorCode.NONE] * room + [NO_ROOM] * (4 - room)
    assert world.node.producers.tally.count == len(world.producers) == 3
    assert world.node.partitions[world.group].log.end_offset == end + room
    assert world.abort(14) == [NO_ROOM], "again"


def test_of_known_producers_markers_are_written_beyond_the_bound() -> None:
    world = Forgetful(1, 2, 3)
    assert world.abort(1, 2, 3, epoch=1) == [ErrorCode.NONE] * 3
    rows = [world.producers.last_row(producer_id) for producer_id in (1, 2, 3)]
    assert [row.epoch for row in rows if row is not None] == [1, 1, 1]
    assert world.node.producers.tally.count == 3


def test_a_marker_that_ends_nothing_takes_no_room() -> None:
    """Nothing was forgotten: the producer has no transaction here."""
    world = Forgetful(1, 2, 3)
    world.producers.has_forgotten = False
    assert world.abort(11) == [ErrorCode.NONE]
    assert not markers(world.node, world.group) and world.node.producers.tally.count == 3


def test_there_is_room_for_a_marker_when_a_producer_is_forgotten() -> None:
    world = Forgetful(1, 2, 3)
    assert world.abort(11) == [NO_ROOM]
    world.producers.expire(1 << 60)
    assert world.abort(11, 12) == [ErrorCode.NONE] * 2
    assert [each.producer_id for each in markers(world.node, world.group)] == [11, 12]


def test_the_coordinators_markers_need_no_room(cluster: Cluster, group: GroupId) -> None:
    """A transaction that is decided must come to its end."""
    decided, at = decide(cluster, begin(cluster, group), commit=True)
    leader = cluster.leader(group)
    leader.partitions[group].producers.has_forgotten = True
    leader.producers.tally.ids_max = 0
    assert write_marker(cluster, group, marker_of(decided, commit=True), at) is ErrorCode.NONE
    assert len(markers(leader, group)) == 1
