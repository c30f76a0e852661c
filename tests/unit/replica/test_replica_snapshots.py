"""A cluster that takes snapshots, trims its logs behind them, ships them to whoever fell behind, and starts from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from raftlake.errors import CorruptBatch, DiskFull, ErrorCode, StorageError, TooManyFiles
from raftlake.kv.commands import delete, put
from raftlake.kv.keyspace import LEAF_KEYS_MAX, KeySpace, pack
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchSnapshotReply, FetchSnapshotRpc, GroupId, PeerMessage, PeerReply
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv import restore as kv_restore
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition import snapshot_files
from raftlake.replica.snapshots import snapshots
from raftlake.replica.snapshots import transfer as snapshot_transfer
from raftlake.sim.disk.disk import MemoryLog
from raftlake.sim.disk.snapshot_store import MemorySnapshotWriter
from replica_cluster import Cluster, batch

SETTINGS = {"snapshot_bytes_between": 3_000, "segment_bytes": 2_000}


def write(cluster: Cluster, *keys: str, value: bytes = bytes(200)) -> None:
    """Put each key at the leader, one after the other."""
    outcomes: list[ProposeOutcome] = []
    for count, key in enumerate(keys, 1):
        cluster.leader().kv.propose(put(key, value), outcomes.append)
        while len(outcomes) < count:
            cluster.run(1)
            assert cluster.now_ms < 1_000_000
        assert outcomes[-1].status is ProposeStatus.DONE


def names(count: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{number:03d}" for number in range(count)]


def metadata_start(node: ReplicaNode) -> int:
    return node.partitions[METADATA_GROUP].core.log_start


def trimmed_cluster(**settings: object) -> Cluster:
    """Three nodes whose metadata log begins above 0 everywhere."""
    cluster = Cluster(3, **{**SETTINGS, **settings})  # type: ignore[arg-type]
    for part in range(4):
        write(cluster, *names(20, f"k{part}"))
        cluster.run(500)
    cluster.run(3_000, until=lambda: all(metadata_start(node) > 0 for node in cluster.nodes.values()))
    return cluster


def write_on(cluster: Cluster) -> None:
    """Enough for two more snapshots."""
    for part in range(3):
        write(cluster, *names(20, f"more{part}"))
        cluster.run(500)


def agree(cluster: Cluster) -> bool:
    states = [node.kv.machine.list("", None, 10_000)[0] for node in cluster.nodes.values()]
    return all(state == states[0] for state in states)


def test_snapshots_are_taken_the_log_is_trimmed_and_two_snapshots_stay() -> None:
    cluster = trimmed_cluster()
    for node in cluster.nodes.values():
        core = node.partitions[METADATA_GROUP].core
        ids = list(node.engine.logs.snapshots.ids(METADATA_GROUP))
        assert len(ids) == 2 and core.snapshot_id == ids[-1]
        assert 0 < core.log_start <= ids[0].offset < ids[1].offset <= core.high_watermark
        checked = snapshot_files.check(node.engine.logs.snapshots, METADATA_GROUP, ids[-1])
        assert checked.snapshot_id == ids[-1]


def test_a_replica_gets_a_snapshot_that_takes_longer_to_fetch_than_others_to_come() -> None:
    """Two newer ones were finished each time before it had the whole, and the one that it fetched was deleted."""
    cluster = trimmed_cluster(snapshot_fetch_bytes_max=100)
    behind = next(node.config.node_id for node in cluster.followers())
    cluster.stop(behind)
    write_on(cluster)
    cluster.start(behind)
    begun = cluster.leader().kv.machine.applied_offset
    for number in range(300):
        write(cluster, f"on{number:03d}")
        leader = cluster.leader()
        assert metadata_start(leader) <= leader.engine.logs.snapshots.ids(METADATA_GROUP)[0].offset
        if cluster.nodes[behind].kv.machine.applied_offset >= begun:
            break
    assert cluster.nodes[behind].kv.machine.applied_offset >= begun
    cluster.run(30_000)
    write_on(cluster)
    cluster.run(3_000, until=lambda: agree(cluster))
    for node in cluster.nodes.values():
        assert len(node.engine.logs.snapshots.ids(METADATA_GROUP)) == 2, "the others are deleted once they are fetched"


def test_nothing_is_taken_before_enough_was_written_and_an_interval_takes_one_anyway() -> None:
    cluster = Cluster(3, snapshot_bytes_between=1 << 30, snapshot_interval_ms=60_000)
    write(cluster, "a")
    cluster.run(50_000)
    assert all(not node.engine.logs.snapshots.ids(METADATA_GROUP) for node in cluster.nodes.values())
    cluster.run(20_000)
    assert all(len(node.engine.logs.snapshots.ids(METADATA_GROUP)) == 1 for node in cluster.nodes.values())
    cluster.run(200_000)
    assert all(len(node.engine.logs.snapshots.ids(METADATA_GROUP)) == 1 for node in cluster.nodes.values()), (
        "nothing new to keep"
    )


def test_commands_go_on_while_a_snapshot_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one key each: what is written meanwhile is in the log behind the snapshot and not in it."""
    monkeypatch.setattr(snapshots, "SLICE_ROWS", 1)
    cluster = trimmed_cluster(snapshot_bytes_between=6_000)
    write(cluster, *names(20, "k0"), value=b"later")
    cluster.stop(1)
    cluster.run(5_000, until=lambda: any(node.partitions[METADATA_GROUP].is_serving for node in cluster.nodes.values()))
    cluster.start(1)
    cluster.run(10_000, until=lambda: agree(cluster))


def test_a_restarted_node_begins_with_its_snapshot_and_replays_only_what_follows() -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    write(cluster, "late")
    node = cluster.start(follower)
    assert node.kv.is_restoring and len(node.kv.machine) == 0
    cluster.run(5_000, until=lambda: agree(cluster))
    assert node.kv.machine.get("late") is not None


def test_a_node_with_a_wiped_disk_gets_the_snapshot() -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    cluster.wipe(follower)
    node = cluster.start(follower)
    cluster.run(10_000, until=lambda: agree(cluster) and not node.kv.is_restoring)
    core = node.partitions[METADATA_GROUP].core
    assert core.log_start > 0 and core.snapshot_id is not None


def test_a_large_snapshot_comes_in_pieces() -> None:
    cluster = trimmed_cluster(snapshot_fetch_bytes_max=1_000)
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    write_on(cluster)
    node = cluster.start(follower)
    cluster.run(20_000, until=lambda: agree(cluster))
    assert len(node.kv.machine) >= 140


def test_what_a_follower_missed_is_compacted_for_its_watchers_and_deleted_keys_are_gone() -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    outcomes: list[ProposeOutcome] = []
    cluster.leader().kv.propose(delete("k0000"), outcomes.append)
    cluster.create_topic("born-meanwhile")
    write_on(cluster)
    node = cluster.start(follower)
    cluster.run(20_000, until=lambda: agree(cluster))
    assert node.kv.machine.get("k0000") is None
    # Topics in the snapshot are hosted.
    cluster.run(1_000, until=lambda: any(group.topic == "born-meanwhile" for group in node.partitions))


def fetch_piece(
    node: ReplicaNode, snapshot_id: OffsetAndEpoch, at: int = 0, group: GroupId = METADATA_GROUP, **fields: object
) -> FetchSnapshotResponse:
    """Ask a node for a piece, as replica 9, and give it a turn."""
    epoch = node.partitions[METADATA_GROUP].core.epoch
    request = FetchSnapshotRequest(
        replica=ReplicaKey(NodeId(9)), leader_epoch=Epoch(epoch), snapshot_id=snapshot_id, position=at
    )
    rpc = FetchSnapshotRpc(cluster_id=None, replica_id=NodeId(9), size_max=100, messages=(PeerMessage(group, request),))
    replies: list[PeerReply] = []
    node.receive(PeerConnection(), rpc, replies.append)
    node.run_turn()
    (reply,) = replies
    assert isinstance(reply, FetchSnapshotReply)
    (part,) = reply.messages
    assert isinstance(part.body, FetchSnapshotResponse)
    return part.body


def test_fetch_snapshot_is_answered_as_kafka_does() -> None:
    """Missing 98, bootstrap 98, position outside 99, unknown partition 3, and a part of the file otherwise."""
    cluster = trimmed_cluster()
    node = cluster.leader()
    snapshot_id = node.partitions[METADATA_GROUP].core.snapshot_id
    assert snapshot_id is not None
    size = node.engine.logs.snapshots.size(METADATA_GROUP, snapshot_id)
    assert size is not None
    piece = fetch_piece(node, snapshot_id, 10)
    whole = node.engine.logs.snapshots.read(METADATA_GROUP, snapshot_id, 0, size)
    assert (piece.error, piece.size, piece.position, piece.data) == (ErrorCode.NONE, size, 10, whole[10:110])
    assert fetch_piece(node, OffsetAndEpoch(Offset(3), Epoch(1))).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert fetch_piece(node, OffsetAndEpoch(Offset(0), Epoch(0))).error is ErrorCode.SNAPSHOT_NOT_FOUND
    for position in (-1, size):
        assert fetch_piece(node, snapshot_id, position).error is ErrorCode.POSITION_OUT_OF_RANGE
    unknown = fetch_piece(node, snapshot_id, group=GroupId("nobody", 0))
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def damage(cluster: Cluster, node_id: int, index: int) -> OffsetAndEpoch:
    """Flip a bit in the `index`th snapshot of a node's metadata log."""
    store = cluster.disks[NodeId(node_id)].snapshots
    snapshot_id = store.ids(METADATA_GROUP)[index]
    data = bytearray(store._finished[METADATA_GROUP, snapshot_id])
    data[len(data) // 2] ^= 1
    store._finished[METADATA_GROUP, snapshot_id] = bytes(data)
    return snapshot_id


def test_a_damaged_newest_snapshot_falls_back_to_the_older_one() -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    damaged = damage(cluster, follower, -1)
    node = cluster.start(follower)
    assert damaged not in node.engine.logs.snapshots.ids(METADATA_GROUP)
    cluster.run(10_000, until=lambda: agree(cluster) and not node.kv.is_restoring)


def test_a_node_without_an_intact_snapshot_begins_anew_as_impaired() -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    # A crash may bring back some that were deleted a moment ago.
    damaged = [
        damage(cluster, follower, index) for index, _ in enumerate(cluster.disks[follower].snapshots.ids(METADATA_GROUP))
    ]
    newest = damaged[-1]
    node = cluster.start(follower)
    assert f"{newest.offset:020d}-{newest.epoch:010d}.checkpoint is damaged" in node.damage.impaired[METADATA_GROUP]
    cluster.run(10_000, until=lambda: agree(cluster) and not node.damage.impaired)


def test_startup_with_invalid_snapshot_state() -> None:
    """KafkaRaftLogTest: a log that begins above 0 without a snapshot at or above its start is refused; it is fetched anew."""
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    cluster.disks[follower].snapshots._finished.clear()
    node = cluster.start(follower)
    assert "there is no snapshot at or above that offset" in node.damage.impaired[METADATA_GROUP]
    cluster.run(10_000, until=lambda: agree(cluster) and not node.damage.impaired)


def test_a_log_that_ends_before_the_snapshot_begins_anew_behind_it() -> None:
    """A crash came between the fetched snapshot and the reset of the log."""
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    disk = cluster.disks[follower]
    newest = disk.snapshots.ids(METADATA_GROUP)[-1]
    disk.logs[METADATA_GROUP].reset(OffsetAndEpoch(Offset(2), Epoch(1)))
    node = cluster.start(follower)
    core = node.partitions[METADATA_GROUP].core
    assert (core.log_start, core.log_end, core.high_watermark) == (newest.offset, newest.offset, newest.offset)
    cluster.run(10_000, until=lambda: agree(cluster))


def test_a_topic_that_was_born_again_behind_the_snapshot_keeps_its_data_over_a_restart() -> None:
    """The snapshot shows the topic's former life: nobody may go by that before the present is applied."""
    cluster = Cluster(3, **{**SETTINGS, "snapshot_bytes_between": 1 << 30})  # type: ignore[arg-type]
    (former,) = cluster.create_topic("t")
    follower = cluster.followers()[0]
    follower.snapshots.take(follower.partitions[METADATA_GROUP])
    cluster.run(1_000)
    topic = cluster.leader().names.topic("t")
    assert topic is not None
    gone: list[object] = []
    cluster.leader().topics.delete(topic, lambda topic, error, message: gone.append(error))
    cluster.run(2_000, until=lambda: bool(gone))
    (present,) = cluster.create_topic("t")
    assert present != former
    assert cluster.produce(present, batch(b"kept")).error is ErrorCode.NONE
    cluster.run(1_000)
    cluster.stop(follower.config.node_id)
    deleted: list[GroupId] = []
    disk = cluster.disks[follower.config.node_id]
    delete_group = disk.delete
    disk.delete = lambda group: (deleted.append(group), delete_group(group))[1]  # type: ignore[method-assign]
    node = cluster.start(follower.config.node_id)
    assert node.kv.is_restoring
    cluster.run(5_000, until=lambda: node.names.topic("t") is not None and present in node.partitions)
    assert deleted == [] and former not in node.partitions
    assert node.partitions[present].log.end_offset >= 2


def test_a_topic_that_ended_while_a_node_fell_behind_is_deleted_there() -> None:
    cluster = trimmed_cluster()
    (group,) = cluster.create_topic("t")
    follower = cluster.followers()[0].config.node_id
    cluster.run(1_000, until=lambda: cluster.disks[follower].logs[group].durable_end > 0)
    cluster.stop(follower)
    topic = cluster.leader().names.topic("t")
    assert topic is not None
    gone: list[object] = []
    cluster.leader().topics.delete(topic, lambda topic, error, message: gone.append(error))
    cluster.run(2_000, until=lambda: bool(gone))
    write_on(cluster)
    node = cluster.start(follower)
    assert group in node.partitions
    cluster.run(20_000, until=lambda: agree(cluster) and group not in node.partitions)
    assert group not in cluster.disks[follower].logs


def test_a_snapshot_that_ends_above_what_a_repaired_log_reaches_is_dropped() -> None:
    """While it was written the log was found damaged, cut and opened anew; it now knows less to be committed."""
    cluster = Cluster(3, **{**SETTINGS, "snapshot_bytes_between": 1 << 30})  # type: ignore[arg-type]
    write(cluster, *names(10))
    cluster.run(1_000)  # no round tells the node what is committed, but the next record's
    node = cluster.followers()[0]
    partition = node.partitions[METADATA_GROUP]
    node.snapshots.take(partition)
    known = partition.core.high_watermark
    partition.core.high_watermark = Offset(known - 3)
    cluster.run(2 * snapshots.SLICE_INTERVAL_MS + 2)
    assert list(node.engine.logs.snapshots.ids(METADATA_GROUP)) == [] and partition.core.snapshot_id is None
    write(cluster, "more")
    node.kv.bytes_since_snapshot = 1 << 31
    cluster.run(1_000)
    assert len(node.engine.logs.snapshots.ids(METADATA_GROUP)) == 1, "the next one is taken when the log is back"


# --- data partitions --------------------------------------------------------------------------------------------------


def trimmed_topic() -> tuple[Cluster, GroupId]:
    cluster = Cluster(3, segment_bytes=400, retention_bytes=800, retention_check_interval_ms=500)
    (group,) = cluster.create_topic("t")
    for _ in range(20):
        assert cluster.produce(group, batch(bytes(200))).error is ErrorCode.NONE
    cluster.run(5_000, until=lambda: all(node.partitions[group].core.log_start > 0 for node in cluster.nodes.values()))
    cluster.run(1_000)
    return cluster, group


def test_retention_leaves_a_snapshot_exactly_at_the_log_start() -> None:
    cluster, group = trimmed_topic()
    for node in cluster.nodes.values():
        core = node.partitions[group].core
        (snapshot_id,) = node.engine.logs.snapshots.ids(group)
        assert core.snapshot_id == snapshot_id
        assert snapshot_id == OffsetAndEpoch(core.log_start, core.history.start_epoch)


def test_a_follower_behind_the_log_start_of_a_topic_begins_there() -> None:
    cluster, group = trimmed_topic()
    follower = cluster.followers(group)[0].config.node_id
    cluster.stop(follower)
    del cluster.disks[follower].logs[group]
    cluster.disks[follower].snapshots.forget(group)
    node = cluster.start(follower)
    leader = cluster.leader(group)
    cluster.run(
        10_000,
        until=lambda: group in node.partitions and node.partitions[group].core.log_end == leader.partitions[group].core.log_end,
    )
    assert node.partitions[group].core.log_start > 0
    assert list(node.engine.logs.snapshots.ids(group)) == [node.partitions[group].core.snapshot_id]


def test_the_log_is_not_trimmed_before_the_snapshot_is_durable() -> None:
    cluster, group = trimmed_topic()
    node = cluster.leader(group)
    partition = node.partitions[group]
    start = partition.log.start_offset
    ends = [segment.end_offset for segment in partition.log.segments()[:-1]]
    node.snapshots.trim(partition, Offset(ends[0]))
    assert partition.log.start_offset == start
    node.snapshots.trim(partition, Offset(ends[0]))
    cluster.run(100, until=lambda: partition.log.start_offset == ends[0])


# --- what arrives damaged ---------------------------------------------------------------------------------------------


def test_a_snapshot_that_arrives_damaged_is_thrown_away_and_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)
    write_on(cluster)
    spoiled = [3]
    feed = snapshot_transfer.SnapshotAssembler.feed

    def spoil(self: snapshot_transfer.SnapshotAssembler, data: bytes) -> object:
        if spoiled[0]:
            spoiled[0] -= 1
            raise CorruptBatch("spoiled on its way")
        return feed(self, data)

    monkeypatch.setattr(snapshot_transfer.SnapshotAssembler, "feed", spoil)
    cluster.start(follower)
    cluster.run(20_000, until=lambda: agree(cluster))
    assert spoiled == [0]


def test_damage_that_shows_only_in_the_restored_state_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = trimmed_cluster()
    follower = cluster.followers()[0].config.node_id
    cluster.stop(follower)

    def short(self: object) -> None:
        raise CorruptBatch("an entry is missing")

    monkeypatch.setattr("raftlake.kv.restoration.Restoration.require_complete", short)
    node = cluster.start(follower)
    with pytest.raises(StorageError, match="checkpoint is damaged: an entry is missing"):
        cluster.run(1_000)
    assert node.fatal is not None


def test_a_state_that_was_replaced_is_freed_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_restore, "RELEASED_LEAVES", 2)
    cluster, space = Cluster(), KeySpace()
    for number in range(20 * LEAF_KEYS_MAX):
        space.put(f"{number:06d}", pack(1, b""))
    kv_restore.release(cluster.leader().engine, space)
    left = []
    while leaves := len(space.freeze()):
        left.append(leaves)
        cluster.run(1)
    assert left[0] == 18 and all(before - after in (0, 2) for before, after in itertools.pairwise(left))


@pytest.mark.parametrize("sync_ms", [1_500, 2_500, 7_000])
def test_a_snapshot_whose_sync_takes_longer_than_a_fetch_timeout_is_fetched_once(
    sync_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica heard nothing of its leader meanwhile and campaigned. It was told of the snapshot again, threw away what was
    about to be durable, and so on for as long as the disk was slow."""
    cluster = trimmed_cluster()
    behind = next(node.config.node_id for node in cluster.followers())
    leader = cluster.leader()
    epoch = leader.partitions[METADATA_GROUP].core.epoch
    cluster.stop(behind)
    write_on(cluster)
    node = cluster.start(behind)
    machine, begun = cluster.machines[behind], []
    freeze = MemorySnapshotWriter.freeze

    def slow(writer: MemorySnapshotWriter, done: Callable[[StorageError | None], None]) -> None:
        if writer._store is node.engine.logs.snapshots:
            begun.append(cluster.now_ms)
            cluster.after(sync_ms, lambda: machine.run(freeze, writer, done))
        else:
            freeze(writer, done)

    monkeypatch.setattr(MemorySnapshotWriter, "freeze", slow)
    cluster.run(sync_ms + 1_000, until=lambda: agree(cluster))
    assert len(begun) == 1 and leader.partitions[METADATA_GROUP].core.epoch == epoch


@pytest.mark.parametrize("kind", [DiskFull, TooManyFiles])
def test_a_log_that_cannot_begin_anew_for_want_of_room_does_so_later(
    kind: type[DiskFull], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot was there, and no block was left for the note that all before it goes. The node stopped, at each start."""
    cluster = trimmed_cluster()
    behind = next(node.config.node_id for node in cluster.followers())
    cluster.stop(behind)
    write_on(cluster)
    reset, tries = MemoryLog.reset, 0

    def reset_later(log: MemoryLog, start: OffsetAndEpoch) -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise kind("cannot replace reset-pending")
        reset(log, start)

    monkeypatch.setattr(MemoryLog, "reset", reset_later)
    node = cluster.start(behind)
    cluster.run(20_000, until=lambda: agree(cluster))
    assert node.fatal is None and tries == 4
    assert METADATA_GROUP in node.partitions and not node.disk.is_full
