"""`raftlake checkpoints` in front of a key space in memory: what is printed, how it ends, what Ctrl-C leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import checkpointkit as kit
from checkpointkit import QUERY, MemoryKv
from raftlake.checkpoints import Checkpoints
from raftlake.cli import checkpoints as cli_checkpoints
from raftlake.cli.main import app, run
from raftlake.errors import WrongState

MAIN, TRIAL = "raftlake://orders/main", "raftlake://orders/trial"
FILES = kit.stateful(4, snapshots=(2, 4))


class Quorum:
    def __init__(self) -> None:
        self.kv = MemoryKv()
        self.names = ["orders", "__raftlake-state-abc-0-default", "__raftlake-state-abcd-0-default"]

    def topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]

    def delete_topic(self, name: str) -> None:
        self.names.remove(name)


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    quorum = Quorum()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield quorum

    monkeypatch.setattr(cli_checkpoints, "connect", connect)
    kit.write(quorum.kv, MAIN, FILES)
    kit.own(quorum.kv, MAIN)
    return quorum


def told(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_checkpoints.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def as_json(*arguments: str) -> Any:
    return json.loads(told(*arguments, "--json"))


def refused(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_checkpoints.app, arguments)
    assert isinstance(outcome.exception, WrongState), outcome.output
    return str(outcome.exception)


def test_a_list_is_a_line_for_each(quorum: Quorum) -> None:
    head, line = told("list").splitlines()
    assert head.split() == ["PATH", "QUERY", "COMMITTED", "BYTES", "OWNER"]
    path, query, committed, _, owner = line.split("\t")
    assert (path.strip(), query.strip(), committed.strip()) == (MAIN, QUERY, "3")
    assert owner.startswith("a-run on ")
    (row,) = as_json("list", "raftlake://orders")
    assert (row["path"], row["lastCommitted"], row["brokenOff"]) == (MAIN, 3, None)
    assert as_json("list", "raftlake://other") == []


def test_what_is_shown(quorum: Quorum) -> None:
    text = told("show", MAIN, "--last", "2")
    assert f"query: {QUERY}" in text
    assert "state 0 (stateStoreSave): 2 partitions, stores default, versions 1 to 4" in text
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("BATCH"))
    rows = [line.split("\t") for line in lines[head + 1 :]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["2", "yes", "yes", '0={"logOffset":2}'],
        ["3", "yes", "yes", '0={"logOffset":3}'],
    ]
    assert len(as_json("show", MAIN)["batches"]) == 4


def test_state_whose_changes_are_in_topics_is_not_shown_as_lost(quorum: Quorum) -> None:
    """A version becomes a file with the first snapshot."""
    kit.write(quorum.kv, "raftlake://orders/young", {**kit.stateless(2), "state/0/_metadata/metadata": kit.operator(2)})
    (line,) = [line for line in told("show", "raftlake://orders/young").splitlines() if line.startswith("state 0")]
    assert "stores default, no snapshot in a file yet; changes of state are in topics of the quorum" in line
    assert "none" not in line


def test_long_offsets_are_cut_in_tables_and_whole_in_json(quorum: Quorum) -> None:
    offsets = {"topic": {str(number): number for number in range(100)}}
    kit.write(quorum.kv, MAIN, {"offsets/3": kit.offsets(3, json.dumps(offsets))})
    last = told("show", MAIN, "--last", "1").splitlines()[-1]
    assert last.endswith("…")
    assert len(last.split("\t")[-1]) == 60
    assert as_json("show", MAIN)["batches"][3]["offsets"]["0"] == offsets


def test_a_fork_says_what_it_made(quorum: Quorum) -> None:
    facts = as_json("fork", MAIN, TRIAL, "--batch", "1")
    assert facts["path"] == TRIAL
    assert facts["batch"] == 1
    assert facts["query"] != QUERY
    assert json.loads(kit.read(quorum.kv, TRIAL)["metadata"]) == {"id": facts["query"]}
    assert "as of batch 3" in told("fork", MAIN, "raftlake://orders/third")


def test_each_fork_has_an_id_of_its_own(quorum: Quorum) -> None:
    queries = {as_json("fork", MAIN, f"{TRIAL}{number}")["query"] for number in range(3)}
    assert len(queries) == 3


def test_a_rewind_says_from_whom_the_checkpoint_was_taken(quorum: Quorum) -> None:
    outcome = CliRunner().invoke(cli_checkpoints.app, ["rewind", MAIN, "--batch", "1"])
    assert outcome.exit_code == 0
    assert f"{MAIN} is at batch 1: " in outcome.stdout
    assert "taken from run a-run on host" in outcome.stderr
    assert as_json("rewind", MAIN, "--batch", "1") == {"query": QUERY, "files": 0, "owner": None}


def test_a_rename_moves(quorum: Quorum) -> None:
    assert told("rename", MAIN, TRIAL) == f"{MAIN} is {TRIAL} now\n"
    assert kit.read(quorum.kv, TRIAL) == FILES


def test_a_deletion_asks(quorum: Quorum) -> None:
    assert "nothing was changed: --yes deletes" in refused("delete", MAIN)
    assert kit.read(quorum.kv, MAIN) == FILES
    kit.put(quorum.kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    assert as_json("delete", MAIN, "--yes")["files"] == len(FILES)
    assert not quorum.kv.names("/fs/")
    assert quorum.names == ["orders", "__raftlake-state-abcd-0-default"]


def test_a_checkpoint_goes_in_and_out(quorum: Quorum, tmp_path: Path) -> None:
    facts = as_json("export", MAIN, str(tmp_path / "out"))
    assert facts == {"path": str(tmp_path / "out"), "query": QUERY, "batch": 3, "files": len(FILES)}
    assert f"{TRIAL}: query {QUERY}, as of batch 3" in told("import", str(tmp_path / "out"), TRIAL)
    assert kit.read(quorum.kv, TRIAL) == FILES


def test_errors_are_one_line_and_exit_code_1(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for arguments in (
        ["rewind", MAIN, "--batch", "9"],
        ["show", "raftlake://orders/none"],
        ["show", "orders/main"],
        ["import", "/nowhere", TRIAL],
        ["import", str(tmp_path / "loop"), TRIAL],
        ["fork", MAIN, MAIN],
    ):
        monkeypatch.setattr("sys.argv", ["raftlake", "checkpoints", *arguments])
        assert run(app) == 1, arguments
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("raftlake: ")
    monkeypatch.setattr("sys.argv", ["raftlake", "checkpoints", "rewind", MAIN])
    assert run(app) == 2


def test_ctrl_c_says_how_to_go_on(quorum: Quorum) -> None:
    def interrupt(number: int) -> None:
        if number == 5:
            raise KeyboardInterrupt

    quorum.kv.before = interrupt
    outcome = CliRunner().invoke(cli_checkpoints.app, ["rename", MAIN, TRIAL])
    assert outcome.exit_code != 0
    assert "broken off: give the same command again to end its work" in outcome.stderr
    quorum.kv.before = lambda number: None
    listed = CliRunner().invoke(cli_checkpoints.app, ["list"])
    assert f"`raftlake checkpoints rename {MAIN} {TRIAL}` was broken off" in listed.stderr
    told("rename", MAIN, TRIAL)
    assert kit.read(quorum.kv, TRIAL) == FILES


def test_long_work_is_told_of_once_a_second(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 0.5, 1.0, 1.0, 1.5, 2.1, 2.1])
    monkeypatch.setattr(cli_checkpoints.time, "monotonic", lambda: next(now))
    progress = cli_checkpoints._Progress()
    for done in range(1, 5):
        progress("files copied", done, 9)
    assert capsys.readouterr().err.splitlines() == ["2 of 9 files copied", "4 of 9 files copied"]


def test_the_same_in_python(quorum: Quorum) -> None:
    client: Any = quorum
    told_of: list[tuple[str, int, int]] = []
    checkpoints = Checkpoints(client, lambda what, done, count: told_of.append((what, done, count)))
    assert checkpoints.fork(f"{MAIN}/", TRIAL, batch=1).batch == 1
    assert told_of[-1][0] == "files copied"
    assert told_of[-1][1] == told_of[-1][2]
    assert [row["path"] for row in Checkpoints(client).list()] == [MAIN, TRIAL]
