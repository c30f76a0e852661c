"""What makes the quickstart fail: every wrong number, and every record that is lost, doubled or out of order."""

from __future__ import annotations

import io
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from raftlake.quickstart import spark as quickstart_spark
from raftlake.quickstart import tour as quickstart
from raftlake.quickstart.data import MEASURES
from raftlake.quickstart.spark import TopicCount
from raftlake.quickstart.stop import Interrupted, Stop
from raftlake.quickstart.tour import QuickstartFailed, Tour, run

if TYPE_CHECKING:
    import pandas


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def tour(said: io.StringIO, tmp_path: Path) -> Tour:
    return Tour(Console(file=said, width=200), tmp_path, None, Stop())


@pytest.fixture
def statistics() -> pandas.DataFrame:
    """Three groups, each number another one."""
    import pandas

    groups = [("AA", 5), ("AA", 6), ("UA", 5)]
    rows = [(*group, *(100 * row + column for column in range(len(MEASURES)))) for row, group in enumerate(groups, 1)]
    return pandas.DataFrame(rows, columns=["carrier", "hour", *MEASURES])


# --- the statistics ----------------------------------------------------------------------------------------------------------


def test_equal_statistics_agree_in_any_order_of_the_groups(tour: Tour, said: io.StringIO, statistics: pandas.DataFrame) -> None:
    tour._compare(statistics, statistics.iloc[::-1].reset_index(drop=True))
    assert "3 groups (carrier, hour), 6 integers each: all equal" in said.getvalue()


@pytest.mark.parametrize("measure", MEASURES)
def test_one_wrong_number_fails_the_tour(tour: Tour, said: io.StringIO, statistics: pandas.DataFrame, measure: str) -> None:
    actual = statistics.copy()
    actual.loc[1, measure] += 1
    with pytest.raises(QuickstartFailed, match="1 of 3 groups differ, the first:\n") as raised:
        tour._compare(statistics, actual)
    assert str(actual.loc[1, measure]) in str(raised.value)
    assert "all equal" not in said.getvalue()


def test_numbers_that_only_add_up_fail_the_tour(tour: Tour, statistics: pandas.DataFrame) -> None:
    actual = statistics.copy()
    actual.loc[0, "flights"] += 1
    actual.loc[2, "flights"] -= 1
    with pytest.raises(QuickstartFailed, match="2 of 3 groups differ"):
        tour._compare(statistics, actual)


def test_a_group_that_is_missing_or_too_many_fails_the_tour(tour: Tour, statistics: pandas.DataFrame) -> None:
    with pytest.raises(QuickstartFailed, match="1 of 3 groups differ"):
        tour._compare(statistics, statistics.drop(index=1))
    with pytest.raises(QuickstartFailed, match="1 of 3 groups differ"):
        tour._compare(statistics.drop(index=1), statistics)
    with pytest.raises(QuickstartFailed, match="3 of 3 groups differ"):
        tour._compare(statistics, statistics.iloc[:0])


# --- the records -------------------------------------------------------------------------------------------------------------

WHOLE = TopicCount(rows=100, offsets=100, ids=100, id_min=0, id_max=99, carriers_out_of_order=0)


def count(tour: Tour, monkeypatch: pytest.MonkeyPatch, found: TopicCount) -> None:
    monkeypatch.setattr(quickstart_spark, "count_topic", lambda *_: found)
    nothing: Any = SimpleNamespace(bootstrap_servers="a:1")
    tour._count(nothing, nothing, 100)


def test_a_topic_that_holds_each_record_once_in_order(tour: Tour, said: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    count(tour, monkeypatch, WHOLE)
    assert "the topic holds 100 records, 100 different flights, in order: none lost, none doubled" in said.getvalue()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(WHOLE, rows=99, offsets=99, ids=99), "rows=99"),
        (replace(WHOLE, rows=99, offsets=99, ids=99, id_min=1), "id_min=1"),
        (replace(WHOLE, rows=101, offsets=101), "rows=101"),
        (replace(WHOLE, ids=99), "ids=99"),
        (replace(WHOLE, offsets=99), "offsets=99"),
        (replace(WHOLE, id_max=100), "id_max=100"),
        (replace(WHOLE, id_min=-1), "id_min=-1"),
    ],
    ids=["lost", "first lost", "doubled", "one lost, one doubled", "an offset twice", "another's", "another's before"],
)
def test_a_record_that_is_lost_or_doubled_fails_the_tour(
    tour: Tour, monkeypatch: pytest.MonkeyPatch, found: TopicCount, words: str
) -> None:
    with pytest.raises(QuickstartFailed, match=f"the topic should hold 100 flights once each, but: .*{words}"):
        count(tour, monkeypatch, found)


def test_a_record_out_of_order_fails_the_tour(tour: Tour, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QuickstartFailed, match="the flights of 1 carriers are not in order of departure"):
        count(tour, monkeypatch, replace(WHOLE, carriers_out_of_order=1))


def test_an_acknowledged_append_that_is_missing_or_doubled_fails_the_tour(
    tour: Tour, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse: Any = SimpleNamespace(acknowledged=2, missing_and_doubled=lambda values: values)
    client: Any = None
    for found, words in ((([7], []), r"missing: \[7\]"), (([], [8]), r"doubled: \[8\]")):
        monkeypatch.setattr(quickstart, "read_values", lambda *_, found=found: found)
        with pytest.raises(QuickstartFailed, match=words):
            tour._check_pulse(client, pulse)
    monkeypatch.setattr(quickstart, "read_values", lambda *_: ([], []))
    tour._check_pulse(client, pulse)
    assert "each is there exactly once" in said.getvalue()


# --- exit codes --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(quickstart, "require_spark", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def ends(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    def pretend(tour: Tour) -> None:
        (tour.directory / "node-1").mkdir()
        if error is not None:
            raise error

    monkeypatch.setattr(Tour, "run", pretend)


def test_a_failed_tour_says_so_and_where_its_data_lies(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, QuickstartFailed("1 of 3 groups differ"))
    assert run() == 1
    (directory,) = temporary.iterdir()
    lies = f"The data lies in {directory}. To remove the data: rm -r {directory}"
    assert capsys.readouterr().out == f"failed: 1 of 3 groups differ\n{lies}\n"


def test_a_tour_without_a_failure_ends_well(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, None)
    assert run(data_dir=temporary / "new" / "folder") == 0
    assert capsys.readouterr().out.startswith("All agrees. ")


@pytest.mark.parametrize("name", ["plain", "two words", "it's", "[bold]"])
def test_the_last_line_removes_the_data_when_it_is_typed(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    ends(monkeypatch, None)
    assert run(data_dir=temporary / name / ("long-" * 20)) == 0
    said = capsys.readouterr().out.splitlines()[-1].partition("To remove the data: ")[2]
    subprocess.run(["sh", "-c", said], check=True)
    assert [path.name for path in (temporary / name).iterdir()] == []
    assert run() == 0
    subprocess.run(["sh", "-c", capsys.readouterr().out.rpartition(": ")[2]], check=True)
    assert [path.name for path in temporary.iterdir()] == [name]


def test_a_stopped_tour_leaves_no_temporary_folder_and_keeps_the_users_own(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, Interrupted("stopped"))
    assert run() == 130
    assert list(temporary.iterdir()) == []
    assert run(data_dir=temporary / "mine") == 130
    assert (temporary / "mine" / "node-1").exists()
    assert capsys.readouterr().out == "stopped\nstopped\n"


def test_a_folder_that_cannot_be_used_is_one_line(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = temporary / "file"
    file.write_text("keep")
    for path, reason in ((file, "File exists"), (file / "below", "Not a directory"), (Path("/proc/x"), "No such file or")):
        assert run(data_dir=path) == 1
        out = capsys.readouterr().out
        assert out.startswith(f"failed: --data-dir: {path} cannot be used: {reason}") and out.count("\n") == 1, out
    assert run(data_dir=temporary) == 1
    assert "is not empty; the quickstart wants a folder of its own" in capsys.readouterr().out
    assert file.read_text() == "keep"
