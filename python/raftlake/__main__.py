"""`python -m raftlake`: the raftlake command, for where its script is not on the path."""

from __future__ import annotations

from raftlake.cli.main import main

main()
