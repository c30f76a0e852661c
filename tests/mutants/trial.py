"""Tries one bug: what looks for it runs in processes of its own, and each has a limit of time.

The limits come from the baseline, which runs the same without any bug on the same machine. A time-out is no finding unless the
mutant says that it hangs: a busy machine would otherwise kill every bug.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.plant import Mutant

ROOT = Path(__file__).resolve().parents[2]
#: What one group, one node or one quiet cluster must do.
SCENARIOS = (
    "kip/test_*.py",
    "unit/raft/test_raft_*.py",
    "unit/replica/test_replica_*.py",
    "unit/storage/test_storage_election*.py",
    "contract/test_storage_election_contract.py",
    "trace/test_*.py",
    "sim/test_sim_regressions.py",
    "sim/test_sim_stable_leadership.py",
)
BASELINE_SEEDS = 5
BASELINE_SECONDS_MAX = 1_800.0
#: A limit is a start of processes and a multiple of what the same takes without a bug.
START_SECONDS = 60.0
TIMES_THE_BASELINE = 4.0
#: pytest's own timeout of one test says this as it ends the run.
FAULTHANDLER = re.compile(r"^Timeout \(\d", flags=re.MULTILINE)
COLLECTION_FAILED = 2


class Fate(StrEnum):
    KILLED = "killed"
    SURVIVED = "SURVIVED"
    TIMED_OUT = "timed out"
    #: The bug keeps the tests from being loaded, or the harness is at fault.
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Death:
    """What became of one mutant; `seeds` were run in vain or to its death."""

    name: str
    fate: Fate
    by: str
    seeds: int
    seconds: float


class BaselineRed(Exception):
    """Something fails without any bug, so what fails with one proves nothing."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that ended; without a status it was killed at its limit."""

    status: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def is_timed_out(self) -> bool:
        return self.status is None or (self.status == 1 and FAULTHANDLER.search(self.stderr) is not None)


class Processes:
    """Runs commands, each in a process group of its own, so that what a command has started ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, command: list[str], environment: dict[str, str], seconds_max: float) -> Ended:
        began = time.monotonic()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            with self._lock:
                if self._is_stopped:
                    return Ended(None, "", "stopped", 0.0)
                started = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    process_group=0,
                )
                self._running.add(started)
            status: int | None = None
            try:
                status = started.wait(seconds_max)
            except subprocess.TimeoutExpired:
                self._kill(started)
            with self._lock:
                self._running.discard(started)
            stdout.seek(0)
            stderr.seek(0)
            told = stdout.read().decode(errors="replace"), stderr.read().decode(errors="replace")
            return Ended(status, *told, time.monotonic() - began)

    def stop(self) -> None:
        """End all that runs; start nothing more."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def places_of(mutant: Mutant) -> tuple[str, ...]:
    return mutant.places or SCENARIOS


def runs_of(mutant: Mutant) -> tuple[int | None, bool, bool, bool]:
    """The kind of simulated runs in which a mutant is looked for."""
    return mutant.theme, mutant.damaged_voters, mutant.trims, mutant.compacts


def limit(baseline_seconds: float) -> float:
    return START_SECONDS + TIMES_THE_BASELINE * baseline_seconds


def paths_of(places: Iterable[str]) -> list[str]:
    """The files that some patterns name; each pattern must name one."""
    found: list[str] = []
    for place in places:
        paths = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob(place))]
        if not paths:
            raise LookupError(f"no test file is named tests/{place}")
        found += paths
    return list(dict.fromkeys(found))


def first_failure(stdout: str) -> str | None:
    """The first failing test of a run of pytest: `FAILED tests/...::test_...`."""
    failed = [line for line in stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    return failed[0].partition(" - ")[0] if failed else None


def last_begun(stdout: str) -> str:
    """The test that had begun last as `pytest -v` was killed."""
    begun = re.findall(r"^(tests/\S+::.*?)(?: (?:PASSED|SKIPPED|XFAIL)\b.*)?$", stdout, flags=re.MULTILINE)
    return begun[-1].strip() if begun else "a test"


class Trial:
    """Baseline first, then one bug after the other, from as many threads as there are jobs."""

    def __init__(
        self,
        processes: Processes,
        seeds_max: int,
        *,
        finders: Mapping[str, str] | None = None,
        is_sample: bool = False,
    ) -> None:
        self._processes = processes
        self._seeds_max = seeds_max
        #: The test file that found a bug the last time, by its name: it is run before the others, and mostly spares them.
        self._finders = finders or {}
        #: What clusters should find is not looked for by tests: it has to die quickly.
        self._is_sample = is_sample
        #: Seconds for all tests of some places.
        self._tests_s: dict[tuple[str, ...], float] = {}
        #: Seconds for a seed of some kind of runs.
        self._seed_s: dict[tuple[int | None, bool, bool, bool], float] = {}
        #: One thread at a time measures what was not measured at first.
        self._measuring = threading.Lock()

    def run_tests(self, places: tuple[str, ...], seconds_max: float, mutant: Mutant | None) -> Ended:
        options = ["-x", "-v", "-m", "", "-p", "no:randomly", *(["-p", "tests.mutants.plugin"] if mutant else [])]
        environment = {"RAFTLAKE_MUTANT": mutant.name} if mutant else {}
        finder = f"tests/{self._finders.get(mutant.name)}" if mutant else None
        paths = sorted(paths_of(places), key=lambda path: path != finder)
        return self._processes.run([sys.executable, "-m", "pytest", *options, *paths], environment, seconds_max)

    def run_seeds(self, mutant: Mutant, seeds: int, seconds_max: float, *options: str) -> Ended:
        command = [sys.executable, "-m", "tests.mutants.hunt", mutant.name, str(seeds), *options]
        return self._processes.run(command, {}, seconds_max)

    def needed_places(self, mutants: Iterable[Mutant]) -> list[tuple[str, ...]]:
        """What certainly looks for a bug. The tests for one that clusters should find are measured when they do not."""
        return list(dict.fromkeys(places_of(mutant) for mutant in mutants if mutant.by_tests))

    def needed_runs(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        """One mutant for each kind of runs."""
        return list({runs_of(mutant): mutant for mutant in mutants if not mutant.by_tests}.values())

    def measure_tests(self, places: tuple[str, ...]) -> None:
        """Run these tests without any bug. Raises BaselineRed."""
        done = self.run_tests(places, BASELINE_SECONDS_MAX, None)
        if done.status != 0:
            what = f"timed out at {last_begun(done.stdout)}" if done.is_timed_out else first_failure(done.stdout)
            raise BaselineRed(f"without any bug: {what or done.stdout[-2000:] + done.stderr[-2000:]}")
        self._tests_s[places] = done.seconds

    def measure_seeds(self, mutant: Mutant) -> None:
        """Run the first seeds of a kind without any bug. Raises BaselineRed."""
        done = self.run_seeds(mutant, BASELINE_SEEDS, BASELINE_SECONDS_MAX, "--unharmed")
        if done.status != 0:
            raise BaselineRed(f"without any bug: simulated runs time out or raise: {done.stderr[-2000:]}")
        found = json.loads(done.stdout)
        if found["seed"] is not None:
            raise BaselineRed(f"without any bug: seed {found['seed']}: {found['violation']}")
        self._seed_s[runs_of(mutant)] = found["seconds"] / BASELINE_SEEDS

    def hunt(self, mutant: Mutant) -> Death:
        """Simulated clusters first, then tests."""
        began = time.monotonic()
        seeds = 0
        if not mutant.by_tests:
            done = self.run_seeds(mutant, self._seeds_max, limit(self._seed_s[runs_of(mutant)] * self._seeds_max))
            if done.is_timed_out:
                fate = Fate.KILLED if mutant.hangs else Fate.TIMED_OUT
                return Death(mutant.name, fate, "simulated runs that never end", 0, done.seconds)
            if done.status != 0:
                return Death(mutant.name, Fate.BROKEN, done.stderr[-2000:], 0, done.seconds)
            found = json.loads(done.stdout)
            if found["seed"] is not None:
                by = f"seed {found['seed']}: {found['violation']}"
                return Death(mutant.name, Fate.KILLED, by, found["tried"], done.seconds)
            seeds = self._seeds_max
        is_over = self._is_sample and not mutant.by_tests
        fate, by = (Fate.SURVIVED, "seeds") if is_over else self.ask_tests(mutant)
        return Death(mutant.name, fate, by, seeds, time.monotonic() - began)

    def ask_tests(self, mutant: Mutant) -> tuple[Fate, str]:
        """The first test that fails with this bug, or what came instead. Raises BaselineRed."""
        places = places_of(mutant)
        with self._measuring:
            if places not in self._tests_s:
                self.measure_tests(places)
        done = self.run_tests(places, limit(self._tests_s[places]), mutant)
        if done.is_timed_out:
            return Fate.KILLED if mutant.hangs else Fate.TIMED_OUT, f"{last_begun(done.stdout)}, which never ends"
        if done.status == 0:
            return Fate.SURVIVED, "nothing failed"
        failed = first_failure(done.stdout)
        if failed is None or done.status == COLLECTION_FAILED:
            return Fate.BROKEN, done.stdout[-2000:] + done.stderr[-2000:]
        return Fate.KILLED, failed
