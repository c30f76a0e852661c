"""Damage that is found while the group has other things under way: each of them ends, and what was shown before is shown on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raftlake.errors import DamagedData, ErrorCode
from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.messages import RemoveVoter
from raftlake.raft.types import NodeId, Offset
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.disk import scrub
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.faults.damage import FLIPPED_BYTE
from raftlake.wire.api import ApiKey
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replica_cluster import Cluster, batch


@pytest.fixture(autouse=True)
def _no_scrub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own finder."""
    monkeypatch.setattr(scrub, "SCRUB_BYTES_PER_SECOND", 0)


def log_of(cluster: Cluster, node: ReplicaNode, group: GroupId = METADATA_GROUP) -> MemoryLog:
    return cluster.disks[node.config.node_id].logs[group]


def find_damage(cluster: Cluster, node: ReplicaNode, number: int, group: GroupId = METADATA_GROUP) -> None:
    """A read of the log comes upon a damaged batch."""
    log = log_of(cluster, node, group)
    offset = log.batches[number].base
    assert log.damage(number, FLIPPED_BYTE) is not None
    node.findings.found(group, DamagedData(f"{group}: batch {number} is damaged", offset=offset))


def write(cluster: Cluster, *keys: str, value: bytes = bytes(200)) -> None:
    for key in keys:
        outcomes: list[ProposeOutcome] = []
        cluster.leader().kv.propose(put(key, value), outcomes.append)
        cluster.run(5_000, until=lambda: bool(outcomes))  # noqa: B023
        assert outcomes[0].status is ProposeStatus.DONE


# --- two logs ---


def fetch_all(groups: Sequence[GroupId], *, wait_ms: int, bytes_min: int) -> FetchRequest:
    parts = [
        FetchPartition(
            index=group.partition,
            fetch_offset=4,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            bytes_max=1 << 20,
        )
        for group in groups
    ]
    topic = FetchTopic(groups[0].topic, None, parts)
    return FetchRequest(wait_ms_max=wait_ms, bytes_min=bytes_min, topics=[topic], isolation_level=0)


def test_a_log_that_a_waiting_reader_finds_damaged_again_is_set_aside_once() -> None:
    """Two logs were damaged. A consumer waited for both: told that the first one is started anew, it looked at the second one,
    which was started anew next. The turn behind that set the new log aside for damage that was gone, and the node stopped."""
    cluster = Cluster(3, segment_bytes=300)
    groups = cluster.create_topic("orders", 2)
    for number in range(10):
        for group in groups:
            cluster.produce(group, batch(f"value {number}".encode() * 5))
    cluster.run(500)
    node = next(each for each in cluster.nodes.values() if not any(each.partitions[group].core.is_leader for group in groups))
    waiting = cluster.send(node, ApiKey.FETCH, fetch_all(groups, wait_ms=20_000, bytes_min=1 << 19))
    cluster.run(5)
    assert not waiting
    told: list[GroupId] = []
    node.damage.listeners.append(lambda group, reason: None if reason is None else told.append(group))
    for group in groups:
        assert log_of(cluster, node, group).damage(4, -1) is not None
    cluster.send(node, ApiKey.FETCH, fetch_all(groups, wait_ms=0, bytes_min=1))
    cluster.run(10_000, until=lambda: len(told) == 2 and not node.damage.impaired)
    assert node.fatal is None and sorted(told) == sorted(groups)


# --- a turn that appends too ---


def test_a_damaged_log_takes_no_record_before_it_is_started_anew() -> None:
    """The turn that applied a command came upon damage, and dropped an append of the same turn. The next append stood behind a
    gap, and the node stopped."""
    cluster = Cluster(3)
    cluster.run(1_000)
    node = cluster.leader()
    partition, log = node.partitions[METADATA_GROUP], log_of(cluster, node)
    outcomes: list[ProposeOutcome] = []
    receive, advance = node.fetch_server.receive, node.kv.advance
    before = partition.core.high_watermark
    left = ["damage", "propose"]

    def damaging(*given: Any) -> None:
        """The Fetch that commits the first command has arrived."""
        receive(*given)
        if partition.core.high_watermark > before and "damage" in left:
            left.remove("damage")
            assert log.damage(len(log.batches) - 1, FLIPPED_BYTE) is not None
            node.kv.propose(put("second", b"2"), outcomes.append)

    def proposing(*given: Any) -> None:
        """Somebody proposes in the very turn that applies the first command."""
        if left == ["propose"]:
            left.remove("propose")
            node.kv.propose(put("third", b"3"), outcomes.append)
        advance(*given)

    node.fetch_server.receive = damaging  # type: ignore[method-assign]
    node.kv.advance = proposing  # type: ignore[method-assign]
    cluster.machines[node.config.node_id].run(node.kv.propose, put("first", b"1"), outcomes.append)
    cluster.run(20_000, until=lambda: len(outcomes) == 3 and not node.damage.impaired)
    assert left == [] and node.fatal is None
    cluster.run(5_000, until=lambda: cluster.leader().kv.machine.get("first") is not None)


# --- a snapshot that is being written ---


def test_a_snapshot_that_was_being_written_is_taken_when_the_log_is_whole_again() -> None:
    """What had been written was thrown away with the damaged log, and the node waited for its end for as long as it ran: it
    took no other snapshot, and its metadata log grew."""
    cluster = Cluster(3, snapshot_bytes_between=3_000, segment_bytes=2_000)
    node = cluster.followers()[0]
    write(cluster, *(f"a{number}" for number in range(6)))
    cluster.run(1_000)
    ids = node.engine.logs.snapshots.ids
    assert not ids(METADATA_GROUP)
    covered = node.kv.bytes_since_snapshot
    node.snapshots.take(node.partitions[METADATA_GROUP])
    find_damage(cluster, node, 4)
    cluster.run(10_000, until=lambda: not node.damage.impaired and not node.findings.has_found)
    assert node.kv.bytes_since_snapshot >= covered > 0, "what it would have covered is counted for the next one"
    for part in range(3):
        write(cluster, *(f"b{part}{number}" for number in range(30)))
        cluster.run(2_000)
    assert len(ids(METADATA_GROUP)) == 2 and node.partitions[METADATA_GROUP].core.log_start > 0


# --- a state that is newer than the leader's snapshot ---


def behind_its_state() -> tuple[Cluster, ReplicaNode, int]:
    """The log of a follower is damaged at its begin, and the leader's begins with a snapshot that the follower is ahead of."""
    cluster = Cluster(3, snapshot_bytes_between=1 << 30, segment_bytes=300)
    leader = cluster.leader()
    for number in range(4):
        write(cluster, f"k{number}", value=b"x" * 100)
        cluster.run(500)
        leader.snapshots.take(leader.partitions[METADATA_GROUP])
        cluster.run(500)
    write(cluster, "last", "deleted")
    write(cluster, "deleted", value=b"")
    cluster.run(500)
    node = next(each for each in cluster.nodes.values() if each is not leader)
    newest = leader.partitions[METADATA_GROUP].core.snapshot_id
    assert newest is not None and leader.partitions[METADATA_GROUP].log.start_offset > 0
    assert newest.offset < node.kv.machine.applied_offset
    return cluster, node, newest.offset


def test_the_key_space_does_not_go_back_where_a_log_begins_anew_behind_an_older_snapshot() -> None:
    """Keys were gone again for a moment, watchers were told the same changes once more, and a transaction that was over could
    be begun again by a batch that came late."""
    cluster, node, start = behind_its_state()
    machine = node.kv.machine
    applied = machine.applied_offset
    changes: list[int] = []
    node.kv.listeners.append(changes.append)
    find_damage(cluster, node, 0)
    seen: set[tuple[int, bool]] = set()
    for _ in range(3_000):
        cluster.run(1)
        seen.add((machine.applied_offset, machine.get("last") is not None))
    assert seen == {(applied, True)} and changes == []
    partition = node.partitions[METADATA_GROUP]
    assert partition.core.log_start == start and not node.damage.impaired
    assert partition.high_watermark == applied, "it is shown again when the log reaches it"
    write(cluster, "next")
    cluster.run(1_000, until=lambda: machine.get("next") is not None)
    assert node.fatal is None


def test_a_restoration_that_is_under_way_is_begun_anew_with_the_log() -> None:
    """Its snapshot was put aside with the log. The next slice read a file that was gone, and the node stopped."""
    cluster, node, _ = behind_its_state()
    me = node.config.node_id
    write(cluster, *(f"more{number}" for number in range(20)))
    node.snapshots.take(node.partitions[METADATA_GROUP])
    cluster.run(500)
    assert node.engine.logs.snapshots.ids(METADATA_GROUP)
    cluster.stop(me)
    node = cluster.start(me)
    assert node.kv.is_restoring
    (snapshot_id,) = node.engine.logs.snapshots.ids(METADATA_GROUP)[-1:]
    log_of(cluster, node).damage(0, FLIPPED_BYTE)
    node.engine.logs.snapshots.delete(METADATA_GROUP, snapshot_id)
    node.findings.found(METADATA_GROUP, DamagedData("a read came upon it", offset=0))
    leader = cluster.leader()
    cluster.run(20_000, until=lambda: node.kv.machine.applied_offset == leader.kv.machine.applied_offset)
    assert node.fatal is None and not node.kv.is_restoring
    assert node.kv.machine.list("", None, 100) == leader.kv.machine.list("", None, 100)


# --- an observer whose settings name nobody else ---


def removed_first_node(size: int = 3) -> tuple[Cluster, NodeId, ReplicaNode, GroupId]:
    """The first node of a quorum that grew. It was removed from the voters, and its settings name it alone."""
    cluster = Cluster(size, directories=True)
    cluster.run(5_000, until=lambda: all(node.quorum.committed is not None for node in cluster.nodes.values()))
    (group,) = cluster.create_topic("orders")
    for value in (b"one", b"two", b"three"):
        cluster.produce(group, batch(value))
    cluster.run(2_000)
    leader = cluster.leader()
    first = next(node for node in cluster.followers() if node is not cluster.leader(group)).config.node_id
    answers: list[Any] = []
    leader.engine.begin_input()
    change = RemoveVoter(voter=leader.quorum.latest.voters[first])
    leader.voter_changes.request(leader.partitions[METADATA_GROUP], change, answers.append)
    cluster.run(5_000, until=lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE
    cluster.run(10_000, until=lambda: all(first not in node.partitions[group].core.voters for node in cluster.nodes.values()))
    cluster.stop(first)
    node = cluster.start(first, voters={first: Endpoint("127.0.0.1", 9090 + first)})
    cluster.run(3_000)
    return cluster, first, node, group


@pytest.mark.parametrize("is_restarted", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("is_metadata", [False, True], ids=["partition", "metadata"])
def test_an_observer_that_lost_all_of_a_log_asks_for_it(is_metadata: bool, is_restarted: bool) -> None:
    """By its settings it was the only voter, so it asked nobody, and no leader asks an observer."""
    cluster, first, node, orders = removed_first_node()
    group = METADATA_GROUP if is_metadata else orders
    end = log_of(cluster, node, group).end_offset
    assert node.partitions[group].core.hears_leader and end > Offset(4)
    cluster.cut(first)
    find_damage(cluster, node, 0, group)
    cluster.run(100)
    assert group in node.damage.impaired and log_of(cluster, node, group).end_offset == 0
    if is_restarted:
        cluster.stop(first)
        node = cluster.start(first, voters={first: Endpoint("127.0.0.1", 9090 + first)})
    cluster.heal()
    cluster.run(20_000, until=lambda: log_of(cluster, node, group).end_offset >= end and not node.damage.impaired)
    assert node.partitions[group].core.hears_leader


def test_an_observer_that_lost_all_of_a_log_asks_the_voters_of_its_topic_where_the_leader_is_gone() -> None:
    cluster, first, node, group = removed_first_node(4)
    end = log_of(cluster, node, group).end_offset
    gone = node.partitions[group].core.leader_id
    cluster.cut(first)
    find_damage(cluster, node, 0, group)
    cluster.run(100)
    cluster.stop(gone)
    cluster.heal()
    cluster.run(30_000, until=lambda: log_of(cluster, node, group).end_offset >= end and not node.damage.impaired)
    assert node.partitions[group].core.leader_id not in (gone, first)
