"""`python -m raftlake.tier.worker SOCKET PIPE`: makes the calls of one node to the tier, one after another.

SOCKET is one end of a pair: first come the settings, then calls, and each call gets one answer. The process ends as soon as the
node does, in the middle of a call too: the next leader finds out by a claim what became of it.

delta-rs may keep the interpreter's lock while it waits for a store. So no thread can watch for the end of the node. The system
does: PIPE raises SIGIO when its other end closes, and that signal ends a process which does not handle it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
from typing import assert_never

from raftlake.ports.tier import CopyRequest, LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.tier.calls import ClaimRequest, TierCall, TierSettings, receive, send

#: By how much the node's own work comes first where both want the processor.
_NICENESS = 10
MISSING_PACKAGE = "the tier needs the package {}: pip install 'raftlake[tier]'"


class Calls:
    """The answers to calls. delta-rs is imported at the first one, so that its absence is an answer too."""

    def __init__(self, settings: TierSettings) -> None:
        self._settings = settings
        self._tier: object | None = None

    def answer(self, call: TierCall) -> RemoteSegment | LineageEnd | TierError:
        """Make one call."""
        try:
            from raftlake.tier.delta_table import DeltaTier
        except ModuleNotFoundError as error:
            return TierError(TierFailure.UNUSABLE, MISSING_PACKAGE.format(error.name))
        if not isinstance(self._tier, DeltaTier):
            self._tier = DeltaTier(self._settings)
        match call:
            case CopyRequest():
                return self._tier.copy(call)
            case ClaimRequest():
                return self._tier.claim(call.lineage, call.leader_epoch)
            case _:
                assert_never(call)


def serve(connection: socket.socket) -> None:
    """Answer calls until the other end closes: EOFError or another OSError."""
    ours = Calls(receive(connection))
    while True:
        send(connection, ours.answer(receive(connection)))


def end_with(pipe: int) -> None:
    """Let the system end this process when the other end of a pipe closes, or now where that has happened. Elsewhere than on
    Linux the process ends after the call that it is in."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    with contextlib.suppress(BlockingIOError):
        os.read(pipe, 1)
        sys.exit(0)


def main() -> None:
    end_with(int(sys.argv[2]))
    # Ctrl-C in a terminal reaches the whole group of processes; the node decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    # delta-rs takes as many threads as there are processors unless it is told otherwise.
    os.environ.setdefault("TOKIO_WORKER_THREADS", "2")
    with contextlib.suppress(EOFError, OSError):
        serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
