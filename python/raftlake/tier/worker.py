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
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, assert_never

from raftlake.background import stand_back
from raftlake.ports.tier import AdoptRequest, CopyRequest, ReadRequest, SearchRequest, TierError, TierFailure
from raftlake.tier.calls import (
    AcceptRequest,
    CheckRequest,
    ClaimRequest,
    DeleteRequest,
    DropRequest,
    FactsRequest,
    FindRequest,
    OldestRequest,
    TierCall,
    TierSettings,
    receive,
    send,
)
from raftlake.tier.store_log import quiet

if TYPE_CHECKING:
    from raftlake.tier.delta_table import DeltaTier
    from raftlake.tier.table_reads import TableReads

MISSING_PACKAGE = "the tier needs the package {}: pip install 'raftlake[tier]'"


class WithoutPandas(MetaPathFinder):
    """No pandas can be imported. pyarrow asks of many an argument whether it is of pandas, and imports pandas for that question
    where it is installed: a quarter of a second in front of the first answer."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a worker of the tier needs no pandas", name=fullname)


class Calls:
    """The answers to calls. The absence of delta-rs is an answer too."""

    def __init__(self, settings: TierSettings) -> None:
        self._settings = settings
        self._tier: DeltaTier | None = None
        self._reads: TableReads | None = None

    def get_ready(self) -> TierError | None:
        """Import delta-rs, which takes as long as a small call. The error is that of every call."""
        try:
            from raftlake.tier.delta_table import DeltaTier
            from raftlake.tier.table_reads import TableReads
        except ModuleNotFoundError as error:
            return TierError(TierFailure.UNUSABLE, MISSING_PACKAGE.format(error.name))
        self._tier = self._tier or DeltaTier(self._settings)
        self._reads = self._reads or TableReads(self._settings)
        return None

    def answer(self, call: TierCall) -> Any:
        """Make one call. The answer is what `RemoteTier` gives to its `done`."""
        if (error := self.get_ready()) is not None:
            return error
        tier, reads = self._tier, self._reads
        assert tier is not None and reads is not None
        match call:
            case CopyRequest():
                return tier.copy(call)
            case ClaimRequest():
                return tier.claim(call.lineage, call.leader_epoch)
            case DeleteRequest():
                return tier.delete(call.lineage, call.leader_epoch, call.until)
            case DropRequest():
                return tier.drop(call.group, call.partitions)
            case AdoptRequest():
                return tier.adopt(call)
            case AcceptRequest():
                return tier.accept(call.group, call.begin, call.reach)
            case CheckRequest():
                return reads.check(call.lineage, call.segment)
            case ReadRequest():
                return reads.read(call)
            case SearchRequest():
                return reads.search(call)
            case FindRequest():
                return reads.find(call.lineage, call.offset)
            case OldestRequest():
                return reads.oldest(call.lineage, call.count)
            case FactsRequest():
                return reads.facts(call.of)
            case _:
                assert_never(call)


def serve(connection: socket.socket) -> None:
    """Answer calls until the other end closes: EOFError or another OSError."""
    ours = Calls(receive(connection))
    # Before the first call: it may be on its way, or come soon.
    ours.get_ready()
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
    stand_back()
    sys.meta_path.insert(0, WithoutPandas())
    # delta-rs takes as many threads as there are processors unless it is told otherwise.
    os.environ.setdefault("TOKIO_WORKER_THREADS", "2")
    quiet(os.environ)
    with contextlib.suppress(EOFError, OSError):
        serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
