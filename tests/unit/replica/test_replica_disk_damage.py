"""Damaged logs in a running quorum: found by whoever reads them, cut, fetched again from the others; never voted over."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, StorageError
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk import scrub
from raftlake.replica.handover import HOLD_MS
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication.recent_appends import RecentAppends
from raftlake.sim.disk.decay import Decay
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.log_image import LogImage
from raftlake.sim.faults.damage import FLIPPED_BYTE
from raftlake.wire.api import ApiKey
from replica_cluster import Cluster, batch, produce_request

UNREADABLE = -1


#: Neither is covered by a batch's CRC.
BASE_OFFSET_BYTE, EPOCH_BYTE = 4, 15
#: The CRC covers these parts of a header: attributes, producer id, producer epoch, base sequence, record count.
COUNTED_BYTES = [22, 50, 52, 55, 59]
PRODUCER = 5


@pytest.fixture(
    params=[FLIPPED_BYTE, BASE_OFFSET_BYTE, EPOCH_BYTE, UNREADABLE],
    ids=["bit flipped", "offset flipped", "epoch flipped", "unreadable"],
)
def byte(request: pytest.FixtureRequest) -> int:
    damaged: int = request.param
    return damaged


@pytest.fixture(autouse=True)
def _no_scrub(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find everything in a second; each test has its own finder."""
    monkeypatch.setattr(scrub, "SCRUB_BYTES_PER_SECOND", 0)


class Quorum:
    """Three nodes with a topic of ten batches in several segments."""

    def __init__(self, size: int = 3) -> None:
        self.cluster = Cluster(size, segment_bytes=300)
        (self.group,) = self.cluster.create_topic("orders")
        self.values = [f"value {number}".encode() * 5 for number in range(10)]
        for value in self.values:
            self.cluster.produce(self.group, batch(value))
        self.cluster.run(500)
        self.events: list[tuple[int, GroupId, str | None]] = []
        for node in self.cluster.nodes.values():
            self.listen(node)

    def listen(self, node: ReplicaNode) -> None:
        def hear(group: GroupId, reason: str | None) -> None:
            self.events.append((node.config.node_id, group, reason))

        node.damage.listeners.append(hear)

    def log(self, node: ReplicaNode | NodeId) -> MemoryLog:
        node_id = node if isinstance(node, int) else node.config.node_id
        return self.cluster.disks[NodeId(node_id)].logs[self.group]

    def damage(self, node: ReplicaNode, number: int, byte: int) -> None:
        found = self.log(node).damage(number, byte)
        assert found is not None

    def is_whole(self, node: ReplicaNode) -> bool:
        other = next(each for each in self.cluster.nodes.values() if each is not node)
        mine, theirs = self.log(node), self.log(other)
        return mine.decay.is_sound and list(mine.batches) == list(theirs.batches)

    def read_all(self, node: ReplicaNode) -> list[ErrorCode]:
        """Read the topic from its beginning at one node, once through; the errors on the way."""
        errors = []
        offset = 0
        while offset < node.partitions[self.group].high_watermark:
            answer = self.cluster.fetch(node, self.group, offset, bytes_max=1)
            errors.append(answer.error)
            if answer.error is not ErrorCode.NONE:
                break
            offset += 1
        return errors


def test_a_consumer_never_gets_damaged_bytes_and_the_follower_repairs_itself(byte: int) -> None:
    quorum = Quorum()
    follower = quorum.cluster.followers(quorum.group)[0]
    quorum.damage(follower, 4, byte)
    assert quorum.read_all(follower)[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    quorum.cluster.run(20)
    quorum.cluster.run(5_000, until=lambda: quorum.is_whole(follower))
    assert quorum.is_whole(follower)
    assert [(node_id, reason is None) for node_id, _, reason in quorum.events] == [
        (follower.config.node_id, False),
        (follower.config.node_id, True),
    ]
    assert follower.damage.impaired == {}
    quorum.cluster.run(1_000)
    assert set(quorum.read_all(follower)) == {ErrorCode.NONE}


def test_a_leader_that_cannot_read_its_own_log_hands_over(byte: int) -> None:
    quorum = Quorum()
    leader = quorum.cluster.leader(quorum.group)
    epoch = leader.partitions[quorum.group].core.epoch
    quorum.damage(leader, 4, byte)
    assert quorum.read_all(leader)[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    quorum.cluster.run(10_000, until=lambda: quorum.is_whole(leader) and not leader.damage.impaired)
    assert quorum.is_whole(leader)
    successor = quorum.cluster.leader(quorum.group)
    assert successor.partitions[quorum.group].core.epoch > epoch
    assert quorum.cluster.produce(quorum.group, batch(b"more")).error is ErrorCode.NONE


def test_a_follower_that_gets_the_same_damage_again_makes_the_leader_look(byte: int) -> None:
    """The leader sends log bytes unread; only when they are asked for twice does it check them."""
    quorum = Quorum()
    leader = quorum.cluster.leader(quorum.group)
    behind = quorum.cluster.followers(quorum.group)[0]
    quorum.damage(leader, 4, byte)
    # It was appended so long ago that it has to be read back.
    leader.fetch_server._recent = RecentAppends(bytes_max=0)
    quorum.cluster.stop(behind.config.node_id)
    log = quorum.log(behind)
    image = log.image.cut(3)
    image.synced_end = image.end
    log._images, log._image = [image], image
    # It was never told of more than it holds.
    restarted = quorum.cluster.start(behind.config.node_id)
    quorum.listen(restarted)
    quorum.cluster.run(20_000, until=lambda: quorum.is_whole(restarted) and quorum.is_whole(leader))
    assert quorum.is_whole(restarted)
    assert (leader.config.node_id, False) in [(node_id, reason is None) for node_id, _, reason in quorum.events]


def test_the_scrub_finds_what_nobody_reads(byte: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()
    follower = quorum.cluster.followers(quorum.group)[0]
    quorum.damage(follower, 1, byte)
    quorum.cluster.run(5_000)
    assert quorum.events == [], "no budget, no reading"
    monkeypatch.setattr(scrub, "SCRUB_BYTES_PER_SECOND", 500)
    quorum.cluster.run(10_000, until=lambda: bool(quorum.events))
    assert quorum.events[0][0] == follower.config.node_id
    quorum.cluster.run(5_000, until=lambda: quorum.is_whole(follower))
    assert quorum.is_whole(follower)


def test_damage_found_at_start_is_repaired(byte: int) -> None:
    quorum = Quorum()
    follower = quorum.cluster.followers(quorum.group)[0]
    quorum.cluster.stop(follower.config.node_id)
    log = quorum.log(follower)
    quorum.damage(follower, len(log.batches) - 1, byte)
    restarted = quorum.cluster.start(follower.config.node_id)
    assert restarted.fatal is None
    assert list(restarted.damage.impaired) == [quorum.group]
    quorum.cluster.run(5_000, until=lambda: quorum.is_whole(restarted))
    assert quorum.is_whole(restarted)


@pytest.mark.parametrize("is_written", [False, True], ids=["idle", "written to"])
def test_a_damaged_end_is_repaired_in_the_same_epoch_and_the_node_votes_again(is_written: bool) -> None:
    """Nobody knows any more how far its log reached; the leader's log end bounds it. Records go to this follower with a pause
    between rounds, as a majority can do without it."""
    quorum = Quorum()
    cluster, group = quorum.cluster, quorum.group
    leader = cluster.leader(group)
    epoch = leader.partitions[group].core.epoch
    follower = cluster.followers(group)[0]
    cluster.stop(follower.config.node_id)
    quorum.damage(follower, len(quorum.log(follower).batches) - 1, UNREADABLE)
    restarted = cluster.start(follower.config.node_id)
    assert list(restarted.damage.impaired) == [group]
    deadline_ms = cluster.now_ms + 1_000
    while restarted.damage.impaired and cluster.now_ms < deadline_ms:
        if is_written:
            cluster.send(leader, ApiKey.PRODUCE, produce_request(group, batch(b"more")), version=9)
        cluster.run(3)
    assert restarted.damage.impaired == {}
    assert cluster.leader(group) is leader
    assert leader.partitions[group].core.epoch == epoch
    cluster.stop(leader.config.node_id)
    assert cluster.produce(group, batch(b"after")).error is ErrorCode.NONE, "two of three are a majority"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_log_that_begins_at_its_end_hears_that_there_is_no_more(is_damaged: bool) -> None:
    """What such a log's owner knows to be committed is all there is, so the leader had nothing to tell: until the next record
    the node was not ready, and an impaired one gave no vote."""
    cluster = Cluster(3)
    for number in range(10):
        outcomes: list[ProposeOutcome] = []
        cluster.leader().kv.propose(put(f"key{number}", b"value"), outcomes.append)
        cluster.run(100, until=lambda outcomes=outcomes: bool(outcomes))  # type: ignore[misc]
    cluster.run(500)
    away = cluster.followers()[0]
    partition = away.partitions[METADATA_GROUP]
    end = cluster.leader().partitions[METADATA_GROUP].core.log_end
    away.snapshots.take(partition)
    cluster.run(500, until=lambda: partition.core.snapshot_id is not None)
    cluster.stop(away.config.node_id)
    log = cluster.disks[away.config.node_id].logs[METADATA_GROUP]
    if is_damaged:
        assert log.damage(1, UNREADABLE) is not None
        log.start_points.delete(log.start_points.offsets)
    else:
        log.reset(OffsetAndEpoch(Offset(end), Epoch(1)))
    restarted = cluster.start(away.config.node_id)
    core = restarted.partitions[METADATA_GROUP].core
    assert (core.log_start, core.log_end, bool(restarted.damage.impaired)) == (end, end, is_damaged)
    cluster.run(1_000, until=restarted.is_ready)
    assert restarted.damage.impaired == {}
    assert restarted.kv.machine.applied_offset == end


@pytest.mark.parametrize("at", [0, 4, 7, 8, 11, *COUNTED_BYTES])
def test_a_start_gets_through_a_log_with_a_broken_header(at: int) -> None:
    """Where no point shortens the way, every header is read at start; offsets and lengths that lead nowhere, or back, must not
    keep it there for ever. What a damaged header says of its producer must not be believed."""
    quorum = Quorum()
    follower = quorum.cluster.followers(quorum.group)[0]
    quorum.cluster.stop(follower.config.node_id)
    points = quorum.log(follower).start_points
    points.delete(points.offsets)
    quorum.damage(follower, 4, at)
    restarted = quorum.cluster.start(follower.config.node_id)
    assert list(restarted.damage.impaired) == [quorum.group]
    quorum.cluster.run(5_000, until=lambda: quorum.is_whole(restarted))
    assert quorum.is_whole(restarted)


def test_the_metadata_log_is_repaired_too(byte: int) -> None:
    quorum = Quorum()
    quorum.group = METADATA_GROUP
    follower = quorum.cluster.followers()[0]
    quorum.cluster.stop(follower.config.node_id)
    quorum.damage(follower, 0, byte)
    restarted = quorum.cluster.start(follower.config.node_id)
    quorum.cluster.run(10_000, until=lambda: quorum.is_whole(restarted) and restarted.is_ready())
    assert quorum.is_whole(restarted)
    assert restarted.kv.machine.applied_offset == quorum.cluster.leader().kv.machine.applied_offset


def test_nobody_is_elected_while_a_majority_is_impaired() -> None:
    """The same records are damaged on two of three: whoever were elected might lack them. Nothing vanishes silently."""
    quorum = Quorum()
    nodes = list(quorum.cluster.nodes.values())
    for node in nodes:
        quorum.cluster.stop(node.config.node_id)
    for node in nodes[:2]:
        quorum.damage(node, len(quorum.log(node).batches) - 1, UNREADABLE)
    started = [quorum.cluster.start(node.config.node_id) for node in nodes]
    quorum.cluster.run(20_000)
    assert not any(node.partitions[quorum.group].core.is_leader for node in started)
    assert all(node.damage.impaired[quorum.group].startswith("damaged at") for node in started[:2])
    assert started[2].damage.impaired == {}


def test_a_node_that_votes_alone_stops_and_cuts_nothing(byte: int) -> None:
    quorum = Quorum(1)
    (node,) = quorum.cluster.nodes.values()
    quorum.damage(node, 4, byte)
    before = list(quorum.log(node).batches)
    quorum.read_all(node)
    with pytest.raises(StorageError, match=rf"{quorum.group} at \d+.*only voter"):
        quorum.cluster.run(100)
    assert isinstance(node.fatal, StorageError)
    assert list(quorum.log(node).batches) == before


def test_decay_of_an_empty_log_is_nothing() -> None:
    decay = Decay()
    decay.look_at_start(LogImage())
    assert decay.is_sound
    assert decay.scrub(LogImage(), 0, 100) == 0


def found_damaged(quorum: Quorum, node: ReplicaNode, number: int = 0) -> None:
    """A batch of the node is damaged, and a read has come upon it."""
    quorum.damage(node, number, UNREADABLE)
    log = node.partitions[quorum.group].log
    assert node.findings.guarded(quorum.group, lambda: log.read(Offset(number), Offset(number + 1), 1)) is None


def stopped_amid_an_append(quorum: Quorum) -> ReplicaNode:
    """A leader that is to stop while its last record, of a client's append, is at no follower."""
    leader = quorum.cluster.leader(quorum.group)
    me, partition = leader.config.node_id, leader.partitions[quorum.group]
    quorum.cluster.run(1000)
    quorum.cluster.cut(me)
    if quorum.group == METADATA_GROUP:
        leader.kv.propose(put("on its way", b"1"), lambda _: None)
    else:
        quorum.cluster.send(leader, ApiKey.PRODUCE, produce_request(quorum.group, batch(b"on its way")), version=9)
    quorum.cluster.run(10, until=lambda: partition.core.log_end > partition.high_watermark)
    leader.resign()
    assert partition.core.is_leader and leader.handover.holds(partition)
    return leader


def test_a_proposal_that_a_stopping_leader_holds_is_refused_when_its_log_is_damaged() -> None:
    """Simulator, seed 770000353. Who was refused in the moment without an open log was looked up in that log: KeyError."""
    quorum = Quorum()
    quorum.group = METADATA_GROUP
    leader = stopped_amid_an_append(quorum)
    outcomes: list[ProposeOutcome] = []
    leader.kv.propose(put("held", b"2"), outcomes.append)
    quorum.cluster.run(1)
    assert not outcomes
    found_damaged(quorum, leader)
    quorum.cluster.run(1)
    assert leader.fatal is None
    assert outcomes == [ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=NO_LEADER)]


def test_what_is_held_for_a_log_that_was_opened_anew_is_refused_with_the_rest() -> None:
    """The hold was ended for the partition as it had been when the stop began, and later appends waited for ever."""
    quorum = Quorum()
    leader = stopped_amid_an_append(quorum)
    found_damaged(quorum, leader)
    quorum.cluster.run(1)
    answers = quorum.cluster.send(leader, ApiKey.PRODUCE, produce_request(quorum.group, batch(b"late")), version=9)
    quorum.cluster.run(HOLD_MS + 1, until=lambda: bool(answers))
    assert answers[0].topics[0].partitions[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_repaired_log_shows_consumers_no_less_than_they_saw_before() -> None:
    """Simulator, seed 780000362. The leader tells what is committed piece by piece as it sends the records again."""
    quorum = Quorum()
    follower = quorum.cluster.followers(quorum.group)[0]
    me = follower.config.node_id
    quorum.cluster.run(1_000)
    shown = follower.partitions[quorum.group].high_watermark
    assert shown == 11
    quorum.cluster.cut(me)
    # The second time the log is cut to nothing, before the first repair has come to its end.
    for number in (4, 0):
        found_damaged(quorum, follower, number)
        quorum.cluster.run(20)
        repaired = follower.partitions[quorum.group]
        assert repaired.log.end_offset == number
        for high_watermark in (1, shown - 1):
            repaired.show(high_watermark)
            assert quorum.cluster.fetch(follower, quorum.group, 0).error is ErrorCode.OFFSET_NOT_AVAILABLE
    quorum.cluster.heal()
    quorum.cluster.run(10_000, until=lambda: quorum.is_whole(follower) and repaired.high_watermark >= shown)
    assert set(quorum.read_all(follower)) == {ErrorCode.NONE}


def idempotent(sequence: int) -> dict[str, int]:
    return {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence}


@pytest.mark.parametrize("at", COUNTED_BYTES)
def test_a_cut_log_does_not_believe_a_damaged_header_about_its_producer(at: int) -> None:
    """Simulator, seed 791103136. A replaced leader cut its log and read of a producer in a damaged header. When it led again,
    it refused the producer's next batch as out of order."""
    quorum = Quorum()
    cluster, group = quorum.cluster, quorum.group
    for sequence in range(2):
        assert cluster.produce(group, batch(b"known", **idempotent(sequence))).error is ErrorCode.NONE
    cluster.run(500)
    replaced = cluster.leader(group)
    me, partition = replaced.config.node_id, replaced.partitions[group]
    known = partition.core.log_end
    cluster.cut(me)
    # No Fetch waits at the leader any more.
    cluster.run(1_000)
    cluster.send(replaced, ApiKey.PRODUCE, produce_request(group, batch(b"cut", **idempotent(2))), version=9)
    cluster.run(20_000, until=lambda: cluster.leader(group) is not replaced)
    assert partition.core.log_end == known + 1
    quorum.log(replaced).start_points.delete(quorum.log(replaced).start_points.offsets)
    number = next(index for index, each in enumerate(quorum.log(replaced).batches) if each.base == known - 1)
    quorum.damage(replaced, number, at)
    cluster.heal()
    cluster.run(20_000, until=lambda: quorum.is_whole(replaced) and not replaced.damage.impaired)
    assert [(node_id, reason is None) for node_id, _, reason in quorum.events] == [(me, False), (me, True)]
    producers = replaced.partitions[group].producers
    repeated = producers.check(PRODUCER, 0, 1, 1, history_trimmed=False)
    assert repeated is not None and repeated.base_offset == known - 1
    assert producers.check(PRODUCER, 0, 2, 1, history_trimmed=False) is None


def delete(cluster: Cluster, name: str) -> None:
    """Returns once the leader knows it."""
    leader, done = cluster.leader(), list[object]()
    topic = leader.names.topic(name)
    assert topic is not None
    leader.topics.delete(topic, lambda *result: done.append(result))
    cluster.run(3_000, until=lambda: bool(done))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_deleted_topic_is_impaired_no_longer(is_restarted: bool) -> None:
    """A node told of it until its process ended."""
    quorum = Quorum()
    cluster, group = quorum.cluster, quorum.group
    leaders = (cluster.leader(), cluster.leader(group))
    node = next(each for each in cluster.nodes.values() if each not in leaders)
    cluster.cut(node.config.node_id)
    quorum.damage(node, 4, FLIPPED_BYTE)
    node.findings.guarded(group, lambda: node.partitions[group].read_intact(Offset(4), Offset(10), 1 << 20))
    cluster.run(50)
    if is_restarted:
        cluster.stop(node.config.node_id)
        node = cluster.start(node.config.node_id)
        quorum.listen(node)
    assert list(node.damage.impaired) == [group]
    delete(cluster, "orders")
    cluster.leader().topics.create("orders", 1, {}, lambda *_result: None)
    cluster.run(1_000)
    again = cluster.leader().names.resolve_group("orders", 0)
    cluster.heal()
    cluster.run(10_000, until=lambda: again in node.partitions)
    assert again != group and group not in node.partitions
    assert node.damage.impaired == {} and node.fatal is None
    assert [each for each in quorum.events if each[2] is None] == [], "nothing was repaired"


def test_damage_of_one_topic_is_told_of_when_another_one_is_deleted() -> None:
    quorum = Quorum()
    cluster, group = quorum.cluster, quorum.group
    (other,) = cluster.create_topic("other")
    node = cluster.followers(group)[0]
    node.damage.impaired[group] = "damaged"
    delete(cluster, "other")
    cluster.run(5_000, until=lambda: other not in node.partitions)
    assert list(node.damage.impaired) == [group]
