"""A sweep: what it has finished survives a kill, and its page tells nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from tests.kits.runstamp import Stamp, take
from tests.sweep import __main__ as command
from tests.sweep.ledger import STRETCH, Ledger, Stretch
from tests.sweep.page import page

from raftlake.sim import runner
from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.sim.report import Totals

STAMP = Stamp("abc123", "2030-01-02")
SEEDS = "1..500"


class Runs:
    """Stands in for simulated clusters; some seeds break a promise, or end the sweep, or are without traffic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seeds: list[int] = []
        self.broken: set[int] = set()
        self.idle: set[int] = set()
        self.stopped_at: int | None = None
        #: What stops it; None for a KeyboardInterrupt as it is.
        self.signal: signal.Signals | None = None
        monkeypatch.setattr(Settings, "draw", classmethod(lambda cls, seed: cls(seed=seed)))
        monkeypatch.setattr(
            Cluster, "__init__", lambda cluster, settings, *rest, **more: setattr(cluster, "settings", settings)
        )
        monkeypatch.setattr(Cluster, "run", lambda cluster: self.run(cluster.settings.seed))
        for module in (runner, command):
            monkeypatch.setattr(module, "settle", lambda: None)
        monkeypatch.setattr(runner.gc, "collect", lambda: 0)
        monkeypatch.setattr(command.runstamp, "take", lambda *places: STAMP)

    def run(self, seed: int) -> Outcome:
        if seed == self.stopped_at:
            if self.signal is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.signal)
        self.seeds.append(seed)
        if seed in self.broken:
            raise Violation("a promise", "was broken")
        completed = 0 if seed in self.idle else 50
        return Outcome(
            simulated_ms=60_000, events=10, completed=completed, faults={"crash": 2}, covered={"epochs": seed % 2 + 1}
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def sweep(directory: Path, seeds: str = SEEDS, *more: str) -> int:
    return command.main(["--seeds", seeds, "--ledgers", str(directory), "--page", str(directory / "page.md"), *more])


def test_a_seed_that_does_not_end_is_named(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if "has no verdict yet" in line:
            named.set()

    def run(seed: int) -> Outcome:
        assert seed != 7 or named.wait(30), "nobody was told"
        return whole(seed)

    whole = runs.run
    monkeypatch.setattr(runs, "run", run)
    monkeypatch.setattr(command, "say", say)
    monkeypatch.setattr(command, "SILENCE_S", 0.2)
    assert sweep(tmp_path, "1..12", "--interpreted") == 0
    assert {line for line in lines if "no verdict" in line} == {"seed 7 has no verdict yet, after 0 minutes: does its run end?"}


def test_the_page_tells_what_all_stretches_came_to(runs: Runs, tmp_path: Path) -> None:
    assert sweep(tmp_path) == 0
    text = (tmp_path / "page.md").read_text()
    assert "Seeds 1 to 500, commit abc123, 2030-01-02: **none failed.**" in text
    assert "| clusters | 500 |" in text
    assert "| simulated hours | 8.3 |" in text
    assert "| client requests that completed | 25,000 |" in text
    assert "| crash | 1,000 |" in text
    assert "| epochs | 750 | 500 |" in text
    assert "`make sweep SEEDS=1..500`" in text


def test_a_kill_stops_a_sweep_as_ctrl_c_does(runs: Runs, tmp_path: Path) -> None:
    """The processes that run seeds went on without it, for ever."""
    before = signal.getsignal(signal.SIGTERM)
    runs.stopped_at, runs.signal = 250, signal.SIGTERM
    assert sweep(tmp_path) == 1
    assert runs.seeds[-1] in (249, 250)
    assert signal.getsignal(signal.SIGTERM) == before
    assert [stretch.last for stretch in Ledger(tmp_path / f"{STAMP.commit}-1..500.jsonl", range(1, 501)).stretches] == [200]


@pytest.mark.parametrize("stopped_at", [1, STRETCH, STRETCH + 1, 2 * STRETCH + 50])
def test_a_sweep_goes_on_behind_the_last_stretch_that_it_finished(runs: Runs, tmp_path: Path, stopped_at: int) -> None:
    assert sweep(tmp_path / "in one") == 0
    runs.seeds.clear()
    runs.stopped_at = stopped_at
    assert sweep(tmp_path) == 1
    assert runs.seeds == list(range(1, stopped_at))
    assert not (tmp_path / "page.md").exists()
    runs.stopped_at = None
    runs.seeds.clear()
    assert sweep(tmp_path) == 0
    finished = (stopped_at - 1) // STRETCH * STRETCH
    assert runs.seeds == list(range(finished + 1, 501))
    runs.seeds.clear()
    assert sweep(tmp_path) == 0
    assert runs.seeds == []

    def counted(directory: Path) -> list[str]:
        timed = ("| time |", "| speed")
        return [line for line in (directory / "page.md").read_text().splitlines() if not line.startswith(timed)]

    assert counted(tmp_path) == counted(tmp_path / "in one")


def test_another_range_or_commit_begins_anew(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep(tmp_path) == 0
    runs.seeds.clear()
    assert sweep(tmp_path, "1..501") == 0
    assert len(runs.seeds) == 501
    monkeypatch.setattr(command.runstamp, "take", lambda *places: Stamp("def456", "2030-01-03"))
    runs.seeds.clear()
    assert sweep(tmp_path) == 0
    assert len(runs.seeds) == 500


def test_a_seed_that_failed_before_a_stop_still_fails_the_sweep(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.broken, runs.stopped_at = {7}, 300
    assert sweep(tmp_path, SEEDS, "--keep-going") == 1
    runs.stopped_at = None
    capsys.readouterr()
    assert sweep(tmp_path, SEEDS, "--keep-going") == 1
    out = capsys.readouterr().out
    assert f"reproduce: {runner.interpreter()} -m raftlake.sim --seed 7 --trace sim-7.trace" in out
    assert "1 of 500 seeds broke a promise" in out
    assert not (tmp_path / "page.md").exists()


def test_a_sweep_ends_with_the_stretch_in_which_a_seed_failed(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failures went unseen for hours, and the seeds behind them counted for nothing."""
    runs.broken = {STRETCH + 7}
    assert sweep(tmp_path) == 1
    assert runs.seeds[-1] == 2 * STRETCH
    assert f"1 of {2 * STRETCH} seeds broke a promise" in capsys.readouterr().out
    runs.seeds.clear()
    assert sweep(tmp_path) == 1, "and no more of them when it is started again"
    assert runs.seeds == []
    assert sweep(tmp_path, SEEDS, "--keep-going") == 1
    assert runs.seeds == list(range(2 * STRETCH + 1, 501))


def test_a_sweep_without_traffic_is_no_proof(runs: Runs, tmp_path: Path) -> None:
    runs.idle = set(range(1, 252))
    assert sweep(tmp_path) == 1
    assert not (tmp_path / "page.md").exists()


def test_a_sweep_is_of_a_commit(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.runstamp, "take", lambda *places: Stamp("abc123", "2030-01-02", ("python/x.py",)))
    assert sweep(tmp_path) == 1
    assert runs.seeds == []


# --- the ledger -------------------------------------------------------------------------------------------------------


def stretch(first: int, last: int) -> Stretch:
    totals = Totals(done=last - first + 1, events=10, faults={"crash": 1}, covered={"x": 2}, runs_covering={"x": 1})
    return Stretch(first, last, 2.5, totals)


def test_a_line_that_a_kill_has_torn_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path, range(1, 601))
    ledger.add(stretch(1, 200))
    whole = path.read_bytes()
    ledger.add(stretch(201, 400))
    length_max = len(path.read_bytes()) - 1
    for length in (len(whole), len(whole) + 1, len(whole) + 50, length_max):
        torn = tmp_path / "torn"
        torn.write_bytes(path.read_bytes()[:length])
        again = Ledger(torn, range(1, 601))
        assert again.remaining == range(201, 601)
        again.add(stretch(201, 400))
        assert Ledger(torn, range(1, 601)).stretches == ledger.stretches


def test_stretches_add_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", range(1, 401))
    assert (ledger.remaining, ledger.totals, ledger.seconds) == (range(1, 401), Totals(), 0)
    ledger.add(stretch(1, 200))
    ledger.add(stretch(201, 400))
    assert not ledger.remaining
    assert ledger.seconds == 5.0
    expected = Totals(done=400, events=20, faults={"crash": 2}, covered={"x": 4}, runs_covering={"x": 2})
    assert Ledger(tmp_path / "ledger", range(1, 401)).totals == expected


@pytest.mark.parametrize("seeds", [range(2, 401), range(1, 150)])
def test_a_ledger_of_other_seeds_is_refused(seeds: range, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger", range(1, 401)).add(stretch(1, 200))
    with pytest.raises(ValueError, match="do not follow"):
        Ledger(tmp_path / "ledger", seeds)


def test_a_page_is_of_a_sweep_that_is_complete() -> None:
    with pytest.raises(AssertionError):
        page(range(1, 402), stretch(1, 400).totals, seconds=1.0, jobs=2, stamp=STAMP)
    with pytest.raises(AssertionError):
        page(range(1, 3), Totals(done=2, failed=[2]), seconds=1.0, jobs=2, stamp=STAMP)


def test_a_stamp_names_the_commit_and_what_differs_from_it(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "code").mkdir()
    for name in ("code/a.py", "notes"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "notes").write_text("2")
    stamp = take("code", root=tmp_path)
    assert git("rev-parse", "HEAD").startswith(stamp.commit)
    assert stamp.changed == ()
    (tmp_path / "code" / "a.py").write_text("2")
    (tmp_path / "code" / "new.py").write_text("3")
    assert take("code", root=tmp_path).changed == ("code/a.py", "code/new.py")
