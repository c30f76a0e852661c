"""The command: what it prints, what it returns, how seeds are named."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raftlake.sim import runner
from raftlake.sim.cluster import Cluster, Outcome
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation


@pytest.mark.parametrize(("text", "seeds"), [("3", range(1, 4)), ("5..5", range(5, 6)), ("10..12", range(10, 13))])
def test_seeds_are_a_count_or_a_range(text: str, seeds: range) -> None:
    assert runner.parse_seeds(text) == seeds


def test_fresh_seeds_are_others_each_time() -> None:
    drawn = [runner.parse_seeds("fresh") for _ in range(20)]
    assert len({seeds[0] for seeds in drawn}) == 20
    assert all(len(seeds) == 200 and seeds[0] > 200 for seeds in drawn)


@pytest.mark.parametrize("text", ["", "0", "x", "5..4", "1..", "..3", "Fresh"])
def test_what_names_no_seed_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        runner.parse_seeds(text)


def test_one_seed_prints_settings_first_and_the_command_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Settings, "draw", classmethod(lambda cls, seed: cls(seed=seed, safety_ms=2_000)))
    assert runner.main(["--seed", "4", "--trace", str(tmp_path / "trace")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed=4"
    assert "ok" in lines
    assert lines[-1] == f"reproduce: {runner.interpreter()} -m raftlake.sim --seed 4 --trace sim-4.trace"
    assert (tmp_path / "trace").read_text().count("\n") > 50


def broken(cluster: Cluster) -> Outcome:
    if cluster.settings.seed == 2:
        raise Violation("a promise", "was broken")
    return Outcome(simulated_ms=60_000, events=10, completed=50, faults={"crash": 1}, covered={"epochs": 7})


def test_a_failing_seed_fails_the_command_and_says_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "run", broken)
    assert runner.main(["--seed", "2"]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert runner.main(["--seeds", "1..3"]) == 1
    out = capsys.readouterr().out
    assert "seed 2 FAILED: a promise: was broken" in out
    assert "3 seeds" in out and "1 failed" in out and "fault crash: 2" in out
    assert "covered epochs: 14 times in 2 runs" in out
    assert "a seed has 60 simulated seconds and 50 requests" in out
    assert out.splitlines()[-1] == f"reproduce: {runner.interpreter()} -m raftlake.sim --seed 2 --trace sim-2.trace"
    assert runner.main(["--seeds", "5..6"]) == 0


def test_ctrl_c_ends_a_range_in_two_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(cluster: Cluster) -> Outcome:
        if cluster.settings.seed == 3:
            raise KeyboardInterrupt
        return Outcome(simulated_ms=60_000, events=10, completed=50, faults={}, covered={})

    monkeypatch.setattr(Cluster, "run", interrupted)
    assert runner.main(["--seeds", "1..9"]) == runner.INTERRUPTED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seeds 1..9"
    assert lines[1].startswith("2 of 9 seeds") and lines[2:] == ["stopped"]


def test_ctrl_c_is_left_to_the_process_that_was_started_first(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[tuple[int, object]] = []
    monkeypatch.setattr(signal, "signal", lambda signum, handler: handlers.append((signum, handler)))
    runner.begin_worker()
    assert handlers == [(signal.SIGINT, signal.SIG_IGN)]


@pytest.mark.parametrize(
    ("executable", "typed"), [("here/.venv/bin/python", ".venv/bin/python"), ("other/bin/python", "{}/other/bin/python")]
)
def test_the_command_names_an_interpreter_that_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executable: str, typed: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "executable", str(tmp_path / executable))
    assert runner.interpreter() == typed.format(tmp_path)


def test_a_range_is_named_first_and_its_failures_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(cluster: Cluster) -> Outcome:
        raise Violation("a promise", "was broken")

    monkeypatch.setattr(Cluster, "run", failing)
    monkeypatch.setattr(runner.secrets, "randbelow", lambda below: 0)
    monkeypatch.setattr(runner, "FRESH_SEEDS", 3)
    assert runner.main(["--seeds", "fresh"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "seeds 1000000..1000002"
    assert out[-3:] == [
        f"reproduce: {runner.interpreter()} -m raftlake.sim --seed {seed} --trace sim-{seed}.trace"
        for seed in (1000000, 1000001, 1000002)
    ]


@pytest.mark.parametrize(("idle", "status"), [(2, 0), (3, 1)])
def test_runs_without_traffic_prove_nothing(
    idle: int, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cluster: Cluster) -> Outcome:
        completed = 10 if cluster.settings.seed <= idle else 11
        return Outcome(simulated_ms=60_000, events=10, completed=completed, faults={})

    monkeypatch.setattr(Cluster, "run", run)
    assert runner.main(["--seeds", "4"]) == status
    assert (f"{idle} of 4 runs had next to no traffic" in capsys.readouterr().out) == bool(status)


def failing_when(crashes: int) -> Callable[[Cluster], Outcome]:
    """A run that fails when that many crashes strike it, whatever else does."""

    def run(cluster: Cluster) -> Outcome:
        if sum(strike.kind == "crash" for strike in cluster.strikes) >= crashes:
            raise Violation("a promise", "was broken")
        return broken(cluster)

    return run


def test_a_failing_seed_is_cut_down_to_a_file_that_fails_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = replace(Settings(seed=9), crash_interval_ms=5_000, pause_interval_ms=2_000)
    monkeypatch.setattr(Settings, "draw", classmethod(lambda cls, seed: drawn))
    monkeypatch.setattr(Cluster, "run", failing_when(2))
    assert runner.main(["--seed", "9", "--shrink"]) == 1
    written = (tmp_path / "sim-9.strikes").read_text().splitlines()
    assert sum(" crash " in line for line in written) == 2
    assert not any(" pause " in line for line in written)
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == f"reproduce: {runner.interpreter()} -m raftlake.sim --seed 9 --strikes sim-9.strikes --trace sim-9.trace"
    assert runner.main(["--seed", "9", "--strikes", "sim-9.strikes"]) == 1
    monkeypatch.setattr(Cluster, "run", failing_when(3))
    assert runner.main(["--seed", "9", "--strikes", "sim-9.strikes"]) == 0


def test_a_seed_that_keeps_every_promise_is_not_shrunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Cluster, "run", broken)
    assert runner.main(["--seed", "3", "--shrink"]) == 0
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none_of_strikes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "strikes"
    path.write_text("12 nonsense\n")
    for arguments in (["--seed", "1", "--strikes", str(path)], ["--seeds", "2", "--shrink"]):
        with pytest.raises(SystemExit):
            runner.main(arguments)


def test_a_broken_promise_comes_with_the_last_events_of_each_node(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Cluster.heal

    def heal(cluster: Cluster) -> None:
        honest(cluster)
        raise Violation("a promise", "was broken")

    monkeypatch.setattr(Settings, "draw", classmethod(lambda cls, seed: cls(seed=seed, safety_ms=2_000)))
    monkeypatch.setattr(Cluster, "heal", heal)
    assert runner.main(["--seed", "4"]) == 1
    out = capsys.readouterr().out
    assert "net faults end" in out and "Fetch" in out
    assert runner.judge(4).tail[-1] in out


def test_a_verdict_carries_the_stack_of_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "run", broken)
    verdict = runner.judge(2)
    assert verdict.outcome is None
    assert "Traceback" in verdict.details
