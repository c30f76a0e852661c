"""`python -m raftlake.sim`: runs seeds, one or many, and says how to repeat what failed.

One seed prints every drawn setting first and the exact command that repeats it last. Many seeds run in parallel processes and
print one line per failure, then a summary: seeds a second, simulated time, faults by kind. The exit status is 1 when a promise
was broken. Of all modules here only this one knows real time, processes and the terminal.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.faults import Settings
from raftlake.sim.invariants import Violation


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one seed; picklable, because it comes from another process."""

    seed: int
    outcome: Outcome | None
    violation: str = ""
    details: str = ""


def judge(seed: int) -> Verdict:
    """Run one seed without a trace."""
    try:
        return Verdict(seed, Cluster(Settings.draw(seed)).run())
    except Violation as violation:
        return Verdict(seed, None, str(violation), traceback.format_exc())


def say(line: str) -> None:
    """One line to the terminal, at once: a long run is watched."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def reproduce(seed: int) -> str:
    return f"python -m raftlake.sim --seed {seed} --trace sim-{seed}.trace"


def run_one(seed: int, trace_path: Path | None) -> int:
    """Settings, verdict, command; with a trace when asked for."""
    settings = Settings.draw(seed)
    for line in settings.lines():
        say(line)
    with ExitStack() as stack:
        sink = stack.enter_context(trace_path.open("w")) if trace_path is not None else None
        cluster = Cluster(settings, sink)
        try:
            outcome = cluster.run()
        except Violation as violation:
            say(traceback.format_exc())
            say(f"FAILED at {cluster.scheduler.now_us} us: {violation}")
            say(f"reproduce: {reproduce(seed)}")
            return 1
    say(f"simulated {outcome.simulated_ms} ms, {outcome.events} events, {outcome.completed} client requests")
    for kind, count in outcome.faults.items():
        say(f"fault {kind}: {count}")
    say("ok")
    say(f"reproduce: {reproduce(seed)}")
    return 0


def verdicts(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """The verdicts of `seeds` in their order."""
    if jobs == 1:
        yield from map(judge, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(judge, seeds, chunksize=4)


def run_many(seeds: range, jobs: int) -> int:
    """A line per failure and a summary."""
    began = time.monotonic()
    failed: list[int] = []
    simulated_ms = events = completed = done = 0
    faults: dict[str, int] = {}
    for verdict in verdicts(seeds, jobs):
        done += 1
        if verdict.outcome is None:
            failed.append(verdict.seed)
            say(f"seed {verdict.seed} FAILED: {verdict.violation}")
            say(f"  reproduce: {reproduce(verdict.seed)}")
            continue
        simulated_ms += verdict.outcome.simulated_ms
        events += verdict.outcome.events
        completed += verdict.outcome.completed
        for kind, count in verdict.outcome.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    seconds = time.monotonic() - began
    say(f"{done} seeds in {seconds:.1f} s: {done / seconds:.2f} seeds/s with {jobs} jobs; {len(failed)} failed")
    say(f"simulated {simulated_ms / 60_000:.1f} minutes, {events} events, {completed} client requests")
    for kind, count in sorted(faults.items()):
        say(f"fault {kind}: {count}")
    for seed in failed:
        say(f"reproduce: {reproduce(seed)}")
    return 1 if failed else 0


def parse_seeds(text: str) -> range:
    """`A..B` (inclusive) or a count from 1."""
    first, separator, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) + 1) if separator else range(1, int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a count nor A..B") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} names no seed")
    return seeds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m raftlake.sim", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="run one seed and print everything about it")
    chosen.add_argument("--seeds", type=parse_seeds, metavar="A..B|COUNT", help="run many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds at the same time (default 1)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="with --seed: write one line per event")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return run_one(options.seed, options.trace)
    if options.trace is not None or options.jobs < 1:
        parser.error("--trace needs --seed, and --jobs at least 1")
    return run_many(options.seeds, options.jobs)
