"""Writing rows on an executor: partitions, order, headers, bounds, errors."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connector.fakelog import FakeProducer, FakeQuorum
from pyspark_raftlake import writer
from pyspark_raftlake.errors import InvalidRow
from pyspark_raftlake.writer import Written, write_rows
from raftlake.arrow.records import HEADERS_TYPE
from raftlake.client.partitioner import partition_for_key
from raftlake.client.types import AppendResult
from raftlake.errors import ConfigError, ErrorCode, RequestRejected
from raftlake.wire.batches import Record, decode_records

SERVERS = {"kafka.bootstrap.servers": "a:1"}


def batch(**columns: Any) -> Any:
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": HEADERS_TYPE,
    }
    arrays = [pa.array(values, types.get(name)) if isinstance(values, list) else values for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def write(quorum: FakeQuorum, *batches: Any, topic: str | None = "t", **arguments: Any) -> Written:
    """What a task says that it has written."""
    known = ("topic", "key", "value", "headers", "partition")
    columns = [name for name in known if name in batches[0].schema.names and not (name == "topic" and topic)]
    arguments.setdefault("make_producer", quorum.producer)
    return Written(write_rows(quorum, batches, topic=topic, columns=columns, **arguments)[0])


def records(quorum: FakeQuorum, topic: str = "t") -> list[list[Record]]:
    return [[record for one in log.batches for record in decode_records(one)] for log in quorum.logs[topic]]


def values(quorum: FakeQuorum, topic: str = "t") -> list[list[bytes | None]]:
    return [[record.value for record in partition] for partition in records(quorum, topic)]


def test_keyed_rows_keep_their_order_in_their_partition() -> None:
    quorum = FakeQuorum(t=3)
    keys = [b"k%d" % (index % 7) for index in range(100)]
    written = write(quorum, batch(key=keys, value=[b"%d" % index for index in range(100)]))
    expected: list[list[bytes | None]] = [[], [], []]
    for index, key in enumerate(keys):
        expected[partition_for_key(key, 3)].append(b"%d" % index)
    assert values(quorum) == expected
    assert written.rows == 100
    assert [(p.partition, p.rows, p.start, p.end) for p in written.partitions] == [
        (number, len(rows), 0, len(rows)) for number, rows in enumerate(expected) if rows
    ]


def test_rows_of_small_batches_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = FakeQuorum(t=1)
    write(quorum, *[batch(value=[b"%d" % index]) for index in range(10)])
    assert len(quorum.logs["t"][0].batches) == 1
    assert values(quorum) == [[b"%d" % index for index in range(10)]]
    monkeypatch.setattr(writer, "CHUNK_ROWS_MAX", 4)
    quorum = FakeQuorum(t=1)
    write(quorum, *[batch(value=[b"%d" % index]) for index in range(10)])
    assert len(quorum.logs["t"][0].batches) == 3
    assert values(quorum) == [[b"%d" % index for index in range(10)]]


def test_a_large_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHUNK_BYTES_MAX", 2000)
    quorum = FakeQuorum(t=1)
    write(quorum, batch(value=[b"%03d" % index * 100 for index in range(50)]))
    assert len(quorum.logs["t"][0].batches) > 5
    assert values(quorum) == [[b"%03d" % index * 100 for index in range(50)]]


def test_text_and_nulls() -> None:
    quorum = FakeQuorum(t=1)
    texts = batch(key=pa.array(["ä", None]), value=pa.array([None, "ö"]))
    write(quorum, texts)
    assert [(record.key, record.value) for record in records(quorum)[0]] == [("ä".encode(), None), (None, "ö".encode())]


def test_headers() -> None:
    quorum = FakeQuorum(t=2)
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None]
    write(quorum, batch(value=[b"x", b"y", b"z"], headers=headers, partition=[1, 0, 1]))
    assert [[record.headers for record in partition] for partition in records(quorum)] == [
        [()],
        [(("a", b"1"), ("b", None)), ()],
    ]


def test_the_partition_column_decides() -> None:
    quorum = FakeQuorum(t=3)
    write(quorum, batch(key=[b"k"] * 4, value=[b"0", b"1", b"2", b"3"], partition=[2, 0, 2, 1]))
    assert values(quorum) == [[b"1"], [b"3"], [b"0", b"2"]]


def test_the_topic_column_decides_when_there_is_no_topic_option() -> None:
    quorum = FakeQuorum(t=1, u=1)
    rows = batch(value=[b"1", b"2", b"3"], topic=["u", "t", "u"])
    written = write(quorum, rows, topic=None)
    assert (values(quorum, "t"), values(quorum, "u")) == ([[b"2"]], [[b"1", b"3"]])
    assert [(p.topic, p.rows) for p in written.partitions] == [("t", 1), ("u", 2)]
    write(quorum, rows, topic="t")
    assert values(quorum, "t") == [[b"2", b"1", b"2", b"3"]]


def test_rows_without_a_topic() -> None:
    with pytest.raises(InvalidRow, match="null topic present in the data"):
        write(FakeQuorum(t=1), batch(value=[b"1", b"2"], topic=["t", None]), topic=None)


def test_topics_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match="Topic 'nope' does not exist; existing topics: t"):
        write(FakeQuorum(t=1), batch(value=[b"1"]), topic="nope")


def test_no_rows() -> None:
    quorum = FakeQuorum(t=1)
    assert write(quorum, batch(value=[])).partitions == ()
    assert write_rows(quorum, [], topic="t", columns=["value"], make_producer=quorum.producer) == ((), None)
    assert quorum.logs["t"][0].batches == []
    # Nobody needs a producer for nothing.
    assert quorum.producers == []


def test_a_producer_is_made_with_the_first_row_and_serves_all_topics() -> None:
    quorum = FakeQuorum(t=1, u=1)
    write(quorum, batch(value=[b"1", b"2"], topic=["t", "u"]), batch(value=[b"3"], topic=["t"]), topic=None)
    assert len(quorum.producers) == 1
    with pytest.raises(InvalidRow):
        write(quorum, batch(value=[b"1"], partition=[9]))
    assert len(quorum.producers) == 1


def test_a_failed_append_fails_the_task() -> None:
    quorum = FakeQuorum(t=1)
    quorum.append_failure = RequestRejected(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    with pytest.raises(RequestRejected, match="too large"):
        write(quorum, batch(value=[b"1"]))


def test_bytes_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHUNK_ROWS_MAX", 1)
    monkeypatch.setattr(writer, "IN_FLIGHT_BYTES_MAX", 500)
    longest = 0
    original = writer._TaskWriter._submit

    def spy(self: Any, *arguments: Any) -> None:
        nonlocal longest
        original(self, *arguments)
        longest = max(longest, len(self._in_flight))

    monkeypatch.setattr(writer._TaskWriter, "_submit", spy)
    quorum = FakeQuorum(t=1)
    write(quorum, batch(value=[b"x" * 100] * 20))
    assert longest == 2
    assert len(records(quorum)[0]) == 20


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_an_offset_that_the_node_does_not_know_any_more_leaves_the_others(
    unknown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was retried is known to be appended, and no longer where."""
    monkeypatch.setattr(writer, "CHUNK_ROWS_MAX", 1)
    results = [AppendResult(topic="t", partition=0, offset=offset, count=1) for offset in (7, 8, 9)]
    results[unknown] = replace(results[unknown], offset=-1)

    class Forgetful(FakeProducer):
        def submit_batches(self, *_: Any, **__: Any) -> Future[tuple[AppendResult, ...]]:
            future: Future[tuple[AppendResult, ...]] = Future()
            future.set_result((results.pop(0),))
            return future

    quorum = FakeQuorum(t=1)
    monkeypatch.setattr(quorum, "producer", lambda: Forgetful(quorum))
    (found,) = write(quorum, batch(value=[b"a", b"b", b"c"])).partitions
    known = [offset for index, offset in enumerate((7, 8, 9)) if index != unknown]
    assert (found.rows, found.start, found.end) == (3, known[0], known[1] + 1)


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd", "snappy"])
def test_compression(compression: str) -> None:
    quorum = FakeQuorum(t=1)
    write(quorum, batch(value=[b"x" * 1000] * 100), compression=compression)
    assert sum(len(one) for one in quorum.logs["t"][0].batches) < 20_000
    assert values(quorum) == [[b"x" * 1000] * 100]
