"""A small file system of its own for tests that fill a disk, where the machine allows to mount one.

Where it should be allowed, a refusal is a failure: a test that is skipped for ever proves nothing. That is in CI (the variable
`CI` is set), and for a process that may administer the system, root as a rule. Elsewhere the test is skipped and says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest

MIB = 1 << 20
FILLER = "filler"
#: The number of this capability in Linux.
CAP_SYS_ADMIN = 21


@contextlib.contextmanager
def mounted(place: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes at `place`. Where mounting is refused, the test fails or is skipped, as said above."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        give_up(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def give_up(why: str) -> NoReturn:
    """There is no file system for the test."""
    if os.environ.get("CI") or _may_administer():
        pytest.fail(f"{why}. Tests of full disks need it: in CI run them as root, in a container that may mount")
    pytest.skip(why)


def _may_administer() -> bool:
    """Whether the kernel would let this process mount (CAP_SYS_ADMIN in effect)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAP_SYS_ADMIN & 1)


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
