"""Clients for Go and Rust while nodes are killed: franz-go, Sarama as kaf calls it, and rskafka (tools/fetch-clients).

kaf itself is no module that can be fetched. Its commands are Sarama's calls, here with kaf's settings and kaf's release of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from killedkit import (
    PARTITIONS,
    TOPIC,
    python,
    read_by,
    read_by_librdkafka,
    require_kills,
    require_whole,
    through_kills,
)
from outcomekit import Ledger, findings, running
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.clients
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def programs() -> Path:
    """Where they are built: once, unless their sources change."""
    done = subprocess.run([ROOT / "tools" / "fetch-clients"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ROOT / done.stdout.strip()


@pytest.fixture
def own_quorum(tmp_path: Path) -> Iterator[LocalQuorum]:
    with LocalQuorum(nodes=3, data_dir=tmp_path / "quorum") as quorum:
        yield quorum


def run(*command: str | Path) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def end_topic(quorum: LocalQuorum) -> None:
    """Readers of Go and Rust are not told where a log ends: they stop at this record."""
    with Client(quorum.bootstrap_servers) as client:
        for partition in range(PARTITIONS):
            client.append(TOPIC, b"end", partition=partition)


def once(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


def require_acknowledged(ledger: Ledger, seen: dict[int, list[int]]) -> None:
    """A producer that is not idempotent may repeat a record, and holds no partitions together."""
    for partition, numbers in seen.items():
        assert not (found := findings(ledger, {partition: once(numbers)})), found


def test_transactions_of_franz_go(own_quorum: LocalQuorum, programs: Path) -> None:
    servers, franz = own_quorum.bootstrap_servers, str(programs / "franz")
    with Client(servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
    with running([franz, servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program)
    seen = require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    end_topic(own_quorum)
    assert read_by([franz, "read", servers, TOPIC]) == seen
    require_kills(own_quorum, ledger)


@pytest.mark.parametrize("name", ["sarama", "rskafka-client"])
def test_a_client_creates_a_topic_and_writes_and_reads(own_quorum: LocalQuorum, programs: Path, name: str) -> None:
    servers, client = own_quorum.bootstrap_servers, programs / name
    run(client, "create", servers, TOPIC, str(PARTITIONS))
    assert [line.split()[1] for line in run(client, "list", servers) if line.split()[0] == TOPIC] == [str(PARTITIONS)]
    with running([str(client), "write", servers, TOPIC], aborts=False) as program:
        ledger = through_kills(own_quorum, program)
    seen = read_by_librdkafka(own_quorum)
    require_acknowledged(ledger, seen)
    end_topic(own_quorum)
    assert read_by([str(client), "read", servers, TOPIC]) == seen


def test_a_log_of_many_leaders_and_transactions_is_read(own_quorum: LocalQuorum, programs: Path) -> None:
    """Each leader's control batch and each marker lies between the records."""
    servers = own_quorum.bootstrap_servers
    with Client(servers) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
    with running([*python("transact_confluent.py"), servers, TOPIC, "worker"]) as program:
        ledger = through_kills(own_quorum, program)
    committed = require_whole(ledger, lambda: read_by_librdkafka(own_quorum))
    end_topic(own_quorum)
    assert read_by([str(programs / "sarama"), "read", servers, TOPIC]) == committed
    assert read_by([str(programs / "franz"), "read", servers, TOPIC]) == committed
    require_kills(own_quorum, ledger)
    # rskafka 0.6.0 ends at the first marker of a transaction, Kafka's own too (influxdata/rskafka, pull request 297). A release
    # that reads markers belongs into the assertion above.
    rskafka = subprocess.run([programs / "rskafka-client", "read", servers, TOPIC], capture_output=True, text=True, check=False)
    assert rskafka.returncode != 0 and "Unknown control batch record version" in rskafka.stderr, rskafka
