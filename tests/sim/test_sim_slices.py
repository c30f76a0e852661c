"""Whole clusters whose slices are so small that a simulated key space has many: between any two, anything may happen."""

from __future__ import annotations

import pytest

from raftlake.kv import keyspace, machine
from raftlake.replica.kv import restore as kv_restore
from raftlake.replica.kv import service as kv_service
from raftlake.replica.snapshots import snapshots
from raftlake.sim.runner import judge


@pytest.mark.sim
@pytest.mark.parametrize("seed", range(1, 9))
def test_every_promise_holds_with_the_smallest_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        (kv_service, "APPLY_SLICE_BYTES"): 150,
        (kv_service, "PROPOSED_BATCH_BYTES"): 300,
        (kv_restore, "SLICE_BYTES"): 100,
        (kv_restore, "RELEASED_LEAVES"): 1,
        (keyspace, "LEAF_KEYS_MAX"): 4,
        (keyspace, "_SMALL_LEAF_KEYS"): 1,
        (snapshots, "SLICE_ROWS"): 3,
        (machine, "SLICE_ROWS"): 3,
    }
    for (module, name), value in sizes.items():
        monkeypatch.setattr(module, name, value)
    verdict = judge(seed)
    assert verdict.outcome is not None, verdict.details
    assert verdict.outcome.completed > 10
