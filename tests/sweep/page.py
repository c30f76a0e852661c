"""docs/simulator-runs.md, written whole from one sweep: every number in it is of that sweep."""

from __future__ import annotations

from tests.kits.runstamp import Stamp

from raftlake.sim.report import Totals

PAGE = "docs/simulator-runs.md"


def page(seeds: range, totals: Totals, *, seconds: float, jobs: int, stamp: Stamp, compiled: int = 0) -> list[str]:
    """A sweep of which every seed was run and none failed; `compiled` of them by compiled code."""
    assert totals.done == len(seeds)
    assert not totals.failed
    wall = f"{seconds / 60:,.0f} minutes with {jobs} jobs, {totals.done / max(seconds, 0.001):.2f} clusters a second"
    processor = f"{totals.seeds_a_processor_second:.2f} clusters a second, {totals.us_an_event:.1f} us an event"
    simulated_s = totals.simulated_ms / totals.done / 1_000
    events, requests = totals.events / totals.done, totals.completed / totals.done
    command = f"make sweep SEEDS={seeds[0]}..{seeds[-1]}"
    return [
        "# Runs of the simulator",
        "",
        f"<!-- Written by `{command}`. What is changed by hand is lost. -->",
        "",
        "One sweep: each seed is a cluster under faults that the seed draws ([how](reliability.md#how-it-is-tested)).",
        f"`{command}` runs the same ones and writes this page.",
        "",
        f"Seeds {seeds[0]} to {seeds[-1]}, {stamp}: **none failed.**",
        "",
        "| | |",
        "|---|---|",
        f"| clusters | {totals.done:,} |",
        f"| simulated hours | {totals.simulated_ms / 3_600_000:,.1f} |",
        f"| events | {totals.events:,} |",
        f"| client requests that completed | {totals.completed:,} |",
        f"| for each cluster | {simulated_s:.0f} simulated seconds, {events:,.0f} events, {requests:,.0f} requests |",
        f"| clusters with next to no traffic | {len(totals.idle)} |",
        f"| clusters that [compiled code](../CONTRIBUTING.md#machine-code) ran | {compiled:,} |",
        f"| time | {wall} |",
        f"| speed of one processor | {processor} |",
        "",
        "## Faults",
        "",
        "| fault | times |",
        "|---|---|",
        *(f"| {kind} | {count:,} |" for kind, count in sorted(totals.faults.items())),
        "",
        "## What the clusters came to",
        "",
        "| | times | in clusters |",
        "|---|---|---|",
        *(f"| {what} | {count:,} | {totals.runs_covering[what]:,} |" for what, count in sorted(totals.covered.items())),
    ]
