"""What a small micro-batch waits for its checkpoint: walCommit and commitOffsets, in the quorum and on the local disk.

Each round runs one driver after the other (`checkpoint_driver`): a JVM keeps Hadoop's file systems, so that settings of one
would reach the next one. `configure` spares forks on a local disk, too. The peers are Spark's defaults, the fastest settings
that Spark has for a local disk, and Spark's defaults on a disk where each call takes 20 ms more, as at a store behind a network
(`SlowFileSystem.java`).
"""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from measure import Result, Rounds
from our_nodes import our_quorum
from spark_drivers import run_driver

DRIVER = Path(__file__).with_name("checkpoint_driver.py")
SLOW = Path(__file__).with_name("SlowFileSystem.java")
ROUNDS = 2
METHOD = "walCommit + commitOffsets of a batch of 10 rows without state, local[2], median of a driver's 60 batches after 600"


def build_slow(directory: Path) -> Path:
    """The jar with SlowFileSystem."""
    import pyspark

    classes, jars = directory / "classes", Path(pyspark.__file__).parent / "jars"
    command = ["javac", "-nowarn", "--release", "17", "-cp", f"{jars}/*", "-d", str(classes), str(SLOW)]
    subprocess.run(command, check=True)
    jar = directory / "slow.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.rglob("*.class"):
            archive.write(file, file.relative_to(classes))
    return jar


def durations(kind: str, location: str, servers: tuple[str, str], slow: Path) -> float:
    """The median of one driver's batches, in ms."""
    found = run_driver(DRIVER, kind, location, *servers, str(slow))
    return float(found["median_ms"])


def measure(directory: Path) -> Iterator[Result]:
    default, best, far, near = Rounds(), Rounds(), Rounds(), Rounds()
    slow = build_slow(directory)
    with our_quorum(directory / "raftlake") as quorum:
        servers = (quorum.bootstrap_servers, quorum.http_servers)
        for number in range(ROUNDS):
            ours = durations("quorum", f"raftlake://bench/round-{number}", servers, slow)
            for rounds, kind, scheme in ((default, "default", ""), (best, "fastest", ""), (far, "slow", "slow:")):
                rounds.ours.append(ours)
                rounds.peers.append(durations(kind, f"{scheme}{directory / f'{kind}-{number}'}", servers, slow))
            near.ours.append(durations("local", str(directory / f"local-{number}"), servers, slow))
            near.peers.append(default.peers[-1])
    name = "checkpoint of a micro-batch"
    yield default.result(name=name, unit="ms", method=METHOD, peer="Spark's defaults, local disk", ratio_at_most=1 / 8)
    yield far.result(name=name, unit="ms", method=METHOD, peer="Spark's defaults, 20 ms a call", ratio_at_most=1 / 8)
    yield best.result(name=name, unit="ms", method=METHOD, peer="Spark's fastest, local disk", ratio_at_most=1)
    local = f"{name}, local disk with configure"
    yield near.result(name=local, unit="ms", method=METHOD, peer="Spark's defaults, local disk", ratio_at_most=1 / 8)
