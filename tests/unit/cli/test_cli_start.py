"""A command imports little before it does its work."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["raftlake"]


AS_MODULE = "import runpy; runpy.run_module('raftlake', run_name='__main__')"
AS_SCRIPT = "import {0}; {0}.{1}()".format(*SCRIPT.split(":"))


@pytest.mark.parametrize("start", [AS_MODULE, AS_SCRIPT], ids=["module", "script"])
def test_no_command_imports_hypothesis(start: str, tmp_path: Path) -> None:
    """kio does so where it is installed, and took half of the time of a short command for it."""
    program = (
        f"import sys\nsys.argv = ['raftlake', '--version']\ntry:\n    {start}\nfinally:\n    print(sys.modules['hypothesis'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "None", done
    assert done.stdout.startswith("raftlake ")


@pytest.mark.parametrize("moment", ["import", "call"])
def test_ctrl_c_ends_a_command_without_a_traceback(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its modules are loaded."""

    class Loading:
        @property
        def main(self) -> Callable[[], None]:
            def command() -> None:
                raise KeyboardInterrupt

            if moment == "import":
                raise KeyboardInterrupt
            return command

    monkeypatch.setitem(sys.modules, "raftlake.cli.main", Loading())  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize("arguments", [["--help"], ["sinks", "--help"]])
def test_help_loads_no_client_and_no_node(arguments: list[str], tmp_path: Path) -> None:
    """Nor what they are made of: each command imports that when it runs."""
    program = (
        f"import sys\nsys.argv = ['raftlake', *{arguments}]\n"
        f"try:\n    {AS_MODULE}\nfinally:\n    print(*sys.modules, sep=chr(10))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done
    loaded = set(done.stdout.splitlines())
    assert "raftlake.cli.sinks" in loaded
    ours = {name.split(".")[1] for name in loaded if name.startswith("raftlake.")}
    assert ours == {"cli", "errors", "kv", "tier"}
    assert not loaded & {"kio", "httpx", "asyncio", "numba", "pyarrow", "deltalake"}
