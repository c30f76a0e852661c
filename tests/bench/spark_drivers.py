"""Drivers of Spark as processes of their own: a JVM keeps file systems and settings of the session that it had first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 600


def run_driver(program: Path, *arguments: str) -> dict[str, Any]:
    """The JSON of the last line that a driver prints. RuntimeError with its last words where it fails."""
    # What this process imports a driver can import: the package that is measured, and the kits.
    path = os.pathsep.join(each for each in sys.path if each)
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the driver {program.name} {arguments} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
