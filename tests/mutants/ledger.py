"""The bugs that were killed at one commit. A hunt of all takes more than an hour: one that was stopped goes on behind them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tests.kits import jsonlines
from tests.mutants.trial import Death, Fate


class Ledger:
    """The deaths in a file, or of this run alone. What was not killed is not kept: it is hunted again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        told = jsonlines.read(path) if path is not None else []
        self.deaths = [Death(**{**each, "fate": Fate(each["fate"])}) for each in told]
        self.names = frozenset(death.name for death in self.deaths)

    def add(self, death: Death) -> None:
        self.deaths.append(death)
        if self.path is not None and death.fate == Fate.KILLED:
            jsonlines.append(self.path, asdict(death))
