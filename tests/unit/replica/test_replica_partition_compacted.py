"""What a partition makes of records that compaction has removed elsewhere: markers of transactions, and tombstones."""

from __future__ import annotations

from random import Random

import pytest

from configkit import alter, created
from enginekit import Ground
from raftlake.errors import ErrorCode
from raftlake.ports.driver import Compacted, Compaction, LogStore
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.replica.replication.recent_appends import RecentAppends
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.wire.aborted_index import AbortedTransaction
from raftlake.wire.batches import Record, build_batch, decode_records
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow, encode_packed
from replica_cluster import Cluster
from transactionlog import Follower, MemoryMachine

NOW_MS = 1_700_000_000_000


@pytest.fixture
def states() -> ProducerStates:
    """7 is open from 0 on, 8 from 3 on."""
    states = ProducerStates()
    states.record(7, 0, 0, 3, 0, 100, True)
    states.record(8, 2, 0, 1, 3, 102, True)
    return states


def test_a_transaction_that_begins_below_what_is_compacted_is_decided(states: ProducerStates) -> None:
    states.close_transactions(Offset(0))
    assert states.open_transactions == {7: 0, 8: 3}
    states.close_transactions(Offset(3))
    assert states.open_transactions == {8: 3} and states.transactions.earliest_undecided == 3
    rows = {row.producer_id: row for row in states.at(10)}
    assert [rows[each].transaction_first_offset for each in (7, 8)] == [-1, 3]
    assert rows[7].last_offset == 2 and rows[7].last_sequence == 2
    states.close_transactions(Offset(4))
    assert states.transactions.earliest_undecided is None


def test_producers_without_transactions_are_the_same_producers(states: ProducerStates) -> None:
    known = KnownProducers(encode_packed(states.packed(10)), has_forgotten=False).without_transactions()
    other = ProducerStates()
    other.restore(known.packed)
    assert other.open_transactions == {} and known.has_forgotten, "what was open is forgotten"
    closed = [row._replace(transaction_first_offset=-1) for row in states.at(10)]
    assert other.at(10) == closed
    assert [KnownProducers(known.encoded, each).without_transactions() for each in (False, True)] == [
        KnownProducers(known.encoded, each) for each in (False, True)
    ]


def compact(log: LogStore, now_ms: int, aborted: tuple[AbortedTransaction, ...]) -> None:
    told: list[object] = []
    request = Compaction(
        dirty_from=log.compacted_until or Offset(0),
        until=log.segments()[-1].base_offset,
        now_ms=now_ms,
        delete_retention_ms=10,
        tombstones_below=log.end_offset,
        aborted=aborted,
        last_batches=frozenset(),
        keys_max=1_000,
        segment_bytes=1,
    )
    log.compact(request, told.append)
    assert isinstance(told[0], Compacted)


def test_a_start_point_that_knows_of_the_transaction_does_not_open_it_for_ever() -> None:
    follower = Follower(MemoryMachine(Random(3), 1 << 20))
    follower.write(7, 0)
    follower.partition.roll()
    marker = follower.end_of(7)
    follower.partition.roll()
    follower.write(8, 0, transactional=False)
    follower.commit(follower.end)
    log = follower.log
    (aborted,) = follower.partition.aborted(Offset(0), follower.end)
    assert aborted.last_offset == marker
    compact(log, NOW_MS, (aborted,))
    # Nothing of it is left but its marker: readers are not told of it any more.
    assert follower.partition.aborted(Offset(0), follower.end) == []
    compact(log, NOW_MS, ())
    compact(log, NOW_MS + 10, ())
    follower.machine.flush(log)
    # The newest point is lost; the one before tells of the open transaction.
    log.start_points.delete([offset for offset in log.start_points.offsets if offset != 1])
    assert list(log.start_points.offsets) == [1]
    follower.restart()
    follower.commit(follower.end)
    partition = follower.partition
    assert partition.producers.open_transactions == {} and partition.last_stable_offset == follower.end


def test_who_begins_amid_a_compacted_log_is_told_of_no_transaction() -> None:
    follower = Follower(MemoryMachine(Random(3), 1 << 20))
    follower.write(7, 0)
    follower.partition.roll()

    def told() -> list[int]:
        known = follower.partition.producers_at(Offset(1))
        assert known is not None
        return [row.transaction_first_offset for row in map(ProducerRow._make, ENTRY.iter_unpack(known.packed))]

    assert told() == [0]
    follower.partition.obey(in_force({"cleanup.policy": "compact"}, Ground().engine.config))
    assert told() == [-1]


# --- a log that was never compacted here, and is repaired ---

#: Of the batches of `Away`: the one behind the value, and the one behind the tombstone.
BEHIND_VALUE, BEHIND_TOMBSTONE = 2, 4


class Away:
    """A topic where a key was written and deleted. One voter has all of that, and is away since."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3, cleaner_backoff_ms=100)
        (self.group,) = created(cluster, "keyed", cleanup_policy="delete")
        for key, value in [(b"k", b"old"), (b"x", b"1"), (b"k", None), (b"y", b"2"), (b"z", b"3")]:
            self.put(key, value)
        cluster.run(1_000)
        self.away = cluster.followers(self.group)[0].config.node_id
        cluster.stop(self.away)
        #: Why the node that was away gave up records after its start.
        self.repairs: list[str] = []

    def put(self, key: bytes, value: bytes | None) -> None:
        batch = build_batch([Record(key=key, value=value)], timestamp_ms=1)
        assert self.cluster.produce(self.group, batch).error is ErrorCode.NONE

    def log(self, node_id: NodeId) -> MemoryLog:
        return self.cluster.disks[node_id].logs[self.group]

    def compact(self) -> None:
        """The policy comes, and the tombstone goes on the nodes that run."""
        cluster = self.cluster
        alter(cluster, "keyed", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", delete_retention_ms="0")
        for node in cluster.nodes.values():
            node.partitions[self.group].roll()
        cluster.run(60_000, until=lambda: not any(has_tombstone(self.log(node_id)) for node_id in cluster.nodes))
        assert not any(has_tombstone(self.log(node_id)) for node_id in cluster.nodes)
        for node in cluster.nodes.values():
            # It was appended so long ago that it has to be read back.
            node.fetch_server._recent = RecentAppends(bytes_max=0)

    def repaired(self, damaged: int) -> ReplicaNode:
        """The node that was away comes back with damage at a batch, and has all again."""
        node = self.started(damaged)
        self.mended(node)
        return node

    def started(self, damaged: int) -> ReplicaNode:
        log = self.log(self.away)
        assert log.compacted_until is None and log.damage(damaged, -1) is not None
        node = self.cluster.start(self.away)
        assert list(node.damage.impaired) == [self.group]
        node.damage.listeners.append(lambda _group, reason: None if reason is None else self.repairs.append(reason))
        return node

    def mended(self, node: ReplicaNode) -> None:
        cluster = self.cluster
        cluster.run(20_000, until=lambda: not node.damage.impaired)
        assert not node.damage.impaired
        cluster.run(1_000)
        assert self.log(self.away).end_offset == self.log(cluster.leader(self.group).config.node_id).end_offset


def has_tombstone(log: MemoryLog) -> bool:
    return any(record.value is None for record in records(log))


def records(log: MemoryLog) -> list[Record]:
    return [record for batch in log.batches for record in decode(batch)]


def decode(batch: StoredBatch) -> list[Record]:
    return list(decode_records(batch.data))


def values(log: MemoryLog) -> dict[bytes | None, bytes]:
    """What a reader of the whole log knows of each key."""
    last = {record.key: record.value for record in records(log)}
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize("is_revoked", [False, True], ids=["compact", "compact, and not any more"])
def test_a_repair_of_a_log_that_was_away_when_the_policy_came_brings_no_deleted_key_back(is_revoked: bool) -> None:
    away = Away()
    away.compact()
    if is_revoked:
        alter(away.cluster, "keyed", cleanup_policy="delete")
    node = away.repaired(BEHIND_VALUE)
    log = away.log(away.away)
    assert values(log) == {b"x": b"1", b"y": b"2", b"z": b"3"}
    assert log.compacted_until is not None, "from now on it is a log that was compacted"
    assert node.partitions[away.group].wholeness.is_whole


def test_what_stays_intact_is_kept_where_the_others_have_removed_nothing_behind_it() -> None:
    away = Away()
    away.compact()
    node = away.started(BEHIND_TOMBSTONE)
    assert not node.partitions[away.group].wholeness.is_whole
    away.mended(node)
    assert away.repairs == []
    assert values(away.log(away.away)) == {b"x": b"1", b"y": b"2", b"z": b"3"}


def test_a_log_that_is_whole_again_takes_what_was_compacted_since() -> None:
    """Its leader keeps the tombstones of what this log held when it was repaired."""
    away = Away()
    node = away.repaired(BEHIND_TOMBSTONE)
    cluster, group = away.cluster, away.group
    leader, end = cluster.leader(group), away.log(away.away).end_offset
    alter(cluster, "keyed", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", delete_retention_ms="0")
    leader.fetch_server._recent = RecentAppends(bytes_max=0)
    cluster.cut(away.away)
    for value in (b"4", b"5"):
        away.put(b"x", value)
    leader.partitions[group].roll()
    cluster.run(30_000, until=lambda: leader.compactor.counts.passes > 0)
    cluster.heal()
    cluster.run(20_000, until=lambda: node.partitions[group].log.end_offset == leader.partitions[group].log.end_offset)
    assert [decode(batch) for batch in away.log(away.away).batches if batch.base == end] == [[]], "it was sent less"
    assert away.repairs == [] and values(away.log(away.away))[b"x"] == b"5"


# --- a log that is fetched anew, from two leaders ---


class Refetched(Away):
    """A compacted topic where a key was written and deleted. One follower removed both. The leader has no closed segment, and
    so keeps both. The other follower takes one batch at a time."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3, cleaner_backoff_ms=100, replica_fetch_bytes_max=100)
        rules = {"min_cleanable_dirty_ratio": "0.0", "delete_retention_ms": "0"}
        (self.group,) = created(cluster, "keyed", cleanup_policy="compact", **rules)
        self.first, self.second, self.away = (
            node.config.node_id for node in (cluster.leader(self.group), *cluster.followers(self.group))
        )
        for key, value in [(b"k", b"old"), (b"x", b"1"), (b"k", None), (b"y", b"2"), (b"z", b"3")]:
            self.put(key, value)
        cluster.run(1_000)
        cluster.nodes[self.second].partitions[self.group].roll()
        cluster.run(60_000, until=lambda: b"k" not in {record.key for record in records(self.log(self.second))})
        self.repairs: list[str] = []

    def lose(self) -> ReplicaNode:
        """The log, from its start on."""
        self.cluster.stop(self.away)
        assert self.log(self.away).damage(0, -1) is not None
        node = self.cluster.start(self.away)
        assert list(node.damage.impaired) == [self.group]
        node.damage.listeners.append(lambda _group, reason: None if reason is None else self.repairs.append(reason))
        return node

    def fetched(self, node: ReplicaNode) -> list[bytes | None]:
        return [record.key for record in records(self.log(node.config.node_id))]

    def hand_over(self) -> None:
        """To the follower whose log is compacted."""
        leader = self.cluster.nodes[self.first]
        leader.engine.step(leader.partitions[self.group], ResignRequested())
        self.cluster.run(10_000, until=lambda: self.cluster.nodes[self.second].partitions[self.group].is_serving)


def test_a_log_that_two_leaders_gave_brings_no_deleted_key_back() -> None:
    """Simulator, seed 970001333."""
    story = Refetched()
    assert story.fetched(story.cluster.nodes[story.first]) == [b"k", b"x", b"k", b"y", b"z"]
    node = story.lose()
    story.cluster.run(20_000, until=lambda: story.fetched(node) == [b"k", b"x"])
    assert story.fetched(node) == [b"k", b"x"] and not node.partitions[story.group].wholeness.is_whole
    story.hand_over()
    story.mended(node)
    assert values(story.log(story.away)) == {b"x": b"1", b"y": b"2", b"z": b"3"}
    assert len(story.repairs) == 1 and "removed records" in story.repairs[0]
    assert node.partitions[story.group].wholeness.is_whole


def test_a_log_that_is_found_amid_its_repair_is_as_good_as_of_another_leader() -> None:
    """The restart forgot of which one it was."""
    story = Refetched()
    node = story.lose()
    story.cluster.run(20_000, until=lambda: story.fetched(node) == [b"k", b"x"])
    story.cluster.stop(story.away)
    story.hand_over()
    node = story.cluster.start(story.away)
    assert node.damage.impaired and story.fetched(node) == [b"k"], "what was synced"
    story.mended(node)
    assert values(story.log(story.away)) == {b"x": b"1", b"y": b"2", b"z": b"3"}


def test_a_log_that_one_leader_gave_stays_when_the_leader_changes_behind_it() -> None:
    story = Refetched()
    node = story.lose()
    story.mended(node)
    assert node.partitions[story.group].wholeness.is_whole
    story.hand_over()
    story.put(b"x", b"4")
    story.cluster.run(1_000)
    assert story.repairs == [] and story.fetched(node)[:3] == [b"k", b"x", b"k"]


# --- an observer begins with nothing ---

OBSERVER = NodeId(4)


class Joining(Refetched):
    """A new node without a vote, which takes one batch at a time too."""

    def __init__(self) -> None:
        super().__init__()
        self.away = OBSERVER
        self.cluster.wipe(OBSERVER)
        self.begin()

    def begin(self) -> ReplicaNode:
        node = self.cluster.start(OBSERVER)
        node.damage.listeners.append(lambda _group, reason: None if reason is None else self.repairs.append(reason))
        return node

    def has(self, *keys: bytes) -> bool:
        return self.group in self.cluster.disks[OBSERVER].logs and self.fetched(self.cluster.nodes[OBSERVER]) == list(keys)

    def stop_amid_its_first_fetch(self) -> None:
        """What it has is durable."""
        self.cluster.run(20_000, until=lambda: self.has(b"k", b"x"))
        self.log(OBSERVER).settle()
        self.cluster.stop(OBSERVER)

    def caught_up(self) -> bool:
        return self.log(OBSERVER).end_offset == self.log(self.cluster.leader(self.group).config.node_id).end_offset


def test_an_observer_that_restarts_amid_its_first_fetch_brings_no_deleted_key_back() -> None:
    """Simulator, seed 1100012778."""
    story = Joining()
    story.stop_amid_its_first_fetch()
    story.hand_over()
    node = story.begin()
    story.cluster.run(20_000, until=lambda: story.caught_up() and not node.damage.impaired)
    assert values(story.log(OBSERVER)) == {b"x": b"1", b"y": b"2", b"z": b"3"}
    assert len(story.repairs) == 1 and "removed records" in story.repairs[0]
    assert node.partitions[story.group].wholeness.is_whole and not story.log(OBSERVER).is_partial


def test_an_observer_that_finds_its_leader_again_keeps_what_it_has() -> None:
    """Nothing was removed of the rest."""
    story = Joining()
    story.stop_amid_its_first_fetch()
    node = story.begin()
    assert not node.partitions[story.group].wholeness.is_whole
    story.cluster.run(20_000, until=story.caught_up)
    story.cluster.run(1_000)
    assert story.repairs == [] and not story.log(OBSERVER).is_partial
    assert story.fetched(node) == [b"k", b"x", b"k", b"y", b"z"]
    story.cluster.stop(OBSERVER)
    story.hand_over()
    assert story.begin().partitions[story.group].wholeness.is_whole


class Late(Refetched):
    """A voter that is down since before the topic was there. The tombstone stays for it, and the older value goes elsewhere."""

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(3, cleaner_backoff_ms=100, replica_fetch_bytes_max=100)
        cluster.leader()
        self.away = cluster.followers()[0].config.node_id
        cluster.stop(self.away)
        rules = {"min_cleanable_dirty_ratio": "0.0", "delete_retention_ms": "0"}
        (self.group,) = created(cluster, "keyed", cleanup_policy="compact", **rules)
        self.first = cluster.leader(self.group).config.node_id
        (self.second,) = set(cluster.nodes) - {self.first}
        for key, value in [(b"x", b"0"), (b"k", b"old"), (b"x", b"1"), (b"k", None), (b"y", b"2")]:
            self.put(key, value)
        cluster.nodes[self.second].partitions[self.group].roll()
        cluster.run(60_000, until=lambda: cluster.nodes[self.second].compactor.counts.passes > 0)
        self.repairs: list[str] = []


def test_a_voter_that_is_late_takes_what_two_leaders_give_and_keeps_its_vote() -> None:
    """Simulator, seed 1110003134: with one of three damaged, no majority was left that could vote."""
    story = Late()
    node = story.cluster.start(story.away)
    node.damage.listeners.append(lambda _group, reason: None if reason is None else story.repairs.append(reason))
    story.cluster.run(20_000, until=lambda: story.group in node.partitions and story.fetched(node) == [b"x"])
    story.hand_over()
    story.cluster.run(20_000, until=lambda: story.log(story.away).end_offset == story.log(story.second).end_offset)
    assert story.fetched(node) == [b"x", b"x", b"k", b"y"], "the older value of k is gone, and the tombstone waited"
    assert story.repairs == [] and not story.log(story.away).is_partial


def test_a_leader_that_compacts_sends_nothing_of_it_from_memory() -> None:
    """A replica would get the older value from there, and find its tombstone gone."""
    story = Refetched()
    leader = story.cluster.nodes[story.first]
    find = leader.fetch_server._recent.find
    epoch = leader.partitions[story.group].core.epoch
    end = leader.partitions[story.group].log.end_offset
    assert find(story.group, 1, epoch, 1_000) is not None
    leader.partitions[story.group].roll()
    story.put(b"z", b"4")
    story.cluster.run(30_000, until=lambda: leader.compactor.counts.passes > 0)
    assert leader.compactor.counts.passes > 0
    assert [find(story.group, offset, epoch, 1_000) for offset in range(1, end)] == [None] * (end - 1)
    assert find(story.group, end, epoch, 1_000) is not None
