"""A process without a free descriptor: its limit is lowered to what it has open, and the numbers in between are taken."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def soft_limit(count: int) -> Iterator[None]:
    """This process may have so many descriptors; its hard limit stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def descriptors_left(count: int = 0) -> Iterator[None]:
    """So many descriptors are free while the block runs."""
    # The sockets of earlier tests would be closed amid it.
    gc.collect()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    # The lowest free number is the next to be given.
    with soft_limit(max(*taken, *map(int, os.listdir("/proc/self/fd"))) + 1):
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            for _ in range(count):
                os.close(taken.pop())
            yield
        finally:
            for descriptor in taken:
                os.close(descriptor)
