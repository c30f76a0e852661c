"""What the measures of `make bench` share: a result with its budget and its method, the table, the JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One number. `at_most` or `at_least` is its budget; neither: it is only reported."""

    name: str
    value: float
    unit: str
    method: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (self.at_least is None or self.value >= self.at_least)

    @property
    def budget(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return f">= {self.at_least:,g}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        return ("pass" if self.is_met else "MISSED") if self.budget else ""


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def show(results: Sequence[Result]) -> None:
    table = Table("measure", "value", "unit", "budget", "", "method", title="raftlake bench")
    for result in results:
        verdict = result.verdict
        style = {"pass": "green", "MISSED": "bold red"}.get(verdict, "")
        table.add_row(result.name, f"{result.value:,.2f}", result.unit, result.budget, verdict, result.method, style=style)
    Console(width=None if os.isatty(1) else 180).print(table)


def save(results: Sequence[Result], path: Path) -> None:
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) | {"is_met": result.is_met} for result in results]
    path.write_text(json.dumps({"machine": machine, "results": rows}, indent=2) + "\n")
