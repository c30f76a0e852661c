"""`election-states`: one sync for the election states of many groups; torn ends, damage, growth."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.file_faults import without_sync
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.storage import election_journal, files
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FILE_NAME, FileElectionStore
from raftlake.storage.partition import ensure_partition

GROUPS = [GroupId("many", number, bytes(range(16))) for number in range(8)]
METADATA = GroupId("__cluster_metadata", 0, bytes(15) + b"\x01")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


def at_epoch(epoch: int) -> ElectionState:
    return ElectionState(epoch=Epoch(epoch), leader_id=NodeId(1))


def saved(root: Path, *epochs: int) -> Path:
    """A directory in which all groups went through these epochs; the journal's path."""
    store = FileElectionStore(root)
    for epoch in epochs:
        store.save(dict.fromkeys(GROUPS, at_epoch(epoch)))
    store.close()
    return root / election_journal.FILE_NAME


def epochs_in(root: Path) -> set[int | None]:
    store = FileElectionStore(root)
    try:
        return {None if (state := store.load(group)) is None else int(state.epoch) for group in GROUPS}
    finally:
        store.close()


def lines_of(path: Path) -> bytes:
    """What counts of the file: without the reserve."""
    return path.read_bytes().rstrip(b"\0")


def test_many_states_are_one_line_and_leave_no_old_file(tmp_path: Path) -> None:
    ensure_partition(tmp_path, GROUPS[0])
    assert (tmp_path / str(GROUPS[0]) / FILE_NAME).exists()
    store = FileElectionStore(tmp_path)
    store.save(dict.fromkeys([*GROUPS, METADATA], at_epoch(2)))
    store.close()
    assert (tmp_path / election_journal.FILE_NAME).read_bytes().count(b"\n") == 1
    assert not (tmp_path / str(GROUPS[0]) / FILE_NAME).exists()
    assert (tmp_path / str(METADATA) / FILE_NAME).exists(), "Kafka's tools read the metadata log's file"


def test_the_quorums_own_log_keeps_its_file_whatever_it_is_called(tmp_path: Path) -> None:
    store = FileElectionStore(tmp_path, filed=GROUPS[0].topic)
    store.save(dict.fromkeys(GROUPS[:1], at_epoch(1)))
    store.close()
    assert not (tmp_path / election_journal.FILE_NAME).exists()
    assert epochs_in(tmp_path) >= {1}


def test_a_state_that_an_older_version_left_in_a_file_counts_until_the_next_election(tmp_path: Path) -> None:
    older = FileElectionStore(tmp_path, filed=GROUPS[0].topic)
    older.save(dict.fromkeys(GROUPS, at_epoch(3)))
    older.close()
    assert epochs_in(tmp_path) == {3}
    saved(tmp_path, 4)
    assert epochs_in(tmp_path) == {4}
    assert not (tmp_path / str(GROUPS[0]) / FILE_NAME).exists()


def test_appends_change_no_size_until_the_reserve_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_journal, "RESERVE_BYTES", 4096)
    sizes = [saved(tmp_path, epoch).stat().st_size for epoch in range(1, 30)]
    assert sizes == sorted(sizes)
    assert 2 <= len(set(sizes)) <= 10
    assert epochs_in(tmp_path) == {29}


def texts_at(root: Path) -> tuple[bytes, bytes]:
    return lines_of(root / election_journal.FILE_NAME), lines_of(root / election_journal.COPY_NAME)


@pytest.mark.parametrize("cut", [1, 10, 200])
@pytest.mark.parametrize("reserve", [b"", bytes(1000)])
def test_what_a_crash_tears_never_was(tmp_path: Path, cut: int, reserve: bytes) -> None:
    """The file is written and synced before its copy: while it is, the copy ends with what was told."""
    path = saved(tmp_path, 1)
    first = lines_of(path)
    second = lines_of(saved(tmp_path, 2))
    path.write_bytes(second[:-cut] + reserve)
    (tmp_path / election_journal.COPY_NAME).write_bytes(first + reserve)
    assert epochs_in(tmp_path) == {1}
    assert texts_at(tmp_path) == (first, first), "what is cut must not stand behind the next append"


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_copy_that_a_crash_has_torn_is_made_anew(tmp_path: Path, cut: int) -> None:
    path = saved(tmp_path, 1, 2)
    copy = tmp_path / election_journal.COPY_NAME
    copy.write_bytes(lines_of(copy)[:-cut] + bytes(1000))
    assert epochs_in(tmp_path) == {2}
    assert lines_of(path) == lines_of(copy)


def test_the_first_save_of_all_may_be_torn(tmp_path: Path) -> None:
    """Before there is a copy nobody was told of anything: what the directories were made with counts."""
    for group in GROUPS:
        ensure_partition(tmp_path, group)
    (tmp_path / election_journal.FILE_NAME).write_bytes(b"01234567 [{" + bytes(1000))
    assert epochs_in(tmp_path) == {0}
    saved(tmp_path, 5)
    assert epochs_in(tmp_path) == {5}


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first line": flip(50),
    "its checksum": flip(0),
    "last line": lambda data: flip(len(data.rstrip(b"\0")) - 20)(data),
    "last newline": lambda data: flip(len(data.rstrip(b"\0")) - 1)(data),
    "newline before": lambda data: flip(data.index(b"\n"))(data),
    "cut in the last line": lambda data: data.rstrip(b"\0")[:-30],
    "cut at a line's end": lambda data: data[: data.index(b"\n") + 1],
    "last line zeroed": lambda data: data[: data.index(b"\n") + 1].ljust(len(data), b"\0"),
    "half of it": lambda data: data.rstrip(b"\0")[: len(data.rstrip(b"\0")) // 2],
    "zeroed": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "garbage behind": lambda data: data.rstrip(b"\0") + b"garbage\n" + bytes(100),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [election_journal.FILE_NAME, election_journal.COPY_NAME])
def test_one_of_the_two_may_be_damaged_in_any_way(tmp_path: Path, name: str, damage: str) -> None:
    """Where the last line was taken for torn, a vote that had been answered was given a second time."""
    saved(tmp_path, 1, 2)
    path = tmp_path / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert epochs_in(tmp_path) == {2}
    first, second = texts_at(tmp_path)
    assert first == second


@pytest.mark.parametrize("name", [election_journal.FILE_NAME, election_journal.COPY_NAME])
def test_one_of_the_two_may_be_lost(tmp_path: Path, name: str) -> None:
    saved(tmp_path, 1, 2)
    (tmp_path / name).unlink()
    store = FileElectionStore(tmp_path)
    assert store.repaired == f"{tmp_path / name} is missing"
    store.close()
    assert epochs_in(tmp_path) == {2}
    first, second = texts_at(tmp_path)
    assert first == second


def test_damage_in_both_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, 1, 2)
    path.write_bytes(flip(50)(path.read_bytes()))
    copy = tmp_path / election_journal.COPY_NAME
    copy.write_bytes(DAMAGES["last line"](copy.read_bytes()))
    told = r"election-states is damaged at byte 0.*-copy is damaged at byte \d\d+.*vote twice.*format"
    with pytest.raises(StorageError, match=told):
        FileElectionStore(tmp_path)


def test_a_file_of_another_node_is_noticed_by_its_votes(tmp_path: Path) -> None:
    for node in (1, 2):
        (tmp_path / str(node)).mkdir()
        store = FileElectionStore(tmp_path / str(node))
        store.save({GROUPS[0]: ElectionState(Epoch(7), None, ReplicaKey(NodeId(node)))})
        store.close()
    foreign = (tmp_path / "2" / election_journal.FILE_NAME).read_bytes()
    (tmp_path / "1" / election_journal.FILE_NAME).write_bytes(foreign)
    with pytest.raises(StorageError, match="two votes for many-0 in epoch 7"):
        FileElectionStore(tmp_path / "1")


def test_a_lost_journal_is_noticed_beside_a_used_log(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    path.unlink()
    (tmp_path / election_journal.COPY_NAME).unlink()
    with pytest.raises(StorageError, match=r"quorum-state is missing, and .*election-states has no state of many-0"):
        epochs_in(tmp_path)


def test_a_failed_sync_fails_the_save_and_keeps_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1)
    store = FileElectionStore(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(election_journal, "sync_data", fail)
        with pytest.raises(StorageError, match=r"election-states at byte \d+: Input/output error \(EIO\)"):
            store.save(dict.fromkeys(GROUPS, at_epoch(2)))
    assert {int(state.epoch) for group in GROUPS if (state := store.load(group)) is not None} == {1}
    store.close()


@pytest.mark.parametrize("which", [0, 1], ids=["in the first file", "in the copy"])
@pytest.mark.parametrize("is_reserved", [False, True], ids=["at the end of the file", "in the reserve"])
def test_a_line_without_room_leaves_nothing_behind_a_shorter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, is_reserved: bool
) -> None:
    """A start took the rest of it for damage."""
    if not is_reserved:
        monkeypatch.setattr(election_journal, "RESERVE_BYTES", 0)
    saved(tmp_path, 1, 2)
    store = FileElectionStore(tmp_path)
    store.save(dict.fromkeys(GROUPS, at_epoch(3)))
    calls = iter(range(10))
    write_at = election_journal.write_at

    def tear(descriptor: int, chunks: list[bytes], position: int, size: int) -> None:
        if next(calls) < which:
            write_at(descriptor, chunks, position, size)
            return
        write_at(descriptor, [chunks[0][:-10]], position, len(chunks[0]) - 10)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(election_journal, "write_at", tear)
        with pytest.raises(DiskFull):
            store.save(dict.fromkeys(GROUPS, at_epoch(4)))
    assert {int(state.epoch) for group in GROUPS if (state := store.load(group)) is not None} == {3}
    store.save({GROUPS[0]: at_epoch(5)})
    store.close()
    again = FileElectionStore(tmp_path)
    assert again._journal.repaired is None
    epochs = [None if (state := again.load(group)) is None else int(state.epoch) for group in GROUPS]
    again.close()
    # What the first file has whole counts: a vote that is known and was not told does no harm.
    assert epochs == [5] + [3 if which == 0 else 4] * (len(GROUPS) - 1)


def test_the_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_journal, "COMPACT_BYTES_MIN", 4096)
    monkeypatch.setattr(election_journal, "RESERVE_BYTES", 1024)
    path = saved(tmp_path, *range(1, 100))
    assert path.stat().st_size < 16_384
    assert epochs_in(tmp_path) == {99}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_rewrite_without_a_descriptor_leaves_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The file was replaced and the next line written where the old one ended. Later damage to the copy ended every start."""
    monkeypatch.setattr(election_journal, "COMPACT_BYTES_MIN", 4096)
    monkeypatch.setattr(election_journal, "RESERVE_BYTES", 1024)
    open_file, refused = files.open_file, []

    def refuse(path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_DIRECTORY:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        return open_file(path, flags, mode)

    store = FileElectionStore(tmp_path)
    epoch = 1
    store.save(dict.fromkeys(GROUPS, at_epoch(epoch)))
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", refuse)
        while len(refused) < 2 and epoch < 200:
            epoch += 1
            store.save(dict.fromkeys(GROUPS, at_epoch(epoch)))
    assert refused, "it was to be rewritten"
    sizes = [(tmp_path / name).stat().st_size for name in (election_journal.FILE_NAME, election_journal.COPY_NAME)]
    for further in range(1, 3):
        store.save(dict.fromkeys(GROUPS, at_epoch(epoch + further)))
        again = FileElectionStore(tmp_path)
        assert again.repaired is None
        again.close()
    store.close()
    path = tmp_path / election_journal.FILE_NAME
    assert path.stat().st_size < sizes[0], "it is rewritten once a descriptor is there"
    (tmp_path / election_journal.COPY_NAME).write_bytes(b"torn")
    assert epochs_in(tmp_path) == {epoch + 2}


def test_deleted_groups_are_dropped_at_the_next_start(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    logs = FileLogDirectory(tmp_path, post=None)
    logs.delete([GROUPS[0]])
    logs.close()
    size = path.stat().st_size
    assert epochs_in(tmp_path) == {1, None}
    assert path.stat().st_size < size


def test_another_incarnation_of_a_topic_begins_without_a_state(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    logs = FileLogDirectory(tmp_path, post=None)
    logs.delete([GROUPS[0]])
    reborn = GroupId(GROUPS[0].topic, GROUPS[0].partition, bytes(range(1, 17)))
    ensure_partition(tmp_path, reborn)
    store = FileElectionStore(tmp_path)
    assert store.load(reborn) == ElectionState()
    store.close()
    logs.close()
