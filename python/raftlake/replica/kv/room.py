"""Whether the leader may propose one more command: the quota of the key space, the limit of partitions, and what is under way
towards both.

Owns the reservations of proposals from the moment in which they are let through to their end. One whose outcome is unknown may
still be applied, so its reservation stays until this leader has applied all that its log held then. What a predecessor had
under way is not counted before it is applied: one tail of a log at most. (A topic is not created before that.) Refusals
happen here, before anything is proposed; what is applied never depends on a setting of a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import TOPICS_PREFIX
from raftlake.kv.quota import Levels, Quota, Reservation
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.state import KvState
from raftlake.replica.reserved_rules import topic_under


def why_too_many(more: int, limit: int) -> str:
    """What is told of too many partitions. `limit`: `NodeConfig.partitions_max`, of which the quorum's own log takes one."""
    return (
        f"{more} more partitions would exceed the limit of {limit - 1} for all topics together, those that are just being "
        "created included: ask for fewer, or delete topics"
    )


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Why a command is not let through: as another node is told, and in words."""

    error: ErrorCode
    reason: str


@dataclass(slots=True, eq=False)
class Admission:
    """One command that was let through, and what it may add."""

    space: Reservation
    partitions: int


class KvRoom:
    """`listeners` are told, once each time, that a level of the quota was reached."""

    def __init__(self, engine: Engine, state: KvState) -> None:
        self._engine = engine
        self._state = state
        self._quota = Quota(engine.config.kv_quota_bytes)
        self._levels = Levels()
        #: Partitions of topics whose creation is proposed and not applied yet.
        self.partitions_under_way = 0
        #: Of proposals with an unknown outcome: the epoch and the end of the log by which they are decided.
        self._lingering: deque[tuple[int, int, Admission]] = deque()
        self.listeners: list[Callable[[str], None]] = []

    @property
    def quota_bytes(self) -> int:
        return self._quota.bytes_max

    @property
    def under_way(self) -> int:
        """Bytes that proposals which are not applied yet may add."""
        return self._quota.under_way

    # --- proposals ---

    def reserve(self, txn: Txn) -> Admission | NoRoom:
        """Let a command through to the log, or say why not. Each admission is followed by one `settle`."""
        if self._lingering:
            self._let_go()
        partitions = self._partitions_of(txn)
        no_room = self._refusal_of_partitions(partitions) if partitions else None
        if no_room is not None:
            return no_room
        space = self._quota.reserve(self._state.machine, txn)
        if space is None:
            return NoRoom(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._refusal_of_space)
        self.partitions_under_way += partitions
        return Admission(space, partitions)

    def _refusal_of_partitions(self, more: int) -> NoRoom | None:
        """Of topics with so many partitions together. A leader that has not applied all that its predecessors left cannot count
        yet: the command is tried again. Another topic that stands under the name is no reason to count less; it may be
        deleted."""
        core = self._engine.partitions[self._engine.config.quorum_group].core
        if not core.has_caught_up(Offset(self._state.machine.applied_offset)):
            return NoRoom(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this leader has not applied all that its predecessors proposed")
        limit = self._engine.config.partitions_max
        if self._state.partition_count + self.partitions_under_way + more <= limit:
            return None
        return NoRoom(ErrorCode.INVALID_PARTITIONS, why_too_many(more, limit))

    def _partitions_of(self, txn: Txn) -> int:
        """Of all topics that the command puts. Of one that it makes grow those that are added: its condition says that the
        topic still stands."""
        more = 0
        for operation in txn.ops:
            if not isinstance(operation, Put) or not operation.key.startswith(TOPICS_PREFIX):
                continue
            topic = topic_under(operation.key.removeprefix(TOPICS_PREFIX), operation.value)
            if topic is not None:
                standing = self._state.topics.get(topic.name)
                is_same = standing is not None and standing.topic_id == topic.topic_id
                more += max(0, topic.partitions - (standing.partitions if standing is not None and is_same else 0))
        return more

    def settle(self, admission: Admission, *, is_unknown: bool = False) -> None:
        """The command's fate is told: decided, or unknown."""
        partition = self._engine.partitions.get(self._engine.config.quorum_group)
        if is_unknown and partition is not None and partition.core.is_leader:
            self._lingering.append((partition.core.epoch, partition.core.log_end, admission))
        else:
            self._release(admission)

    def _release(self, admission: Admission) -> None:
        self._quota.release(admission.space)
        self.partitions_under_way -= admission.partitions

    def _let_go(self) -> None:
        """Release what has been applied meanwhile, or was proposed in another epoch than this one."""
        partition = self._engine.partitions.get(self._engine.config.quorum_group)
        epoch = -1 if partition is None else partition.core.epoch
        applied = self._state.machine.applied_offset
        while self._lingering and (self._lingering[0][0] != epoch or self._lingering[0][1] <= applied):
            self._release(self._lingering.popleft()[2])

    @property
    def _refusal_of_space(self) -> str:
        return (
            f"the key space is full: it holds {self._state.machine.size} bytes and may not grow beyond "
            f"kv.quota.bytes={self.quota_bytes}; nothing changed. Delete keys, or raise kv.quota.bytes on every node"
        )

    # --- telling ---

    def tick(self) -> None:
        """Called a few times a second: tell when a level is reached."""
        if self._levels.look(self._state.machine.size, self.quota_bytes):
            for listener in self.listeners:
                listener(self._described())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong at the moment, for a health check."""
        return (self._described(),) if self._levels.reached else ()

    def _described(self) -> str:
        size = self._state.machine.size
        percent = 100 * size // self.quota_bytes
        return f"the key space holds {size} bytes, {percent} % of kv.quota.bytes={self.quota_bytes}"
