"""Record batches made by Kafka's own Java classes (tests/golden/MakeBatches.java) and ours: same records, and where nothing is
compressed the same bytes. The marked test lets Kafka's classes read ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from raftlake.wire.batches import (
    Compression,
    Record,
    build_batch,
    decode_records,
    leader_change_batch,
    parse_control_record,
    parse_header,
    validate,
)
from raftlake.wire.control import LeaderChange

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = {
    name: bytes.fromhex(content)
    for name, content in (line.split() for line in (ROOT / "tests/golden/batches.txt").read_text("utf-8").splitlines())
}
RECORDS = [
    Record(40, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("é", None))),
    Record(41, 1_700_000_000_005, None, b"", ()),
    Record(42, 1_699_999_999_990, b"", None, ()),
    Record(43, 1_700_000_100_000, b"k", b"delayed " * 100, ()),
]


def build(codec: str) -> bytearray:
    return build_batch(
        RECORDS,
        base_offset=40,
        leader_epoch=7,
        timestamp_ms=0,
        compression=codec,
        producer_id=5,
        producer_epoch=3,
        base_sequence=9,
    )


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Compression])
def test_kafkas_batches_are_read(codec: str) -> None:
    (header,) = validate(GOLDEN[codec])
    ours = parse_header(build(codec))
    assert header._replace(crc=0, length=0) == ours._replace(crc=0, length=0)
    assert list(decode_records(GOLDEN[codec])) == RECORDS


def test_the_same_bytes_without_compression() -> None:
    assert build("none") == GOLDEN["none"]


def test_log_append_time() -> None:
    (record,) = decode_records(GOLDEN["log-append-time"])
    assert parse_header(GOLDEN["log-append-time"]).is_log_append_time
    assert (record.offset, record.value) == (40, b"value")


def test_the_same_leader_change() -> None:
    assert leader_change_batch(41, 6, 1_700_000_000_000, 2, [1, 2], [2]) == GOLDEN["leader-change"]
    (record,) = decode_records(GOLDEN["leader-change"], include_control=True)
    expected = LeaderChange(leader_id=2, voters=(1, 2), granting_voters=(2,))
    assert parse_control_record(record.key, record.value) == expected


def text(content: bytes | None) -> str:
    return "null" if content is None else f"'{content.decode()}'"


@pytest.mark.java
def test_kafka_reads_ours(tmp_path: Path) -> None:
    """Every codec, with enough content for several blocks of it."""
    long = [*RECORDS, Record(44, 1_700_000_200_000, None, b"".join(b"%d minutes late, " % n for n in range(20_000)), ())]
    expected: list[str] = []
    content = bytearray()
    for codec in Compression:
        content += build_batch(long, base_offset=40, timestamp_ms=0, compression=codec.name.lower())
        for record in long:
            fields = [codec.name.lower(), str(record.offset), str(record.timestamp_ms), text(record.key), text(record.value)]
            expected.append("\t".join([*fields, *(f"{name}={text(value)}" for name, value in record.headers)]))
    (tmp_path / "batches").write_bytes(content)
    jars = ROOT / ".cache" / "kafka-4.3.1"
    assert (jars / "complete").exists(), "run tools/fetch-kafka first (make test-java does)"
    command = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", f"{jars}/*"]
    command += [str(ROOT / "tests/golden/ReadBatches.java"), str(tmp_path / "batches")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected
