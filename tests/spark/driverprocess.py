"""A Spark driver in a process group of its own, which the JVM shares, and the files in which its job tells what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class DriverProcess:
    """Runs `job` with these arguments, and with `directory`, which is made, as the last one."""

    def __init__(self, job: Path, *arguments: str, directory: Path, environment: Mapping[str, str]) -> None:
        directory.mkdir()
        self.directory = directory
        self._output = (directory / "output").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(job), *arguments, str(directory)],
            cwd=directory,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def text(self, name: str) -> str | None:
        file = self.directory / name
        return file.read_text(encoding="utf-8") if file.exists() else None

    def signal(self, number: signal.Signals) -> None:
        """To the process and to its JVM."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Also where it is stopped, or has ended."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        self.process.wait()
        self._output.close()
