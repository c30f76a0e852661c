"""docs/mutants.md, written whole from a hunt of all bugs at one commit: every number in it is of that hunt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.kits.runstamp import Stamp
from tests.mutants.trial import Death

COMMAND = "make mutants TABLE=docs/mutants.md"


def finders(text: str) -> dict[str, str]:
    """The test file that found a bug, below `tests/`, by the name of the bug: as a page tells it."""
    return dict(re.findall(r"^\| `([^`]+)` \| `([^`:]+\.py)::", text, flags=re.MULTILINE))


def is_by_seed(death: Death) -> bool:
    return death.by.startswith(("seed ", "simulated runs"))


def rows(deaths: Sequence[Death]) -> list[str]:
    """The outcome in Markdown, by name: what a violation broke, or the test that failed."""
    lines = ["| bug | found by | seeds tried |", "|---|---|---|"]
    for death in sorted(deaths, key=lambda death: death.name):
        if is_by_seed(death):
            seed, _, promise = death.by.partition(": ")
            what = f"{seed}: {promise.partition(': ')[0]}" if promise else seed
            lines.append(f"| `{death.name}` | simulator, {what} | {death.seeds or ''} |")
        else:
            test, comma, rest = death.by.partition(", which")
            test = test.removeprefix("FAILED ").removeprefix("ERROR ").removeprefix("tests/")
            tried = f"{death.seeds}, none found it" if death.seeds else ""
            lines.append(f"| `{death.name}` | `{test}`{comma}{rest} | {tried} |")
    return lines


def counts(deaths: Sequence[Death]) -> str:
    """How many were found by what. Every one must have been found."""
    by_seed = [death for death in deaths if is_by_seed(death)]
    average = sum(death.seeds for death in by_seed) / max(len(by_seed), 1)
    others = len(deaths) - len(by_seed)
    return f"{len(deaths)} bugs, {len(by_seed)} found by the simulator after {average:.1f} seeds each, {others} by tests"


def page(deaths: Sequence[Death], *, seeds_max: int, stamp: Stamp, before: tuple[str | None, int] = (None, 0)) -> list[str]:
    """Lines of at most 128 columns around the table; `before` is an earlier commit and how many were killed there."""
    commit, number = before
    found = f"{number} were found at commit {commit}, and the others later, at {stamp}." if commit else f"All at {stamp}."
    return [
        "# Planted bugs",
        "",
        f"<!-- Written by `{COMMAND}`. What is changed by hand is lost. -->",
        "",
        "`make mutants` plants each of these bugs, one at a time, and looks for it: in simulated clusters, seed after seed",
        f"up to {seeds_max}, then in tests. Where no seeds are named, only tests look for it: it makes clusters slow or loud",
        "and breaks no promise, or it lies in files that simulated nodes do not have. The same tests and some seeds run",
        "without any bug first, and must be green. A bug that makes them time out is not found by that. Seeds are tried in",
        "their order from 1 on; those whose clusters cannot show the bug are passed over and not counted.",
        "",
        f"{counts(deaths)}, none survived.",
        found,
        f"Looking took {sum(death.seconds for death in deaths) / 60:.0f} minutes of one job.",
        f"`{COMMAND}` writes this page; which seed finds a bug changes whenever the simulator draws anew.",
        "",
        *rows(deaths),
    ]
