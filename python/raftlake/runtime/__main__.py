"""`python -m raftlake.runtime --config FILE`: `raftlake serve` for programs that start nodes (`LocalQuorum`).

The same node without the command line's libraries: a quorum of three starts on few cores, and a second of imports for each
node is a second without a leader.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] != "--config":
        sys.stderr.write("usage: python -m raftlake.runtime --config FILE (people use: raftlake serve)\n")
        return 2
    # kio describes itself to hypothesis where that is installed, which takes longer to import than kio.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    # What is imported stays: walking it again and again while it grows finds nothing.
    gc.disable()
    from raftlake.errors import RaftlakeError, one_line
    from raftlake.runtime.early_reader import start_early_reader
    from raftlake.runtime.settings.settings import load_settings

    try:
        settings = load_settings(Path(sys.argv[2]), environ=os.environ, overrides=[])
        reader = start_early_reader(settings)
        from raftlake.runtime import server

        gc.enable()
        return server.serve(settings, reader=reader)
    except RaftlakeError as error:
        sys.stderr.write(f"raftlake: {one_line(error)}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
