"""`make mutants`: plants each bug of the catalogue and proves that something finds it.

The baseline first: the tests and the kinds of simulated runs that will look for the bugs, without any; they must be green, and
their duration sets the limits. Then each bug: simulated clusters, seed after seed up to a limit; if none of them broke a
promise, tests. Prints what killed a bug and how many seeds that took; exit status 1 when one was not killed, timed out, or the
baseline was red. `--table docs/mutants.md` writes the page about all of them; such a run can be stopped, and goes on behind the
bugs that were killed when it is started again on the same commit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.kits import runstamp
from tests.mutants.catalogue import MUTANTS, SAMPLE, find
from tests.mutants.ledger import Ledger
from tests.mutants.page import counts, finders, page
from tests.mutants.plant import Mutant, check
from tests.mutants.trial import ROOT, BaselineRed, Fate, Processes, Trial

SEEDS_MAX = 40
PAGE = ROOT / "docs" / "mutants.md"
#: The page is about committed code: what lies here decides what a run finds.
CODE = ("python", "connector", "tests", "pyproject.toml")
T = TypeVar("T")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def workers(processes: Processes, jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that each wait for a process. Whatever ends the block early ends the processes too."""
    pool = ThreadPoolExecutor(jobs)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        processes.stop()
        raise
    finally:
        pool.shutdown()


def finished(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
    """What the calls return, as they end."""
    futures: list[Future[T]] = [pool.submit(call) for call in calls]
    for future in as_completed(futures):
        yield future.result()


def measure(pool: ThreadPoolExecutor, trial: Trial, chosen: Sequence[Mutant]) -> None:
    """The baseline. Raises BaselineRed."""
    began = time.monotonic()
    tests, runs = trial.needed_places(chosen), trial.needed_runs(chosen)
    calls = [partial(trial.measure_tests, places) for places in tests]
    calls += [partial(trial.measure_seeds, mutant) for mutant in runs]
    for _ in finished(pool, calls):
        pass
    took = time.monotonic() - began
    say(f"without any bug: {len(tests)} sets of tests and {len(runs)} kinds of simulated runs are green, {took:.0f} s")


def hunt_all(pool: ThreadPoolExecutor, trial: Trial, chosen: Sequence[Mutant], ledger: Ledger) -> None:
    for death in finished(pool, [partial(trial.hunt, mutant) for mutant in chosen]):
        ledger.add(death)
        verdict = "killed by" if death.fate == Fate.KILLED else f"{death.fate}:"
        say(f"{death.name:42} {death.seconds:4.0f} s {death.seeds:3} seeds  {verdict} {death.by[:180]}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--sample", action="store_true", help="a few that are found quickly, for every run of the tests")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"seeds for each at most (default {SEEDS_MAX})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time (default: one a core)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the page about all bugs there")
    parser.add_argument("--after", metavar="COMMIT", help="with --table: what was killed at that commit is not hunted again")
    parser.add_argument("--ledgers", type=Path, default=ROOT / ".cache" / "mutants", help="the directory of what is finished")
    options = parser.parse_args(arguments)
    if options.names and options.sample:
        parser.error("--sample names its mutants itself")
    if options.table is not None and (options.names or options.sample):
        parser.error("--table writes a page about all bugs, from a run of all")
    if options.after is not None and options.table is None:
        parser.error("--after goes with --table: only such a hunt is written down")
    if options.after is not None and not (options.ledgers / f"{options.after}.jsonl").exists():
        parser.error(f"--after: no bug was killed at {options.after}, or not with --table: {options.ledgers} has no such file")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    stamp, ledger = None, Ledger(None)
    if options.table is not None:
        stamp = runstamp.take(*CODE)
        if stamp.changed:
            say(f"the page names a commit: commit these first: {', '.join(stamp.changed)}")
            return 1
        before = options.ledgers / f"{options.after}.jsonl" if options.after is not None else None
        ledger = Ledger(options.ledgers / f"{stamp.commit}.jsonl", before)
        if ledger.deaths:
            earlier = f", {ledger.before} of them at {options.after}" if before is not None else ""
            say(f"{len(ledger.deaths)} bugs were killed before{earlier}")
    names = options.names or (SAMPLE if options.sample else [mutant.name for mutant in MUTANTS])
    chosen = [find(name) for name in names if name not in ledger.names]
    for mutant in chosen:
        check(mutant)
    began = time.monotonic()
    processes = Processes()
    known = finders(PAGE.read_text()) if PAGE.exists() else {}
    trial = Trial(processes, options.seeds, finders=known, is_sample=options.sample)
    try:
        with workers(processes, options.jobs) as pool:
            measure(pool, trial, chosen)
            hunt_all(pool, trial, chosen, ledger)
    except BaselineRed as red:
        say(f"stopped, because a bug proves nothing where this fails: {red}")
        return 1
    minutes = (time.monotonic() - began) / 60
    deaths = ledger.deaths
    killed = [death for death in deaths if death.fate == Fate.KILLED]
    for death in deaths:
        if death.fate != Fate.KILLED:
            say(f"{death.fate}: {death.name}")
    say(f"{counts(killed)}, {len(deaths) - len(killed)} not found, {minutes:.1f} minutes")
    if len(killed) < len(deaths):
        return 1
    if stamp is not None:
        lines = page(deaths, seeds_max=options.seeds, stamp=stamp, before=(options.after, ledger.before))
        (ROOT / options.table).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
