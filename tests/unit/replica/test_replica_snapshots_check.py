"""A leader whose snapshot was damaged while it ran: followers cannot begin with it, and it mends it by itself."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeOutcome
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition import snapshot_files
from raftlake.replica.snapshots import check as snapshot_check
from replica_cluster import Cluster, batch


def flipped(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


DAMAGES = {"bit flipped": flipped, "cut": lambda data: data[: len(data) // 2], "empty": lambda data: b""}


class Trimmed:
    """Three nodes; one group's log begins at a snapshot on its leader, and one follower lost its disk."""

    def __init__(self, topic: str | None) -> None:
        self.cluster = cluster = Cluster(
            3, segment_bytes=2_000, snapshot_bytes_between=3_000, retention_bytes=3_000, retention_check_interval_ms=100
        )
        self.group: GroupId = METADATA_GROUP if topic is None else cluster.create_topic(topic)[0]
        for number in range(40):
            self.write(number)
            cluster.run(50)
        cluster.run(1_000, until=lambda: self.leader.partitions[self.group].core.log_start > 0)
        cluster.run(500)
        self.away = cluster.followers(self.group)[0].config.node_id

    def write(self, number: int) -> None:
        if self.group != METADATA_GROUP:
            self.cluster.produce(self.group, batch(b"%03d" % number * 100))
            return
        outcomes: list[ProposeOutcome] = []
        self.cluster.leader().kv.propose(put(f"k{number}", bytes(300)), outcomes.append)
        self.cluster.run(100, until=lambda: bool(outcomes))

    @property
    def leader(self) -> ReplicaNode:
        return self.cluster.leader(self.group)

    def newest(self) -> OffsetAndEpoch:
        found = self.leader.partitions[self.group].core.snapshot_id
        assert found is not None
        return found

    def wipe_and_start(self) -> ReplicaNode:
        self.cluster.wipe(self.away)
        return self.cluster.start(self.away)

    def has_all(self, node: ReplicaNode) -> bool:
        if self.group not in node.partitions:
            return False
        mine, theirs = node.partitions[self.group], self.leader.partitions[self.group]
        if self.group == METADATA_GROUP and (node.kv.is_restoring or len(node.kv.machine) != len(self.leader.kv.machine)):
            return False
        return mine.core.log_end == theirs.core.log_end == mine.high_watermark


@pytest.mark.parametrize("topic", [None, "orders"], ids=["keys", "partition"])
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_follower_gets_through_although_the_leaders_snapshot_was_damaged(topic: str | None, damage: str) -> None:
    trimmed = Trimmed(topic)
    cluster, group = trimmed.cluster, trimmed.group
    leader, snapshot_id = trimmed.leader, trimmed.newest()
    epoch = leader.partitions[group].core.epoch
    cluster.stop(trimmed.away)
    files = cluster.disks[leader.config.node_id].snapshots._finished
    files[group, snapshot_id] = DAMAGES[damage](files[group, snapshot_id])
    node = trimmed.wipe_and_start()
    cluster.run(30_000, until=lambda: trimmed.has_all(node))
    assert trimmed.leader is leader and leader.partitions[group].core.epoch == epoch
    assert leader.damage.impaired == {}
    assert snapshot_files.check(leader.engine.logs.snapshots, group, trimmed.newest())


@pytest.mark.parametrize("topic", [None, "orders"], ids=["keys", "partition"])
def test_a_snapshot_under_the_name_of_another_is_damage(topic: str | None) -> None:
    """Every CRC in it is right, and so is the epoch: it is a state of the past."""
    trimmed = Trimmed(topic)
    cluster, group = trimmed.cluster, trimmed.group
    old_id = trimmed.newest()
    old = cluster.disks[trimmed.away].snapshots._finished
    past = next(iter(data for (owner, _), data in old.items() if owner == group))
    for number in range(100, 140):
        trimmed.write(number)
        cluster.run(50)
    assert trimmed.newest() > old_id
    cluster.stop(trimmed.away)
    for key in [key for key in old if key[0] == group]:
        old[key] = past
    node = cluster.start(trimmed.away)
    assert "it is the snapshot of offset" in node.damage.impaired[group]
    cluster.run(10_000, until=lambda: trimmed.has_all(node) and not node.damage.impaired)
    # And where the leader has it, a follower takes it for damaged and the leader writes it anew.
    leader, snapshot_id = trimmed.leader, trimmed.newest()
    cluster.stop(trimmed.away)
    cluster.disks[leader.config.node_id].snapshots._finished[group, snapshot_id] = past
    node = trimmed.wipe_and_start()
    cluster.run(30_000, until=lambda: trimmed.has_all(node))


def test_a_snapshot_that_is_intact_is_looked_at_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice at a time; a newer one that takes its place meanwhile ends the look."""
    monkeypatch.setattr(snapshot_check, "SLICE_BYTES", 1)
    trimmed = Trimmed(None)
    leader, snapshot_id = trimmed.leader, trimmed.newest()
    check = snapshot_check.SnapshotCheck(leader.engine, leader.snapshots)
    before = leader.engine.logs.snapshots.ids(METADATA_GROUP)
    for _ in range(3):
        check.on_begun(METADATA_GROUP, snapshot_id, trimmed.away)
    assert check._under_way == {METADATA_GROUP: snapshot_id}
    trimmed.cluster.run(500, until=lambda: not check._under_way)
    assert leader.engine.logs.snapshots.ids(METADATA_GROUP) == before
    for _ in range(2):
        check.on_begun(METADATA_GROUP, snapshot_id, trimmed.away)
    leader.engine.logs.snapshots.delete(METADATA_GROUP, snapshot_id)
    trimmed.cluster.run(500, until=lambda: not check._under_way)
    assert leader.fatal is None
