"""What `make bench` rests on: budgets and ratios, etcd's frames, HTTP answers in pieces, the saved table."""

from __future__ import annotations

import asyncio
import struct

import pytest

import bench_pair
import bench_realtime
from etcd_client import DATA, END_STREAM, GOAWAY, HEADERS, PING, PUT, Answers, Calls, key_of, put_message
from http_load import HttpConnection, get_request, is_whole
from load import Load
from measure import Peer, Result, Rounds, percentile
from report import cells, markdown

MACHINE = {
    "cpu": "A CPU",
    "cores": 2,
    "memory_gib": 4.0,
    "disk_fdatasync_p50_us": 100,
    "kernel": "6.1",
    "load_before": 0.1,
    "versions": {"etcd": "3"},
}


def result(**fields: object) -> Result:
    return Result(name="a", unit="ms", method="m", **fields)  # type: ignore[arg-type]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


@pytest.mark.parametrize(
    ("value", "ratio", "is_met"), [(1.0, 0.5, True), (3.0, 0.5, False), (1.0, 0.9, False), (2.0, 0.8, True)]
)
def test_a_budget_covers_the_value_and_the_ratio(value: float, ratio: float, is_met: bool) -> None:
    found = result(value=value, at_most=2.0, peer=Peer(name="etcd", value=value / ratio, ratio=ratio, at_most=0.8))
    assert found.is_met is is_met
    assert found.verdict == ("met" if is_met else "MISSED")
    assert found.budget == "<= 2 ms and <= 0.8 x etcd"


def test_a_result_without_a_budget_is_only_reported() -> None:
    found = result(value=1.0, peer=Peer(name="Kafka", value=2.0, ratio=0.5))
    assert found.is_met
    assert (found.budget, found.verdict) == ("", "")


def test_the_tail_is_of_the_rounds_that_were_just_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """p50 and p99 come from one run: 1 ms each, and in our rounds 9 ms now and then."""
    loads = {1: [1.0] * 95 + [9.0] * 5, 2: [1.0] * 100}
    monkeypatch.setattr(bench_pair, "cpu_seconds", lambda pids: 0.0)
    ran: list[int] = []

    def run_load(address: tuple[str, int], *_: object, **__: object) -> Load:
        ran.append(address[1])
        load = Load(100)
        load.latencies_ms.extend(loads[address[1]])
        return load

    monkeypatch.setattr(bench_pair, "run_load", run_load)
    ours, etcd = (bench_pair.Side([], ("h", port), lambda *_: None, 1, 100) for port in (1, 2))  # type: ignore[arg-type,return-value]
    middle = bench_pair.compare(ours, etcd, name="p50", method="m", latency=True, ratio_at_most=0.8)
    count = len(ran)
    end = bench_pair.tail(ours, etcd, name="p99", method="m")
    assert len(ran) == count == 2 * (bench_pair.ROUNDS + 1)
    assert (middle.value, middle.budget) == (1.0, "<= 0.8 x etcd")
    assert end.peer is not None
    assert (end.value, end.peer.value, end.peer.ratio, end.budget, end.is_met) == (9.0, 1.0, 9.0, "", True)


def test_rounds_take_turns_and_compare_neighbours() -> None:
    order: list[str] = []
    mine, theirs = iter([1.0, 10.0, 3.0]), iter([2.0, 20.0, 3.0])

    def ours() -> float:
        order.append("ours")
        return next(mine)

    def peers() -> float:
        order.append("peer")
        return next(theirs)

    found = Rounds().alternate(3, ours, peers).result(name="a", unit="ms", method="m", peer="etcd", ratio_at_most=0.8)
    assert order == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert found.peer is not None
    assert (found.value, found.peer.value, found.peer.ratio) == (3.0, 3.0, 0.5)


def test_the_percentile_is_one_of_the_values() -> None:
    assert [percentile([4.0, 1.0, 3.0, 2.0], percent) for percent in (0, 50, 99)] == [1.0, 3.0, 4.0]


def test_a_call_changes_its_stream_and_its_key_only() -> None:
    calls = Calls(PUT, put_message(b"v" * 300))
    first, second = calls.request(3, 1), calls.request(5, 2)
    assert len(first) == len(second)
    assert key_of(2) in second
    assert second.replace(key_of(2), key_of(1)).replace(struct.pack(">I", 5), struct.pack(">I", 3)) == first


def test_an_answer_counts_when_it_brought_a_message() -> None:
    answers = Answers()
    whole = frame(HEADERS, 4, 1, b"\x88") + frame(DATA, 0, 1, b"\0" * 9) + frame(HEADERS, END_STREAM, 1, b"\xbf")
    assert answers.feed(whole[:20]) == ([], b"")
    assert answers.feed(whole[20:]) == ([1], b"")


def test_trailers_alone_are_an_error() -> None:
    with pytest.raises(ConnectionError, match="error"):
        Answers().feed(frame(HEADERS, END_STREAM, 1, b"\x88"))


def test_a_connection_that_goes_away_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="closed"):
        Answers().feed(frame(GOAWAY, 0, 0, bytes(8)))


def test_pings_are_answered() -> None:
    assert Answers().feed(frame(PING, 0, 0, b"12345678")) == ([], frame(PING, 1, 0, b"12345678"))


def test_an_http_answer_is_whole_with_its_body() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
    assert [is_whole(answer[:size]) for size in range(len(answer) + 1)] == [False] * len(answer) + [True]


def test_an_http_error_ends_the_load() -> None:
    class Transport:
        def write(self, data: bytes) -> None:
            pass

    loop = asyncio.new_event_loop()
    try:
        done: asyncio.Future[None] = loop.create_future()
        load = Load(remaining=5)
        connection = HttpConnection(get_request(), 10, load, done)
        connection.transport = Transport()  # type: ignore[assignment]
        connection.begin()
        connection.data_received(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        assert done.done()
        assert load.failure is not None
        assert "503" in load.failure
        assert load.remaining == 0
    finally:
        loop.close()


def test_the_table_names_what_is_missed() -> None:
    missed = result(value=1234.5, at_most=1000)
    assert cells(missed)[:2] == ("a", "1,234 ms")
    text = markdown([missed], MACHINE)
    assert "| **missed** |" in text
    assert "2 cores of A CPU" in text


def test_each_latency_is_in_one_column_of_the_histogram() -> None:
    found = bench_realtime.histogram([1.01, 1.1, 4.1, 0.0])
    edges, rows = found["from_ms"], found["rows"]
    assert len(edges) == len(rows) + 1 and sum(rows) == 4
    assert rows[0] == rows[-1] == 1 and edges[-2] <= 4.1 < edges[-1]
    assert max(rows) == 2


def test_the_picture_of_latencies_is_shown_where_there_is_one() -> None:
    shown = {"histogram": {"raftlake": bench_realtime.histogram([1.0])}}
    assert "(realtime.png)" in markdown([result(value=1.0, details=shown)], MACHINE)
    assert "(realtime.png)" not in markdown([result(value=1.0)], MACHINE)
