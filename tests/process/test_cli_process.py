"""The commands against the shared quorum of node processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import waitkit
from leaderkit import while_one_leads
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 60
wait_until = partial(waitkit.wait_until, seconds=PATIENCE_SECONDS)


@pytest.fixture
def raftlake(quorum: LocalQuorum) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "raftlake", *arguments, "-b", quorum.bootstrap_servers],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def topic(quorum: LocalQuorum, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    with Client(quorum.bootstrap_servers) as client:
        return client.create_topic(f"cli-{request.node.name}").name


def ok(outcome: subprocess.CompletedProcess[str]) -> str:
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def refused(outcome: subprocess.CompletedProcess[str]) -> str:
    assert outcome.returncode == 1
    assert outcome.stderr.count("\n") == 1, outcome.stderr
    return outcome.stderr


def test_topics(raftlake: Run) -> None:
    assert "has 2 partitions" in ok(raftlake("topics", "create", "cli-topics", "--partitions", "2"))
    assert "TOPIC_ALREADY_EXISTS" in refused(raftlake("topics", "create", "cli-topics"))
    ok(raftlake("topics", "create", "cli-topics", "--if-not-exists"))
    # Any node answers this, also one that has not applied the change yet.
    wait_until(lambda: "cli-topics" in ok(raftlake("topics", "list")).splitlines(), "the topic is listed")
    described = json.loads(ok(raftlake("topics", "describe", "cli-topics", "--json")))
    assert [row["partition"] for row in described["partitions"]] == [0, 1]
    assert all(row["startOffset"] == 0 <= row["endOffset"] for row in described["partitions"])
    assert "LeaderEpoch" in ok(raftlake("topics", "describe", "cli-topics"))
    assert "has 3 partitions" in ok(raftlake("topics", "alter", "cli-topics", "--partitions", "3"))
    assert "not be an increase" in refused(raftlake("topics", "alter", "cli-topics", "--partitions", "2"))
    again = ("topics", "create", "cli-topics", "--if-not-exists", "--partitions", "9")
    assert "not 9: `raftlake topics alter cli-topics --partitions 9`" in refused(raftlake(*again))
    here = ("--partition", "1", "--offset")
    assert "begins at offset" in ok(raftlake("topics", "delete-records", "cli-topics", *here, "-1"))
    assert "OFFSET_OUT_OF_RANGE" in refused(raftlake("topics", "delete-records", "cli-topics", *here, "1000"))
    ok(raftlake("topics", "delete", "cli-topics"))
    assert "does not exist" in refused(raftlake("topics", "delete", "cli-topics"))
    assert "does not exist" in refused(raftlake("topics", "describe", "cli-topics"))


def test_lines_in_lines_out(raftlake: Run, topic: str) -> None:
    assert ok(raftlake("produce", topic, stdin="one\ntwo\nthree\n")) == ""
    assert ok(raftlake("consume", topic, "--from-beginning", "--linearizable")) == "one\ntwo\nthree\n"
    assert ok(raftlake("consume", topic, "--from-beginning", "--max-messages", "2")) == "one\ntwo\n"
    ok(raftlake("produce", topic, "--key-separator", ":", stdin="k:v"))
    last = ok(raftlake("consume", topic, "--from-beginning", "--linearizable", "--json")).splitlines()[-1]
    assert (json.loads(last)["key"], json.loads(last)["value"]) == ("k", "v")
    assert "has 1 partition," in refused(raftlake("consume", topic, "--partition", "7"))
    assert "does not exist" in refused(raftlake("produce", "no-such-topic", stdin="x\n"))


@pytest.mark.usefixtures("signals_arrive")
def test_consume_follows_until_ctrl_c(quorum: LocalQuorum, raftlake: Run, topic: str) -> None:
    ok(raftlake("produce", topic, stdin="first\n"))
    consumer = subprocess.Popen(
        [sys.executable, "-m", "raftlake", "consume", topic, "--from-beginning", "-b", quorum.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert consumer.stdout is not None and consumer.stderr is not None
    lines, errors = waitkit.Lines(consumer.stdout), waitkit.Lines(consumer.stderr)
    try:
        lines.require("first\n", PATIENCE_SECONDS)
        ok(raftlake("produce", topic, stdin="second\n"))
        lines.require("second\n", PATIENCE_SECONDS)
        os.kill(consumer.pid, signal.SIGINT)
        assert consumer.wait(timeout=20) == 130
    finally:
        consumer.kill()
        consumer.wait()
        left = lines.rest() + errors.rest()
    assert not any("Traceback" in line for line in left)


def test_kv(raftlake: Run, tmp_path: Path) -> None:
    version = int(ok(raftlake("kv", "put", "cli/a", "value", "--create")))
    assert ok(raftlake("kv", "get", "cli/a")) == "value"
    assert ok(raftlake("kv", "get", "cli/a", "--stale")) in ("value", "")
    assert f"is at version {version}" in refused(raftlake("kv", "put", "cli/a", "other", "--create"))
    assert int(ok(raftlake("kv", "put", "cli/a", "-", "--if-version", str(version), stdin="from stdin"))) > version
    (tmp_path / "value").write_bytes(b"from file")
    ok(raftlake("kv", "put", "cli/b", "--file", str(tmp_path / "value")))
    listed = json.loads(ok(raftlake("kv", "list", "cli/", "--values", "--json")))
    assert [(row["key"], row["value"]) for row in listed] == [("cli/a", "from stdin"), ("cli/b", "from file")]
    assert [line.split("\t")[2] for line in ok(raftlake("kv", "list", "cli/", "--limit", "1")).splitlines()] == ["cli/a"]
    seen = ok(raftlake("kv", "watch", "cli/", "--from", str(version - 1), "--max-events", "3")).splitlines()
    assert [json.loads(line)["value"] for line in seen] == ["value", "from stdin", "from file"]
    ok(raftlake("kv", "delete", "cli/a"))
    assert "'cli/a' does not exist" in refused(raftlake("kv", "get", "cli/a"))
    assert "403" in refused(raftlake("kv", "put", "/raftlake/topics/x", "v"))
    for key in ("cli/d/1", "cli/d/2", "cli/e"):
        ok(raftlake("kv", "put", key, ""))
    names = [line.split("\t")[2] for line in ok(raftlake("kv", "list", "cli/", "--delimiter", "/")).splitlines()]
    assert names == ["cli/b", "cli/d/", "cli/e"]
    assert ok(raftlake("kv", "delete", "--prefix", "cli/d/")) == "2\n"
    assert "INVALID_REQUEST" in refused(raftlake("kv", "delete", "--prefix", "/raft"))
    assert [row["key"] for row in json.loads(ok(raftlake("kv", "list", "cli/", "--json")))] == ["cli/b", "cli/e"]


def test_describe(raftlake: Run, quorum: LocalQuorum) -> None:
    with Client(quorum.bootstrap_servers) as client:
        status, leader = while_one_leads(client, lambda: (ok(raftlake("describe", "--status")), quorum.leader()))
    assert f"LeaderId:               {leader}\n" in status
    facts = json.loads(ok(raftlake("describe", "--status", "--json")))
    assert [voter["id"] for voter in facts["currentVoters"]] == [1, 2, 3]
    rows = ok(raftlake("describe", "--replication")).splitlines()
    assert rows[0].split() == [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ]
    assert [row.split()[-1] for row in rows[1:]] == ["Leader", "Follower", "Follower"]


def test_every_nodes_http_front_and_the_command_tell_the_same_of_the_quorum(raftlake: Run, quorum: LocalQuorum) -> None:
    def said() -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
        facts = json.loads(ok(raftlake("describe", "--status", "--json")))
        rows = json.loads(ok(raftlake("describe", "--replication", "--json")))
        return facts, rows, [httpx.get(f"http://{server}/v1/quorum").json() for server in quorum.http_servers.split(",")]

    known = ("nodeId", "directoryId", "status")
    moving = ("highWatermark", "maxFollowerLag", "maxFollowerLagTimeMs")
    with Client(quorum.bootstrap_servers) as client:
        facts, rows, fronts = while_one_leads(client, said)
    for told in fronts:
        assert list(told) == [*facts, "replicas", "nodeId", "leaderHttp"]
        assert {name: told[name] for name in facts if name not in moving} == {
            name: fact for name, fact in facts.items() if name not in moving
        }
        assert [list(row) for row in told["replicas"]] == [list(row) for row in rows]
        assert [[row[name] for name in known] for row in told["replicas"]] == [[row[name] for name in known] for row in rows]

    def lags(told: dict[str, Any]) -> tuple[int, bool]:
        return told["maxFollowerLag"], 0 <= told["maxFollowerLagTimeMs"] < 2000

    # Nothing is written, so nobody lags for long, and everybody has everything since the last fetch.
    wait_until(
        lambda: all(lags(told) == (0, True) for facts, _, fronts in (said(),) for told in (facts, *fronts)), "nobody lags"
    )


def test_dump_of_a_segment(quorum_dir: Path, raftlake: Run) -> None:
    ok(raftlake("kv", "put", "dump", "v"))
    segment = quorum_dir / "node-1" / "__cluster_metadata-0" / "00000000000000000000.log"
    outcome = subprocess.run(
        [sys.executable, "-m", "raftlake", "dump", str(segment), "--records"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "baseOffset: 0" in ok(outcome)


def shell(quorum: LocalQuorum, tail: str, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """A command with what a shell user writes behind it; the exit code is the command's own."""
    line = ["bash", "-o", "pipefail", "-c", f'"$@" {tail}', "bash", sys.executable, "-m", "raftlake", *arguments]
    environment = os.environ | {"RAFTLAKE_BOOTSTRAP_SERVER": quorum.bootstrap_servers}
    return subprocess.run(line, input=stdin, capture_output=True, timeout=60, check=False, env=environment)


def test_a_consumer_whose_reader_goes_ends_in_silence(quorum: LocalQuorum, raftlake: Run, topic: str) -> None:
    # More than a pipe holds: the consumer still writes when its reader is gone, however late the reader goes.
    ok(raftlake("produce", topic, stdin="".join(f"{n:0200}\n" for n in range(2000))))
    for option in ("--from-beginning", "--linearizable"):
        outcome = shell(quorum, "| head -1", "consume", topic, option)
        assert (outcome.returncode, outcome.stdout, outcome.stderr) == (141, b"%0200d\n" % 0, b"")


def test_commands_with_closed_and_full_streams(quorum: LocalQuorum, raftlake: Run, topic: str) -> None:
    ok(raftlake("produce", topic, stdin="one\n"))
    full = b"raftlake: cannot write to standard output: No space left on device\n"
    for arguments in (["topics", "list"], ["consume", topic, "--linearizable"], ["consume", topic, "--from-beginning"]):
        outcome = shell(quorum, "> /dev/full", *arguments)
        assert (outcome.returncode, outcome.stderr) == (1, full)
    for arguments in (["topics", "list"], ["consume", topic, "--linearizable"]):
        outcome = shell(quorum, ">&-", *arguments)
        assert (outcome.returncode, outcome.stderr) == (0, b"")
    outcome = shell(quorum, "<&-", "produce", topic)
    assert (outcome.returncode, outcome.stderr) == (0, b"0 records appended\n")


def test_produce_says_what_it_did_when_it_fails(quorum: LocalQuorum, raftlake: Run, topic: str) -> None:
    outcome = shell(quorum, "", "produce", topic, stdin=b"small\n" + bytes(9 << 20) + b"\nsmall too\n")
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(b"raftlake: MESSAGE_TOO_LARGE")
    assert outcome.stderr.endswith(b"; 2 records were appended, not input line 2; nothing behind line 3 was sent\n")
    assert sorted(ok(raftlake("consume", topic, "--linearizable")).splitlines()) == ["small", "small too"]


def test_keys_and_values_that_are_no_text(quorum: LocalQuorum, raftlake: Run, tmp_path: Path) -> None:
    refusal = shell(quorum, "kv put $'\\xff\\xfe' v")
    assert refusal.returncode == 1
    assert refusal.stderr == b"raftlake: key '\\udcff\\udcfe' is not valid Unicode text\n"
    (tmp_path / "value").write_bytes(b"\xff")
    ok(raftlake("kv", "put", "cli-binary", "--file", str(tmp_path / "value")))
    got = json.loads(ok(raftlake("kv", "get", "cli-binary", "--json")))
    (listed,) = json.loads(ok(raftlake("kv", "list", "cli-binary", "--values", "--json")))
    (seen,) = ok(raftlake("kv", "watch", "cli-binary", "--from", "0", "--max-events", "1")).splitlines()
    for facts in (got, listed, json.loads(seen)):
        assert (facts["value"], facts["valueBase64"]) == ("\\xff", "/w==")
