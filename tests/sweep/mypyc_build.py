"""`python -m tests.sweep.mypyc_build DIRECTORY JOBS`: compile a copy of the package where it lies.

A process of its own, because setuptools and mypyc work on the current directory and end the process where they fail. The
modules are those that a simulated cluster loads, without those that mypyc cannot compile or that are not worth it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from tests.sweep.plain import written_out

#: What a worker of a sweep imports.
ENTRY = "raftlake.sim.runner"
#: Not compiled, and why.
INTERPRETED = {
    # mypyc takes the constants of this IntEnum for machine integers where they are defaults of arguments.
    "raftlake.errors",
    # A decorator of a kind that mypyc does not know; nothing is left of its use.
    "raftlake.raft.value",
    # They look at fields of dataclasses: their own, or kio's.
    "raftlake.raft.config",
    "raftlake.replica.config",
    "raftlake.wire.schema",
    "raftlake.sim.cluster",
    "raftlake.sim.faults.faults",
    "raftlake.sim.histories.kv",
    "raftlake.sim.scenario",
    # mypyc does not know memoryview as the type of a named tuple's field.
    "raftlake.wire.snapshots",
    # Generic dataclasses.
    "raftlake.sim.histories.linearizability",
    "raftlake.sim.clients.history",
    "raftlake.sim.histories.log",
    # What crosses processes, and what runs once.
    "raftlake.sim.report",
    "raftlake.sim.runner",
    "raftlake.sim.shrink",
    "raftlake.sim.tail",
    "raftlake.sim.histories.listing",
}
#: The types were checked in the source; here they only have to be known.
MYPY_CONFIG = """[mypy]
python_version = {version}
cache_dir = build/mypy
ignore_missing_imports = true

[mypy-raftlake.*]
ignore_errors = true
"""


def loaded_modules(directory: Path, entry: str) -> dict[str, Path]:
    """The package's modules that importing `entry` loads, in order of their names."""
    package = entry.partition(".")[0]
    program = f"import sys, {entry}\nfor name, module in sys.modules.items(): print(name, getattr(module, '__file__', None))"
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    listed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = dict(line.split(" ", 1) for line in listed.stdout.splitlines())
    return {name: Path(file) for name, file in sorted(found.items()) if name.partition(".")[0] == package}


def translate(directory: Path, entry: str = ENTRY) -> list[Any]:
    """Have mypyc write C files below `build` for what `entry` loads of the package in `directory`: the extensions to build.

    The current directory becomes `directory`.
    """
    from mypyc.build import mypycify

    os.chdir(directory)
    modules = {
        name: path.relative_to(directory)
        for name, path in loaded_modules(directory, entry).items()
        if name not in INTERPRETED and path.name != "__init__.py"
    }
    for path in modules.values():
        path.write_text(written_out(path.read_text()))
    Path("build").mkdir()
    config = Path("build/mypy.ini")
    config.write_text(MYPY_CONFIG.format(version=f"{sys.version_info.major}.{sys.version_info.minor}"))
    files = [str(path) for path in modules.values()]
    return mypycify(["--config-file", str(config), *files], opt_level="1", debug_level="0", multi_file=True)


def compile_package(directory: Path, jobs: int, entry: str = ENTRY) -> None:
    """Compile what `entry` loads of the package in `directory`, and leave its source beside it."""
    from setuptools import setup
    from setuptools.command.build_ext import build_ext

    class ParallelBuild(build_ext):
        """One extension has a C file for each module: they are compiled at the same time."""

        def build_extensions(self) -> None:
            compile_in_turn = self.compiler.compile

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                with ThreadPool(jobs) as pool:
                    objects = pool.map(lambda source: compile_in_turn([source], **options), sources, chunksize=1)
                return [name for names in objects for name in names]

            self.compiler.compile = compile_all
            super().build_extensions()

    setup(
        name="compiled",
        packages=[],
        ext_modules=translate(directory, entry),
        cmdclass={"build_ext": ParallelBuild},
        script_args=["--quiet", "build_ext", "--inplace"],
    )
    shutil.rmtree("build")


if __name__ == "__main__":
    compile_package(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
