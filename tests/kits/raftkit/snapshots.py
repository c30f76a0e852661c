"""Snapshots that a replica under test fetches: the request under way, answers to it, and a whole snapshot at once."""

from __future__ import annotations

from raftkit.replica import Replica
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.types import Epoch, NodeId, OffsetAndEpoch


def snapshot_in_flight(replica: Replica) -> FetchSnapshotRequest:
    request = replica.core.fetch_in_flight
    assert isinstance(request, FetchSnapshotRequest), "no snapshot is being fetched"
    return request


def answer_piece(
    replica: Replica,
    data: bytes = b"",
    size: int = 0,
    *,
    error: ErrorCode = ErrorCode.NONE,
    leader: int | None = None,
    epoch: int | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
    at: int | None = None,
    request: FetchSnapshotRequest | None = None,
    source: int | None = None,
) -> list[do.Action]:
    """The FetchSnapshot under way is answered, by our leader with the piece that was asked for unless told otherwise."""
    asked = request or snapshot_in_flight(replica)
    response = FetchSnapshotResponse(
        error=error,
        leader_id=replica.core.leader_id if leader is None else NodeId(leader),
        leader_epoch=replica.core.epoch if epoch is None else Epoch(epoch),
        snapshot_id=snapshot_id or asked.snapshot_id,
        size=size,
        position=asked.position if at is None else at,
        data=data,
    )
    return replica.respond(replica.core.fetch_peer if source is None else source, asked, response)


def receive_snapshot(replica: Replica, *, intact: bool = True) -> list[do.Action]:
    """The leader's snapshot arrives in one piece and is made durable, or found damaged."""
    snapshot_id = snapshot_in_flight(replica).snapshot_id
    answer_piece(replica, b"data", 4)
    assert replica.took(do.FinishSnapshot) == [do.FinishSnapshot(snapshot_id=snapshot_id)]
    return replica.step(on.SnapshotReceived(snapshot_id=snapshot_id, is_intact=intact))
