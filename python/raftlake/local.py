"""`LocalQuorum`: a whole quorum of child processes on this machine, for development, tests and small jobs.

Owns the directories `DIR/node-1 .. node-N` (each is the data directory of its node and holds `node.properties`,
`raftlake.pid` and the node's output, `node.log`), their ports and the child processes. Every child is an ordinary
`raftlake serve`: one that was killed may be started again here or from any terminal, and stays down until then.

No child outlives this process, however it ends: each holds the read end of a pipe (RAFTLAKE_PARENT_FD) whose write end lives
here alone, and stops when that end closes. A signal on the parent's death (PR_SET_PDEATHSIG) would not do: it fires when the
*thread* that started the child ends, and a Spark driver's threads come and go.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from raftlake.errors import ConfigError, RaftlakeError, WrongState
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.settings.properties import format_properties, parse_properties
from raftlake.storage.files import DIRECTORY_MODE, FILE_MODE, storage_error
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import FILE_NAME, random_uuid, read_meta
from raftlake.wire.ids import id_to_text

PARENT_FD = "RAFTLAKE_PARENT_FD"
PROPERTIES_FILE = "node.properties"
LOG_FILE = "node.log"
#: Written by the node itself, once it has the directory to itself.
PID_FILE = "raftlake.pid"
HOST = "127.0.0.1"

NODES_MAX = 9
READY_TIMEOUT_S = 30.0
#: A node hands its leadership over before it stops; after this long it is killed, which loses nothing.
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01


class LocalQuorumFailed(RaftlakeError):
    """A node of a local quorum did not start, or the quorum did not get ready; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    node_id: int
    directory: Path
    port: int
    http_port: int

    @property
    def properties(self) -> Path:
        return self.directory / PROPERTIES_FILE

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def http_address(self) -> str:
        return f"{HOST}:{self.http_port}"


class LocalQuorum:
    """A quorum of `nodes` processes. Use as a context manager, or call `stop`.

    `data_dir` keeps the data and is continued when it holds a quorum; without one a temporary directory is used and removed at
    the end. `port` and `http_port` are the first ones of a row; without them a new quorum takes free ones and an old one keeps
    its own. `settings` go into every `node.properties`. Returns once every node is ready; raises ConfigError,
    WrongState for a directory that holds something else, or LocalQuorumFailed.
    """

    def __init__(
        self,
        nodes: int = 3,
        data_dir: str | Path | None = None,
        *,
        port: int | None = None,
        http_port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ConfigError(f"nodes: {nodes} is not between 1 and {NODES_MAX}")
        self._is_temporary = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="raftlake-") if data_dir is None else data_dir).absolute()
        self._owner = os.getpid()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._parent_end: int | None = None
        self._directory_lock: DirectoryLock | None = None
        try:
            _open_quorums.add(self)
            self._directory_lock = _take(self.data_dir)
            self.nodes = _prepare(self.data_dir, nodes, port, http_port, settings or {})
            # Not inheritable: only what is passed on by name reaches a child.
            self._child_end, self._parent_end = os.pipe()
            for node_id in self.nodes:
                self._spawn(node_id)
            self._wait_ready(tuple(self.nodes))
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def http_servers(self) -> str:
        return ",".join(node.http_address for node in self.nodes.values())

    def leader(self, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The node that leads the metadata log, by its own word; waits while there is none."""
        deadline = time.monotonic() + timeout_s
        while True:
            for node_id in self.running():
                described = _get_json(self.nodes[node_id], "/v1/quorum")
                # Others may still name a leader that is gone.
                if described is not None and described.get("leaderId") == node_id:
                    return node_id
            if time.monotonic() > deadline:
                raise LocalQuorumFailed(f"no node of {self.data_dir} leads after {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def running(self) -> tuple[int, ...]:
        """The nodes whose child process is alive."""
        with self._lock:
            return tuple(sorted(node_id for node_id, child in self._children.items() if child.poll() is None))

    def pid(self, node_id: int) -> int:
        """The process id of a running child."""
        child = self._children.get(node_id)
        if child is None or child.poll() is not None:
            raise WrongState(f"node {node_id} of {self.data_dir} is not running")
        return child.pid

    # --- what can be done to nodes -----------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL, as a crash would. The node stays down until it is started again."""
        os.kill(self.pid(node_id), signal.SIGKILL)
        self._children[node_id].wait()

    def start(self, node_id: int) -> None:
        """Start a node that is down, and wait until it is ready."""
        if node_id not in self.nodes:
            raise WrongState(f"{self.data_dir} has no node {node_id}, only {', '.join(map(str, self.nodes))}")
        if node_id in self.running():
            raise WrongState(f"node {node_id} of {self.data_dir} is running already")
        self._spawn(node_id)
        self._wait_ready((node_id,))

    def stop(self) -> None:
        """Stop every node gracefully and wait for it; a temporary directory is removed."""
        if self._owner != os.getpid():
            return
        with self._lock:
            children = [child for child in self._children.values() if child.poll() is None]
        for child in children:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for child in children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._let_go()
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _spawn(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if self._parent_end is None:
            raise WrongState(f"the quorum of {self.data_dir} is stopped")
        # The settings are in the file; RAFTLAKE_NODE_ID and the like in our own environment are meant for other nodes.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAFTLAKE_")}
        environ[PARENT_FD] = str(self._child_end)
        environ["PYTHONPATH"] = _python_path(environ.get("PYTHONPATH", ""))
        with (node.directory / LOG_FILE).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "raftlake.runtime", "--config", str(node.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                pass_fds=(self._child_end,),
                # A session of its own: Ctrl-C in this terminal is ours to handle.
                start_new_session=True,
            )
        with self._lock:
            self._children[node_id] = child

    def _wait_ready(self, node_ids: tuple[int, ...]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = list(node_ids)
        while waiting:
            self._require_alive(waiting)
            if self._is_ready(waiting[0]):
                waiting.pop(0)
                continue
            if time.monotonic() > deadline:
                raise LocalQuorumFailed(
                    f"node {waiting[0]} was not ready after {READY_TIMEOUT_S:.0f} s: {self._last_words(waiting[0])}"
                )
            time.sleep(_POLL_S)
        self.leader(max(0.1, deadline - time.monotonic()))

    def _require_alive(self, node_ids: Iterable[int]) -> None:
        """LocalQuorumFailed names the first of these nodes that has ended: the others may wait for it without end."""
        for node_id in node_ids:
            status = self._children[node_id].poll()
            if status is not None:
                raise LocalQuorumFailed(f"node {node_id} ended with status {status}: {self._last_words(node_id)}")

    def _is_ready(self, node_id: int) -> bool:
        """Whether our child serves: the pid file says who has the directory, in case somebody else started the node too."""
        node = self.nodes[node_id]
        try:
            owner = (node.directory / PID_FILE).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return False
        return owner == str(self._children[node_id].pid) and _get_json(node, "/health/ready") is not None

    def _last_words(self, node_id: int) -> str:
        """The last line of the node's output."""
        log = self.nodes[node_id].directory / LOG_FILE
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it wrote nothing to {log}"

    def _let_go(self) -> None:
        """Close what only this process may hold: the pipe of the nodes and the lock of the directory."""
        if self._parent_end is not None:
            os.close(self._parent_end)
            os.close(self._child_end)
            self._parent_end = None
        if self._directory_lock is not None:
            self._directory_lock.release()


#: Quorums whose pipe and lock a fork of this process must not keep open: else their nodes would outlive it, and the
#: directory would stay locked.
_open_quorums: weakref.WeakSet[LocalQuorum] = weakref.WeakSet()


def _close_in_fork() -> None:
    for quorum in list(_open_quorums):
        quorum._let_go()


os.register_at_fork(after_in_child=_close_in_fork)


# --- directories and ports -------------------------------------------------------------------------------------------


def _take(data_dir: Path) -> DirectoryLock:
    """Lock the directory for its quorum's life: two that start at once would write each other's settings."""
    try:
        if (data_dir / FILE_NAME).exists():
            raise WrongState(f"{data_dir} is the data directory of one node; a local quorum needs a directory of its own")
        data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create", data_dir, error) from error
    return DirectoryLock(data_dir)


def _prepare(
    data_dir: Path, count: int, port: int | None, http_port: int | None, settings: Mapping[str, str]
) -> dict[int, LocalNode]:
    """Directories formatted with one cluster id, with their node.properties; what is there already is kept."""
    existing = _existing_nodes(data_dir)
    if existing and len(existing) != count:
        raise WrongState(f"{data_dir} holds a quorum of {len(existing)} nodes; it cannot be started with {count}")
    ports = _choose_ports(count, port, [node.port for node in existing])
    http_ports = _choose_ports(count, http_port, [node.http_port for node in existing], taken=ports)
    nodes = {
        index + 1: LocalNode(
            node_id=index + 1,
            directory=data_dir / f"node-{index + 1}",
            port=ports[index],
            http_port=http_ports[index],
        )
        for index in range(count)
    }
    with _none_running(existing):
        cluster_id = _cluster_id(nodes)
        for node in nodes.values():
            format_data_dir(node.directory, node.node_id, cluster_id)
            _write_properties(node, nodes, settings)
    return nodes


@contextlib.contextmanager
def _none_running(existing: list[LocalNode]) -> Iterator[None]:
    """Hold the nodes' directories while their settings are written: those of a quorum that runs must not change under it.
    StorageError names the first directory in use and its process."""
    with contextlib.ExitStack() as held:
        for node in existing:
            held.callback(DirectoryLock(node.directory).release)
        yield


def _existing_nodes(data_dir: Path) -> list[LocalNode]:
    """The nodes whose node.properties lie in `data_dir`, by id."""
    nodes: list[LocalNode] = []
    for path in data_dir.glob(f"node-*/{PROPERTIES_FILE}"):
        match = re.fullmatch(r"node-([1-9][0-9]*)", path.parent.name)
        if match is None:
            continue
        values = parse_properties(path.read_text(encoding="utf-8"), str(path))
        try:
            port = int(values["listeners"].rpartition(":")[2])
            http_port = int(values["http.listener"].rpartition(":")[2])
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{path}: listeners or http.listener is missing or names no port") from error
        nodes.append(LocalNode(node_id=int(match[1]), directory=path.parent, port=port, http_port=http_port))
    return sorted(nodes, key=lambda node: node.node_id)


def _choose_ports(count: int, first: int | None, existing: list[int], taken: list[int] | None = None) -> list[int]:
    if first is not None:
        if not 1 <= first <= 65536 - count:
            raise ConfigError(f"port {first}: {count} ports from there on do not exist")
        ports = [first + index for index in range(count)]
        if set(ports) & set(taken or []):
            raise ConfigError(f"ports {ports[0]} to {ports[-1]} are wanted for both Kafka and HTTP; choose others")
        return ports
    return existing or free_ports(HOST, count, taken or [])


def _cluster_id(nodes: Mapping[int, LocalNode]) -> str:
    """That of the nodes which are formatted already, or a new one."""
    found = {
        node.node_id: read_meta(node.directory).cluster_id for node in nodes.values() if (node.directory / FILE_NAME).exists()
    }
    known = dict.fromkeys(cluster_id for cluster_id in found.values() if cluster_id is not None)
    if len(known) > 1:
        raise WrongState(f"the nodes belong to different clusters: {', '.join(known)}")
    return next(iter(known), None) or id_to_text(random_uuid())


def _write_properties(node: LocalNode, nodes: Mapping[int, LocalNode], settings: Mapping[str, str]) -> None:
    values = {
        "node.id": str(node.node_id),
        "quorum.voters": ",".join(f"{voter.node_id}@{voter.address}" for voter in nodes.values()),
        "log.dirs": str(node.directory),
        "listeners": f"PLAINTEXT://{node.address}",
        "http.listener": node.http_address,
        **settings,
    }
    node.properties.touch(FILE_MODE)
    node.properties.write_text(format_properties(values), encoding="utf-8")


def _python_path(inherited: str) -> str:
    """PYTHONPATH for a child: ours, and where this package lies unless every Python finds it there."""
    root = str(Path(__file__).resolve().parent.parent)
    parts = [part for part in inherited.split(os.pathsep) if part]
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    if root not in installed and root not in parts:
        parts.append(root)
    return os.pathsep.join(parts)


def _get_json(node: LocalNode, path: str) -> dict[str, Any] | None:
    """The JSON of a 200 answer; None for any other answer, or none."""
    with contextlib.closing(http.client.HTTPConnection(HOST, node.http_port, timeout=2)) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                return None
            parsed = json.loads(body)
        except (OSError, http.client.HTTPException, ValueError):
            return None
    return parsed if isinstance(parsed, dict) else None
