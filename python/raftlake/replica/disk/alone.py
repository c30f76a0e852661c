"""Does a node with a damaged log vote in it alone? Only then has no other its records, and nothing may be cut.

Owns the judgement, for a group that runs and for one whose log does not open any more. The group's own voters count, as far as
they can still be read: in its snapshots and in its log in front of the damage. An election that another took part in, and the
quorum's present voters, tell of voters behind the damage. Where nothing can be read any hint of others is enough. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftlake.errors import CorruptBatch, DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, Offset, VoterSet
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.partition.intact import headers_from
from raftlake.replica.partition.snapshot_files import check
from raftlake.replica.partition.voter_log import read_batch_voters
from raftlake.replica.quorum import Quorum

READ_BYTES = 1024 * 1024


class Solitude:
    def __init__(self, engine: Engine, names: Names, quorum: Quorum) -> None:
        self._engine = engine
        self._names = names
        self._quorum = quorum

    def votes_alone(self, group: GroupId, running: VoterSet | None) -> bool:
        """`running` are the voters that the group's core knew; None where its log was not opened. A core that knows no voter
        says nothing: an observer may be told addresses only, and a log need not name the static voters."""
        if running is not None and running.ids:
            return not self._has_others(running)
        quorum = self._quorum.committed
        if self._was_elected_with_others(group) or (quorum is not None and self._has_others(quorum)):
            return False
        own = self._readable_voters(group)
        if own is not None:
            return not self._has_others(own)
        topic = self._names.by_id(group.topic_id)
        known = [self._quorum.static, *(() if topic is None or topic.voters is None else (topic.voters,))]
        known += [
            found
            for other in self._engine.logs.groups()
            if other != group and (found := self._readable_voters(other)) is not None
        ]
        return not self._engine.config.bootstrap_servers and not any(self._has_others(voters) for voters in known)

    def _has_others(self, voters: VoterSet) -> bool:
        return any(voter != self._engine.config.node_id for voter in voters.ids)

    def _was_elected_with_others(self, group: GroupId) -> bool:
        election = self._engine.elections.load(group)
        if election is None:
            return False
        voted = None if election.voted_key is None else election.voted_key.id
        return any(other not in (None, NO_LEADER, self._engine.config.node_id) for other in (election.leader_id, voted))

    def _readable_voters(self, group: GroupId) -> VoterSet | None:
        """The last voters in front of the first damage; None where none can be read."""
        found = None
        try:
            for voters in self._all_voters(group):
                found = voters
        except DiskFull:
            # There is no file to read with, or no room: that says nothing of voters.
            raise
        except (CorruptBatch, StorageError):
            # Here the damage begins, which the caller tells of.
            return found
        return found

    def _all_voters(self, group: GroupId) -> Iterator[VoterSet]:
        for snapshot_id in self._engine.logs.snapshots.ids(group):
            try:
                voters = check(self._engine.logs.snapshots, group, snapshot_id).voters
            except CorruptBatch:
                continue
            if voters is not None:
                yield voters
        log = self._engine.logs.open(group)
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
