"""`raftlake tier rebuild-metadata`: what it asks the leader, and what it says of each answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from raftlake.cli import tier as cli_tier
from raftlake.errors import UnknownOutcome
from tierclikit import OTHER_ID, TOPIC_ID, Keys, answering_keys, failed, run


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    return answering_keys(monkeypatch)


@contextmanager
def leader(keys: Keys, monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, dict[str, Any]]) -> Iterator[list[Any]]:
    """Node 1 leads, and answers so, one after another. The bodies of what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/tier/rebuild-metadata"
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            status, body = answers[len(asked) - 1]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    keys.put_node(1, ("127.0.0.1", server.server_address[1]))
    monkeypatch.setattr(keys, "describe_quorum", lambda: SimpleNamespace(leader_id=1), raising=False)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


MADE = {"startOffset": 0, "endOffset": 30, "segments": 3, "bytes": 700}


def test_the_keys_of_all_partitions_are_made_anew(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.put_topic("orders", OTHER_ID, 2)
    keys.put_topic("fares", TOPIC_ID, 1)
    with leader(keys, monkeypatch, (200, MADE), (200, MADE), (200, MADE | {"endOffset": 31})) as asked:
        lines = run("rebuild-metadata").splitlines()
    assert asked == [
        {"topic": "fares", "partition": 0},
        {"topic": "orders", "partition": 0},
        {"topic": "orders", "partition": 1},
    ]
    assert lines[0].split() == cli_tier.REBUILT_COLUMNS
    assert lines[3].split() == ["orders", "1", "0", "31", "3", "700", "-"]


def test_one_partition_is_made_anew(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.put_topic("orders", OTHER_ID, 2)
    keys.put_topic("fares", TOPIC_ID, 2)
    with leader(keys, monkeypatch, (200, MADE)) as asked:
        facts = json.loads(run("rebuild-metadata", "--topic", "orders", "--partition", "1", "--json"))
    assert asked == [{"topic": "orders", "partition": 1}]
    assert facts == {"partitions": [{"topic": "orders", "partition": 1, **MADE, "error": None}]}


def test_a_partition_whose_keys_stay_is_an_error_of_the_command(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.put_topic("orders", OTHER_ID, 2)
    with leader(keys, monkeypatch, (409, {"error": "never showed a row"}), (200, MADE)):
        output, error = failed("rebuild-metadata")
    assert isinstance(error, cli_tier.TableWrong) and str(error) == "the keys of 1 of 2 partitions were not changed"
    assert "never showed a row" in output and "700" in output


@pytest.mark.parametrize(("status", "body"), [(504, {"error": "its outcome is unknown"}), (200, {"startOffset": 0}), (200, [])])
def test_keys_that_may_be_made_anew_still_are_no_failure_but_unknown(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, status: int, body: Any
) -> None:
    """A command that timed out said that the keys were not changed. Seconds later they were."""
    keys.put_topic("orders", OTHER_ID, 2)
    with leader(keys, monkeypatch, (200, MADE), (status, body)):
        _, error = failed("rebuild-metadata")
    assert isinstance(error, UnknownOutcome)
    assert "the keys of orders-1 anew; its outcome is not known" in str(error) and "raftlake tier status" in str(error)


def test_a_leader_that_takes_too_long_may_make_the_keys_anew_still(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.put_topic("orders", OTHER_ID, 1)
    monkeypatch.setattr(keys, "describe_quorum", lambda: SimpleNamespace(leader_id=1), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keys.put_node(1, ("127.0.0.1", silent.getsockname()[1]))
        output, error = failed("rebuild-metadata", "--timeout-ms", "50")
    assert isinstance(error, UnknownOutcome) and "not known: no answer" in output


def test_what_cannot_be_made_anew_is_one_line(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "describe_quorum", lambda: SimpleNamespace(leader_id=1), raising=False)
    keys.put_node(1, None)
    _, error = failed("rebuild-metadata")
    assert str(error) == "there are no topics"
    keys.put_topic("orders", OTHER_ID, 1)
    _, error = failed("rebuild-metadata", "--topic", "else")
    assert str(error) == "there is no such topic or partition"
    _, error = failed("rebuild-metadata")
    assert str(error).startswith("node 1 leads the quorum and has no http.listener")
    keys.put_node(1, ("127.0.0.1", 1))
    output, _ = failed("rebuild-metadata")
    assert "no answer from 127.0.0.1:1: " in output
    outcome = CliRunner().invoke(cli_tier.app, ["rebuild-metadata", "--partition", "1"])
    assert outcome.exit_code == 2 and "--topic" in outcome.output
