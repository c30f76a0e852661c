"""The two ways of `records`, for tests that hold one against the other: plain Python, and numba's compiled loops.

Without numba the loader goes the plain way and says nothing. A test would then compare that way with itself, so the missing
package is an error here.
"""

from __future__ import annotations

import pytest

from raftlake.arrow.records import KernelLoader

PLAIN = KernelLoader(plain_rows_max=1 << 60)
COMPILED = KernelLoader(plain_rows_max=-1)
assert COMPILED.kernels_for(0) is not None, "numba is missing: run make setup"

both_ways = pytest.mark.parametrize("loader", [PLAIN, COMPILED], ids=["plain", "compiled"])
