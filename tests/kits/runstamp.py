"""Which code a run was made with, and when: for pages that a command writes."""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Stamp:
    commit: str
    date: str
    #: Files that differ from the commit.
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"commit {self.commit}, {self.date}"


def take(*places: str, root: Path = ROOT) -> Stamp:
    """The commit that is checked out, today's date, and what below `places` differs from the commit."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout

    changed = [line[3:] for line in git("status", "--porcelain", "--", *places).splitlines()]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Stamp(git("rev-parse", "--short=12", "HEAD").strip(), today, tuple(changed))
