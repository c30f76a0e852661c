"""The tier's real worker process on a local path: its calls, its deaths at each moment of a copy, its stalls, its end."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from contract.tier_contract import LINEAGE, Moment, failure, rows_of, segment
from raftlake.background import NICENESS
from raftlake.ports.tier import FileRange, LineageEnd, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.raft.types import Offset
from tierkit import local_settings, shown_rows
from tiernodekit import PATIENCE_SECONDS, Node, is_running
from waitkit import wait_until

pytestmark = pytest.mark.process


def test_copies_and_claims_of_two_nodes(nodes: list[Node], tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    first, second = (Node(settings) for _ in range(2))
    nodes += [first, second]
    assert first.claim(5) == LineageEnd(None)
    request = segment(0, "a", count=300)
    (batches,) = request.sources
    assert isinstance(batches, bytes)
    path = tmp_path / "00.log"
    path.write_bytes(batches)
    made = first.copy(replace(request, sources=(FileRange(str(path), 0, len(batches)),)))
    assert isinstance(made, RemoteSegment)
    assert second.claim(6) == LineageEnd(made)
    assert failure(first.copy(segment(300, "b"))) is TierFailure.FENCED
    assert isinstance(second.copy(segment(300, "c", epoch=6)), RemoteSegment)
    assert shown_rows(settings, LINEAGE) == rows_of(request, segment(300, "c", epoch=6))
    assert [len(node.workers) for node in nodes] == [1, 1]


def test_a_worker_stands_back(nodes: list[Node], tmp_path: Path) -> None:
    node = Node(local_settings(tmp_path))
    nodes.append(node)
    assert node.claim(5) == LineageEnd(None)
    pid = node.workers[0].pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    assert os.getsid(pid) == pid


def test_a_worker_imports_no_pandas(nodes: list[Node], tmp_path: Path) -> None:
    """pyarrow imports it for a question that no worker has: 0.26 s of the 0.4 s that a node that joins waited for its tier."""
    node = Node(local_settings(tmp_path))
    nodes.append(node)
    assert isinstance(node.copy(segment(0, "a")), RemoteSegment)
    assert isinstance(node.ask(lambda done: node.tier.find(LINEAGE, Offset(0), done)), RemoteState)
    assert len(node.workers) == 2, "one for copies, one for reads"
    for worker in node.workers:
        loaded = Path(f"/proc/{worker.pid}/maps").read_text()
        assert "/libarrow" in loaded and "/pandas/" not in loaded


def test_options_of_the_store_stand_on_no_command_line(nodes: list[Node], tmp_path: Path) -> None:
    """Every user of a machine may read those."""
    node = Node(replace(local_settings(tmp_path), storage_options={"aws_secret_access_key": "pa55"}))
    nodes.append(node)
    assert node.claim(5) == LineageEnd(None)
    line = Path(f"/proc/{node.workers[0].pid}/cmdline").read_bytes()
    assert b"raftlake.tier.worker" in line and b"pa55" not in line


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.name)
def test_a_worker_that_is_killed_leaves_a_copy_whole_or_none(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    settings = local_settings(tmp_path)
    monkeypatch.setenv("RAFTLAKE_TEST_MOMENT", moment.name)
    monkeypatch.setenv("RAFTLAKE_TEST_FLAG", str(tmp_path / "flag"))
    node = Node(settings, module="tier_faulty_worker")
    nodes.append(node)
    assert node.claim(5) == LineageEnd(None)
    request = segment(0, "a")
    assert failure(node.copy(request)) is TierFailure.UNKNOWN
    assert (tmp_path / "flag").exists()
    is_shown = moment is Moment.AFTER_COMMIT
    assert shown_rows(settings, LINEAGE) == (rows_of(request) if is_shown else [])
    answer = node.claim(5)
    assert isinstance(answer, LineageEnd) and (answer.last is not None) is is_shown
    again = segment(6 if is_shown else 0, "b")
    assert isinstance(node.copy(again), RemoteSegment)
    assert shown_rows(settings, LINEAGE) == (rows_of(request, again) if is_shown else rows_of(again))
    assert len(node.workers) == 2


def test_a_call_that_never_returns_is_given_up_and_its_worker_killed(
    nodes: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = local_settings(tmp_path)
    monkeypatch.setenv("RAFTLAKE_TEST_MOMENT", "STALL")
    monkeypatch.setenv("RAFTLAKE_TEST_FLAG", str(tmp_path / "flag"))
    node = Node(settings, module="tier_faulty_worker")
    nodes.append(node)
    assert node.claim(5) == LineageEnd(None)
    node.tier.leaders._timeout_seconds = 0.5
    answer = node.copy(segment(0, "a"))
    assert failure(answer) is TierFailure.UNKNOWN and isinstance(answer, TierError) and "in 0.5 s" in answer.reason
    stalled = node.workers[0]
    wait_until(lambda: not is_running(stalled.pid), "the stalled worker was killed", PATIENCE_SECONDS)
    node.tier.leaders._timeout_seconds = PATIENCE_SECONDS
    assert isinstance(node.copy(segment(0, "b")), RemoteSegment)


NODE = """
import sys, threading
from tierkit import local_settings
from pathlib import Path
from contract.tier_contract import segment, LINEAGE
from raftlake.runtime.tier_process import TierProcess, WorkerProcess
def start(settings):
    worker = WorkerProcess(settings, "tier_faulty_worker")
    print(worker.pid, flush=True)
    return worker
settings = local_settings(Path(sys.argv[1]))
tier = TierProcess(lambda: settings, timeout_seconds=1e6, post=lambda callback: callback(), start=start)
tier.copy(segment(0, "a"), print)
threading.Event().wait()
"""


def test_a_worker_ends_with_its_node_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """A node that is killed closes nothing by itself, and the call never returns."""
    flag = tmp_path / "flag"
    environment = os.environ | {
        "RAFTLAKE_TEST_MOMENT": "STALL",
        "RAFTLAKE_TEST_FLAG": str(flag),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with subprocess.Popen([sys.executable, "-c", NODE, str(tmp_path)], stdout=subprocess.PIPE, env=environment) as node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        wait_until(flag.exists, "the copy stalls", PATIENCE_SECONDS)
        assert is_running(pid)
        node.kill()
    wait_until(lambda: not is_running(pid), "the worker ended with its node", PATIENCE_SECONDS)


def test_a_node_imports_neither_delta_nor_arrow_for_its_side() -> None:
    code = "import raftlake.runtime.tier_process, sys; print(sorted({'deltalake', 'pyarrow', 'numba'} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"
