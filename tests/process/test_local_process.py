"""LocalQuorum with real nodes: kill, start, continue, and nothing left behind, however the parent ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
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
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, Client(quorum.bootstrap_servers) as client:
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
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with pytest.raises(LocalQuorumFailed, match=f"node 2 ended with status 1: .*{taken}"):
            LocalQuorum(nodes=2, data_dir=tmp_path, port=taken - 1)


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


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_the_local_command_says_ready_and_stops_at_ctrl_c_and_with_its_terminal(tmp_path: Path, signum: signal.Signals) -> None:
    command = [sys.executable, "-m", "raftlake", "local", "--nodes", "1", "--data-dir", str(tmp_path)]
    port, http_port = free_ports("127.0.0.1", 2)
    process = subprocess.Popen(
        [*command, "--port", str(port), "--http-port", str(http_port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    out, errors = waitkit.Lines(process.stdout), waitkit.Lines(process.stderr)
    try:
        out.require(f"ready bootstrap.servers=127.0.0.1:{port} http.servers=127.0.0.1:{http_port}\n", READY_TIMEOUT_S)
        node = int((tmp_path / "node-1" / "raftlake.pid").read_text())
        with Client(f"127.0.0.1:{port}") as client:
            client.create_topic("t")
        process.send_signal(signum)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        said, complaints = out.rest(), errors.rest()
    assert said == [] and not any("Traceback" in line for line in complaints)
    assert not is_alive(node)
    assert not (tmp_path / "node-1" / "raftlake.pid").exists()


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
