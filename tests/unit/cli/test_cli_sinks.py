"""`raftlake sinks` in front of keys in memory: what is listed and shown, and what forgetting does and leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from connector.fakekeys import FakeKeys
from raftlake.cli import sinks as cli_sinks
from raftlake.cli.sink_facts import SinkMissing
from raftlake.client import sink_keys as keys
from raftlake.client.errors import KvConflict
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.kv.commands import OPERATIONS_MAX, Put

OWNER = keys.Owner(run="run-1", query="q", host="host-1", pid=17, since_ms=1_000, generation=3, before=("run-0",))
BATCH = keys.CommittedBatch(batch=41, run="run-1", rows=7, tasks=2, at_ms=2_000, topics={"t": 7})


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> FakeKeys:
    space = FakeKeys()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield space

    monkeypatch.setattr(cli_sinks, "connect", connect)
    for app in ("a/b", "c"):
        space.txn({}, [Put(keys.owner_key(app), keys.encode(OWNER))])
    space.txn({}, [Put(keys.batch_key("a/b"), keys.encode(BATCH))])
    return space


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_sinks.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_sinks_are_listed_by_app(space: FakeKeys) -> None:
    lines = [line.split("\t") for line in run("list").splitlines()]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["App", "Batch", "Rows", "Committed", "Owner"],
        ["a/b", "41", "7", "1970-01-01T00:00:02Z", "host-1:17"],
        ["c", "-1", "0", "-", "host-1:17"],
    ]
    told = json.loads(run("list", "--json"))
    assert [each["app"] for each in told] == ["a/b", "c"]
    assert told[0]["topics"] == {"t": 7}
    assert told[0]["owner"] == {
        "run": "run-1",
        "query": "q",
        "host": "host-1",
        "pid": 17,
        "sinceMs": 1000,
        "generation": 3,
    }
    space.entries.clear()
    assert json.loads(run("list", "--json")) == []


def test_one_sink_is_shown_with_what_it_has_left_open(space: FakeKeys) -> None:
    space.begin(keys.app_transactional_id("a/b", 3, 0, 1))
    space.begin(keys.app_transactional_id("a", 3, 0, 1))
    shown = run("show", "a/b")
    assert "run run-1 on host host-1 (process 17, since 1970-01-01T00:00:01Z)" in shown
    assert "t (7)" in shown
    told = json.loads(run("show", "a/b", "--json"))
    assert (told["batch"], told["committedMs"], told["committedBy"]) == (41, 2000, "run-1")
    assert [each["transactionalId"] for each in told["openTransactions"]] == ["raftlake-sink.a.a%2Fb.3.0.1"]
    assert "none is visible yet" in run("show", "c")


def test_a_batch_that_is_refused_is_shown(space: FakeKeys) -> None:
    assert "planned anew" not in run("show", "a/b")
    assert json.loads(run("list", "--json"))[0]["isReplanned"] is False
    space.txn({}, [Put(keys.batch_key("a/b"), keys.encode(replace(BATCH, is_replanned=True)))])
    shown = run("show", "a/b")
    assert "batch 41 was planned anew, with other rows: `raftlake sinks forget a/b` lets it be written" in shown
    assert json.loads(run("show", "a/b", "--json"))["isReplanned"] is True


def test_a_sink_is_forgotten_with_what_it_has_left_open(space: FakeKeys) -> None:
    mine, other = keys.app_transactional_id("a/b", 3, 0, 1), keys.app_transactional_id("c", 3, 0, 1)
    space.begin(mine)
    space.begin(other)
    assert run("forget", "a/b") == "forgot a/b: its last batch was 41, and 1 transactions were open\n"
    assert sorted(space.entries) == [keys.owner_key("c")]
    assert space.states() == {mine: "Aborted", other: "Ongoing"}


def test_a_sink_that_commits_meanwhile_is_not_forgotten(space: FakeKeys) -> None:
    space.before_txn = [lambda: space.txn({}, [Put(keys.batch_key("a/b"), keys.encode(BATCH))])]
    space.begin(keys.app_transactional_id("a/b", 3, 0, 1))
    with pytest.raises(KvConflict):
        run("forget", "a/b")
    assert keys.batch_key("a/b") in space.entries
    assert set(space.states().values()) == {"Ongoing"}


@pytest.mark.parametrize(
    "failure", [UnknownOutcome("no answer"), RequestRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader")]
)
def test_a_forgetting_that_was_broken_off_is_ended_by_the_next_one(space: FakeKeys, failure: Exception) -> None:
    """The keys were gone and the transactions open, and the next one said that there is no such sink."""
    mine, other = keys.app_transactional_id("a/b", 3, 0, 1), keys.app_transactional_id("c", 3, 0, 1)
    space.begin(mine)
    space.begin(other)
    space.outcomes = [None, failure]
    with pytest.raises(type(failure)):
        run("forget", "a/b")
    assert sorted(space.entries) == [keys.owner_key("c")] and space.states()[mine] == "Ongoing"
    assert run("forget", "a/b") == "a/b was forgotten before, and 1 transactions were open still\n"
    assert space.states() == {mine: "Aborted", other: "Ongoing"}
    with pytest.raises(SinkMissing):
        run("forget", "a/b")


@pytest.mark.parametrize("ended", [[0], [0, 1], [2], [0, 1, 2]])
def test_what_tasks_end_meanwhile_leaves_no_other_transaction_open(space: FakeKeys, ended: list[int]) -> None:
    ids = [keys.app_transactional_id("a/b", 3, task, 1) for task in range(3)]
    for each in ids:
        space.begin(each)

    def meanwhile() -> None:
        for task in ended:
            space.time_out(ids[task])

    space.before_txn = [lambda: None, meanwhile]
    assert run("forget", "a/b").endswith("and 3 transactions were open\n")
    assert set(space.states().values()) == {"Aborted"}
    assert keys.owner_key("a/b") not in space.entries


def test_the_next_transaction_of_a_task_is_left_alone(space: FakeKeys) -> None:
    first, second = (keys.app_transactional_id("a/b", 3, task, 1) for task in range(2))
    space.begin(first)
    space.begin(second)
    space.before_txn = [lambda: None, lambda: space.begin(first)]
    run("forget", "a/b")
    assert space.states() == {first: "Ongoing", second: "Aborted"}


@pytest.mark.parametrize("count", [OPERATIONS_MAX - 1, OPERATIONS_MAX, OPERATIONS_MAX + 1])
def test_as_many_transactions_are_aborted_at_once_as_a_command_takes(space: FakeKeys, count: int) -> None:
    for task in range(count):
        space.begin(keys.app_transactional_id("a/b", 3, task, 1))
    before = len(space.commands)
    run("forget", "a/b")
    sizes = [len(command) for command in space.commands[before + 1 :]]
    assert sizes == ([count] if count <= OPERATIONS_MAX else [OPERATIONS_MAX, count - OPERATIONS_MAX])
    assert set(space.states().values()) == {"Aborted"}


@pytest.mark.parametrize("command", ["show", "forget"])
def test_a_sink_that_does_not_exist_is_an_error(space: FakeKeys, command: str) -> None:
    with pytest.raises(SinkMissing, match="no sink has the app 'nope'"):
        run(command, "nope")
    assert len(space.entries) == 3
