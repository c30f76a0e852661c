"""Whole clusters of cores under random faults: safety at every step, then peace and liveness (`raftkit.chaos`).

Checked after each step: one leader an epoch, committed records never differ. Checked for the client: acknowledged appends stay,
linearizable reads see everything acknowledged before they began. The real driver is under the same test in the simulator.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from raftkit.chaos import ChaosRun


@pytest.mark.parametrize("block", range(10))
def test_random_histories(block: int) -> None:
    answered = acknowledged = changes = 0
    for seed in range(block * 12, block * 12 + 12):
        run = ChaosRun(seed)
        run.run()
        answered += run.reads_answered
        acknowledged += len(run.acknowledged)
        changes += run.check_voters()
    assert answered > 20, "hardly a read was answered: the test proves nothing"
    assert acknowledged > 20, "hardly an append was acknowledged: the test proves nothing"
    assert changes > 5, "the voters hardly changed: the test proves nothing"


#: Seeds that once found a bug, with what it was.
FOUND = {
    241: "a lost election left a vote retry due for ever",
    9: "an observer that knew the static voters alone did not follow a leader that had been added",
    57: "the leader of two crashed with its own removal on its disk alone, and neither of the two stood for election",
    416: "a read was confirmed by the causal clock of a leader's former process (in the test network)",
}


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something(seed: int) -> None:
    ChaosRun(seed).run()


def test_one_seed_is_one_history() -> None:
    """Whatever the hash seed: nothing in the core iterates over sets or asks for randomness of its own."""
    program = (
        "from raftkit.chaos import ChaosRun\n"
        "from raftlake.raft.trace import describe\n"
        "run = ChaosRun(7)\n"
        "run.cluster.on_step = lambda node, event, actions: print("
        "run.cluster.now_ms, node.id, describe(event), *map(describe, actions))\n"
        "run.run()\n"
    )
    traces = []
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        traces.append(done.stdout)
    assert len(traces[0].splitlines()) > 500
    assert traces[0] == traces[1]
