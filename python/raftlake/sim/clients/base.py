"""What every simulated client is: one request at a time, a pause to think, and a count of what it got.

Owns the pace of a client and what all clients of a run share. Knows no request: each kind of client has its own module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.partition.producer_state import BATCHES_KEPT
from raftlake.sim.clients.calls import ClientCalls
from raftlake.sim.clients.history import KvHistory
from raftlake.sim.clients.operations import Operations
from raftlake.sim.clock import US_PER_MS, WALL_START_MS, Scheduler
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.histories.transactions import Transaction
from raftlake.sim.oracle import Oracle
from raftlake.sim.trace import Trace
from raftlake.wire.batches import Record

TOPIC = "orders"
#: Created and deleted over and over.
SCRATCH = "scratch"
#: Of a client that changes configs; this one keeps its own.
KEPT = "kept"
#: Compacted in some runs.
KEYED = "accounts"
CALL_TIMEOUT_MS = 4_000
#: The default of the setting of that name of Kafka's clients.
RETRY_BACKOFF_MS_MAX = 1_000
#: Once the faults have ended, a client that got nothing asks again within so long: else it may ask three times in 15 s.
HEALED_THINK_MS_MAX = 250


class Target(Protocol):
    """A topic that producers write to, with what is promised of it. `topic_id` is known once the topic exists."""

    topic_id: bytes | None

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def oracle(self) -> Oracle: ...

    @property
    def transactions(self) -> list[Transaction]: ...

    @property
    def trims(self) -> bool:
        """Whether logs lose their oldest records."""

    @property
    def batches_known(self) -> int:
        """Of so many of its newest batches a producer is answered, whatever happens, where they stand."""

    def group(self, partition: int) -> GroupId: ...

    def record(self, value: bytes) -> Record:
        """The record of a client's unique value."""

    def compression(self, value: bytes) -> str:
        """Of the batch that begins with the record of a value."""


@dataclass(slots=True)
class Shared:
    """What all clients of a run share, and the `Target` of most of them."""

    settings: Settings
    scheduler: Scheduler
    calls: ClientCalls
    oracle: Oracle
    trace: Trace
    node_ids: tuple[NodeId, ...]
    #: The highest epoch of a group in which any node has led so far.
    leader_epoch: Callable[[GroupId], int]
    #: See `machine.World`.
    leader_waiters: dict[GroupId, list[Callable[[NodeId], None]]]
    kv_history: KvHistory
    operations: Operations
    #: All that clients began.
    transactions: list[Transaction] = field(default_factory=list)
    topic_id: bytes | None = None
    #: The faults have ended: a refused client asks again soon, so that the time suffices for many attempts.
    is_healed: bool = False
    #: Clients that were served since then begin no other request: they make room for those that wait.
    room_since_us: int | None = None
    #: No client begins another request.
    stopped: bool = False

    # --- Target ---

    @property
    def topic(self) -> str:
        return TOPIC

    @property
    def partitions(self) -> int:
        return self.settings.partitions

    @property
    def trims(self) -> bool:
        return self.settings.trims

    @property
    def batches_known(self) -> int:
        return BATCHES_KEPT

    def group(self, partition: int) -> GroupId:
        assert self.topic_id is not None
        return GroupId(TOPIC, partition, self.topic_id)

    def record(self, value: bytes) -> Record:
        return Record(value=value)

    def compression(self, value: bytes) -> str:
        del value
        return "none"


def wall_ms(shared: Shared) -> int:
    """The time that clients write into their records."""
    return WALL_START_MS + shared.scheduler.now_us // US_PER_MS


class Client:
    """One request at a time; `step` begins the next one."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared = shared
        self.name = name
        self.rng = stream(shared.settings.seed, name)
        #: Requests that ended with what the client wanted, and when the last of them began.
        self.completed = 0
        self.last_completed_began_us = -1
        self.is_idle = True
        #: Wants nothing any more.
        self.is_done = False
        self.began_us = 0
        #: When its next request begins; None while it waits for an answer.
        self.asks_us: int | None = None
        self._node_id = NodeId(0)

    def start(self) -> None:
        self._think()

    def _think(self, rest_ms: int = 0, ms_max: int | None = None) -> None:
        self.is_idle = True
        think_ms = self.rng.expovariate(1.0) * self.shared.settings.think_ms_mean
        delay_us = 1_000 + int((think_ms if ms_max is None else min(think_ms, ms_max)) * US_PER_MS)
        delay_us += rest_ms * US_PER_MS
        self.asks_us = self.shared.scheduler.now_us + delay_us
        self.shared.scheduler.call_after(delay_us, self._begin)

    def _begin(self) -> None:
        if self.shared.stopped or self._makes_room:
            return
        self.asks_us = None
        self.is_idle = False
        self.began_us = self.shared.scheduler.now_us
        self.step()

    @property
    def _makes_room(self) -> bool:
        since_us = self.shared.room_since_us
        return since_us is not None and self.last_completed_began_us >= since_us

    def step(self) -> None:
        raise AssertionError("each kind of client has its own step")

    def any_node(self) -> NodeId:
        return self.shared.node_ids[self.rng.randrange(len(self.shared.node_ids))]

    def say(self, what: str) -> None:
        if self.shared.trace.enabled:
            self.shared.trace.write(self.name, what)

    def succeed(self, rest_ms: int = 0) -> None:
        """`rest_ms`: do nothing for so long before the next pause to think."""
        self.completed += 1
        self.last_completed_began_us = self.began_us
        self._think(rest_ms)

    def give_up(self) -> None:
        self._think(ms_max=HEALED_THINK_MS_MAX if self.shared.is_healed else None)

    def retry_soon(self) -> None:
        """What was refused was refused for a moment only, so real clients send it again within their retry.backoff.max.ms."""
        self._think(ms_max=RETRY_BACKOFF_MS_MAX)
