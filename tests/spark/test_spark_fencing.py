"""Two drivers run one query on one `raftlake://` checkpoint: the older one stops, and writes nothing after the takeover."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkpointjobs import Driver

from raftlake.checkpoints import Checkpoints
from sparkkit import rare
from waitkit import wait_until

if TYPE_CHECKING:
    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

FILES = 24
FILES_BEFORE = 6


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


@pytest.mark.parametrize(
    ("provider", "is_paused"),
    [("RocksDBStateStoreProvider", False), rare("HDFSBackedStateStoreProvider", True), ("QuorumStateStoreProvider", True)],
)
def test_the_older_of_two_drivers_is_fenced(
    quorum: LocalQuorum, client: Client, tmp_path: Path, drivers: list[Driver], provider: str, is_paused: bool
) -> None:
    pipeline = f"fenced-{provider.lower()}"
    source = tmp_path / "input"
    source.mkdir()
    expected: Counter[str] = Counter()

    def put_files(numbers: range) -> None:
        for number in numbers:
            words = ["all", f"word{number % 5}"]
            (source / f"{number:03}.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
            expected.update(words)

    def start(name: str) -> Driver:
        drivers.append(Driver(quorum, provider, f"raftlake://{pipeline}/main", source, tmp_path / name))
        return drivers[-1]

    put_files(range(FILES_BEFORE))
    older = start("older")
    wait_until(lambda: len(older.batches) >= 3, "three batches of the older driver", 120)
    if is_paused:
        older.signal(signal.SIGSTOP)
    newer = start("newer")
    wait_until(lambda: owner(client, pipeline)["run"] == newer.text("run"), "the newer driver to take the checkpoint", 120)
    # Both see the rest of the input.
    put_files(range(FILES_BEFORE, FILES))
    wait_until(lambda: len(newer.batches) >= 2, "two batches of the newer driver", 120)
    if is_paused:
        older.signal(signal.SIGCONT)
    wait_until(lambda: older.text("error") is not None, "the end of the older driver", 120)
    error, newer_run = older.text("error"), newer.text("run")
    assert error and newer_run
    assert "no longer owns this checkpoint" in error and f"The owner is run {newer_run} on host " in error, error
    assert f"process {owner(client, pipeline)['pid']}" in error
    wait_until(lambda: bool(newer.batches) and newer.batches[-1][1].get("all") == FILES, "all files in the newer driver", 120)
    assert newer.batches[-1][1] == dict(expected)
    (newer.directory / "stop").touch()
    wait_until(lambda: newer.text("error") is not None, "the end of the newer driver", 60)
    assert newer.text("error") == ""
    numbers = [number for number, _ in newer.batches]
    ends = file_offsets(client, pipeline)
    assert numbers == list(range(numbers[0], len(ends)))
    assert [counts["all"] for _, counts in newer.batches] == [end + 1 for end in ends[numbers[0] :]]
    # One file a batch. An older driver that ended between the log of its source and its offsets left a file there: Spark's next
    # batch, which is the first of the newer driver, takes that file beside its own.
    steps = [end - before for before, end in pairwise([-1, *ends])]
    assert steps.pop(numbers[0]) in (1, 2) and set(steps) == {1}
    # At most the batch that was under way is seen twice.
    assert numbers[0] in (older.batches[-1][0], older.batches[-1][0] + 1)


def file_offsets(client: Client, pipeline: str) -> list[int]:
    """By batch: the number of the last file, from 0, as the checkpoint has it."""
    batches = Checkpoints(client).show(f"raftlake://{pipeline}/main")["batches"]
    assert [each["batch"] for each in batches] == list(range(len(batches)))
    return [int(each["offsets"]["0"]["logOffset"]) for each in batches]


def owner(client: Client, pipeline: str) -> dict[str, Any]:
    entry = client.kv.get(f"/fs-owner/{pipeline}/main")
    assert entry is not None
    return dict(json.loads(entry.value))
