"""`python -m raftlake.tier.worker FD`: makes the calls of one node to the tier, one after another.

FD is one end of a pair of sockets: first come the settings, then calls, and each call gets one answer. The process ends as soon
as the other end closes, in the middle of a call too: whoever runs the node again finds out what became of it by a claim.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
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
    """Answer calls until the process ends."""
    calls: queue.SimpleQueue[TierCall] = queue.SimpleQueue()
    ours = Calls(receive(connection))
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()
    while True:
        send(connection, ours.answer(calls.get()))


def _read(connection: socket.socket, calls: queue.SimpleQueue[TierCall]) -> None:
    """Beside the calls: an end of the node must not wait for a store that never answers."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(receive(connection))
    os._exit(0)


def main() -> None:
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
