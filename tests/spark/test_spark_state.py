"""State in the quorum's logs: the same as Spark's own RocksDB provider batch for batch, over restarts and a lost node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkpointjobs import Driver

from leaderkit import leader_of
from sparkkit import rare
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("state_job.py")


def write(directory: Path, name: str, words: str, number: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{word} {number + index}" for index, word in enumerate(words.split())]
    (directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_job(quorum: LocalQuorum, directory: Path, shape: str) -> dict[str, Any]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(JOB), quorum.bootstrap_servers, quorum.http_servers, str(directory), shape],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(json.loads((directory / "results.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("shape", ["aggregation", rare("duplicates"), "join", rare("groups")])
def test_state_in_the_quorum_is_that_of_spark(quorum: LocalQuorum, client: Client, tmp_path: Path, shape: str) -> None:
    for number, words in enumerate(["a b a", "b c", "c d e a"]):
        write(tmp_path / "left", f"{number}.txt", words, number)
        write(tmp_path / "right", f"{number}.txt", words[::-1], number * 10)
    first = run_job(quorum, tmp_path, shape)
    for number, words in enumerate(["a g", "b b h", "a"], start=3):
        write(tmp_path / "left", f"{number}.txt", words, number)
        write(tmp_path / "right", f"{number}.txt", words, number * 10)
    again = run_job(quorum, tmp_path, shape)
    for found in (first, again):
        assert found["ours"]["batches"] and found["ours"]["state"]
        assert found["ours"] == found["stock"]
    assert not set(again["ours"]["batches"]) & set(first["ours"]["batches"]), "the second process went on"
    if shape == "aggregation":
        state = "".join(again["ours"]["state"])
        counts = Counter("ababccdeaagbbha")
        assert all(f"{{'word': '{word}'}}, 'value': {{'count': {number}" in state for word, number in counts.items()), state
    topics = [topic.name for topic in client.topics() if topic.name.startswith("__raftlake-state-")]
    assert topics, "each store has a topic"
    names = [entry.key for entry in client.kv.list(f"/fs/state/{shape}/state/").entries]
    assert names and not [name for name in names if name.endswith(".changelog")], "no changelog is a file"


def test_a_stateful_query_outlives_the_leader_of_its_state(tmp_path: Path) -> None:
    from raftlake import Client, LocalQuorum

    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum, Client(quorum.bootstrap_servers) as client:
        outlive(quorum, client, tmp_path)


def outlive(own_quorum: LocalQuorum, own_client: Client, tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.mkdir()
    expected: Counter[str] = Counter()

    def put_files(numbers: range) -> None:
        for number in numbers:
            words = ["all", f"word{number % 5}"]
            (source / f"{number:03}.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
            expected.update(words)

    put_files(range(4))
    driver = Driver(own_quorum, "QuorumStateStoreProvider", "raftlake://killed/main", source, tmp_path / "driver")
    try:
        wait_until(lambda: len(driver.batches) >= 3, "three batches", 200)
        topic = next(topic.name for topic in own_client.topics() if topic.name.startswith("__raftlake-state-"))
        own_quorum.kill(leader_of(own_client, topic))
        put_files(range(4, 10))
        wait_until(lambda: bool(driver.batches) and driver.batches[-1][1].get("all") == 10, "all files", 200)
        assert driver.batches[-1][1] == dict(expected)
        (driver.directory / "stop").touch()
        wait_until(lambda: driver.text("error") is not None, "the end of the driver", 100)
        assert driver.text("error") == ""
    finally:
        driver.kill()
