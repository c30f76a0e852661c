"""The soak itself, short: node processes under every kind of fault, and a history that must be linearizable.

`make soak` runs it for ten minutes. Here each kind of fault strikes once, in an order that the seed draws.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]


def soak(directory: Path, *arguments: str) -> dict[str, object]:
    result = directory / "result.json"
    command = [sys.executable, "-m", "tests.soak", "--directory", str(directory / "data"), "--result", str(result), *arguments]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=200, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(result.read_text())
    return found


def total(counts: object, end: str = "") -> int:
    assert isinstance(counts, dict)
    return sum(count for name, count in counts.items() if name.endswith(end))


def test_a_history_under_every_kind_of_fault_is_linearizable(tmp_path: Path) -> None:
    least = ("--least-faults", "9", "--least-operations", "500")
    result = soak(tmp_path, "--minutes", "0.75", "--seed", "7", "--think-ms", "40", *least)
    assert result["verdict"] == "linearizable" and result["complaints"] == []
    assert total(result["outcomes"], " ok") >= 500
    assert isinstance(result["faults"], dict) and len(result["faults"]) == 9


def test_where_namespaces_are_not_allowed_proxies_cut_the_links(tmp_path: Path) -> None:
    least = ("--least-operations", "100")
    result = soak(tmp_path, "--minutes", "0.25", "--seed", "3", "--think-ms", "40", "--links", "proxies", *least)
    assert (result["verdict"], result["links"]) == ("linearizable", "proxies")
    assert total(result["outcomes"], " ok") >= 100
