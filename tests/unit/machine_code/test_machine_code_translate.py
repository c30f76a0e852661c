"""Which modules become machine code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.machine_code.package import CORE, SOURCE
from tools.machine_code.translate import ENTRIES, INTERPRETED, compiled_modules, has_integer_enums, loaded_modules


def package(place: Path, **modules: str) -> Path:
    (place / "raftlake").mkdir(parents=True)
    for name, text in {"__init__": "", **modules}.items():
        (place / "raftlake" / f"{name}.py").write_text(text)
    return place


def test_the_modules_are_those_that_are_loaded(tmp_path: Path) -> None:
    enums = "from enum import IntEnum\n\nclass Key(IntEnum):\n    A = 1\n"
    place = package(tmp_path, one="import json, raftlake.two", two="", three="", four="import raftlake.five", five=enums)
    files = {name: place / "raftlake" / f"{name}.py" for name in ("one", "two", "four", "five")}
    named = {f"raftlake.{name}": path for name, path in files.items()}
    loaded = loaded_modules(place, "raftlake.one", "raftlake.four")
    assert loaded == {"raftlake": place / "raftlake" / "__init__.py", **named}
    compiled = compiled_modules(place, "raftlake.one", "raftlake.four")
    assert compiled == {f"raftlake.{name}": Path(f"raftlake/{name}.py") for name in ("one", "two", "four")}


def test_the_modules_that_are_left_out_exist() -> None:
    for name in INTERPRETED:
        assert (SOURCE / f"{name.replace('.', '/')}.py").is_file(), name


@pytest.mark.parametrize(
    ("bases", "has"), [("IntEnum", True), ("IntFlag", True), ("Enum", False), ("StrEnum", False), ("object", False)]
)
def test_enumerations_of_integers_are_found(bases: str, has: bool) -> None:
    assert has_integer_enums(f"import enum\n\nif True:\n    class Key({bases}):\n        A = 1\n") is has


def test_what_a_node_and_a_simulated_cluster_load_becomes_machine_code(tmp_path: Path) -> None:
    modules = compiled_modules(SOURCE, *ENTRIES)
    assert modules[CORE] == Path("raftlake/raft/core.py")
    assert {"raftlake.runtime.server", "raftlake.runtime.http.exchange", "raftlake.sim.network"} <= modules.keys()
    assert not {"raftlake.wire.api", "raftlake.errors", "raftlake.raft.value", "raftlake.client.aio"} & modules.keys()
