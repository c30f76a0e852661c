"""Small files as blobs: `raftlake.fs.inline.bytes` may be any number from 0 on, so that every file of a checkpoint is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import QUERY, Crash, MemoryKv
from raftlake.checkpoints import changes, copies, facts
from raftlake.checkpoints.blobs import INLINE_BYTES
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import TOPIC
from raftlake.checkpoints.mark import Mark
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.space import Change
from raftlake.errors import WrongState

MAIN, OTHER = "raftlake://orders/main", "raftlake://trial/deep/main"
OPERATOR_FILES = ("state/0/_metadata/v2/0", "state/0/_metadata/v2/3")
SCHEMA = "state/0/_stateSchema/default/0_1b6f"
FILES = kit.stateful(6, snapshots=(2, 4, 6)) | {SCHEMA: b"", "metadata": kit.metadata()}


def operator(root: str, padding: int = 0) -> bytes:
    info = {"storeName": "default", "stateSchemaFilePaths": [f"{root}/{SCHEMA}"], "padding": "x" * padding}
    return f"v2\n{json.dumps({'stateStoreInfo': [info]}, separators=(',', ':'))}".encode()


def put_blob(kv: MemoryKv, name: str, content: bytes, base: Path | None = None) -> None:
    """As a Spark job puts a file."""
    location = Location.parse(MAIN).below(name)
    tools = kit.tools(kv)
    node, intent, at = tools.blobs(None if base is None else f"file:{base}").write(location, content)
    kit.put(kv, location.key, node.encode())
    announced = Change()
    announced.delete(intent, at=at)
    tools.space.commit(announced)


def space(*blobs: str, base: Path | None = None, padding: int = 0) -> MemoryKv:
    """A checkpoint whose files `blobs` are blobs."""
    kv = MemoryKv()
    files = FILES | dict.fromkeys(OPERATOR_FILES, operator(MAIN, padding))
    kit.write(kv, MAIN, files)
    for name in blobs:
        put_blob(kv, name, files[name], base)
    kit.own(kv, MAIN)
    return kv


def rename(kv: MemoryKv) -> changes.Changed:
    told = f"raftlake checkpoints rename {MAIN} {OTHER}"
    return changes.rename(kit.tools(kv), Location.parse(MAIN), Location.parse(OTHER), told)


def rewind(kv: MemoryKv) -> changes.Changed:
    return changes.rewind(kit.tools(kv), Location.parse(MAIN), 3, f"raftlake checkpoints rewind {MAIN} --batch 3")


def delete(kv: MemoryKv) -> changes.Changed:
    return changes.delete(kit.tools(kv), Location.parse(MAIN), f"raftlake checkpoints delete {MAIN}", lambda prefix: None)


def chunks(kv: MemoryKv) -> int:
    """Chunks of blobs in the quorum that were not removed."""
    records = [record for (topic, _), log in kit.logs(kv).records.items() if topic == TOPIC for record in log]
    return len({record.key for record in records} - {record.key for record in records if record.value is None})


def renamed(padding: int = 0) -> dict[str, bytes]:
    return FILES | dict.fromkeys(OPERATOR_FILES, operator(OTHER, padding))


@pytest.mark.parametrize(
    "blobs", [OPERATOR_FILES[:1], OPERATOR_FILES[1:], OPERATOR_FILES, (*OPERATOR_FILES, SCHEMA, "metadata")]
)
def test_paths_in_metadata_of_operators_follow_a_rename(blobs: tuple[str, ...]) -> None:
    kv = space(*blobs)
    assert chunks(kv) == len(blobs)
    rename(kv)
    assert kit.read(kv, OTHER) == renamed()
    assert kv.names("/fs/orders/") == set()
    # The blob of a file that was moved as it is stays; those that nothing points to are gone.
    assert (chunks(kv), kv.names("/fs-blobs/")) == (int(SCHEMA in blobs), set())


def test_metadata_of_operators_without_paths_keeps_its_blob() -> None:
    kv = space()
    put_blob(kv, OPERATOR_FILES[0], b'v2\n{"stateStoreInfo":[]}')
    rename(kv)
    assert kit.read(kv, OTHER)[OPERATOR_FILES[0]] == b'v2\n{"stateStoreInfo":[]}'
    assert chunks(kv) == 1


@pytest.mark.parametrize("over", [0, 1])
def test_large_metadata_of_operators_is_a_blob_at_the_new_place_too(tmp_path: Path, over: int) -> None:
    padding = INLINE_BYTES - len(operator(OTHER)) + over
    kv = space(*OPERATOR_FILES, base=tmp_path, padding=padding)
    rename(kv)
    assert kit.read(kv, OTHER) == renamed(padding)
    moved = kv.get(Location.parse(OTHER).below(OPERATOR_FILES[0]).key)
    assert moved is not None and Node.decode(moved.key, moved.value or b"").is_blob is bool(over)
    # They go where those of the checkpoint are.
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2 * over
    assert kv.names("/fs-blobs/") == set() and chunks(kv) == 0


def test_a_rename_that_is_broken_off_anywhere_is_repeated() -> None:
    whole = space(*OPERATOR_FILES, "metadata")
    began = len(whole.transactions)
    rename(whole)
    for last in range(began, len(whole.transactions)):
        kv = space(*OPERATOR_FILES, "metadata")

        def crash(number: int, last: int = last) -> None:
            if number == last:
                raise Crash

        kv.before = crash
        with pytest.raises(Crash):
            rename(kv)
        kv.before = lambda number: None
        rename(kv)
        assert kit.read(kv, OTHER) == renamed()
        assert kv.names("/fs/orders/") == set()


def test_a_checkpoint_that_an_older_release_left_marked_at_both_places_is_renamed() -> None:
    """It read no blob, and stopped behind the marks: each repetition ended in the same error."""
    kv = space(*OPERATOR_FILES)
    mark = Mark("rename", f"raftlake checkpoints rename {MAIN} {OTHER}", QUERY, kit.metadata().decode())
    kit.write(kv, MAIN, {"metadata": mark.encode()})
    kit.write(kv, OTHER, {"metadata": mark.encode()})
    rename(kv)
    assert kit.read(kv, OTHER) == renamed()


def test_what_cannot_be_read_here_stops_a_rename_before_anything_is_marked() -> None:
    kv = space()
    far = Node.blob(kit.NOW_MS, "far", "s3a://bucket/orders/far", b"x")
    kit.put(kv, Location.parse(MAIN).below(OPERATOR_FILES[1]).key, far.encode())
    with pytest.raises(WrongState, match=r"_metadata/v2/3 has its content at s3a://bucket/orders/far"):
        rename(kv)
    assert kit.tools(kv).read(Location.parse(MAIN)).mark is None
    assert kv.names("/fs/trial/") == set()


# --- the file `metadata` ---------------------------------------------------------------------------------------------


def test_a_checkpoint_is_listed() -> None:
    kv = space("metadata")
    rows = facts.list_checkpoints(kit.tools(kv), None)
    assert [(row["path"], row["query"], row["lastBatch"]) for row in rows] == [(MAIN, QUERY, 5)]


@pytest.mark.parametrize("value", [Node.blob(0, "b", "s3a://bucket/orders/b", b"x").encode(), b"no node"])
def test_metadata_that_cannot_be_read_hides_no_other_checkpoint(value: bytes) -> None:
    kv = space()
    kit.write(kv, OTHER, kit.stateless(1))
    kit.put(kv, Location.parse(MAIN).below("metadata").key, value)
    assert [row["path"] for row in facts.list_checkpoints(kit.tools(kv), None)] == [OTHER]


@pytest.mark.parametrize("target", [f"{MAIN}/below", f"{MAIN}/a/b"])
def test_nothing_is_put_into_a_checkpoint(target: str) -> None:
    kv = space("metadata")
    kit.write(kv, OTHER, kit.stateless(1))
    with pytest.raises(WrongState, match=f"lies in the checkpoint {MAIN}"):
        copies.fork(kit.tools(kv), Location.parse(OTHER), Location.parse(target), None, None, "told")


@pytest.mark.parametrize("work", [rewind, rename, delete])
def test_the_mark_takes_the_place_of_the_blob(work: Callable[[MemoryKv], object]) -> None:
    kv = space("metadata")
    work(kv)
    left = kit.read(kv, OTHER if work is rename else MAIN)
    assert left.get("metadata") == (None if work is delete else kit.metadata())
    assert (chunks(kv), kv.names("/fs-blobs/")) == (0, set())
