"""`make bench` (python -m tests.bench [--only PART]...): run the measures, save table and plot, exit 1 when a budget is missed.

Each part yields results; a part that fails ends the run. Everything runs on this machine, under one directory: nodes, peers
and clients share its cores and its disk. Ctrl-C and SIGTERM stop every process that was started.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench_bulk
import bench_checkpoints
import bench_codec
import bench_failover
import bench_history
import bench_old_offsets
import bench_pair
import bench_partitions
import bench_realtime
import bench_restart
import bench_snapshot
import bench_spark
import bench_spark_java
import bench_spark_sink
import bench_state
import bench_tier
import bench_transactions
from etcd_nodes import etcd_version
from measure import Result, describe_machine
from our_nodes import our_quorum
from report import number, save, show

ROOT = Path(__file__).resolve().parents[2]
KAFKA_VERSION = "4.3.1"


def spark(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "raftlake") as quorum:
        yield from bench_spark.measure(quorum)


#: In the order in which they run.
PARTS: Mapping[str, Callable[[Path], Iterator[Result]]] = {
    "start": bench_failover.measure_start,
    "pair": bench_pair.measure,
    "gap": bench_failover.measure_gap,
    "bulk": bench_bulk.measure,
    "transactions": bench_transactions.measure,
    "restart": bench_restart.measure,
    "partitions": bench_partitions.measure,
    "snapshot": bench_snapshot.measure,
    "old-offsets": bench_old_offsets.measure,
    "tier": bench_tier.measure,
    "records": lambda _: bench_codec.measure(),
    "spark": spark,
    "spark-java": bench_spark_java.measure,
    "spark-sink": bench_spark_sink.measure,
    "realtime": bench_realtime.measure,
    "checkpoints": bench_checkpoints.measure,
    "state": bench_state.measure,
    "history": bench_history.measure,
}


def run_part(name: str, directory: Path) -> list[Result]:
    began = time.perf_counter()
    results = []
    directory.mkdir()
    print(f"{name} ...", file=sys.stderr, flush=True)
    for result in PARTS[name](directory):
        results.append(result)
        peer = (
            ""
            if result.peer is None
            else f", {result.peer.name} {number(result.peer.value, result.unit)}, x{result.peer.ratio:.2f}"
        )
        print(f"  {result.name}: {number(result.value, result.unit)}{peer} {result.verdict}", file=sys.stderr, flush=True)
    shutil.rmtree(directory)
    print(f"  ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
    return results


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="only this part; may be given several times")
    parser.add_argument("--out", type=Path, help="where table, plot and JSON go (benchmarks/; .cache/bench/ with --only)")
    parser.add_argument("--data", type=Path, default=ROOT / ".cache", help="on which file system the nodes write")
    arguments = parser.parse_args()
    out = arguments.out or (ROOT / ".cache" / "bench" if arguments.only else ROOT / "benchmarks")
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, interrupt)
    arguments.data.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    try:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.data) as directory:
            raftlake = importlib.metadata.version("raftlake")
            versions = {"raftlake": raftlake, "etcd": etcd_version(), "Kafka": KAFKA_VERSION}
            machine = describe_machine(Path(directory), versions)
            for name in arguments.only or PARTS:
                results += run_part(name, Path(directory) / name)
    except KeyboardInterrupt:
        print("interrupted; nothing was saved", file=sys.stderr)
        return 130
    show(results)
    save(results, machine, out)
    missed = [result.name for result in results if not result.is_met]
    print(f"saved in {out}")
    print(f"missed: {', '.join(missed)}" if missed else "every budget is met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
