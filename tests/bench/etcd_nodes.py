"""Three etcd nodes on loopback, with etcd's defaults: the peer of the appends, the key-value rows and the write gaps."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from pathlib import Path
from typing import Self

from etcd_client import EtcdCaller
from processes import HOST, Child, free_ports, wait_until


def etcd_version() -> str:
    """Only some parts of the bench need etcd."""
    if shutil.which("etcd") is None:
        return "not installed"
    shown = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True, timeout=20)
    return shown.stdout.splitlines()[0].rpartition(" ")[2]


class EtcdQuorum:
    """Use as a context manager; `nodes` are 0, 1 and 2. Returns once a put was acknowledged."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(6)
        self.client_ports, self._peer_ports = ports[:3], ports[3:]
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._children: list[Child] = []
        try:
            self._children = [self._spawn(node) for node in range(3)]
            wait_until(self._accepts_a_put, "etcd's first put")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, node: int) -> Child:
        peers = ",".join(f"n{other}=http://{HOST}:{port}" for other, port in enumerate(self._peer_ports))
        client, peer = f"http://{HOST}:{self.client_ports[node]}", f"http://{HOST}:{self._peer_ports[node]}"
        command = ["etcd", "--name", f"n{node}", "--data-dir", str(self._directory / f"n{node}")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", peers, "--initial-cluster-state", "new", "--log-level", "warn"]
        return Child(command, self._directory / f"n{node}.log")

    def _accepts_a_put(self) -> bool:
        for child in self._children:
            child.assert_running()
        try:
            caller = EtcdCaller(self.client_ports[0], b"x", 1.0)
        except OSError:
            return False
        try:
            caller.put(0)
        except OSError:
            return False
        finally:
            caller.close()
        return True

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children if child.is_running]

    def leader(self) -> int:
        """The node that says it leads (its own metric)."""
        found: list[int] = []

        def is_known() -> bool:
            found[:] = [node for node in range(3) if self._children[node].is_running and self._leads(node)]
            return len(found) == 1

        wait_until(is_known, "a leader of etcd")
        return found[0]

    def _leads(self, node: int) -> bool:
        connection = http.client.HTTPConnection(HOST, self.client_ports[node], timeout=2)
        try:
            connection.request("GET", "/metrics")
            return b"\netcd_server_is_leader 1" in connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()

    def address(self, node: int) -> tuple[str, int]:
        return HOST, self.client_ports[node]

    def kill(self, node: int) -> None:
        self._children[node].kill()

    def terminate(self, node: int) -> None:
        """Ask it to stop, without waiting: what happens meanwhile is the measure."""
        self._children[node].terminate()

    def wait_for_end(self, node: int) -> None:
        self._children[node].wait()

    def restart(self, node: int) -> None:
        """Start a node that has ended, and wait until it takes part."""
        self._children[node] = self._spawn(node)
        wait_until(lambda: self._serves(node), f"etcd's node {node}")

    def _serves(self, node: int) -> bool:
        self._children[node].assert_running()
        try:
            caller = EtcdCaller(self.client_ports[node], b"x", 2.0)
            caller.put(0)
            caller.close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait()
