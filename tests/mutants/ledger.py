"""The bugs that were killed at one commit. A hunt of all takes more than an hour: one that was stopped goes on behind them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tests.kits import jsonlines
from tests.mutants.trial import Death, Fate


class Ledger:
    """The deaths in a file, or of this run alone. What was not killed is not kept: it is hunted again.

    `before` is the file of an earlier commit, at which some bugs survived. Their tests were mended since.
    """

    def __init__(self, path: Path | None, before: Path | None = None) -> None:
        self.path = path
        self.deaths = _read(before)
        self.before = len(self.deaths)
        self.deaths += _read(path)
        self.names = frozenset(death.name for death in self.deaths)

    def add(self, death: Death) -> None:
        self.deaths.append(death)
        if self.path is not None and death.fate == Fate.KILLED:
            jsonlines.append(self.path, asdict(death))


def _read(path: Path | None) -> list[Death]:
    told = jsonlines.read(path) if path is not None else []
    return [Death(**{**each, "fate": Fate(each["fate"])}) for each in told]
