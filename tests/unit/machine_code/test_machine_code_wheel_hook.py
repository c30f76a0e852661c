"""Machine code goes into the wheel of `make wheel`, and nowhere else."""

from __future__ import annotations

import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tools.machine_code import package
from tools.machine_code.wheel_hook import MachineCodeHook

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "raftlake" / "raft").mkdir(parents=True)
    for name in (f"abc__mypyc{SUFFIX}", f"raftlake/raft/core{SUFFIX}", "raftlake/raft/core.py"):
        (tmp_path / name).touch()
    monkeypatch.setattr(package, "machine_code", lambda jobs: tmp_path)
    return {"pure_python": True, "infer_tag": False, "force_include": {}}


def initialize(version: str, data: dict[str, Any]) -> None:
    MachineCodeHook(str(package.ROOT), {}, None, None, "", "wheel").initialize(version, data)


def test_a_wheel_has_machine_code_beside_its_source(data: dict[str, Any], tmp_path: Path) -> None:
    initialize("standard", data)
    assert (data["pure_python"], data["infer_tag"]) == (False, True)
    names = (f"abc__mypyc{SUFFIX}", f"raftlake/raft/core{SUFFIX}")
    assert data["force_include"] == {str(tmp_path / name): name for name in names}


def test_an_editable_installation_is_python(data: dict[str, Any]) -> None:
    initialize("editable", data)
    assert data == {"pure_python": True, "infer_tag": False, "force_include": {}}


def test_who_installs_from_source_needs_neither_compiler_nor_tools() -> None:
    hooks = tomllib.loads((package.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    assert hooks["custom"]["enable-by-default"] is False
    assert (package.ROOT / hooks["custom"]["path"]).is_file()
