"""The services of snapshots, each alone on an engine: taken in slices, looked at when asked for twice, sent in pieces."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, ORDERS, TWO, Ground, Noted
from raftlake.errors import ErrorCode, TooManyFiles
from raftlake.kv.commands import encode, put
from raftlake.ports.peer_rpcs import FetchSnapshotReply, FetchSnapshotRpc, GroupId, PeerMessage
from raftlake.raft import actions as do
from raftlake.raft.messages import FetchSnapshotRequest
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.partition import snapshot_files
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.snapshots.check import SnapshotCheck
from raftlake.replica.snapshots.held import HeldSnapshots
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.replica.snapshots.transfer import SnapshotTransfer

KEYS = 5


def taken() -> tuple[Ground, Any, Snapshots]:
    """A node that has taken a snapshot of its key space when one was due."""
    ground = Ground(snapshot_bytes_between=10)
    partition, state = ground.lead(), KvState()
    for number in range(KEYS):
        offset = partition.log.end_offset
        ground.append(partition, encode(put(f"k{number}", b"v")))
        state.machine.apply(offset, encode(put(f"k{number}", b"v")))
    kv = SimpleNamespace(machine=state.machine, is_restoring=False, bytes_since_snapshot=9, applied_timestamp_ms=1)
    disk = Noted(has_room_for=True)
    snapshots = Snapshots(ground.engine, ProducerCare(ground.engine), disk, kv, HeldSnapshots(ground.engine))  # type: ignore[arg-type]
    snapshots.tick()
    ground.run(50)
    assert not ground.disk.snapshots.ids(METADATA_GROUP), "not enough was written"
    kv.bytes_since_snapshot = 10
    snapshots.tick()
    ground.run(50)
    ground.perform(partition)
    return ground, kv, snapshots


def test_a_snapshot_is_taken_when_enough_was_written() -> None:
    ground, kv, _ = taken()
    core = ground.engine.partitions[METADATA_GROUP].core
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    assert core.snapshot_id == snapshot_id and snapshot_id.offset == kv.machine.applied_offset
    assert kv.bytes_since_snapshot == 0
    assert snapshot_files.check(ground.disk.snapshots, METADATA_GROUP, snapshot_id).snapshot_id == snapshot_id


def test_a_snapshot_that_is_damaged_is_taken_anew_when_a_replica_asks_for_it_again() -> None:
    ground, _, _ = taken()
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    whole = ground.disk.snapshots._finished[METADATA_GROUP, snapshot_id]
    renewed = Noted()
    check = SnapshotCheck(ground.engine, renewed)  # type: ignore[arg-type]
    for _ in range(2):
        check.on_begun(METADATA_GROUP, snapshot_id, TWO)
    ground.run(10)
    assert renewed.calls == [], "it is whole"
    ground.disk.snapshots._finished[METADATA_GROUP, snapshot_id] = whole[:70] + b"?" + whole[71:]
    check.on_begun(METADATA_GROUP, snapshot_id, TWO)
    ground.run(10)
    assert renewed.calls == [], "it is asked for once"
    check.on_begun(METADATA_GROUP, snapshot_id, TWO)
    ground.run(10)
    assert renewed.calls == [("renew", (ground.engine.partitions[METADATA_GROUP], snapshot_id))]


def asked(group: Any, snapshot_id: OffsetAndEpoch, ground: Ground, position: int = 0) -> FetchSnapshotRpc:
    partition = ground.engine.partitions[METADATA_GROUP]
    request = FetchSnapshotRequest(
        replica=ReplicaKey(TWO), leader_epoch=partition.core.epoch, snapshot_id=snapshot_id, position=position
    )
    return FetchSnapshotRpc(cluster_id=None, replica_id=TWO, size_max=1 << 20, messages=(PeerMessage(group, request),))


def test_a_piece_is_sent_when_the_core_has_answered_and_what_is_not_there_is_refused() -> None:
    ground, _, snapshots = taken()
    partition = ground.engine.partitions[METADATA_GROUP]
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    check = Noted()
    transfer = SnapshotTransfer(ground.engine, Names(ground.engine.config), Noted(), check, HeldSnapshots(ground.engine))  # type: ignore[arg-type]
    replies: list[Any] = []
    size = ground.disk.snapshots.size(METADATA_GROUP, snapshot_id)
    for position in (0, size):
        transfer.receive(asked(METADATA_GROUP, snapshot_id, ground, position), replies.append)
    assert replies == []
    for action in ground.perform(partition):
        assert isinstance(action, do.AnswerFetchSnapshot)
        transfer.perform(partition, action)
    transfer.receive(asked(ORDERS, snapshot_id, ground), replies.append)
    whole, beyond, unknown = (reply.messages[0].body for reply in replies if isinstance(reply, FetchSnapshotReply))
    assert bytes(whole.data) == ground.disk.snapshots.read(METADATA_GROUP, snapshot_id, 0, 1 << 20)
    assert beyond.error is ErrorCode.POSITION_OUT_OF_RANGE
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert check.calls == [("on_begun", (METADATA_GROUP, snapshot_id, TWO))]
    assert snapshots is not None


def test_a_snapshot_that_arrives_counts_when_it_is_whole_and_durable() -> None:
    source, _, _ = taken()
    (snapshot_id,) = source.disk.snapshots.ids(METADATA_GROUP)
    data = source.disk.snapshots.read(METADATA_GROUP, snapshot_id, 0, 1 << 20)
    ground = Ground(3)
    partition = ground.host()
    transfer = SnapshotTransfer(ground.engine, Names(ground.engine.config), Noted(), Noted(), Noted())  # type: ignore[arg-type]
    stepped: list[Any] = []
    ground.engine.step = lambda partition, event: stepped.append(event)  # type: ignore[method-assign]
    for part in (data, data[:-1]):
        for position, piece in ((0, part[:100]), (100, part[100:])):
            transfer.perform(partition, do.WriteSnapshot(snapshot_id=snapshot_id, position=position, data=piece))
        transfer.perform(partition, do.FinishSnapshot(snapshot_id=snapshot_id))
        ground.run(5)
    assert [event.is_intact for event in stepped] == [True, False], "the second one is cut short"
    assert list(ground.disk.snapshots.ids(METADATA_GROUP)) == [snapshot_id]
    assert ground.engine.config.node_id == ME and snapshot_id.offset > Offset(0)


def refusals(replies: list[Any]) -> list[ErrorCode]:
    return [part.body.error for reply in replies for part in reply.messages]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_closed_group_was_asked_for_is_refused_and_the_rest_of_the_request_is_answered(is_first: bool) -> None:
    """The asker, and all that it sent behind the request, waited for the end of its patience."""
    ground, _, _ = taken()
    metadata, orders = ground.engine.partitions[METADATA_GROUP], ground.lead(ORDERS)
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    transfer = SnapshotTransfer(ground.engine, Names(ground.engine.config), Noted(), Noted(), HeldSnapshots(ground.engine))  # type: ignore[arg-type]
    replies: list[Any] = []
    alone = asked(ORDERS, snapshot_id, ground)
    parts = (alone.messages[0], asked(METADATA_GROUP, snapshot_id, ground).messages[0])
    transfer.receive(replace(alone, messages=parts if is_first else parts[::-1]), replies.append)
    transfer.receive(alone, replies.append)
    ground.engine.forget(orders)
    assert refusals(replies) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "the first one waits for the other group"
    for action in ground.perform(metadata):
        assert isinstance(action, do.AnswerFetchSnapshot)
        transfer.perform(metadata, action)
    refused, given = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE
    assert refusals(replies[1:]) == ([refused, given] if is_first else [given, refused])
    assert [part.group for part in replies[1].messages] == [part.group for part in (parts if is_first else parts[::-1])]
    ground.engine.forget(orders)
    assert len(replies) == 2 and not transfer._unanswered


def test_what_arrives_for_a_closed_group_is_thrown_away() -> None:
    ground = Ground(3)
    partition = ground.host()
    transfer = SnapshotTransfer(ground.engine, Names(ground.engine.config), Noted(), Noted(), Noted())  # type: ignore[arg-type]
    snapshot_id = OffsetAndEpoch(Offset(5), Epoch(1))
    transfer.perform(partition, do.WriteSnapshot(snapshot_id=snapshot_id, position=0, data=b"half"))
    ground.engine.forget(ground.host(ORDERS))
    assert ground.disk.snapshots.unfinished_bytes == 4, "of another group"
    ground.engine.forget(partition)
    assert ground.disk.snapshots.unfinished_bytes == 0


def test_a_piece_that_cannot_be_read_without_a_descriptor_is_refused_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader handed over, since it took this for an append without room."""
    ground, _, _ = taken()
    partition = ground.engine.partitions[METADATA_GROUP]
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    disk = Noted()
    transfer = SnapshotTransfer(ground.engine, Names(ground.engine.config), disk, Noted(), HeldSnapshots(ground.engine))  # type: ignore[arg-type]
    replies: list[Any] = []
    error = TooManyFiles("read 5.checkpoint: [Errno 24] Too many open files")

    def barred(*given: Any) -> bytes:
        raise error

    for is_barred in (True, False):
        transfer.receive(asked(METADATA_GROUP, snapshot_id, ground), replies.append)
        with monkeypatch.context() as patch:
            if is_barred:
                patch.setattr(ground.disk.snapshots, "read", barred)
            for action in ground.perform(partition):
                assert isinstance(action, do.AnswerFetchSnapshot)
                transfer.perform(partition, action)
    assert refusals(replies) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE] and disk.calls == [("on_full", (error,))]
    leaders = {(part.body.leader_id, part.body.leader_epoch) for reply in replies for part in reply.messages}
    assert leaders == {(ME, partition.core.epoch)}, "it leads on"


def test_a_snapshot_that_cannot_be_looked_at_without_a_descriptor_is_looked_at_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node stopped."""
    ground, _, _ = taken()
    (snapshot_id,) = ground.disk.snapshots.ids(METADATA_GROUP)
    store = ground.disk.snapshots
    whole = store._finished[METADATA_GROUP, snapshot_id]
    store._finished[METADATA_GROUP, snapshot_id] = whole[:70] + b"?" + whole[71:]
    renewed = Noted()
    check = SnapshotCheck(ground.engine, renewed)  # type: ignore[arg-type]

    def barred(*given: Any) -> bytes:
        raise TooManyFiles("read 5.checkpoint: [Errno 24] Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", barred)
        for _ in range(2):
            check.on_begun(METADATA_GROUP, snapshot_id, TWO)
        ground.run(10)
    assert renewed.calls == [] and ground.engine.fatal is None
    for _ in range(2):
        check.on_begun(METADATA_GROUP, snapshot_id, TWO)
    ground.run(10)
    assert [name for name, _ in renewed.calls] == ["renew"]


@pytest.mark.parametrize("group", [METADATA_GROUP, ORDERS])
def test_a_snapshot_that_is_being_written_goes_with_its_log_and_is_begun_anew(group: GroupId) -> None:
    """Nobody says that it is over: what is written of a damaged log is thrown away."""
    ground, kv, snapshots = taken()
    kv.machine.apply(kv.machine.applied_offset, encode(put("more", b"v")))
    ground.append(ground.engine.partitions[METADATA_GROUP], encode(put("more", b"v")))
    kv.bytes_since_snapshot = 10
    snapshots.tick()
    kv.bytes_since_snapshot += 3
    closed = ground.engine.partitions[group] if group == METADATA_GROUP else ground.lead(group)
    ground.engine.forget(closed)
    is_closed = group == METADATA_GROUP
    assert (kv.bytes_since_snapshot, ground.disk.snapshots.unfinished_bytes > 0) == (13 if is_closed else 3, not is_closed)
    ground.run(50)
    assert len(ground.disk.snapshots.ids(METADATA_GROUP)) == (1 if is_closed else 2)
    snapshots.tick()
    ground.run(50)
    assert len(ground.disk.snapshots.ids(METADATA_GROUP)) == 2
