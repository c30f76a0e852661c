"""The java properties syntax, checked against what `java.util.Properties.load` documents."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis.strategies import characters, dictionaries, lists, none, sampled_from, text

from raftlake.errors import ConfigError
from raftlake.runtime.settings.properties import edit_properties, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("# a=b\n! c=d\n\ne=f", {"e": "f"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=b\\", {"a": "b"}),
        ("a=ends in a backslash \\\\\nb=c", {"a": "ends in a backslash \\", "b": "c"}),
        ("a=#not a comment", {"a": "#not a comment"}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=tab\\tnew\\nline\\q", {"a": "tab\tnew\nlineq"}),
        ("a=\\u00e9\\u4E2D", {"a": "\u00e9\u4e2d"}),
        ("a=\u00e9", {"a": "\u00e9"}),
    ],
)
def test_reads_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "file") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\nb=2\na=3", "file:3: a is set twice"),
        ("a=\\u12g4", r"file:1: \\u12g4 is no character"),
        ("a=\\u12", r"file:1: \\u12 is no character"),
        ("x=1\n=2", "file:2: a line without a key"),
    ],
)
def test_names_the_line_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_properties(text, "file")


@given(text(alphabet=characters(exclude_categories=["Cs"])))
@example("a\nb\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029c")
@example(" leading, then \\ and a tab\t")
@example("\tx\\")
def test_what_is_written_is_read_again(value: str) -> None:
    written = format_properties({"log.dirs": value, "node.id": "1"})
    assert parse_properties(written, "a file") == {"log.dirs": value, "node.id": "1"}


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("", {"a": "1", "b": None}, "a=1\n"),
        ("# mine\na = 1\n\nb=2", {"a": "1"}, "# mine\na = 1\n\nb=2"),
        ("# mine\na = 1\n\nb=2", {"a": "3"}, "# mine\na=3\n\nb=2\n"),
        ("a=1,\\\n   2\nb=3\n", {"a": "4", "c": "5"}, "a=4\nb=3\nc=5\n"),
        ("a=1,\\\n   2\nb=3\n", {"a": None}, "b=3\n"),
        ("#a=1\na=2\n", {"a": None, "b": ""}, "#a=1\nb=\n"),
        ("a=1\\", {"b": "2"}, "a=1\\\n\nb=2\n"),
    ],
)
def test_an_edit_leaves_the_other_lines_alone(text: str, changes: dict[str, str | None], expected: str) -> None:
    assert edit_properties(text, changes) == expected


@given(
    lists(sampled_from(["a=1", "b : 2 ", " c", "d=x\\", "  y", "# no\\", "", "\\", "e=\\\\"])).map("\n".join),
    dictionaries(sampled_from("abcdef"), none() | text(alphabet="1 \\\n#=", max_size=3), max_size=4),
)
def test_an_edited_file_says_what_it_said_and_what_is_new(text: str, changes: dict[str, str | None]) -> None:
    try:
        before = parse_properties(text, "file")
    except ConfigError:
        return
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    assert parse_properties(edit_properties(text, changes), "file") == after
