"""`raftlake transactions` at node processes: an open transaction is listed, does not hang, and is aborted with its producer."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from raftlake import Client, LocalQuorum
from raftlake.client import KvConflict, NewRecord

pytestmark = pytest.mark.process

TOPIC, NAME = "cli-transactions", "cli-transactions-open"


def raftlake(quorum: LocalQuorum, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raftlake", "transactions", *arguments, "-b", quorum.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ok(quorum: LocalQuorum, *arguments: str) -> str:
    outcome = raftlake(quorum, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_an_open_transaction_is_listed_and_aborted(quorum: LocalQuorum) -> None:
    with Client(quorum.bootstrap_servers) as client:
        client.create_topic(TOPIC, partitions=2)
        producer = client.transactional_producer(NAME, transaction_timeout_ms=600_000)
        producer.append(TOPIC, NewRecord(value=b"never seen", partition=1))
        (told,) = json.loads(ok(quorum, "list", NAME, "--json"))
        assert (told["state"], told["timeoutMs"]) == ("Ongoing", 600_000)
        assert told["partitions"] == [{"topic": TOPIC, "partition": 1}]
        assert NAME in ok(quorum, "list") and "Ongoing" in ok(quorum, "describe", NAME)
        assert json.loads(ok(quorum, "find-hanging", "--topic", TOPIC, "--json")) == []
        assert json.loads(ok(quorum, "find-hanging", "--json")) == []
        refused = raftlake(quorum, "abort-hanging", TOPIC, "1", "0")
        assert refused.returncode == 1 and "no transaction hangs that begins at offset 0" in refused.stderr

        assert ok(quorum, "abort", NAME).startswith(f"aborted {NAME}, producer {told['producerId']} epoch {told['epoch']}")
        assert json.loads(ok(quorum, "describe", NAME, "--json"))["state"] == "CompleteAbort"
        assert json.loads(ok(quorum, "list", NAME, "--json")) == []
        with pytest.raises(KvConflict):
            producer.commit()
        ends = client.read_offset(TOPIC, [1])
        assert client.read_stable_offset(TOPIC, [1]) == ends
        assert not client.read(TOPIC, 1, 0, max_wait_ms=0)

        again = raftlake(quorum, "abort", NAME)
        assert again.returncode == 1 and "its state is CompleteAbort" in again.stderr
        unknown = raftlake(quorum, "describe", "nobody")
        assert unknown.returncode == 1 and "no transactional id 'nobody'" in unknown.stderr
