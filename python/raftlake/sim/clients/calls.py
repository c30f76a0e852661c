"""How simulated clients reach nodes: a call crosses a network of its own, and ends in exactly one outcome.

Calls overtake one another, except on one `Connection`. A call may be refused (no node listens: it was never received),
answered, broken off (the node died while it had the call) or silent until the client's patience ends. Only a refusal says that
nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import log
from random import Random
from typing import Any

from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.machine import Machine
from raftlake.sim.network import NetworkSettings


class CallFailure(Enum):
    #: No node listened: the call was never seen.
    REFUSED = "refused"
    #: The node went down before it answered.
    BROKEN = "broken off"
    TIMED_OUT = "timed out"


#: Runs on the node's thread: asks the node, which answers through the callback now or later.
Ask = Callable[[ReplicaNode, Callable[[Any], None]], None]
Done = Callable[[Any], None]


class ClientCalls:
    """The clients' network. Loss and delay are those of the nodes' network."""

    def __init__(self, scheduler: Scheduler, rng: Random, settings: NetworkSettings, machines: dict[NodeId, Machine]) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self.settings = settings
        self._machines = machines
        self._call_counter = 0
        self.made = 0

    def incarnation(self, node_id: NodeId) -> int:
        return self._machines[node_id].incarnation

    def call(self, node_id: NodeId, ask: Ask, done: Done, timeout_ms: int) -> None:
        """Ask a node; `done` is called once, later, with the node's answer or a CallFailure."""
        call = self._begin(node_id, done, timeout_ms)
        if not self.is_lost():
            self._scheduler.call_after(self.delay_us(), call.arrive, ask)

    def connect(self, node_id: NodeId) -> Connection:
        """A connection to the process that runs on a node when the first call arrives there."""
        return Connection(self, self._scheduler, node_id)

    def _begin(self, node_id: NodeId, done: Done, timeout_ms: int) -> _Call:
        self.made += 1
        self._call_counter += 1
        call = _Call(self, self._machines[node_id], self._call_counter, done)
        self._scheduler.call_after(timeout_ms * US_PER_MS, call.finish, CallFailure.TIMED_OUT)
        return call

    def later(self, callback: Callable[..., None], *args: Any) -> None:
        """Run `callback` after a one-way delay."""
        self._scheduler.call_after(self.delay_us(), callback, *args)

    def is_lost(self) -> bool:
        return bool(self.settings.loss_ppm) and self._rng.random() * 1_000_000 < self.settings.loss_ppm

    def delay_us(self) -> int:
        return self.settings.delay_us_min + int(-log(1.0 - self._rng.random()) * self.settings.delay_us_mean)


class Connection:
    """Calls that one process gets in the order in which they were made, as over TCP. One that is lost takes all later ones with
    it, and so does the end of the process."""

    def __init__(self, calls: ClientCalls, scheduler: Scheduler, node_id: NodeId) -> None:
        self._calls = calls
        self._scheduler = scheduler
        self._node_id = node_id
        self._is_broken = False
        self._last_arrival_us = 0
        #: Of the process that got the first call, 0 where none ran.
        self._incarnation: int | None = None

    def call(self, ask: Ask, done: Done, timeout_ms: int) -> None:
        """Like `ClientCalls.call`."""
        calls = self._calls
        call = calls._begin(self._node_id, done, timeout_ms)
        self._is_broken = self._is_broken or calls.is_lost()
        if not self._is_broken:
            self._last_arrival_us = max(self._last_arrival_us, self._scheduler.now_us + calls.delay_us())
            self._scheduler.call_at(self._last_arrival_us, self._arrive, call, ask)

    def _arrive(self, call: _Call, ask: Ask) -> None:
        incarnation = self._calls.incarnation(self._node_id)
        if self._incarnation is None:
            self._incarnation = incarnation
        if self._incarnation == incarnation:
            call.arrive(ask)
        else:
            self._calls.later(call.finish, CallFailure.REFUSED)


class _Call:
    __slots__ = ("_calls", "_done", "_finished", "_machine", "_number")

    def __init__(self, calls: ClientCalls, machine: Machine, number: int, done: Done) -> None:
        self._calls = calls
        self._machine = machine
        self._number = number
        self._done = done
        self._finished = False

    def arrive(self, ask: Ask) -> None:
        if self._finished:
            return
        node = self._machine.node
        if node is None:
            self._calls.later(self.finish, CallFailure.REFUSED)
            return
        self._machine.on_down[self._number] = self._on_down
        self._machine.run(ask, node, self._on_answer)

    def _on_answer(self, answer: Any) -> None:
        # The answer leaves the machine here, and the machine may die just before.
        self._machine.port_call("answer")
        if self._machine.on_down.pop(self._number, None) is not None and not self._calls.is_lost():
            self._calls.later(self.finish, answer)

    def _on_down(self) -> None:
        self._calls.later(self.finish, CallFailure.BROKEN)

    def finish(self, outcome: Any) -> None:
        if not self._finished:
            self._finished = True
            self._done(outcome)
