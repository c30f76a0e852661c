"""What many seeds come to: speed, faults by kind, states covered, failures."""

from __future__ import annotations

from raftlake.sim.cluster import Outcome


class Report:
    """Adds up outcomes; times are seconds of a clock that the caller reads."""

    def __init__(self, seeds: int, jobs: int, began_s: float) -> None:
        self._seeds = seeds
        self._jobs = jobs
        self._began_s = began_s
        self._done = 0
        self._processor_s = 0.0
        self._simulated_ms = self._events = self._completed = 0
        self._faults: dict[str, int] = {}
        self._covered: dict[str, int] = {}
        #: Runs in which a state was reached, by its name.
        self._runs_covering: dict[str, int] = {}
        self.failed: list[int] = []

    def add(self, seed: int, outcome: Outcome | None, processor_s: float) -> None:
        self._done += 1
        self._processor_s += processor_s
        if outcome is None:
            self.failed.append(seed)
            return
        self._simulated_ms += outcome.simulated_ms
        self._events += outcome.events
        self._completed += outcome.completed
        for kind, count in outcome.faults.items():
            self._faults[kind] = self._faults.get(kind, 0) + count
        for what, count in outcome.covered.items():
            self._covered[what] = self._covered.get(what, 0) + count
            self._runs_covering[what] = self._runs_covering.get(what, 0) + 1

    def progress(self, now_s: float) -> str:
        rate = self._done / max(now_s - self._began_s, 0.001)
        return f"{self._done} of {self._seeds} seeds, {rate:.2f} a second, {len(self.failed)} failed"

    def summary(self, now_s: float) -> list[str]:
        """Speed first, then faults and states by name."""
        seconds = max(now_s - self._began_s, 0.001)
        kept = max(self._done - len(self.failed), 1)
        wall = f"{self._done / seconds:.2f} seeds/s with {self._jobs} jobs"
        share = f"{self._simulated_ms / kept / 1_000:.0f} simulated seconds and {self._completed / kept:.0f} requests"
        sums = f"simulated {self._simulated_ms / 60_000:.1f} minutes, {self._events} events, {self._completed} client requests"
        rate = self._done / max(self._processor_s, 0.001)
        us_per_event = self._processor_s / max(self._events, 1) * 1e6
        lines = [
            f"{self._done} seeds in {seconds:.1f} s: {wall}; {len(self.failed)} failed",
            f"{rate:.2f} seeds a second of processor time, {us_per_event:.1f} us an event",
            f"{sums}; a seed has {share}",
        ]
        lines += [f"fault {kind}: {count}" for kind, count in sorted(self._faults.items())]
        lines += [
            f"covered {what}: {count} times in {self._runs_covering[what]} runs"
            for what, count in sorted(self._covered.items())
        ]
        return lines
