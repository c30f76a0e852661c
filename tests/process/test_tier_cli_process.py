"""`raftlake tier` against real nodes: three topics of librdkafka's batches are copied, verified, damaged by hand, and named."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

import waitkit
from raftlake import Client, LocalQuorum

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=120)

SETTINGS = {"tier.target.lag.ms": "1000", "tier.flush.bytes": "65536"}
ROOT = Path(__file__).resolve().parents[2]
#: With the codec of the producer. A CRC of a compressed batch cannot be made again from its rows.
TOPICS = {"orders": "none", "fares": "lz4", "clicks": "none"}
RECORDS = 3_000
PARTITIONS = 2


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", "tier", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def facts(*arguments: str) -> Any:
    outcome = raftlake(*arguments, "--json")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return json.loads(outcome.stdout)


def produce(servers: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(topic, b"value-%06d" % number, key=b"k%d" % (number % 50), headers=[("n", b"%d" % number)])
        producer.poll(0)
        if number % 1_000 == 999:
            # Several segments for each partition.
            producer.flush()
    assert producer.flush(60) == 0


def test_status_and_verify_from_the_first_copy_to_a_damaged_file(tmp_path: Path) -> None:
    uri = tmp_path / "tables"
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings={"tier.uri": str(uri), **SETTINGS}) as quorum:
        servers = quorum.bootstrap_servers
        with Client(servers) as client:
            for topic in TOPICS:
                client.create_topic(topic, partitions=PARTITIONS)
        for topic, codec in TOPICS.items():
            produce(servers, topic, codec)

        def rows() -> list[dict[str, Any]]:
            return list(facts("status", "-b", servers)["partitions"])

        def all_is_copied() -> bool:
            return all(row["lag"] == 0 and row["copiedEndOffset"] for row in rows())

        wait_until(all_is_copied, "everything is copied")
        state = rows()
        assert [(row["topic"], row["partition"]) for row in state] == [(name, n) for name in sorted(TOPICS) for n in range(2)]
        assert all(row["segments"] > 0 and row["bytes"] > 0 and row["error"] is None for row in state)
        lines = raftlake("status", "-b", servers).stdout.splitlines()
        assert lines[0].split()[:4] == ["Topic", "Partition", "CopiedEnd", "HighWatermark"] and len(lines) == 7
        check_whole(servers, uri, state)
        # Verification needs no quorum, and a node that is down is a line of the state.
        quorum.kill(1)
        (unreachable,) = [node for node in facts("status", "-b", servers)["nodes"] if node["error"] is not None]
        assert unreachable["nodeId"] == 1 and "no answer" in unreachable["error"]
    assert "all is well" in raftlake("verify", "--tier-uri", str(uri)).stdout
    check_damage(uri)


def test_a_node_tells_nobody_the_secrets_of_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials come from the environment. The store does not answer, and delta-rs names the endpoint as it was given."""
    for name, value in {
        "AWS_ENDPOINT_URL": "http://me:pa55@127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "r",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "pa55",
    }.items():
        monkeypatch.setenv(name, value)
    settings = {"tier.uri": "s3://bucket/h", **SETTINGS, "tier.request.timeout.ms": "20000"}
    with LocalQuorum(1, data_dir=tmp_path, settings=settings) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("orders")
        client.append("orders", b"a record")
        http = f"http://{quorum.http_servers}"

        def text(path: str) -> str:
            return httpx.get(f"{http}{path}").text

        wait_until(lambda: "refused" in text("/v1/tier"), "the store's refusal is told")
        wait_until(lambda: "not copied to the tier" in text("/health/ready"), "it has lasted for long")
        said = {path: text(path) for path in ("/v1/tier", "/health/ready", "/health/live", "/metrics", "/v1/quorum")}
        said |= {
            "status": raftlake("status", "-b", quorum.bootstrap_servers).stdout,
            "configs": str(client.topic_configs("orders")),
        }
        said |= {
            path.name: path.read_text(errors="replace") for path in tmp_path.rglob("*.log") if path.parent.parent == tmp_path
        }
        lines = [path.read_bytes().decode() for path in commands_of(quorum.pid(1))]
    assert "s3://bucket/h" in said["configs"] and "refused" in said["node.log"] and "refused" in said["status"]
    assert [name for name, words in said.items() if "pa55" in words] == []
    assert any("raftlake.tier.worker" in line for line in lines) and not any("pa55" in line for line in lines)


def commands_of(pid: int) -> list[Path]:
    """The command lines of a process and of its children."""
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [Path(f"/proc/{each}/cmdline") for each in (str(pid), *(child for found in children for child in found))]


def check_whole(servers: str, uri: Path, state: list[dict[str, Any]]) -> None:
    verified = facts("verify", "--tier-uri", str(uri), "-b", servers)
    assert verified["ok"] and len(verified["tables"]) == len(TOPICS)
    ends = {(row["topic"], row["partition"]): row["copiedEndOffset"] for row in state}
    for table in verified["tables"]:
        for part in table["partitions"]:
            assert (part["startOffset"], part["endOffset"]) == (0, part["rows"])
            assert part["endOffset"] >= ends[table["topic"], part["partition"]]
            is_plain = TOPICS[table["topic"]] == "none"
            assert part["batches"] > 2 and (part["checkedBatches"] == part["batches"]) is is_plain
        # Beside the records there are those that say who leads.
        assert sum(part["rows"] for part in table["partitions"]) >= RECORDS + PARTITIONS


def check_damage(uri: Path) -> None:
    """One byte in the values of a file, as a disk would turn it; then the file is gone."""
    victim = max(uri.glob("orders-*/partition=1/*.parquet"), key=lambda path: path.stat().st_size)
    metadata = pq.ParquetFile(victim).metadata.row_group(0)
    (values,) = [column for n in range(metadata.num_columns) if (column := metadata.column(n)).path_in_schema == "value"]
    content = bytearray(victim.read_bytes())
    content[values.data_page_offset + values.total_compressed_size // 2] ^= 0x04
    victim.write_bytes(content)
    check_named(uri, victim)
    victim.unlink()
    check_named(uri, victim)


def check_named(uri: Path, victim: Path) -> None:
    outcome = raftlake("verify", "--tier-uri", str(uri))
    assert outcome.returncode == 1
    table, name = victim.parents[1], f"partition=1/{victim.name}"
    named = [line for line in outcome.stdout.splitlines() if line.startswith(f"{table}: partition 1 ") and name in line]
    assert named, outcome.stdout
    assert outcome.stdout.count("all is well") == len(TOPICS) - 1
    assert outcome.stderr.startswith("raftlake: ") and "in 1 of 3 tables" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert raftlake("verify", str(table)).returncode == 1
    assert raftlake("verify", "--tier-uri", str(uri), "--topic", "clicks").returncode == 0


def test_a_store_without_credentials_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs looks for credentials at a machine of Amazon, and would tell each try."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "RUST_LOG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    for arguments in (["--tier-uri", "s3://no-such/x"], ["s3://no-such/x"]):
        outcome = raftlake("verify", *arguments)
        assert outcome.returncode == 1 and outcome.stderr.startswith("raftlake: cannot "), outcome.stderr
        assert outcome.stderr.count("\n") == 1 and "credential" in outcome.stderr


def python_of(document: Path, word: str) -> str:
    """The sample of a document that has a word."""
    samples = re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (sample,) = [sample for sample in samples if word in sample]
    return str(sample)


def waits_for_enter(pid: int, out: Path) -> bool:
    """The program has asked, and reads. A signal between the two would end it with the next line alone."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    # The number of read() is 0 on x86-64 and 63 on arm64.
    return "ends it)" in out.read_text() and call[0] in ("0", "63") and call[1] == "0x0"


@pytest.mark.usefixtures("signals_arrive")
def test_the_try_of_the_documents_ends_with_ctrl_c_without_a_word(tmp_path: Path) -> None:
    sample, out, errors = python_of(ROOT / "docs" / "tier.md", "LocalQuorum"), tmp_path / "out", tmp_path / "errors"
    assert sample.count('"/tmp/history"') == 1
    (tmp_path / "sample.py").write_text(sample.replace("/tmp/history", str(tmp_path / "history")), encoding="utf-8")
    with out.open("wb") as stdout, errors.open("wb") as stderr:
        command = [sys.executable, str(tmp_path / "sample.py")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
    try:
        wait_until(lambda: process.poll() is not None or waits_for_enter(process.pid, out), "it asks for Enter")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0, errors.read_text()
    finally:
        process.kill()
        process.communicate()
    assert errors.read_text() == "" and re.match(r"raftlake tier status -b 127.0.0.1:\d+,", out.read_text())
