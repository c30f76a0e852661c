"""Does a node with a damaged log vote in it alone? Only then has no other its records, and nothing may be cut.

Owns the judgement, for a group that runs and for one whose log does not open any more. The group's own voters count, as far as
they can still be read: in its snapshots and in its log in front of the damage. An election that another took part in, and the
quorum's present voters, tell of voters behind the damage. Where nothing can be read any hint of others is enough. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raftlake.errors import CorruptBatch, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, Offset, VoterSet
from raftlake.replica.partition.intact import headers_from
from raftlake.replica.partition.snapshot_files import check
from raftlake.replica.partition.voter_log import read_batch_voters

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

READ_BYTES = 1024 * 1024


def votes_alone(node: ReplicaNode, group: GroupId, running: VoterSet | None) -> bool:
    """`running` are the voters that the group's core knew; None where its log was not opened."""
    if running is not None:
        return not _has_others(node, running)
    quorum = node.quorum.committed
    if _was_elected_with_others(node, group) or (quorum is not None and _has_others(node, quorum)):
        return False
    own = _readable_voters(node, group)
    if own is not None:
        return not _has_others(node, own)
    topic = node.topics.by_id(group.topic_id)
    known = [node.quorum.static, *(() if topic is None or topic.voters is None else (topic.voters,))]
    known += [found for other in node.logs.groups() if other != group and (found := _readable_voters(node, other)) is not None]
    return not node.config.bootstrap_servers and not any(_has_others(node, voters) for voters in known)


def _has_others(node: ReplicaNode, voters: VoterSet) -> bool:
    return any(voter != node.config.node_id for voter in voters.ids)


def _was_elected_with_others(node: ReplicaNode, group: GroupId) -> bool:
    election = node.elections.load(group)
    if election is None:
        return False
    voted = None if election.voted_key is None else election.voted_key.id
    return any(other not in (None, NO_LEADER, node.config.node_id) for other in (election.leader_id, voted))


def _readable_voters(node: ReplicaNode, group: GroupId) -> VoterSet | None:
    """The last voters in front of the first damage; None where none can be read."""
    found = None
    try:
        for voters in _all_voters(node, group):
            found = voters
    except (CorruptBatch, StorageError):
        # Here the damage begins, which the caller tells of.
        return found
    return found


def _all_voters(node: ReplicaNode, group: GroupId) -> Iterator[VoterSet]:
    for snapshot_id in node.logs.snapshots.ids(group):
        try:
            voters = check(node.logs.snapshots, group, snapshot_id).voters
        except CorruptBatch:
            continue
        if voters is not None:
            yield voters
    log = node.logs.open(group)
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = log.read(offset, log.end_offset, READ_BYTES)
        if not chunk:
            return
        for header in headers_from(group, chunk, offset):
            if header.is_control:
                voters = read_batch_voters(memoryview(chunk)[header.position : header.end_position])
                if voters is not None:
                    yield voters
            offset = Offset(header.end_offset)
