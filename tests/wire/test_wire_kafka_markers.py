"""Kafka's own classes make the markers of transactions that we make, and read our index of aborted transactions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake.wire.aborted_index import AbortedTransaction, encode, overlapping
from raftlake.wire.batches import EndMarker, end_marker_batch

pytestmark = pytest.mark.java
Tool = Callable[..., "subprocess.CompletedProcess[str]"]

MARKERS = """
import java.util.HexFormat;
import org.apache.kafka.common.record.internal.*;
public class Markers {
    public static void main(String[] args) {
        for (int i = 0; i < args.length; i += 7) {
            var type = Boolean.parseBoolean(args[i + 5]) ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            var records = MemoryRecords.withEndTransactionMarker(
                Long.parseLong(args[i]), Long.parseLong(args[i + 1]), Integer.parseInt(args[i + 2]),
                Long.parseLong(args[i + 3]), Short.parseShort(args[i + 4]),
                new EndTransactionMarker(type, Integer.parseInt(args[i + 6])));
            var buffer = records.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }
}
"""

INDEX = """
import java.io.File;
import org.apache.kafka.storage.internals.log.*;
public class Index {
    public static void main(String[] args) throws Exception {
        var index = new TransactionIndex(Long.parseLong(args[1]), new File(args[0]));
        index.sanityCheck();
        for (int i = 2; i < args.length; i += 2) {
            var found = index.collectAbortedTxns(Long.parseLong(args[i]), Long.parseLong(args[i + 1]));
            var line = new StringBuilder();
            for (var each : found.abortedTransactions())
                line.append(each.producerId()).append(':').append(each.firstOffset()).append(':').append(each.lastOffset())
                    .append(':').append(each.lastStableOffset()).append(' ');
            System.out.println(line.append('.'));
        }
    }
}
"""


def run(kafka_tool: Tool, place: Path, name: str, source: str, *arguments: str) -> list[str]:
    file = place / f"{name}.java"
    file.write_text(source)
    return [line for line in kafka_tool(str(file), *arguments).stdout.splitlines() if line]


def test_markers_are_made_of_the_same_bytes(tmp_path: Path, kafka_tool: Tool) -> None:
    made, arguments = [], []
    for offset, timestamp_ms, leader_epoch, producer_id, epoch, commit, coordinator_epoch in (
        (7, 123, 2, 7, 1, False, 4),
        (0, 1_700_000_000_000, 0, 4_000, 0, True, 0),
        (1 << 40, 1, 77, (1 << 62) + 1, 32_767, True, (1 << 31) - 1),
        (5, 0, 1, 0, 12, False, -1),
    ):
        marker = EndMarker(producer_id=producer_id, epoch=epoch, commit=commit, coordinator_epoch=coordinator_epoch)
        made.append(end_marker_batch(marker, timestamp_ms, base_offset=offset, leader_epoch=leader_epoch).hex())
        fields = (offset, timestamp_ms, leader_epoch, producer_id, epoch, str(commit).lower(), coordinator_epoch)
        arguments += [str(each) for each in fields]
    assert run(kafka_tool, tmp_path, "Markers", MARKERS, *arguments) == made


def test_the_index_is_read_as_kafka_reads_its_own(tmp_path: Path, kafka_tool: Tool) -> None:
    entries = [AbortedTransaction(1, 10, 20, 5), AbortedTransaction(2, 5, 30, 31), AbortedTransaction(1, 40, 41, 42)]
    file = tmp_path / "00000000000000000003.txnindex"
    file.write_bytes(encode(entries))
    asked = [(start, end) for start in (0, 20, 21, 30, 31, 41, 42) for end in (5, 6, 11, 31, 40, 41, 60)]
    expected = []
    for start, end in asked:
        found, _ = overlapping((each for each in entries if each.last_offset >= start), end)
        expected.append("".join(f"{':'.join(map(str, each))} " for each in found) + ".")
    arguments = [str(each) for pair in asked for each in pair]
    assert run(kafka_tool, tmp_path, "Index", INDEX, str(file), "3", *arguments) == expected
