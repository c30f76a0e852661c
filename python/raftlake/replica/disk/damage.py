"""Damaged logs of this node: found at start, by a read, by the scrub or by a follower's complaint, and repaired from peers.

A log whose synced records cannot be read is cut before the damage, and its group starts anew as *impaired*: it follows and
fetches what is missing, and until it has that it gives no vote (`raft.impairment`). A leader hands over first
(`turn.restart`). Only where other voters exist: a node that votes alone stops instead, with its log as it is. So does a node
that finds damage which is gone when it is looked at again.

Owns who is impaired and why; the files are `ports.LogDirectory`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from raftlake.errors import CorruptBatch, DamagedData, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Impairment, VoterSet
from raftlake.replica.disk.alone import Solitude
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.quorum import Quorum

Opened = TypeVar("Opened")

#: More places than this in one log are no accident of a disk any more.
PLACES_MAX = 16


class DamageControl:
    """`listeners` are told of each group that becomes impaired, with the reason, and of each that is whole again (None)."""

    def __init__(self, engine: Engine, names: Names, quorum: Quorum) -> None:
        self._engine = engine
        self._solitude = Solitude(engine, names, quorum)
        #: The groups that are impaired, and what was found.
        self.impaired: dict[GroupId, str] = {}
        self.listeners: list[Callable[[GroupId, str | None], None]] = []

    # --- at start ---

    def opening(self, group: GroupId, attempt: Callable[[], Opened]) -> Opened:
        """The result of `attempt`, which opens the group's log and reads it, tried again after each damage is set aside. Raises
        StorageError."""
        for _ in range(PLACES_MAX):
            try:
                return attempt()
            except DamagedData as damage:
                self.set_aside(group, damage)
            except CorruptBatch as corrupt:
                # Read and not understood: set aside finds out where it begins.
                self.set_aside(group, DamagedData(f"{group}: {corrupt}", offset=0))
        raise StorageError(f"{group}: damaged in more than {PLACES_MAX} places; see {self.impaired[group]}")

    def impairment(self, group: GroupId, epoch: Epoch) -> Impairment | None:
        """Whether the group, whose election state is of `epoch`, has to be repaired before it may vote."""
        noted = self._engine.logs.impairment(group)
        if noted is None:
            return None
        impairment, reason = noted
        self.impaired.setdefault(group, reason)
        if impairment.epoch < 0:
            return Impairment(epoch, impairment.end_offset)
        return impairment

    def set_aside(self, group: GroupId, damage: DamagedData, running: VoterSet | None = None) -> None:
        engine = self._engine
        if self._solitude.votes_alone(group, running):
            file = engine.logs.file_at(group, damage.offset)
            told = str(damage) if file in str(damage) else f"{file}: {damage}"
            raise StorageError(
                f"{told}. This node is the only voter, so no other has these records, and nothing was cut. Restore the file "
                "from a copy; what can still be read of it `raftlake dump --records` shows"
            ) from damage
        election = engine.elections.load(group)
        reason = engine.logs.set_aside(group, damage, Epoch(0) if election is None else election.epoch)
        self.impaired[group] = reason
        self._tell(group, reason)

    def _tell(self, group: GroupId, reason: str | None) -> None:
        for listener in self.listeners:
            listener(group, reason)

    def mended(self, group: GroupId) -> None:
        """The core has everything again."""
        self._engine.logs.mend(group)
        self.impaired.pop(group, None)
        self._tell(group, None)

    def forget(self, group: GroupId) -> None:
        """Its topic was deleted. No listener is told: nothing was repaired, and the deletion of a topic is told elsewhere."""
        self.impaired.pop(group, None)
