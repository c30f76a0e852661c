"""Real nodes whose voters change: three grow to four, one goes, loses its disk and comes back, and a client writes all along.

The whole way of an operator: `raftlake voters`, against node processes that know only an address of the quorum.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Self

import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.errors import RaftlakeError
from raftlake.wire.batches import decode_records
from votekit import PATIENCE_SECONDS, changed, log_of, start_node, voters

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=60)


class Writer:
    """Appends numbers within its `with` block; remembers those that were acknowledged, and what ended it."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.failure: RaftlakeError | None = None
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            with Client(self._bootstrap, request_timeout_ms=30_000) as client:
                number = 0
                while not self._stop.wait(0.01):
                    client.append("numbers", b"%d" % number)
                    self.acknowledged.append(number)
                    number += 1
        except RaftlakeError as error:
            self.failure = error


def read_values(client: Client, partition: int) -> list[int]:
    """Every number of a partition up to its linearizable end."""
    end = client.read_offset("numbers", [partition])[partition]
    values: list[int] = []
    offset = 0
    while offset < end:
        fetched = client.fetch_raw("numbers", partition, offset, limit_offset=end)
        values += [int(record.value or b"-1") for buffer in fetched.buffers for record in decode_records(buffer)]
        offset = fetched.next_offset
    return values


def every_disk_is_known(client: Client) -> bool:
    return all(any(voter.directory_id) for voter in client.describe_quorum().voters)


def test_voters_come_and_go_while_clients_write(tmp_path: Path) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with LocalQuorum(nodes=3, data_dir=tmp_path / "local") as quorum:
            bootstrap = quorum.bootstrap_servers
            with Client(bootstrap) as client:
                client.create_topic("numbers", 2)
                cluster_id = client.describe_cluster().cluster_id
                wait_until(
                    lambda: all(any(voter.directory_id) for voter in client.describe_quorum().voters), "every disk is known"
                )
            with Writer(bootstrap) as writer:
                fourth, fourth_address = start_node(tmp_path / "node-4", 4, cluster_id, bootstrap)
                processes.append(fourth)
                assert changed(bootstrap, "add", f"4@{fourth_address}") == [1, 2, 3, 4]
                assert changed(bootstrap, "remove", "1") == [2, 3, 4]
                refused = voters(bootstrap, "remove", "1")
                assert refused.returncode == 1 and "node 1 is no voter; the voters are 2, 3, 4" in refused.stderr
                quorum.kill(1)
                first_directory = tmp_path / "local" / "node-1"
                shutil.rmtree(first_directory)
                again, again_address = start_node(first_directory, 1, cluster_id, bootstrap)
                processes.append(again)
                assert changed(bootstrap, "add", f"1@{again_address}") == [1, 2, 3, 4]
                wait_until(lambda: len(writer.acknowledged) > 20 or writer.failure, "twenty appends")
            assert writer.failure is None
            acknowledged = writer.acknowledged
            with Client(f"{again_address},{fourth_address}") as client:
                read = sorted(number for partition in (0, 1) for number in read_values(client, partition))
            assert read == acknowledged, "nothing is lost and nothing is there twice"
            for process in processes:
                process.terminate()
            assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_node_that_may_joins_by_itself(tmp_path: Path) -> None:
    joining = {"controller.quorum.auto.join.enable": "true"}
    with LocalQuorum(nodes=1, data_dir=tmp_path / "local") as quorum, Client(quorum.bootstrap_servers) as client:
        wait_until(partial(every_disk_is_known, client), "every disk is known")
        cluster_id = client.describe_cluster().cluster_id
        process, _ = start_node(tmp_path / "node-2", 2, cluster_id, quorum.bootstrap_servers, **joining)
        try:
            wait_until(lambda: {voter.replica_id for voter in client.describe_quorum().voters} == {1, 2}, "both vote")
            client.create_topic("t", 1)
            assert client.append("t", b"both hold it").offset >= 0
            assert changed(quorum.bootstrap_servers, "remove", "2") == [1]
        finally:
            process.terminate()
            code = process.wait(PATIENCE_SECONDS)
        assert code == 0 and "asked the leader to become a voter" in log_of(tmp_path / "node-2").read_text()
