"""A quorum of three voters and an observer as its leader describes it: what the tests of its forms start from."""

from __future__ import annotations

from raftlake.wire.quorum import QuorumDescription, ReplicaDescription

DIRECTORY = bytes(range(16))


def described_replica(node_id: int, end: int, caught_up: int, *, directory_id: bytes = bytes(16)) -> ReplicaDescription:
    return ReplicaDescription(
        replica_id=node_id,
        directory_id=directory_id,
        log_end_offset=end,
        last_fetch_timestamp_ms=-1 if node_id == 2 else 900,
        last_caught_up_timestamp_ms=caught_up,
    )


def described_quorum(leader_id: int = 2, *voters: ReplicaDescription) -> QuorumDescription:
    """Node 2 leads, 1 and 3 are behind it; unless other voters are given."""
    usual = (
        described_replica(1, 40, 950),
        described_replica(2, 42, 1000, directory_id=DIRECTORY),
        described_replica(3, 30, 400),
    )
    return QuorumDescription(
        cluster_id="c1",
        leader_id=leader_id,
        leader_epoch=7,
        high_watermark=40,
        voters=voters or usual,
        observers=(described_replica(4, 5, -1),),
        listeners={2: ("CONTROLLER://h:9092",), 1: ("CONTROLLER://g:9092",)},
    )
