"""`python -m raftlake.tier.probe SOCKET`: opens Parquet files before anyone else does.

pyarrow ends its process where the metadata of a file is damaged in certain ways. A process that checks files must not end with
them. So a file whose bytes nothing vouches for is opened by this process first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from raftlake.tier.calls import receive, send


class Probe:
    """The process, from the outside. It starts when a file is there for it, and again after its end. A context manager."""

    def __init__(self, uri: str, storage_options: Mapping[str, str], module: str = "raftlake.tier.probe") -> None:
        self._about = (uri, dict(storage_options))
        self._module = module
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._end()

    def survives(self, path: str) -> bool:
        """Whether a process that opens this file goes on. What it says of the file is left to the caller to find out."""
        try:
            if self._socket is None:
                self._socket = self._start()
                send(self._socket, self._about)
            send(self._socket, path)
            receive(self._socket)
        except (EOFError, OSError):
            self._end()
            return False
        return True

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        return ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None


def main() -> None:
    import pyarrow.parquet as pq

    from raftlake.tier.failures import STORE_ERRORS
    from raftlake.tier.store import Store

    connection = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        store = Store(*receive(connection))
        while True:
            path = receive(connection)
            with contextlib.suppress(*STORE_ERRORS):
                parquet = pq.ParquetFile(store.open(path), pre_buffer=False)
                for index in range(parquet.metadata.num_row_groups):
                    parquet.metadata.row_group(index).to_dict()
                for _ in parquet.iter_batches(columns=["offset"], use_threads=False):
                    pass
            send(connection, None)


if __name__ == "__main__":
    main()
