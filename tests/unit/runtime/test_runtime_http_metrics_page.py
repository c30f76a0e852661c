"""The page of metrics: KRaft's names by partition, built in pieces, for all who ask at once, and within bounds."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_runtime_metrics import FakeClock, partition

from raftlake.kv.commands import DeletePrefix, Txn, put
from raftlake.kv.query_positions import SourcePosition, encode, position_key, query_prefix, topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.http import query_lag_series
from raftlake.runtime.http.metrics_page import KEPT_US, PIECE, MetricsPage
from raftlake.runtime.http.query_lag_series import PIECE as SERIES_PIECE
from raftlake.runtime.metrics import NodeMetrics
from runtime_http_fakes import FakeHttpNode


class Runs:
    """Work that goes on when a test says so."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Generator[None, None, Any], Callable[[Any], None]]] = []
        self.started = 0

    def run(self, work: Generator[None, None, Any], done: Callable[[Any], None]) -> None:
        self.started += 1
        self.under_way.append((work, done))

    def finish(self, result: bytes | None = None, *, fails: bool = False) -> None:
        work, done = self.under_way.pop()
        done(None if fails else result if result is not None else whole(work)[0])


def whole(work: Generator[None, None, bytearray]) -> tuple[bytearray, int]:
    """What the work returned, and in how many pieces."""
    pieces = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, pieces
        pieces += 1


def page_of(node: Any, runs: Any, clock: FakeClock, partitions_max: int = 1000) -> MetricsPage:
    metrics = NodeMetrics(node, clock, dict)  # type: ignore[arg-type]
    return MetricsPage(node, metrics, runs, clock.now_us, partitions_max=partitions_max)


def samples(page: MetricsPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    families = list(text_string_to_metric_families(whole(page.build())[0].decode()))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation and family.type in ("gauge", "counter")
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def labels(topic: str, index: int) -> tuple[tuple[str, str], ...]:
    return ("partition", str(index)), ("topic", topic)


def node_with(*partitions: tuple[GroupId, Any]) -> Any:
    node = FakeHttpNode()
    node.partitions = dict(partitions)
    return node


def test_gauges_of_every_group() -> None:
    node = node_with((METADATA_GROUP, partition(10, leads=True)), (GroupId("t", 2), partition(20, leads=False)))
    found = samples(page_of(node, Runs(), FakeClock()))
    meta, data = labels("__cluster_metadata", 0), labels("t", 2)
    assert found["raftlake_current_state", (meta[0], ("state", "leader"), meta[1])] == 1
    assert found["raftlake_current_state", (data[0], ("state", "follower"), data[1])] == 1
    values = {
        "current_leader": 1, "current_vote": 2, "current_epoch": 3, "high_watermark": 9, "log_start_offset": 0,
        "log_end_offset": 10, "log_end_epoch": 3,
    }  # fmt: skip
    for name, value in values.items():
        assert found[f"raftlake_{name}", meta] == value
    assert found["raftlake_current_vote", data] == -1
    assert found["raftlake_partitions", (("state", "leader"),)] == found["raftlake_partitions", (("state", "follower"),)] == 1
    assert found["raftlake_number_of_voters", ()] == 2


def test_labels_are_escaped() -> None:
    topic = 'a"b\\c\nd'
    found = samples(page_of(node_with((GroupId(topic, 0), partition(5, leads=True))), Runs(), FakeClock()))
    assert found["raftlake_log_end_offset", labels(topic, 0)] == 5


def test_many_partitions_are_written_a_piece_at_a_time() -> None:
    """Between two pieces a node votes, fetches and answers. A partition may go meanwhile."""
    many = [(GroupId("t", index), partition(index, leads=True)) for index in range(10 * PIECE + 1)]
    node = node_with(*many)
    work = page_of(node, Runs(), FakeClock()).build()
    next(work)
    del node.partitions[GroupId("t", 7)]
    text, pieces = whole(work)
    of_one_piece = whole(page_of(node_with(*many[:PIECE]), Runs(), FakeClock()).build())[1]
    assert pieces + 1 == of_one_piece + 10, "the first one is taken already"
    assert text.count(b"\nraftlake_log_end_offset{") == len(many)
    largest = max(text.split(b"# HELP"), key=len)
    assert largest.count(b"\n") <= len(many) + 3


@pytest.mark.parametrize(("topic_partitions", "shown"), [(0, 0), (3, 3), (4, 0), (5, 0)])
def test_above_so_many_partitions_none_has_series_of_its_own(topic_partitions: int, shown: int) -> None:
    """Half of them would be an accident. The quorum's own log always has them, and the counts are of all."""
    data = [(GroupId("t", index), partition(9, leads=False)) for index in range(topic_partitions)]
    for order in ([(METADATA_GROUP, partition(3, leads=True)), *data], [*data, (METADATA_GROUP, partition(3, leads=True))]):
        found = samples(page_of(node_with(*order), Runs(), FakeClock(), partitions_max=3))
        of_data = [key for key in found if key[0] == "raftlake_log_end_offset" and key[1][1] == ("topic", "t")]
        assert len(of_data) == shown
        assert found["raftlake_log_end_offset", labels("__cluster_metadata", 0)] == 3
        assert found.get(("raftlake_partitions", (("state", "follower"),)), 0) == topic_partitions
        assert found["raftlake_partitions", (("state", "leader"),)] == 1


def test_partitions_without_a_leader_are_counted() -> None:
    lost = partition(1, leads=False)
    lost.core.leader_id = NO_LEADER
    node = node_with((METADATA_GROUP, partition(3, leads=True)), (GroupId("t", 0), lost))
    assert samples(page_of(node, Runs(), FakeClock(), partitions_max=0))["raftlake_partitions_without_leader", ()] == 1


def test_all_who_ask_meanwhile_get_the_one_page() -> None:
    runs, clock = Runs(), FakeClock()
    page = page_of(node_with(), runs, clock)
    told: list[Any] = []
    for _ in range(50):
        page.ask(told.append)
    assert (runs.started, told) == (1, [])
    runs.finish(b"one")
    assert told == [b"one"] * 50


def test_a_page_is_kept_for_a_second() -> None:
    runs, clock = Runs(), FakeClock()
    page = page_of(node_with(), runs, clock)
    told: list[Any] = []
    page.ask(told.append)
    runs.finish(b"one")
    clock.us += KEPT_US - 1
    page.ask(told.append)
    assert (runs.started, told) == (1, [b"one", b"one"])
    clock.us += 1
    page.ask(told.append)
    assert runs.started == 2
    runs.finish(b"two")
    assert told[-1] == b"two"


def test_a_page_that_failed_is_not_kept() -> None:
    runs, clock = Runs(), FakeClock()
    page = page_of(node_with(), runs, clock)
    told: list[Any] = []
    page.ask(told.append)
    runs.finish(fails=True)
    page.ask(told.append)
    assert runs.started == 2
    runs.finish(b"two")
    assert told == [None, b"two"]


# --- streaming queries ---------------------------------------------------------------------------------------------------

LAG = "raftlake_query_lag_records"


def say(node: Any, query: str, reads: str, run: str = "r", **offsets: int) -> None:
    """Of partition 0 of topics."""
    position = SourcePosition(offsets={topic: {0: offset} for topic, offset in offsets.items()}, run=run)
    node.kv.apply(put(position_key(query, reads), encode(position)))


def lags(page: MetricsPage) -> dict[tuple[str, str, str], float]:
    """By query, topic and partition; each once, or the page cannot be read."""
    text = whole(page.build())[0].decode()
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if line.startswith(LAG)]
    assert len(set(lines)) == len(lines)
    found = [(dict(at), value) for (name, at), value in samples(page).items() if name == LAG]
    return {(at["query"], at["topic"], at["partition"]): value for at, value in found}


def test_the_leader_of_a_partition_tells_how_far_queries_are_behind() -> None:
    node = node_with((GroupId("t", 0), partition(21, leads=True)), (GroupId("u", 0), partition(9, leads=False)))
    page = page_of(node, Runs(), FakeClock())
    assert samples(page)["raftlake_query_positions", ()] == 0
    say(node, 'q"1', "subscribe t,u,v", t=5, u=2, v=1)
    say(node, "q2", "subscribe t", t=90)
    assert lags(page) == {('q"1', "t", "0"): 15, ("q2", "t", "0"): 0}
    assert samples(page)["raftlake_query_positions", ()] == 2
    # It goes on, and the log does.
    say(node, 'q"1', "subscribe t,u,v", t=19)
    node.partitions[GroupId("t", 0)].high_watermark = 22
    assert lags(page)['q"1', "t", "0"] == 3


def test_two_sources_that_read_a_topic_are_one_series() -> None:
    node = node_with((GroupId("t", 0), partition(21, leads=True)))
    say(node, "q", "subscribe t", t=15)
    say(node, "q", "assign t-0", t=11)
    assert lags(page_of(node, Runs(), FakeClock())) == {("q", "t", "0"): 9}


def test_series_go_with_the_keys_and_the_topic() -> None:
    ids = bytes(15) + b"\x01", bytes(15) + b"\x02"
    groups = [GroupId(topic, 0, topic_id) for topic, topic_id in zip("tu", ids, strict=True)]
    node = node_with(*((group, partition(21, leads=True)) for group in groups))
    page = page_of(node, Runs(), FakeClock())
    say(node, "q", "subscribe t,u", t=1, u=2)
    node.kv.apply(put(topic_key("q", "t"), b'{"topic_id":"%s"}' % ids[0].hex().encode()))
    assert set(lags(page)) == {("q", "t", "0"), ("q", "u", "0")}
    del node.partitions[groups[1]]
    assert set(lags(page)) == {("q", "t", "0")}
    # Deleted and created again: another id under the name.
    node.partitions[groups[0]._replace(topic_id=ids[1])] = node.partitions.pop(groups[0])
    assert not lags(page)
    node.kv.apply(put(topic_key("q", "t"), b'{"topic_id":"%s"}' % ids[1].hex().encode()))
    assert set(lags(page)) == {("q", "t", "0")}
    say(node, "other", "subscribe t", t=1)
    node.kv.apply(Txn((), (DeletePrefix(query_prefix("q")),)))
    assert set(lags(page)) == {("other", "t", "0")}
    node.kv.apply(Txn((), (DeletePrefix(query_prefix("other")),)))
    assert not lags(page)


@pytest.mark.parametrize(("queries", "shown"), [(3, 3), (4, 0)])
def test_above_so_many_positions_none_has_a_series(queries: int, shown: int) -> None:
    node = node_with((GroupId("t", 0), partition(21, leads=True)))
    for number in range(queries):
        say(node, f"q{number}", "subscribe t", t=1)
    page = page_of(node, Runs(), FakeClock(), partitions_max=3)
    assert len(lags(page)) == shown
    assert samples(page)["raftlake_query_positions", ()] == queries


def test_many_positions_are_read_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_with((GroupId("t", 0), partition(21, leads=True)))
    for number in range(3 * SERIES_PIECE + 1):
        say(node, f"q{number}", "subscribe t", t=1)
    page = page_of(node, Runs(), FakeClock())
    assert len(lags(page)) == 3 * SERIES_PIECE + 1
    pieces = whole(page.build())[1]
    assert pieces - whole(page_of(node_with(*node.partitions.items()), Runs(), FakeClock()).build())[1] >= 3 + 3 + 15
    monkeypatch.setattr(query_lag_series, "KEYS_MAX", 3 * SERIES_PIECE)
    assert not lags(page)
