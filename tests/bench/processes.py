"""Processes that a measure starts: loopback ports, children that never outlive the run, what they used of the machine.

Every child is killed by the kernel when this process ends (`setpriv --pdeathsig`), however it ends; a measure stops its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now. All are held at once, so they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listening in sockets:
            listening.bind((HOST, 0))
        return [listening.getsockname()[1] for listening in sockets]


def wait_until(is_true: Callable[[], bool], what: str, timeout_s: float = 60.0, poll_s: float = 0.01) -> None:
    deadline = time.perf_counter() + timeout_s
    while not is_true():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{what}: not after {timeout_s:.0f} s")
        time.sleep(poll_s)


class Child:
    """One server process; its output goes to a file."""

    def __init__(self, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> None:
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        self.output = output
        with output.open("ab") as sink:
            self._process = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def assert_running(self) -> None:
        if not self.is_running:
            words = self.output.read_text(errors="replace").strip().splitlines()[-5:]
            raise RuntimeError(f"{self.output} ended with status {self._process.returncode}: " + " | ".join(words))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop, without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Until it has ended; killed when it takes too long."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes have used so far, user and system."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def wait_for_rest(pids: Sequence[int], percent_max: float = 40.0, window_s: float = 0.5, timeout_s: float = 60.0) -> None:
    """Until each process uses less of a core than that over a window: what was asked of them before is over."""

    def is_at_rest() -> bool:
        before, began = [cpu_seconds([pid]) for pid in pids], time.perf_counter()
        time.sleep(window_s)
        seconds = time.perf_counter() - began
        return all(
            100 * (cpu_seconds([pid]) - earlier) / seconds < percent_max for pid, earlier in zip(pids, before, strict=True)
        )

    wait_until(is_at_rest, f"processes below {percent_max:g} % of a core", timeout_s)


def resident_mib(pid: int) -> float:
    """Resident memory of a process (a file that it has mapped and the kernel keeps in memory counts)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} shows no VmRSS")
