"""The strikes of a run: drawn from the settings before it begins, and carried out while it lasts.

`ALL_KINDS` is the list of everything that can strike; a new kind of fault is one entry in it and one interval in
`faults.Settings`. Each kind has a generator of its own, so that one more kind or another interval leaves the strikes of the
others as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raftlake.sim.clock import US_PER_MS
from raftlake.sim.faults import damage, filling, forging, kinds
from raftlake.sim.faults.faults import Settings, stream
from raftlake.sim.faults.strikes import FaultKind, Stage, Strike

ALL_KINDS: tuple[FaultKind, ...] = (*kinds.KINDS, *damage.KINDS, *filling.KINDS, *forging.KINDS)

BY_NAME = {kind.name: kind for kind in ALL_KINDS}


def draw_strikes(settings: Settings) -> tuple[Strike, ...]:
    """Every strike of the safety phase, in order of time; each kind at exponentially distributed moments."""
    found: list[Strike] = []
    for kind in ALL_KINDS:
        interval_ms: int = getattr(settings, kind.interval)
        if not interval_ms:
            continue
        rng = stream(settings.seed, f"strikes {kind.name}")
        at_us = 0
        while True:
            at_us += 1 + int(rng.expovariate(1.0) * interval_ms * US_PER_MS)
            if at_us >= settings.safety_ms * US_PER_MS:
                break
            found.append(Strike(at_us, kind.name, tuple(kind.draw(rng, settings).items())))
    # Equal times keep the order of the kinds.
    return tuple(sorted(found, key=lambda strike: strike.at_us))


def read_strikes(lines: Iterable[str]) -> tuple[Strike, ...]:
    """The strikes of a file, one a line; empty lines and those that begin with # are passed over. Raises ValueError."""
    strikes = tuple(Strike.parse(line) for line in lines if line.strip() and not line.startswith("#"))
    unknown = sorted({strike.kind for strike in strikes} - BY_NAME.keys())
    if unknown:
        raise ValueError(f"unknown kinds of strikes: {', '.join(unknown)}; known are {', '.join(BY_NAME)}")
    return strikes


class FaultInjector:
    """Carries out a list of strikes."""

    def __init__(self, stage: Stage, strikes: Sequence[Strike]) -> None:
        self._stage = stage
        self._strikes = strikes
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        for strike in self._strikes:
            self._stage.later(strike.at_us, self._carry_out, strike)

    def _carry_out(self, strike: Strike) -> None:
        name = BY_NAME[strike.kind].strike(self._stage, dict(strike.params))
        if name:
            self.counts[name] = self.counts.get(name, 0) + 1
