"""The surviving directory of a quorum that lost its majority, `raftlake recover` on it, and what tables tell beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contract.batches import fill
from raftlake.kv.commands import Txn, encode
from raftlake.ports.driver import BatchSpan
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, LineageFacts
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, Offset, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.recovery.recover import Recovery
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import format_directory
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.tier.told import ToldPartition, ToldTable
from raftlake.wire.batches import Record, build_batch

ORDERS = GroupId("orders", 0, bytes(range(16)))
ME = NodeId(3)
HERE = Endpoint("127.0.0.1", 9093)


def make_survivor(root: Path) -> Path:
    """One directory of three: 12 records in `orders-0`, 5 in the metadata log, in epoch 4; once a vote in 6."""
    path = root / "survivor"
    format_directory(path, node_id=ME, cluster_id="mine")
    directory = FileLogDirectory(path, post=None)
    fill(directory.open(ORDERS), 12, epoch=4)
    fill(directory.open(METADATA_GROUP), 5, epoch=4)
    elections = FileElectionStore(path)
    elections.save({ORDERS: ElectionState(Epoch(4)), METADATA_GROUP: ElectionState(Epoch(6), None, ReplicaKey(NodeId(1)))})
    elections.close()
    directory.close()
    return path


def command(place: Path, *commands: Txn) -> None:
    """Append commands to the metadata log of a directory."""
    directory = FileLogDirectory(place, post=None)
    log = directory.open(METADATA_GROUP)
    epoch = log.epochs[-1][0] if log.epochs else Epoch(4)
    for each in commands:
        offset = log.end_offset
        data = bytes(build_batch([Record(value=encode(each))], base_offset=offset, leader_epoch=epoch, timestamp_ms=-1))
        log.append([data], [BatchSpan(offset, Offset(offset + 1), epoch, -1, len(data))])
    directory.close()


def tiered(end: int) -> bytes:
    """What the key of `orders-0`, or another partition, says of a table with the offsets from 0 on."""
    copied = Tiered(topic=ORDERS.topic, start_offset=Offset(0), end_offset=Offset(end), epochs=((Epoch(4), Offset(0)),))
    return encode_tiered(copied)


def begin(place: Path, node_id: NodeId = ME) -> Recovery:
    return Recovery(place, node_id, HERE, METADATA_GROUP)


def recover(place: Path) -> DirectoryId:
    recovery = begin(place)
    try:
        return recovery.perform(recovery.examine(), "mine")
    finally:
        recovery.close()


# --- what tables tell


def facts(partition: int, start: int, end: int, epochs: tuple[tuple[int, int], ...], *, leader_epoch: int = 0) -> LineageFacts:
    return LineageFacts(
        lineage=Lineage(ORDERS._replace(partition=partition), 0),
        leader_epoch=Epoch(leader_epoch or max((epoch for epoch, _ in epochs), default=0)),
        start_offset=Offset(start),
        end_offset=Offset(end),
        segments=1,
        size=40,
        log_bytes=100,
        epochs=tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs),
        newest=(),
    )


def told(
    partition: int, start: int, end: int, epochs: tuple[tuple[int, int], ...], *, leader_epoch: int = 0, of_facts: int = 0
) -> ToldPartition:
    """`of_facts`: the epoch of the newest incarnation, where it is another one."""
    known = facts(partition, start, end, epochs, leader_epoch=of_facts or leader_epoch)
    return ToldPartition(
        facts=known,
        leader_epoch=Epoch(leader_epoch or known.leader_epoch),
        auxiliary=b"state",
        lacking="",
        timestamp_ms=77,
    )


def told_table(
    partitions: Mapping[int, ToldPartition],
    topic: str = "orders",
    *,
    topic_id: bytes = ORDERS.topic_id,
    cluster_id: str = "mine",
    is_dropped: bool = False,
) -> ToldTable:
    return ToldTable(
        uri=f"s3://history/{topic}-{topic_id[:1].hex()}",
        cluster_id=cluster_id,
        topic=topic,
        topic_id=topic_id,
        partitions=partitions,
        is_dropped=is_dropped,
    )
