"""The text of every kind of file, damaged ones included."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.batches import fill, make_batch
from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.dump import dump
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import MetaProperties, write_meta
from raftlake.wire.aborted_index import AbortedTransaction, encode
from raftlake.wire.batches import Record, build_batch, leader_change_batch
from transactionkit import marker_batch


def segment(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    return path


def test_a_batch_is_one_line_in_kafkas_words(tmp_path: Path) -> None:
    data = build_batch(
        [Record(value=b"a"), Record(value=b"b")],
        base_offset=7,
        leader_epoch=3,
        timestamp_ms=1_000,
        compression="gzip",
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
    )
    (line,) = dump(segment(tmp_path, bytes(data)))
    crc = int.from_bytes(data[17:21], "big")
    assert line == (
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: 40 lastSequence: 41 producerId: 9 producerEpoch: 2 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false position: 0 CreateTime: 1000 "
        f"size: {len(data)} magic: 2 compresscodec: gzip crc: {crc} isvalid: true"
    )


def test_records_are_shown_when_asked_for(tmp_path: Path) -> None:
    data = build_batch(
        [Record(key=b"k", value=b"v", headers=(("h", b"\xff"),)), Record(value=b"x" * 300), Record(key=b"a\nb")], timestamp_ms=5
    )
    path = segment(tmp_path, bytes(data))
    assert len(list(dump(path))) == 1
    _, *lines = dump(path, records=True)
    assert lines == [
        "| offset: 0 timestamp: 5 key: k value: v headers: h=0xff",
        f"| offset: 1 timestamp: 5 key: null value: {'x' * 200}... (300 bytes)",
        "| offset: 2 timestamp: 5 key: 'a\\nb' value: null",
    ]


def test_control_records_say_what_they_are(tmp_path: Path) -> None:
    path = segment(tmp_path, leader_change_batch(0, 4, 1, 2, [1, 2, 3], [2, 3]))
    header, record = dump(path, records=True)
    assert "isControl: true" in header
    assert "LeaderChange(leader_id=2, voters=(1, 2, 3), granting_voters=(2, 3))" in record


@pytest.mark.parametrize(("commit", "word"), [(False, "ABORT"), (True, "COMMIT")])
def test_a_marker_is_shown_in_kafkas_words(tmp_path: Path, commit: bool, word: str) -> None:
    data = bytes(marker_batch(7, commit=commit, base_offset=4))
    header, record = dump(segment(tmp_path, data), records=True)
    assert "isTransactional: true isControl: true" in header
    assert record == f"| offset: 4 timestamp: 1 endTxnMarker: {word} coordinatorEpoch: 3"


def test_aborted_transactions_are_lines_in_kafkas_words(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000010.txnindex"
    entries = encode([AbortedTransaction(1, 10, 20, 5), AbortedTransaction(2, 5, 30, 31)])
    first = "version: 0 producerId: 1 firstOffset: 10 lastOffset: 20 lastStableOffset: 5"
    path.write_bytes(entries)
    assert list(dump(path)) == [first, "version: 0 producerId: 2 firstOffset: 5 lastOffset: 30 lastStableOffset: 31"]
    path.write_bytes(entries[:40])
    assert list(dump(path)) == [first, f"damaged: {path}: 6 bytes behind the last whole entry"]
    path.write_bytes(entries[:34] + bytes(34))
    assert [line.partition(":")[0] for line in dump(path)] == ["version", "damaged"]


def test_damage_is_a_line_of_the_output(tmp_path: Path) -> None:
    first, second = make_batch(0)[0], bytearray(make_batch(1)[0])
    second[-1] ^= 1
    path = segment(tmp_path, first + bytes(second) + b"garbage")
    lines = list(dump(path, records=True))
    assert [line[-13:] for line in (lines[0], lines[2])] == ["isvalid: true", "svalid: false"]
    assert lines[3:-1] == [f"damaged: {path} at byte {len(first)}: the CRC of the batch is wrong"]
    assert [line for line in dump(path) if line.startswith("damaged")] == lines[3:], "also without the records"
    assert lines[-1] == f"damaged: {path} is damaged at byte {len(first) + len(second)} (offset 2): 7 bytes are no batch"
    assert list(dump(segment(tmp_path, first + bytes(99))))[-1] == f"99 zero bytes from position {len(first)} on"


def test_a_payload_that_does_not_decode_is_a_line_of_the_output(tmp_path: Path) -> None:
    from crc32c import crc32c

    data = bytearray(make_batch(0)[0])
    data[61] = 0x7F
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    _, line = dump(segment(tmp_path, bytes(data)), records=True)
    assert line.startswith("| damaged: ")


def test_the_files_of_a_log(tmp_path: Path) -> None:
    directory = FileLogDirectory(tmp_path, post=None)
    log = directory.open(GroupId("a", 0, bytes(15) + b"\x01"))
    size = fill(log, 30, epoch=1)[0][1].size
    fill(log, 1, epoch=4)
    directory.close()
    step = 4096 // size + 1
    stem = log.path / "00000000000000000000"
    assert next(dump(stem.with_suffix(".index"))) == f"offset: {step} position: {step * size}"
    assert next(dump(stem.with_suffix(".timeindex"))) == f"timestamp: {1_000 + step} offset: {step}"
    assert list(dump(log.path / "leader-epoch-checkpoint")) == [
        "leaderEpoch: 1 startOffset: 0",
        "leaderEpoch: 4 startOffset: 30",
    ]
    assert list(dump(log.path / "partition.metadata")) == ["version: 0", "topic_id: AAAAAAAAAAAAAAAAAAAAAQ"]
    assert len(list(dump(stem.with_suffix(".log")))) == 31


def test_election_states_of_partitions(tmp_path: Path) -> None:
    store = FileElectionStore(tmp_path)
    voted = ReplicaKey(NodeId(2))
    for number, state in enumerate((ElectionState(Epoch(3), NodeId(2), voted), ElectionState(Epoch(4)))):
        store.save({GroupId("a", number): state})
    store.close()
    path = tmp_path / "election-states"
    identity = "topicId: AAAAAAAAAAAAAAAAAAAAAA"
    lines = [
        f"a-0 {identity} leaderEpoch: 3 leaderId: 2 votedId: 2 votedDirectoryId: AAAAAAAAAAAAAAAAAAAAAA",
        f"a-1 {identity} leaderEpoch: 4 leaderId: none votedId: none",
    ]
    assert list(dump(path)) == lines
    path.write_bytes(path.read_bytes().replace(b"\n", b"X"))
    assert list(dump(path)) == ["torn or damaged at byte 0"]


def test_election_state_and_meta(tmp_path: Path) -> None:
    group = GroupId("a", 0)
    store = FileElectionStore(tmp_path, filed="a")
    store.save({group: ElectionState(Epoch(3), NodeId(2), ReplicaKey(NodeId(2)))})
    path = tmp_path / "a-0" / "quorum-state"
    assert list(dump(path)) == ["leaderEpoch: 3", "leaderId: 2", "votedId: 2", "votedDirectoryId: AAAAAAAAAAAAAAAAAAAAAA"]
    store.save({group: ElectionState(Epoch(4))})
    assert list(dump(path)) == ["leaderEpoch: 4", "leaderId: none", "votedId: none"]
    write_meta(tmp_path, MetaProperties(node_id=NodeId(1), directory_id=bytes(16)))  # type: ignore[arg-type]
    assert list(dump(tmp_path / "meta.properties")) == [
        "cluster.id: none",
        "node.id: 1",
        "directory.id: AAAAAAAAAAAAAAAAAAAAAA",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "quorum-state",
        "leader-epoch-checkpoint",
        "meta.properties",
        "partition.metadata",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    ],
)
def test_small_damaged_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\x00?")
    (line,) = dump(tmp_path / name)
    assert line.startswith("damaged: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n", ""),
        ("", "it is empty"),
        ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n", "version 1 is not 0"),
        ("version: 0\ntopic_id: AAAA\n", "AAAA"),
        ("version: 0\n", "damaged"),
        ("version 0\n", "damaged"),
    ],
)
def test_the_file_of_a_partition(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    lines = list(dump(path))
    if not told:
        assert lines == text.splitlines()
        return
    (line,) = lines
    assert line.startswith(f"damaged: {path} is damaged: ") and told in line


@pytest.mark.parametrize("name", ["notes.txt", "x.index", "missing.log"])
def test_what_cannot_be_dumped_is_named(tmp_path: Path, name: str) -> None:
    if name != "missing.log":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(StorageError, match=name):
        list(dump(tmp_path / name))


SNAPSHOT = "00000000000000000003-0000000001.checkpoint"


@pytest.mark.parametrize("name", ["00000000000000000000.log", SNAPSHOT, "00000000000000000000.index"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert list(dump(path)) == [f"{path} is empty"]
    path = segment(tmp_path, make_batch(0)[0])
    assert len(list(dump(path))) == 1 and "empty" not in next(dump(path))
