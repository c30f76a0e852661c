"""Stateful micro-batches, and the restore of a large state: in the quorum, and as Spark's RocksDB provider does it on a disk.

A batch counts 10,000 keys, each of which is in each batch. The peers keep their checkpoints on the local disk, and on a disk
where each call takes 20 ms more, as at a store behind a network. The restore is that of one partition with a million keys: its
snapshot and the changes behind it are loaded by a process that has nothing of it. The failover is the same in a query that
runs on: one of two executors is taken away, and the other one loads its partition, with a standby and without. Each run is a
driver of its own (`state_driver`, `standbyjob`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench_checkpoints import build_slow
from measure import Result, Rounds
from our_nodes import our_quorum
from raftlake import LocalQuorum
from spark_drivers import run_driver

DRIVER = Path(__file__).with_name("state_driver.py")
FAILOVER = Path(__file__).resolve().parents[1] / "kits/standbyjob.py"
ROUNDS = 3
#: From batch 100 on Spark removes what is older (`minBatchesToRetain`): what a query that runs for long pays, too.
BATCHES, KEYS = 130, 10_000
LARGE = 1_000_000
#: Versions behind the snapshot, and the new keys of each. Spark makes the next snapshot behind ten.
BEHIND, NEW = 5, 10_000
STANDBY_BYTES = 1 << 30
#: What the standby is there for.
FAILOVER_MS = 1000
METHOD = f"a batch of {KEYS:,} rows that counts by {KEYS:,} keys, local[2], 2 partitions, median of 20 batches after 110"


def write_files(place: Path, sizes: Sequence[int], first: int = 0, key: int = 0, is_new: bool = False) -> None:
    """A file of so many keys for each batch, in the order of their times; from `key` on, and each file its own if `is_new`."""
    place.mkdir(exist_ok=True)
    for number, size in enumerate(sizes, start=first):
        file = place / f"{number:03d}.parquet"
        pq.write_table(pa.table({"key": np.arange(key, key + size, dtype=np.int64)}), file)
        key += size if is_new else 0
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


class Drivers:
    """Runs drivers against one quorum."""

    def __init__(self, servers: tuple[str, str], slow: Path) -> None:
        self._after = (*servers, str(slow))

    def run(self, kind: str, what: str, location: str, source: Path) -> dict[str, float]:
        return run_driver(DRIVER, kind, what, location, str(source), *self._after)


def measure(directory: Path) -> Iterator[Result]:
    slow = build_slow(directory)
    with our_quorum(directory / "raftlake") as quorum:
        drivers = Drivers((quorum.bootstrap_servers, quorum.http_servers), slow)
        yield from batches(drivers, directory)
        yield restore(drivers, directory)
        yield failover(quorum, directory)


def batches(drivers: Drivers, directory: Path) -> Iterator[Result]:
    near, far = Rounds(), Rounds()
    source = directory / "small"
    write_files(source, [KEYS] * BATCHES)
    for number in range(ROUNDS):
        ours = drivers.run("quorum", "batches", f"raftlake://bench/small-{number}", source)["median_ms"]
        for rounds, kind, scheme in ((near, "default", ""), (far, "slow", "slow:")):
            rounds.ours.append(ours)
            peer = drivers.run(kind, "batches", f"{scheme}{directory / f'{kind}-{number}'}", source)
            rounds.peers.append(peer["median_ms"])
    name = "stateful micro-batch of 10,000 keys"
    yield near.result(name=name, unit="ms", method=METHOD, peer="RocksDB, changelog on local disk", ratio_at_most=1)
    yield far.result(name=name, unit="ms", method=METHOD, peer="RocksDB, changelog, 20 ms a call", ratio_at_most=1 / 4)


def restore(drivers: Drivers, directory: Path) -> Result:
    rounds = Rounds()
    runs: list[dict[str, float]] = []
    for number in range(ROUNDS):
        source = directory / f"large-{number}"
        write_files(source, [LARGE])
        kinds = (
            ("quorum", f"raftlake://bench/large-{number}", rounds.ours),
            ("default", str(directory / f"large-state-{number}"), rounds.peers),
        )
        for kind, location, _ in kinds:
            drivers.run(kind, "fill", location, source)
        write_files(source, [NEW] * BEHIND, first=1, key=LARGE, is_new=True)
        for kind, location, _ in kinds:
            drivers.run(kind, "grow", location, source)
        write_files(source, [10], first=1 + BEHIND)
        for kind, location, values in kinds:
            found = drivers.run(kind, "restore", location, source)
            if found["replayed"] != BEHIND or found["rows"] != LARGE + BEHIND * NEW:
                raise RuntimeError(f"this was no restore of {LARGE:,} keys and {BEHIND} versions behind them: {found}")
            values.append(found["load_ms"])
            runs.append({"ours": kind == "quorum", **found})
    method = (
        f"a partition of {LARGE:,} keys, and {BEHIND} versions of {NEW:,} new keys behind its snapshot, is loaded by a new"
        " process, as Spark's provider measures it"
    )
    details = {"runs": runs}
    return rounds.result(
        name="restore of state", unit="ms", method=method, peer="RocksDB, local disk", ratio_at_most=1, details=details
    )


def failover(quorum: LocalQuorum, directory: Path) -> Result:
    rounds = Rounds()
    runs: list[dict[str, float]] = []
    for number in range(ROUNDS):
        for standby, values in ((STANDBY_BYTES, rounds.ours), (0, rounds.peers)):
            facts = {
                "bootstrap": quorum.bootstrap_servers,
                "http": quorum.http_servers,
                "directory": str(directory / f"failover-{number}-{standby}"),
                "standby": standby,
                # Half of them for each of the two partitions.
                "keys": 2 * LARGE,
                "behind": BEHIND,
                "new": 2 * NEW,
                "lose": None,
                "settings": {},
            }
            found = run_driver(FAILOVER, json.dumps(facts))
            if found["replayed"] != BEHIND or bool(found["copied"]) != bool(standby):
                raise RuntimeError(f"this was no failover with {standby} bytes of standby: {found}")
            values.append(found["load_ms"])
            runs.append({"standby": standby, **found})
    method = (
        f"one of two executors is taken away; the other loads its partition of {LARGE:,} keys, and {BEHIND} versions of"
        f" {NEW:,} new keys behind its snapshot, as Spark's provider measures it"
    )
    return rounds.result(
        name="failover of state, standby",
        unit="ms",
        method=method,
        peer="without a standby",
        at_most=FAILOVER_MS,
        details={"runs": runs},
    )
