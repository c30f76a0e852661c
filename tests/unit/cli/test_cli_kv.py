"""`raftlake kv` in front of a key space in memory: where values come from and go to, pages, conditions that exclude others."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from clientkit_kv import Answer, Box, Front, answer_all, kv_test
from raftlake.cli import kv as cli_kv
from raftlake.cli import main as cli
from raftlake.client import AsyncClient
from raftlake.client.errors import NoRoom
from raftlake.client.types import KvDeleted, KvEntry, KvEvent, KvPage
from raftlake.errors import ConfigError, one_line

#: What a node gives at most for one list, whatever is asked for; as small as its limit of bytes may make it.
PAGE_KEYS = 700


class Space:
    """The part of `raftlake.client.Client.kv` that the commands use; remembers what was asked."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.asked: list[dict[str, Any]] = []
        self.events: list[KvEvent] = []

    def get(self, key: str, **options: Any) -> KvEntry | None:
        self.asked.append(options)
        value = self.content.get(key)
        return None if value is None else KvEntry(key=key, version=7, size=len(value), value=value)

    def put(self, key: str, value: bytes, **options: Any) -> int:
        self.asked.append(options)
        self.content[key] = value
        return 8

    def delete(self, key: str, **options: Any) -> int:
        self.asked.append(options)
        self.content.pop(key, None)
        return 9

    def delete_prefix(self, prefix: str) -> KvDeleted:
        gone = [key for key in self.content if key.startswith(prefix)]
        for key in gone:
            del self.content[key]
        return KvDeleted(version=9, count=len(gone))

    def list(
        self, prefix: str, *, after: str | None, limit: int, values: bool, linearizable: bool, delimiter: str | None = None
    ) -> KvPage:
        if delimiter is not None:
            return self._names(prefix, delimiter, after, limit)
        self.asked.append({"after": after, "limit": limit, "linearizable": linearizable})
        keys = sorted(key for key in self.content if key.startswith(prefix) and (after is None or key > after))
        shown = keys[: min(limit, PAGE_KEYS)]
        entries = [
            KvEntry(key=key, version=7, size=len(self.content[key]), value=self.content[key] if values else None)
            for key in shown
        ]
        return KvPage(entries=tuple(entries), more=len(shown) < len(keys), version=9)

    def _names(self, prefix: str, delimiter: str, after: str | None, limit: int) -> KvPage:
        names: dict[str, bytes | None] = {}
        for key in self.content:
            head, cut, _ = key.removeprefix(prefix).partition(delimiter)
            names[prefix + head + cut] = None if cut else self.content[key]
        left = [name for name in sorted(names) if after is None or name > after]
        shown = left[: min(limit, PAGE_KEYS)]
        values = {name: value for name in shown if (value := names[name]) is not None}
        entries = tuple(KvEntry(key=name, version=7, size=len(value)) for name, value in values.items())
        prefixes = tuple(name for name in shown if name not in values)
        return KvPage(entries=entries, more=len(shown) < len(left), version=9, prefixes=prefixes)

    def watch(self, prefix: str, *, from_version: int | None) -> Iterator[KvEvent]:
        self.asked.append({"prefix": prefix, "from_version": from_version})
        yield from self.events
        raise AssertionError("it asked for more than it should print")


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Space:
    space = Space()

    @contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield SimpleNamespace(kv=space)

    monkeypatch.setattr(cli_kv, "connect", connect)
    return space


def run(*arguments: str, stdin: bytes | None = None) -> bytes:
    outcome = CliRunner().invoke(cli_kv.app, arguments, input=stdin, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout_bytes


def refused(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli_kv.app, arguments)
    assert outcome.exit_code == 2
    return outcome.output


@pytest.mark.parametrize("value", [b"text", b"", b"\xff\x00\n", b"line\n"])
def test_a_value_is_printed_as_it_is(space: Space, value: bytes) -> None:
    space.content["k"] = value
    assert run("get", "k") == value
    told = json.loads(run("get", "k", "--json"))
    assert (told["key"], told["version"]) == ("k", 7)
    assert ("valueBase64" in told) == (value == b"\xff\x00\n")


def test_only_a_terminal_gets_a_line_break_behind_a_value(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    for value, shown in ((b"text", b"text\n"), (b"line\n", b"line\n"), (b"", b"\n")):
        space.content["k"] = value
        screen = Terminal(io.BytesIO())
        monkeypatch.setattr(sys, "stdout", screen)
        cli_kv.get("k")
        assert screen.buffer.getvalue() == shown  # type: ignore[attr-defined]


def test_a_key_that_does_not_exist_is_an_error(space: Space) -> None:
    with pytest.raises(cli_kv.KeyMissing, match="key 'k' does not exist"):
        CliRunner().invoke(cli_kv.app, ["get", "k"], catch_exceptions=False)


def test_a_value_comes_from_an_argument_a_file_or_standard_input(space: Space, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\x00file\xff")
    assert run("put", "a", "väl") == b"8\n"
    run("put", "b", "--file", str(tmp_path / "value"))
    run("put", "c", "-", stdin=b"\xfein\n")
    run("put", "d", "")
    assert space.content == {"a": "väl".encode(), "b": b"\x00file\xff", "c": b"\xfein\n", "d": b""}
    with pytest.raises(ConfigError, match="cannot read"):
        CliRunner().invoke(cli_kv.app, ["put", "e", "--file", str(tmp_path / "absent")], catch_exceptions=False)
    assert "e" not in space.content


def test_an_argument_that_is_no_text_is_stored_byte_by_byte(space: Space) -> None:
    """A shell passes any bytes; Python gives them as surrogates."""
    cli_kv.put("k", value=b"\xff\xfe".decode("utf-8", errors="surrogateescape"))
    assert space.content == {"k": b"\xff\xfe"}


@pytest.mark.parametrize("arguments", [[], ["v", "--file", "f"], ["v", "--create", "--if-version", "0"]])
def test_what_cannot_be_meant_changes_nothing(arguments: list[str], space: Space) -> None:
    assert "give" in refused("put", "k", *arguments)
    assert space.asked == []


def test_a_full_key_space_is_one_line(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(key: str, value: bytes, **options: Any) -> int:
        raise NoRoom("507: the key space is full,\nkv.quota.bytes=5")

    monkeypatch.setattr(space, "put", put)
    ended = CliRunner().invoke(cli_kv.app, ["put", "k", "v"])
    assert isinstance(ended.exception, NoRoom)
    assert one_line(ended.exception) == "POLICY_VIOLATION: 507: the key space is full, kv.quota.bytes=5"


def test_conditions_are_passed_on(space: Space) -> None:
    run("put", "k", "v", "--if-version", "0")
    run("put", "k", "v", "--create")
    assert json.loads(run("delete", "k", "--if-version", "5", "--json")) == {"key": "k", "version": 9}
    run("delete", "k")
    assert space.asked == [
        {"if_version": 0, "create": False},
        {"if_version": None, "create": True},
        {"if_version": 5},
        {"if_version": None},
    ]


@pytest.mark.parametrize("limit", [None, 1, 699, 700, 701, 1_000, 1_001, 1_700, 9_999])
def test_a_list_goes_on_until_the_last_page_or_the_limit(limit: int | None, space: Space) -> None:
    space.content = {f"k{number:04}": b"v" * (number % 3) for number in range(1_700)} | {"other": b""}
    rows = run("list", "k", *([] if limit is None else ["--limit", str(limit)])).decode().splitlines()
    keys = sorted(key for key in space.content if key != "other")[:limit]
    assert rows == [f"7\t{len(space.content[key])}\t{key}" for key in keys]
    assert max(asked["limit"] for asked in space.asked) <= 1_000


@pytest.mark.parametrize("arguments", [["put", "K", "v", "--create"], ["put", "K", "v"], ["delete", "K", "--if-version", "3"]])
@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (None, 3, "K; its outcome is not known: it may have been carried out, or may still be; read the key, then decide"),
        (
            (500, {}, b'{"error":"internal\\nerror"}'),
            3,
            "answered 500: internal error; its outcome is not known: it may have been",
        ),
        (Box(429, {}, b"slow down"), 3, "read the key, then decide"),
        ((412, {}, b'{"error":"condition failed","key":"K","version":"q"}'), 3, "read the key, then decide"),
        ((412, {}, b'{"error":"condition failed","key":"K","version":4}'), 1, "condition failed: 'K' is at version 4"),
        ((413, {}, b'{"error":"the body is larger"}'), 1, "MESSAGE_TOO_LARGE: 413: the body is larger"),
        ((200, {"etag": '"8"'}, b"{}"), 0, ""),
    ],
)
def test_a_write_whose_outcome_is_not_known_says_so_and_has_an_exit_code_of_its_own(
    arguments: list[str],
    answer: Answer | Box | None,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer)
        nodes = ",".join(map(str, client.config.bootstrap))
        monkeypatch.setattr(sys, "argv", ["raftlake", "kv", *arguments, "-b", nodes])
        assert await asyncio.to_thread(cli.run, cli.app) == code

    kv_test(test)
    told = capsys.readouterr()
    if code == 0:
        assert (told.out, told.err) == ("8\n", "")
        return
    assert told.err.startswith("raftlake: ") and told.err.count("\n") == 1 and words.removeprefix("K") in told.err


def test_the_help_tells_the_exit_codes() -> None:
    def help_of(commands: typer.Typer, *arguments: str) -> str:
        return " ".join(CliRunner().invoke(commands, [*arguments, "--help"]).output.split())

    assert f"{cli.EXIT_UNKNOWN} the outcome of a change is not known" in help_of(cli.app)
    for command in ("put", "delete"):
        assert f"exit code {cli.EXIT_UNKNOWN} when it is not known" in help_of(cli_kv.app, command)


def test_a_list_shows_values_when_asked_for(space: Space) -> None:
    space.content = {"a": b"1", "b": b""}
    assert run("list", "--values") == b"7\t1\ta\t1\n7\t0\tb\t\n"
    assert json.loads(run("list", "--values", "--json"))[0] == {"key": "a", "version": 7, "size": 1, "value": "1"}
    assert run("list", "none") == b""
    assert json.loads(run("list", "none", "--json")) == []


def test_reads_are_linearizable_unless_told(space: Space) -> None:
    space.content["k"] = b""
    for arguments in (["get", "k"], ["list"]):
        run(*arguments)
        run(*arguments, "--stale")
    assert [asked["linearizable"] for asked in space.asked] == [True, False, True, False]


def test_a_watch_ends_after_so_many_changes(space: Space) -> None:
    space.events = [
        KvEvent(key="p/a", version=5, value=b"v"),
        KvEvent(key="p/b", version=6, value=None),
        KvEvent(key="p/c", version=7, value=b"\xff"),
    ]
    lines = [json.loads(line) for line in run("watch", "p/", "--from", "4", "--max-events", "3").splitlines()]
    assert [(line["key"], line["version"]) for line in lines] == [("p/a", 5), ("p/b", 6), ("p/c", 7)]
    assert [line["value"] for line in lines[:2]] == ["v", None]
    assert lines[2]["valueBase64"] == "/w=="
    assert space.asked == [{"prefix": "p/", "from_version": 4}]


def test_the_commands_are_part_of_the_program() -> None:
    commands = typer.main.get_command(cli_kv.app).commands  # type: ignore[attr-defined]
    assert sorted(commands) == ["delete", "get", "list", "put", "watch"]


def test_all_keys_with_a_prefix_are_deleted_and_counted(space: Space) -> None:
    space.content = dict.fromkeys(["d/a", "d/b", "e"], b"v")
    assert run("delete", "--prefix", "d/") == b"2\n"
    assert list(space.content) == ["e"]
    assert json.loads(run("delete", "--prefix", "e", "--json")) == {"prefix": "e", "version": 9, "deleted": 1}
    assert space.content == {}


@pytest.mark.parametrize("arguments", [[], ["k", "--prefix", "k"], ["--prefix", "k", "--if-version", "3"]])
def test_a_deletion_that_cannot_be_meant_changes_nothing(arguments: list[str], space: Space) -> None:
    space.content = {"k": b"v"}
    assert "give" in refused("delete", *arguments)
    assert space.content == {"k": b"v"}


@pytest.mark.parametrize("limit", [None, 1, 699, 701, 1_500])
def test_a_list_with_a_delimiter_goes_on_behind_keys_and_prefixes(limit: int | None, space: Space) -> None:
    space.content = {f"{number:04}{'/x' if number % 2 else ''}": b"v" for number in range(1_600)}
    told = json.loads(run("list", "--delimiter", "/", "--json", *([] if limit is None else ["--limit", str(limit)])))
    expected = [f"{number:04}{'/' if number % 2 else ''}" for number in range(1_600)][:limit]
    assert [row.get("prefix") or row["key"] for row in told] == expected
    assert all(set(row) == ({"prefix"} if row.get("prefix") else {"key", "version", "size"}) for row in told)


def test_prefixes_stand_between_the_keys(space: Space) -> None:
    space.content = {"a": b"", "b/c": b"", "d": b"xy"}
    assert run("list", "--delimiter", "/") == b"7\t0\ta\n-\t-\tb/\n7\t2\td\n"
    assert "one character" in refused("list", "--delimiter", "//")
