"""State in the quorum's logs: the same as Spark's own RocksDB provider batch for batch, over restarts and the loss of a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("state_job.py")


def write(directory: Path, name: str, words: str, number: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{word} {number + index}" for index, word in enumerate(words.split())]
    (directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_job(quorum: LocalQuorum, directory: Path, pipeline: str) -> dict[str, Any]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(JOB), quorum.bootstrap_servers, quorum.http_servers, str(directory), pipeline],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(json.loads((directory / "results.json").read_text(encoding="utf-8")))


def test_state_in_the_quorum_is_that_of_spark(quorum: LocalQuorum, client: Client, tmp_path: Path) -> None:
    for number, words in enumerate(["a b a", "b c", "c d e a", "f"]):
        write(tmp_path / "left", f"{number}.txt", words, number)
        write(tmp_path / "right", f"{number}.txt", words[::-1], number * 10)
    first = run_job(quorum, tmp_path, "state")
    for number, words in enumerate(["a g", "b b h", "a"], start=4):
        write(tmp_path / "left", f"{number}.txt", words, number)
        write(tmp_path / "right", f"{number}.txt", words, number * 10)
    again = run_job(quorum, tmp_path, "state")
    for results in (first, again):
        for shape, found in results.items():
            assert found["ours"]["batches"], shape
            assert found["ours"]["state"], shape
            assert found["ours"] == found["stock"], shape
    # The second process went on where the first one had ended.
    assert not set(again["aggregation"]["ours"]["batches"]) & set(first["aggregation"]["ours"]["batches"])
    counts = Counter("a b a b c c d e a f a g b b h a".split())
    found = "".join(again["aggregation"]["ours"]["state"])
    assert all(f"{{'word': '{word}'}}, 'value': {{'count': {number}" in found for word, number in counts.items()), found
    topics = [topic.name for topic in client.topics() if topic.name.startswith("__raftlake-state-")]
    assert len(topics) >= 4, "each store of each query has a topic"
    names = [entry.key for entry in client.kv.list("/fs/state/").entries]
    assert not [name for name in names if name.endswith(".changelog")], "no changelog is a file"
