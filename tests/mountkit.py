"""A small file system of its own for tests that fill a disk, where the machine allows to mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

MIB = 1 << 20
FILLER = "filler"


@contextlib.contextmanager
def mounted(place: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes at `place`. The test is skipped where mounting is refused."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, left: int) -> None:
    """Something else takes all but so many bytes; 0: every one."""
    found = os.statvfs(place)
    size = found.f_bavail * found.f_frsize - left
    with (place / FILLER).open("ab", buffering=0) as file:
        if left == 0:
            with pytest.raises(OSError, match="No space left"):
                _write_without_end(file)
        while left > 0 and size > 0:
            size -= file.write(bytes(min(size, MIB)))


def _write_without_end(file: BinaryIO) -> None:
    """The system cuts the write that does not fit, and refuses the next one."""
    while True:
        file.write(bytes(MIB))


def make_room(place: Path) -> None:
    """It is gone again."""
    (place / FILLER).unlink()
