"""The tests of this directory say what they prove, and say it once.

Read are only the files beside this one. A test of a KIP quotes its sentence in “ ”, and no sentence is quoted by two tests;
a test of a Kafka scenario names Kafka's test in its docstring; a pitfall has its number.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUOTE = re.compile("“(.+?)”", re.DOTALL)
KAFKA_TEST = re.compile(r"\b[A-Z]\w+Test\.(test|can|leadership)[A-Z]\w+")


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
SCENARIOS = functions_of(
    *(
        f"test_kafka_scenarios_{name}.py"
        for name in ("votes", "elections", "quorum_epochs", "replication", "appends", "simulation")
    )
)
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
    assert len(SENTENCES) >= 146


@pytest.mark.parametrize(("file", "test", "docstring"), SCENARIOS, ids=[f"{file}-{test}" for file, test, _ in SCENARIOS])
def test_a_scenario_names_kafkas_test(file: str, test: str, docstring: str) -> None:
    assert KAFKA_TEST.search(docstring), "Class.testName is missing"


def test_a_pitfall_has_its_number() -> None:
    numbers = {int(match[1]) for _, test, _ in PITFALLS if (match := re.match(r"test_(\d\d)_", test))}
    assert len(numbers) >= 26
    assert numbers <= set(range(1, 29))
    assert all(re.match(r"test_\d\d_\w+", test) and docstring for _, test, docstring in PITFALLS)
