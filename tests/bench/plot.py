"""The picture of the results: how far each measure is inside its budget, and the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import Result

MET, MISSED = "#2a7f62", "#c0392b"


def margin(result: Result) -> float:
    """How many times better than its budget (2: half the time, or twice the rate); below 1 it is missed."""
    margins = []
    for value, at_most, at_least in bounds(result):
        if at_most is not None:
            margins.append(at_most / max(value, 1e-9))
        elif at_least is not None:
            margins.append(value / at_least)
    return min(margins)


def bounds(result: Result) -> list[tuple[float, float | None, float | None]]:
    found = [(result.value, result.at_most, result.at_least)]
    if result.peer is not None:
        found.append((result.peer.ratio, result.peer.at_most, result.peer.at_least))
    return [bound for bound in found if bound[1] is not None or bound[2] is not None]


def label(result: Result) -> str:
    text = f"{result.value:,.0f}" if result.value >= 100 else f"{result.value:.2g}"
    text += f" {result.unit}"
    if result.peer is not None:
        theirs = f"{result.peer.value:,.0f}" if result.peer.value >= 100 else f"{result.peer.value:.2g}"
        text += f" ({result.peer.name} {theirs}: {result.peer.ratio:.2f}x)"
    return text


def draw(results: Sequence[Result], machine: Mapping[str, object], path: Path) -> None:
    """One bar for each measure with a budget, on a logarithmic axis whose 1 is the budget."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    judged = [result for result in results if result.budget][::-1]
    if not judged:
        return
    margins = [margin(result) for result in judged]
    figure, axes = pyplot.subplots(figsize=(12, 1.4 + 0.46 * len(judged)), layout="constrained")
    colors = [MET if result.is_met else MISSED for result in judged]
    axes.barh(range(len(judged)), [value - 1 for value in margins], left=1, color=colors, height=0.62)
    axes.set_yticks(range(len(judged)), [f"{result.name}\n{result.budget}" for result in judged], fontsize=8.5)
    axes.set_ylim(-0.7, len(judged) - 0.3)
    axes.set_xscale("log", base=2)
    low, high = min(0.5, *margins), max(4.0, *margins)
    axes.set_xlim(low * 0.9, high * 2.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color="black", linewidth=1)
    for place, (result, value) in enumerate(zip(judged, margins, strict=True)):
        axes.annotate(label(result), (max(value, 1), place), (5, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_xlabel("better than the budget, times (left of 1x: missed)")
    axes.set_title(
        f"raftlake against its budgets: {machine['cores']} cores of {machine['cpu']},"
        f" fdatasync {machine['disk_fdatasync_p50_us']} µs, Linux {machine['kernel']}",
        fontsize=10,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    # The numbers beside long bars reach beyond the axes.
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def draw_histogram(result: Result, machine: Mapping[str, object], path: Path) -> None:
    """The rows of each side by their latency, on a logarithmic axis, with the bounds of the budget."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    shown, bounds_ms = result.details["histogram"], result.details["at_most_ms"]
    assert isinstance(shown, Mapping)
    assert isinstance(bounds_ms, Mapping)
    figure, axes = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    for (name, columns), color in zip(shown.items(), (MET, "#7f8c8d"), strict=True):
        total = sum(columns["rows"])
        shares = [100 * rows / total for rows in columns["rows"]]
        axes.stairs(shares, columns["from_ms"], label=name, color=color, fill=True, alpha=0.55)
    for name, bound in bounds_ms.items():
        axes.axvline(bound, color="black", linewidth=1, linestyle="--")
        axes.annotate(
            f"{name} at most {bound} ms",
            (bound, 1),
            (3, -10),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8.5,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("ms from append to sink")
    axes.set_ylabel("% of rows")
    axes.set_title(f"{result.name.removesuffix(', p50')}: {machine['cores']} cores of {machine['cpu']}", fontsize=10)
    axes.legend(fontsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
