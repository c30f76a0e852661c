"""The standard streams of a command: closed ones are opened on the null device, and what cannot be written is an error of ours.

A descriptor that the shell closed (`>&-`) would be given to the next file or socket that is opened, which libraries do not
expect. Errors of standard output get types of their own, so that a reader that went away (`| head`) is never taken for a lost
connection, nor a full disk for a bug.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

from raftlake.errors import RaftlakeError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: What a shell reports of a process that SIGPIPE ended: the reader of its pipe has closed it.
EXIT_BROKEN_PIPE = 141


class OutputFailed(RaftlakeError):
    """Standard output takes no more."""


class OutputClosed(OutputFailed):
    """The reader of standard output has gone: no error, as a rule, and no message would be read."""


class _Output(io.FileIO):
    """Standard output; what cannot be written is `OutputFailed`."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise OutputClosed("standard output is closed") from error
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            raise OutputFailed(f"cannot write to standard output: {reason}") from error


def open_streams() -> None:
    """Make the three standard streams usable, whatever the shell left of them. Before any other file is opened."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    before = sys.stdout
    # The path of a file may be no text, and is printed as it is.
    errors = "surrogateescape"
    output = io.BufferedWriter(_Output(1, "wb", closefd=False))
    if isinstance(before, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            output,
            encoding=before.encoding,
            errors=errors if before.errors == "strict" else before.errors,
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
    else:
        sys.stdout = io.TextIOWrapper(output, errors=errors)


def give_up(descriptor: int) -> None:
    """Throw away what standard output (1) or standard error (2) has not taken: the interpreter would try to write it once more
    as it ends, and make 120 of the exit code."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
