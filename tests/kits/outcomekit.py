"""Transactions of other people's clients while nodes are killed: what a client was told, what readers see, and the comparison.

A client runs as a process of its own (`tests/wire/programs`). Its transactions have the numbers 0, 1, 2, ... Each writes its
number to every partition of a topic. Each second one is aborted on purpose: where a marker is lost, a transaction ends as the
next one does. The program writes a line for each thing that it does: `begun N`, then `committed N` or `aborted N` where it was
told so. A transaction with neither line is unknown. The program ends its last transaction and itself when its stdin is closed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import IO

import waitkit

#: A client may wait for its own limits of time, and a busy machine for its turn.
wait_until = partial(waitkit.wait_until, seconds=90)
ERRORS_MAX = 4_000


@dataclass(slots=True)
class Ledger:
    """What a program said, line by line."""

    begun: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    def note(self, line: str) -> None:
        """ValueError for a line that is no outcome: programs say nothing else."""
        kind, number = line.split()
        lists = {"begun": self.begun, "committed": self.committed, "aborted": self.aborted}
        if kind not in lists:
            raise ValueError(f"not an outcome: {line!r}")
        lists[kind].append(int(number))

    @property
    def unknown(self) -> set[int]:
        return set(self.begun) - set(self.committed) - set(self.aborted)


def findings(ledger: Ledger, seen: Mapping[int, Sequence[int]]) -> list[str]:
    """Every difference between what a client was told and what a reader of committed records sees, by partition."""
    found = []
    for partition, numbers in seen.items():
        where = f"in partition {partition}"
        present = set(numbers)
        told = {
            "more than once": {number for number in present if numbers.count(number) > 1},
            "committed, and not there": set(ledger.committed) - present,
            "aborted, and there": set(ledger.aborted) & present,
            "never begun": present - set(ledger.begun),
            "in another partition alone": {number for each in seen.values() for number in each} - present,
        }
        found += [f"{where} {what}: {sorted(which)}" for what, which in told.items() if which]
        if list(numbers) != sorted(numbers):
            found.append(f"{where} out of order: {list(numbers)}")
    return found


class Program:
    """A running client, and what it has said so far."""

    def __init__(self, child: subprocess.Popen[str], errors: IO[bytes], *, aborts: bool) -> None:
        self.ledger = Ledger()
        self._child = child
        self._errors = errors
        self._aborts = aborts
        self._wrong: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            try:
                self.ledger.note(line)
            except ValueError:
                self._wrong.append(line)

    @property
    def last_words(self) -> str:
        errors = os.pread(self._errors.fileno(), ERRORS_MAX, max(0, os.fstat(self._errors.fileno()).st_size - ERRORS_MAX))
        return f"exit {self._child.poll()}; {self._wrong}; {errors.decode(errors='replace')}"

    def ends_more(self, count: int) -> None:
        """Wait until so many more are committed, and one more aborted where the program aborts."""
        ledger = self.ledger
        committed, aborted = len(ledger.committed) + count, len(ledger.aborted) + self._aborts

        def has_ended() -> bool:
            assert self._thread.is_alive() and not self._wrong, "the program has failed"
            return len(ledger.committed) >= committed and len(ledger.aborted) >= aborted

        try:
            wait_until(has_ended, f"{count} more transactions are committed")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.last_words}") from None

    def stop(self) -> Ledger:
        """The program ends by itself, with nothing open."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        wait_until(lambda: self._child.poll() is not None, "the program ends")
        self._thread.join(30)
        assert self._child.returncode == 0 and not self._wrong, self.last_words
        return self.ledger


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None, *, aborts: bool = True) -> Iterator[Program]:
    """A program while it is needed. A plain producer aborts nothing."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        program = Program(child, errors, aborts=aborts)
        try:
            yield program
        finally:
            child.kill()
            child.wait()
            program._thread.join(30)
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
