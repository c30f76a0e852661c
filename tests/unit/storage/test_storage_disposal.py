"""Large files go at once by name, and their blocks elsewhere."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from raftlake.storage import disposal
from raftlake.storage.disposal import Disposal
from raftlake.storage.files import FilePool, PooledFile


class Closing:
    """`os.close` that waits until it is let go, and remembers which thread called it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may = threading.Event()
        self.threads: list[str] = []
        close = os.close

        def closing(descriptor: int) -> None:
            assert self.may.wait(20)
            self.threads.append(threading.current_thread().name)
            close(descriptor)

        monkeypatch.setattr(disposal.os, "close", closing)


def files(tmp_path: Path, count: int) -> list[Path]:
    found = [tmp_path / f"{number}.log" for number in range(count)]
    for path in found:
        path.write_bytes(b"some bytes")
    return found


def test_the_name_is_gone_before_the_blocks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closing, busy = Closing(monkeypatch), Disposal(threaded=True)
    for path in files(tmp_path, 3):
        busy.unlink(path)
    assert list(tmp_path.iterdir()) == [] and busy.held_count == 3
    closing.may.set()
    busy.close()
    assert busy.held_count == 0 and closing.threads == ["raftlake-disposal"] * 3
    busy.close()


def test_only_so_many_files_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disposal, "HELD_MAX", 2)
    closing, busy = Closing(monkeypatch), Disposal(threaded=True)
    for path in files(tmp_path, 5):
        busy.unlink(path)
    assert list(tmp_path.iterdir()) == [] and busy.held_count == 2
    closing.may.set()
    busy.close()


@pytest.mark.parametrize("threaded", [False, True])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, threaded: bool) -> None:
    gone = Disposal(threaded=threaded)
    with pytest.raises(FileNotFoundError):
        gone.unlink(tmp_path / "gone")
    assert gone.held_count == 0
    gone.close()


def test_an_open_file_is_closed_before_the_one_that_holds_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Disposal(threaded=True)
    (path,) = files(tmp_path, 1)
    file = PooledFile(path, FilePool(4, held))
    descriptor = file.descriptor()
    closing = Closing(monkeypatch)
    closing.may.set()
    file.delete()
    assert not file.is_open and not path.exists()
    held.close()
    assert sorted(closing.threads) == ["MainThread", "raftlake-disposal"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    file.delete()


def test_files_go_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error stopped the node, and no later file was let go."""
    busy = Disposal(threaded=True)
    one, two, three = files(tmp_path, 3)
    before = len(os.listdir("/proc/self/fd"))

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        busy.unlink(one)
        busy.unlink(two)
    assert busy.held_count == 0 and len(os.listdir("/proc/self/fd")) == before
    busy.unlink(three)
    busy.close()
    assert busy.held_count == 0 and list(tmp_path.iterdir()) == []


def test_a_close_that_fails_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = os.close

    def closing(descriptor: int) -> None:
        close(descriptor)
        closed.append(descriptor)
        raise OSError(5, "Input/output error")

    busy = Disposal(threaded=True)
    with monkeypatch.context() as patch:
        patch.setattr(disposal.os, "close", closing)
        for path in files(tmp_path, 3):
            busy.unlink(path)
        busy.close()
    assert len(closed) == 3 and busy.held_count == 0
