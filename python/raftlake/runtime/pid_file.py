"""`raftlake.pid`: which process has the data directory, for scripts and people. No other part of a node reads it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.runtime.log import event
from raftlake.storage.files import NO_ROOM, discard, write_file

logger = logging.getLogger("raftlake.node")

PID_FILE = "raftlake.pid"


def write_pid(data_dir: Path) -> None:
    """Write down for scripts and people which process has the directory; on a full disk write nothing."""
    path = data_dir / PID_FILE
    try:
        write_file(path, b"%d\n" % os.getpid(), sync=False)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error
        event(logger, logging.WARNING, f"cannot write {path}: {error.strerror}")
        discard(path)


def remove_pid(data_dir: Path) -> None:
    """As the node ends. A file that cannot be removed stays: nothing else is wrong then."""
    discard(data_dir / PID_FILE)
