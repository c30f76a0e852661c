"""`make bench` (python -m tests.bench [--only NAME]...): run the measures, print the table, exit 1 when a budget is missed.

Each part yields results; a part that fails ends the run. Everything runs on this machine: nodes and clients share its cores.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench_appends
import bench_codec
import bench_failover
import bench_spark
from measure import Result, save, show
from raftlake import LocalQuorum

LATEST = Path(__file__).resolve().parents[2] / "benchmarks" / "latest.json"


def on_a_quorum(part: Callable[[LocalQuorum], Iterator[Result]]) -> Callable[[], Iterator[Result]]:
    """A part that gets a fresh quorum of three."""

    def run() -> Iterator[Result]:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            yield from part(stack.enter_context(LocalQuorum(nodes=3, data_dir=Path(directory))))

    return run


PARTS: Mapping[str, Callable[[], Iterator[Result]]] = {
    "records": bench_codec.measure,
    "start": bench_failover.measure_start,
    "appends": on_a_quorum(bench_appends.measure),
    "gap": bench_failover.measure_gap,
    "spark": on_a_quorum(bench_spark.measure),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="only this part; may be given several times")
    parser.add_argument("--json", type=Path, default=LATEST, help="where the results go (default: benchmarks/latest.json)")
    arguments = parser.parse_args()
    results: list[Result] = []
    for name in arguments.only or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results += PARTS[name]()
    show(results)
    save(results, arguments.json)
    missed = [result.name for result in results if not result.is_met]
    print(f"missed: {', '.join(missed)}" if missed else "every budget is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
