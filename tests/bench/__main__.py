"""`make bench` (python -m tests.bench [--only PART]...): run the measures, save table and plot, exit 1 when a budget is missed.

Each part yields results; a part that fails ends the run. A part has a process of its own: a JVM of Spark keeps the jars with
which it began. Nodes are machine code, as in the wheel of `make wheel`; with `--interpreted` they are Python. Everything runs
on this machine, under one directory: nodes, peers and clients share its cores and its disk.
Ctrl-C and SIGTERM stop every process that was started.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kits"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.machine_code.package import NotCompiledError, machine_code

from etcd_nodes import etcd_version
from measure import Result, describe_machine
from parts import PARTS, catch_signals, in_a_process
from report import save, show

ROOT = Path(__file__).resolve().parents[2]
KAFKA_VERSION = "4.3.1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(PARTS), help="only this part; may be given several times")
    parser.add_argument("--out", type=Path, help="where table, plot and JSON go (benchmarks/; .cache/bench/ with --only)")
    parser.add_argument("--data", type=Path, default=ROOT / ".cache", help="on which file system the nodes write")
    parser.add_argument("--interpreted", action="store_true", help="nodes as Python, not as the machine code of a wheel")
    arguments = parser.parse_args()
    out = arguments.out or (ROOT / ".cache" / "bench" if arguments.only else ROOT / "benchmarks")
    catch_signals()
    arguments.data.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    try:
        if not arguments.interpreted:
            use(machine_code(os.cpu_count() or 1))
        with tempfile.TemporaryDirectory(prefix="bench-", dir=arguments.data) as directory:
            kind = "interpreted" if arguments.interpreted else "machine code of `make wheel`"
            raftlake = f"{importlib.metadata.version('raftlake')}, {kind}"
            versions = {"raftlake": raftlake, "etcd": etcd_version(), "Kafka": KAFKA_VERSION}
            machine = describe_machine(Path(directory), versions)
            for name in arguments.only or PARTS:
                results += in_a_process(name, Path(directory) / name)
    except NotCompiledError as error:
        print(f"{error}; or measure with --interpreted (make bench INTERPRETED=1)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was saved", file=sys.stderr)
        return 130
    show(results)
    save(results, machine, out)
    missed = [result.name for result in results if not result.is_met]
    print(f"saved in {out}")
    print(f"missed: {', '.join(missed)}" if missed else "every budget is met")
    return 1 if missed else 0


def use(place: Path) -> None:
    """The parts, which are processes of their own, and all nodes import the package from there."""
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


if __name__ == "__main__":
    sys.exit(main())
