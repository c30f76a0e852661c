"""A power loss that takes back every change of names in a directory that was not synced since: the worst that POSIX allows.

Renames, deletions and removed directories are undone, the last one first, unless an fsync of their directory came after them.
Bytes of files, and files that were created, stay: their syncs have tests of their own. Nothing is really synced here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.file_faults import Killed, Seen, Start

#: What the power may fail at: every change of a name, and every sync.
CALLS = ("rename", "unlink", "mkdir", "rmdir", "fsync", "fdatasync")


class UnsyncedNames:
    """Stands in for the calls of `os`; `kept` is a directory on the same file system, for what was deleted."""

    def __init__(self, kept: Path, calls_max: int | None) -> None:
        self._kept = kept
        self._calls_left = calls_max
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
        #: The directory (by inode) whose sync makes a change durable, and how to take it back.
        self._changes: list[tuple[int, Callable[[], None]]] = []
        #: Directories that were renamed, by inode: `shutil.rmtree` works below their descriptors.
        self._renamed: dict[int, Path] = {}

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        for name in self._real:
            patch.setattr(os, name, self._counted(getattr(self, name)))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            if self._calls_left is not None:
                if self._calls_left == 0:
                    raise Killed(call.__name__)
                self._calls_left -= 1
            return call(*arguments, **options)

        return counted

    def lose(self) -> None:
        """The power is gone, and with it what was not synced."""
        for _, take_back in reversed(self._changes):
            take_back()
        self._changes.clear()

    def _keep(self, path: Path) -> Path:
        kept = self._kept / str(len(os.listdir(self._kept)))
        os.link(path, kept)
        return kept

    def _in(self, directory: Path, take_back: Callable[[], None]) -> None:
        self._changes.append((directory.stat().st_ino, take_back))

    def _resolve(self, path: str | Path, dir_fd: int | None) -> Path:
        return Path(path) if dir_fd is None else self._renamed[os.fstat(dir_fd).st_ino] / path

    # --- the calls ---

    def rename(self, source: str | Path, target: str | Path) -> None:
        source, target = Path(source), Path(target)
        assert source.parent == target.parent, "one directory, so that one sync is enough"
        replaced = self._keep(target) if target.exists() else None
        self._real["rename"](source, target)
        if target.is_dir():
            self._renamed[target.stat().st_ino] = target

        def take_back() -> None:
            self._real["rename"](target, source)
            if replaced is not None:
                os.link(replaced, target)

        self._in(target.parent, take_back)

    def unlink(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        gone = self._resolve(path, dir_fd)
        kept = self._keep(gone) if gone.exists() else gone
        self._real["unlink"](gone)
        self._in(gone.parent, lambda: os.link(kept, gone))

    def rmdir(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        gone = self._resolve(path, dir_fd)
        self._real["rmdir"](gone)
        self._in(gone.parent, lambda: self._real["mkdir"](gone))

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        self._real["mkdir"](path, mode)

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._changes = [change for change in self._changes if change[0] != status.st_ino]

    def fdatasync(self, descriptor: int) -> None:
        """Of a file's bytes: no name depends on it."""


@contextmanager
def power_lost_after(kept: Path, calls_max: int | None) -> Iterator[None]:
    """The power fails at the next of `CALLS` after `calls_max` of them (Killed), or behind the block."""
    names = UnsyncedNames(kept, calls_max)
    try:
        with pytest.MonkeyPatch.context() as patch:
            names.stand_in(patch)
            yield
    finally:
        names.lose()


def outcomes_of_power_losses(
    kept: Path, start: Callable[[], Start], act: Callable[[Start], None], look: Callable[[Start], Seen]
) -> list[Seen]:
    """What `look` sees after the power failed at the first, second, ... call of `act`, and last right after it."""
    seen = []
    for calls in range(10_000):
        state = start()
        went_through = True
        try:
            with power_lost_after(kept, calls):
                act(state)
        except Killed:
            went_through = False
        seen.append(look(state))
        if went_through:
            return seen
    raise AssertionError("it never went through")
