"""The calls of the worker: all kinds, and what a missing package is answered with.

Its process is tested in process/test_tier_process.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contract.tier_contract import GROUP, LINEAGE, bytes_of, segment
from raftlake.ports.tier import AdoptRequest, LineageEnd, ReadRequest, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.calls import (
    CheckRequest,
    ClaimRequest,
    DeleteRequest,
    DropRequest,
    FactsRequest,
    FindRequest,
    OldestRequest,
)
from raftlake.tier.worker import Calls
from tierkit import local_settings


def test_calls_go_to_one_tier(tmp_path: Path) -> None:
    calls = Calls(local_settings(tmp_path))
    assert calls.answer(ClaimRequest(LINEAGE, Epoch(5))) == LineageEnd(None)
    made = calls.answer(segment(0, "a"))
    assert isinstance(made, RemoteSegment)
    assert calls.answer(ClaimRequest(LINEAGE, Epoch(5))) == LineageEnd(made)
    assert calls.answer(CheckRequest(LINEAGE, made)) is None
    read = ReadRequest(lineage=LINEAGE, offset=Offset(0), end_offset=Offset(6), size_max=1 << 20)
    assert calls.answer(read) == bytes_of(segment(0, "a"))
    assert calls.answer(FindRequest(LINEAGE, Offset(5))) == RemoteState(made, b"producers")
    (file,) = calls.answer(OldestRequest(LINEAGE, 3))
    assert (file.base_offset, file.end_offset) == (0, 6)
    assert calls.answer(FactsRequest(GROUP)) == calls.answer(FactsRequest(LINEAGE))
    assert calls.answer(FactsRequest(LINEAGE)).newest == (made,)
    assert calls.answer(DeleteRequest(LINEAGE, Epoch(5), Offset(6))) == 6
    adopt = AdoptRequest(
        group=GROUP,
        leader_epoch=Epoch(6),
        recovery="r",
        epochs=((Epoch(5), Offset(0)),),
        log_start=Offset(6),
        end_offset=Offset(9),
    )
    adopted = calls.answer(adopt)
    assert (adopted.lineage.incarnation, adopted.start_offset, adopted.end_offset) == (1, 6, 6)
    assert calls.answer(DropRequest(GROUP, 3)) is None
    assert calls.answer(ClaimRequest(LINEAGE, Epoch(6))).failure is TierFailure.FENCED


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
