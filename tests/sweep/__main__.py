"""`make sweep SEEDS=A..B`: many simulated clusters, and the page about them.

Each stretch of 200 seeds that is finished is written down in .cache/sweep. A sweep that was stopped, by Ctrl-C or by a kill,
goes on behind the last stretch when it is started again with the same seeds on the same commit. It ends with the first stretch
in which a seed failed: what mends that seed changes the code, and the count begins anew. `--keep-going` looks for more of them.
The page is written when all seeds were run and none failed; exit status 1 when one failed. Where thousands are to be run, the
package is compiled first (`compiled`).
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.kits import runstamp
from tests.sweep.compiled import Compiled, NotCompiledError
from tests.sweep.ledger import STRETCH, Ledger, Stretch
from tests.sweep.page import page

from raftlake.sim.report import Totals
from raftlake.sim.runner import Verdict, parse_seeds, reproduce, say, settle, verdicts

ROOT = Path(__file__).resolve().parents[2]
#: What decides how a seed runs.
CODE = ("python", "pyproject.toml")
#: A run takes seconds.
SILENCE_S = 180.0


def finish(ledger: Ledger, jobs: int, compiled: Compiled | None, *, keep_going: bool) -> None:
    """Run what is not finished yet, stretch after stretch, up to one in which a seed failed."""
    remaining = ledger.remaining
    if not remaining or (ledger.totals.failed and not keep_going):
        return
    began = time.monotonic()
    first, totals = remaining[0], Totals()
    found = verdicts(remaining, jobs) if compiled is None else compiled.verdicts(remaining, jobs)
    for verdict in watched(found, first):
        totals.add(verdict.seed, verdict.outcome, verdict.processor_s)
        if verdict.outcome is None:
            say(f"seed {verdict.seed} FAILED: {verdict.violation}\n  reproduce: {reproduce(verdict.seed)}")
        if totals.done == STRETCH or verdict.seed == remaining[-1]:
            now = time.monotonic()
            ledger.add(Stretch(first, verdict.seed, now - began, totals, compiled is not None))
            say(f"seeds {first}..{verdict.seed}: {totals.done / (now - began):.2f} a second, {len(totals.failed)} failed")
            if totals.failed and not keep_going:
                return
            first, totals, began = verdict.seed + 1, Totals(), now


def watched(found: Iterable[Verdict], first: int) -> Iterator[Verdict]:
    """The same verdicts. A seed without one for minutes is named: else a run that never ends looks like a slow machine."""
    awaited, since = first, time.monotonic()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SILENCE_S):
            silence_s = time.monotonic() - since
            if silence_s >= SILENCE_S:
                say(f"seed {awaited} has no verdict yet, after {silence_s / 60:.0f} minutes: does its run end?")

    threading.Thread(target=watch, daemon=True).start()
    try:
        for verdict in found:
            awaited, since = verdict.seed + 1, time.monotonic()
            yield verdict
    finally:
        over.set()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description=__doc__)
    parser.add_argument("--seeds", type=parse_seeds, required=True, metavar="A..B|COUNT")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds at the same time (default 1)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write what it came to there")
    parser.add_argument("--ledgers", type=Path, default=ROOT / ".cache" / "sweep", help="the directory of what is finished")
    parser.add_argument("--builds", type=Path, default=ROOT / ".cache" / "compiled", help="the directory of compiled packages")
    parser.add_argument("--interpreted", action="store_true", help="run no compiled code")
    parser.add_argument("--keep-going", action="store_true", help="go on where a seed has failed")
    options = parser.parse_args(arguments)
    seeds: range = options.seeds
    stamp = runstamp.take(*CODE)
    if stamp.changed:
        say(f"a sweep is of a commit: commit these first: {', '.join(stamp.changed)}")
        return 1
    path = options.ledgers / f"{stamp.commit}-{seeds[0]}..{seeds[-1]}.jsonl"
    ledger = Ledger(path, seeds)
    say(f"seeds {seeds[0]}..{seeds[-1]} of {stamp}; {len(seeds) - len(ledger.remaining)} are finished, {path}")
    # What failed with compiled code runs again in this process.
    settle()
    # `kill` is as Ctrl-C: the processes that run seeds outlive one that just dies.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        compiled = None
        if not options.interpreted:
            compiled = Compiled.of(stamp.commit, options.jobs, len(ledger.remaining), options.builds)
        finish(ledger, options.jobs, compiled, keep_going=options.keep_going)
    except NotCompiledError as error:
        say(f"{error}; mend that, or sweep at half the speed with --interpreted")
        return 1
    except KeyboardInterrupt:
        say(f"stopped; {len(ledger.remaining)} seeds from {ledger.remaining[0]} on are left, the same command runs them")
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    totals = ledger.totals
    for seed in totals.failed:
        say(f"reproduce: {reproduce(seed)}")
    if totals.failed or totals.is_mostly_idle:
        say(f"FAILED: {len(totals.failed)} of {totals.done} seeds broke a promise, {len(totals.idle)} had next to no traffic")
        return 1
    say(f"{totals.done} seeds in {ledger.seconds / 60:.1f} minutes, none failed")
    if options.page is not None:
        lines = page(seeds, totals, seconds=ledger.seconds, jobs=options.jobs, stamp=stamp, compiled=ledger.compiled)
        options.page.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
