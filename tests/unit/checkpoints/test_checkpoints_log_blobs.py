"""Large files in the quorum itself: names, chunks, others that write between them, what is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import MemoryKv, MemoryLogs
from raftlake.checkpoints import changes, copies
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import CHUNK_BYTES, TOPIC, BlobName, LogBlobs
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WrongState

MAIN, FORK = Location.parse("raftlake://orders/main"), Location.parse("raftlake://trial/fork")
CONTENT = bytes(number % 251 for number in range(2 * CHUNK_BYTES + 3))


@pytest.mark.parametrize("text", ["quorum:__raftlake-blobs/3/64x9/a-b", "quorum:t/0/5-7/3x10/id", "quorum:t/0/5-9/3x10/id"])
def test_a_name_comes_back_as_it_was(text: str) -> None:
    name = BlobName.parse(text)
    assert name is not None
    assert str(name) == text


@pytest.mark.parametrize(
    "text", ["file:/a/b", "quorum:t/0/5-7/3x0/id", "quorum:t/x/3x10/id", "quorum:t/0/3x10/", "quorum:t/0/x"]
)
def test_what_is_no_name(text: str) -> None:
    assert BlobName.parse(text) is None
    with pytest.raises(WrongState, match="names no blob that was written"):
        LogBlobs(MemoryLogs()).read(text)


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, CHUNK_BYTES + 1, len(CONTENT)])
@pytest.mark.parametrize("others_write", [False, True])
def test_a_blob_is_read_as_it_was_written(size: int, others_write: bool) -> None:
    logs = MemoryLogs(others_write=others_write)
    blobs = LogBlobs(logs)
    uri = blobs.write(blobs.name("an-id", size), CONTENT[:size])
    assert blobs.read(uri) == CONTENT[:size]
    name = BlobName.parse(uri)
    assert name is not None and name.chunks == -(-size // CHUNK_BYTES)
    assert name.is_contiguous == (not others_write or name.chunks == 1)


def test_an_append_whose_offset_is_forgotten_is_made_again() -> None:
    logs = MemoryLogs(forgets=1)
    blobs = LogBlobs(logs)
    assert blobs.read(blobs.write(blobs.name("an-id", len(CONTENT)), CONTENT)) == CONTENT
    logs.forgets = 99
    with pytest.raises(UnknownOutcome, match="at offsets that no node remembers"):
        blobs.write(blobs.name("another", 5), b"12345")


@pytest.mark.parametrize("others_write", [False, True])
def test_a_deleted_blob_leaves_no_record(others_write: bool) -> None:
    logs = MemoryLogs(others_write=others_write)
    blobs = LogBlobs(logs)
    uri = blobs.write(blobs.name("an-id", len(CONTENT)), CONTENT)
    assert blobs.delete(uri)
    (log,) = [records for records in logs.records.values() if records]
    gone = {record.key for record in log if record.value is None}
    assert {record.key for record in log if record.key != b"other/0"} == gone
    with pytest.raises(WrongState, match=r"is not at offset \d+ of __raftlake-blobs-\d: it was removed"):
        blobs.read(uri)
    assert not blobs.delete("file:/a/b")


def test_a_topic_that_is_gone_is_told() -> None:
    class Gone(MemoryLogs):
        def read(self, *arguments: object, **named: object) -> list[object]:  # type: ignore[override]
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")

    with pytest.raises(WrongState, match=r"id/0 is not at offset 5 of t-0: .*no such topic"):
        LogBlobs(Gone()).read("quorum:t/0/5-5/1x10/id")


def test_a_read_that_failed_tells_nothing_about_a_blob() -> None:
    class Slow(MemoryLogs):
        def read(self, *arguments: object, **named: object) -> list[object]:  # type: ignore[override]
            raise RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "t-0 at 5: not read from the tier in time")

    with pytest.raises(RequestRejected, match="t-0 at 5: not read from the tier in time"):
        LogBlobs(Slow()).read("quorum:t/0/5-5/1x10/id")


def test_large_files_are_copied_within_the_quorum(tmp_path: Path) -> None:
    kv = MemoryKv()
    directory = kit.to_directory(kit.stateful(2) | {"state/0/0/large": CONTENT}, tmp_path / "in")
    copies.import_(kit.tools(kv), directory, MAIN, None, "told")
    copies.fork(kit.tools(kv), MAIN, FORK, None, None, "told")
    found = [kit.tools(kv).read(root).files["state/0/0/large"] for root in (MAIN, FORK)]
    assert len({each.node.uri for each in found}) == 2
    assert kit.read(kv, str(FORK))["state/0/0/large"] == CONTENT
    assert not kv.names("/fs-blobs/")
    changes.delete(kit.tools(kv), MAIN, "told", lambda prefix: None)
    assert not kv.names("/fs-blobs/")
    assert kit.read(kv, str(FORK))["state/0/0/large"] == CONTENT
    copies.export(kit.tools(kv), FORK, tmp_path / "out")
    assert (tmp_path / "out/state/0/0/large").read_bytes() == CONTENT
    with pytest.raises(WrongState, match="it was removed"):
        kit.tools(kv).blobs().content(MAIN, found[0].node)


def test_a_blob_is_announced_before_it_is_written(tmp_path: Path) -> None:
    kv = MemoryKv()
    logs = kit.logs(kv)
    seen: list[int] = []
    kv.before = lambda number: seen.append(sum(map(len, logs.records.values())))
    _, intent, _ = kit.tools(kv).blobs().write(MAIN.below("large"), CONTENT)
    assert seen == [0]
    entry = kv.get(intent)
    assert entry is not None
    name = BlobName.parse(json.loads(entry.value or b"")["where"])
    assert name is not None and (name.topic, name.first, name.chunks) == (TOPIC, -1, 3)
