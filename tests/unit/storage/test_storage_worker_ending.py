"""What is said of a worker that is gone: a signal, or a status and where its last words are."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from raftlake.storage import worker_ending
from raftlake.storage.worker_ending import how_it_ended


def process(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM"), (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}")],
)
def test_a_signal_is_named_and_no_last_words_are(number: int, name: str) -> None:
    with process(f"import os; os.kill(os.getpid(), {int(number)})") as killed:
        killed.wait()
    assert how_it_ended(killed) == f"it was killed by {name}"


def test_an_exception_has_left_last_words() -> None:
    with process("raise SystemExit(3)") as ended:
        ended.wait()
    assert how_it_ended(ended) == "it ended with status 3, and its last words are in the node's output"


def test_one_that_runs_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_ending, "ENDING_SECONDS", 0.01)
    with process("import sys; sys.stdin.read()") as running:
        assert how_it_ended(running) == "it runs still, and is killed"
        assert running.poll() is None
