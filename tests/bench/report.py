"""What `make bench` leaves behind: a table on the terminal, and latest.json, results.md and results.png in one directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from measure import Result
from plot import draw, draw_histogram

#: The picture of latencies in real-time mode.
HISTOGRAM = "realtime.png"
COLUMNS = ("measure", "ours", "peer", "ours / peer", "budget", "", "method")


def number(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{shown} {unit}"


def cells(result: Result) -> tuple[str, ...]:
    peer, ratio = "", ""
    if result.peer is not None:
        peer = f"{number(result.peer.value, result.unit)} ({result.peer.name})"
        ratio = f"{result.peer.ratio:.2f}"
    return result.name, number(result.value, result.unit), peer, ratio, result.budget, result.verdict, result.method


def show(results: Sequence[Result]) -> None:
    table = Table(*COLUMNS, title="raftlake bench")
    for result in results:
        style = {"met": "green", "MISSED": "bold red"}.get(result.verdict, "")
        table.add_row(*cells(result), style=style)
    Console(width=None if os.isatty(1) else 200).print(table)


def save(results: Sequence[Result], machine: Mapping[str, object], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    rows = [asdict(result) | {"is_met": result.is_met} for result in results]
    (directory / "latest.json").write_text(json.dumps({"machine": machine, "results": rows}, indent=1) + "\n")
    (directory / "results.md").write_text(markdown(results, machine))
    draw(results, machine, directory / "results.png")
    for result in histograms(results):
        draw_histogram(result, machine, directory / HISTOGRAM)


def histograms(results: Sequence[Result]) -> list[Result]:
    """The one of real-time mode, where it was measured."""
    return [result for result in results if "histogram" in result.details]


def markdown(results: Sequence[Result], machine: Mapping[str, object]) -> str:
    lines = ["# Measured with `make bench`", "", machine_text(machine), "", "![ratios and budgets](results.png)", ""]
    lines += [
        "A ratio is the median of the ratios of neighbouring rounds: what the machine does meanwhile hits both sides, so it",
        "holds where the absolute numbers of a small shared machine do not. Clients and nodes of both sides share its cores.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for result in results:
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|").replace("MISSED", "**missed**") for cell in cells(result)) + " |"
        )
    for result in histograms(results):
        lines += ["", f"![{result.name.removesuffix(', p50')}]({HISTOGRAM})"]
    return "\n".join(lines) + "\n"


def machine_text(machine: Mapping[str, object]) -> str:
    versions = machine["versions"]
    assert isinstance(versions, Mapping)
    note = f" {machine['note']}" if "note" in machine else ""
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, fdatasync of 1 KiB"
        f" {machine['disk_fdatasync_p50_us']} µs (p50), Linux {machine['kernel']}, load before the run"
        f" {machine['load_before']}; {', '.join(f'{name} {version}' for name, version in versions.items())}.{note}"
    )
