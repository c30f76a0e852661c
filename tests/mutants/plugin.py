"""`pytest -p tests.mutants.plugin` with RAFTLAKE_MUTANT=name: runs the tests with that bug planted."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from tests.mutants.catalogue import find
from tests.mutants.plant import plant

#: Compiled by numba, which keeps what it compiled on disk and knows it by the file: the sound loops would run instead of the
#: planted ones, or later runs would get the planted ones.
COMPILED = "raftlake.arrow.kernels"

_mutant = find(os.environ["RAFTLAKE_MUTANT"])
if any(edit.module == COMPILED for edit in _mutant.edits):
    _cache = tempfile.mkdtemp(prefix="raftlake-mutant-")
    os.environ["NUMBA_CACHE_DIR"] = _cache
    atexit.register(shutil.rmtree, _cache, ignore_errors=True)
plant(_mutant)
