"""Checkpoints that commands have moved, forked and rewound: stateful queries go on from them with the right results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkpointjobs import Driver, run_job, write

from raftlake.checkpoints import Checkpoints
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark
from raftlake.checkpoints.node import Node
from sparkkit import rare
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark


#: Providers of state with Spark's checkpoint format. Changes of the last two are in topics.
ROCKSDB, HDFS = "RocksDBStateStoreProvider:2", "HDFSBackedStateStoreProvider:1"
QUORUM, QUORUM_1 = "QuorumStateStoreProvider:2", "QuorumStateStoreProvider:1"


@pytest.mark.parametrize("provider", [ROCKSDB, rare(HDFS), QUORUM, rare(QUORUM_1)])
def test_a_stateful_query_moves_in_and_out(quorum: LocalQuorum, client: Client, tmp_path: Path, provider: str) -> None:
    pipeline = f"moved-{provider.lower().replace(':', '-')}"
    main = f"raftlake://{pipeline}/main"
    local, left, back = (str(tmp_path / name) for name in ("local", "left", "back"))
    checkpoints = Checkpoints(client)
    files = tmp_path / "input"
    files.mkdir()
    for number, words in enumerate(("a b a", "b c", "c c d")):
        write(files, f"{number}.txt", words)
    # Two checkpoints over the same input: one is going to move, the other stays.
    first = run_job(quorum, provider, tmp_path, local, left)
    assert first[local]["batches"] == [0, 1, 2]

    copied = checkpoints.import_(local, main)
    assert copied.batch == 2
    assert copied.query == json.loads((tmp_path / "local" / "metadata").read_text())["id"]
    write(files, "3.txt", "a")
    write(files, "4.txt", "d e")
    second = run_job(quorum, provider, tmp_path, main, left)
    assert second[main] == second[left]
    assert second[main]["batches"] == [3, 4]
    shown = checkpoints.show(main)
    assert shown["query"] == copied.query
    assert [batch["batch"] for batch in shown["batches"] if batch["canGoOn"]] == [0, 1, 2, 3, 4]

    checkpoints.export(main, back)
    checkpoints.delete(main)
    assert not client.kv.list(f"/fs/{pipeline}/main").entries
    write(files, "5.txt", "e a")
    last = run_job(quorum, provider, tmp_path, back, left)
    assert last[back] == last[left]
    assert last[back]["batches"] == [5]
    assert last[back]["counts"] == {"a": 4, "b": 2, "c": 3, "d": 2, "e": 2}
    assert json.loads((tmp_path / "back" / "metadata").read_text())["id"] == copied.query


@pytest.mark.parametrize("provider", [rare(ROCKSDB), QUORUM])
def test_a_fork_and_a_rewound_checkpoint_do_again_what_came_behind_their_batch(
    quorum: LocalQuorum, client: Client, tmp_path: Path, provider: str
) -> None:
    pipeline = f"forked-{provider.lower().replace(':', '-')}"
    main, fork, renamed = (f"raftlake://{pipeline}/{name}" for name in ("main", "fork", "renamed"))
    checkpoints = Checkpoints(client)
    files = tmp_path / "input"
    files.mkdir()
    for number, words in enumerate(("a b a", "b c", "c c d", "a", "d e")):
        write(files, f"{number}.txt", words)
    first = run_job(quorum, provider, tmp_path, main)
    assert first[main]["batches"] == [0, 1, 2, 3, 4]
    # The bytes that Spark's file system wrote, and ours, are of one format.
    for entry in client.kv.list(f"/fs/{pipeline}/main/", limit=1000, values=True).entries:
        assert entry.value is not None
        assert Node.decode(entry.key, entry.value).encode() == entry.value

    query = checkpoints.show(main)["query"]
    assert checkpoints.fork(main, fork, batch=2).query != query
    assert checkpoints.rewind(main, 2).files > 0
    assert checkpoints.rename(main, renamed).query == query
    again = run_job(quorum, provider, tmp_path, fork, renamed)
    assert again[fork] == again[renamed]
    # The source of files remembers what it has listed, and gives it as one batch.
    assert again[fork]["batches"] == [3]
    assert again[fork]["counts"] == first[main]["counts"]
    assert {row["path"] for row in checkpoints.list(f"raftlake://{pipeline}")} == {fork, renamed}


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def test_a_query_that_runs_is_stopped_by_a_rewind(
    quorum: LocalQuorum, client: Client, tmp_path: Path, drivers: list[Driver]
) -> None:
    location = "raftlake://rewound/main"
    source = tmp_path / "input"
    source.mkdir()
    expected: Counter[str] = Counter()

    def start(name: str) -> Driver:
        drivers.append(Driver(quorum, "RocksDBStateStoreProvider", location, source, tmp_path / name))
        return drivers[-1]

    for number in range(8):
        words = ["all", f"word{number % 3}"]
        write(source, f"{number}.txt", " ".join(words))
        expected.update(words)
    running = start("running")
    wait_until(lambda: len(running.batches) >= 4, "four batches of the driver", 180)
    changed = Checkpoints(client).rewind(location, 1)
    assert changed.owner is not None and changed.owner.run == running.text("run")
    write(source, "8.txt", "all")
    expected.update(["all"])
    wait_until(lambda: running.text("error") is not None, "the end of the driver", 120)
    error = running.text("error")
    assert error and "no longer owns this checkpoint" in error, error
    assert f"The owner is run `raftlake checkpoints rewind {location} --batch 1`" in error, error

    # While a command is under way nothing starts, and Spark shows why.
    metadata = Location.parse(location).below("metadata").key
    entry = client.kv.get(metadata)
    assert entry is not None and entry.value is not None
    mark = Mark("rewind", f"raftlake checkpoints rewind {location} --batch 1", changed.query)
    client.kv.put(metadata, Node.inline(0, mark.encode()).encode())
    refused = start("refused")
    wait_until(lambda: refused.process.poll() is not None, "the end of the driver that starts on a mark", 120)
    assert refused.process.returncode != 0
    assert "broken off: rewind, repeat it" in (refused.text("output") or "")
    client.kv.put(metadata, entry.value)

    again = start("again")
    wait_until(lambda: bool(again.batches) and again.batches[-1][1].get("all") == 9, "all files in the new run", 180)
    assert again.batches[0][0] == 2
    assert again.batches[-1][1] == dict(expected)
    (again.directory / "stop").touch()
    wait_until(lambda: again.text("error") == "", "the end of the new run", 60)
