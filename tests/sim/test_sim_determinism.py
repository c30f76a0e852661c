"""The same seed gives the same trace byte for byte, whatever the hash seed of the process."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.faults.faults import Settings

ROOT = Path(__file__).resolve().parents[2]
#: Between them: crashes, partitions, duplicates, pauses, five voters and an observer.
SEEDS = (3, 10, 19)


def trace_of(seed: int, hash_seed: str, place: Path) -> bytes:
    path = place / f"{seed}-{hash_seed}.trace"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "raftlake.sim", "--seed", str(seed), "--trace", str(path)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    return path.read_bytes()


@pytest.mark.sim
@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_has_one_trace(seed: int, tmp_path: Path) -> None:
    first, second = (trace_of(seed, hash_seed, tmp_path) for hash_seed in ("1", "4242"))
    assert first.count(b"\n") > 1_000
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest(), "the traces differ"


def test_two_seeds_have_two_traces_and_a_trace_changes_nothing() -> None:
    def run(seed: int, sink: io.StringIO | None) -> Outcome:
        return Cluster(replace(Settings.draw(seed), safety_ms=3_000), sink).run()

    sinks = [io.StringIO() for _ in range(3)]
    outcomes = [run(seed, sink) for seed, sink in zip((3, 3, 4), sinks, strict=True)]
    assert sinks[0].getvalue() == sinks[1].getvalue() != sinks[2].getvalue()
    assert run(3, None) == outcomes[0] == outcomes[1] != outcomes[2]
