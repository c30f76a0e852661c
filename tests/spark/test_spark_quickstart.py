"""`raftlake quickstart` as a user runs it: a process of its own, fewer rows, exit code 0, and nothing left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from waitkit import wait_until

pytestmark = pytest.mark.spark

COMMAND = [sys.executable, "-m", "raftlake", "quickstart"]
#: Less than the limit of any test (`faulthandler_timeout`), which ends the whole run.
SECONDS_MAX = 230
#: Signs of progress in the order in which the tour gives them, with the size of a file that counts.
STARTING, STARTED, WRITING, STREAMING = SIGNS = (
    ("spark/spark.out", 0),
    ("spark/spark.log", 0),
    ("node-1/flights-*/*.log", 50_000),
    ("spark/checkpoint/commits/*", 0),
)


def processes_naming(text: str) -> list[str]:
    """Command lines of running processes that mention `text` (a directory that only this test uses)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in line:
                found.append(f"{entry.parent.name}: {line}")
    return found


def wait_until_gone(text: str) -> None:
    wait_until(lambda: not processes_naming(text), f"no process names {text}", 20)


def test_the_tour_ends_well_and_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "tour"
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(data), "--rows", "30000"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "All agrees." in done.stdout
    assert "Traceback" not in done.stdout + done.stderr, "a new user takes it for a failure"
    assert "30,000 records, 30,000 different flights, in order: none lost, none doubled" in done.stdout
    assert "UA" in done.stdout and "each offset once: nothing wrong" in done.stdout
    assert sorted(path.name for path in data.iterdir() if path.name.startswith("node-")) == ["node-1", "node-2", "node-3"]
    wait_until_gone(str(data))


def test_the_tour_of_state_ends_well_and_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "tour"
    done = subprocess.run(
        [*COMMAND, "--state", "--data-dir", str(data), "--rows", "20000"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr, "a new user takes it for a failure"
    for told in ("kill -9 of driver 1", "no longer owns this checkpoint", "all equal", "All agrees."):
        assert told in done.stdout, done.stdout
    # What the query keeps is in the quorum: no driver's directory has a checkpoint.
    assert not list(data.glob("spark/**/offsets"))
    wait_until_gone(str(data))


def test_a_folder_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    done = subprocess.run([*COMMAND, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is not empty" in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("signals_arrive")
@pytest.mark.parametrize("last", [STARTING, STARTED, WRITING, STREAMING], ids=["starting", "started", "writing", "streaming"])
def test_ctrl_c_is_one_line_and_leaves_no_child(tmp_path: Path, last: tuple[str, int]) -> None:
    """SIGINT to the whole group, as a terminal sends it, while Spark starts, while a job writes, and while a query runs."""
    data = tmp_path / "tour"
    command = [*COMMAND, "--data-dir", str(data), "--rows", "100000"]
    with (tmp_path / "output").open("w") as output:
        tour = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:

            def has_come(file: str, size: int) -> bool:
                assert tour.poll() is None, (tmp_path / "output").read_text()
                with contextlib.suppress(FileNotFoundError):  # Spark renames what it has written
                    return any(path.stat().st_size >= size for path in data.glob(file))
                return False

            for sign in SIGNS[: SIGNS.index(last) + 1]:
                wait_until(partial(has_come, *sign), f"{sign[0]} of {sign[1]} bytes", 120)
            os.killpg(tour.pid, signal.SIGINT)
            interrupted = time.monotonic()
            assert tour.wait(timeout=60) == 130, (tmp_path / "output").read_text()
            said = (tmp_path / "output").read_text()
            print(f"{time.monotonic() - interrupted:.1f} s after Ctrl-C:\n{said}")
            assert said.splitlines()[-1] == "stopped"
            assert not any(word in said for word in ("Traceback", "Error", "Exception", "KeyboardInterrupt", "\tat ")), said
        finally:
            if tour.poll() is None:
                tour.kill()
                tour.wait()
    wait_until_gone(str(data))
