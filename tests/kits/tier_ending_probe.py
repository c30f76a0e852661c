"""A probe that ends at files with a certain name, as pyarrow does at certain damage: `python -m tier_ending_probe SOCKET`."""

from __future__ import annotations

import os
from typing import Any

from raftlake.tier import probe
from raftlake.tier.store import Store

really_open = Store.open


def open_or_end(store: Store, path: str) -> Any:
    if "deadly" in path:
        os.abort()
    return really_open(store, path)


if __name__ == "__main__":
    Store.open = open_or_end  # type: ignore[method-assign]
    probe.main()
