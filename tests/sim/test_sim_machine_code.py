"""mypyc compiles what is made of dataclasses for it, and machine code does what the source does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.machine_code.package import has_compiler

pytestmark = pytest.mark.sim

ROOT = Path(__file__).resolve().parents[2]
#: What ordinary compilation stumbles over: slots, class variables, defaults, an attribute set to None before a call sets it.
VALUES = '''"""Values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from raftlake.keys_of_a_test import ApiKey, key_of


@dataclass(slots=True, kw_only=True)
class Role:
    name: ClassVar[str] = "Leader"
    epoch: int
    request: memoryview | object = None
    votes: dict[int, str] = field(default_factory=dict)
    since: Callable[[int], int] = lambda now: now + 1


@dataclass(frozen=True, slots=True, order=True)
class Key:
    topic: str
    partition: int = 0


class Group:
    def __init__(self) -> None:
        self.role: Role | None = None

    def fill(self) -> None:
        self.role = Role(epoch=1)

    def is_fetch(self, number: int) -> bool:
        return key_of(number) is ApiKey.FETCH

    def turn(self) -> bool:
        self.role = None
        self.fill()
        return self.role is None


class Worker:
    def __init__(self, number: Callable[[], int] = lambda: 4) -> None:
        self._thread = number()
        self.request = "a request"

    def end(self) -> int:
        del self.request
        return self._thread
'''
#: mypyc would take its members for machine integers, so that `is` would never be true.
KEYS = '''"""Keys."""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1


def key_of(number: int) -> ApiKey:
    return ApiKey(number)
'''
ENTRY = """
import pickle
from raftlake.values_of_a_test import Group, Key, Role, Worker, replace
first, other = Role(epoch=1), Role(epoch=1, votes={1: "a"})
first.votes[2] = "b"
print(first.name, first.since(1), first.votes, other.votes, first == other, replace(other, epoch=3).epoch)
print(sorted({Key("b"), Key("a", 1), Key("a"), Key("b")}), Group().turn(), *map(Group().is_fetch, (1, 0)), Worker().end())
print(pickle.loads(pickle.dumps(Key("a", 2))), pickle.loads(pickle.dumps(Role(epoch=3, votes={2: "b"}, since=len))).votes)
"""


@pytest.mark.skipif(not has_compiler(), reason="needs a C compiler and Python.h")
def test_machine_code_does_what_the_source_does(tmp_path: Path) -> None:
    package = tmp_path / "raftlake"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "values_of_a_test.py").write_text(VALUES)
    (package / "keys_of_a_test.py").write_text(KEYS)
    (package / "entry.py").write_text("from __future__ import annotations\n\nimport raftlake.values_of_a_test\n")
    (package / "unused.py").write_text("this is no Python\n")

    def told() -> list[str]:
        program = f"{ENTRY}import raftlake.values_of_a_test as module\nprint(module.__file__)"
        ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
        return ended.stdout.splitlines()

    *interpreted, source = told()
    assert source.endswith(".py")
    build = (
        "from pathlib import Path; from tools.machine_code.translate import compile_package;"
        f"compile_package(Path({str(tmp_path)!r}), 2, 'raftlake.entry')"
    )
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    *compiled, machine_code = told()
    assert not machine_code.endswith(".py")
    assert compiled == interpreted
    assert interpreted[1].endswith("False True False 4")
    assert interpreted[2] == "Key(topic='a', partition=2) {2: 'b'}"
    assert interpreted[0] == "Leader 2 {2: 'b'} {1: 'a'} False 3"
    assert not (tmp_path / "build").exists()


@pytest.mark.skipif(not has_compiler(), reason="needs a C compiler and Python.h")
def test_mypyc_takes_the_whole_package(tmp_path: Path) -> None:
    """Wheels and long sweeps need it. A construct that mypyc does not know is found here, and not when a wheel is made."""
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__"))
    translate = "from pathlib import Path; from tools.machine_code.translate import translate; "
    program = f"{translate}print(len(translate(Path({str(tmp_path / 'python')!r}))))"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert int(ended.stdout.splitlines()[-1]) > 100
