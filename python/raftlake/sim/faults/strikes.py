"""What a fault is: one strike at one moment, drawn before the run begins, written as one line of text.

A run's strikes are a list, so that they can be printed, kept in a file, cut down by the shrinker and replayed. A strike says
what is to happen in numbers that mean the same in every run ("a leader, the third draw"); whom it hits is decided when it
strikes. Owns the words: `Strike`, `FaultKind`, the `Stage` on which faults act. The kinds themselves are in `faults.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from raftlake.raft.types import NodeId
from raftlake.sim.faults.faults import Settings

Params = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RoleTrap:
    """The node that takes up `role` next crashes at the `calls_left`th port call after that; a candidate only where a crash can
    take a part of its log away."""

    role: str
    calls_left: int


class Stage(Protocol):
    """What faults can do to the cluster. Each of these is a no-op where it makes no sense (a crash of a node that is off)."""

    @property
    def node_ids(self) -> tuple[NodeId, ...]: ...

    def leader_ids(self) -> tuple[NodeId, ...]:
        """Nodes that lead a group at the moment, ascending."""

    def later(self, delay_us: int, callback: Callable[..., None], *args: object) -> None:
        """Call back after this time, in every phase of the run."""

    def crash(self, node_id: NodeId, reason: str) -> None: ...

    def crash_at_port_call(self, node_id: NodeId, calls_left: int) -> None: ...

    def trap_role(self, role: str, calls_left: int, count: int) -> None:
        """The next `count` nodes that take up this role crash at the `calls_left`th port call after that."""

    def resign(self, node_id: NodeId) -> None: ...

    def pause(self, node_id: NodeId, length_us: int) -> None: ...

    def cut_link(self, source: NodeId, destination: NodeId) -> None:
        """Nothing passes in this direction until as many `restore_link` as `cut_link` were called."""

    def restore_link(self, source: NodeId, destination: NodeId) -> None: ...

    def delay_link(self, source: NodeId, destination: NodeId, extra_us: int) -> None:
        """Every message in this direction takes so much longer; 0 ends it."""

    def reset_connection(self, client: NodeId, server: NodeId) -> None: ...

    def slow_disk(self, node_id: NodeId, factor: int) -> None:
        """Every sync takes `factor` times as long; 1 ends it."""

    def fill_disk(self, node_id: NodeId, free_bytes: int) -> None:
        """So many bytes are left on the node's disk; -1: it has room again."""

    def forge_epoch(self, node_id: NodeId, above: int) -> None:
        """Ask each group of the node for a pre-vote in the highest epoch that it takes from a request, or so far `above` it."""

    def damage_log(self, node_id: NodeId, log: int, batch: int, byte: int) -> bool:
        """Flip a bit of some durable batch (-n: of the last n) of one of the node's logs, or make it unreadable (-1). False
        where too many copies would be damaged."""

    def jump_wall_clock(self, node_id: NodeId, by_ms: int) -> None: ...

    def jump_clock(self, node_id: NodeId, by_ms: int) -> None:
        """The monotonic clock skips time, as that of a virtual machine does that was suspended. It never goes back."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault at one moment."""

    at_us: int
    kind: str
    params: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """`12034500 crash leader=1 pick=17`"""
        return " ".join([str(self.at_us), self.kind, *(f"{name}={value}" for name, value in self.params)])

    @classmethod
    def parse(cls, line: str) -> Strike:
        """The inverse of `str`; raises ValueError."""
        at_us, kind, *params = line.split()
        pairs = [word.partition("=") for word in params]
        return cls(int(at_us), kind, tuple((name, int(value)) for name, _, value in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault: how often it strikes, what is drawn for it, what it does."""

    #: One word with hyphens; the file of strikes and the report call it so.
    name: str
    #: The setting that holds its mean interval in milliseconds, 0 for never.
    interval: str
    #: What is drawn for one strike: whole numbers by name.
    draw: Callable[[Random, Settings], Params]
    #: What it does; returns what the report counts it as, "" for "nothing happened".
    strike: Callable[[Stage, Params], str]


def draw_victim(rng: Random, settings: Settings) -> Params:
    """Whom a strike hits: a leader as often as the settings say, else any node."""
    return {"leader": int(rng.randrange(100) < settings.aim_at_leader_percent), "pick": rng.randrange(1 << 16)}


def victim(stage: Stage, params: Params) -> NodeId:
    """The node that `draw_victim` stands for at this moment."""
    among = (stage.leader_ids() if params["leader"] else ()) or stage.node_ids
    return among[params["pick"] % len(among)]
