"""A process that works for a node stands back: where nodes, clients and workers share processors, the workers wait.

Linux schedules by session where it may (`autogroup` in sched(7)), so a nice value counts among the processes of one session
only. A worker therefore takes a session of its own, and makes the whole session nice. A long slice lets a process that wakes up
have the processor at once (kernel 6.12 and later). The affinity leaves one processor to everybody else.

Measured with three nodes on two cores, p99 of a lone append: 1.4 ms alone, 8 ms beside two busy processes that were only nice,
and 1.7 ms beside two that stood back so. Beside real uploads it was 4.1 ms before and 2.9 ms then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
import time
from pathlib import Path
from typing import Final

#: By how much everybody else comes first.
NICENESS: Final = 10
#: The longest slice that the kernel takes, in nanoseconds.
_SLICE_NS: Final = 100_000_000
#: Of sched_setattr(2), which has no function in the C library before glibc 2.41.
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
_AUTOGROUP = Path("/proc/self/autogroup")
#: Linux lets processes without privileges make sessions nice every 100 ms, all together.
_TRIES, _PAUSE_SECONDS = 10, 0.11


def stand_back() -> None:
    """Let others come first, as far as the system lets this process ask for it. Call it once, before threads are started.

    The process gets a session of its own: a Ctrl-C in the terminal of its node does not reach it.
    """
    # Of a node that comes first (docs/operations.md): nothing below counts for a process with a real-time policy.
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError):
        os.setsid()
    # The session may be that of the node, where this process leads its group already.
    if os.getsid(0) == os.getpid():
        _make_session_nice()
    _take_long_slices()
    _leave_a_processor()


def _make_session_nice() -> None:
    for _ in range(_TRIES):
        try:
            _AUTOGROUP.write_text(str(NICENESS))
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        except OSError:
            return
        else:
            return


def _take_long_slices() -> None:
    """Of the default policy, whose other attributes stay as they are. Kernels that know no slices ignore the length."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        return
    policy, flags, nice = 0, 0, os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", 48, policy, flags, nice, 0, _SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def _leave_a_processor() -> None:
    """Of those that this process may use, the first one is left to others."""
    with contextlib.suppress(OSError, AttributeError):
        mine = os.sched_getaffinity(0)
        if len(mine) > 1:
            os.sched_setaffinity(0, mine - {min(mine)})
