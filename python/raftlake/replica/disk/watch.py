"""Room on this node's disk and on those of the other voters: what is refused for want of it, and when that ends.

Owns three states. *Low*: less is free than has to stay free. Each node tells its leaders so with its Fetch rounds, and a leader
refuses what clients want appended while a majority of a partition's voters is low: nothing was appended, and a client tries
again. A minority may fill up: it follows for as long as it can. Elections, deletions, reads and retention go on. *Full*: a
write found no room even without the ballast; a full node fetches nothing. Both end by themselves, when so much is free that
they do not come back at once. The disk is looked at each second, or more often under load; appends in between are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from raftlake.errors import DiskFull, TooManyFiles
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import TOPICS_PREFIX, is_reserved
from raftlake.ports.driver import Room
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, NodeId, VoterSet
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import Quorum

logger = logging.getLogger("raftlake.disk")

LOOK_INTERVAL_MS = 1_000
#: A part of what has to stay free: after so much was appended the disk is looked at before its time.
LOOK_PART = 8
#: A part of what has to stay free: with so much a full disk is worth another try.
FULL_PART = 16


class DiskWatch:
    """`listeners` are told of each change that an operator should know, in words."""

    def __init__(self, engine: Engine, quorum: Quorum) -> None:
        self._engine = engine
        self._quorum = quorum
        #: What was free at the last look, and what has been appended in all since the start and up to that look.
        self._free_bytes: int | None = None
        self._appended = 0
        self._appended_then = 0
        #: What had been appended when the disk was last asked.
        self._looked_at = 0
        self._next_look_ms = engine.now_ms
        #: What has to stay free.
        self.limit_bytes = 0
        self.is_low = False
        self.is_full = False
        #: Why it is full.
        self._lacks = DiskFull.what
        #: Other voters that have said that they are low, and not taken it back.
        self._low_peers: dict[NodeId, None] = {}
        #: What could not be saved for want of room: it is tried again.
        self._stalled: dict[GroupId, Partition] = {}
        #: The voters of the quorum that are low, where they are a majority.
        self._crowded: tuple[NodeId, ...] = ()
        self.listeners: list[Callable[[str], None]] = []
        #: Why records stay on local disks that the remote tier should have taken, of one partition or of all that are led here;
        #: "" where nothing keeps them.
        self.why_not_copied: Callable[[GroupId | None], str] = _nothing_waits

    # --- this disk ---

    @property
    def free_bytes(self) -> int | None:
        """What is free, as far as this node knows; None before the first look."""
        if self._free_bytes is None:
            return None
        return max(0, self._free_bytes - (self._appended - self._appended_then))

    def tick(self) -> None:
        """Called a few times a second."""
        if self._engine.now_ms >= self._next_look_ms:
            self._look()
        self._tell_of_majority()

    def _look(self) -> None:
        self._next_look_ms = self._engine.now_ms + LOOK_INTERVAL_MS
        self._looked_at = self._appended
        self._engine.logs.look_for_room(partial(self._looked, self._appended))

    def _looked(self, appended_then: int, room: Room | None) -> None:
        if room is None:
            return
        self._free_bytes, self._appended_then = room.free_bytes, appended_then
        self.limit_bytes = room.limit(self._engine.config.min_free_bytes)
        if self.is_full and room.free_bytes > self.limit_bytes // FULL_PART:
            self.is_full = False
            self._tell("there is room on the disk again: this node fetches and appends")
        self._judge()

    def spend(self, size: int) -> None:
        """So many bytes were appended to a log."""
        self._appended += size
        if self.is_low or self._free_bytes is None:
            return
        if self._free_bytes - (self._appended - self._appended_then) < self.limit_bytes:
            self._judge()
        if self._appended - self._looked_at > self.limit_bytes // LOOK_PART > 0:
            # Others may write to the disk as fast.
            self._look()

    def _judge(self) -> None:
        free = self.free_bytes
        if free is None:
            return
        was_low = self.is_low
        self.is_low = free < (Room.above(self.limit_bytes) if was_low else self.limit_bytes)
        if self.is_low != was_low:
            self._tell(self._described() if self.is_low else f"the disk has room again: {free} bytes are free")

    def _described(self) -> str:
        return (
            f"little room on the disk: {self.free_bytes} bytes are free, less than log.dir.min.free.bytes={self.limit_bytes}. "
            "What clients write is refused while a majority of the voters is so; delete something, or make the disk larger"
            + self._untaken(None)
        )

    def has_room_for(self, size: int) -> bool:
        """Whether something of that size may be written that is not needed at once: half of what a low disk has left."""
        return not self.is_low or 2 * size <= (self.free_bytes or 0)

    # --- the others' ---

    def heard(self, replica_id: NodeId, *, is_low: bool) -> None:
        """A replica fetches, and says how it is with its disk. Voters alone are noted: anybody may fetch under any number."""
        if not is_low:
            if replica_id in self._low_peers:
                del self._low_peers[replica_id]
        elif replica_id not in self._low_peers:
            voters = self._quorum.latest
            self._low_peers = {each: None for each in (*self._low_peers, replica_id) if each in voters}

    def low_among(self, voters: VoterSet) -> tuple[NodeId, ...]:
        """Those of the voters that are low, as far as this node knows."""
        if not self.is_low and not self._low_peers:
            return ()
        me = self._engine.config.node_id
        return tuple(each for each in voters.ids if (self.is_low if each == me else each in self._low_peers))

    # --- refusing ---

    def refusal(self, partition: Partition) -> str:
        """Why a client may append nothing to a partition that is led here; "" when it may."""
        voters = partition.core.voters
        low = self.low_among(voters)
        if len(low) < voters.majority or not low:
            return ""
        return _refusal(low, len(voters)) + self._untaken(partition.group)

    def _untaken(self, group: GroupId | None) -> str:
        why = self.why_not_copied(group) or (self.why_not_copied(None) if group is not None else "")
        return f". The remote tier does not make room: {why}" if why else ""

    def refusal_of(self, partition: Partition, txn: Txn) -> str:
        """The same for a command. Deletions, and what the quorum notes for itself, go on."""
        for operation in txn.ops:
            if isinstance(operation, Put):
                key = operation.key
                if not is_reserved(key) or key.startswith(TOPICS_PREFIX):
                    return self.refusal(partition)
        return ""

    @property
    def is_refusing(self) -> bool:
        """This node leads the quorum, and a majority of its voters is low."""
        return bool(self._crowded)

    # --- a full disk ---

    def on_full(self, error: DiskFull) -> None:
        """A write found no room, or no descriptor."""
        if not isinstance(error, TooManyFiles):
            self._engine.logs.give_up_ballast()
        if not self.is_full:
            self.is_full = True
            self._lacks = error.what
            self._tell(f"{error.what}: {error}. This node fetches nothing until there is room, and votes as ever")

    def save(self, dirty: dict[GroupId, Partition], states: Mapping[GroupId, ElectionState]) -> dict[GroupId, Partition]:
        """Save election states. Those of `dirty` are returned whose actions may be performed now: without room for its state
        a group says and does nothing, and is looked at again later."""
        try:
            self._engine.elections.save(states)
            return dirty
        except DiskFull as full:
            self.on_full(full)
        if not self._stalled:
            self._engine.timers.schedule(self._engine.now_ms + LOOK_INTERVAL_MS, self._go_on)
        self._stalled.update((group, dirty[group]) for group in states)
        return {group: partition for group, partition in dirty.items() if group not in states}

    @property
    def held(self) -> Collection[GroupId]:
        """The groups that wait until their state can be saved."""
        return self._stalled.keys()

    def _go_on(self) -> None:
        stalled, self._stalled = self._stalled, {}
        for partition in stalled.values():
            if not partition.deleted:
                self._engine.mark_dirty(partition)

    # --- telling ---

    def _tell_of_majority(self) -> None:
        partition = self._quorum.partition
        crowded: tuple[NodeId, ...] = ()
        if partition is not None and partition.core.is_leader:
            low = self.low_among(partition.core.voters)
            crowded = low if low and len(low) >= partition.core.voters.majority else ()
        if crowded != self._crowded:
            was_crowded, self._crowded = self._crowded, crowded
            if crowded and partition is not None:
                self._tell(_refusal(crowded, len(partition.core.voters)))
            elif was_crowded:
                self._tell("a majority of the voters has room again, or another node leads them")

    def _tell(self, what: str) -> None:
        for listener in self.listeners:
            listener(what)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong at the moment, for a health check."""
        found: list[str] = []
        if self.is_full:
            found.append(f"{self._lacks}: this node fetches nothing until there is room")
        if self.is_low:
            found.append(self._described())
        if self._crowded:
            found.append(f"clients' writes are refused: the disks of nodes {_ids(self._crowded)} are low")
        return tuple(found)


def _nothing_waits(_group: GroupId | None) -> str:
    return ""


def _refusal(low: tuple[NodeId, ...], voters: int) -> str:
    return (
        f"nothing was written: of {voters} voters {len(low)} have less room on their disks than log.dir.min.free.bytes, "
        f"node {_ids(low)}. Writing goes on by itself when a majority has room"
    )


def _ids(nodes: tuple[NodeId, ...]) -> str:
    return ", ".join(str(node_id) for node_id in nodes)
