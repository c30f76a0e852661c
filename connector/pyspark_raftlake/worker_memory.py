"""What a Spark Python worker has loaded is no garbage: let the collector not look at it after every task.

Spark keeps its Python workers, and has each collect garbage (`gc.collect()`) when a task is done. That walks every object of
all modules: with pyspark, pandas, pyarrow and our client 130,000 of them and 40 ms of processor time, nine tenths of what a
task of few rows takes. Frozen objects are not walked; those that a task makes still are.
"""

from __future__ import annotations

import gc
import sys

_settled_modules = 0


def settle() -> None:
    """Freeze what is loaded, after a last look for garbage; once per process, and again when modules were loaded since."""
    global _settled_modules
    if len(sys.modules) != _settled_modules:
        gc.collect()
        gc.freeze()
        _settled_modules = len(sys.modules)
