"""What `make bench` measures, part by part. Each is run in a process of its own (`in_a_process`)."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType

import bench_bulk
import bench_checkpoints
import bench_codec
import bench_failover
import bench_history
import bench_old_offsets
import bench_pair
import bench_partitions
import bench_priority
import bench_realtime
import bench_restart
import bench_snapshot
import bench_spark
import bench_spark_java
import bench_spark_sink
import bench_state
import bench_tier
import bench_transactions
from measure import Result
from our_nodes import our_quorum
from report import number


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
    "priority": bench_priority.measure,
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


def in_a_process(name: str, directory: Path) -> list[Result]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=catch_signals) as pool:
        try:
            return pool.submit(run_part, name, directory).result()
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def catch_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, interrupt)


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
