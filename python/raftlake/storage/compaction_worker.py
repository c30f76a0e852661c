"""`python -m raftlake.storage.compaction_worker SOCKET`: does one pass of compaction, and ends.

SOCKET is one end of a pair. First comes the job. Then this process tells each group of segments that it has written, and last
how the pass ended. It ends as soon as the node does: the other end of the pair closes then. What it leaves behind are files
that the next pass, or the next start, deletes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
from typing import BinaryIO

from raftlake.background import stand_back
from raftlake.errors import StorageError
from raftlake.storage.compaction_calls import PassFailed, tell
from raftlake.storage.compaction_pass import CompactionJob, perform


def serve(source: BinaryIO, to: BinaryIO) -> None:
    """Do the pass that the first message asks for."""
    job: CompactionJob = pickle.load(source)
    _end_with(source)
    groups = perform(job)
    try:
        while True:
            tell(to, next(groups))
    except StopIteration as end:
        tell(to, end.value)
    except StorageError as error:
        tell(to, PassFailed.of(error))
    except MemoryError:
        tell(to, PassFailed(StorageError, f"no memory to compact {job.directory}"))


def _end_with(source: BinaryIO) -> None:
    """End this process when the other end closes: nothing more comes from there."""

    def watch() -> None:
        source.read(1)
        os._exit(0)

    threading.Thread(target=watch, name="raftlake-lifeline", daemon=True).start()


def main() -> None:
    # Ctrl-C in a terminal reaches the whole group of processes; the node decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stand_back()
    connection = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        serve(connection.makefile("rb"), connection.makefile("wb"))


if __name__ == "__main__":
    main()
