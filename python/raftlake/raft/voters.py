"""Who votes in one group, by offset of its log (KIP-853).

Owns the list of voter sets that control records have put into the log. In front of them stands the set that the node was
started with: `quorum.voters`, or none. The newest set counts as soon as it is in the log, so it is truncated with the log;
the committed one is `at(high_watermark)`. Invariant: the offsets ascend, and one set follows from the one before it by at
most one voter (the leader that appends it sees to that), so that majorities of neighbours share a voter.
"""

from __future__ import annotations

from bisect import bisect_left

from raftlake.errors import require
from raftlake.raft.types import FIRST_OFFSET, Offset, VoterSet

#: Where the voters of a bootstrap checkpoint or of a topic's definition stand: before the first record of the log.
BEFORE_LOG = Offset(-1)


class VoterHistory:
    """Offsets of control records and the voters that each set, ascending."""

    __slots__ = ("_offsets", "_sets", "initial")

    def __init__(self, initial: VoterSet) -> None:
        #: What counts where the log says nothing (kraft.version 0).
        self.initial = initial
        self._offsets: list[Offset] = []
        self._sets: list[VoterSet] = []

    @property
    def latest(self) -> VoterSet:
        """The voters by the whole log, committed or not."""
        return self._sets[-1] if self._sets else self.initial

    @property
    def previous(self) -> VoterSet:
        """The voters before the latest change."""
        return self._sets[-2] if len(self._sets) > 1 else self.initial

    @property
    def latest_offset(self) -> Offset | None:
        """Where the latest set stands; None when it is the initial one."""
        return self._offsets[-1] if self._offsets else None

    @property
    def entries(self) -> list[tuple[Offset, VoterSet]]:
        """Each offset with the set that begins to count there, ascending."""
        return list(zip(self._offsets, self._sets, strict=True))

    @property
    def kraft_version(self) -> int:
        """Kafka's name for it: 1 once the log says who votes, else 0."""
        return 1 if self._sets else 0

    def at(self, offset: Offset) -> VoterSet | None:
        """The voters by the records below `offset`; None where these say nothing (kraft.version 0)."""
        index = bisect_left(self._offsets, offset)
        return self._sets[index - 1] if index else None

    def record(self, offset: Offset, voters: VoterSet) -> None:
        """The log has a KRaftVoters record at `offset`. A snapshot that ends at X records its set at X - 1."""
        require(not self._offsets or offset > self._offsets[-1], f"voters at {offset} after those at {self.latest_offset}")
        require(len(voters) > 0, f"a voter set without voters at {offset}")
        self._offsets.append(offset)
        self._sets.append(voters)

    def begin_with(self, voters: VoterSet) -> bool:
        """The group began with `voters`, which its first leader puts into the log; False where a set from before the log or
        from a snapshot is known. True when the latest set changed by it."""
        if self._offsets and self._offsets[0] != FIRST_OFFSET:
            return False
        self._offsets.insert(0, BEFORE_LOG)
        self._sets.insert(0, voters)
        return len(self._offsets) == 1

    def truncate_to(self, end_offset: Offset) -> bool:
        """Forget the sets at or above the new log end; True when the latest one changed."""
        keep = bisect_left(self._offsets, max(end_offset, FIRST_OFFSET))
        if keep == len(self._offsets):
            return False
        del self._offsets[keep:], self._sets[keep:]
        return True

    def forget_before(self, offset: Offset) -> None:
        """The log now starts at `offset`: of the sets below it only the last one still counts."""
        drop = bisect_left(self._offsets, offset) - 1
        if drop > 0:
            del self._offsets[:drop], self._sets[:drop]

    def reset(self, start_offset: Offset, voters: VoterSet | None) -> None:
        """The log is empty and starts at `start_offset`; `voters` is what the snapshot in front of it says, if anything."""
        self._offsets.clear()
        self._sets.clear()
        if voters is not None:
            self.record(Offset(start_offset - 1), voters)
