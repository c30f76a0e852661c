"""Whether the leader may propose one more command: the quota of the key space, and what is under way towards it.

Owns the reservations of proposals from the moment in which they are let through to their end. One whose outcome is unknown may
still be applied, so its reservation stays until this leader has applied all that its log held then. What a predecessor had
under way is not counted before it is applied: one tail of a log at most. Refusals happen here, before anything is proposed;
what is applied never depends on a setting of a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlake.kv.commands import Txn
from raftlake.kv.quota import Levels, Quota, Reservation

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode


class KvRoom:
    """`listeners` are told, once each time, that a level of the quota was reached."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._quota = Quota(node.config.kv_quota_bytes)
        self._levels = Levels()
        #: Of proposals with an unknown outcome: the epoch and the end of the log by which they are decided.
        self._lingering: deque[tuple[int, int, Reservation]] = deque()
        self.listeners: list[Callable[[str], None]] = []

    @property
    def quota_bytes(self) -> int:
        return self._quota.bytes_max

    @property
    def under_way(self) -> int:
        """Bytes that proposals which are not applied yet may add."""
        return self._quota.under_way

    # --- proposals ---

    def reserve(self, txn: Txn) -> Reservation | None:
        """Let a command through to the log; None, and `refusal` says why, when the space may not grow by it."""
        self._let_go()
        return self._quota.reserve(self._node.kv.machine, txn)

    def settle(self, reservation: Reservation, *, is_unknown: bool = False) -> None:
        """The command's fate is told: decided, or unknown."""
        partition = self._node.partitions.get(self._node.config.quorum_group)
        if is_unknown and partition is not None and partition.core.is_leader:
            self._lingering.append((partition.core.epoch, partition.core.log_end, reservation))
        else:
            self._quota.release(reservation)

    def _let_go(self) -> None:
        """Release what has been applied meanwhile, or was proposed in another epoch than this one."""
        partition = self._node.partitions.get(self._node.config.quorum_group)
        epoch = -1 if partition is None else partition.core.epoch
        applied = self._node.kv.machine.applied_offset
        while self._lingering and (self._lingering[0][0] != epoch or self._lingering[0][1] <= applied):
            self._quota.release(self._lingering.popleft()[2])

    @property
    def refusal(self) -> str:
        """Why a command was refused, for whoever sent it."""
        return (
            f"the key space is full: it holds {self._node.kv.machine.size} bytes and may not grow beyond "
            f"kv.quota.bytes={self.quota_bytes}; nothing changed. Delete keys, or raise kv.quota.bytes on every node"
        )

    # --- telling ---

    def tick(self) -> None:
        """Called a few times a second: tell when a level is reached."""
        if self._levels.look(self._node.kv.machine.size, self.quota_bytes):
            for listener in self.listeners:
                listener(self._described())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong at the moment, for a health check."""
        return (self._described(),) if self._levels.reached else ()

    def _described(self) -> str:
        size = self._node.kv.machine.size
        percent = 100 * size // self.quota_bytes
        return f"the key space holds {size} bytes, {percent} % of kv.quota.bytes={self.quota_bytes}"
