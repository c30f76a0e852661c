"""`python -m raftlake.sim`; see `runner`."""

from __future__ import annotations

from raftlake.sim.runner import main

if __name__ == "__main__":
    raise SystemExit(main())
