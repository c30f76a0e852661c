"""Snapshots that replicas are fetching: they stay, and the log behind them, until they are fetched.

A large snapshot takes a while to fetch. Where commands come fast, two newer ones are finished meanwhile, and a replica whose
snapshot is deleted begins with another one: it would never get there. Owns when the pieces of each snapshot were read. A
replica that asks for nothing any more holds nothing, and none holds a snapshot for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import OffsetAndEpoch
from raftlake.replica.engine import Engine

#: A replica that fetches asks for the next piece within moments.
IDLE_MS_MAX = 10_000
#: From the first piece on. A replica that takes longer begins anew.
HELD_MS_MAX = 900_000
#: Of one group.
HELD_MAX = 2


@dataclass(slots=True)
class _Reading:
    began_ms: int
    read_ms: int


class HeldSnapshots:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readings: dict[tuple[GroupId, OffsetAndEpoch], _Reading] = {}

    def note(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> None:
        """A piece of it was read for a replica."""
        now_ms = self._engine.now_ms
        self._readings.setdefault((group, snapshot_id), _Reading(now_ms, now_ms)).read_ms = now_ms

    def of(self, group: GroupId, snapshots: list[OffsetAndEpoch]) -> list[OffsetAndEpoch]:
        """Those of the snapshots that are being fetched, the newest ones. What is not among them is forgotten."""
        for other in [key for key in self._readings if key[0] == group and key[1] not in snapshots]:
            del self._readings[other]
        return [snapshot_id for snapshot_id in snapshots if self._is_held(group, snapshot_id)][-HELD_MAX:]

    def _is_held(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> bool:
        reading, now_ms = self._readings.get((group, snapshot_id)), self._engine.now_ms
        return reading is not None and now_ms - reading.read_ms < IDLE_MS_MAX and now_ms - reading.began_ms < HELD_MS_MAX
