"""`make jvm-mutants`: plants each bug of the catalogue in the jar's sources, and proves that a JUnit test finds it.

The tests run without any bug first, and must be green. Then each bug: all of the jar is compiled with it, and the classes that
look for it run. Exit status 1 when one was not found. Needs what `make test-jvm` fetches.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark
from tests.jvm_mutants.catalogue import JVM_MUTANTS, MAIN, PACKAGE, ROOT, TEST, JvmMutant
from tests.jvm_mutants.catalogue_live import LIVE_MUTANTS
from tests.jvm_mutants.catalogue_log import LOG_MUTANTS
from tests.jvm_mutants.catalogue_owner import OWNER_MUTANTS
from tests.jvm_mutants.catalogue_plans import PLANS_MUTANTS
from tests.jvm_mutants.catalogue_realtime import REAL_TIME_MUTANTS
from tests.jvm_mutants.catalogue_review_jar import REVIEW_JAR_MUTANTS
from tests.jvm_mutants.catalogue_runs import RUNS_MUTANTS
from tests.jvm_mutants.catalogue_sink import SINK_MUTANTS
from tests.jvm_mutants.catalogue_source import SOURCE_MUTANTS
from tests.jvm_mutants.catalogue_standby import STANDBY_MUTANTS
from tests.jvm_mutants.catalogue_state import STATE_MUTANTS

JUNIT = "org.junit.platform.console.ConsoleLauncher"
RESOURCES = (ROOT / "jvm_shim/build/resources/main", ROOT / "jvm_shim/src/test/resources")
ALL = (
    *JVM_MUTANTS,
    *LIVE_MUTANTS,
    *LOG_MUTANTS,
    *OWNER_MUTANTS,
    *PLANS_MUTANTS,
    *REAL_TIME_MUTANTS,
    *REVIEW_JAR_MUTANTS,
    *RUNS_MUTANTS,
    *SINK_MUTANTS,
    *SOURCE_MUTANTS,
    *STANDBY_MUTANTS,
    *STATE_MUTANTS,
)
#: Java reads its options from this file.
OPTIONS = f"@{ROOT}/jvm_shim/src/test/jvm.options"
#: Of one JUnit run. A bug that never ends is found by this.
LIMIT_S = 300


@dataclass(frozen=True)
class Compiled:
    """The classes of the tests, and what they and the jar are compiled against."""

    tests: Path
    jars: str

    def main(self, into: Path, mutant: JvmMutant | None) -> subprocess.CompletedProcess[bytes]:
        """Compile the jar's classes, with the bug."""
        sources = [path for path in MAIN.rglob("*.java") if mutant is None or path != mutant.path]
        if mutant is not None:
            changed = into / "source" / PACKAGE / mutant.file
            changed.parent.mkdir(parents=True)
            changed.write_text(mutant.mutated(), encoding="utf-8")
            sources.append(changed)
        return compile_java(sources, into / "classes", self.jars)

    def run(self, classes: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
        """None when it did not end in time."""
        path = ":".join([str(classes), str(self.tests), *map(str, RESOURCES), self.jars])
        chosen = [f"--select-class=io.raftlake.spark.{name}" for name in tests]
        command = ["java", OPTIONS, "-cp", path, JUNIT, "execute", "--disable-banner", "--details=tree"]
        options = [*chosen, "--fail-if-no-tests", "--disable-ansi-colors", "--details-theme=ascii"]
        try:
            return subprocess.run([*command, *options], capture_output=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return None


def compile_java(sources: Sequence[Path], into: Path, path: str) -> subprocess.CompletedProcess[bytes]:
    into.mkdir(parents=True)
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "--release", "17", "-cp", path, "-d", str(into)]
    return subprocess.run([*command, *map(str, sources)], capture_output=True, check=False)


def require_ok(done: subprocess.CompletedProcess[bytes] | None, what: str) -> None:
    if done is None or done.returncode:
        told = b"it did not end in time" if done is None else done.stdout + done.stderr
        sys.exit(f"{what}:\n{told.decode(errors='replace')}")


def prepared(directory: Path, mutants: Sequence[JvmMutant]) -> Compiled:
    """The baseline: everything compiled without a bug, and every test that is going to look for one is green."""
    jars = ":".join(f"{place}/*" for place in (Path(pyspark.__file__).parent / "jars", ROOT / ".cache/jvm-tests"))
    compiled = Compiled(directory / "tests", jars)
    base = directory / "base"
    require_ok(compiled.main(base, None), "the jar does not compile")
    tests = compile_java(list(TEST.rglob("*.java")), compiled.tests, f"{base / 'classes'}:{jars}")
    require_ok(tests, "the tests do not compile")
    names = sorted({name for mutant in mutants for name in mutant.tests})
    require_ok(compiled.run(base / "classes", names), "a test fails without any bug")
    return compiled


def finder(compiled: Compiled, mutant: JvmMutant, directory: Path) -> str | None:
    """What found the bug; None when nothing did."""
    require_ok(compiled.main(directory, mutant), f"{mutant.name} does not compile")
    done = compiled.run(directory / "classes", mutant.tests)
    if done is None:
        return "a test that did not end"
    if not done.returncode:
        return None
    failed = [line for line in done.stdout.decode(errors="replace").splitlines() if "[X]" in line]
    return failed[0].split("[X]")[0].strip(" |'+-") if failed else "a run that failed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make jvm-mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these bugs")
    asked = parser.parse_args().names
    mutants = [mutant for mutant in ALL if not asked or mutant.name in asked]
    if unknown := set(asked) - {mutant.name for mutant in mutants}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        compiled = prepared(Path(directory), mutants)
        for mutant in mutants:
            started = time.monotonic()
            found = finder(compiled, mutant, Path(directory) / mutant.name)
            duration = time.monotonic() - started
            print(f"{mutant.name:<44} {duration:4.0f} s  {f'found by {found}' if found else 'NOT FOUND'}", flush=True)
            if found is None:
                missed.append(mutant.name)
    print(f"{len(mutants)} bugs, {len(mutants) - len(missed)} found, {len(missed)} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
