"""The package as machine code, for long sweeps: built, compared with the interpreter, and used.

`Compiled.of` makes a copy of the package below `.cache`, named after the commit, and has mypyc compile it. It counts only when
some seeds have written the same traces, byte for byte, with it and with the interpreter. What fails with it is run again by the
interpreter, and that verdict is recorded. Where it cannot be built or differs, the sweep refuses to begin: half the speed for
hours, told in one line, was overlooked twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from pathlib import Path

from tools.machine_code.package import SOURCE, NotCompiledError, build, core_file, has_compiler

from raftlake.sim.runner import Verdict, begin_worker, judge, say

#: Seeds whose traces are compared.
SAMPLE = range(1, 21)
#: Building takes as long as this many seeds save, and more.
WORTH_IT = 5_000
#: Says that the traces of the sample were the same.
PROVEN = "proven"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A directory with a compiled package in it, to be put first on the path."""

    place: Path

    @classmethod
    def of(cls, commit: str, jobs: int, seeds_left: int, builds: Path) -> Compiled | None:
        """The one of this commit, built now where so many seeds are worth it; None where seeds have to be interpreted.

        Raises:
            NotCompiledError: mypyc cannot compile the package, or what it made writes other traces.
        """
        compiled = cls(builds / commit)
        if (compiled.place / PROVEN).exists():
            return compiled
        if seeds_left < WORTH_IT:
            return None
        if not has_compiler():
            say("no C compiler (gcc), or no Python.h (python3-dev): the seeds are interpreted, which takes twice as long")
            return None
        say(f"compiling the package into {compiled.place}: some minutes, once for each commit")
        build(compiled.place, jobs)
        differing = compiled.differing(SAMPLE, jobs)
        if differing:
            raise NotCompiledError(f"compiled code and the interpreter wrote different traces of the seeds {differing}")
        say(f"compiled code and the interpreter wrote the same traces of {len(SAMPLE)} seeds")
        (compiled.place / PROVEN).touch()
        return compiled

    def differing(self, seeds: Iterable[int], jobs: int) -> list[int]:
        """The seeds whose traces with compiled code differ from those with the interpreter."""
        if not core_file(self.place).exists():
            raise FileNotFoundError(f"{core_file(self.place)}: nothing was compiled, so there is nothing to compare")
        tasks = [(seed, package) for seed in seeds for package in (self.place, SOURCE)]
        with ThreadPool(jobs) as pool:
            traces = pool.starmap(trace, tasks, chunksize=1)
        pairs = zip(tasks[::2], traces[::2], traces[1::2], strict=True)
        return [seed for (seed, _), ours, theirs in pairs if ours != theirs]

    def verdicts(self, seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
        """The verdicts of `seeds`, in their order; those of seeds that failed are the interpreter's."""
        remaining = list(seeds)
        try:
            for verdict in self._compiled_verdicts(tuple(remaining), jobs):
                remaining.pop(0)
                yield verdict if verdict.outcome is not None else interpreted_again(verdict)
        except BrokenProcessPool:
            say(f"compiled code ended its process at or behind seed {remaining[0]}: the rest is interpreted")
            yield from map(judge, remaining)

    def _compiled_verdicts(self, seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
        with ProcessPoolExecutor(jobs, get_context("spawn"), begin_worker) as pool:
            # New processes take over the path as it is here when they are started; this process stays interpreted.
            with first_on_path(self.place):
                verdicts = pool.map(judge_or_fail, seeds)
            yield from verdicts


def trace(seed: int, package: Path) -> bytes:
    """What a seed writes with the package in that directory, and how it ends."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "trace"
        command = [sys.executable, "-m", "raftlake.sim", "--seed", str(seed), "--trace", str(file)]
        environment = {**os.environ, "PYTHONPATH": str(package)}
        ended = subprocess.run(command, env=environment, cwd=name, capture_output=True)
        return f"exit status {ended.returncode}\n".encode() + (file.read_bytes() if file.exists() else b"no trace")


@contextmanager
def first_on_path(place: Path) -> Iterator[None]:
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))


def judge_or_fail(seed: int) -> Verdict:
    """For compiled code, in which a type that is not what was declared raises: a failure like any other."""
    try:
        return judge(seed)
    except Exception as error:  # noqa: BLE001 - told by the interpreter, which runs the seed again
        return Verdict(seed, None, f"{type(error).__name__}: {error}", traceback.format_exc())


def interpreted_again(failed: Verdict) -> Verdict:
    """The interpreter's verdict on a seed that compiled code failed."""
    verdict = judge(failed.seed)
    if verdict.outcome is not None:
        say(f"seed {failed.seed} failed with compiled code alone, which is no failure: {failed.violation}")
    return verdict
