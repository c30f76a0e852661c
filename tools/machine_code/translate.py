"""`python -m tools.machine_code.translate DIRECTORY JOBS`: compile a copy of the package where it lies.

A process of its own, because setuptools and mypyc work on the current directory and end the process where they fail. The
modules are those that a node loads and those that a simulated cluster loads, without those that mypyc cannot compile: so the
simulator runs the machine code that a node runs.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from tools.machine_code.plain import written_out

#: What a node imports, and what a worker of a sweep imports.
ENTRIES = ("raftlake.runtime.server", "raftlake.sim.runner")
#: Not compiled, and why. Modules with enumerations of integers come to these (`has_integer_enums`).
INTERPRETED = {
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
    # mypyc ends with an error of its own at a starred element of a tuple behind `in`.
    "raftlake.storage.reset",
    # A class of exceptions below OSError.
    "raftlake.runtime.peers.address",
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


def loaded_modules(directory: Path, *entries: str) -> dict[str, Path]:
    """The package's modules that importing `entries` loads, in order of their names."""
    package = entries[0].partition(".")[0]
    listing = "for name, module in sys.modules.items(): print(name, getattr(module, '__file__', None))"
    program = f"import sys, {', '.join(entries)}\n{listing}"
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    listed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = dict(line.split(" ", 1) for line in listed.stdout.splitlines())
    return {name: Path(file) for name, file in sorted(found.items()) if name.partition(".")[0] == package}


def has_integer_enums(text: str) -> bool:
    """mypyc takes members of an IntEnum that it compiles for machine integers: `key is ApiKey.FETCH` is never true then."""
    classes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
    return any(isinstance(base, ast.Name) and base.id in ("IntEnum", "IntFlag") for node in classes for base in node.bases)


def compiled_modules(directory: Path, *entries: str) -> dict[str, Path]:
    """Those of the loaded modules that mypyc is given, relative to `directory`."""
    return {
        name: path.relative_to(directory)
        for name, path in loaded_modules(directory, *entries).items()
        if name not in INTERPRETED and path.name != "__init__.py" and not has_integer_enums(path.read_text())
    }


def translate(directory: Path, *entries: str) -> list[Any]:
    """Have mypyc write C files below `build` for what `entries` load of the package in `directory`: the extensions to build.

    The current directory becomes `directory`.
    """
    from mypyc.build import mypycify

    os.chdir(directory)
    modules = compiled_modules(directory, *(entries or ENTRIES))
    for path in modules.values():
        path.write_text(written_out(path.read_text()))
    Path("build").mkdir()
    config = Path("build/mypy.ini")
    config.write_text(MYPY_CONFIG.format(version=f"{sys.version_info.major}.{sys.version_info.minor}"))
    files = [str(path) for path in modules.values()]
    return mypycify(["--config-file", str(config), *files], opt_level="2", debug_level="0", multi_file=True)


def compile_package(directory: Path, jobs: int, *entries: str) -> None:
    """Compile what `entries` load of the package in `directory`, and leave its source beside it."""
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

    extensions = translate(directory, *entries)
    if sys.platform == "linux":
        for extension in extensions:
            extension.extra_link_args = ["-Wl,--strip-all"]
    setup(
        name="compiled",
        packages=[],
        ext_modules=extensions,
        cmdclass={"build_ext": ParallelBuild},
        script_args=["--quiet", "build_ext", "--inplace"],
    )
    shutil.rmtree("build")


if __name__ == "__main__":
    compile_package(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
