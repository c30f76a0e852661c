"""A node as a process: signals, its parent's end, a full disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import waitkit
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.pid_file import PID_FILE

pytestmark = pytest.mark.process

SERVE = (
    "import sys; from raftlake.runtime.server import serve; from raftlake.runtime.settings.settings import load_settings; "
    "sys.exit(serve(load_settings(None, overrides=sys.argv[1:])))"
)
PATIENCE_SECONDS = 20
wait_until = partial(waitkit.wait_until, seconds=PATIENCE_SECONDS)


class Node:
    def __init__(self, directory: Path, process: subprocess.Popen[str], http: str) -> None:
        self.directory = directory
        self.process = process
        self.http = http

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.http}/health/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def put(self, key: str, value: bytes) -> bool:
        """Whether the write was acknowledged."""
        try:
            return httpx.put(f"{self.http}/v1/kv/{key}", content=value, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def end(self) -> tuple[int, str]:
        """The exit code and what was logged."""
        _, logged = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, logged


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    started: list[Node] = []

    def start_node(**options: Any) -> Node:
        listener, http = (f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2))
        format_data_dir(tmp_path, 1, "c")
        arguments = ["node.id=1", f"quorum.voters=1@{listener}", f"log.dirs={tmp_path}", f"http.listener={http}"]
        command = [sys.executable, "-c", SERVE, *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
        node = Node(tmp_path, process, f"http://{http}")
        started.append(node)
        wait_until(node.is_ready, f"{http} is ready")
        return node

    yield start_node
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
        node.process.communicate()


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(start: Callable[..., Node], signum: signal.Signals) -> None:
    node = start()
    assert int((node.directory / PID_FILE).read_text()) == node.process.pid
    node.process.send_signal(signum)
    code, logged = node.end()
    assert code == 0
    assert f"stopping node=1 signal={signum.name}" in logged and "stopped node=1" in logged
    assert not (node.directory / PID_FILE).exists()


def test_it_ends_with_its_parent(start: Callable[..., Node]) -> None:
    read_end, write_end = os.pipe()
    node = start(env={**os.environ, "RAFTLAKE_PARENT_FD": str(read_end)}, pass_fds=(read_end,))
    os.close(read_end)
    os.close(write_end)
    code, logged = node.end()
    assert code == 0
    assert "reason='parent ended'" in logged


def test_a_full_disk_stops_it_with_the_name_of_the_file(start: Callable[..., Node]) -> None:
    limit = 1 << 20

    def limit_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    node = start(preexec_fn=limit_files)

    def has_ended() -> bool:
        node.put("k", bytes(200_000))
        return node.process.poll() is not None

    wait_until(has_ended, "the disk is full, and the node ends")
    code, logged = node.end()
    assert code == 1
    (line,) = [line for line in logged.splitlines() if " CRITICAL " in line]
    assert "node stops: " in line and "00000000000000000000.log" in line and "kind=StorageError" in line
    # It is one line, without a traceback, and the node did not come back by itself.
    assert "Traceback" not in logged


def test_a_killed_node_continues_with_everything_acknowledged(start: Callable[..., Node]) -> None:
    node = start()
    keys = [f"k{number:02}" for number in range(50)]
    for key in keys:
        wait_until(partial(node.put, key, b"v"), f"{key} is acknowledged")
    node.process.kill()
    node.process.wait(PATIENCE_SECONDS)
    again = start()
    listed = httpx.get(f"{again.http}/v1/kv?prefix=k", trust_env=False).json()
    assert [entry["key"] for entry in listed["entries"]] == keys
