"""Reading a range on an executor: whole, in order, bounded, across nodes; and what lost data does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from connector.fakelog import FakeQuorum
from pyspark_raftlake import reader
from pyspark_raftlake.errors import DataLoss, IncompleteRange
from pyspark_raftlake.options import Patience, Quorum
from pyspark_raftlake.planning import RangePartition
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.reader import read_range
from pyspark_raftlake.schema import source_schema
from raftlake.client.errors import OffsetOutOfRange
from raftlake.client.types import FetchedBytes, IsolationLevel
from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected
from raftlake.wire.batches import Record, build_batch, leader_change_batch, parse_header
from raftlake.wire.shown import without_raft_records


def batch_of(values: list[str], compression: str = "none") -> bytearray:
    records = [Record(0, 1_700_000_000_123, value[:1].encode(), value.encode()) for value in values]
    return build_batch(records, timestamp_ms=0, compression=compression)


def filled(*batches: list[str]) -> FakeQuorum:
    quorum = FakeQuorum(t=1)
    for values in batches:
        quorum.logs["t"][0].append(batch_of(values))
    return quorum


def task(start: int, end: int, *, node_id: int | None = None, headers: bool = False, fail: bool = True) -> RangePartition:
    return RangePartition(
        range=OffsetRange(topic="t", partition=0, start=start, end=end),
        topic_id=(1).to_bytes(16, "big"),
        quorum=Quorum(bootstrap_servers="a:1", client_id="c"),
        node_id=node_id,
        replicas=(1, 2, 3),
        include_headers=headers,
        fail_on_data_loss=fail,
    )


def rows(quorum: FakeQuorum, asked: RangePartition) -> list[tuple[int, str]]:
    table = pa.Table.from_batches(list(read_range(quorum, asked)), source_arrow(asked))
    return list(zip(table["offset"].to_pylist(), [value.decode() for value in table["value"].to_pylist()], strict=True))


def source_arrow(asked: RangePartition) -> Any:
    return to_arrow_schema(source_schema(include_headers=asked.include_headers), timezone="UTC")


NOTHING = FetchedBytes(buffers=(), high_watermark=9, log_start_offset=0, next_offset=0, node_id=1)


@pytest.mark.parametrize("headers", [False, True])
def test_the_arrow_schema_is_exactly_sparks(headers: bool) -> None:
    asked = task(0, 2, headers=headers)
    (batch,) = read_range(filled(["a", "b"]), asked)
    assert batch.schema.equals(source_arrow(asked))


def test_many_log_batches_become_one_arrow_batch_cut_to_the_range() -> None:
    quorum = filled(["a", "b", "c"], ["d", "e"], ["f", "g"])
    (batch,) = read_range(quorum, task(1, 6))
    assert batch.column("offset").to_pylist() == [1, 2, 3, 4, 5]
    assert batch.column("value").to_pylist() == [b"b", b"c", b"d", b"e", b"f"]
    assert batch.column("timestamp").to_pylist()[0].isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_a_range_of_several_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    quorum = filled(["a", "b"], ["c"], ["d", "e"])
    assert [batch.num_rows for batch in read_range(quorum, task(0, 5))] == [2, 1, 2]
    assert [offset for offset, _ in quorum.fetches] == [0, 2, 3]


def test_the_next_fetch_is_under_way_while_rows_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    quorum = filled(["a"], ["b"], ["c"])
    batches = read_range(quorum, task(0, 3))
    next(batches)
    assert [offset for offset, _ in quorum.fetches] == [0, 1]


@pytest.mark.parametrize("is_shown", [True, False])
def test_control_records_occupy_offsets_and_yield_no_rows(is_shown: bool) -> None:
    """A node shows them as batches without records."""
    quorum = FakeQuorum(t=1)
    log = quorum.logs["t"][0]
    leaders = [leader_change_batch(offset, 1, 0, 1, [1, 2, 3], [1, 2]) for offset in (0, 2)]
    first, last = [without_raft_records(batch, [parse_header(batch)]) for batch in leaders] if is_shown else leaders
    log.append(first)
    log.append(batch_of(["a"]))
    log.append(last)
    assert rows(quorum, task(0, 3)) == [(1, "a")]
    assert list(read_range(quorum, task(2, 3))) == []


def test_the_chosen_node_is_asked_until_another_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    quorum = filled(["a"], ["b"], ["c"])
    assert len(rows(quorum, task(0, 3, node_id=3))) == 3
    assert [node for _, node in quorum.fetches] == [3, 3, 3]
    # The client went on to the leader, because node 3 was down: no reason to try node 3 for every fetch.
    quorum.fetches.clear()
    quorum.fetch_script = [quorum._fetch("t", 0, 0, bytes_max=1, wait_ms=0, limit_offset=3, replica=None)]
    assert len(rows(quorum, task(0, 3, node_id=3))) == 3
    assert [node for _, node in quorum.fetches] == [3, None, None]


def test_a_node_that_is_behind_is_given_time_and_then_left() -> None:
    quorum = filled(["a", "b"])
    quorum.fetch_script = [NOTHING, NOTHING]
    assert rows(quorum, task(0, 2, node_id=2)) == [(0, "a"), (1, "b")]
    assert quorum.fetches == [(0, 2), (0, None), (0, None)]


def test_a_range_that_stays_incomplete_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "total_ms", -1)
    quorum = filled(["a", "b"])
    quorum.fetch_script = [NOTHING]
    with pytest.raises(IncompleteRange, match=r"\[0, 2\) of t-0: no node had offset 0"):
        list(read_range(quorum, task(0, 2)))


def sound(quorum: FakeQuorum, node_id: int, offset: int = 0, bytes_max: int = 1 << 20) -> FetchedBytes:
    return quorum._fetch("t", 0, offset, bytes_max=bytes_max, wait_ms=0, limit_offset=1 << 40, replica=node_id)


def damaged(quorum: FakeQuorum, node_id: int, offset: int = 0, bytes_max: int = 1 << 20) -> FetchedBytes:
    """The last byte of what the node answers is another one."""
    whole = sound(quorum, node_id, offset, bytes_max)
    bad = bytearray(whole.buffers[0])
    bad[-1] ^= 1
    return replace(whole, buffers=(memoryview(bad),))


def test_damage_on_one_node_is_read_from_another(caplog: pytest.LogCaptureFixture) -> None:
    quorum = filled(["a", "b"])
    quorum.fetch_script = [damaged(quorum, 1), damaged(quorum, 2)]
    assert rows(quorum, task(0, 2)) == [(0, "a"), (1, "b")]
    assert quorum.fetches == [(0, None), (0, 2), (0, 3)]
    assert "node 1 sent damage" in caplog.text


def test_damage_on_all_nodes_fails_the_task() -> None:
    quorum = filled(["a", "b"])
    quorum.fetch_script = [damaged(quorum, node_id) for node_id in (3, 1, 2)]
    with pytest.raises(CorruptBatch):
        list(read_range(quorum, task(0, 2, node_id=3)))


PIECES = (["a", "b"], ["c"], ["d", "e"])
ALL_ROWS = [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> FakeQuorum:
    """A log of three batches, each of them a fetch of its own."""
    monkeypatch.setattr(reader, "FETCH_BYTES_MIN", 1)
    monkeypatch.setattr(reader, "FETCH_BYTES_MAX", 1)
    return filled(*PIECES)


@pytest.mark.parametrize(
    ("at", "fetches"),
    [
        (0, [(0, 1), (2, 1), (0, 2), (2, 2), (3, 2)]),
        (1, [(0, 1), (2, 1), (3, 1), (2, 2), (3, 2)]),
        (2, [(0, 1), (2, 1), (3, 1), (3, 2)]),
    ],
)
def test_a_damaged_piece_is_fetched_again_although_the_next_one_is_there(
    pieces: FakeQuorum, at: int, fetches: list[tuple[int, int]]
) -> None:
    script = [sound(pieces, 1, offset, 1) for offset in (0, 2, 3)]
    script[at] = damaged(pieces, 1, (0, 2, 3)[at], 1)
    # The piece behind the damaged one is under way already when the damage is found.
    pieces.fetch_script = list(script[: at + 2])
    assert rows(pieces, task(0, 5, node_id=1)) == ALL_ROWS
    assert pieces.fetches == fetches


@pytest.mark.parametrize("at", [0, 1, 2])
def test_damage_of_one_piece_on_all_nodes_fails_the_task_before_a_later_row(pieces: FakeQuorum, at: int) -> None:
    offset = (0, 2, 3)[at]
    pieces.logs["t"][0].batches[at][-1] ^= 1
    batches = read_range(pieces, task(0, 5, node_id=1))
    before = [number for _ in range(at) for number in next(batches).column("offset").to_pylist()]
    assert before == list(range(offset))
    with pytest.raises(CorruptBatch):
        next(batches)
    assert [node for asked, node in pieces.fetches if asked == offset] == [1, 2, 3]


@pytest.mark.parametrize("fail", [True, False])
def test_an_error_of_the_piece_that_was_fetched_ahead_is_told_when_its_turn_comes(pieces: FakeQuorum, fail: bool) -> None:
    lost = RequestRejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no answer in time")
    pieces.fetch_script = [sound(pieces, 1, 0, 1), lost]
    batches = read_range(pieces, task(0, 5, node_id=1, fail=fail))
    assert next(batches).column("offset").to_pylist() == [0, 1]
    with pytest.raises(RequestRejected, match="no answer in time"):
        next(batches)


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_an_outage_amid_a_range_is_waited_for(pieces: FakeQuorum, monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    away = RequestRejected(code, "no node answers")
    pieces.fetch_script = [sound(pieces, 1, 0, 1), away, away]
    assert rows(pieces, task(0, 5, node_id=2)) == ALL_ROWS
    # From then on the leader is asked, whoever that is by now.
    assert [node for offset, node in pieces.fetches if offset == 2] == [None, None, None]
    monkeypatch.setattr(Patience, "total_ms", -1)
    pieces.fetch_script = [away]
    with pytest.raises(IncompleteRange, match=r"no node had offset 0 for .* no node answers"):
        rows(pieces, task(0, 5))


def test_what_was_removed_ahead_is_lost_from_there_on_and_no_earlier(pieces: FakeQuorum) -> None:
    removed = OffsetOutOfRange("t", 0, 2, 3, 5)
    pieces.fetch_script = [sound(pieces, 1, 0, 1), removed]
    batches = read_range(pieces, task(0, 5, node_id=1))
    assert next(batches).column("offset").to_pylist() == [0, 1]
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[2, 3\) of t-0"):
        next(batches)
    pieces.fetch_script = [sound(pieces, 1, 0, 1), removed]
    assert rows(pieces, task(0, 5, node_id=1, fail=False)) == [row for row in ALL_ROWS if row[0] != 2]


def test_offsets_that_retention_removed() -> None:
    quorum = filled(["a", "b", "c"], ["d"])
    quorum.logs["t"][0].start = 2
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 2\) of t-0"):
        list(read_range(quorum, task(0, 4)))
    assert rows(quorum, task(0, 4, fail=False)) == [(2, "c"), (3, "d")]
    assert rows(quorum, task(0, 1, fail=False)) == []
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[0, 1\) of t-0"):
        list(read_range(quorum, task(0, 1)))


@pytest.mark.parametrize(
    "error",
    [
        OffsetOutOfRange("t", 0, 5, 0, 2),
        RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' does not exist"),
        RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, "topic 't' was deleted and created again"),
    ],
    ids=["shorter", "deleted", "recreated"],
)
def test_a_topic_that_was_deleted_before_it_was_read(error: RequestRejected) -> None:
    quorum = filled(["a"])
    quorum.fetch_script = [error]
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[5, 8\) of t-0"):
        list(read_range(quorum, task(5, 8)))
    quorum.fetch_script = [error]
    assert rows(quorum, task(5, 8, fail=False)) == []


def test_a_leader_that_was_replaced_without_knowing_it_is_no_data_loss() -> None:
    """Cut off from the others, it says that its log ends where it did in its time."""
    for fail in (True, False):
        quorum = filled(["a", "b", "c"])
        quorum.fetch_script = [OffsetOutOfRange("t", 0, 1, 0, 1)]
        assert rows(quorum, task(1, 3, node_id=2, fail=fail)) == [(1, "b"), (2, "c")]
        assert quorum.fetches == [(1, 2), (1, None)] and quorum.calls == ["read_offset t"]


def test_an_offset_that_is_the_proven_end_is_lost_and_the_one_before_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is exclusive: a log that ends at 3 does not hold offset 3."""
    monkeypatch.setattr(Patience, "total_ms", -1)
    quorum = filled(["a", "b", "c"])
    quorum.fetch_script = [OffsetOutOfRange("t", 0, 3, 0, 2)]
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[3, 5\) of t-0"):
        list(read_range(quorum, task(3, 5)))
    quorum.fetch_script = [OffsetOutOfRange("t", 0, 3, 0, 2)]
    assert rows(quorum, task(3, 5, fail=False)) == []
    assert quorum.calls == ["read_offset t"] * 2
    monkeypatch.undo()
    quorum.fetch_script = [OffsetOutOfRange("t", 0, 2, 0, 1)]
    assert rows(quorum, task(2, 3)) == [(2, "c")]


def test_a_topic_that_is_gone_when_its_end_is_to_be_proven() -> None:
    quorum = filled(["a", "b", "c"])
    quorum.fetch_script = [OffsetOutOfRange("t", 0, 1, 0, 1)]
    quorum.vanished.add("t")
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[1, 3\) of t-0"):
        list(read_range(quorum, task(1, 3)))


def test_other_refusals_are_no_data_loss() -> None:
    quorum = filled(["a"])
    quorum.fetch_script = [RequestRejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no answer in time")]
    with pytest.raises(RequestRejected, match="CLUSTER_AUTHORIZATION_FAILED"):
        list(read_range(quorum, task(0, 1, fail=False)))


def test_compressed_records_that_grow_too_large_come_in_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "ARROW_BYTES_MAX", 25_000)
    quorum = FakeQuorum(t=1)
    for letter in "abc":
        quorum.logs["t"][0].append(batch_of([letter * 10_000, letter * 10_000], "gzip"))
    batches = list(read_range(quorum, task(1, 6)))
    assert [batch.column("offset").to_pylist() for batch in batches] == [[1], [2, 3], [4, 5]]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_damage_among_record_batches_that_are_decoded_one_by_one_is_read_from_another_node(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Each batch was decoded as its rows were used, and the damage of a later one failed the task."""
    monkeypatch.setattr(reader, "ARROW_BYTES_MAX", 25_000)
    quorum = FakeQuorum(t=1)
    for letter in "abc":
        quorum.logs["t"][0].append(batch_of([letter * 10_000, letter * 10_000], "gzip"))
    whole = sound(quorum, 1)
    bad = bytearray(whole.buffers[0])
    sizes = [len(batch) for batch in quorum.logs["t"][0].batches]
    bad[sum(sizes[: at + 1]) - 1] ^= 1
    quorum.fetch_script = [replace(whole, buffers=(memoryview(bad),))]
    batches = list(read_range(quorum, task(0, 6, node_id=1)))
    assert [batch.column("offset").to_pylist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    assert quorum.fetches == [(0, 1), (0, 2)]


def test_a_short_range_is_fetched_in_a_small_piece_and_a_long_one_in_large_pieces() -> None:
    asked: list[int] = []

    class Spy(FakeQuorum):
        def submit_fetch(self, topic: str, partition: int, offset: int, **arguments: Any) -> Any:
            asked.append(arguments["bytes_max"])
            return super().submit_fetch(topic, partition, offset, **arguments)

    quorum = Spy(t=1)
    for _ in range(5):
        quorum.logs["t"][0].append(batch_of(["x" * 100] * 10))
    list(read_range(quorum, task(0, 3)))
    list(read_range(quorum, task(0, 50)))
    list(read_range(quorum, task(49, 50)))
    assert asked == [reader.FETCH_BYTES_MIN] * 3
    quorum.logs["t"][0].end = 1 << 40
    next(read_range(quorum, task(0, 1 << 40)))
    assert asked[3] == reader.FETCH_BYTES_MAX


def test_an_offset_that_is_not_available_yet_is_waited_for_and_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has not committed in its own epoch may know of less than was planned."""
    unavailable = RequestRejected(ErrorCode.OFFSET_NOT_AVAILABLE, "t-0")
    for fail in (True, False):
        quorum = filled(["a", "b"])
        quorum.fetch_script = [unavailable, unavailable]
        assert rows(quorum, task(0, 2, node_id=2, fail=fail)) == [(0, "a"), (1, "b")]
        assert quorum.fetches == [(0, 2), (0, None), (0, None)]
    monkeypatch.setattr(Patience, "total_ms", 0)
    quorum.fetch_script = [unavailable]
    with pytest.raises(IncompleteRange, match="no node had offset 0"):
        rows(quorum, task(0, 2))


@pytest.mark.parametrize("committed", [True, False])
def test_a_task_fetches_at_the_level_of_its_query(committed: bool) -> None:
    quorum = filled(["a", "b"])
    list(read_range(quorum, replace(task(0, 2), reads_committed=committed)))
    assert set(quorum.isolations) == {IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED}


# --- replicas that are of no use ---------------------------------------------------------------------------------------------


def damage_of(quorum: FakeQuorum, *nodes: int, dead: tuple[int, ...] = ()) -> list[int | None]:
    """From now on these nodes send damage, and in place of the dead ones node 1 answers. The nodes that are asked."""
    fetch, asked = quorum._fetch, []

    def answer(*at: Any, replica: int | None, **arguments: Any) -> FetchedBytes:
        asked.append(replica)
        assert len(asked) < 20, f"for ever: {asked}"
        sent = fetch(*at, replica=1 if replica in dead else replica, **arguments)
        if sent.node_id not in nodes:
            return sent
        damaged = bytearray(sent.buffers[0])
        damaged[-1] ^= 1
        return replace(sent, buffers=(memoryview(damaged),))

    quorum._fetch = answer  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("node_id", [None, 1, 2])
def test_the_third_node_is_asked_where_the_leader_sends_damage_and_another_node_is_down(node_id: int | None) -> None:
    quorum = filled(["a"])
    asked = damage_of(quorum, 1, dead=(2,))
    assert rows(quorum, task(0, 1, node_id=node_id)) == [(0, "a")]
    assert asked == ([2, 3] if node_id == 2 else [node_id, 2, 3])


def test_no_node_is_left_where_one_is_down_and_the_others_send_damage() -> None:
    quorum = filled(["a"])
    asked = damage_of(quorum, 1, 3, dead=(2,))
    with pytest.raises(CorruptBatch):
        rows(quorum, task(0, 1))
    assert asked == [None, 2, 3]


# --- a log that ends before the range does -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "found"), [(1, [(1, "b"), (2, "c")]), (2, [(2, "c")]), (3, [])])
def test_what_a_log_is_proven_not_to_reach_is_lost(
    monkeypatch: pytest.MonkeyPatch, start: int, found: list[tuple[int, str]]
) -> None:
    """A batch that Spark replays, of a topic that was created again meanwhile and is shorter."""
    monkeypatch.setattr(Patience, "total_ms", -1)
    quorum = filled(["a", "b", "c"])
    assert rows(quorum, task(start, 5, fail=False)) == found
    with pytest.raises(DataLoss, match=r"Cannot fetch records in \[3, 5\) of t-0 \(the log ends at or before 3\)"):
        rows(quorum, task(start, 5))


@pytest.mark.parametrize("problem", [None, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_an_empty_answer_of_a_slow_node_is_no_loss(monkeypatch: pytest.MonkeyPatch, problem: ErrorCode | None) -> None:
    """The log reaches one offset beyond, or nobody can say."""
    quorum = filled(["a"])
    quorum.fetch_script = [NOTHING, NOTHING]

    def refuse(topic: str, partitions: Any) -> dict[int, int]:
        assert problem is not None
        raise RequestRejected(problem, "nobody leads")

    if problem is not None:
        monkeypatch.setattr(quorum, "read_offset", refuse)
    assert rows(quorum, task(0, 1, fail=False)) == [(0, "a")]
    quorum.fetch_script = [NOTHING, NOTHING]
    monkeypatch.setattr(Patience, "total_ms", -1)
    with pytest.raises(IncompleteRange, match="no node had offset 0"):
        rows(quorum, task(0, 1, fail=False))


def test_an_end_that_nobody_may_read_is_told() -> None:
    quorum = filled(["a"])
    quorum.fetch_script = [NOTHING]

    def refuse(topic: str, partitions: Any) -> dict[int, int]:
        raise RequestRejected(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    quorum.read_offset = refuse  # type: ignore[method-assign]
    with pytest.raises(RequestRejected, match="no"):
        rows(quorum, task(0, 1, fail=False))


def test_a_topic_that_goes_behind_an_empty_answer_is_lost() -> None:
    quorum = filled(["a"])
    quorum.fetch_script = [NOTHING]
    quorum.vanished.add("t")
    assert rows(quorum, task(0, 1, fail=False)) == []
