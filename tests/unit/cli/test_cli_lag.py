"""`raftlake lag` in front of positions in memory: lines, sums, ages, what is gone and what is stale."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from raftlake.cli import lag as cli_lag
from raftlake.client import QueryLag, QueryMissing
from raftlake.errors import RaftlakeError

NOW_MS = 1_000_000_000
BASE = QueryLag(
    query="q-1",
    name="totals",
    topic="orders",
    partition=0,
    position=40,
    end=100,
    batch_ms=NOW_MS - 9_000,
    seen_ms=NOW_MS - 4_000,
    host="host-1",
    pid=17,
    waiting_since_ms=NOW_MS - 30_000,
)
LAGS = (
    BASE,
    replace(BASE, partition=1, position=7, end=7, waiting_since_ms=None),
    replace(BASE, partition=2, position=9, end=10, waiting_since_ms=NOW_MS - 300_000),
    replace(BASE, topic="rates", position=5, end=5, waiting_since_ms=None),
    replace(BASE, query="q-2", name="", topic="old", end=None, waiting_since_ms=None, seen_ms=NOW_MS - 3 * 24 * 3600_000),
    replace(BASE, query="q-2", name="", topic="orders", position=101, waiting_since_ms=None, seen_ms=NOW_MS - 600_001),
)


class FakeClient:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.found = LAGS
        self.given_ms: list[float] = []
        #: Seconds that a question takes.
        self.takes = 0.0
        self.now = 50.0

    def query_lags(self, query: str | None, topic: str | None = None, *, with_times: bool = False) -> tuple[QueryLag, ...]:
        self.asked.append((query, topic, with_times))
        self.now += self.takes
        if query == "nope":
            raise QueryMissing("no streaming query has the id or the name 'nope'; `raftlake lag` names them")
        return self.found

    def forget_query(self, query: str, *, timeout_ms: float) -> tuple[QueryLag, ...]:
        self.asked.append(query)
        self.given_ms.append(timeout_ms)
        if query == "nope":
            raise QueryMissing("no streaming query has the id 'nope'; `raftlake lag` names them")
        return tuple(replace(each, end=None) for each in LAGS[:4])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield client

    monkeypatch.setattr(cli_lag, "connect", connect)
    clocks = SimpleNamespace(time=lambda: NOW_MS / 1000, monotonic=lambda: client.now)
    monkeypatch.setattr(cli_lag, "time", clocks)
    return client


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_lag.app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]


def test_a_line_for_each_query_and_topic(client: FakeClient) -> None:
    assert cells(run()) == [
        ["Query", "Name", "Topic", "Lag", "Behind", "Seen"],
        ["q-1", "totals", "orders", "61", "5 min", "4 s ago"],
        ["q-1", "totals", "rates", "0", "0 s", "4 s ago"],
        ["q-2", "-", "old", "topic is gone", "-", "3 d ago, stale"],
        ["q-2", "-", "orders", "0", "0 s", "10 min ago, stale"],
    ]
    assert client.asked == [(None, None, True)]


def test_a_line_for_each_partition(client: FakeClient) -> None:
    found = cells(run("--partitions", "--query", "totals", "--topic", "orders"))
    assert found[:4] == [
        ["Query", "Name", "Topic", "Partition", "Position", "End", "Lag", "Behind", "Seen"],
        ["q-1", "totals", "orders", "0", "40", "100", "60", "30 s", "4 s ago"],
        ["q-1", "totals", "orders", "1", "7", "7", "0", "0 s", "4 s ago"],
        ["q-1", "totals", "orders", "2", "9", "10", "1", "5 min", "4 s ago"],
    ]
    assert found[5][5:8] == ["-", "topic is gone", "-"]
    assert client.asked == [("totals", "orders", True)]


def test_partitions_that_are_gone_are_in_no_sum(client: FakeClient) -> None:
    client.found = (BASE, replace(BASE, partition=1, end=None, waiting_since_ms=None))
    assert cells(run())[1][3] == "60 and more"


def test_the_same_as_json(client: FakeClient) -> None:
    told = json.loads(run("--json"))
    assert len(told) == len(LAGS)
    assert told[0] == {
        "query": "q-1",
        "name": "totals",
        "topic": "orders",
        "partition": 0,
        "position": 40,
        "end": 100,
        "lag": 60,
        "waitingSinceMs": NOW_MS - 30_000,
        "batchMs": NOW_MS - 9_000,
        "seenMs": NOW_MS - 4_000,
        "isStale": False,
        "host": "host-1",
        "pid": 17,
    }
    assert [each["isStale"] for each in told] == [False] * 4 + [True] * 2
    assert (told[4]["end"], told[4]["lag"]) == (None, None)
    client.found = ()
    assert json.loads(run("--json")) == [] and cells(run()) == [["Query", "Name", "Topic", "Lag", "Behind", "Seen"]]


def test_a_query_is_forgotten(client: FakeClient) -> None:
    with pytest.raises(RaftlakeError, match=r"query q-1 was seen 4 s ago and may still run.* use --force"):
        run("forget", "q-1")
    assert "q-1" not in client.asked
    client.found = (LAGS[4], replace(BASE, seen_ms=NOW_MS - 600_000))
    with pytest.raises(RaftlakeError, match=r"seen 10 min ago"):
        run("forget", "q-1")
    client.found = LAGS[4:]
    run("forget", "q-1")
    client.found = LAGS
    client.asked.clear()
    assert run("forget", "q-1", "--force") == "forgot q-1: it had positions in 4 partitions, and was seen 4 s ago\n"
    assert len(json.loads(run("forget", "q-1", "--json", "--force"))) == 4
    with pytest.raises(QueryMissing, match="no streaming query has the id 'nope'"):
        run("forget", "nope")
    assert client.asked == ["q-1", "q-1", ("nope", None, False), "nope"]


def test_a_command_has_one_deadline(client: FakeClient) -> None:
    client.found = LAGS[4:]
    client.takes = 3
    run("forget", "q-2", "--timeout-ms", "5000")
    run("forget", "q-2", "--timeout-ms", "2000")
    assert client.given_ms == [2_000, 1]
