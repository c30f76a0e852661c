"""The command line without a quorum: usage, errors, and how facts are printed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from quorumkit import described_quorum
from raftlake.cli import lag as cli_lag
from raftlake.cli import main as cli
from raftlake.cli import output as cli_output
from raftlake.cli import quorum as cli_quorum
from raftlake.cli import sinks as cli_sinks
from raftlake.cli import topics as cli_topics
from raftlake.cli import transactions as cli_transactions
from raftlake.cli.produce import to_record
from raftlake.client import Record
from raftlake.client.types import LOCAL_SERVERS, SERVERS_VARIABLES, PartitionDescription, TopicDescription
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, WrongState
from raftlake.runtime.settings.settings import load_settings
from raftlake.wire import batches
from raftlake.wire.quorum import status_lines

SETTINGS = ["quorum.voters=1@127.0.0.1:9092", "log.dirs=d"]


def test_describe_status_has_kafkas_words() -> None:
    voters = (
        '[{"id": 1, "endpoints": ["CONTROLLER://g:9092"]}, '
        '{"id": 2, "directoryId": "AAECAwQFBgcICQoLDA0ODw", "endpoints": ["CONTROLLER://h:9092"]}, {"id": 3}]'
    )
    assert status_lines(described_quorum()) == [
        "ClusterId:              c1",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          40",
        "MaxFollowerLag:         12",
        "MaxFollowerLagTimeMs:   600",
        f"CurrentVoters:          {voters}",
        'CurrentObservers:       [{"id": 4}]',
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--status", "--replication"],
        ["topics"],
        ["topics", "create"],
        ["topics", "create", "t", "--partitions", "0"],
        ["kv", "put", "k"],
        ["kv", "put", "k", "v", "--create", "--if-version", "3"],
        ["produce", "t", "--key-separator", ""],
        ["local", "--nodes", "0"],
        ["nonsense"],
        ["format", "--data-dir", "x"],
    ],
)
def test_wrong_usage_is_exit_code_two(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topics", "create"], "Missing argument 'TOPIC'. Try 'raftlake topics create --help'"),
        (["nonsense"], "No such command 'nonsense'. Try 'raftlake --help'"),
        (["quickstar"], "No such command 'quickstar'. Did you mean 'quickstart'? Try 'raftlake --help'"),
        (["local", "--nodez", "3"], "No such option: --nodez (Possible options: --nodes). Try 'raftlake local --help'"),
    ],
)
def test_wrong_usage_is_said_in_one_line(arguments: list[str], line: str) -> None:
    outcome = run(*arguments)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (2, "", f"raftlake: {line}\n")


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["local", "--help"], 0), ([], 2), (["topics"], 2)])
def test_help_is_help_and_no_error(arguments: list[str], code: int) -> None:
    outcome = run(*arguments)
    assert outcome.returncode == code
    assert "Usage: raftlake" in outcome.stdout and outcome.stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        "local",
        "format",
        "serve",
        "dump",
        "describe",
        "topics",
        "produce",
        "consume",
        "kv",
        "quickstart",
        "kv watch",
        "topics list",
    ],
)
def test_every_command_has_help(command: str) -> None:
    outcome = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert outcome.exit_code == 0
    assert "Usage" in outcome.stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "raftlake", *arguments], input="", capture_output=True, text=True, timeout=30, check=False
    )


def test_an_error_is_one_line_that_names_what_is_wrong(tmp_path: Path) -> None:
    for arguments, named in (
        (["topics", "list", "-b", "127.0.0.1:1", "--timeout-ms", "200"], "127.0.0.1:1"),
        (["topics", "list", "-b", "nowhere"], "'nowhere' is not host:port"),
        (["produce", "t", "-b", "127.0.0.1:1", "--timeout-ms", "200"], "127.0.0.1:1"),
        (["serve", "--config", str(tmp_path / "absent")], str(tmp_path / "absent")),
        (["dump", str(tmp_path / "absent.log")], "absent.log"),
    ):
        outcome = run(*arguments)
        assert outcome.returncode == 1
        assert named in outcome.stderr
        assert outcome.stderr.count("\n") == 1 and outcome.stderr.startswith("raftlake: ")
        assert outcome.stdout == ""


@pytest.mark.parametrize(
    "command",
    ["topics describe {}", "sinks forget {}", "transactions abort {}", "lag --query {}", "describe --status --topic {}"],
)
def test_an_argument_that_is_no_text_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Each ended in a traceback, where the client made bytes of it."""

    class Encoding:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *told: Any, **more: Any) -> Any:
            for each in told:
                str(each).encode()
            return self

    @contextlib.contextmanager
    def connect(bootstrap_server: str, timeout_ms: int) -> Iterator[Any]:
        yield Encoding()

    for module in (cli_topics, cli_sinks, cli_transactions, cli_lag, cli_quorum):
        monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(sys, "argv", ["raftlake", *command.format("b\udcffd").split()])
    assert cli.run(cli.app) == 1
    said = capsys.readouterr()
    assert said.err.startswith("raftlake: '") and "b\\udcffd' is not valid Unicode text\n" in said.err
    assert said.err.count("\n") == 1 and said.out == ""


@pytest.mark.parametrize("given", ["-", "ö", "b\udcffd"])
def test_keys_are_parted_by_the_bytes_that_were_given(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], given: str
) -> None:
    record = Record(topic="t", partition=0, offset=1, timestamp_ms=2, key=b"k", value=b"v", headers=())
    monkeypatch.setattr(cli_topics, "connect", lambda *_: Quorum())
    monkeypatch.setattr(cli_topics, "_records", lambda *told, **more: [record])
    assert (
        CliRunner().invoke(cli.app, ["consume", "t", "--key-separator", given]).stdout_bytes
        == b"k" + os.fsencode(given) + b"v\n"
    )
    parted = to_record(b"k" + os.fsencode(given) + b"v", given, None)
    assert (parted.key, parted.value) == (b"k", b"v")


@pytest.mark.parametrize(("flip", "code"), [(False, 0), (True, 1)])
def test_a_dump_of_a_damaged_batch_is_an_error(tmp_path: Path, flip: bool, code: int) -> None:
    data = bytearray(batches.build_batch([batches.Record(value=b"abc")], base_offset=0, leader_epoch=1, timestamp_ms=1))
    data[-2] ^= flip
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(data)
    outcome = CliRunner().invoke(cli.app, ["dump", str(file)])
    assert outcome.exit_code == code
    assert ("isvalid: false" in outcome.stdout, "\ndamaged: " in outcome.stdout) == (flip, flip)


def test_the_start_of_a_node_by_a_program_says_the_same(tmp_path: Path) -> None:
    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "raftlake.runtime", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    absent = str(tmp_path / "absent")
    outcome = start("--config", absent)
    assert (outcome.returncode, outcome.stderr) == (1, run("serve", "--config", absent).stderr)
    assert start().returncode == start("--confg", absent).returncode == 2


def test_format_writes_once_and_refuses_another_node(tmp_path: Path) -> None:
    formatted = run("format", "--data-dir", str(tmp_path / "d"), "--node-id", "4", "--cluster-id", "c1", "--json")
    assert formatted.returncode == 0
    facts = json.loads(formatted.stdout)
    assert (facts["nodeId"], facts["clusterId"]) == (4, "c1")
    assert run("format", "--data-dir", str(tmp_path / "d"), "--node-id", "4").returncode == 0
    refused = run("format", "--data-dir", str(tmp_path / "d"), "--node-id", "5")
    assert refused.returncode == 1
    assert "node.id=4" in refused.stderr
    shown = run("dump", str(tmp_path / "d" / "meta.properties"))
    assert shown.returncode == 0
    assert "4" in shown.stdout
    (tmp_path / "quorum-state").write_text("{")
    damaged = run("dump", str(tmp_path / "quorum-state"))
    assert (damaged.returncode, damaged.stdout[:8]) == (1, "damaged:")


def test_a_record_as_json_keeps_bytes_that_are_no_text() -> None:
    record = Record(topic="t", partition=1, offset=5, timestamp_ms=9, key=b"\xff", value="é".encode(), headers=(("h", None),))
    facts = json.loads(cli_topics.json_line(record))
    assert facts == {
        "topic": "t",
        "partition": 1,
        "offset": 5,
        "timestamp": 9,
        "key": "\\xff",
        "keyBase64": "/w==",
        "value": "é",
        "headers": [{"key": "h", "value": None}],
    }


def test_an_error_of_several_lines_is_printed_as_one() -> None:
    assert cli.one_line(RaftlakeError("a\n  b")) == "a b"
    assert cli.one_line(RaftlakeError()) == "RaftlakeError"


@pytest.mark.parametrize("variable", ["RAFTLAKE_BOOTSTRAP_SERVER", "RAFTLAKE_BOOTSTRAP_SERVERS"])
def test_the_nodes_to_ask_stand_in_the_environment_under_either_name(variable: str) -> None:
    environment = {"RAFTLAKE_BOOTSTRAP_SERVER": "", "RAFTLAKE_BOOTSTRAP_SERVERS": "", variable: "nowhere"}
    outcome = CliRunner().invoke(cli.app, ["topics", "list"], env=environment)
    assert "'nowhere' is not host:port" in str(outcome.exception)
    assert load_settings(None, environ={"RAFTLAKE_NODE_ID": "1", **environment}, overrides=SETTINGS).node_id == 1


def test_without_a_word_the_nodes_to_ask_are_those_of_raftlake_local() -> None:
    """With node 1 dead, `raftlake describe` failed beside two healthy nodes."""
    options = {option.name: option.default for option in get_command(cli.app).commands["local"].params}  # type: ignore[attr-defined]
    started = [f"127.0.0.1:{options['port'] + index}" for index in range(options["nodes"])]
    assert cli_output.BOOTSTRAP_DEFAULT.split(",") == started
    assert len(started) == 3
    assert LOCAL_SERVERS == cli_output.BOOTSTRAP_DEFAULT
    assert list(SERVERS_VARIABLES) == cli_output.BOOTSTRAP_VARIABLES


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"raftlake {metadata.version('raftlake')}\n")


def test_tables_line_up_and_split_at_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    cli_output.print_table(["A", "Bee"], [["100", "x"], ["2", ""]])
    assert capsys.readouterr().out == "A  \tBee\n100\tx\n2\n"


def test_bytes_that_are_no_text_are_shown_with_backslashes() -> None:
    assert cli_output.as_text(b"\xffa") == "\\xffa"
    assert cli_output.as_text(None) is None
    assert cli_output.text_facts("value", b"\xff\\xff") == {"value": "\\xff\\xff", "valueBase64": "/1x4ZmY="}
    assert cli_output.text_facts("value", "\u00e9".encode()) == {"value": "\u00e9"}
    assert cli_output.text_facts("value", None) == {"value": None}


# --- topics ---


def described(partitions: int) -> TopicDescription:
    found = tuple(
        PartitionDescription(partition=index, leader_id=1, leader_epoch=1, replicas=(1,)) for index in range(partitions)
    )
    return TopicDescription(name="t", topic_id=bytes(16), partitions=found)


@pytest.mark.parametrize("asked", [None, 3])
def test_a_topic_with_as_many_partitions_is_the_one_that_was_asked_for(asked: int | None) -> None:
    cli_topics.require_count(described(3), asked)


@pytest.mark.parametrize(
    ("asked", "advice"), [(4, "`raftlake topics alter t --partitions 4` adds the others"), (2, "never taken away")]
)
def test_a_topic_with_another_count_is_told(asked: int, advice: str) -> None:
    with pytest.raises(WrongState, match=f"topic 't' exists with 3 partitions, not {asked}: .*{advice}"):
        cli_topics.require_count(described(3), asked)


class Quorum:
    """Stands for a client, and notes what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def partitions(self, _topic: str) -> list[int]:
        return [0, 1]

    def create_topic(self, name: str, partitions: int, configs: dict[str, str], *, exist_ok: bool) -> TopicDescription:
        self.done.append(("create", name, partitions, exist_ok, *([configs] if configs else [])))
        return described(2 if exist_ok else partitions)

    def describe_topic(self, _topic: str) -> TopicDescription:
        return described(1)

    def own_topic_configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        return {topic: {"retention.ms": "5"} for topic in topics if topic != "unheard-of"}

    def alter_topic_configs(self, topic: str, configs: dict[str, str], *, delete: list[str]) -> None:
        self.done.append(("configs", topic, configs, delete))

    def create_partitions(self, topic: str, count: int) -> TopicDescription:
        self.done.append(("grow", topic, count))
        return described(count)

    def delete_records(self, topic: str, offsets: dict[int, int]) -> dict[int, int]:
        self.done.append(("delete", topic, offsets))
        return dict.fromkeys(offsets, 7)


@pytest.mark.parametrize(
    ("command", "done", "line"),
    [
        ("create t", ("create", "t", 1, False), "topic t has 1 partition"),
        ("create t --if-not-exists", ("create", "t", 1, True), "topic t has 2 partitions"),
        ("create t --if-not-exists --partitions 2", ("create", "t", 2, True), "topic t has 2 partitions"),
        ("alter t --partitions 4", ("grow", "t", 4), "topic t has 4 partitions"),
        ("create t --config a=1 --config b=c=d", ("create", "t", 1, False, {"a": "1", "b": "c=d"}), "topic t has 1 partition"),
        (
            "create t --if-not-exists --config retention.ms=5",
            ("create", "t", 1, True, {"retention.ms": "5"}),
            "topic t has 2 partitions",
        ),
        (
            "create unheard-of --if-not-exists --config retention.ms=9",
            ("create", "unheard-of", 1, True, {"retention.ms": "9"}),
            "topic t has 2 partitions",
        ),
        ("alter t --config a=1", ("configs", "t", {"a": "1"}, []), "topic t has a=1"),
        ("alter t --delete-config a", ("configs", "t", {}, ["a"]), "topic t follows the nodes in a"),
        ("delete-records t --partition 1 --offset 7", ("delete", "t", {1: 7}), "topic t partition 1 begins at offset 7"),
        ("delete-records t --partition 0 --offset -1", ("delete", "t", {0: -1}), "topic t partition 0 begins at offset 7"),
    ],
)
def test_changes_of_topics(monkeypatch: pytest.MonkeyPatch, command: str, done: tuple[Any, ...], line: str) -> None:
    quorum = Quorum()
    monkeypatch.setattr(cli_topics, "connect", lambda *_: quorum)
    outcome = CliRunner().invoke(cli.app, ["topics", *command.split()])
    assert (outcome.exit_code, outcome.stdout.strip(), quorum.done) == (0, line, [done])


def altered(monkeypatch: pytest.MonkeyPatch, quorum: Quorum, partitions: int) -> tuple[int, str, str]:
    monkeypatch.setattr(cli_topics, "connect", lambda *_: quorum)
    outcome = CliRunner().invoke(cli.app, ["topics", "alter", "t", "--partitions", f"{partitions}", "--config", "a=1"])
    return outcome.exit_code, str(outcome.exception), outcome.stderr


@pytest.mark.parametrize("count", [1, 2])
def test_configs_stay_where_the_count_of_partitions_is_refused(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    quorum = Quorum()
    quorum.describe_topic = lambda _: described(2)  # type: ignore[method-assign]
    code, told, _ = altered(monkeypatch, quorum, count)
    assert (code, quorum.done) == (1, [])
    assert told == f"nothing was changed: topic 't' has 2 partitions, and {count} would be no increase"


def test_configs_that_were_changed_before_an_error_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()

    def refuse(topic: str, count: int) -> TopicDescription:
        raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"{topic}: {count} are too many")

    quorum.create_partitions = refuse  # type: ignore[method-assign]
    code, told, noted = altered(monkeypatch, quorum, 9)
    assert (code, quorum.done, noted) == (1, [("configs", "t", {"a": "1"}, [])], "topic t has a=1\n")
    assert "9 are too many" in told


def test_a_cell_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli_output.print_table(["Id", "Age"], [["evil-\x1b[31m\r\nfake\t9", "1 s"], ["größe", "2 s"]])
    quoted = r"'evil-\x1b[31m\r\nfake\t9'"
    assert capsys.readouterr().out.splitlines() == [
        f"{'Id':{len(quoted)}}\tAge",
        f"{quoted}\t1 s",
        f"{'größe':{len(quoted)}}\t2 s",
    ]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("alter t", "nothing to change"),
        ("alter t --config a", "--config a: accepted is NAME=VALUE"),
        ("create t --config =5", "--config =5: accepted is NAME=VALUE"),
        ("create t --config a=5 --config a=6", "--config a is given more than once"),
    ],
)
def test_wrong_usage_of_configs_is_no_error_of_the_quorum(monkeypatch: pytest.MonkeyPatch, command: str, said: str) -> None:
    monkeypatch.setattr(cli_topics, "connect", lambda *_: Quorum())
    outcome = CliRunner().invoke(cli.app, ["topics", *command.split()])
    assert outcome.exit_code == 2 and said in " ".join(outcome.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a\nb"], r"--config 'a\nb': accepted is NAME=VALUE"),
        (["a\nb=1", "a\nb=2"], r"--config 'a\nb' is given more than once"),
    ],
)
def test_a_line_of_an_error_stays_one_line_whatever_was_given(
    monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    monkeypatch.setattr(cli_topics, "connect", lambda *_: Quorum())
    configs = [part for each in given for part in ("--config", each)]
    outcome = CliRunner().invoke(cli.app, ["topics", "alter", "t", *configs])
    assert outcome.exit_code == 2 and said in " ".join(outcome.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("create t --if-not-exists --partitions 3", "exists with 2 partitions, not 3"),
        ("delete-records t --partition 2 --offset 7", "topic 't' has 2 partitions, not 2"),
        (
            "create t --if-not-exists --config retention.ms=6 --config segment.ms=7",
            "exists with retention.ms=5, no segment.ms: `raftlake topics alter t --config retention.ms=6 --config segment",
        ),
    ],
)
def test_changes_of_topics_that_are_refused(monkeypatch: pytest.MonkeyPatch, command: str, said: str) -> None:
    monkeypatch.setattr(cli_topics, "connect", lambda *_: Quorum())
    outcome = CliRunner().invoke(cli.app, ["topics", *command.split()])
    assert isinstance(outcome.exception, RaftlakeError) and said in str(outcome.exception)
    assert outcome.stdout == ""
