"""The quickstart's table of flights: when it is complete, when it is wrong, and what SQL counts in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from contract.tier_contract import GROUP, request_for
from historykit import END, fill, lineage, rewrite, root_of, with_value
from raftlake.ports.tier import RemoteSegment
from raftlake.quickstart import history
from raftlake.quickstart import tour as quickstart
from raftlake.quickstart.history import HistoryWrong, await_copied, examine, flights_by_carrier, log_bytes
from raftlake.quickstart.stop import Stop
from raftlake.quickstart.tour import QuickstartFailed, Tour
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.control import leader_change_batch


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return TierSettings(uri=str(tmp_path / "history"), cluster_id="c", storage_options={})


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the tour slept. Each sleep moves its clock by a second."""
    slept: list[float] = []
    monkeypatch.setattr(history.time, "monotonic", lambda: float(len(slept)))
    return slept


def stop_of(slept: list[float], then: Any = lambda: None) -> Stop:
    def sleep(seconds: float) -> None:
        slept.append(seconds)
        then()

    stop: Any = SimpleNamespace(sleep=sleep)
    return stop  # type: ignore[no-any-return]


def test_the_table_is_complete_when_each_partition_reaches_its_end(settings: TierSettings, asleep: list[float]) -> None:
    steps: Iterator[list[int]] = iter([[2], [1]])
    stop = stop_of(asleep, lambda: fill(settings, next(steps)) and None)
    found = await_copied(Path(settings.uri), GROUP.topic, {1: END, 2: END}, stop)
    assert found.offsets(1) == found.offsets(2) == (0, END)
    assert len(asleep) == 2, "before there was a table, and when it had one of both"


@pytest.mark.parametrize("ends", [{2: END + 1}, {2: END - 1}, {2: END, 3: 1}])
def test_a_table_that_ends_elsewhere_is_waited_for_and_then_told(
    settings: TierSettings, asleep: list[float], ends: dict[int, int]
) -> None:
    fill(settings)
    with pytest.raises(HistoryWrong, match=r"shows \{2: 25\} after 120 s, and the log ends at"):
        await_copied(Path(settings.uri), GROUP.topic, ends, stop_of(asleep))
    assert len(asleep) == 121


def test_a_sound_table_is_counted(settings: TierSettings) -> None:
    fill(settings, (2, 1))
    facts = examine(TopicHistory(str(root_of(settings))))
    assert (facts.rows, facts.files) == (2 * END, 8)
    assert facts.size == sum(path.stat().st_size for path in root_of(settings).rglob("*.parquet"))


def test_a_table_with_a_wrong_row_fails_the_tour(settings: TierSettings) -> None:
    fill(settings)
    rewrite(settings, lambda rows: with_value(rows, "value", 8, b"forged"))
    with pytest.raises(HistoryWrong, match=r"findings in .*/flights-"):
        examine(TopicHistory(str(root_of(settings))))


def carriers(settings: TierSettings, *keys: str) -> str:
    """A table with one flight for each key, and a control record."""
    records = [Record(offset=n, key=key.encode(), value=b"{}") for n, key in enumerate(keys)]
    batch = bytes(build_batch(records, base_offset=0, leader_epoch=1, timestamp_ms=1))
    end = bytes(leader_change_batch(len(keys), 1, 1, 1, (1,), (1,)))
    answer = DeltaTier(settings).copy(request_for(batch + end, "s", 1, lineage()))
    assert isinstance(answer, RemoteSegment), answer
    return str(root_of(settings))


def test_sql_counts_flights_and_no_control_records_the_most_first(settings: TierSettings) -> None:
    table = carriers(settings, "UA", "AA", "UA", "UA", "AA", "B6")
    assert list(flights_by_carrier(table).items()) == [("UA", 3), ("AA", 2), ("B6", 1)]


def test_the_log_is_measured_where_most_of_it_lies(tmp_path: Path) -> None:
    for node, size in (("node-1", 100), ("node-2", 300)):
        for partition in (0, 1):
            place = tmp_path / node / f"flights-{partition}"
            place.mkdir(parents=True)
            (place / "0.log").write_bytes(b"x" * size)
            (place / "0.index").write_bytes(b"x" * 999)
    (tmp_path / "node-2" / "pulse-0").mkdir()
    (tmp_path / "node-2" / "pulse-0" / "0.log").write_bytes(b"x" * 999)
    # Retention deletes a segment between the look at the directory and the look at the file.
    (tmp_path / "node-2" / "flights-0" / "gone.log").symlink_to("nowhere")
    assert log_bytes([tmp_path / "node-1", tmp_path / "node-2"], "flights") == 600


# --- the step of the tour ---------------------------------------------------------------------------------------------


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def tour(said: io.StringIO, tmp_path: Path) -> Tour:
    (tmp_path / "node-1").mkdir()
    return Tour(Console(file=said, width=200), tmp_path, None, Stop())


def client_of(ends: dict[int, int]) -> Any:
    return SimpleNamespace(read_offset=lambda topic, partitions: ends)


@pytest.mark.parametrize(
    ("flights", "is_right"),
    [("UA UA AA", True), ("UA AA AA", False), ("UA UA", False), ("UA UA UA", False)],
)
def test_flights_that_sql_counts_otherwise_fail_the_tour(
    tour: Tour, said: io.StringIO, settings: TierSettings, monkeypatch: pytest.MonkeyPatch, flights: str, is_right: bool
) -> None:
    carriers(settings, "UA", "AA", "UA")
    monkeypatch.setattr(quickstart, "TOPIC", GROUP.topic)
    step = (client_of({2: 4}), Path(settings.uri), pa.table({"carrier": flights.split()}))
    if is_right:
        tour._history(*step)
        assert "4 records in 1 files, each offset once: nothing wrong" in said.getvalue()
        assert "UA 2, AA 1" in said.getvalue()
        return
    with pytest.raises(QuickstartFailed, match="the table should hold 4 records and the flights of each carrier"):
        tour._history(*step)
