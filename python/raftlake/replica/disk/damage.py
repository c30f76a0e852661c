"""Damaged logs of this node: found at start, by a read, by the scrub or by a follower's complaint, and repaired from peers.

A log whose synced records cannot be read is cut before the damage, and its group starts anew as *impaired*: it follows and
fetches what is missing, and until it has that it gives no vote (`raft.impairment`). A leader hands over first. Only where
other voters exist: a node that votes alone stops instead, with its log as it is. So does a node that finds damage which is
gone when it is looked at again.

Owns who is impaired and why; the files are `ports.LogDirectory`'s business. Invariant: a damaged group performs no further
action before it has been started anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from raftlake.errors import CorruptBatch, DamagedData, DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import (
    AnswerFetch,
    AnswerRead,
    AnswerVoterChange,
    ReleaseFetchRounds,
    ReportRole,
    Respond,
    SaveElectionState,
    SendRequest,
)
from raftlake.raft.events import ResignRequested
from raftlake.raft.types import ElectionState, Epoch, Impairment, VoterSet
from raftlake.replica.disk.alone import votes_alone
from raftlake.replica.partition.partition import Partition

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

Opened = TypeVar("Opened")

#: What a core says to others, which does not touch its log.
SAYING = (AnswerFetch, AnswerRead, AnswerVoterChange, ReleaseFetchRounds, ReportRole, Respond, SendRequest)

#: More places than this in one log are no accident of a disk any more.
PLACES_MAX = 16
#: What the scrub reads of closed segments.
SCRUB_BYTES_PER_SECOND = 4 * 1024 * 1024


class DamageControl:
    """`listeners` are told of each group that becomes impaired, with the reason, and of each that is whole again (None)."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._found: dict[GroupId, DamagedData] = {}
        self._scrubbed: GroupId | None = None
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
                self._set_aside(group, damage)
            except CorruptBatch as corrupt:
                # Read and not understood: set aside finds out where it begins.
                self._set_aside(group, DamagedData(f"{group}: {corrupt}", offset=0))
        raise StorageError(f"{group}: damaged in more than {PLACES_MAX} places; see {self.impaired[group]}")

    def impairment(self, group: GroupId, epoch: Epoch) -> Impairment | None:
        """Whether the group, whose election state is of `epoch`, has to be repaired before it may vote."""
        noted = self._node.logs.impairment(group)
        if noted is None:
            return None
        impairment, reason = noted
        self.impaired.setdefault(group, reason)
        if impairment.epoch < 0:
            return Impairment(epoch, impairment.end_offset)
        return impairment

    def _set_aside(self, group: GroupId, damage: DamagedData, running: VoterSet | None = None) -> None:
        node = self._node
        if votes_alone(node, group, running):
            file = node.logs.file_at(group, damage.offset)
            told = str(damage) if file in str(damage) else f"{file}: {damage}"
            raise StorageError(
                f"{told}. This node is the only voter, so no other has these records, and nothing was cut. Restore the file "
                "from a copy; what can still be read of it `raftlake dump --records` shows"
            ) from damage
        election = node.elections.load(group)
        reason = node.logs.set_aside(group, damage, Epoch(0) if election is None else election.epoch)
        self.impaired[group] = reason
        self._tell(group, reason)

    def _tell(self, group: GroupId, reason: str | None) -> None:
        for listener in self.listeners:
            listener(group, reason)

    # --- while running ---

    def found(self, group: GroupId, damage: DamagedData) -> None:
        """A read of the group's log failed: it is started anew before the next turn performs anything."""
        if group in self._node.partitions:
            self._found.setdefault(group, damage)
            self._node.request_turn()

    def guarded(self, group: GroupId, read: Callable[[], Opened]) -> Opened | None:
        """The result of `read`; None when it came upon damage, which is noted."""
        try:
            return read()
        except DamagedData as damage:
            self.found(group, damage)
            return None

    @property
    def has_found(self) -> bool:
        return bool(self._found)

    def repair_found(self) -> None:
        """Start of a turn: start the damaged groups anew. Raises StorageError where one cannot be repaired."""
        if not self._found:
            return
        found, self._found = self._found, {}
        for group, damage in found.items():
            partition = self._node.partitions.get(group)
            if partition is not None:
                self._restart(partition, damage)

    def restart_without_room(self, partition: Partition) -> None:
        """An append found no room, and the group's core takes it for done: as after a crash, with the log as it is. A leader
        hands over. It campaigns again when somebody else had the time to."""
        self._restart(partition, None)

    def _restart(self, partition: Partition, damage: DamagedData | None) -> None:
        """As after a crash, for one group: hand over, forget what is not synced, cut, open."""
        node = self._node
        node.step(partition, ResignRequested())
        actions, partition.outbox = partition.outbox, []
        saves = [action.state for action in actions if isinstance(action, SaveElectionState)]
        for action in actions if self._saved(partition.group, saves) else ():
            if isinstance(action, SAYING):
                node.perform(partition, action)
        node.hosting.let_go(partition)
        delay_ms, topic = 0, None
        if damage is None:
            node.logs.settle(partition.group)
            # Should the log be empty still, those vote in it who stand in its topic's key.
            topic = node.topics.by_id(partition.group.topic_id)
            delay_ms = node.config.raft.election_timeout_ms
        else:
            self._set_aside(partition.group, damage, partition.core.voters)
        node.fetch_server.begun_anew(partition.group)
        initial = None if topic is None else topic.voters
        node.hosting.open(partition.group, election_delay_ms=delay_ms, initial=initial)
        node.partitions[partition.group].shown_before = max(partition.shown_before, partition.high_watermark)
        partition.on_deleted()

    def _saved(self, group: GroupId, states: list[ElectionState]) -> bool:
        """False without room: then nothing may be said, as if the node had crashed before."""
        try:
            if states:
                self._node.elections.save({group: states[-1]})
        except DiskFull:
            return False
        return True

    def mended(self, group: GroupId) -> None:
        """The core has everything again."""
        self._node.logs.mend(group)
        self.impaired.pop(group, None)
        self._tell(group, None)

    def scrub(self, elapsed_ms: int) -> None:
        """Read on in the closed segments, one log after the other, as much as the time since the last call allows."""
        budget = SCRUB_BYTES_PER_SECOND * elapsed_ms // 1000
        groups = sorted(self._node.partitions)
        after = [group for group in groups if self._scrubbed is not None and group > self._scrubbed]
        for group in after + groups[: len(groups) - len(after)]:
            if budget <= 0:
                return
            log = self._node.partitions[group].log
            read = self.guarded(group, lambda log=log, size=budget: log.scrub(size))  # type: ignore[misc]
            budget -= read or 0
            if read is None or budget > 0:
                # All of this log was seen.
                self._scrubbed = group
