"""What work of others on the same processors costs an append: a process that only counts, and uploads where nodes come first.

Nodes come first with the policy SCHED_RR of sched(7), as in docs/operations.md. Where this user may not set it, that row is
left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench_tier import APPENDS, LIVE, append_p99, live_appends
from measure import Result, Rounds
from our_nodes import create_topic, our_quorum, pids_of
from raftlake import LocalQuorum


def measure(directory: Path) -> Iterator[Result]:
    with our_quorum(directory / "beside") as quorum:
        create_topic(quorum, LIVE, 1)
        yield beside_a_busy_process(quorum)
    try:
        yield live_appends(directory, prepare=come_first, nodes=", nodes that come first", ratio_at_most=None)
    except PermissionError as error:
        print(f"  nodes that come first are left out: sched_setscheduler: {error}", file=sys.stderr)


def come_first(quorum: LocalQuorum) -> None:
    """Threads that a node starts later, and its workers, inherit the policy. Workers lay it down when they stand back."""
    for pid in pids_of(quorum):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def beside_a_busy_process(quorum: LocalQuorum) -> Result:
    return (
        Rounds()
        .alternate(3, lambda: with_a_busy_process(quorum), lambda: append_p99(quorum))
        .result(
            name="append p99 beside a busy process",
            unit="ms",
            method=f"100 B, 1 in flight, {APPENDS:,} a round; the process only counts, in a session of its own",
            peer="alone",
        )
    )


def with_a_busy_process(quorum: LocalQuorum) -> float:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        return append_p99(quorum)
    finally:
        busy.kill()
        busy.wait()
