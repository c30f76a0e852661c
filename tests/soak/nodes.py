"""The node processes of a soak: what can be done to them, and whether they did anything by themselves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from raftlake.runtime.format import format_data_dir
from raftlake.wire.ids import id_to_text
from soak.network import Links, write_properties

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class Nodes:
    def __init__(self, directory: Path, links: Links, settings: dict[str, str]) -> None:
        self.directory = directory
        self.links = links
        self.node_ids = tuple(links.addresses)
        #: Counts the processes that a node had: what one has shown binds only itself.
        self.incarnation = dict.fromkeys(self.node_ids, 0)
        self.paused: set[int] = set()
        #: What nodes did that nobody asked for.
        self.complaints: list[str] = []
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._asked_to_end: set[int] = set()
        self._child_end, self._parent_end = os.pipe()
        for node_id in self.node_ids:
            home = self.home(node_id)
            format_data_dir(home, node_id, id_to_text(b"soak soak soak 1"))
            write_properties(home / "node.properties", node_id, links, settings)

    def home(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def running(self) -> list[int]:
        """The nodes that run and are not paused."""
        return [node_id for node_id in self.node_ids if self.is_alive(node_id) and node_id not in self.paused]

    def is_alive(self, node_id: int) -> bool:
        child = self._children.get(node_id)
        return child is not None and child.poll() is None

    def pid(self, node_id: int) -> int:
        return self._children[node_id].pid

    # --- what can be done ---

    def start(self, node_id: int) -> None:
        if self.is_alive(node_id):
            return
        self.incarnation[node_id] += 1
        self._asked_to_end.discard(node_id)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAFTLAKE_")}
        environ["RAFTLAKE_PARENT_FD"] = str(self._child_end)
        home = self.home(node_id)
        command = [sys.executable, "-m", "raftlake", "serve", "--config", str(home / "node.properties")]
        with (home / "node.log").open("ab") as log:
            self._children[node_id] = subprocess.Popen(
                self.links.command(node_id, command),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, pass_fds=(self._child_end,),
                start_new_session=True,
            )  # fmt: skip

    def signal(self, node_id: int, signum: signal.Signals) -> None:
        if self.is_alive(node_id):
            if signum in (signal.SIGKILL, signal.SIGTERM):
                self._asked_to_end.add(node_id)
            self._children[node_id].send_signal(signum)
            if signum is signal.SIGSTOP:
                self.paused.add(node_id)
            elif signum in (signal.SIGCONT, signal.SIGKILL):
                self.paused.discard(node_id)

    async def ended(self, node_id: int) -> None:
        """Wait until a node that was asked to end has ended."""
        child = self._children.get(node_id)
        if child is None:
            return
        deadline = time.monotonic() + STOP_SECONDS
        while child.poll() is None:
            if time.monotonic() > deadline:
                self.complaints.append(f"node {node_id} did not stop within {STOP_SECONDS:.0f} s")
                child.kill()
            await asyncio.sleep(0.02)

    async def ready(self, node_id: int) -> None:
        """Wait until a node that was started says so."""
        deadline = time.monotonic() + START_SECONDS
        while self.is_alive(node_id) and time.monotonic() < deadline:
            if await self.ask(node_id, "/health/ready") is not None:
                return
            await asyncio.sleep(0.05)
        raise RuntimeError(f"node {node_id} did not get ready; see {self.home(node_id) / 'node.log'}")

    # --- what they say ---

    async def ask(self, node_id: int, path: str) -> dict[str, object] | None:
        """The JSON of a 200 answer within half a second."""
        host, _, port = self.links.addresses[node_id]
        try:
            async with asyncio.timeout(0.5):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode())
                    answer = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        head, _, body = answer.partition(b"\r\n\r\n")
        return json.loads(body) if head.startswith(b"HTTP/1.1 200") else None

    async def leader(self) -> int | None:
        """A node that says that it leads the metadata log, if any does."""
        for node_id in self.running():
            described = await self.ask(node_id, "/v1/quorum")
            if described is not None and described.get("leaderId") == node_id:
                return node_id
        return None

    def note_unasked_ends(self) -> None:
        """Complain once of every node that ended by itself, or badly."""
        for node_id, child in list(self._children.items()):
            status = child.poll()
            if status is None:
                continue
            # SIGTERM ends a process that has only just begun without a word.
            if node_id not in self._asked_to_end or status not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self.complaints.append(f"node {node_id} ended by itself with status {status}: {self.last_words(node_id)}")
                self._asked_to_end.add(node_id)
                del self._children[node_id]

    def last_words(self, node_id: int) -> str:
        lines = (self.home(node_id) / "node.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def logged_faults(self) -> list[str]:
        """What no node may ever write into its log."""
        found = []
        for node_id in self.node_ids:
            lines = (self.home(node_id) / "node.log").read_text(errors="replace").splitlines()
            bad = [line for line in lines if " CRITICAL " in line or line.startswith("Traceback")]
            found += [f"node {node_id} logged: {line}" for line in bad]
        return found[:20]

    def memory_mib(self) -> dict[int, float]:
        """The resident memory of each process that runs."""
        sizes = {}
        for node_id in self.node_ids:
            if self.is_alive(node_id):
                pages = int(Path(f"/proc/{self.pid(node_id)}/statm").read_text().split()[1])
                sizes[node_id] = pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        return sizes

    def close(self) -> None:
        """End every process, gracefully first."""
        for node_id in self.node_ids:
            self.signal(node_id, signal.SIGCONT)
            self.signal(node_id, signal.SIGTERM)
        deadline = time.monotonic() + 10
        for child in self._children.values():
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        os.close(self._child_end)
        os.close(self._parent_end)
