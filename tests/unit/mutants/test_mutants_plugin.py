"""A bug planted in compiled loops leaves nothing in numba's cache, and the cache does not hide it."""

from __future__ import annotations

import os
import runpy
import sys

import pytest
from tests.mutants.catalogue import MUTANTS


@pytest.mark.parametrize("module", ["raftlake.arrow.kernels", "raftlake.wire.framing"])
def test_only_compiled_loops_get_a_cache_of_their_own(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(each for each in MUTANTS if each.edits[0].module == module)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "shared")
    monkeypatch.setenv("RAFTLAKE_MUTANT", mutant.name)
    runpy.run_module("tests.mutants.plugin")
    assert (os.environ["NUMBA_CACHE_DIR"] == "shared") == (module != "raftlake.arrow.kernels")
