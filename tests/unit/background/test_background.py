"""A process that stands back: its session, niceness, slice and processors, and a system that refuses."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake import background
from raftlake.background import NICENESS, stand_back

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sched(7) is Linux's")

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
#: From this kernel on a process may choose its slice.
_SLICES_SINCE = (6, 12)
_PROGRAM = """
import json, os, platform, signal, sys
from pathlib import Path
from raftlake.background import stand_back
if sys.argv[1:]:
    platform.machine = lambda: sys.argv[1]
before = sorted(os.sched_getaffinity(0))
stand_back()
autogroup = Path("/proc/self/autogroup")
print(json.dumps({
    "leads_session": os.getsid(0) == os.getpid(),
    "policy": os.sched_getscheduler(0),
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "autogroup": autogroup.read_text().split()[-1] if autogroup.exists() else None,
    "before": before,
    "after": sorted(os.sched_getaffinity(0)),
}), flush=True)
input()
"""


class Process:
    """A process that stands back, until it is told to end."""

    def __init__(self, prepare: Callable[[], None] | None = None, machine: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *machine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,
        )
        assert self.process.stdout is not None
        self.facts = json.loads(self.process.stdout.readline())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("\n")


def slice_ns(pid: int) -> int:
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(_SCHED_GETATTR[platform.machine()], pid, attributes, 48, 0) == 0
    return int(struct.unpack("=IIQiIQQQ", attributes.raw)[5])


def test_the_process_is_nice_in_a_session_of_its_own_that_is_nice_too() -> None:
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    with Process() as process:
        facts = process.facts
        assert facts["leads_session"] is True
        assert facts["nice"] == min(19, niceness + NICENESS)
        assert facts["autogroup"] in (None, str(NICENESS))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one processor")
def test_the_first_of_its_processors_is_left_to_others() -> None:
    with Process() as process:
        before = process.facts["before"]
        assert process.facts["after"] == (before[1:] or before)


def test_a_process_with_one_processor_keeps_it() -> None:
    only = max(os.sched_getaffinity(0))
    with Process(lambda: os.sched_setaffinity(0, {only})) as process:
        assert process.facts["after"] == [only]


@pytest.mark.skipif(platform.machine() not in _SCHED_GETATTR, reason="the number of the call is not known here")
@pytest.mark.skipif(tuple(map(int, platform.release().split(".")[:2])) < _SLICES_SINCE, reason="the kernel has no such slices")
def test_its_slice_is_the_longest() -> None:
    with Process() as process:
        assert slice_ns(process.process.pid) == 100_000_000


@pytest.mark.parametrize("machine", [(), ("of another kind",)])
def test_the_real_time_policy_of_its_node_is_laid_down(machine: tuple[str, ...]) -> None:
    """That of systemd's `CPUSchedulingPolicy=rr`; also where the number of the call for slices is not known."""
    try:
        process = Process(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)), machine)
    except subprocess.SubprocessError:
        pytest.skip("this user may not take a real-time policy")
    with process:
        assert process.facts["policy"] == os.SCHED_OTHER


class Attributes:
    """What sched_setattr(2) was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def syscall(self, number: int, pid: int, attributes: bytes, flags: int) -> int:
        self.asked.append((number, pid, flags, *struct.unpack("=IIQiIQQQ", attributes)))
        return 0


@pytest.mark.skipif(platform.machine() not in _SCHED_GETATTR, reason="the number of the call is not known here")
def test_the_slice_is_asked_for_with_the_policy_and_the_niceness_that_the_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Attributes()
    monkeypatch.setattr(background.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(background.os, "getpriority", lambda which, who: 13)
    background._take_long_slices()
    number = _SCHED_GETATTR[platform.machine()] - 1
    assert library.asked == [(number, 0, 0, 48, 0, 0, 13, 0, 100_000_000, 0, 0)]


@pytest.mark.parametrize(("mine", "kept"), [({0, 1}, [{1}]), ({3, 5, 6}, [{5, 6}]), ({4}, [])])
def test_all_processors_but_the_first_one_are_kept(
    monkeypatch: pytest.MonkeyPatch, mine: set[int], kept: list[set[int]]
) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(background.os, "sched_getaffinity", lambda pid: mine)
    monkeypatch.setattr(background.os, "sched_setaffinity", lambda pid, processors: asked.append(processors))
    background._leave_a_processor()
    assert asked == kept


class Refusing:
    """`/proc/self/autogroup` of a system that refuses."""

    def __init__(self, *errors: OSError) -> None:
        self.errors = list(errors)
        self.written: list[str] = []

    def write_text(self, text: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written.append(text)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A process that leads its session and changes nothing of this one; the pauses that it makes."""
    found: list[float] = []
    monkeypatch.setattr(background.time, "sleep", found.append)
    monkeypatch.setattr(background.os, "nice", lambda by: by)
    monkeypatch.setattr(background.os, "setsid", lambda: None)
    monkeypatch.setattr(background.os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr(background.os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setattr(background, "_take_long_slices", lambda: None)
    return found


def test_a_session_that_may_be_made_nice_only_later_is_made_nice_then(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    autogroup = Refusing(BlockingIOError(), BlockingIOError())
    monkeypatch.setattr(background, "_AUTOGROUP", autogroup)
    stand_back()
    assert autogroup.written == [str(NICENESS)]
    assert len(pauses) == 2 and min(pauses) > 0.1


@pytest.mark.parametrize("error", [FileNotFoundError(), PermissionError()])
def test_a_system_that_knows_no_such_sessions_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], error: OSError
) -> None:
    autogroup = Refusing(error)
    monkeypatch.setattr(background, "_AUTOGROUP", autogroup)
    stand_back()
    assert autogroup.written == [] and pauses == []


def test_the_session_of_the_node_is_not_made_nice(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    autogroup = Refusing()
    monkeypatch.setattr(background, "_AUTOGROUP", autogroup)
    monkeypatch.setattr(background.os, "getsid", lambda _: os.getpid() + 1)
    stand_back()
    assert autogroup.written == []


def test_a_system_that_refuses_everything_is_no_error(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    for name in ("nice", "setsid", "sched_setaffinity"):
        monkeypatch.setattr(background.os, name, refuse)
    monkeypatch.setattr(background, "_AUTOGROUP", Path("/nowhere/autogroup"))
    stand_back()
