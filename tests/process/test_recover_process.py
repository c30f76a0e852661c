"""Two of three nodes are destroyed: the third is recovered and serves what it has; an old disk changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.raft.types import NodeId
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=20)


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def test_the_survivor_goes_on_alone_and_an_old_disk_disturbs_nobody(tmp_path: Path) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("t")
        for number in range(20):
            client.append("t", f"record {number}")
        client.kv.put("k", b"kept")
        ends = lambda: [voter.log_end_offset for voter in client.describe_quorum("t", 0).voters]  # noqa: E731
        wait_until(lambda: len(set(ends())) == 1, "all copies are equal")
        properties = quorum.nodes[3].properties
        quorum.kill(3)

        def sees_leader(*settings: str) -> bool:
            """It is refused whoever is seen; the two others may be electing a leader just now."""
            healthy = raftlake("recover", "--config", str(properties), "--confirm", "any", *settings)
            assert healthy.returncode == 1
            return "leads the quorum: with a live leader nothing is lost" in healthy.stderr

        wait_until(sees_leader, "a refusal that names a live leader")
        # Settings that name nobody else make no difference: the log knows who votes and where.
        for override in (f"quorum.voters=3@{quorum.nodes[3].address}", "quorum.bootstrap.servers=127.0.0.1:1"):
            wait_until(partial(sees_leader, "--set", override), f"a refusal that names a live leader, with {override}")
        quorum.start(3)
        wait_until(lambda: len(set(ends())) == 1, "the node has caught up")
        for node_id in (1, 2, 3):
            quorum.kill(node_id)
        shutil.copytree(tmp_path / "quorum" / "node-1", tmp_path / "old-disk")
        for node_id in (1, 2):
            shutil.rmtree(tmp_path / "quorum" / f"node-{node_id}")
        told = raftlake("recover", "--config", str(properties))
        assert told.returncode == 0, told.stderr
        assert "Nothing was changed" in told.stdout and "t-0" in told.stdout
        cluster_id = told.stdout.rpartition("--confirm ")[2].strip()
        wrong = raftlake("recover", "--config", str(properties), "--confirm", "wrong")
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert f"--confirm=wrong: expected is the id of this directory's cluster, {cluster_id}" in wrong.stderr
        done = raftlake("recover", "--config", str(properties), "--confirm", cluster_id)
        assert done.returncode == 0, done.stderr
        again = raftlake("recover", "--config", str(properties), "--confirm", cluster_id)
        assert again.returncode == 1
        assert "nothing is to be recovered" in again.stderr
        (voters,) = [line for line in properties.read_text().splitlines() if line.startswith("quorum.voters=")]
        alone = next(each for each in voters.partition("=")[2].split(",") if each.startswith("3@"))
        properties.write_text(properties.read_text().replace(voters, f"quorum.voters={alone}"))
        quorum.start(3)
        with Client(quorum.nodes[3].address) as survivor:
            values = [record.value for record in survivor.read("t", 0, 0, max_bytes=1 << 20)]
            assert values == [f"record {number}".encode() for number in range(20)]
            assert survivor.kv.get("k").value == b"kept"  # type: ignore[union-attr]
            assert survivor.kv.get("/raftlake/incarnation") is not None
            survivor.append("t", "afterwards")
            epoch = survivor.describe_quorum().leader_epoch
            (tmp_path / "old-disk").rename(tmp_path / "quorum" / "node-1")
            quorum.start(1)
            wait_until(
                lambda: [observer.replica_id for observer in survivor.describe_quorum("t", 0).observers] == [1],
                "the old node follows as an observer",
            )
            survivor.append("t", "and on")
            end = survivor.describe_quorum("t", 0).voters[0].log_end_offset
            wait_until(lambda: survivor.describe_quorum("t", 0).observers[0].log_end_offset == end, "its log becomes ours")
            described = survivor.describe_quorum()
            assert [voter.replica_id for voter in described.voters] == [3]
            assert described.leader_epoch == epoch, "nobody was disturbed"


def test_a_voter_that_knows_only_where_others_were_goes_on_alone(tmp_path: Path) -> None:
    """It joined by itself; its settings name no voters. What its log says is enough, before the recovery and after it."""
    process: subprocess.Popen[bytes] | None = None
    properties = tmp_path / "two.properties"

    def serve() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "raftlake", "serve", "--config", str(properties)])

    with LocalQuorum(nodes=1, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        try:
            client.create_topic("t")
            cluster_id = client.describe_cluster().cluster_id
            format_data_dir(tmp_path / "two", node_id=NodeId(2), cluster_id=cluster_id)
            listener, http = (f"127.0.0.1:{port}" for port in free_ports("127.0.0.1", 2))
            properties.write_text(
                f"node.id=2\nlog.dirs={tmp_path / 'two'}\nlisteners=PLAINTEXT://{listener}\nhttp.listener={http}\n"
                f"quorum.bootstrap.servers={quorum.bootstrap_servers}\nquorum.auto.join.enable=true\n"
            )
            process = serve()
            both = lambda *topic: {voter.replica_id for voter in client.describe_quorum(*topic).voters} == {1, 2}  # noqa: E731
            wait_until(lambda: both() and both("t", 0), "both vote on everything")
            client.append("t", "on both disks")
            client.kv.put("k", b"kept")
            running = raftlake("recover", "--config", str(properties))
            assert running.returncode == 1 and "is in use" in running.stderr
            process.terminate()
            process.wait(20)
            healthy = raftlake("recover", "--config", str(properties))
            assert healthy.returncode == 1 and "nothing is lost" in healthy.stderr
            quorum.kill(1)
            told = raftlake("recover", "--config", str(properties))
            assert told.returncode == 0, told.stderr
            done = raftlake("recover", "--config", str(properties), "--confirm", cluster_id)
            assert done.returncode == 0 and "Start the node. Let the others join it with new" in done.stdout, done.stderr
            process = serve()
            with Client(listener) as survivor:
                wait_until(lambda: [topic.name for topic in survivor.topics()] == ["t"], "it has read what it holds")
                assert [record.value for record in survivor.read("t", 0, 0)] == [b"on both disks"]
                assert survivor.kv.get("k").value == b"kept"  # type: ignore[union-attr]
                survivor.append("t", "afterwards")
                assert [voter.replica_id for voter in survivor.describe_quorum("t", 0).voters] == [2]
        finally:
            if process is not None:
                process.kill()
                process.wait()
