"""What many seeds come to: speed, faults by kind, states covered, failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlake.sim.cluster import Outcome

#: A run of fewer requests had next to no traffic.
TRAFFIC_MIN = 10


def _add(sums: dict[str, int], counts: dict[str, int]) -> None:
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


@dataclass(slots=True)
class Totals:
    """Sums over seeds; those of two ranges can be added."""

    done: int = 0
    failed: list[int] = field(default_factory=list)
    #: Seeds whose run had next to no traffic.
    idle: list[int] = field(default_factory=list)
    processor_s: float = 0.0
    simulated_ms: int = 0
    events: int = 0
    completed: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    #: Runs in which a state was reached, by its name.
    runs_covering: dict[str, int] = field(default_factory=dict)

    def add(self, seed: int, outcome: Outcome | None, processor_s: float) -> None:
        self.done += 1
        self.processor_s += processor_s
        if outcome is None:
            self.failed.append(seed)
            return
        if outcome.completed <= TRAFFIC_MIN:
            self.idle.append(seed)
        self.simulated_ms += outcome.simulated_ms
        self.events += outcome.events
        self.completed += outcome.completed
        _add(self.faults, outcome.faults)
        _add(self.covered, outcome.covered)
        _add(self.runs_covering, dict.fromkeys(outcome.covered, 1))

    def merge(self, other: Totals) -> None:
        self.done += other.done
        self.failed += other.failed
        self.idle += other.idle
        self.processor_s += other.processor_s
        self.simulated_ms += other.simulated_ms
        self.events += other.events
        self.completed += other.completed
        _add(self.faults, other.faults)
        _add(self.covered, other.covered)
        _add(self.runs_covering, other.runs_covering)

    @property
    def seeds_a_processor_second(self) -> float:
        return self.done / max(self.processor_s, 0.001)

    @property
    def us_an_event(self) -> float:
        return self.processor_s / max(self.events, 1) * 1e6

    @property
    def is_mostly_idle(self) -> bool:
        """Most runs had next to no traffic, so all of them together prove little."""
        return 2 * len(self.idle) > self.done


class Report:
    """One range of seeds as it is run; times are seconds of a clock that the caller reads."""

    def __init__(self, seeds: int, jobs: int, began_s: float) -> None:
        self._seeds = seeds
        self._jobs = jobs
        self._began_s = began_s
        self.totals = Totals()

    def progress(self, now_s: float) -> str:
        rate = self.totals.done / max(now_s - self._began_s, 0.001)
        return f"{self.totals.done} of {self._seeds} seeds, {rate:.2f} a second, {len(self.totals.failed)} failed"

    def summary(self, now_s: float) -> list[str]:
        """Speed first, then faults and states by name."""
        totals = self.totals
        seconds = max(now_s - self._began_s, 0.001)
        kept = max(totals.done - len(totals.failed), 1)
        wall = f"{totals.done / seconds:.2f} seeds/s with {self._jobs} jobs"
        share = f"{totals.simulated_ms / kept / 1_000:.0f} simulated seconds and {totals.completed / kept:.0f} requests"
        sums = (
            f"simulated {totals.simulated_ms / 60_000:.1f} minutes, {totals.events} events, {totals.completed} client requests"
        )
        lines = [
            f"{totals.done} seeds in {seconds:.1f} s: {wall}; {len(totals.failed)} failed",
            f"{totals.seeds_a_processor_second:.2f} seeds a second of processor time, {totals.us_an_event:.1f} us an event",
            f"{sums}; a seed has {share}",
        ]
        lines += [f"fault {kind}: {count}" for kind, count in sorted(totals.faults.items())]
        lines += [
            f"covered {what}: {count} times in {totals.runs_covering[what]} runs"
            for what, count in sorted(totals.covered.items())
        ]
        return lines
