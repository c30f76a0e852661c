"""One whole node inside the test's process: start, serve, stop, and every reason not to start."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from raftlake.errors import ConfigError, DiskFull, StorageError
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.pid_file import PID_FILE
from raftlake.runtime.server import NodeServer, parse_parent_fd, serve
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.runtime.sockets import bind
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import MetaProperties, read_meta, write_meta
from raftlake.storage.room import DiskRoom
from runtime_fakes import LOOPBACK, address_of, run, until


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    """A server sets up logging and the garbage collector of its process; give both back."""
    root = logging.getLogger()
    handlers, level, thresholds = root.handlers[:], root.level, gc.get_threshold()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def free_address() -> Endpoint:
    with bind(LOOPBACK, "listeners") as free:
        return address_of(free)


def settings_of(directory: Path, **extra: str) -> Settings:
    listener, http = free_address(), free_address()
    given = {
        "node.id": "1", "quorum.voters": f"1@{listener}", "log.dirs": str(directory), "http.listener": str(http),
        **{key.replace("_", "."): value for key, value in extra.items()},
    }  # fmt: skip
    return load_settings(None, overrides=[f"{key}={value}" for key, value in given.items()])


def with_server(settings: Settings, test: Callable[[NodeServer, httpx.AsyncClient], object]) -> int:
    """Run `test` against a started node; the exit code."""
    codes: list[int] = []

    async def main() -> None:
        server = NodeServer(settings, asyncio.get_running_loop())
        try:
            await server.start()
            async with httpx.AsyncClient(base_url=f"http://{settings.http_listener}", trust_env=False) as client:
                await test(server, client)  # type: ignore[misc]
            codes.append(await server.run())
        finally:
            server.close()

    run(main())
    return codes[0]


def test_serves_stops_and_continues(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1, "the-cluster")
    settings = settings_of(tmp_path)

    async def write(server: NodeServer, client: httpx.AsyncClient) -> None:
        assert (tmp_path / PID_FILE).read_text() == f"{os.getpid()}\n"
        await until(server.node.is_ready)
        assert (await client.put("/v1/kv/k", content=b"v")).status_code == 200
        assert "raftlake_commit_latency_max" in (await client.get("/metrics")).text
        server.stop()

    assert with_server(settings, write) == 0
    assert not (tmp_path / PID_FILE).exists()

    async def read(server: NodeServer, client: httpx.AsyncClient) -> None:
        await until(server.node.is_ready)
        assert (await client.get("/v1/kv/k")).content == b"v"
        assert (await client.get("/v1/quorum")).json()["clusterId"] == "the-cluster"
        server.stop()

    assert with_server(settings, read) == 0
    DirectoryLock(tmp_path).release()


def test_a_cluster_id_that_the_quorum_chose_is_kept(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1)

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        await until(lambda: read_meta(tmp_path).cluster_id is not None)
        assert (await client.get("/v1/quorum")).json()["clusterId"] == read_meta(tmp_path).cluster_id
        server.stop()

    assert with_server(settings_of(tmp_path), test) == 0


def test_a_full_disk_gives_up_its_ballast_for_the_cluster_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    format_data_dir(tmp_path, 1)
    server_module = importlib.import_module("raftlake.runtime.server")
    tries: list[int] = []
    released: list[int] = []

    def write(path: Path, meta: MetaProperties) -> None:
        tries.append(len(released))
        if len(tries) == 1:
            raise DiskFull("cannot replace meta.properties: No space left on device")
        write_meta(path, meta)

    def release(room: DiskRoom) -> bool:
        released.append(1)
        return True

    monkeypatch.setattr(server_module, "write_meta", write)
    monkeypatch.setattr(DiskRoom, "release", release)

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        await until(lambda: read_meta(tmp_path).cluster_id is not None)
        assert tries == [0, 1]
        server.stop()

    with caplog.at_level(logging.WARNING):
        assert with_server(settings_of(tmp_path), test) == 0
    assert "the disk is full" not in caplog.text


def test_a_peer_that_says_it_is_of_another_cluster_is_told_in_the_log_and_the_health_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    format_data_dir(tmp_path, 1, "ours")

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        server._on_foreign(NodeId(4), Endpoint("h", 9))
        (warning,) = (await client.get("/health/live")).json()["warnings"]
        assert warning.startswith("node 4 at h:9 is of another cluster, this one of ours: ") and warning in caplog.text
        server.stop()

    with caplog.at_level(logging.WARNING):
        assert with_server(settings_of(tmp_path), test) == 0


def test_a_failed_disk_ends_with_exit_code_1_and_names_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    format_data_dir(tmp_path, 1, "c")

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        await until(server.node.is_ready)
        server.node.engine.fail(StorageError("cannot sync /data/x.log: No space left on device"))
        assert (await client.get("/health/live")).status_code == 503
        server.node.engine.request_turn()

    with caplog.at_level(logging.CRITICAL):
        assert with_server(settings_of(tmp_path), test) == 1
    assert "node stops: cannot sync /data/x.log: No space left on device" in caplog.text


def test_a_second_listener_takes_peers_alone(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1, "c")
    settings = settings_of(tmp_path, listeners=str(free_address()), controller_listener=str(free_address()))

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        assert settings.controller_listener is not None
        for endpoint in (settings.listener, settings.controller_listener):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.close()
        text = (await client.get("/metrics")).text
        assert 'raftlake_connections{listener="controller"}' in text
        server.stop()

    assert with_server(settings, test) == 0


def test_a_sync_may_outlive_the_loop_of_a_node_that_failed(tmp_path: Path) -> None:
    """Its thread used to end with a trace on the screen."""
    loop = asyncio.new_event_loop()
    server = NodeServer(settings_of(tmp_path), loop)
    ran: list[str] = []
    server._post(lambda: ran.append("open"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    server._post(lambda: ran.append("closed"))
    assert ran == ["open"]


# --- reasons not to start ----------------------------------------------------------------------------------------------------


def refused(settings: Settings, capsys: pytest.CaptureFixture[str], environ: dict[str, str] | None = None) -> str:
    """The one line that says why `serve` does not start."""
    assert serve(settings, environ or {}) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert " ERROR raftlake.node cannot start: " in line
    return line


def test_an_unformatted_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(settings_of(tmp_path), capsys)
    assert f"{tmp_path} is not formatted. Run: raftlake format --data-dir {tmp_path}" in line


def test_a_foreign_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_data_dir(tmp_path, 2)
    assert "belongs to node.id=2, but this node is configured as node.id=1" in refused(settings_of(tmp_path), capsys)


def test_a_directory_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_data_dir(tmp_path, 1)
    lock = DirectoryLock(tmp_path)
    try:
        assert f"{tmp_path} is in use by process {os.getpid()}" in refused(settings_of(tmp_path), capsys)
    finally:
        lock.release()
    assert not (tmp_path / PID_FILE).exists()


@pytest.mark.parametrize("setting", ["listeners", "http.listener"])
def test_a_port_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str) -> None:
    format_data_dir(tmp_path, 1)
    with bind(LOOPBACK, "x") as taken:
        address = address_of(taken)
        line = refused(settings_of(tmp_path, **{setting.replace(".", "_"): str(address)}), capsys)
    assert f"{setting}={address}: cannot listen on port {address.port}: Address already in use" in line
    # What was taken so far has been given back.
    DirectoryLock(tmp_path).release()
    assert not (tmp_path / PID_FILE).exists()


def test_a_parent_that_cannot_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    format_data_dir(tmp_path, 1)
    assert "RAFTLAKE_PARENT_FD=x: accepted is the number" in refused(settings_of(tmp_path), capsys, {"RAFTLAKE_PARENT_FD": "x"})


def test_a_machine_that_starts_no_thread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    format_data_dir(tmp_path, 1)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    settings = settings_of(tmp_path)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", start)
        assert "can't start new thread; raise the limit of threads" in refused(settings, capsys)
    DirectoryLock(tmp_path).release()
    assert not (tmp_path / PID_FILE).exists()


def test_the_parents_pipe() -> None:
    assert parse_parent_fd({}) is None
    read_end, write_end = os.pipe()
    try:
        assert parse_parent_fd({"RAFTLAKE_PARENT_FD": str(read_end)}) == read_end
    finally:
        os.close(read_end)
        os.close(write_end)
    with pytest.raises(ConfigError, match="accepted is the number of an open file descriptor"):
        parse_parent_fd({"RAFTLAKE_PARENT_FD": str(read_end)})


@pytest.mark.parametrize(
    ("successor", "in_touch", "leaving", "drained"),
    [
        (True, [2, 3], [], True),
        (False, [2, 3], [], False),
        (False, [2, 3], [2], False),
        (False, [2, 3], [2, 3], True),
        (False, [2], [2], True),
        (False, [], [], True),
    ],
)
def test_a_leader_waits_only_for_those_who_may_succeed_it(
    tmp_path: Path, successor: bool, in_touch: list[int], leaving: list[int], drained: bool
) -> None:
    """When every node is told to stop at once, each of them would else wait in vain for another one to lead."""
    format_data_dir(tmp_path, 1, "c")

    async def main() -> None:
        server = NodeServer(settings_of(tmp_path), asyncio.get_running_loop())
        control = SimpleNamespace(resigned_since=lambda _: leaving)
        server._node = SimpleNamespace(handover=SimpleNamespace(is_drained=lambda: successor), control=control)  # type: ignore[assignment]
        server._network = SimpleNamespace(peers_in_touch=lambda: in_touch)  # type: ignore[assignment]
        server._check_drained()
        assert server._drained.is_set() == drained

    run(main())


def test_health_and_metrics_at_a_listener_of_their_own(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1, "c")
    settings = settings_of(tmp_path, http_ops_listener=str(free_address()))

    async def test(server: NodeServer, client: httpx.AsyncClient) -> None:
        assert (await client.get("/metrics")).status_code == 404
        async with httpx.AsyncClient(base_url=f"http://{settings.http_ops_listener}", trust_env=False) as ops:
            await until(server.node.is_ready)
            assert (await ops.get("/health/ready")).status_code == 200
            text = (await ops.get("/metrics")).text
            assert 'raftlake_connections{listener="ops"} 1.0' in text and "raftlake_log_end_offset{" in text
        server.stop()

    assert with_server(settings, test) == 0
