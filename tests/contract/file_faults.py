"""Faults for tests of files: a process killed at any system call, calls that fail, and what a kill leaves open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from raftlake.storage.directory import FileLogDirectory

Start = TypeVar("Start")
Seen = TypeVar("Seen")

#: The calls by which `storage` changes a disk.
CHANGING_CALLS = ("open", "pwritev", "ftruncate", "rename", "unlink", "mkdir", "rmdir")
#: These take long and change nothing that survives a kill (only a power loss), so they are counted and left out.
SYNC_CALLS = ("fsync", "fdatasync")


class Killed(BaseException):
    """The process ended here; nothing may handle it."""


def without_sync(patch: pytest.MonkeyPatch) -> None:
    """Let fsync and fdatasync do nothing: for tests that open and close very often and lose no power."""
    for name in SYNC_CALLS:
        if hasattr(os, name):
            patch.setattr(os, name, lambda descriptor: None)


@contextmanager
def killed_at(call: int) -> Iterator[None]:
    """Every changing system call from the `call`-th on (0 is the first) does not happen."""
    made = 0

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            nonlocal made
            if made >= call:
                raise Killed(name)
            made += 1
            return real(*arguments, **options)

        return step

    with pytest.MonkeyPatch.context() as patch:
        without_sync(patch)
        for name in CHANGING_CALLS + SYNC_CALLS:
            if hasattr(os, name):
                patch.setattr(os, name, counted(name, getattr(os, name)))
        yield


def leave(directory: FileLogDirectory) -> Path:
    """Let go of a directory as a killed process does: nothing is written any more, the lock ends."""
    directory.abandon()
    return directory.path


def outcomes_of_kills(start: Callable[[], Start], act: Callable[[Start], None], look: Callable[[Start], Seen]) -> list[Seen]:
    """What `look` sees after `act` was killed at its first, second, ... call, and last after it went through."""
    seen = []
    call = 0
    while True:
        state = start()
        try:
            with killed_at(call):
                act(state)
        except Killed:
            seen.append(look(state))
            call += 1
        else:
            seen.append(look(state))
            return seen
