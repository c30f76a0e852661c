"""A leader of voters that are in the log, and changes to ask it for: what tests of KIP-853 begin with."""

from __future__ import annotations

from collections.abc import Sequence

from raftkit.replica import Replica, key
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import AddVoter, FetchedBatch, RemoveVoter, UpdateVoter
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.raft.voters import BEFORE_LOG, VoterHistory

HERE = (VoterEndpoint("CONTROLLER", "here", 9_092),)
ELSEWHERE = (VoterEndpoint("CONTROLLER", "elsewhere", 9_093),)
EPOCH = 6


def disk_key(node_id: int) -> ReplicaKey:
    """The replica of a node whose disk has an id."""
    return key(node_id, f"disk {node_id}".encode())


def known_voters(ids: Sequence[int], offset: int = BEFORE_LOG) -> VoterHistory:
    """Voters that the log has known since `offset` (kraft.version 1), each with its disk."""
    history = VoterHistory(VoterSet({}))
    history.record(Offset(offset), VoterSet({NodeId(i): disk_key(i) for i in ids}))
    return history


def leader(*ids: int, commits: bool = True, **kwargs: object) -> Replica:
    """Node 1 leads epoch 6 of voters that are in the log at offsets 0 to 2; where it `commits`, all have that."""
    replica = Replica.leader(epoch=EPOCH, directory=disk_key(1).directory_id, voter_keys=known_voters(ids), **kwargs)
    if commits:
        for node_id in ids:
            if node_id != 1:
                fetch(replica, node_id)
        assert replica.core.is_serving_leader
    return replica


def fetch(replica: Replica, node_id: int, offset: int | None = None) -> do.AnswerFetch | None:
    """Node `node_id` has everything, or what lies before `offset`."""
    end = replica.core.log_end if offset is None else offset
    return replica.fetch(disk_key(node_id), end, EPOCH if end else 0)


def add(node_id: int, *, waits: bool = True, versions: tuple[int, int] = (0, 1)) -> AddVoter:
    return AddVoter(voter=disk_key(node_id), endpoints=HERE, ack_when_committed=waits, kraft_versions=versions)


def remove(node_id: int) -> RemoveVoter:
    return RemoveVoter(voter=disk_key(node_id))


def update(voter: ReplicaKey, *, epoch: int = EPOCH, versions: tuple[int, int] = (0, 1)) -> UpdateVoter:
    return UpdateVoter(voter=voter, endpoints=ELSEWHERE, leader_epoch=Epoch(epoch), kraft_versions=versions)


def error_of(answer: do.AnswerVoterChange | None) -> ErrorCode | None:
    return None if answer is None else answer.error


def commit(replica: Replica, *node_ids: int) -> None:
    replica.flush()
    for node_id in node_ids:
        fetch(replica, node_id)


def batch_with_voters(base: int, end: int, ids: tuple[int, ...]) -> FetchedBatch:
    voters = known_voters(ids).latest
    return FetchedBatch(base_offset=Offset(base), end_offset=Offset(end), epoch=Epoch(5), payload=None, voters=voters)


def static_leader(**kwargs: object) -> Replica:
    """Node 1 leads epoch 6 of static voters 1, 2 and 3, and its own disk has an id."""
    return Replica.leader(epoch=EPOCH, directory=disk_key(1).directory_id, **kwargs)
