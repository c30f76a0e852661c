"""`LocalQuorum`: a whole quorum of child processes on this machine, for development, tests and small jobs.

Owns the directories `DIR/node-1 .. node-N` (each is the data directory of its node and holds `node.properties`,
`raftlake.pid` and the node's output, `node.log`) and the child processes; `local_directories` prepares them. Every child is an
ordinary `raftlake serve`: one that was killed may be started again here or from any terminal, and stays down until then.

No child outlives this process, however it ends: each holds the read end of a pipe (RAFTLAKE_PARENT_FD) whose write end lives
here alone, and stops when that end closes. A signal on the parent's death (PR_SET_PDEATHSIG) would not do: it fires when the
*thread* that started the child ends, and a Spark driver's threads come and go.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

from raftlake.errors import ConfigError, MachineError, RaftlakeError, WrongState
from raftlake.local_directories import LocalNode, prepare, take
from raftlake.local_settings import HOST, few_connections, ignored_variables
from raftlake.storage.files import storage_error
from raftlake.storage.lock import DirectoryLock

PARENT_FD = "RAFTLAKE_PARENT_FD"
LOG_FILE = "node.log"
#: Written by the node itself, once it has the directory to itself.
PID_FILE = "raftlake.pid"

NODES_MAX = 9
READY_TIMEOUT_S = 30.0
#: A node hands its leadership over before it stops; after this long it is killed, which loses nothing.
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01


class LocalQuorumFailed(RaftlakeError):
    """A node of a local quorum did not start, or the quorum did not get ready; the message says which and why."""


class LocalQuorum:
    """A quorum of `nodes` processes. Use as a context manager, or call `stop`.

    `data_dir` keeps the data and is continued when it holds a quorum; without one a temporary directory is used and removed at
    the end. `port` and `http_port` are the first ones of a row; without them a new quorum takes free ones and an old one keeps
    its own. `settings` are set in every `node.properties`, where the next start finds them; an empty value takes one out.
    `note` hears in a line what is not kept of what somebody wrote there, or of the environment, and of a limit of open files
    that leaves few connections. Returns once every node is ready; raises ConfigError, WrongState for a directory that holds
    something else, or LocalQuorumFailed.
    """

    def __init__(
        self,
        nodes: int = 3,
        data_dir: str | Path | None = None,
        *,
        port: int | None = None,
        http_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise ConfigError(f"nodes: {nodes} is not between 1 and {NODES_MAX}")
        self._is_temporary = data_dir is None
        self.data_dir = (_temporary() if data_dir is None else Path(data_dir)).absolute()
        self._owner = os.getpid()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._parent_end: int | None = None
        self._directory_lock: DirectoryLock | None = None
        try:
            _open_quorums.add(self)
            self._directory_lock = take(self.data_dir)
            self.nodes = prepare(self.data_dir, nodes, port, http_port, settings or {}, note or _warn)
            for told in (ignored_variables(os.environ), few_connections(self.nodes[1].properties)):
                if told is not None:
                    (note or _warn)(told)
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

    def start(self, *node_ids: int) -> None:
        """Start nodes that are down, and wait until they are ready. A quorum that has lost its majority becomes ready with as
        many nodes as it needs: name them in one call."""
        for node_id in node_ids:
            if node_id not in self.nodes:
                raise WrongState(f"{self.data_dir} has no node {node_id}, only {', '.join(map(str, self.nodes))}")
            if node_id in self.running():
                raise WrongState(f"node {node_id} of {self.data_dir} is running already")
        for node_id in node_ids:
            self._spawn(node_id)
        self._wait_ready(node_ids)

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
        with _opened(node.directory / LOG_FILE) as log:
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
        try:
            lines = log.read_text(errors="replace").strip().splitlines()
        except OSError as error:
            return f"{log} cannot be read: {error.strerror}"
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


def _temporary() -> Path:
    """A new directory. MachineError where this machine has no place for one."""
    try:
        return Path(tempfile.mkdtemp(prefix="raftlake-"))
    except OSError as error:
        raise MachineError(f"a temporary directory cannot be made: {error.strerror}; give a directory for the data") from error


def _opened(log: Path) -> BinaryIO:
    """Behind what it holds. Raises StorageError."""
    try:
        return log.open("ab")
    except OSError as error:
        raise storage_error("open", log, error) from error


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


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
