"""The judge of planted bugs: what counts as found, what does not, and how long anything may take."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kits.runstamp import Stamp
from tests.mutants import __main__ as command
from tests.mutants.catalogue import find
from tests.mutants.page import counts, finders, page, rows
from tests.mutants.plant import Edit, Mutant
from tests.mutants.trial import (
    BASELINE_SEEDS,
    SCENARIOS,
    BaselineRed,
    Death,
    Ended,
    Fate,
    Processes,
    Trial,
    last_begun,
    limit,
    paths_of,
)

from waitkit import wait_until

PLACES = ("unit/raft/test_raft_vote.py",)
BY_TESTS = Mutant(name="a-bug", source="here", edits=(Edit("m", "x", "y"),), by_tests=True, places=PLACES)
BY_SEEDS = replace(BY_TESTS, by_tests=False)
GREEN = Ended(0, "2 passed", "", 10.0)
RED = Ended(1, "FAILED tests/unit/raft/test_raft_vote.py::test_x[0] - assert 1 == 2\n", "", 1.0)
HUNG = Ended(
    None,
    "tests/unit/raft/test_raft_vote.py::test_x PASSED   [ 50%]\ntests/unit/raft/test_raft_vote.py::test_y[a b] ",
    "",
    99.0,
)
#: As pytest ends a test that takes too long.
GIVEN_UP = Ended(1, HUNG.stdout, "Timeout (0:04:00)!\nThread 0x01 (most recent call first):\n", 240.0)
UNLOADED = Ended(2, "ERROR tests/unit/raft/test_raft_vote.py - NameError: y\n1 error during collection", "", 1.0)
CRASHED = Ended(-11, "tests/unit/raft/test_raft_vote.py::test_y ", "Segmentation fault", 1.0)


def seeds(seed: int | None, seconds: float = 2.0) -> Ended:
    told = {"seed": seed, "tried": 3, "violation": "a promise: was broken", "seconds": seconds}
    return Ended(0, json.dumps(told) + "\n", "", seconds)


class Scripted(Processes):
    """Answers in turn, and remembers how long each may have taken, and which had a bug."""

    def __init__(self, *answers: Ended) -> None:
        super().__init__()
        self._answers = list(answers)
        self.limits: list[float] = []
        self.planted: list[bool] = []
        self.files: list[list[str]] = []

    def run(self, command: list[str], environment: dict[str, str], seconds_max: float) -> Ended:
        self.files.append([word for word in command if word.endswith(".py")])
        self.limits.append(seconds_max)
        self.planted.append(
            "RAFTLAKE_MUTANT" in environment or ("tests.mutants.hunt" in command and "--unharmed" not in command)
        )
        return self._answers.pop(0)


def judged(mutant: Mutant, *answers: Ended) -> Death:
    trial = Trial(Scripted(*answers), seeds_max=40)
    for like in trial.needed_runs([mutant]):
        trial.measure_seeds(like)
    for places in trial.needed_places([mutant]):
        trial.measure_tests(places)
    return trial.hunt(mutant)


@pytest.mark.parametrize("timed_out", [HUNG, GIVEN_UP])
def test_tests_that_time_out_have_found_nothing(timed_out: Ended) -> None:
    death = judged(BY_TESTS, GREEN, timed_out)
    assert (death.fate, death.by) == (Fate.TIMED_OUT, "tests/unit/raft/test_raft_vote.py::test_y[a b], which never ends")
    assert judged(replace(BY_TESTS, hangs=True), GREEN, timed_out).fate == Fate.KILLED


def test_seeds_that_time_out_have_found_nothing_and_no_test_is_asked() -> None:
    death = judged(BY_SEEDS, seeds(None), HUNG)
    assert death.fate == Fate.TIMED_OUT
    assert judged(replace(BY_SEEDS, hangs=True), seeds(None), HUNG).fate == Fate.KILLED


def test_a_bug_is_killed_by_the_test_that_fails_first() -> None:
    death = judged(BY_TESTS, GREEN, RED)
    assert (death.fate, death.by, death.seeds) == (Fate.KILLED, "FAILED tests/unit/raft/test_raft_vote.py::test_x[0]", 0)


def test_a_bug_that_no_seed_shows_is_left_to_the_tests_and_they_are_measured_then() -> None:
    death = judged(BY_SEEDS, seeds(None), seeds(None), GREEN, RED)
    assert (death.fate, death.seeds) == (Fate.KILLED, 40)
    assert judged(BY_SEEDS, seeds(None), seeds(None), GREEN, GREEN).fate == Fate.SURVIVED
    with pytest.raises(BaselineRed, match=r"test_raft_vote.py::test_x\[0\]"):
        judged(BY_SEEDS, seeds(None), seeds(None), RED)


def test_a_bug_that_a_seed_shows_needs_no_test() -> None:
    death = judged(BY_SEEDS, seeds(None), seeds(7))
    assert (death.fate, death.by, death.seeds) == (Fate.KILLED, "seed 7: a promise: was broken", 3)


@pytest.mark.parametrize("ended", [UNLOADED, CRASHED])
def test_a_bug_that_keeps_the_tests_from_running_is_not_killed(ended: Ended) -> None:
    assert judged(BY_TESTS, GREEN, ended).fate == Fate.BROKEN


def test_a_hunt_that_raises_is_not_killed() -> None:
    assert judged(BY_SEEDS, seeds(None), Ended(1, "", "Traceback", 1.0)).fate == Fate.BROKEN


@pytest.mark.parametrize(
    ("mutant", "answer"),
    [
        (BY_TESTS, RED),
        (BY_TESTS, HUNG),
        (BY_TESTS, UNLOADED),
        (BY_SEEDS, seeds(3)),
        (BY_SEEDS, HUNG),
        (BY_SEEDS, Ended(1, "", "Traceback", 1.0)),
    ],
)
def test_what_fails_without_a_bug_stops_the_run_before_any_bug(
    mutant: Mutant, answer: Ended, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = Scripted(answer)
    monkeypatch.setattr(command, "Processes", lambda: scripted)
    monkeypatch.setattr(command, "find", lambda name: mutant)
    monkeypatch.setattr(command, "check", lambda mutant: None)
    assert command.main(["a-bug", "--jobs", "1"]) == 1
    assert "without any bug" in capsys.readouterr().out
    assert scripted.planted == [False]


@pytest.mark.parametrize(("fate", "status"), [(RED, 0), (GREEN, 1), (HUNG, 1), (UNLOADED, 1)])
def test_only_a_run_that_killed_all_succeeds(
    fate: Ended, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = Scripted(GREEN, fate)
    monkeypatch.setattr(command, "Processes", lambda: scripted)
    monkeypatch.setattr(command, "find", lambda name: BY_TESTS)
    monkeypatch.setattr(command, "check", lambda mutant: None)
    assert command.main(["a-bug", "--jobs", "1"]) == status
    assert ("timed out: a-bug" in capsys.readouterr().out) == (fate is HUNG)
    assert scripted.planted == [False, True]


def test_the_limits_grow_with_what_the_same_takes_without_a_bug() -> None:
    slow = replace(GREEN, seconds=300.0)
    scripted = Scripted(slow, RED)
    trial = Trial(scripted, seeds_max=40)
    trial.measure_tests(PLACES)
    trial.hunt(BY_TESTS)
    assert scripted.limits[1] == limit(300.0) > 1_200.0
    scripted = Scripted(seeds(None, seconds=10.0), seeds(7))
    trial = Trial(scripted, seeds_max=40)
    trial.measure_seeds(BY_SEEDS)
    trial.hunt(BY_SEEDS)
    assert scripted.limits[1] == limit(10.0 / BASELINE_SEEDS * 40)


def test_each_kind_of_runs_and_each_set_of_places_is_measured_once() -> None:
    trial = Trial(Scripted(), seeds_max=40)
    themed = replace(BY_SEEDS, theme=3)
    assert trial.needed_runs([BY_TESTS, BY_SEEDS, themed, BY_SEEDS, themed]) == [BY_SEEDS, themed]
    elsewhere = replace(BY_TESTS, places=())
    assert trial.needed_places([BY_TESTS, BY_SEEDS, elsewhere, BY_TESTS]) == [PLACES, SCENARIOS]


def test_the_tests_that_found_a_bug_the_last_time_are_run_first() -> None:
    found = [Death("a-bug", Fate.KILLED, "FAILED tests/unit/raft/test_raft_vote.py::test_y[0]", 0, 1.0)]
    known = finders("\n".join(rows(found)))
    assert known == {"a-bug": "unit/raft/test_raft_vote.py"}
    mutant = replace(
        BY_TESTS, places=("unit/raft/test_raft_common.py", "unit/raft/test_raft_vote.py", "unit/raft/test_raft_append.py")
    )
    scripted = Scripted(GREEN, RED, RED)
    trial = Trial(scripted, seeds_max=40, finders=known)
    trial.ask_tests(mutant)
    trial.ask_tests(replace(mutant, name="another"))
    baseline, first, second = scripted.files
    assert first == [
        "tests/unit/raft/test_raft_vote.py",
        "tests/unit/raft/test_raft_common.py",
        "tests/unit/raft/test_raft_append.py",
    ]
    assert second == baseline == [f"tests/{place}" for place in mutant.places]


def test_a_sampled_bug_is_left_to_the_simulator() -> None:
    trial = Trial(Scripted(seeds(None), seeds(None)), seeds_max=40, is_sample=True)
    trial.measure_seeds(BY_SEEDS)
    assert trial.hunt(BY_SEEDS).fate == Fate.SURVIVED


def test_a_sampled_bug_that_clusters_do_not_show_is_looked_for_by_tests() -> None:
    for answer, fate in ((RED, Fate.KILLED), (GREEN, Fate.SURVIVED)):
        trial = Trial(Scripted(GREEN, answer), seeds_max=40, is_sample=True)
        trial.measure_tests(PLACES)
        assert trial.hunt(BY_TESTS).fate == fate


def test_the_test_that_hangs_is_the_one_that_began_last() -> None:
    assert last_begun("") == "a test"
    assert last_begun(HUNG.stdout) == "tests/unit/raft/test_raft_vote.py::test_y[a b]"
    assert last_begun("tests/a.py::test_x PASSED  [ 1%]\n") == "tests/a.py::test_x"


def test_a_place_names_a_file() -> None:
    assert paths_of(("unit/raft/test_raft_vote.py", "unit/raft/test_raft_vote.p*")) == ["tests/unit/raft/test_raft_vote.py"]
    with pytest.raises(LookupError, match="test_nowhere"):
        paths_of(("unit/test_nowhere.py",))
    assert len(paths_of(SCENARIOS)) > 50


# --- real processes ---------------------------------------------------------------------------------------------------


def test_a_process_that_ends_tells_what_it_said() -> None:
    program = "import os, sys; print(os.environ['SAID']); print('no', file=sys.stderr); sys.exit(3)"
    done = Processes().run([sys.executable, "-c", program], {"SAID": "yes"}, 60.0)
    assert (done.status, done.stdout, done.stderr, done.is_timed_out) == (3, "yes\n", "no\n", False)


def test_a_process_is_killed_at_its_limit() -> None:
    done = Processes().run(["sleep", "600"], {}, 0.0)
    assert done.status is None
    assert done.is_timed_out


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_what_a_process_has_started_ends_with_it(tmp_path: Path) -> None:
    processes = Processes()
    told = tmp_path / "pid"
    script = f"sleep 600 & echo $! >{told}.new; mv {told}.new {told}; wait"
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(processes.run(["sh", "-c", script], {}, 600.0)))
    thread.start()
    wait_until(told.exists, "a process has started another", 60.0)
    processes.stop()
    thread.join()
    pid = int(told.read_text())
    wait_until(lambda: is_gone(pid), "both are gone", 60.0)
    assert ended[0].status != 0
    assert processes.run(["true"], {}, 60.0).stderr == "stopped"


# --- the page ---------------------------------------------------------------------------------------------------------

DEATHS = [
    Death("b", Fate.KILLED, "seed 7: nothing is appended twice: b'x' stands at 1: and 2", 3, 600.0),
    Death("a", Fate.KILLED, "FAILED tests/kip/test_x.py::test_y[0]", 0, 252.0),
    Death("c", Fate.KILLED, "tests/kip/test_x.py::test_z, which never ends", 40, 0.0),
    Death("d", Fate.KILLED, "simulated runs that never end", 0, 0.0),
    Death("e", Fate.KILLED, "seed 8: nothing is lost: 8", 6, 0.0),
]


def test_the_rows_name_what_found_each_bug() -> None:
    assert rows(DEATHS)[2:] == [
        "| `a` | `kip/test_x.py::test_y[0]` |  |",
        "| `b` | simulator, seed 7: nothing is appended twice | 3 |",
        "| `c` | `kip/test_x.py::test_z`, which never ends | 40, none found it |",
        "| `d` | simulator, simulated runs that never end |  |",
        "| `e` | simulator, seed 8: nothing is lost | 6 |",
    ]


def test_the_page_tells_the_numbers_of_its_run() -> None:
    lines = page(DEATHS, seeds_max=40, stamp=Stamp("abc123", "2030-01-02"))
    assert "5 bugs, 3 found by the simulator after 3.0 seeds each, 2 by tests, none survived." in lines
    assert {"All at commit abc123, 2030-01-02.", "Looking took 14 minutes of one job."} <= set(lines)
    assert lines[-len(rows(DEATHS)) :] == rows(DEATHS)
    assert counts(DEATHS[1:2]).startswith("1 bugs, 0 found by the simulator after 0.0")


@pytest.mark.parametrize("some", [["read-without-proof"], ["--sample"]])
def test_a_page_is_about_all_bugs(some: list[str], tmp_path: Path) -> None:
    assert find("read-without-proof")
    with pytest.raises(SystemExit):
        command.main([*some, "--table", str(tmp_path / "page.md")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("ended", "is_written"), [(RED, True), (GREEN, False)])
def test_the_page_is_written_when_all_were_killed(
    ended: Ended, is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "Processes", lambda: Scripted(GREEN, ended))
    monkeypatch.setattr(command, "MUTANTS", (BY_TESTS,))
    monkeypatch.setattr(command, "find", lambda name: BY_TESTS)
    monkeypatch.setattr(command, "check", lambda mutant: None)
    stamped: Callable[..., Stamp] = lambda *places: Stamp("abc123", "2030-01-02")  # noqa: E731
    monkeypatch.setattr(command.runstamp, "take", stamped)
    path, ledgers = tmp_path / "page.md", str(tmp_path / "ledgers")
    assert command.main(["--jobs", "1", "--table", str(path), "--ledgers", ledgers]) == (0 if is_written else 1)
    assert path.exists() == is_written
    assert not is_written or "commit abc123" in path.read_text()


def hunt_all_of(
    bugs: dict[str, Mutant], commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[bool]]]:
    """A command that hunts them, at one commit after the other: its status, and what was planted and what not."""
    monkeypatch.setattr(command, "MUTANTS", tuple(bugs.values()))
    monkeypatch.setattr(command, "find", bugs.__getitem__)
    monkeypatch.setattr(command, "check", lambda mutant: None)
    remaining = iter(commits)
    monkeypatch.setattr(command.runstamp, "take", lambda *places: Stamp(next(remaining), "2030-01-02"))

    def run(arguments: list[str], *answers: Ended) -> tuple[int, list[bool]]:
        scripted = Scripted(*answers)
        monkeypatch.setattr(command, "Processes", lambda: scripted)
        return command.main(arguments), scripted.planted

    return run


def test_a_hunt_of_all_goes_on_behind_what_was_killed_at_the_same_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two bugs survives at first: it alone is hunted again, behind its baseline."""
    bugs = {name: replace(BY_TESTS, name=name) for name in ("first", "second")}
    run = hunt_all_of(bugs, ["abc123", "abc123", "abc123", "def456"], monkeypatch)
    page = tmp_path / "page.md"
    arguments = ["--jobs", "1", "--table", str(page), "--ledgers", str(tmp_path / "ledgers")]
    assert run(arguments, GREEN, RED, GREEN) == (1, [False, True, True])
    assert not page.exists()
    assert run(arguments, GREEN, RED) == (0, [False, True])
    assert "1 bugs were killed before" in capsys.readouterr().out
    assert [line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")] == ["first", "second"]
    assert run(arguments) == (0, []), "all were killed"
    assert run(arguments, GREEN, RED, RED) == (0, [False, True, True]), "another commit"


def test_a_bug_that_survived_is_hunted_again_where_its_test_was_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bugs = {name: replace(BY_TESTS, name=name) for name in ("first", "second")}
    run = hunt_all_of(bugs, ["abc123", "def456", "def456"], monkeypatch)
    page, ledgers = tmp_path / "page.md", tmp_path / "ledgers"
    arguments = ["--jobs", "1", "--table", str(page), "--ledgers", str(ledgers)]
    assert run(arguments, GREEN, RED, GREEN) == (1, [False, True, True])
    with pytest.raises(SystemExit):
        run([*arguments, "--after", "abc124"])
    assert "no bug was killed at abc124" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(["--after", "abc123", "--ledgers", str(ledgers)])
    assert "--after goes with --table" in capsys.readouterr().err
    assert run([*arguments, "--after", "abc123"], GREEN, RED) == (0, [False, True])
    assert "1 were found at commit abc123, and the others later, at commit def456, 2030-01-02." in page.read_text()


def test_a_page_is_not_written_about_code_that_is_in_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.runstamp, "take", lambda *places: Stamp("abc123", "2030-01-02", ("python/x.py",)))
    assert command.main(["--table", str(tmp_path / "page.md")]) == 1
    assert not list(tmp_path.iterdir())
