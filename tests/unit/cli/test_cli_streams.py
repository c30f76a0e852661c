"""Commands in the shell situations that are nobody's plan: closed streams, full disks, readers that go."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlake.cli.streams import EXIT_BROKEN_PIPE, open_streams


def shell(tail: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`raftlake ARGUMENTS` with what a shell user writes behind it; the exit code is the command's own."""
    command = f'"$@" {tail}'
    line = ["bash", "-o", "pipefail", "-c", command, "bash", sys.executable, "-m", "raftlake", *arguments]
    # With PYTHONUNBUFFERED nothing would be left to write when the interpreter ends.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=env)


@pytest.fixture
def long_file(tmp_path: Path) -> str:
    """Something of which `dump` says more than a pipe holds."""
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n20000\n" + "".join(f"{n} {n}\n" for n in range(20_000)))
    return str(path)


def test_a_full_disk_behind_the_output_is_one_line(long_file: str) -> None:
    for arguments in (["dump", long_file], ["--help"], ["dump", "--help"]):
        outcome = shell("> /dev/full", *arguments)
        assert outcome.returncode == 1
        assert outcome.stderr == "raftlake: cannot write to standard output: No space left on device\n"


def test_a_reader_that_goes_ends_the_command_in_silence(long_file: str) -> None:
    outcome = shell("| head -1", "dump", long_file)
    assert (outcome.returncode, outcome.stderr) == (EXIT_BROKEN_PIPE, "")
    assert outcome.stdout.count("\n") == 1


@pytest.mark.parametrize(("closed", "lines"), [(">&-", 0), ("<&-", 20_000), ("2>&-", 20_000), ("<&- >&- 2>&-", 0)])
def test_closed_streams_are_no_obstacle(long_file: str, closed: str, lines: int) -> None:
    """Their numbers would be given to the next sockets and files."""
    outcome = shell(closed, "dump", long_file)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.count("\n") == lines


def test_an_error_is_an_error_although_nobody_can_be_told() -> None:
    for tail in ("2>&-", "2>/dev/full", ">/dev/full 2>&1"):
        assert shell(tail, "dump", "nothing-there").returncode == 1


def test_a_path_that_is_no_text_is_printed_as_it_is(tmp_path: Path) -> None:
    """Also where the locale says that the output is UTF-8."""
    path = os.fsencode(tmp_path) + b"/b\xffd"
    line = [sys.executable, "-m", "raftlake", "format", "--data-dir", path, "--node-id", "1"]
    env = dict(os.environ, PYTHONIOENCODING="utf-8:strict")
    outcome = subprocess.run(line, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=env)
    assert (outcome.returncode, outcome.stderr) == (0, b"")
    assert path in outcome.stdout


@pytest.mark.parametrize(("errors", "then"), [("strict", "surrogateescape"), ("backslashreplace", "backslashreplace")])
def test_what_somebody_chose_for_the_output_stays(monkeypatch: pytest.MonkeyPatch, errors: str, then: str) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors))
    open_streams()
    assert (sys.stdout.encoding, sys.stdout.errors) == ("utf-8", then)
