"""Copies of the package as machine code: built once for each state of the source, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.machine_code import package as module
from tools.machine_code.package import NotCompiledError, build, core_file, digest, has_compiler, machine_code


def test_a_compiler_is_looked_for_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "some-cc -pthread")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not has_compiler()
    (tmp_path / "some-cc").touch(0o755)
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(tmp_path))
    assert not has_compiler()
    (tmp_path / "Python.h").touch()
    assert has_compiler()


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for mypyc: a module that is told what it is to do."""
    monkeypatch.setattr(module, "ROOT", tmp_path / "tree")
    monkeypatch.setattr(module, "SOURCE", tmp_path / "tree" / "python")
    (tmp_path / "tree" / "python" / "raftlake").mkdir(parents=True)
    (tmp_path / "tree" / "python" / "raftlake" / "core.py").touch()
    builder = tmp_path / "tree" / "tools" / "machine_code" / "translate.py"
    builder.parent.mkdir(parents=True)
    return builder


def test_a_build_is_a_copy_that_appears_when_it_is_whole(builder: Path, tmp_path: Path) -> None:
    builder.write_text(
        "import sys; from pathlib import Path; place = Path(sys.argv[1])\n"
        "assert (place / 'raftlake/core.py').exists() and sys.argv[2] == '3'\n"
        "assert not Path(r'{place}').exists()\n"
        "(place / 'compiled').touch()\n".format(place=tmp_path / "builds" / "abc")
    )
    build(tmp_path / "builds" / "abc", 3)
    assert (tmp_path / "builds" / "abc" / "compiled").exists()
    assert not (module.SOURCE / "compiled").exists()
    # One that was not proven is built anew.
    (tmp_path / "builds" / "abc" / "old").touch()
    build(tmp_path / "builds" / "abc", 3)
    assert sorted(path.name for path in (tmp_path / "builds").iterdir()) == ["abc", "build.log"]
    assert not (tmp_path / "builds" / "abc" / "old").exists()


def test_a_build_that_fails_leaves_its_output_alone(builder: Path, tmp_path: Path) -> None:
    builder.write_text("raise SystemExit('a module was not understood')")
    log = tmp_path / "builds" / "build.log"
    with pytest.raises(NotCompiledError, match=f"mypyc did not compile the package: its last words are in {log}"):
        build(tmp_path / "builds" / "abc", 1)
    assert "a module was not understood" in log.read_text()
    assert [path.name for path in (tmp_path / "builds").iterdir()] == ["build.log"]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """What was built, which takes no time here."""
    builds: list[tuple[Path, int]] = []

    def build(place: Path, jobs: int) -> None:
        builds.append((place, jobs))
        core_file(place).parent.mkdir(parents=True, exist_ok=True)
        core_file(place).touch()

    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(module, "has_compiler", lambda: True)
    return builds


def test_each_state_of_the_source_is_built_once(
    built: list[tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "python"
    source.mkdir()
    monkeypatch.setattr(module, "MADE_OF", (source,))
    (source / "one.py").write_text("a = 1")
    first = machine_code(2, tmp_path / "builds")
    assert first == tmp_path / "builds" / f"source-{digest()}"
    assert machine_code(2, tmp_path / "builds") == first
    (source / "one.py").write_text("a = 2")
    second = machine_code(2, tmp_path / "builds")
    (source / "one.py").rename(source / "two.py")
    third = machine_code(2, tmp_path / "builds")
    assert built == [(first, 2), (second, 2), (third, 2)]
    assert len({first, second, third}) == 3


def test_a_directory_without_machine_code_is_built_anew(built: list[tuple[Path, int]], tmp_path: Path) -> None:
    place = tmp_path / f"source-{digest()}"
    place.mkdir()
    assert machine_code(3, tmp_path) == place
    assert built == [(place, 3)]


def test_without_a_compiler_there_is_no_machine_code(
    built: list[tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_compiler", lambda: False)
    with pytest.raises(NotCompiledError, match=r"no C compiler \(gcc\), or no Python.h"):
        machine_code(2, tmp_path)
    assert built == []
