"""Which replicas are brought new records at once, and which a moment later and several at a time.

A record is committed once a majority has synced it: in a quorum of three, the leader and the quicker follower. A round with
the slower one at the same time hastens nothing; it costs the leader another answer and another fetch, and where both share
a processor or a disk it delays the one that counts. So a replica that a majority can do without gets its records with a
pause of `pause_ms` between rounds, or as soon as a quicker one is late: later than its usual time and `PATIENCE_MS`.

Knows nothing of logs, and delays records only. A replica that had to step in for a late one is preferred from then on.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from raftlake.raft.types import NodeId

#: How much longer than usual a replica may take before another one is brought what it has; at least one tick of the clock.
PATIENCE_MS = 2
#: Share of the newest round in the usual time of a replica.
NEWEST_SHARE = 1 / 8


@dataclass(slots=True)
class _Pace:
    """One replica's rounds."""

    replica_id: NodeId
    answered_ms: int
    #: Answered, and not back yet.
    is_out: bool = False
    #: How long it takes to come back with its records synced, on average.
    usual_ms: float = 0.0

    @property
    def patience_ms(self) -> float:
        """How long after it was brought records it is late."""
        return self.usual_ms + PATIENCE_MS


class Pacing:
    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        #: The preferred ones first.
        self._order: list[_Pace] = []
        self._paces: dict[NodeId, _Pace] = {}

    def asked(self, replica_id: NodeId, now_ms: int) -> None:
        """A round of the replica came in."""
        pace = self._paces.get(replica_id)
        if pace is None:
            pace = self._paces[replica_id] = _Pace(replica_id, now_ms - self._pause_ms)
            self._order.append(pace)
        elif pace.is_out:
            pace.is_out = False
            pace.usual_ms += NEWEST_SHARE * (min(now_ms - pace.answered_ms, self._pause_ms) - pace.usual_ms)

    def answered(self, replica_id: NodeId, now_ms: int) -> None:
        """Its round was answered."""
        pace = self._paces[replica_id]
        pace.is_out = True
        pace.answered_ms = now_ms

    def forget(self, replica_id: NodeId) -> None:
        """The replica is remembered no longer."""
        self._order.remove(self._paces.pop(replica_id))

    def prefer(self, replica_id: NodeId) -> None:
        """A majority waits for this one: the preferred ones are late, or their rounds do not count."""
        pace = self._paces[replica_id]
        self._order.remove(pace)
        self._order.insert(0, pace)

    def is_needed(self, replica_id: NodeId, voters: Container[NodeId], count: int) -> bool:
        """Whether the replica is among the first `count` of the voters, which are as many as the leader needs."""
        for pace in self._order:
            if pace.replica_id in voters:
                if count <= 0:
                    return False
                if pace.replica_id == replica_id:
                    return True
                count -= 1
        return False

    def due_ms(self, replica_id: NodeId, now_ms: int) -> int:
        """When a replica that is not needed is to be brought what there is, or looked at again: a preferred one that is in
        counts as sent out now."""
        own = self._paces[replica_id]
        due_ms = float(own.answered_ms + self._pause_ms)
        for pace in self._order:
            if pace is own:
                break
            late_ms = (pace.answered_ms if pace.is_out else now_ms) + pace.patience_ms
            if late_ms < due_ms:
                due_ms = late_ms
        return int(due_ms)

    def is_overdue(self, replica_id: NodeId, since_ms: int, now_ms: int) -> bool:
        """Whether the preferred ones had time enough for what has waited since then for this one."""
        own = self._paces[replica_id]
        for pace in self._order:
            if pace is own:
                break
            if now_ms < since_ms + pace.patience_ms:
                return False
        return True
