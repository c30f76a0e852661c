"""The calls of the worker: both kinds, and what a missing package is answered with.

Its process is tested in process/test_tier_process.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contract.tier_contract import LINEAGE, segment
from raftlake.ports.tier import LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import ClaimRequest
from raftlake.tier.worker import Calls
from tierkit import local_settings


def test_calls_go_to_one_tier(tmp_path: Path) -> None:
    calls = Calls(local_settings(tmp_path))
    assert calls.answer(ClaimRequest(LINEAGE, Epoch(5))) == LineageEnd(None)
    made = calls.answer(segment(0, "a"))
    assert isinstance(made, RemoteSegment)
    assert calls.answer(ClaimRequest(LINEAGE, Epoch(5))) == LineageEnd(made)


@pytest.mark.parametrize("package", ["deltalake", "pyarrow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(("raftlake.tier.", "raftlake.arrow."))]:
        if name not in ("raftlake.tier.calls", "raftlake.tier.worker"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    answer = Calls(local_settings(tmp_path)).answer(ClaimRequest(LINEAGE, Epoch(5)))
    assert isinstance(answer, TierError) and answer.failure is TierFailure.UNUSABLE
    assert answer.reason == f"the tier needs the package {package}: pip install 'raftlake[tier]'"
