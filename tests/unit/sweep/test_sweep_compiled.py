"""Compiled code in a sweep: used where it is proven, and never the last word on a seed that failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from tests.sweep import __main__ as command
from tests.sweep import compiled as module
from tests.sweep.compiled import PROVEN, SAMPLE, WORTH_IT, Compiled, first_on_path, judge_or_fail
from tests.sweep.ledger import Ledger
from tools.machine_code.package import NotCompiledError, core_file

from raftlake.sim import runner
from raftlake.sim.cluster import Outcome
from raftlake.sim.runner import Verdict

OUTCOME = Outcome(simulated_ms=1, events=10, completed=50, faults={}, covered={})
#: A simulator of one line: a trace, and a failure of the seeds above 100.
SIMULATOR = """
import sys
seed, path = int(sys.argv[2]), sys.argv[4]
{line}
sys.exit(seed > 100)
"""
WRITE = "open(path, 'wb').write(b'event %d' % seed)"


def package(place: Path, line: str) -> Path:
    (place / "raftlake" / "sim").mkdir(parents=True)
    for name, text in (("__init__", ""), ("sim/__init__", ""), ("sim/__main__", SIMULATOR.format(line=line))):
        (place / "raftlake" / f"{name}.py").write_text(text)
    return place


def compiled_package(place: Path, line: str) -> Compiled:
    compiled = Compiled(package(place, line))
    core_file(compiled.place).parent.mkdir(exist_ok=True)
    core_file(compiled.place).touch()
    return compiled


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(module, "say", lines.append)
    return lines


# --- whether to compile -----------------------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where packages were built, which takes no time here."""
    places: list[Path] = []

    def build(place: Path, jobs: int) -> None:
        places.append(place)
        place.mkdir(parents=True)

    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(Compiled, "differing", lambda compiled, seeds, jobs: [])
    monkeypatch.setattr(module, "has_compiler", lambda: True)
    return places


def test_few_seeds_are_interpreted(built: list[Path], said: list[str], tmp_path: Path) -> None:
    assert Compiled.of("abc", 2, WORTH_IT - 1, tmp_path) is None
    assert (built, said) == ([], [])


def test_many_seeds_are_worth_a_build_once_for_each_commit(built: list[Path], said: list[str], tmp_path: Path) -> None:
    compiled = Compiled.of("abc", 2, WORTH_IT, tmp_path)
    assert compiled == Compiled(tmp_path / "abc")
    assert built == [tmp_path / "abc"]
    assert "the same traces of 20 seeds" in said[-1]
    assert Compiled.of("abc", 2, WORTH_IT, tmp_path) == compiled
    assert Compiled.of("abc", 2, 1, tmp_path) == compiled
    assert built == [tmp_path / "abc"]
    assert Compiled.of("def", 2, WORTH_IT, tmp_path) == Compiled(tmp_path / "def")
    assert built == [tmp_path / "abc", tmp_path / "def"]


def test_what_writes_other_traces_is_not_used(
    built: list[Path], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[range, int]] = []

    def differing(compiled: Compiled, seeds: range, jobs: int) -> list[int]:
        asked.append((seeds, jobs))
        return [7, 9]

    monkeypatch.setattr(Compiled, "differing", differing)
    with pytest.raises(NotCompiledError, match=r"different traces of the seeds \[7, 9\]"):
        Compiled.of("abc", 2, WORTH_IT, tmp_path)
    assert asked == [(SAMPLE, 2)]
    assert not (tmp_path / "abc" / PROVEN).exists()


def test_without_a_compiler_the_seeds_are_interpreted(
    built: list[Path], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_compiler", lambda: False)
    assert Compiled.of("abc", 2, WORTH_IT, tmp_path) is None
    assert (built, len(said)) == ([], 1)
    assert said[0].startswith("no C compiler")


# --- comparing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "differing"),
    [
        (WRITE, []),
        ("open(path, 'wb').write(b'event %d' % (seed + (seed == 2)))", [2]),
        ("open(path, 'wb').write(b'event %d' % seed + b'.' * (seed > 100))", [101]),
        ("pass", [1, 2, 101]),
        (f"{WRITE}; sys.exit(0)", [101]),
    ],
)
def test_traces_are_compared_byte_for_byte(
    line: str, differing: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SOURCE", package(tmp_path / "source", WRITE))
    assert compiled_package(tmp_path / "compiled", line).differing([1, 2, 101], jobs=2) == differing


def test_a_comparison_with_itself_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = package(tmp_path / "source", WRITE)
    monkeypatch.setattr(module, "SOURCE", source)
    with pytest.raises(FileNotFoundError, match="nothing was compiled"):
        Compiled(source).differing([1], jobs=1)


# --- verdicts ---------------------------------------------------------------------------------------------------------


class Judges:
    """Stand in for processes with compiled code, and for the interpreter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiled_fails: set[int] = set()
        self.interpreted_fails: set[int] = set()
        self.dies_at: int | None = None
        self.interpreted: list[int] = []
        monkeypatch.setattr(Compiled, "_compiled_verdicts", lambda compiled, seeds, jobs: self.compiled(seeds))
        monkeypatch.setattr(module, "judge", self.interpret)

    def compiled(self, seeds: Iterable[int]) -> Iterator[Verdict]:
        for seed in seeds:
            if seed == self.dies_at:
                raise BrokenProcessPool
            yield Verdict(seed, None if seed in self.compiled_fails else OUTCOME, "of compiled code", processor_s=1.0)

    def interpret(self, seed: int) -> Verdict:
        self.interpreted.append(seed)
        return Verdict(seed, None if seed in self.interpreted_fails else OUTCOME, "of the interpreter", processor_s=2.0)

    def verdicts(self, seeds: range) -> list[Verdict]:
        return list(Compiled(Path("somewhere")).verdicts(seeds, 2))


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> Judges:
    return Judges(monkeypatch)


def test_the_interpreter_has_the_last_word_on_a_seed_that_failed(judges: Judges, said: list[str]) -> None:
    judges.compiled_fails, judges.interpreted_fails = {2, 4}, {3, 4}
    verdicts = judges.verdicts(range(1, 6))
    assert [verdict.seed for verdict in verdicts] == [1, 2, 3, 4, 5]
    assert judges.interpreted == [2, 4]
    assert [verdict.outcome is None for verdict in verdicts] == [False, False, False, True, False]
    assert verdicts[3].violation == "of the interpreter"
    assert said == ["seed 2 failed with compiled code alone, which is no failure: of compiled code"]


@pytest.mark.parametrize("dies_at", [1, 3, 5])
def test_the_interpreter_goes_on_where_compiled_code_has_ended_its_process(
    judges: Judges, said: list[str], dies_at: int
) -> None:
    judges.dies_at, judges.interpreted_fails = dies_at, {5}
    verdicts = judges.verdicts(range(1, 6))
    assert [verdict.seed for verdict in verdicts] == [1, 2, 3, 4, 5]
    assert judges.interpreted == list(range(dies_at, 6))
    assert verdicts[4].outcome is None
    assert f"behind seed {dies_at}" in said[0]


def test_compiled_code_that_raises_has_failed_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(seed: int) -> Verdict:
        raise TypeError("None object expected; got int")

    monkeypatch.setattr(module, "judge", raising)
    verdict = judge_or_fail(7)
    assert (verdict.seed, verdict.outcome) == (7, None)
    assert verdict.violation == "TypeError: None object expected; got int"
    assert "in raising" in verdict.details
    monkeypatch.setattr(module, "judge", lambda seed: Verdict(seed, OUTCOME))
    assert judge_or_fail(7) == Verdict(7, OUTCOME)


def test_the_path_is_as_before_behind_the_start_of_processes(tmp_path: Path) -> None:
    before = list(sys.path)
    with first_on_path(tmp_path):
        assert sys.path == [str(tmp_path), *before]
    assert sys.path == before


def test_processes_run_the_package_of_the_place(tmp_path: Path) -> None:
    """The verdicts come from a package whose simulator tells the number of its seed and nothing else."""
    place = package(tmp_path, WRITE)
    source = Path(runner.__file__).read_text()
    changed = source.replace(
        "def judge(seed: int) -> Verdict:\n", 'def judge(seed: int) -> Verdict:\n    return Verdict(seed, None, "elsewhere")\n'
    )
    assert changed != source
    for path in module.SOURCE.glob("raftlake/*"):
        if path.name not in ("sim", "__init__.py"):
            (place / "raftlake" / path.name).symlink_to(path)
    for path in module.SOURCE.glob("raftlake/sim/*"):
        if path.name not in ("runner.py", "__init__.py", "__main__.py"):
            (place / "raftlake" / "sim" / path.name).symlink_to(path)
    (place / "raftlake" / "sim" / "runner.py").write_text(changed)
    verdicts = list(Compiled(place)._compiled_verdicts([1, 2, 3], jobs=1))
    assert [(verdict.seed, verdict.violation) for verdict in verdicts] == [(1, "elsewhere"), (2, "elsewhere"), (3, "elsewhere")]


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_sweep_tells_how_many_clusters_compiled_code_ran(
    judges: Judges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.runstamp, "take", lambda *places: command.runstamp.Stamp("abc", "2030-01-02"))
    monkeypatch.setattr(Compiled, "of", classmethod(lambda cls, commit, jobs, seeds_left, builds: cls(builds / commit)))
    arguments = [
        "--seeds",
        "1..450",
        "--ledgers",
        str(tmp_path),
        "--builds",
        str(tmp_path),
        "--page",
        str(tmp_path / "page.md"),
    ]
    assert command.main(arguments) == 0
    assert judges.interpreted == []
    ledger = Ledger(tmp_path / "abc-1..450.jsonl", range(1, 451))
    assert [stretch.compiled for stretch in ledger.stretches] == [True, True, True]
    assert "ran | 450 |" in (tmp_path / "page.md").read_text()
    # Written before there was compiled code, or without it.
    path = tmp_path / "abc-1..450.jsonl"
    path.write_text(path.read_text().replace(', "compiled": true', "", 1))
    assert command.main([*arguments, "--interpreted"]) == 0
    assert "ran | 250 |" in (tmp_path / "page.md").read_text()


def test_a_sweep_without_compiled_code_does_not_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.runstamp, "take", lambda *places: command.runstamp.Stamp("abc", "2030-01-02"))
    monkeypatch.setattr(Compiled, "of", classmethod(lambda cls, *told: pytest.fail("asked for compiled code")))
    monkeypatch.setattr(command, "verdicts", lambda seeds, jobs: (Verdict(seed, OUTCOME) for seed in seeds))
    assert command.main(["--seeds", "1..3", "--ledgers", str(tmp_path), "--interpreted"]) == 0
    ledger = Ledger(tmp_path / "abc-1..3.jsonl", range(1, 4))
    assert [stretch.compiled for stretch in ledger.stretches] == [False]


def test_a_sweep_whose_code_was_not_compiled_refuses_to_begin(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*told: object) -> Compiled:
        raise NotCompiledError("mypyc did not compile the package")

    monkeypatch.setattr(command.runstamp, "take", lambda *places: command.runstamp.Stamp("abc", "2030-01-02"))
    monkeypatch.setattr(Compiled, "of", refuse)
    monkeypatch.setattr(command, "verdicts", lambda seeds, jobs: pytest.fail("seeds were run"))
    monkeypatch.setattr(command, "say", said.append)
    assert command.main(["--seeds", "1..3", "--ledgers", str(tmp_path)]) == 1
    assert said[-1] == "mypyc did not compile the package; mend that, or sweep at half the speed with --interpreted"
