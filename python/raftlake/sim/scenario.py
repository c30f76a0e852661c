"""A run as a value: its settings and its strikes, as text to keep and to replay.

A seed alone names a run. What the shrinker leaves of one is no longer what a seed draws, so it is written down: a line
`set name=value` for each setting that differs from what the seed draws, then the strikes, one a line (`strikes.Strike`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from raftlake.sim.faults.faults import Settings
from raftlake.sim.faults.injector import draw_strikes, read_strikes
from raftlake.sim.faults.strikes import Strike


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a run is a function of."""

    settings: Settings
    strikes: tuple[Strike, ...]

    @classmethod
    def of_seed(cls, seed: int) -> Scenario:
        settings = Settings.draw(seed)
        return cls(settings, draw_strikes(settings))

    def lines(self) -> list[str]:
        """What `parse` reads, given the seed."""
        drawn = dict(line.split("=", 1) for line in Settings.draw(self.settings.seed).lines())
        changed = [line for line in self.settings.lines() if drawn[line.split("=", 1)[0]] != line.split("=", 1)[1]]
        return [f"# seed {self.settings.seed}", *(f"set {line}" for line in changed), *map(str, self.strikes)]

    @classmethod
    def parse(cls, seed: int, lines: Iterable[str]) -> Scenario:
        """Raises ValueError for what is neither a setting nor a strike."""
        settings = Settings.draw(seed)
        strikes: list[str] = []
        for line in lines:
            if line.startswith("set "):
                settings = with_setting(settings, *_name_and_value(line))
            else:
                strikes.append(line)
        return cls(settings, read_strikes(strikes))


def _name_and_value(line: str) -> tuple[str, int]:
    name, _, value = line.removeprefix("set ").strip().partition("=")
    return name, int(value)


def with_setting(settings: Settings, name: str, value: int) -> Settings:
    """The settings with one of them changed; `network.loss_ppm` names one of a part. Raises ValueError for an unknown one."""
    part, _, inner = name.rpartition(".")
    holder: Any = getattr(settings, part, None) if part else settings
    if inner not in getattr(type(holder), "__slots__", ()):
        raise ValueError(f"no setting is called {name}")
    changed = replace(holder, **{inner: value})
    return replace(settings, **{part: changed}) if part else changed
