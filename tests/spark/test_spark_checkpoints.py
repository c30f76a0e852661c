"""Checkpoints at `raftlake://` through Spark's default file manager: the same as a local one, restarts included. Local ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from checkpointjobs import run_job, write

from sparkkit import session_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.spark

OUR_MANAGER = "io.raftlake.spark.QuorumCheckpointFileManager"
SPARKS_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.mark.parametrize("provider", ["RocksDBStateStoreProvider:2", "HDFSBackedStateStoreProvider:1"])
def test_a_stateful_query_goes_on_from_the_quorum(quorum: LocalQuorum, client: Client, tmp_path: Path, provider: str) -> None:
    pipeline = provider.lower().partition(":")[0]
    ours, local = f"raftlake://{pipeline}/main", str(tmp_path / "checkpoint")
    files = tmp_path / "input"
    files.mkdir()
    write(files, "1.txt", "a b a")
    write(files, "2.txt", "b c")
    first = run_job(quorum, provider, tmp_path, ours, local)
    assert first[ours]["counts"] == {"a": 2, "b": 2, "c": 1}
    assert first[ours] == first[local]
    write(files, "3.txt", "c c d")
    write(files, "4.txt", "a")
    again = run_job(quorum, provider, tmp_path, ours, local)
    # Only new batches ran, on the state of the old ones.
    assert again[ours]["counts"] == {"a": 3, "b": 2, "c": 3, "d": 1}
    assert again[ours] == again[local]
    assert not set(again[ours]["batches"]) & set(first[ours]["batches"])
    keys = [entry.key for entry in client.kv.list(f"/fs/{pipeline}/main/").entries]
    names = {key.removeprefix(f"/fs/{pipeline}/main/") for key in keys}
    assert {"metadata", "offsets/0", "commits/3", "offsets/3", "sources/0/0", "state/0/0"} <= names, names
    assert not [name for name in names if ".tmp" in name], "temporary files are left"


@pytest.mark.parametrize("provider", ["RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"])
def test_a_local_checkpoint_goes_on_under_both_file_managers(
    spark: SparkSession, quorum: LocalQuorum, tmp_path: Path, provider: str
) -> None:
    """Ours and Spark's default, which checks its `.crc` files, by turns: each reads what the other wrote."""
    files, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    files.mkdir()
    ends: list[dict[str, int]] = []
    for number, manager in enumerate((SPARKS_MANAGER, OUR_MANAGER, SPARKS_MANAGER, OUR_MANAGER, SPARKS_MANAGER)):
        write(files, f"{number}.txt", f"a b{number}")
        session = session_at(
            spark,
            quorum,
            f"org.apache.spark.sql.execution.streaming.state.{provider}",
            spark__sql__streaming__checkpointFileManagerClass=manager,
            spark__sql__streaming__stateStore__checkpointFormatVersion="1",
            spark__sql__streaming__stateStore__minDeltasForSnapshot="2",
        )
        words = session.readStream.text(str(files)).selectExpr("explode(split(value, ' ')) AS word")
        counts = words.groupBy("word").count().writeStream.outputMode("complete").format("memory").queryName("counts")
        counts.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination(120)
        ends.append({row["word"]: row["count"] for row in session.table("counts").collect()})
    assert [end["a"] for end in ends] == [1, 2, 3, 4, 5]
    assert ends[-1] == {"a": 5, **{f"b{number}": 1 for number in range(5)}}
    left = {path.name for path in checkpoint.rglob("*")}
    assert not [name for name in left if name.endswith(".tmp")], "temporary files are left"
