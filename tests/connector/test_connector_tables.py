"""The driver's side of tables: who is asked for what, when a table is opened anew, and what happens where it cannot be."""

from __future__ import annotations

import logging

import pytest

from connector.fakelog import FakeQuorum
from connector.fakequery import Query, options_of, view_of
from connector.faketable import Clock, FakeStore, FakeTable, file_of
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.history_view import HistoryView
from pyspark_raftlake.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, TopicPartition
from pyspark_raftlake.options import SourceOptions, Tier, TierOptions
from pyspark_raftlake.planning import RangePartition, StreamPlanner, plan_batch_query
from pyspark_raftlake.pushdown import Wanted
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import Shown, TimeSpan
from pyspark_raftlake.tables import LOOK_AGAIN_MS, TablePlace, Tables
from raftlake.errors import ConfigError, ErrorCode, RequestRejected
from raftlake.ports.tier import TierFailure
from raftlake.tier.failures import TierProblem

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def quorum() -> FakeQuorum:
    made = FakeQuorum(t=2)
    made.set_bounds("t", (0, 100), (0, 40))
    made.tier_uri = "/tier"
    copied(made, 60, 0)
    return made


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(quorum: FakeQuorum, store: FakeStore) -> FakeTable:
    return store.put(quorum, "t", file_of(0, 0, 30), file_of(0, 30, 60))


def copied(quorum: FakeQuorum, *ends: int) -> None:
    for log, end in zip(quorum.logs["t"], ends, strict=True):
        log.copied_end = end


def batch(quorum: FakeQuorum, store: FakeStore, wanted: Wanted | None = None, **options: str) -> list[RangePartition]:
    """The plan of a batch query."""
    parsed = options_of(**options).for_batch()
    tables = store.tables_of(quorum, parsed.tier, Clock())
    view = view_of(quorum, parsed)
    if parsed.tier.mode is Tier.REMOTE:
        view = HistoryView(quorum, parsed.selection, parsed.consistency, tables)
    return plan_batch_query(view, parsed, tables, *([] if wanted is None else [wanted]))


def told(tasks: list[RangePartition]) -> list[tuple[str, tuple[str, ...] | None]]:
    """The range of each task, and the files that it reads; None: it begins with the log."""
    found: list[tuple[str, tuple[str, ...] | None]] = []
    for task in tasks:
        files = None if task.table is None or task.table.files is None else task.table.files
        found.append((str(task.range), None if files is None else tuple(file.path for file in files)))
    return found


A, B = "partition=0/0.parquet", "partition=0/30.parquet"


# --- batch queries ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("table")
def test_history_comes_from_the_table_and_the_rest_from_the_log(quorum: FakeQuorum, store: FakeStore) -> None:
    tasks = batch(quorum, store)
    assert told(tasks) == [("[0, 60) of t-0", (A, B)), ("[60, 100) of t-0", None), ("[0, 40) of t-1", None)]
    assert all(task.reads_log and task.table is not None for task in tasks), "each source stands in for the other"
    assert store.asked == [TablePlace(uri=store.asked[0].uri)] and store.asked[0].uri.startswith("/tier/t-")


@pytest.mark.usefixtures("table")
def test_a_table_as_executors_see_it(quorum: FakeQuorum, store: FakeStore) -> None:
    store.put(quorum, "t", file_of(0, 0, 30), tier_uri="s3://mounted/elsewhere")
    options = {"tier.uri": "s3://mounted/elsewhere", "tier.storage.aws_region": "eu"}
    first, *_ = batch(quorum, store, **options)
    assert told([first]) == [("[0, 30) of t-0", (A,))]
    assert first.table is not None and first.table.place.uri.startswith("s3://mounted/elsewhere/t-")
    assert first.table.place.storage == (("aws_region", "eu"),)
    quorum.calls.clear()
    assert told(batch(quorum, store, tier="remote", **options)) == [("[0, 30) of t-0", (A,))]
    assert "configs t" not in quorum.calls, "a table alone needs no tier of the nodes"


@pytest.mark.usefixtures("table")
def test_a_table_whose_log_does_not_go_on_where_it_ends(quorum: FakeQuorum, store: FakeStore) -> None:
    """Nodes without a tier delete what no table has."""
    quorum.tier_uri = None
    with pytest.raises(ConfigError, match=r"Option 'tier.uri' is '/tier', and topic 't' has no remote tier"):
        batch(quorum, store, **{"tier.uri": "/tier"})
    assert told(batch(quorum, store, **{"tier.uri": "/tier", "tier": "remote"})) == [("[0, 60) of t-0", (A, B))]


@pytest.mark.usefixtures("table")
def test_only_the_log(quorum: FakeQuorum, store: FakeStore) -> None:
    tasks = batch(quorum, store, tier="local")
    assert told(tasks) == [("[0, 100) of t-0", None), ("[0, 40) of t-1", None)]
    assert store.asked == [] and all(task.table is None for task in tasks)


@pytest.mark.usefixtures("table")
def test_only_the_table(quorum: FakeQuorum, store: FakeStore) -> None:
    tasks = batch(quorum, store, tier="remote")
    assert told(tasks) == [("[0, 60) of t-0", (A, B))] and not tasks[0].reads_log


def test_a_quorum_without_a_tier_is_asked_once_and_reads_as_ever(quorum: FakeQuorum, store: FakeStore) -> None:
    quorum.tier_uri = None
    tasks = batch(quorum, store)
    assert [(str(task.range), task.table) for task in tasks] == [("[0, 100) of t-0", None), ("[0, 40) of t-1", None)]
    assert quorum.calls.count("configs t") == 1 and store.asked == []


def test_nothing_copied_yet_opens_no_table(quorum: FakeQuorum, store: FakeStore) -> None:
    copied(quorum, 0, 0)
    assert told(batch(quorum, store)) == [("[0, 100) of t-0", None), ("[0, 40) of t-1", None)]
    assert store.asked == []
    assert batch(quorum, store, tier="remote") == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (59, [("[59, 60) of t-0", (B,)), ("[60, 100) of t-0", None)]),
        (60, [("[60, 100) of t-0", None)]),
        (61, [("[61, 100) of t-0", None)]),
    ],
)
@pytest.mark.usefixtures("table")
def test_the_last_offset_of_the_table(
    quorum: FakeQuorum, store: FakeStore, start: int, expected: list[tuple[str, tuple[str, ...] | None]]
) -> None:
    assert told(batch(quorum, store, startingOffsets=f'{{"t":{{"0":{start},"1":40}}}}'))[: len(expected)] == expected
    assert len(store.asked) == (start < 60), "a table that holds nothing of a range is not opened"


def test_a_table_that_shows_less_or_more_than_the_quorum_says(quorum: FakeQuorum, store: FakeStore) -> None:
    """A commit comes before its COPY_FINISHED, and a store may show an old version."""
    store.put(quorum, "t", file_of(0, 0, 30))
    assert told(batch(quorum, store))[:2] == [("[0, 30) of t-0", (A,)), ("[30, 100) of t-0", None)]
    store.put(quorum, "t", file_of(0, 0, 30), file_of(0, 30, 120))
    assert told(batch(quorum, store))[:1] == [("[0, 100) of t-0", (A, B))], "never above the planned end"
    store.put(quorum, "t", file_of(1, 0, 30))
    assert told(batch(quorum, store))[:1] == [("[0, 100) of t-0", None)]


def test_tasks_of_many_files_and_more_tasks_than_that(quorum: FakeQuorum, store: FakeStore) -> None:
    store.put(quorum, "t", file_of(0, 0, 30, size=32 << 20), file_of(0, 30, 60, size=32 << 20))
    assert told(batch(quorum, store))[:2] == [("[0, 30) of t-0", (A,)), ("[30, 60) of t-0", (B,))]
    tasks = batch(quorum, store, startingOffsets='{"t":{"0":0,"1":40}}', maxRecordsPerPartition="25")
    assert [(each.start, each.end) for each in (task.range for task in tasks)][:5] == [
        (0, 15), (15, 30), (30, 45), (45, 60), (60, 80),
    ]  # fmt: skip
    assert [files for _, files in told(tasks)][:5] == [(A,), (A,), (B,), (B,), None]


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("table")
def test_filters_reach_files_and_ranges(quorum: FakeQuorum, store: FakeStore) -> None:
    only_1 = Wanted(partitions=frozenset({1}))
    assert told(batch(quorum, store, only_1)) == [("[0, 40) of t-1", None)]
    middle = Wanted(offset_min=20, offset_max=29, partitions=frozenset({0}))
    assert told(batch(quorum, store, middle)) == [("[20, 30) of t-0", (A,))]


def test_a_time_skips_files_and_shortens_the_log(quorum: FakeQuorum, store: FakeStore) -> None:
    store.put(quorum, "t", file_of(0, 0, 30, times=(1_000, 1_999)), file_of(0, 30, 60, times=(2_000, 2_999)))
    quorum.logs["t"][0].times = {75: 3}
    late = Wanted(times=TimeSpan(2_001, None))
    tasks = batch(quorum, store, late)
    assert told(tasks) == [("[30, 60) of t-0", (B,)), ("[75, 100) of t-0", None)]
    assert tasks[0].table is not None and tasks[0].table.times == TimeSpan(2_001, None)
    # The search by time begins in the table: what it finds there moves nothing.
    quorum.logs["t"][0].times = {40: 3, 75: 4}
    assert told(batch(quorum, store, late))[1:2] == [("[60, 100) of t-0", None)]
    assert told(batch(quorum, store, Wanted(times=TimeSpan(None, 1_500)))) == [
        ("[0, 30) of t-0", (A,)), ("[60, 100) of t-0", None), ("[0, 40) of t-1", None),
    ]  # fmt: skip


# --- streams ----------------------------------------------------------------------------------------------------------


class TieredQuery(Query):
    """A streaming query with tables."""

    def __init__(self, quorum: FakeQuorum, store: FakeStore, **options: str) -> None:
        self.store = store
        self.clock = Clock()
        super().__init__(quorum, **options)

    def restart(self) -> None:
        tables = self.store.tables_of(self.quorum, self.options.tier, self.clock)
        view = view_of(self.quorum, self.options)
        if self.options.tier.mode is Tier.REMOTE:
            view = HistoryView(self.quorum, self.options.selection, self.options.consistency, tables)
        self.planner = StreamPlanner(view, self.options, now_ms=lambda: self.now_ms, tables=tables)

    def plan(self) -> list[tuple[str, tuple[str, ...] | None]]:
        self.now_ms += 1_000
        self.clock.now_ms = self.now_ms
        start = dict(self.planner.initial_offsets()) if self.end is None else self.end
        self.end = dict(self.planner.plan_end(start, self.planner.default_limit()))
        return told(self.planner.plan_tasks(start, self.end))


def test_a_stream_goes_over_the_seam_without_a_gap_while_it_moves(
    quorum: FakeQuorum, store: FakeStore, table: FakeTable
) -> None:
    quorum.set_bounds("t", (0, 100), (0, 0))
    query = TieredQuery(quorum, store, startingOffsets="earliest", maxOffsetsPerTrigger="25")
    assert query.plan() == [("[0, 25) of t-0", (A,))]
    assert query.plan() == [("[25, 50) of t-0", (A, B))]
    assert (table.opened, table.refreshed) == (1, 0), "what was seen is enough"
    table.files.append(file_of(0, 60, 70))
    copied(quorum, 70, 0)
    assert query.plan() == [("[50, 70) of t-0", (B, "partition=0/60.parquet")), ("[70, 75) of t-0", None)]
    assert (table.opened, table.refreshed) == (1, 1), "the seam has moved into the batch"
    query.restart()
    assert query.plan() == [("[75, 100) of t-0", None)]
    quorum.set_bounds("t", (0, 110), (0, 0))
    assert query.plan() == [("[100, 110) of t-0", None)]
    assert (table.opened, table.refreshed) == (1, 1), "who reads what is new looks at no table"


def test_a_stream_of_the_table_only(quorum: FakeQuorum, store: FakeStore, table: FakeTable) -> None:
    query = TieredQuery(quorum, store, startingOffsets="earliest", tier="remote")
    assert query.plan() == [("[0, 60) of t-0", (A, B))]
    table.files.append(file_of(0, 60, 70))
    assert query.plan() == [("[60, 70) of t-0", ("partition=0/60.parquet",))]
    assert query.plan() == []
    before = table.refreshed
    for _ in range(50):
        query.planner.plan_end(query.end or {}, query.planner.default_limit())
    assert table.refreshed - before <= 1, "Spark asks a hundred times a second"


@pytest.mark.usefixtures("table")
def test_a_start_that_retention_has_removed_from_table_and_log(quorum: FakeQuorum, store: FakeStore) -> None:
    """One offset space: what the log does not hold is no loss while the table does."""
    quorum.logs["t"][0].local_start = 50
    query = TieredQuery(quorum, store, startingOffsets='{"t":{"0":10,"1":40}}')
    assert query.plan() == [("[10, 60) of t-0", (A, B)), ("[60, 100) of t-0", None)]
    quorum.logs["t"][0].start = 20
    with pytest.raises(DataLoss, match=r"startingOffsets for t-0 is 10, but the log holds \[20, 100\) only"):
        TieredQuery(quorum, store, startingOffsets='{"t":{"0":10,"1":40}}').plan()


@pytest.mark.usefixtures("table")
def test_a_topic_that_is_created_again_has_another_table(quorum: FakeQuorum, store: FakeStore) -> None:
    parsed = options_of()
    tables = store.tables_of(quorum, parsed.tier, Clock())
    ranges = [OffsetRange(topic="t", partition=0, start=0, end=100)]
    assert tables.shown(ranges, quorum.ids) == {T0: Shown(0, 60)}
    quorum.recreate("t")
    copied(quorum, 5, 0)
    store.put(quorum, "t", file_of(0, 0, 5))
    assert tables.shown(ranges, quorum.ids) == {T0: Shown(0, 5)}


# --- tables that cannot be read ---------------------------------------------------------------------------------------

UNREADABLE = [
    TierProblem(TierFailure.UNKNOWN, "cannot read the table /tier/t: connection refused"),
    ImportError("No module named 'deltalake'"),
]


@pytest.mark.parametrize("error", UNREADABLE, ids=lambda error: type(error).__name__)
def test_the_nodes_serve_what_this_machine_cannot_read(
    quorum: FakeQuorum, store: FakeStore, table: FakeTable, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The nodes may have the store under a path that a driver elsewhere does not have: a job goes on as it did before."""
    table.error = error
    query = TieredQuery(quorum, store, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    with caplog.at_level(logging.WARNING):
        assert {files for _, files in query.plan()} == {None}
        assert {files for _, files in query.plan()} == {None}
    (record,) = caplog.records
    assert "table of topic 't' at /tier/t-" in record.message and "option 'tier.uri'" in record.message
    assert table.opened == 1, "not with every batch"
    table.error = None
    query.now_ms += LOOK_AGAIN_MS
    assert (A,) in [files for _, files in query.plan()]


@pytest.mark.parametrize("error", UNREADABLE, ids=lambda error: type(error).__name__)
def test_who_asks_for_the_table_is_told_that_it_cannot_be_read(
    quorum: FakeQuorum, store: FakeStore, table: FakeTable, error: Exception
) -> None:
    table.error = error
    with pytest.raises(ConfigError, match=r"table of topic 't' at /tier/t-.* cannot be read here"):
        batch(quorum, store, tier="remote")
    with pytest.raises(ConfigError, match=r"Option 'tier.uri' is '/tier', and the table of topic 't'"):
        batch(quorum, store, **{"tier.uri": "/tier"})


@pytest.mark.usefixtures("table")
def test_a_wrong_place_is_an_error_that_names_the_option(quorum: FakeQuorum, store: FakeStore) -> None:
    for options in ({"tier.uri": "/wrong"}, {"tier.uri": "/wrong", "tier": "remote"}):
        with pytest.raises(ConfigError, match=r"Option 'tier.uri' is '/wrong', .*there is no Delta table at /wrong/t-"):
            batch(quorum, store, **options)


def test_a_table_of_another_topic(quorum: FakeQuorum, store: FakeStore, table: FakeTable) -> None:
    table.topic_id = bytes(16)
    with pytest.raises(ConfigError, match="is not that of topic 't'"):
        batch(quorum, store, tier="remote")
    assert {files for _, files in told(batch(quorum, store))} == {None}


def test_a_topic_without_a_tier_has_no_history(quorum: FakeQuorum, store: FakeStore) -> None:
    quorum.tier_uri = None
    with pytest.raises(ConfigError, match=r"topic 't' has no remote tier.*tier.uri"):
        batch(quorum, store, tier="remote")


def test_a_topic_that_is_gone_when_it_is_asked_about(quorum: FakeQuorum, store: FakeStore) -> None:
    quorum.vanished.add("t")
    tables = store.tables_of(quorum, TierOptions(), Clock())
    assert tables.place("t", quorum.ids["t"]) is None
    tables = store.tables_of(quorum, TierOptions(uri="/tier"), Clock())
    assert tables.shown([OffsetRange(topic="t", partition=0, start=0, end=9)], quorum.ids) == {}


def test_other_refusals_are_told(quorum: FakeQuorum, store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> dict[str, str]:
        raise RequestRejected(ErrorCode.NETWORK_EXCEPTION, "no answer")

    monkeypatch.setattr(quorum, "topic_configs", refuse)
    with pytest.raises(RequestRejected, match="no answer"):
        batch(quorum, store)


def test_a_tier_that_is_switched_on_is_found_in_a_minute(quorum: FakeQuorum, store: FakeStore, clock: Clock) -> None:
    quorum.tier_uri = None
    tables = store.tables_of(quorum, TierOptions(), clock)
    assert tables.place("t", quorum.ids["t"]) is None
    quorum.tier_uri = "/tier"
    clock.now_ms += LOOK_AGAIN_MS - 1
    assert tables.place("t", quorum.ids["t"]) is None and quorum.calls.count("configs t") == 1
    clock.now_ms += 1
    assert tables.place("t", quorum.ids["t"]) is not None


# --- the views of local and remote ------------------------------------------------------------------------------------


def test_the_table_says_where_partitions_begin_and_end(quorum: FakeQuorum, store: FakeStore) -> None:
    store.put(quorum, "t", file_of(0, 20, 60, times=(1_000, 5_000)))
    quorum.grow("t", 8)
    options: SourceOptions = options_of(tier="remote")
    tables: Tables = store.tables_of(quorum, options.tier, Clock())
    view = HistoryView(quorum, options.selection, options.consistency, tables)
    view.look()
    t7 = TopicPartition("t", 7)
    assert view.earliest([T0, t7]) == {T0: 20, t7: 7}, "a partition whose files are all removed is where it was"
    assert view.latest([T0, t7]) == view.proven_latest([T0, t7]) == {T0: 60, t7: 7}
    assert view.at_timestamps({T0: 5, T1: 5}) == {T0: 20, T1: -1} and view.at_timestamps({T0: 6}) == {T0: -1}
    assert view.at_timestamps({TopicPartition("gone", 0): LATEST}) == {}


def test_local_begins_where_the_disks_begin(quorum: FakeQuorum, store: FakeStore) -> None:
    log = quorum.logs["t"][0]
    log.local_start, log.times = 50, {10: 1_000, 70: 2_000}
    assert told(batch(quorum, store, tier="local"))[0] == ("[50, 100) of t-0", None)
    view = view_of(quorum, options_of(tier="local"))
    view.look()
    assert view.at_timestamps({T0: 500, T1: EARLIEST}) == {T0: 50, T1: 0}
    assert view.at_timestamps({T0: 1_500}) == {T0: 70} and view.at_timestamps({T0: 2_500}) == {T0: -1}
    assert view.latest([T0]) == {T0: 100} and EARLIEST_LOCAL < EARLIEST


def test_a_stream_of_the_table_alone_is_not_planned_by_the_table_of_a_deleted_topic(
    quorum: FakeQuorum, store: FakeStore
) -> None:
    """Its end lies behind that of the new one, and the query would go on from there."""
    store.put(quorum, "t", file_of(0, 0, 60))
    old = quorum.ids["t"]
    quorum.recreate("t")
    store.put(quorum, "t", file_of(0, 0, 30))
    query = TieredQuery(quorum, store, startingOffsets="earliest", tier="remote", failOnDataLoss="false")
    assert [range_ for range_, _ in query.plan()] == ["[0, 30) of t-0"]
    quorum.ids["t"] = old
    assert query.plan() == [] and query.end is not None and query.end[T0] == 30


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_node_that_names_the_table_of_the_old_topic_does_not_stop_a_query(
    quorum: FakeQuorum, store: FakeStore, fail: str
) -> None:
    store.put(quorum, "t", file_of(0, 0, 60))
    old = quorum.ids["t"]
    quorum.recreate("t")
    new = quorum.ids["t"]
    store.put(quorum, "t", file_of(0, 0, 30))
    query = TieredQuery(quorum, store, startingOffsets="earliest", tier="remote", failOnDataLoss=fail)
    quorum.ids["t"] = old
    with pytest.raises(RequestRejected, match="a node names the table of another topic 't'") as caught:
        query.plan()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    quorum.ids["t"] = new
    assert [range_ for range_, _ in query.plan()] == ["[0, 30) of t-0"]
    query.restart()
    for quorum.do_all_lag in (False, True):
        quorum.ids["t"] = old
        assert query.plan() == [] and query.end is not None and query.end[T0] == 30
    quorum.ids["t"] = new
    store.put(quorum, "t", file_of(0, 0, 31))
    assert [range_ for range_, _ in query.plan()] == ["[30, 31) of t-0"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_table_that_a_node_does_not_know_is_not_taken_for_none(
    quorum: FakeQuorum, store: FakeStore, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """The node that is asked for the settings lags behind the one that was asked for the topic."""
    store.put(quorum, "t", file_of(0, 0, 60))
    query = TieredQuery(quorum, store, startingOffsets="earliest", tier="remote")
    query.plan()
    query.restart()

    def refuse(*_: object, **__: object) -> dict[str, str]:
        raise RequestRejected(code, "not here")

    monkeypatch.setattr(quorum, "topic_configs", refuse)
    assert query.plan() == [] and query.end is not None and query.end[T0] == 60
    monkeypatch.undo()
    if code is ErrorCode.UNKNOWN_TOPIC_ID:
        # Nor is a table that cannot be read, while nobody tells how much of it there is.
        store.tables.clear()
        monkeypatch.setattr(quorum, "list_offsets", refuse)
        assert query.plan() == [] and query.end[T0] == 60
