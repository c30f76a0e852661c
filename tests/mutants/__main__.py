"""`make mutants`: plants each bug of the catalogue and proves that something finds it.

First simulated clusters, seed after seed up to a limit; then, if none of them broke a promise, the scenario tests. Prints for
each bug what killed it and how many seeds that took; exit status 1 when one survived.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, SAMPLE, find
from tests.mutants.plant import Mutant, check

ROOT = Path(__file__).resolve().parents[2]
SEEDS_MAX = 40
#: What one group, one node or one quiet cluster must do.
SCENARIOS = (
    "tests/kip/test_*.py",
    "tests/unit/test_raft_*.py",
    "tests/unit/test_replica_*.py",
    "tests/unit/test_storage_election*.py",
    "tests/contract/test_storage_election_contract.py",
    "tests/trace/test_*.py",
    "tests/sim/test_sim_regressions.py",
    "tests/sim/test_sim_stable_leadership.py",
)
HUNT_SECONDS_MAX = 300
TESTS_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Death:
    """What became of one mutant; `seeds` were run in vain or to its death."""

    name: str
    killed: bool
    by: str
    seeds: int
    seconds: float


def _run(command: list[str], environment: dict[str, str], seconds_max: float) -> subprocess.CompletedProcess[str] | None:
    """None when it did not end in time."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None


def hunt(mutant: Mutant, seeds_max: int) -> Death:
    """Simulated clusters first, then tests."""
    began = time.monotonic()
    seeds = 0
    if not mutant.by_tests:
        command = [sys.executable, "-m", "tests.mutants.hunt", mutant.name, str(seeds_max)]
        done = _run(command, {}, HUNT_SECONDS_MAX)
        if done is not None and done.returncode != 0:
            raise RuntimeError(f"{mutant.name}: {done.stderr}")
        # A hunt that takes too long on a busy machine has found nothing.
        found = {"seed": None} if done is None else json.loads(done.stdout)
        if found["seed"] is not None:
            seconds = time.monotonic() - began
            return Death(mutant.name, True, f"seed {found['seed']}: {found['violation']}", found["tried"], seconds)
        seeds = seeds_max
    test = failing_test(mutant)
    return Death(mutant.name, test is not None, test or "nothing", seeds, time.monotonic() - began)


def failing_test(mutant: Mutant) -> str | None:
    """The first scenario test that fails with this bug."""
    patterns = [f"tests/{place}" for place in mutant.places] or SCENARIOS
    places = [str(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    options = ["-x", "-q", "-m", "", "-p", "no:randomly", "-p", "tests.mutants.plugin"]
    done = _run([sys.executable, "-m", "pytest", *options, *places], {"RAFTLAKE_MUTANT": mutant.name}, TESTS_SECONDS_MAX)
    if done is None:
        return "a scenario test that never comes to its end"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    if failed:
        return failed[0].partition(" - ")[0]
    if done.returncode == 1:
        return "a scenario test that pytest's own timeout ended"
    if done.returncode != 0:
        raise RuntimeError(f"{mutant.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return None


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def table(deaths: Sequence[Death]) -> list[str]:
    """The outcome in Markdown, by name: what a violation broke, or the test that failed."""
    lines = ["| bug | found by | seeds |", "|---|---|---|"]
    for death in sorted(deaths, key=lambda death: death.name):
        if death.by.startswith("seed"):
            seed, promise = death.by.split(": ")[:2]
            lines.append(f"| `{death.name}` | simulator, {seed}: {promise} | {death.seeds} |")
        else:
            what = death.by.removeprefix("FAILED ").removeprefix("ERROR ").removeprefix("tests/")
            lines.append(f"| `{death.name}` | {'`' + what + '`' if '::' in what else what} | {death.seeds or ''} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--sample", action="store_true", help="a few that die quickly, for every run of the tests")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"seeds for each at most (default {SEEDS_MAX})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: one a core)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the outcome there as a Markdown table")
    options = parser.parse_args()
    names = options.names or (SAMPLE if options.sample else [mutant.name for mutant in MUTANTS])
    chosen = [find(name) for name in names]
    for mutant in chosen:
        check(mutant)
    began = time.monotonic()
    deaths: list[Death] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for death in pool.map(lambda mutant: hunt(mutant, options.seeds), chosen):
            deaths.append(death)
            verdict = "killed by" if death.killed else "SURVIVED: killed by"
            say(f"{death.name:42} {death.seconds:4.0f} s {death.seeds:3} seeds  {verdict} {death.by[:180]}")
    survivors = [death.name for death in deaths if not death.killed]
    by_seed = [death for death in deaths if death.killed and death.by.startswith("seed")]
    say(
        f"{len(deaths)} mutants in {time.monotonic() - began:.0f} s: {len(by_seed)} killed by the simulator "
        f"({sum(death.seeds for death in by_seed) / max(len(by_seed), 1):.1f} seeds each), "
        f"{len(deaths) - len(by_seed) - len(survivors)} by scenario tests, {len(survivors)} survived"
    )
    if options.table is not None:
        options.table.write_text("\n".join(table(deaths)) + "\n")
    for name in survivors:
        say(f"survived: {name}")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
