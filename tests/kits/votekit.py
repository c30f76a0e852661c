"""Node processes that join a quorum later, and the operator's commands that make them voters or end that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from raftlake.raft.types import NodeId
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports

PATIENCE_SECONDS = 60
SERVE = (
    "import sys; from raftlake.runtime.server import serve; from raftlake.runtime.settings.settings import load_settings; "
    "sys.exit(serve(load_settings(None, overrides=sys.argv[1:])))"
)


def voters(bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", "voters", *words, "--bootstrap-server", bootstrap, "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False)


def changed(bootstrap: str, *words: str) -> list[int]:
    done = voters(bootstrap, *words)
    assert done.returncode == 0, done.stderr
    assert "partitions have followed" in done.stderr
    return list(json.loads(done.stdout)["voters"])


def start_node(
    directory: Path, node_id: int, cluster_id: str, bootstrap: str, **more: str
) -> tuple[subprocess.Popen[bytes], str]:
    """A node that knows only where the quorum is; its process and the address of its listener."""
    directory.mkdir()
    format_data_dir(directory, node_id=NodeId(node_id), cluster_id=cluster_id)
    listener, http = (f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2))
    settings = {
        "node.id": str(node_id),
        "log.dirs": str(directory),
        "listeners": f"PLAINTEXT://{listener}",
        "http.listener": http,
        "quorum.bootstrap.servers": bootstrap,
        **more,
    }
    command = [sys.executable, "-c", SERVE, *(f"{key}={value}" for key, value in settings.items())]
    # Into a file: who writes into a pipe that nobody reads waits when it is full.
    with log_of(directory).open("ab") as log:
        return subprocess.Popen(command, stderr=log), listener


def log_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.log")
