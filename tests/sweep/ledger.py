"""What a sweep has finished: one line of JSON for each stretch of seeds, in order, on the disk before the next one begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kits import jsonlines

from raftlake.sim.report import Totals

STRETCH = 200


@dataclass(frozen=True, slots=True)
class Stretch:
    first: int
    last: int
    #: By the clock on the wall, with all jobs.
    seconds: float
    totals: Totals
    #: Whether compiled code ran it.
    compiled: bool = False


class Ledger:
    """The file of one range of seeds of one commit. A line that a kill has torn is run again."""

    def __init__(self, path: Path, seeds: range) -> None:
        self._path = path
        self._seeds = seeds
        self.stretches = self._read()

    def _read(self) -> list[Stretch]:
        found: list[Stretch] = []
        for told in jsonlines.read(self._path):
            stretch = Stretch(**{**told, "totals": Totals(**told["totals"])})
            expected = found[-1].last + 1 if found else self._seeds[0]
            if stretch.first != expected or stretch.last > self._seeds[-1]:
                raise ValueError(f"{self._path}: seeds {stretch.first}..{stretch.last} do not follow {expected - 1}")
            found.append(stretch)
        return found

    def add(self, stretch: Stretch) -> None:
        jsonlines.append(self._path, asdict(stretch))
        self.stretches.append(stretch)

    @property
    def remaining(self) -> range:
        """The seeds that are not finished yet."""
        first = self.stretches[-1].last + 1 if self.stretches else self._seeds[0]
        return range(first, self._seeds[-1] + 1)

    @property
    def seconds(self) -> float:
        return sum(stretch.seconds for stretch in self.stretches)

    @property
    def compiled(self) -> int:
        """How many seeds compiled code ran."""
        return sum(stretch.totals.done for stretch in self.stretches if stretch.compiled)

    @property
    def totals(self) -> Totals:
        totals = Totals()
        for stretch in self.stretches:
            totals.merge(stretch.totals)
        return totals
