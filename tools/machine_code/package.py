"""A compiled copy of the package: built once for each state of the source, kept below `.cache`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python"
#: Where builds of the source are kept.
BUILDS = ROOT / ".cache" / "compiled"
#: What a build is made of, beside mypyc.
MADE_OF = (SOURCE, Path(__file__).resolve().parent)
#: A module that is always compiled.
CORE = "raftlake.raft.core"


class NotCompiledError(Exception):
    """There is no machine code that does what the source does."""


def has_compiler() -> bool:
    """Whether C can be compiled for this Python."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(command.split()[0]) is not None and (Path(sysconfig.get_path("include")) / "Python.h").exists()


def machine_code(jobs: int, builds: Path = BUILDS) -> Path:
    """The directory with the package as machine code, built where this state of the source has none yet.

    Raises:
        NotCompiledError: the machine has no C compiler, or mypyc does not compile the package.
    """
    place = builds / f"source-{digest()}"
    if not core_file(place).exists():
        if not has_compiler():
            raise NotCompiledError("no C compiler (gcc), or no Python.h (python3-dev): install both")
        build(place, jobs)
    return place


def digest() -> str:
    """Names a state of the source, and of what compiles it."""
    seen = hashlib.sha256(sys.version.encode())
    for directory in MADE_OF:
        for path in sorted(directory.rglob("*.py")):
            seen.update(f"{path.relative_to(directory)}\n".encode() + path.read_bytes())
    return seen.hexdigest()[:12]


def core_file(place: Path) -> Path:
    """Where the core's machine code lies."""
    return place / f"{CORE.replace('.', '/')}{sysconfig.get_config_var('EXT_SUFFIX')}"


def build(place: Path, jobs: int) -> None:
    """Copy the package and compile the copy; it appears at `place` when it is whole.

    Raises:
        NotCompiledError: mypyc does not compile the package.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        unfinished = Path(name) / "unfinished"
        shutil.copytree(SOURCE, unfinished, ignore=shutil.ignore_patterns("__pycache__"))
        log = place.parent / "build.log"
        command = [sys.executable, "-m", "tools.machine_code.translate", str(unfinished), str(jobs)]
        with log.open("w") as output:
            built = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        if built.returncode != 0:
            raise NotCompiledError(f"mypyc did not compile the package: its last words are in {log}")
        unfinished.rename(place)
