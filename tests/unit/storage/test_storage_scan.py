"""Walking batches: what is accepted, where a walk stops and what it says, and finding what follows damage."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from contract.batches import Batch, data_of, make_batch
from raftlake.storage.scan import BatchAt, BrokenBatch, find_batch_after, is_zero, walk

BATCHES: list[Batch] = [make_batch(10 * number, count=10, epoch=1 + number // 3, size=60) for number in range(8)]
STARTS = [sum(len(data) for data, _ in BATCHES[:number]) for number in range(9)]


def write(tmp_path: Path, data: bytes) -> tuple[int, Path]:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY), path


@pytest.mark.parametrize("window", [1, 64, 1_000, 1 << 20])
@pytest.mark.parametrize("check_crc", [False, True])
def test_a_walk_gives_every_batch_and_its_place(tmp_path: Path, window: int, check_crc: bool) -> None:
    descriptor, path = write(tmp_path, data_of(BATCHES))
    found = list(walk(descriptor, path, 0, STARTS[-1], offset=0, check_crc=check_crc, window=window))
    assert [each.position for each in found] == STARTS[:-1]
    for each, (data, span) in zip(found, BATCHES, strict=True):
        assert (each.base_offset, each.end_offset, each.epoch) == (span.base_offset, span.end_offset, span.epoch)
        assert (each.size, each.timestamp_ms_max) == (len(data), span.timestamp_ms_max)


@pytest.mark.parametrize(
    ("byte", "value", "reason"),
    [
        (0, 0x80, "begins with offset"),
        (7, 1, "begins with offset"),
        (8, 0x40, "bytes where"),
        (11, 3, "CRC-32C"),
        (12, 0x80, "leader epoch"),
        (16, 1, "record format 1"),
        (17, 0xAA, "CRC-32C"),
        (23, 0x80, "last offset delta"),
        (100, 0xAA, "CRC-32C"),
    ],
)
def test_a_damaged_batch_is_named(tmp_path: Path, byte: int, value: int, reason: str) -> None:
    data = bytearray(data_of(BATCHES))
    assert data[STARTS[2] + byte] != value
    data[STARTS[2] + byte] = value
    descriptor, path = write(tmp_path, bytes(data))
    found: list[BatchAt] = []
    with pytest.raises(BrokenBatch, match=reason) as raised:
        found.extend(walk(descriptor, path, 0, len(data), offset=0, check_crc=True))
    assert [each.position for each in found] == STARTS[:2]
    assert (raised.value.position, raised.value.offset) == (STARTS[2], 20)
    assert f"{path} is damaged at byte {STARTS[2]} (offset 20)" in str(raised.value)


def test_epochs_never_go_back(tmp_path: Path) -> None:
    data = data_of([make_batch(0, epoch=5), make_batch(1, epoch=4)])
    descriptor, path = write(tmp_path, data)
    with pytest.raises(BrokenBatch, match="leader epoch 4 after 5"):
        list(walk(descriptor, path, 0, len(data)))


def test_a_gap_in_offsets_is_seen(tmp_path: Path) -> None:
    data = data_of([BATCHES[0], BATCHES[2]])
    descriptor, path = write(tmp_path, data)
    with pytest.raises(BrokenBatch, match="begins with offset 20"):
        list(walk(descriptor, path, 0, len(data)))


@pytest.mark.parametrize("kept", [1, 11, 12, 60, 61, 100])
def test_a_cut_batch_is_broken(tmp_path: Path, kept: int) -> None:
    data = data_of(BATCHES)[: STARTS[1] + kept]
    descriptor, path = write(tmp_path, data)
    with pytest.raises(BrokenBatch) as raised:
        list(walk(descriptor, path, 0, len(data)))
    assert raised.value.position == STARTS[1]


def test_zeros_are_told_from_data(tmp_path: Path) -> None:
    size = (3 << 20) + 7
    descriptor, path = write(tmp_path, b"x" + bytes(size))
    assert is_zero(descriptor, path, 1, size + 1)
    assert not is_zero(descriptor, path, 0, size + 1)
    assert is_zero(descriptor, path, 5, 5)
    descriptor, path = write(tmp_path, bytes(size) + b"x")
    assert not is_zero(descriptor, path, 0, size + 1)


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 5_000, b"\x02" * 3_000, b"\0\0\0\0" + b"\x02" * 999, random.Random(1).randbytes(100_000)]
)
def test_an_intact_batch_is_found_behind_any_garbage(tmp_path: Path, garbage: bytes) -> None:
    data = b"?" + garbage + data_of(BATCHES[3:])
    descriptor, path = write(tmp_path, data)
    found = find_batch_after(descriptor, path, 0, len(data), 20)
    assert found is not None
    assert (found.position, found.base_offset, found.end_offset) == (1 + len(garbage), 30, 40)


def test_batches_at_or_below_the_offset_are_no_followers(tmp_path: Path) -> None:
    data = b"?" + data_of(BATCHES[2:4])
    descriptor, path = write(tmp_path, data)
    found = find_batch_after(descriptor, path, 0, len(data), 20)
    assert found is not None and found.base_offset == 30
    assert find_batch_after(descriptor, path, 0, len(data), 30) is None


def test_a_batch_across_two_windows_is_found(tmp_path: Path) -> None:
    for before in range((1 << 20) - 40, (1 << 20) + 2, 7):
        data = bytes(before) + BATCHES[3][0]
        descriptor, path = write(tmp_path, data)
        found = find_batch_after(descriptor, path, 0, len(data), 20)
        assert found is not None and found.position == before
        os.close(descriptor)


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    base = (1 << 32) - 1
    batches = [make_batch(base), make_batch(base + 1), make_batch(base + 2)]
    data = b"?" + data_of(batches[1:])
    descriptor, path = write(tmp_path, data)
    found = find_batch_after(descriptor, path, 0, len(data), base)
    assert found is not None and found.base_offset == base + 1
