"""The tests of this directory say what they prove, and say it once.

Read are only tests and the page beside this file. A test of a KIP quotes its sentence in “ ”, and no sentence is quoted by two
tests; a test of a Kafka scenario names Kafka's test in its docstring, or the KIP or issue that it comes from, or says that it
is ours; README.md has a row for each scenario and each pitfall.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUOTE = re.compile("“(.+?)”", re.DOTALL)
KAFKA_TEST = re.compile(r"\b[A-Z]\w+Test\.(test|can|leadership)[A-Z]\w+")
#: Where no test of Kafka's does the same.
OTHER_SOURCE = re.compile(r"^(Ours: \w|KIP-\d+|KAFKA-\d+)")


def functions_of(*patterns: str) -> list[tuple[str, str, str]]:
    """(file, test, docstring) of the tests in the files that match."""
    return [
        (path.name, node.name, " ".join((ast.get_docstring(node) or "").split()))
        for pattern in patterns
        for path in sorted(HERE.glob(pattern))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


SENTENCES = functions_of("test_kip595_*.py", "test_kip650_*.py")
SCENARIOS = functions_of("test_kafka_scenarios_*.py")
PITFALLS = functions_of("test_kafka_pitfalls.py")


@pytest.mark.parametrize(("file", "test", "docstring"), SENTENCES, ids=[f"{file}-{test}" for file, test, _ in SENTENCES])
def test_a_test_of_a_kip_quotes_its_sentence(file: str, test: str, docstring: str) -> None:
    quotes = QUOTE.findall(docstring)
    assert quotes, "no sentence in “ ”"
    assert all(len(quote.split()) >= 4 for quote in quotes), "too short to be found in the KIP"


def test_no_sentence_is_quoted_twice() -> None:
    quoted: dict[str, str] = {}
    for _, test, docstring in SENTENCES:
        for quote in QUOTE.findall(docstring):
            for part in quote.split(" [...] "):
                assert part not in quoted, f"{test} and {quoted[part]}: {part}"
                quoted[part] = test


def test_there_are_as_many_sentences_as_before() -> None:
    """Sentences are added. One that goes takes this number down with it, on purpose."""
    assert len(SENTENCES) >= 151


@pytest.mark.parametrize(("file", "test", "docstring"), SCENARIOS, ids=[f"{file}-{test}" for file, test, _ in SCENARIOS])
def test_a_scenario_names_kafkas_test(file: str, test: str, docstring: str) -> None:
    assert KAFKA_TEST.search(docstring) or OTHER_SOURCE.search(docstring), "Class.testName is missing"


def test_every_file_is_read() -> None:
    """A new file falls under the rules of its name, and there is no other name."""
    read = {file for file, _, _ in [*SENTENCES, *SCENARIOS, *PITFALLS]}
    assert {path.name for path in HERE.glob("test_*.py")} == read | {Path(__file__).name}


def test_most_scenarios_are_kafkas() -> None:
    named = [test for _, test, docstring in SCENARIOS if KAFKA_TEST.search(docstring)]
    assert len(named) >= 201


def rows_of(table: int) -> dict[int, str]:
    """The rows of one of the page's tables: number -> the last cell."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in tables[table].splitlines()[2:]]
    rows = {int(row[0].strip("| ")): row[-1].strip("| ") for row in cells}
    assert len(rows) == len(cells), "a number is there twice"
    return rows


@pytest.mark.parametrize(("table", "count"), [(0, 89), (1, 28)], ids=["scenarios", "pitfalls"])
def test_the_page_has_a_row_for_each(table: int, count: int) -> None:
    rows = rows_of(table)
    assert sorted(rows) == list(range(1, count + 1))
    known = {test for _, test, _ in functions_of("test_*.py", "../unit/*/test_*.py")}
    for number, cell in rows.items():
        named = re.findall(r"`(test_\w+)`", cell)
        assert named or cell.startswith("does not apply"), f"{number}: neither a test nor a reason"
        assert set(named) <= known, f"{number}: {sorted(set(named) - known)} do not exist"


def test_every_pitfall_test_is_on_the_page() -> None:
    rows = rows_of(1)
    for _, test, docstring in PITFALLS:
        assert docstring
        assert f"`{test}`" in rows[int(test.split("_")[1])]
