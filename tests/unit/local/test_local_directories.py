"""LocalQuorum before any process: directories, ports, node.properties, what is refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from raftlake import local, local_directories
from raftlake.errors import ConfigError, StorageError, WrongState
from raftlake.runtime.settings.settings import load_settings
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import read_meta


def prepare(
    data_dir: Path, count: int = 3, port: int | None = None, http_port: int | None = None, **settings: str
) -> dict[int, local.LocalNode]:
    return local_directories.prepare(data_dir, count, port, http_port, settings)


def test_every_node_gets_settings_that_serve_accepts(tmp_path: Path) -> None:
    nodes = prepare(tmp_path, 3, port=19092, http_port=18092)
    assert list(nodes) == [1, 2, 3]
    for node_id, node in nodes.items():
        settings = load_settings(node.properties)
        assert settings.node_id == node_id
        assert settings.data_dir == tmp_path / f"node-{node_id}"
        assert str(settings.listener) == f"127.0.0.1:{19091 + node_id}"
        assert str(settings.http_listener) == f"127.0.0.1:{18091 + node_id}"
        assert [str(endpoint) for endpoint in settings.voters.values()] == [
            f"127.0.0.1:{port}" for port in (19092, 19093, 19094)
        ]
    assert len({read_meta(node.directory).cluster_id for node in nodes.values()}) == 1
    assert len({read_meta(node.directory).directory_id for node in nodes.values()}) == 3


def test_the_settings_of_a_node_are_its_owners_to_read(tmp_path: Path) -> None:
    """As all in a data directory; settings may come to hold secrets."""
    nodes = prepare(tmp_path)
    assert {node.properties.stat().st_mode & 0o777 for node in nodes.values()} == {0o600}


def test_the_directory_of_a_quorum_is_its_owners(tmp_path: Path) -> None:
    """Where `raftlake local` makes it. One that is there already keeps its mode: it may hold other things."""
    mask = os.umask(0o022)
    try:
        local.take(tmp_path / "parent" / "new").release()
        local.take(tmp_path / "parent").release()
    finally:
        os.umask(mask)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "parent" / "new", tmp_path / "parent")]
    assert modes == [0o700, 0o755]


def test_a_second_start_continues_with_the_same_ports_and_identity(tmp_path: Path) -> None:
    first = prepare(tmp_path)
    before = [read_meta(node.directory) for node in first.values()]
    assert prepare(tmp_path) == first
    assert [read_meta(node.directory) for node in first.values()] == before
    moved = prepare(tmp_path, port=19192, http_port=18192)
    assert [node.port for node in moved.values()] == [19192, 19193, 19194]
    assert [read_meta(node.directory) for node in moved.values()] == before


def test_a_quorum_that_runs_keeps_its_settings(tmp_path: Path) -> None:
    """A second `raftlake local` on the same directory by mistake: a node that is killed later must still find its own ports."""
    nodes = prepare(tmp_path, port=19092, http_port=18092)
    before = {node_id: node.properties.read_text() for node_id, node in nodes.items()}
    running = DirectoryLock(nodes[2].directory)
    with pytest.raises(StorageError, match=f"node-2 is in use by process {os.getpid()}"):
        prepare(tmp_path, port=19192, http_port=18192)
    assert {node_id: node.properties.read_text() for node_id, node in nodes.items()} == before
    running.release()
    assert prepare(tmp_path, port=19192, http_port=18192)[1].port == 19192


def test_two_quorums_that_start_at_once_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one wrote its own ports into the settings of the first, whose nodes had not taken their locks yet."""
    data_dir = tmp_path / "new"
    seen: list[str] = []

    def prepare_and_start_another(*_: object) -> dict[int, local.LocalNode]:
        with pytest.raises(StorageError, match=f"new is in use by process {os.getpid()}") as refused:
            local.LocalQuorum(data_dir=data_dir, port=19192, http_port=18192)
        seen.append(str(refused.value))
        assert not list(data_dir.glob("node-*"))
        raise ConfigError("ends here")

    monkeypatch.setattr(local, "prepare", prepare_and_start_another)
    for _ in range(2):  # The lock is let go when the first one ends, however that was.
        with pytest.raises(ConfigError, match="ends here"):
            local.LocalQuorum(data_dir=data_dir)
    assert len(seen) == 2


def test_a_fork_does_not_keep_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that outlives the quorum's process would lock everyone out."""
    locks: list[DirectoryLock] = []
    held = local.take

    def noted(data_dir: Path) -> DirectoryLock:
        locks.append(held(data_dir))
        return locks[0]

    def ends_in_a_fork(*_: object) -> dict[int, local.LocalNode]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.write(writing, b"let go" if locks[0]._descriptor < 0 else b"held")
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        seen.append(os.read(reading, 10))
        os.close(reading)
        raise ConfigError("ends here")

    seen: list[bytes] = []
    monkeypatch.setattr(local, "take", noted)
    monkeypatch.setattr(local, "prepare", ends_in_a_fork)
    with pytest.raises(ConfigError, match="ends here"):
        local.LocalQuorum(data_dir=tmp_path)
    assert seen == [b"let go"]


def test_free_ports_differ(tmp_path: Path) -> None:
    nodes = prepare(tmp_path, 5)
    ports = {node.port for node in nodes.values()} | {node.http_port for node in nodes.values()}
    assert len(ports) == 10
    # No connection of any program takes the port of a node that is down: it can be started again.
    with socket.create_server((local.HOST, 0)) as server, socket.create_connection(server.getsockname()) as outgoing:
        assert max(ports) < outgoing.getsockname()[1]


def test_settings_reach_every_node(tmp_path: Path) -> None:
    nodes = prepare(tmp_path / r"a\b", **{"log.segment.bytes": "1048576"})
    for node in nodes.values():
        settings = load_settings(node.properties)
        assert settings.segment_bytes == 1048576
        assert settings.data_dir == node.directory


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, 3)
    with pytest.raises(WrongState, match="holds a quorum of 3 nodes"):
        prepare(tmp_path, 5)


def test_the_directory_of_one_node_is_no_place_for_a_quorum(tmp_path: Path) -> None:
    nodes = prepare(tmp_path)
    with pytest.raises(WrongState, match="is the data directory of one node"):
        local.LocalQuorum(data_dir=nodes[1].directory)
    assert not list(nodes[1].directory.glob("node-*"))


def test_ports_that_overlap_or_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both Kafka and HTTP"):
        prepare(tmp_path, 3, port=19092, http_port=19094)
    with pytest.raises(ConfigError, match="do not exist"):
        prepare(tmp_path, 3, port=65535)
    with pytest.raises(ConfigError, match="nodes: 0"):
        local.LocalQuorum(nodes=0)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    local_directories.format_data_dir(tmp_path / "node-1", 1, "one")
    local_directories.format_data_dir(tmp_path / "node-2", 2, "two")
    with pytest.raises(WrongState, match="different clusters: one, two"):
        prepare(tmp_path, 3)


def test_a_child_finds_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(local.__file__).resolve().parent.parent)
    monkeypatch.setattr(local.site, "getsitepackages", list)
    assert local._python_path(f"/a{os.pathsep}/b").split(os.pathsep) == ["/a", "/b", root]
    assert local._python_path(root) == root
    monkeypatch.setattr(local.site, "getsitepackages", lambda: [root])
    assert local._python_path("") == ""


def test_a_path_that_the_system_refuses_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="File name too long"):
        local.take(tmp_path / ("a" * 5_000))
