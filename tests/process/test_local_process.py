"""LocalQuorum with real nodes: kill, start, continue, and nothing left behind, however the parent ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import waitkit
from leaderkit import leader_of, record_offsets
from raftlake import Client, LocalQuorum
from raftlake.errors import WrongState
from raftlake.local import READY_TIMEOUT_S, LocalQuorumFailed
from raftlake.runtime.free_ports import free_ports
from waitkit import attempt

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=20)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie whose parent is gone does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_leader_loses_nothing_and_comes_back(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        first = client.append("t", "before")
        victim = leader_of(client, "t")
        quorum.kill(victim)
        assert victim not in quorum.running()
        second = client.append("t", "after")
        assert second.offset >= first.offset + 2  # the own record of each new leader lies between
        assert record_offsets(client, "t") == [first.offset, second.offset]
        assert quorum.leader() != victim
        with pytest.raises(WrongState, match="not running"):
            quorum.kill(victim)
        quorum.start(victim)
        with pytest.raises(WrongState, match="running already"):
            quorum.start(victim)
        assert [record.value for record in client.read("t", 0, 0, max_bytes=1 << 20)] == [b"before", b"after"]


def free_row(count: int) -> int:
    """The first of so many ports in a row that nobody listens at."""
    while True:
        (port,) = free_ports("127.0.0.1", 1)
        with socket.create_server(("127.0.0.1", port)):
            try:
                for offset in range(1, count):
                    socket.create_server(("127.0.0.1", port + offset)).close()
            except (OSError, OverflowError):
                continue
        return port


def moved(data_dir: Path) -> LocalQuorum | None:
    """A quorum of three at other ports than it had; None where another program was quicker to take one of them."""
    there = free_row(6)
    try:
        return LocalQuorum(nodes=3, data_dir=data_dir, port=there, http_port=there + 3)
    except LocalQuorumFailed as error:
        if "Address already in use" in str(error):
            return None
        raise


def test_a_quorum_that_moved_as_a_whole_finds_itself_again(tmp_path: Path) -> None:
    """Its log said where the voters had been, and that went before the settings: nobody reached anybody."""
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        client.append("t", "before")
        voters = lambda: client.describe_quorum().voters + client.describe_quorum("t", 0).voters  # noqa: E731
        wait_until(lambda: all(any(voter.directory_id) for voter in voters()), "the voters are in the logs")
    with attempt(partial(moved, tmp_path), "a row of ports that nobody takes meanwhile") as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.append("t", "after")
            assert [record.value for record in client.read("t", 0, 0, max_bytes=1 << 20)] == [b"before", b"after"]
            quorum.kill(quorum.leader() or 1)
            assert client.append("t", "and on").offset > 0


def test_a_killed_node_may_be_started_from_another_terminal(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        quorum.kill(2)
        other = subprocess.Popen(
            [sys.executable, "-m", "raftlake", "serve", "--config", str(quorum.nodes[2].properties)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            version = client.kv.put("while it was down", b"")
            wait_until(
                lambda: {v.replica_id: v.log_end_offset for v in client.describe_quorum().voters}[2] > version,
                "it has caught up",
            )
            assert (tmp_path / "node-2" / "raftlake.pid").read_text().strip() == str(other.pid)
            with pytest.raises(LocalQuorumFailed, match="node 2 ended with status 1"):
                quorum.start(2)
        finally:
            other.send_signal(signal.SIGTERM)
            assert other.wait(20) == 0


def test_a_restart_continues_on_the_same_data(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        client.append("t", "kept")
        client.kv.put("k", b"kept")
        servers = quorum.bootstrap_servers
        pids = [quorum.pid(node_id) for node_id in quorum.nodes]
    assert not any(is_alive(pid) for pid in pids)
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        assert quorum.bootstrap_servers == servers
        assert [record.value for record in client.read("t", 0, 0)] == [b"kept"]
        entry = client.kv.get("k")
        assert entry is not None and entry.value == b"kept"


def test_every_node_at_once_killed_loses_nothing(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        acknowledged = [client.append("t", f"{n}").offset for n in range(100)]
        for node_id in quorum.nodes:
            quorum.kill(node_id)
        # One alone would wait for the others.
        quorum.start(*quorum.nodes)
        assert quorum.running() == tuple(quorum.nodes)
        require_values(client, acknowledged)
        for node_id in quorum.nodes:
            quorum.kill(node_id)
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
        require_values(client, acknowledged)


def require_values(client: Client, acknowledged: list[int]) -> None:
    found = {record.offset: record.value for record in client.read("t", 0, 0, max_bytes=1 << 20)}
    assert [found[offset] for offset in acknowledged] == [f"{n}".encode() for n in range(100)]


def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    with LocalQuorum(nodes=1) as quorum:
        taken = quorum.nodes[1].port
        with pytest.raises(LocalQuorumFailed, match=str(taken)):
            LocalQuorum(nodes=1, data_dir=tmp_path, port=taken)


def test_a_port_in_use_is_told_by_the_node_that_wants_it_and_not_by_the_one_that_waits_for_it(tmp_path: Path) -> None:
    """Node 1 of two has its own port, and gets ready with node 2 only."""
    with socket.socket() as holder:
        first = hold_the_port_after_a_free_one(holder)
        with pytest.raises(LocalQuorumFailed, match=f"node 2 ended with status 1: .*{first + 1}"):
            LocalQuorum(nodes=2, data_dir=tmp_path, port=first)


def hold_the_port_after_a_free_one(holder: socket.socket) -> int:
    """Listen at a port, and return the free one before it. Both lie below those that the system gives to connections."""
    while True:
        (first,) = free_ports("127.0.0.1", 1)
        with contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", first + 1))
            holder.listen()
            return first


def test_a_temporary_quorum_leaves_nothing() -> None:
    quorum = LocalQuorum(nodes=1)
    assert quorum.data_dir.exists()
    quorum.stop()
    assert not quorum.data_dir.exists()
    quorum.stop()
    with pytest.raises(WrongState, match="stopped"):
        quorum.start(1)


PARENT = r"""
import os, sys, time
from raftlake import LocalQuorum
quorum = LocalQuorum(nodes=1, data_dir=sys.argv[1])
fork = os.fork()  # as a multiprocessing child would be made
if fork:
    os.write(1, b"%d %d\n" % (quorum.pid(1), fork))
time.sleep(60)
os._exit(0)
"""


def test_nodes_do_not_outlive_a_crashed_parent_even_when_its_fork_lives_on(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    node, fork = map(int, parent.stdout.readline().split())
    try:
        assert is_alive(node) and is_alive(fork)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not is_alive(node), "the node ends with its parent")
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
        parent.stdout.close()


@contextlib.contextmanager
def local_command(data_dir: Path, *options: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """`raftlake local` with one node that is ready, the node's port, and what the command complains of once it has ended."""
    port, http_port = free_ports("127.0.0.1", 2)
    ports = ["--port", str(port), "--http-port", str(http_port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "raftlake", "local", "--nodes", "1", "--data-dir", str(data_dir), *ports, *options],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    out, errors = waitkit.Lines(process.stdout), waitkit.Lines(process.stderr)
    complaints: list[str] = []
    try:
        out.require(f"ready bootstrap.servers=127.0.0.1:{port} http.servers=127.0.0.1:{http_port}\n", READY_TIMEOUT_S)
        yield process, port, complaints
    finally:
        process.kill()
        process.wait()
        assert out.rest() == []
        complaints += errors.rest()


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_the_local_command_says_ready_and_stops_at_ctrl_c_and_with_its_terminal(tmp_path: Path, signum: signal.Signals) -> None:
    with local_command(tmp_path) as (process, port, complaints):
        node = int((tmp_path / "node-1" / "raftlake.pid").read_text())
        with Client(f"127.0.0.1:{port}") as client:
            client.create_topic("t")
        process.send_signal(signum)
        assert process.wait(timeout=20) == 0
    assert not any("Traceback" in line for line in complaints)
    assert not is_alive(node)
    assert not (tmp_path / "node-1" / "raftlake.pid").exists()


def interrupted_start(data_dir: Path, signum: signal.Signals) -> tuple[int, str] | None:
    """Exit code and complaints of a start that a signal ended; None where the quorum was ready before the signal came."""
    port, http_port = free_ports("127.0.0.1", 2)
    ports = ["--port", str(port), "--http-port", str(http_port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "raftlake", "local", "--nodes", "1", "--data-dir", str(data_dir), *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((data_dir / "node-1" / "node.log").exists, "the node is begun")
        process.send_signal(signum)
        out, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    return None if out else (process.returncode, errors)


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_local_command_is_ready_is_no_success(tmp_path: Path, signum: signal.Signals) -> None:
    """A ready quorum ends with 0: it has stopped as it was asked to."""
    directories = (tmp_path / str(number) for number in range(waitkit.ATTEMPTS))
    exit_code, complaints = attempt(lambda: interrupted_start(next(directories), signum), "a signal before the quorum is ready")
    assert exit_code == 130 and "Traceback" not in complaints


@pytest.mark.usefixtures("signals_arrive")
def test_the_local_command_has_a_tier_until_it_is_taken_out(tmp_path: Path) -> None:
    """A user who set `tier.uri` in the environment and in node.properties had none, and was told nothing."""
    data, history = tmp_path / "data", tmp_path / "history"
    set_tier = [f"--set=tier.uri={history}", "--set", "tier.target.lag.ms=1000"]
    out = ["--set", "tier.uri=", "--set", "tier.target.lag.ms="]
    has_tier: list[bool] = []
    told: list[list[str]] = []
    for options in (set_tier, [], out):
        with local_command(data, *options, RAFTLAKE_RETENTION_MS="1000") as (process, port, complaints):
            with Client(f"127.0.0.1:{port}") as client:
                if not has_tier:
                    client.create_topic("t")
                    client.append("t", "kept")
                    wait_until(lambda: list(history.glob("t-*/partition=0/*.parquet")), "a copy of the record")
                has_tier.append("raftlake.tier.table.uri" in client.topic_configs("t"))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        told.append(complaints)
    assert has_tier == [True, True, False]
    ignored = "RAFTLAKE_RETENTION_MS: the nodes of a local quorum take no settings from the environment; "
    assert [[line.startswith(ignored) for line in complaints] for complaints in told] == [[True, False]] * 3
    assert {complaints[1] for complaints in told} == {"stopping\n"}


def test_the_local_command_refuses_a_wrong_setting_in_one_line(tmp_path: Path) -> None:
    for option, message in (
        ("listeners=127.0.0.1:1", "listeners=127.0.0.1:1: a local quorum sets it itself (`port`, --port)"),
        ("tier.url=/t", "tier.url: unknown setting in --set; did you mean tier.uri?"),
        ("tier.uri", "--set tier.uri: accepted is --set key=value"),
    ):
        command = [sys.executable, "-m", "raftlake", "local", "--data-dir", str(tmp_path / "data"), "--set", option]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"raftlake: {message}\n")
    assert not list(tmp_path.glob("data/node-*"))


def test_a_client_goes_on_in_a_topic_that_was_created_again() -> None:
    """With both kinds of producers, each with numbers that mean nothing to the new topic."""
    with LocalQuorum(nodes=3) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        producer = client.producer()
        for _ in range(3):
            client.append("t", "old")
            producer.append_many("t", ["old"])
        with Client(quorum.bootstrap_servers) as other:
            other.delete_topic("t")
            other.create_topic("t")
        for number in range(5):
            client.append("t", f"a{number}")
            producer.append_many("t", [f"b{number}"])
        found = [record.value for record in client.read("t", 0, 0, max_bytes=1 << 20)]
        assert found == [f"{name}{number}".encode() for number in range(5) for name in "ab"]
