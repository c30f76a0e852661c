"""The file descriptors of this process: how many it may have, and a few that are kept for a bad moment.

Connections and files come out of one number (RLIMIT_NOFILE, `ulimit -n`). A node without a free descriptor could not write its
vote. So it raises its soft limit to the hard one, and holds some descriptors that stand for nothing: a file that finds none
free gives those up, tries once more, and has the file open for a moment. They are taken back about once a second.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: The limit of this process, or that of the machine, is met.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
#: No node needs more.
LIMIT_MAX = 1 << 20
SPARES = 16


def limit() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LIMIT_MAX if soft == resource.RLIM_INFINITY else min(soft, LIMIT_MAX)


def raise_limit() -> int:
    """Raise the soft limit to the hard one; the limit that holds then."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    while wanted > limit():
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            # macOS names no hard limit and takes no more than its kern.maxfilesperproc.
            wanted //= 2
    return limit()


class SpareDescriptors:
    """Descriptors that stand for nothing. May be used from any thread."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return len(self._held)

    def keep(self) -> bool:
        """Take what is missing. False where there were not enough."""
        with self._lock:
            try:
                while len(self._held) < SPARES:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return False
            return True

    def give_up(self) -> None:
        """Close all of them."""
        with self._lock:
            while self._held:
                os.close(self._held.pop())


#: Of this process.
spares = SpareDescriptors()


def spared(call: Callable[[], T]) -> T:
    """The result of `call`, which opens something; without a free descriptor it is called again when the spares are given up.
    Raises OSError."""
    try:
        return call()
    except OSError as error:
        if error.errno not in NO_DESCRIPTORS:
            raise
    spares.give_up()
    return call()


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """`os.open`, with the spares behind it. Raises OSError."""
    return spared(lambda: os.open(path, flags | os.O_CLOEXEC, mode))
