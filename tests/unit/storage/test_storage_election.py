"""quorum-state files: Kafka's exact text in both versions, and no way to read a damaged one."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.storage import files
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore, decode, encode
from raftlake.storage.partition import parse_uuid

GROUP = GroupId("orders", 0, bytes(range(16)))
#: Both lines were written by Kafka 4.3.1.
KAFKA_0 = (
    '{"clusterId":"","leaderId":2,"leaderEpoch":6,"votedId":2,"appliedOffset":0,'
    '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
KAFKA_1 = '{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'
STATE_0 = ElectionState(Epoch(6), NodeId(2), ReplicaKey(NodeId(2)))
STATE_1 = ElectionState(Epoch(2), None, ReplicaKey(NodeId(1), DirectoryId(parse_uuid("J8aAPcfLQt2bqs1JT_rMgQ"))))


@pytest.mark.parametrize(("text", "state"), [(KAFKA_0, STATE_0), (KAFKA_1, STATE_1)])
def test_the_text_is_kafkas(text: str, state: ElectionState) -> None:
    assert encode(state, [NodeId(1), NodeId(2)]).decode() == text
    assert decode(text.encode()) == state


def test_no_leader_and_no_vote_are_minus_one() -> None:
    fields = json.loads(encode(ElectionState(Epoch(3)), []))
    assert (fields["leaderId"], fields["votedId"], fields["data_version"]) == (-1, -1, 0)


def with_field(name: str, value: object) -> bytes:
    return json.dumps({**json.loads(KAFKA_1), name: value}).encode()


DAMAGED = {
    "empty": b"",
    "zeros": bytes(100),
    "no object": b"[]",
    "cut": KAFKA_1[:-1].encode(),
    "not text": b"\xff\xfe" + KAFKA_1.encode(),
    "version": with_field("data_version", 2),
    "version is a truth value": with_field("data_version", True),
    "epoch": with_field("leaderEpoch", -1),
    "epoch is text": with_field("leaderEpoch", "2"),
    "epoch too large": with_field("leaderEpoch", 1 << 31),
    "leader": with_field("leaderId", -2),
    "vote": with_field("votedId", None),
    "directory": with_field("votedDirectoryId", "short"),
    "no directory": with_field("votedDirectoryId", None),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_never_epoch_zero(tmp_path: Path, data: bytes) -> None:
    store = FileElectionStore(tmp_path, filed=GROUP.topic)
    store.save({GROUP: STATE_1})
    path = tmp_path / "orders-0" / "quorum-state"
    path.write_bytes(data)
    with pytest.raises(StorageError, match=f"{path} is damaged"):
        store.load(GROUP)


def test_a_field_that_is_missing_is_damage() -> None:
    for name in json.loads(KAFKA_1):
        fields = json.loads(KAFKA_1)
        del fields[name]
        with pytest.raises(ValueError, match=name):
            decode(json.dumps(fields).encode())


def test_a_failed_sync_fails_the_save_and_keeps_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileElectionStore(tmp_path, filed=GROUP.topic)
    store.save({GROUP: STATE_0})

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.files.sync_descriptor", fail)
        with pytest.raises(StorageError, match=r"quorum-state: Input/output error \(EIO\)"):
            store.save({GROUP: STATE_1})
    assert store.load(GROUP) == STATE_0
    store.close()


def test_the_file_is_synced_before_it_is_renamed_and_then_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileElectionStore(tmp_path, filed=GROUP.topic)
    store.save({GROUP: STATE_0})
    steps: list[str] = []
    real_write, real_rename, real_sync = files.write_file, os.rename, files.sync_descriptor

    def write(path: Path, data: bytes, *, sync: bool) -> None:
        steps.append("write")
        real_write(path, data, sync=sync)

    def rename(source: Path, target: Path) -> None:
        steps.append("rename")
        real_rename(source, target)

    def sync_descriptor(descriptor: int) -> None:
        steps.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_sync(descriptor)

    monkeypatch.setattr(files, "write_file", write)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(files, "sync_descriptor", sync_descriptor)
    store.save({GROUP: STATE_1})
    assert steps == ["write", "sync file", "rename", "sync directory"]


def test_a_missing_file_is_never_epoch_zero(tmp_path: Path) -> None:
    """A partition's directory is made with one, so it was there."""
    store = FileElectionStore(tmp_path, filed=GROUP.topic)
    assert store.load(GROUP) is None, "nor is the directory there"
    directory = FileLogDirectory(tmp_path, post=None)
    directory.open(GROUP)
    directory.abandon()
    assert store.load(GROUP) == ElectionState()
    (tmp_path / "orders-0" / "quorum-state").unlink()
    with pytest.raises(StorageError, match=r"quorum-state is missing.*vote twice.*raftlake format"):
        store.load(GROUP)


def test_no_bit_of_the_file_can_flip_unseen(tmp_path: Path) -> None:
    store = FileElectionStore(tmp_path, filed=GROUP.topic)
    store.save({GROUP: STATE_1})
    path = tmp_path / "orders-0" / "quorum-state"
    whole = path.read_bytes()
    assert whole.split(b"\n")[0] == KAFKA_1.encode(), "Kafka reads the first line"
    for byte in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1 << bit]) + whole[byte + 1 :])
            with pytest.raises(StorageError, match="quorum-state is damaged"):
                store.load(GROUP)
    path.write_bytes(KAFKA_1.encode())
    assert store.load(GROUP) == STATE_1, "written by Kafka"
