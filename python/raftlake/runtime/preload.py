"""Imports what a node may import while it runs, at its start.

An import opens files. Where a process has no descriptor left it fails, and so does what it is amid of: a turn, which cannot be
done by half. The messages of the Kafka protocol are a module for each version, and no client speaks most of them. So they are
imported in slices, beside the first election.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from functools import partial

from raftlake.storage.descriptors import spared
from raftlake.wire.api import cold_messages

#: Of the standard library, where it imports when it is called.
LATE = ("encodings.idna", "encodings.utf_8_sig")


def load_all() -> Generator[None, None, None]:
    """One import at each step."""
    for name in LATE:
        spared(partial(importlib.import_module, name))
        yield
    for load in cold_messages():
        spared(load)
        yield
