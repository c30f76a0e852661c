"""Whole clusters under drawn faults keep every promise. RAFTLAKE_SIM_SEEDS says how many (20 unless told, CI runs 200)."""

from __future__ import annotations

import os

import pytest

from raftlake.sim.runner import judge, reproduce

SEEDS = int(os.environ.get("RAFTLAKE_SIM_SEEDS", "20"))


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_seed(seed: int) -> None:
    verdict = judge(seed)
    assert verdict.outcome is not None, f"{verdict.details}\n{reproduce(seed)}"
    assert verdict.outcome.completed > 10, "a run without traffic proves nothing"
