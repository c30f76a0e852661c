"""Which package the processes of a test run: the one that PYTHONPATH names first, else that of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = [str(ROOT / "python"), str(ROOT / "connector")]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, OURS),
        ("", OURS),
        ("/a/wheel", ["/a/wheel", *OURS]),
        (os.pathsep.join(["/a/wheel", *OURS]), ["/a/wheel", *OURS]),
        (os.pathsep.join(reversed(OURS)), list(reversed(OURS))),
    ],
)
def test_what_pythonpath_names_goes_before_the_tree(given: str | None, seen: list[str]) -> None:
    """`make test-wheel` names a wheel there. With the tree in front, its nodes were those of the tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if given is not None:
        environment["PYTHONPATH"] = given
    program = (
        f"import sys; sys.path[:0] = {[*OURS, *(str(ROOT / 'tests' / each) for each in ('', 'kits'))]}; import conftest, os; "
    )
    program += "print(os.environ['PYTHONPATH'])"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().split(os.pathsep) == seen
