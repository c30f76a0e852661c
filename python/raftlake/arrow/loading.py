"""When the compiled loops of `kernels.py` are worth loading.

Importing numba takes about a second, and the first use of a kernel on a machine several more (later ones come from numba's
cache). A process that moves a few rows must not wait for that, one that moves millions must not go without: the kernels
are loaded once `PLAIN_ROWS_MAX` rows have been asked for. Without numba all is plain Python.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

#: The module `kernels`; numba has no types to offer.
Kernels: TypeAlias = Any

#: Rows that one process handles in plain Python (about 2 µs each) before it loads the compiled loops.
PLAIN_ROWS_MAX = 100_000


class KernelLoader:
    """Counts rows until loading pays. One per process (`LOADER`); tests make their own."""

    __slots__ = ("_is_available", "_kernels", "_rows_left")

    def __init__(self, plain_rows_max: int = PLAIN_ROWS_MAX) -> None:
        self._rows_left = plain_rows_max
        self._kernels: Kernels | None = None
        self._is_available = find_spec("numba") is not None

    def kernels_for(self, rows: int) -> Kernels | None:
        """The kernels to use for `rows` more rows, or None: the plain way."""
        if self._kernels is None and self._is_available:
            self._rows_left -= rows
            if self._rows_left < 0:
                self._kernels = import_module("raftlake.arrow.kernels")
        return self._kernels


LOADER = KernelLoader()
