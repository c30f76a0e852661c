"""`python -m raftlake.sim`: runs seeds, one or many, and says how to repeat what failed.

One seed prints every drawn setting first and the exact command that repeats it last; a broken promise comes with the last
events of each node. Many seeds run in parallel processes and print progress, what failed, then a summary (`report`). `--seeds
fresh` draws the first of 200 seeds and prints them. With `--shrink` a failing seed is cut down to the faults that it needs. The
exit status is 1 when a promise was broken, 130 after Ctrl-C. Of all modules here only this one and `report` know real time,
processes and the terminal, and only this one draws anything that is not drawn from a seed.
"""

from __future__ import annotations

import argparse
import gc
import logging
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.invariants import Violation
from raftlake.sim.report import Report
from raftlake.sim.scenario import Scenario
from raftlake.sim.shrink import Shrinker
from raftlake.sim.tail import TraceTail

PROGRESS_INTERVAL_S = 10.0
#: The exit status after Ctrl-C.
INTERRUPTED = 130
FRESH_SEEDS = 200
#: Fresh seeds begin above all that are run as a matter of routine, and are still short enough to be typed.
FRESH_FROM, FRESH_TO = 1_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one seed; picklable, because it comes from another process."""

    seed: int
    outcome: Outcome | None
    violation: str = ""
    details: str = ""
    #: The last events of each node.
    tail: list[str] = field(default_factory=list)
    processor_s: float = 0.0


def settle() -> None:
    """For a process that does nothing but run seeds: what is loaded stays for good, so looking for cycles leaves it out. What
    nodes log, of full disks say, belongs to no seed."""
    logging.getLogger("raftlake").addHandler(logging.NullHandler())
    gc.collect()
    gc.freeze()


@contextmanager
def _without_collector() -> Iterator[None]:
    """A run is short and its memory is bounded: looking for cycles meanwhile only costs time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def judge(seed: int) -> Verdict:
    """Run one seed without a trace; one that fails is run once more for its last events."""
    began = time.process_time()
    scenario = Scenario.of_seed(seed)
    try:
        with _without_collector():
            outcome = Cluster(scenario.settings, strikes=scenario.strikes).run()
    except Violation as violation:
        tail = TraceTail()
        broken_promise(scenario, tail)
        return Verdict(seed, None, str(violation), traceback.format_exc(), tail.lines(), time.process_time() - began)
    return Verdict(seed, outcome, processor_s=time.process_time() - began)


def broken_promise(scenario: Scenario, tail: TraceTail | None = None) -> str | None:
    """The promise that a scenario breaks; None when it keeps all."""
    try:
        with _without_collector():
            Cluster(scenario.settings, tail, scenario.strikes).run()
    except Violation as violation:
        return violation.promise
    return None


def say(line: str) -> None:
    """One line to the terminal, at once: a long run is watched."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def interpreter() -> str:
    """This Python as one would type it here: the one on the PATH often has no raftlake."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def reproduce(seed: int, strikes: Path | None = None) -> str:
    name = f"sim-{seed}" if strikes is None else strikes.stem
    of_file = "" if strikes is None else f" --strikes {strikes}"
    return f"{interpreter()} -m raftlake.sim --seed {seed}{of_file} --trace {name}.trace"


def run_one(scenario: Scenario, trace_path: Path | None, strikes_path: Path | None) -> int:
    """Settings, verdict, command; with a whole trace when asked for."""
    for line in scenario.settings.lines():
        say(line)
    command = reproduce(scenario.settings.seed, strikes_path)
    tail = TraceTail()
    with ExitStack() as stack:
        sink = tail if trace_path is None else stack.enter_context(trace_path.open("w"))
        cluster = Cluster(scenario.settings, sink, scenario.strikes)
        try:
            outcome = cluster.run()
        except Violation as violation:
            for line in tail.lines():
                say(line)
            say(traceback.format_exc())
            say(f"FAILED at {cluster.scheduler.now_us} us: {violation}")
            say(f"reproduce: {command}")
            return 1
    say(f"simulated {outcome.simulated_ms} ms, {outcome.events} events, {outcome.completed} client requests")
    for kind, count in outcome.faults.items():
        say(f"fault {kind}: {count}")
    for what, count in outcome.covered.items():
        say(f"covered {what}: {count}")
    say("ok")
    say(f"reproduce: {command}")
    return 0


def shrink_one(scenario: Scenario, path: Path, runs_max: int) -> int:
    """Write the smallest scenario that fails in the same way to `path`."""
    promise = broken_promise(scenario)
    if promise is None:
        say("nothing to shrink: the run keeps every promise")
        return 0
    say(f"broken: {promise}; {len(scenario.strikes)} strikes")
    smaller = Shrinker(broken_promise, promise, runs_max).shrink(scenario)
    lines = smaller.lines()
    path.write_text("\n".join(lines) + "\n")
    for line in lines:
        say(line)
    say(f"{len(smaller.strikes)} strikes are left, in {path}")
    say(f"reproduce: {reproduce(scenario.settings.seed, path)}")
    return 1


def begin_worker() -> None:
    """Ctrl-C reaches all processes of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settle()


def verdicts(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """The verdicts of `seeds`, in their order."""
    if jobs == 1:
        settle()
        yield from map(judge, seeds)
        return
    with get_context("spawn").Pool(jobs, begin_worker) as pool:
        yield from pool.imap(judge, seeds)


def run_many(seeds: range, jobs: int) -> int:
    """The range, progress, a few lines per failure, and a summary."""
    say(f"seeds {seeds[0]}..{seeds[-1]}")
    report = Report(len(seeds), jobs, time.monotonic())
    totals = report.totals
    said_at = time.monotonic()
    try:
        for verdict in verdicts(seeds, jobs):
            totals.add(verdict.seed, verdict.outcome, verdict.processor_s)
            if verdict.outcome is None:
                for line in verdict.tail:
                    say(f"  {line}")
                say(f"seed {verdict.seed} FAILED: {verdict.violation}")
                say(f"  reproduce: {reproduce(verdict.seed)}")
            if time.monotonic() - said_at >= PROGRESS_INTERVAL_S:
                said_at = time.monotonic()
                say(report.progress(said_at))
    except KeyboardInterrupt:
        say(report.progress(time.monotonic()))
        raise
    for line in report.summary(time.monotonic()):
        say(line)
    if totals.is_mostly_idle:
        say(f"FAILED: {len(totals.idle)} of {totals.done} runs had next to no traffic, which proves nothing")
    for seed in totals.failed:
        say(f"reproduce: {reproduce(seed)}")
    return 1 if totals.failed or totals.is_mostly_idle else 0


def parse_seeds(text: str) -> range:
    """`A..B` (inclusive), a count from 1, or `fresh`: some from a drawn one."""
    if text == "fresh":
        first = FRESH_FROM + secrets.randbelow(FRESH_TO - FRESH_FROM)
        return range(first, first + FRESH_SEEDS)
    begin, separator, last = text.partition("..")
    try:
        seeds = range(int(begin), int(last) + 1) if separator else range(1, int(begin) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a count nor A..B nor `fresh`") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} names no seed")
    return seeds


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(arguments)
    except KeyboardInterrupt:
        say("stopped")
        return INTERRUPTED


def run(arguments: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m raftlake.sim", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="run one seed and print everything about it")
    chosen.add_argument("--seeds", type=parse_seeds, metavar="A..B|COUNT|fresh", help="run many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds at the same time (default 1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="with --seed: write one line per event")
    parser.add_argument(
        "--strikes", type=Path, metavar="FILE", help="with --seed: the strikes of this file, not those it draws"
    )
    parser.add_argument("--shrink", action="store_true", help="with --seed: cut a failing run down to what it needs")
    parser.add_argument("--shrink-runs", type=int, default=300, metavar="N", help="runs that shrinking may take (default 300)")
    options = parser.parse_args(arguments)
    if options.seed is None:
        if options.trace is not None or options.strikes is not None or options.shrink or options.jobs < 1:
            parser.error("--trace, --strikes and --shrink need --seed, and --jobs at least 1")
        return run_many(options.seeds, options.jobs)
    scenario = Scenario.of_seed(options.seed)
    if options.strikes is not None:
        try:
            scenario = Scenario.parse(options.seed, options.strikes.read_text().splitlines())
        except (OSError, ValueError) as error:
            parser.error(f"{options.strikes}: {error}")
    if options.shrink:
        return shrink_one(scenario, Path(f"sim-{options.seed}.strikes"), options.shrink_runs)
    return run_one(scenario, options.trace, options.strikes)
