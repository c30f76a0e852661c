"""The page about reliability has a row for each known failure of other tiers, and each row names tests that exist.

The list is that of the failures which the remote tier was built against. One that is added to the page is added here.
"""

from __future__ import annotations

import re

import pytest

from test_repository import ROOT, text_of

SECTION = re.compile(r"^## What went wrong with other tiers\n(.*?)^## ", flags=re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (?P<who>[^|]+) \| (?P<what>[^|]+) \| (?P<ours>[^|]+) \|$", flags=re.MULTILINE)
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>test_\w+)`")
#: Who, and the numbers of the issues or pages.
KNOWN = {
    "AutoMQ": "3006",
    "Aiven": "562 699 820",
    "Aiven's": "whitepaper",
    "Delta": "1616 2590 6472",
    "Fluss": "1064 2625 2648 3483 3562 3892",
    "Iceberg": "15710",
    "KAFKA": "13369 14888 15351",
    "KIP": "1303",
    "Redpanda": "24247 24305 27817 30846",
}


def rows() -> list[tuple[str, str]]:
    """Who, and our tests, of each failure on the page."""
    section = SECTION.search(text_of(ROOT / "docs" / "reliability.md"))
    assert section is not None
    found = [(row["who"], row["ours"]) for row in ROW.finditer(section[1])]
    return [(who, ours) for who, ours in found if TEST.search(ours)]


def test_each_known_failure_has_a_row() -> None:
    told = {
        (words[0], number)
        for who, _ in rows()
        for words in [re.split(r"[ -]", who, maxsplit=1)]
        for number in words[1].split(", ")
    }
    assert told == {(who, number) for who, numbers in KNOWN.items() for number in numbers.split()}


@pytest.mark.parametrize(("who", "ours"), rows(), ids=[who for who, _ in rows()])
def test_a_known_failure_names_tests_that_exist(who: str, ours: str) -> None:
    named = TEST.findall(ours)
    assert len(named) == ours.count("`") // 2, f"{who}: a file below tests/, two colons, and a test"
    for file, name in named:
        defined = re.search(rf"^ *def {name}\(", text_of(ROOT / "tests" / file), flags=re.MULTILINE)
        assert defined is not None, f"{who}: {file} has no {name}"
