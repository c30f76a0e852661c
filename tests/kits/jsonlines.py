"""What a long run has finished, a line of JSON each: it goes on behind them when it is started again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read(path: Path) -> list[Any]:
    """What the lines hold, in their order; nothing where there is no file. A line that a kill has torn is cut off."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, sum(map(len, lines[:-1])))
        lines.pop()
    return [json.loads(line) for line in lines]


def append(path: Path, record: Any) -> None:
    """Returns when the line is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())
