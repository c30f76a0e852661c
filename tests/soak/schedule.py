"""What is done to the nodes, and when: drawn from a seed, so that a run can be repeated as far as real time allows.

A fault names its victim by role ("leader", "follower", "any"); who that is, is found out when it strikes.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from soak.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Fault:
    """Wait `after_s`, strike, hold for `hold_s`, undo."""

    kind: str
    victim: str
    after_s: float
    hold_s: float
    #: A second fault that strikes in the middle of this one.
    also: str | None = None
    #: Begin with every node ready, not on top of what the last fault left.
    settled: bool = True


#: Kinds with their shares.
KINDS = {
    "kill": 5,
    "kill all": 1,
    "kill two": 1,
    "pause": 4,
    "stop": 3,
    "stop all": 1,
    "isolate": 4,
    "cut one way": 4,
    "cut link": 3,
}
SECOND = ("kill", "pause", "cut one way")


def draw(seed: int) -> Iterator[Fault]:
    """Faults without end. The first ones are one of each kind, so that a short run has them all."""
    rng = random.Random(f"soak {seed}")
    first = list(KINDS)
    rng.shuffle(first)
    while True:
        kind = first.pop() if first else rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield Fault(
            kind=kind,
            victim=rng.choice(["leader", "leader", "follower", "any"]),
            after_s=rng.choice([0.2, 1.0, 2.0, 4.0]),
            hold_s=rng.choice([0.1, 0.5, 1.5, 3.0, 5.0]),
            also=rng.choice(SECOND) if not first and rng.random() < 0.2 else None,
            settled=rng.random() < 0.7,
        )


class Injector:
    """Performs faults one after the other."""

    def __init__(self, nodes: Nodes, seed: int, say: Callable[[str], None], now_us: Callable[[], int]) -> None:
        self._nodes = nodes
        self._faults = draw(seed)
        self._rng = random.Random(f"soak victims {seed}")
        self._say = say
        self._now_us = now_us
        self.counts: Counter[str] = Counter()
        #: When each fault struck, in microseconds, and what it was.
        self.struck: list[tuple[int, str]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; everything is undone then."""
        for fault in self._faults:
            if fault.settled:
                await self._settle(stop)
            if await _wait(stop, fault.after_s):
                return
            await self._perform(fault, stop)
            if stop.is_set():
                return

    async def _settle(self, stop: asyncio.Event) -> None:
        waiting = list(self._nodes.running())
        while waiting and not stop.is_set():
            if not self._nodes.is_alive(waiting[0]) or await self._nodes.ask(waiting[0], "/health/ready") is not None:
                waiting.pop(0)
            else:
                await _wait(stop, 0.1)

    async def _perform(self, fault: Fault, stop: asyncio.Event) -> None:
        victims = await self._victims(fault)
        self.counts[fault.kind] += 1
        also = "" if fault.also is None else f", then {fault.also}"
        text = f"{fault.kind} {' '.join(map(str, victims))} for {fault.hold_s} s{also}"
        self.struck.append((self._now_us(), text))
        self._say(text)
        undo = [await self._strike(fault.kind, victims)]
        await _wait(stop, fault.hold_s / 2)
        if fault.also is not None and not stop.is_set():
            others = [node_id for node_id in self._nodes.running() if node_id not in victims] or self._nodes.running()
            if others:
                self.counts[fault.also] += 1
                undo.append(await self._strike(fault.also, [self._rng.choice(others)]))
        await _wait(stop, fault.hold_s / 2)
        for repair in reversed(undo):
            await repair()

    async def _victims(self, fault: Fault) -> list[int]:
        nodes = self._nodes
        if fault.kind.endswith("all"):
            return list(nodes.node_ids)
        leader = await nodes.leader()
        others = [node_id for node_id in nodes.node_ids if node_id != leader]
        if fault.victim == "leader" and leader is not None:
            first = leader
        else:
            first = self._rng.choice(others if fault.victim == "follower" else list(nodes.node_ids))
        if fault.kind != "kill two":
            return [first]
        return [first, self._rng.choice([node_id for node_id in nodes.node_ids if node_id != first])]

    async def _strike(self, kind: str, victims: list[int]) -> Callable[[], Awaitable[None]]:
        nodes = self._nodes
        match kind:
            case "kill" | "kill all" | "kill two":
                for node_id in victims:
                    nodes.signal(node_id, signal.SIGKILL)
                return lambda: self._restart(victims)
            case "stop" | "stop all":
                for node_id in victims:
                    nodes.signal(node_id, signal.SIGTERM)
                return lambda: self._restart(victims)
            case "pause":
                for node_id in victims:
                    nodes.signal(node_id, signal.SIGSTOP)
                return lambda: self._resume(victims)
            case "isolate":
                for other in nodes.node_ids:
                    if other != victims[0]:
                        nodes.links.cut(victims[0], other)
                        nodes.links.cut(other, victims[0])
            case "cut one way" | "cut link":
                other = self._rng.choice([node_id for node_id in nodes.node_ids if node_id != victims[0]])
                nodes.links.cut(victims[0], other)
                if kind == "cut link":
                    nodes.links.cut(other, victims[0])
        return self._heal

    async def _restart(self, victims: list[int]) -> None:
        for node_id in victims:
            await self._nodes.ended(node_id)
        self._nodes.note_unasked_ends()
        for node_id in victims:
            self._nodes.start(node_id)

    async def _resume(self, victims: list[int]) -> None:
        for node_id in victims:
            self._nodes.signal(node_id, signal.SIGCONT)

    async def _heal(self) -> None:
        self._nodes.links.heal()


async def _wait(stop: asyncio.Event, seconds: float) -> bool:
    """Whether `stop` came within that time."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
