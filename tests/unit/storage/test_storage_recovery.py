"""Opening logs after crashes: torn tails are cut, damage in the middle is refused, epochs come from the batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, fill, make_batch, read_all
from contract.file_faults import without_sync
from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage import recovery as recovery_module
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.log import FileLog

GROUP = GroupId("orders", 0, bytes(range(16)))
SEGMENT_BYTES = 2_000


class Node:
    """A data directory that is stopped and opened again."""

    def __init__(self, path: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.path = path
        self.segment_bytes = segment_bytes
        self.directory: FileLogDirectory | None = None

    @property
    def log_path(self) -> Path:
        return self.path / str(GROUP)

    def open(self) -> FileLog:
        self.directory = FileLogDirectory(self.path, segment_bytes=self.segment_bytes, post=None)
        return self.directory.open(GROUP)

    def kill(self) -> None:
        if self.directory is not None:
            self.directory.abandon()
            self.directory = None

    def segment_file(self, number: int) -> Path:
        return sorted(self.log_path.glob("*.log"))[number]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    without_sync(monkeypatch)
    made = Node(tmp_path)
    yield made
    made.kill()


def written(node: Node, count: int) -> list[Batch]:
    """A killed node whose log holds `count` batches."""
    batches = fill(node.open(), count)
    node.kill()
    return batches


def test_a_tail_torn_at_any_byte_is_cut(node: Node) -> None:
    node.segment_bytes = 1 << 20
    batches = written(node, 4)
    path = node.segment_file(0)
    whole = path.read_bytes()
    for size in range(len(data_of(batches[:3])) + 1, len(whole)):
        path.write_bytes(whole[:size])
        log = node.open()
        assert log.end_offset == 3
        assert path.stat().st_size == len(data_of(batches[:3]))
        assert read_all(log) == data_of(batches[:3])
        again = fill(log, 1)
        node.kill()
        assert path.read_bytes() == data_of([*batches[:3], *again])


@pytest.mark.parametrize("tail", [b"\0", bytes(5_000), b"garbage", b"\x02" * 300, make_batch(9)[0][:80]], ids=len)
def test_a_tail_that_is_no_batch_is_cut(node: Node, tail: bytes) -> None:
    batches = written(node, 4)
    with node.segment_file(-1).open("ab") as file:
        file.write(tail)
    assert read_all(node.open()) == data_of(batches)


def test_a_flipped_bit_anywhere_in_the_last_batch_cuts_it(node: Node) -> None:
    node.segment_bytes = 1 << 20
    batches = written(node, 3)
    path = node.segment_file(0)
    whole = path.read_bytes()
    start = len(data_of(batches[:2]))
    for byte in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << (byte % 8)
        path.write_bytes(damaged)
        log = node.open()
        if 12 <= byte - start < 16:
            # The leader epoch is not under the CRC; a lower one is refused, a higher one cannot be told.
            assert log.end_offset in (2, 3)
        else:
            assert read_all(log) == data_of(batches[:2]), byte - start
        node.kill()


def test_a_flipped_bit_before_the_last_batch_is_damage(node: Node) -> None:
    node.segment_bytes = 1 << 20
    batches = written(node, 4)
    path = node.segment_file(0)
    whole = path.read_bytes()
    start = len(batches[0][0])
    for byte in range(start, start + len(batches[1][0])):
        if 12 <= byte - start < 16:
            continue
        damaged = bytearray(whole)
        damaged[byte] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=rf"00\.log is damaged at byte {start} \(offset 1\).*offsets 2 to 2 follows"):
            node.open()
        assert path.read_bytes() == bytes(damaged), "evidence is kept"
        node.kill()


def test_sealed_segments_must_reach_their_successor(node: Node) -> None:
    written(node, 40)
    path = node.segment_file(1)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", whole + bytes(100) + b"x", whole[: len(whole) // 2], b""):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=path.name):
            node.open()
        node.kill()
    path.write_bytes(whole)
    assert node.open().end_offset == 40


@pytest.mark.parametrize("zeros", [1, 60, 61, 100, 10_000])
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_zeros_behind_the_last_batch_of_a_sealed_segment_are_cut(node: Node, number: int, has_index: bool, zeros: int) -> None:
    """A disk that was full while blocks were reserved had left them there. A single voter did not start again."""
    batches = written(node, 40)
    path = node.segment_file(number)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(zeros))
    if not has_index:
        path.with_suffix(".index").unlink()
    assert read_all(node.open()) == data_of(batches)
    assert path.read_bytes() == whole
    node.kill()
    assert read_all(node.open()) == data_of(batches)


def test_zeros_in_the_place_of_a_batch_of_a_sealed_segment_are_damage(node: Node) -> None:
    written(node, 40)
    path = node.segment_file(1)
    following = int(node.segment_file(2).stem)
    whole = path.read_bytes()
    size = len(make_batch(following - 1)[0])
    for damaged in (whole[:-size] + bytes(size), whole[:-size] + bytes(size + 100)):
        path.write_bytes(damaged)
        with pytest.raises(
            StorageError, match=rf"{path.name} is damaged at byte {len(whole) - size} \(offset {following - 1}\)"
        ):
            node.open()
        assert path.read_bytes() == damaged, "evidence is kept"
        node.kill()


def test_a_missing_segment_is_named(node: Node) -> None:
    written(node, 40)
    node.segment_file(1).unlink()
    with pytest.raises(StorageError, match=r"0\.log is damaged at byte \d+ \(offset \d+\): the file ends here"):
        node.open()


def test_damage_in_a_sealed_segment_is_found_by_verify(node: Node) -> None:
    batches = written(node, 40)
    path = node.segment_file(0)
    damaged = bytearray(path.read_bytes())
    damaged[len(batches[0][0]) + 80] ^= 1
    path.write_bytes(damaged)
    log = node.open()
    with pytest.raises(StorageError, match=rf"{path.name} is damaged at byte {len(batches[0][0])} \(offset 1\): CRC-32C"):
        log.verify()


def test_a_broken_header_in_a_sealed_segment_is_found_by_a_read(node: Node) -> None:
    written(node, 40)
    path = node.segment_file(0)
    damaged = bytearray(path.read_bytes())
    damaged[8] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(StorageError, match=path.name):
        node.open()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "noise", "half"])
def test_indexes_are_rebuilt_when_they_do_not_fit(node: Node, suffix: str, damage: str) -> None:
    node.segment_bytes = 20_000
    log = node.open()
    batches = fill(log, 400)
    assert len(log.segments()) > 3
    node.kill()
    damaged: dict[str, Callable[[bytes], bytes]] = {
        "empty": lambda whole: b"",
        "cut": lambda whole: whole[:-3],
        "noise": lambda whole: b"\x07" * len(whole),
        "half": lambda whole: whole[: len(whole) // 48 * 24],
    }
    for path in sorted(node.log_path.glob(f"*{suffix}")):
        whole = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(damaged[damage](whole))
    log = node.open()
    assert read_all(log) == data_of(batches)
    for wanted in range(1_000, 1_400, 7):
        found = log.find_timestamp(wanted)
        assert found is not None and found.offset == wanted - 1_000
    for offset in range(0, 400, 7):
        assert log.read(batches[offset][1].base_offset, log.end_offset, 0) == batches[offset][0]  # type: ignore[arg-type]


def test_an_index_that_leads_astray_is_rebuilt_on_use(node: Node) -> None:
    node.segment_bytes = 20_000
    log = node.open()
    batches = fill(log, 400)
    node.kill()
    path = node.segment_file(0).with_suffix(".index")
    entries = bytearray(path.read_bytes())
    # Ascending and within the segment, but in the middle of a batch; the last entry stays right, so opening sees nothing.
    assert len(entries) >= 16
    entries[7] ^= 0x01
    path.write_bytes(entries)
    log = node.open()
    for offset in range(150):
        assert log.read(batches[offset][1].base_offset, log.end_offset, 0) == batches[offset][0]  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [None, "", "0\n1\n1 0\n", "0\n3\n1 0\n2 10\n9 35\n", "garbage"])
def test_epochs_are_rebuilt_from_the_batches(node: Node, content: str | None) -> None:
    """Missing, damaged, behind or ahead; what lies below the last segment is synced before that begins."""
    node.segment_bytes = 1 << 20
    log = node.open()
    for epoch in (1, 2, 5):
        fill(log, 10, epoch=epoch)
    node.kill()
    path = node.log_path / "leader-epoch-checkpoint"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    assert list(node.open().epochs) == [(1, 0), (2, 10), (5, 20)]
    assert path.read_text() == "0\n3\n1 0\n2 10\n5 20\n"


def test_epochs_of_sealed_segments_are_rebuilt_when_the_file_is_gone(node: Node) -> None:
    log = node.open()
    for epoch in (1, 2, 5):
        fill(log, 20, epoch=epoch)
    node.kill()
    (node.log_path / "leader-epoch-checkpoint").unlink()
    assert list(node.open().epochs) == [(1, 0), (2, 20), (5, 40)]


def test_a_log_that_begins_above_zero_needs_its_epoch_file(node: Node) -> None:
    log = node.open()
    fill(log, 40)
    log.advance_start(log.segments()[2].base_offset)
    node.kill()
    (node.log_path / "leader-epoch-checkpoint").write_bytes(b"")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint is missing or damaged"):
        node.open()


def test_epochs_behind_a_torn_tail_are_forgotten(node: Node) -> None:
    log = node.open()
    fill(log, 3, epoch=1)
    fill(log, 1, epoch=2)
    directory = node.directory
    assert directory is not None
    directory.flush([log], lambda error: None)
    node.kill()
    path = node.segment_file(0)
    path.write_bytes(path.read_bytes()[:-1])
    log = node.open()
    assert list(log.epochs) == [(1, 0)]
    assert (node.log_path / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


def test_what_recovery_keeps_is_synced(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written(node, 3)
    synced: list[int] = []
    monkeypatch.setattr("raftlake.storage.recovery.sync_data", synced.append)
    monkeypatch.setattr("raftlake.storage.segment.sync_data", lambda descriptor: synced.append(-1))
    node.open()
    assert len(synced) == 1, "once, ahead of the opening"
    assert synced != [-1]


def test_what_recovery_cut_is_synced_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written(node, 3)
    node.kill()
    path = node.segment_file(0)
    path.write_bytes(path.read_bytes()[:-1])
    synced: list[int] = []
    monkeypatch.setattr("raftlake.storage.segment.sync_data", synced.append)
    node.open()
    assert len(synced) == 1


def test_all_logs_are_synced_ahead_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.open()
    assert node.directory is not None
    for number in range(1, 6):
        fill(node.directory.open(GroupId("orders", number, GROUP.topic_id)), 40)
    node.kill()
    synced: list[int] = []
    monkeypatch.setattr("raftlake.storage.recovery.sync_data", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    node.open()
    last = [sorted((node.path / f"orders-{number}").glob("*.log"))[-1] for number in range(6)]
    assert sorted(synced) == sorted(path.stat().st_ino for path in last)


def test_a_sync_that_fails_ahead_is_an_error_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports a lost write once: the sync that hears of it must not pass it over."""
    written(node, 3)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("raftlake.storage.recovery.sync_data", fail)
    with pytest.raises(StorageError, match=r"cannot sync .*00\.log: Input/output error"):
        node.open()


def test_an_unreadable_disk_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written(node, 3)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("raftlake.storage.scan.read_at", fail)
    with pytest.raises(StorageError, match=r"00\.log is damaged at byte 0 .*cannot be read: Input/output error \(EIO\)"):
        node.open()


def test_a_damaged_pending_reset_is_named(node: Node) -> None:
    written(node, 3)
    (node.log_path / "reset-pending").write_text("0\n7\n")
    with pytest.raises(StorageError, match="reset-pending is damaged"):
        node.open()


def test_a_directory_that_was_synced_ahead_is_synced_again_where_its_opening_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try may have written there."""
    directory = FileLogDirectory(tmp_path, post=None)
    path = directory.open(GROUP).path
    directory.close()
    again = FileLogDirectory(tmp_path, post=None)
    synced: list[Path] = []
    honest = recovery_module.sync_names
    monkeypatch.setattr(recovery_module, "sync_names", lambda found: (synced.append(found), honest(found))[1])

    def refuse(found: Path) -> None:
        raise DiskFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(recovery_module, "finish_swaps", refuse)
        with pytest.raises(DiskFull):
            again.open(GROUP)
    assert synced == []
    again.open(GROUP)
    assert synced == [path]
    again.close()
    third = FileLogDirectory(tmp_path, post=None)
    synced.clear()
    third.open(GROUP)
    assert synced == [], "one that is opened at once is synced ahead alone"
    third.close()
