"""`foreach_batch`: what a function is told, marks of side effects, and a run that was replaced."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

import pyspark_raftlake
from connector.fakekeys import FakeKeys
from pyspark_raftlake import foreach
from pyspark_raftlake.errors import SinkFailed, SinkFenced
from pyspark_raftlake.foreach import Batch, Once, foreach_batch, quorum_of, txn_options
from pyspark_raftlake.option_names import FOREACH_RUN, SERVERS_ENVIRONMENT
from raftlake.client import sink_keys as keys
from raftlake.errors import ConfigError
from raftlake.kv.commands import Put


class Keys(FakeKeys):
    """With single puts."""

    def put(self, key: str, value: bytes, *, if_version: int, timeout_ms: float) -> int:
        return self.txn({key: if_version}, [Put(key, value)])


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Keys:
    made = Keys()
    monkeypatch.setattr(foreach, "client_of", lambda _: made)
    return made


def rows_of(query: str | None, run: str | None) -> Any:
    """A DataFrame of a batch, as far as its local properties go."""
    told = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}
    process = SimpleNamespace(pid=os.getpid)
    handle = SimpleNamespace(current=lambda: process)
    java = SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle))
    context = SimpleNamespace(getLocalProperty=told.get, setLocalProperty=told.__setitem__, _jvm=SimpleNamespace(java=java))
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


class Active:
    """What Spark tells of a query: the run, or nothing; and whether rows of a batch were read behind the function."""

    run_id: str | None = None
    read: list[Any] = []

    def __init__(self, session: Any, query: str) -> None:
        assert session.sparkContext.getLocalProperty("sql.streaming.queryId") == query

    def run(self) -> str | None:
        return self.run_id

    def read_unread(self, rows: Any) -> None:
        self.read.append(rows)


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> type[Active]:
    made = type("Active", (Active,), {"read": []})
    monkeypatch.setattr(foreach, "ActiveQuery", made)
    return made


def once(number: int, name: str = "mail") -> Once:
    return Once(quorum=quorum_of("a:1"), app="q", name=name, batch=number)


def test_a_function_is_told_its_batch(space: Keys) -> None:
    seen: list[Batch] = []
    call = foreach_batch(lambda rows, batch_id, batch: seen.append(batch), "a:1")
    call(rows_of("query-1", "run-1"), 7)
    assert (seen[0].query, seen[0].run, seen[0].number) == ("query-1", "run-1", 7)
    assert seen[0].txn_options() == {"txnAppId": "query-1", "txnVersion": "7"}
    assert seen[0].txn_options("copy") == {"txnAppId": "query-1/copy", "txnVersion": "7"}
    assert txn_options(3, "app") == {"txnAppId": "app", "txnVersion": "3"}
    owner = keys.decode_owner(space.entries[keys.owner_key("query-1")][0])
    assert (owner.run, owner.pid) == ("run-1", os.getpid())


def test_the_run_is_the_one_that_spark_has_and_its_rows_are_read_behind_the_function(space: Keys, active: type[Active]) -> None:
    """A function may choose another job group, which stays for the batches behind."""
    active.run_id = "run-1"
    seen: list[tuple[str, str, int]] = []

    def function(rows: Any, _: int, batch: Batch) -> None:
        seen.append((batch.run, rows.sparkSession.sparkContext.getLocalProperty(FOREACH_RUN), len(active.read)))

    call = foreach_batch(function, "a:1")
    for group in ("run-1", "nightly totals"):
        call(rows := rows_of("query-1", group), 7)
        assert rows.sparkSession.sparkContext.getLocalProperty(FOREACH_RUN) is None
    assert seen == [("run-1", "run-1", 0), ("run-1", "run-1", 1)]
    assert len(active.read) == 2
    assert keys.decode_owner(space.entries[keys.owner_key("query-1")][0]).run == "run-1"


def test_a_run_that_was_replaced_is_refused_before_the_function(space: Keys) -> None:
    called: list[int] = []
    call = foreach_batch(lambda rows, batch_id, batch: called.append(batch_id), "a:1")
    call(rows_of("query-1", "run-1"), 0)
    call(rows_of("query-1", "run-2"), 1)
    with pytest.raises(SinkFenced, match="The owner is run run-2"):
        call(rows_of("query-1", "run-1"), 1)
    assert called == [0, 1]
    with pytest.raises(SinkFailed, match="within a streaming query"):
        call(rows_of(None, None), 0)


def test_a_side_effect_is_marked_once_and_for_its_batch(space: Keys) -> None:
    assert once(3).claim()
    assert not once(3).claim()
    assert not once(2).claim()
    assert once(4).claim()
    assert once(4, "other").claim()
    assert (once(4).is_done(), once(5).is_done()) == (True, False)


def test_a_block_that_fails_leaves_no_mark(space: Keys) -> None:
    def fail() -> None:
        with once(0) as is_first:
            assert is_first
            raise ValueError("no mail")

    with pytest.raises(ValueError, match="no mail"):
        fail()
    with once(0) as is_first:
        assert is_first
    with once(0) as is_first:
        assert not is_first


def test_of_two_that_mark_at_once_one_is_told_that_it_was_first(space: Keys) -> None:
    other: list[bool] = []
    space.before_txn = [lambda: other.append(once(0).claim())]
    assert not once(0).claim()
    assert other == [True]


@pytest.mark.parametrize("outcome", ["lost before", "lost after"])
def test_a_mark_without_an_answer_is_looked_up(space: Keys, outcome: str) -> None:
    space.outcomes = [outcome]
    assert once(0).claim()
    assert not once(0).claim()
    assert len([command for command in space.commands if command]) <= 2


def test_the_quorum_is_that_of_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVERS_ENVIRONMENT, "b:2")
    assert quorum_of(None).bootstrap_servers == "b:2"
    monkeypatch.delenv(SERVERS_ENVIRONMENT)
    with pytest.raises(ConfigError, match="must be specified"):
        quorum_of(None)
    assert pyspark_raftlake.foreach_batch is foreach_batch
    with pytest.raises(AttributeError, match="nothing"):
        pyspark_raftlake.nothing  # noqa: B018
