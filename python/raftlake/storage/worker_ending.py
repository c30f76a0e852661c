"""How a worker process ended that its node has lost, in words for the log of the node.

A process that a signal has killed has said nothing, so nobody is sent to look for its last words.
"""

from __future__ import annotations

import signal
import subprocess

#: A process closes its connections shortly before it is gone.
ENDING_SECONDS = 1.0


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Waits up to `ENDING_SECONDS` for the end of a process that has closed its connection. Changes nothing."""
    try:
        status = process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return "it runs still, and is killed"
    if status < 0:
        return f"it was killed by {_name_of(-status)}"
    return f"it ended with status {status}, and its last words are in the node's output"


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
