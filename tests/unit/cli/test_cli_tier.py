"""`raftlake tier`: keys and nodes put together, lines and JSON, tables that are verified, the words without the packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from contract.file_faults import without_sync
from contract.tier_contract import GROUP
from historykit import END, fill, keys_of, rewrite, root_of, with_value
from raftlake.cli import main as cli
from raftlake.cli import tier as cli_tier
from raftlake.cli import tier_facts
from raftlake.cli.tier_facts import NodeAnswer, QuorumTier, partition_facts, read_quorum, tier_keys
from raftlake.client.errors import NoReachableNode
from raftlake.errors import ConfigError, ErrorCode, MachineError, RaftlakeError, RequestRejected, WrongState
from raftlake.kv.keys import CLUSTER_KEY, tier_segment_key
from raftlake.kv.strict_json import Refused
from raftlake.raft.types import Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.entries import PartitionKeys, Tiered
from raftlake.tier.verify import Progress
from raftlake.wire.ids import id_to_text
from tierclikit import CLUSTER_ID, OTHER_ID, TOPIC_ID, Keys, answering_keys, failed, run
from tierkit import local_settings


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    return answering_keys(monkeypatch)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    return local_settings(tmp_path, CLUSTER_ID)


@contextmanager
def front(status: int, body: bytes) -> Iterator[int]:
    """The HTTP front of a node, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/tier"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- status ----------------------------------------------------------------------------------------------------------------


def tiered(start: int, end: int, segments: int = 1, size: int = 100) -> PartitionKeys:
    return PartitionKeys(Tiered(start_offset=Offset(start), end_offset=Offset(end), segments=segments, size=size))


def answer_for(topic: str, partition: int, copied: int | None, high_watermark: int, **more: Any) -> dict[str, Any]:
    base = {"topic": topic, "partition": partition, "copiedEndOffset": copied, "highWatermark": high_watermark}
    return base | {"lagMs": 0, "failures": 0, "error": None} | more


def quorum_of(keys: Mapping[str, Mapping[int, PartitionKeys]]) -> QuorumTier:
    return QuorumTier(cluster_id="c", topics={"i": ("orders", 2), "j": ("fares", 1)}, keys=keys, nodes={})


def test_a_row_tells_what_key_and_leader_say() -> None:
    error = {"failure": "unusable", "reason": "no room"}
    quorum = quorum_of({"i": {0: tiered(5, 30, 3, 700), 1: tiered(0, 8)}})
    said = [answer_for("orders", 0, 20, 45, lagMs=90), answer_for("orders", 1, 7, 8, lagMs=60, error=error)]
    rows = partition_facts(quorum, [NodeAnswer(1, "h:1", said)])
    assert rows == [
        {"topic": "fares", "partition": 0, "copiedEndOffset": None, "highWatermark": None, "lag": None, "lagMs": None}
        | {"segments": 0, "bytes": 0, "error": None},
        # The key is newer than the leader's word, also where nothing waits any more.
        {"topic": "orders", "partition": 0, "copiedEndOffset": 30, "highWatermark": 45, "lag": 15, "lagMs": 90}
        | {"segments": 3, "bytes": 700, "error": None},
        {"topic": "orders", "partition": 1, "copiedEndOffset": 8, "highWatermark": 8, "lag": 0, "lagMs": 0}
        | {"segments": 1, "bytes": 100, "error": "no room"},
    ]


def test_a_row_tells_what_nodes_cannot_read_for_consumers() -> None:
    """Whoever leads the partition: a follower serves consumers too."""

    def part(reason: str, first: int | None, last: int | None, partition: int = 0) -> dict[str, Any]:
        known = {"topic": "orders", "partition": partition, "firstOffset": first, "lastOffset": last, "sinceMs": 7}
        return known | {"error": {"failure": "damaged", "reason": reason}}

    led = answer_for("orders", 1, 8, 8, error={"failure": "unusable", "reason": "no room"})
    answers = [
        NodeAnswer(1, "h:1", [led], unreadable=[part("a is gone", 3, 3), part("b is gone", 4, 9), part("c", None, None, 1)]),
        NodeAnswer(2, "h:2", [answer_for("orders", 0, 8, 8)], unreadable=[part("a is gone", 5, 5)]),
    ]
    rows = {(row["topic"], row["partition"]): row["error"] for row in partition_facts(quorum_of({}), answers)}
    assert rows["orders", 0] == (
        "node 1 cannot read offset 3 for consumers: a is gone; node 1 cannot read offsets 4 to 9 for consumers: b is gone"
    )
    assert rows["orders", 1] == "no room; node 1 cannot read a time for consumers: c"
    assert rows["fares", 0] is None
    assert answers[1].facts()["unreadable"] == [part("a is gone", 5, 5)]


def test_the_newest_leader_is_believed() -> None:
    quorum = quorum_of({"i": {0: tiered(0, 30)}})
    answers = [
        NodeAnswer(node, f"h:{node}", [answer_for("orders", 0, 30, high_watermark)])
        for node, high_watermark in ((1, 40), (2, 50), (3, 45))
    ]
    assert [row["highWatermark"] for row in partition_facts(quorum, answers)] == [None, 50, None]
    # A leader may hear of a key later than we.
    assert partition_facts(quorum, [NodeAnswer(1, "h", [answer_for("orders", 0, 20, 25)])])[1]["lag"] == 0


def test_a_partition_without_a_key_has_what_its_leader_says() -> None:
    (_, row, _) = partition_facts(quorum_of({}), [NodeAnswer(1, "h", [answer_for("orders", 0, 4, 9)])])
    assert (row["copiedEndOffset"], row["lag"], row["segments"]) == (4, 5, 0)


def test_keys_of_no_topic_and_keys_that_mean_nothing() -> None:
    quorum = quorum_of({"i": {0: PartitionKeys(Refused("no JSON object"))}, "gone": {3: tiered(0, 8)}})
    rows = {(row["topic"], row["partition"]): row for row in partition_facts(quorum, [])}
    assert rows["gone", 3]["copiedEndOffset"] == 8
    assert rows["orders", 0]["error"] == (
        "its key cannot be read: no JSON object; `raftlake tier rebuild-metadata` makes the keys anew from the table"
    )


def test_all_keys_are_read_page_by_page(keys: Keys) -> None:
    for number in range(5):
        keys.put_topic(f"t{number}", id_to_text(bytes([number + 1] * 16)), 2)
        keys.put_node(number, ("127.0.0.1", 8000 + number) if number else None)
        keys.put_tier(OTHER_ID, number, tiered(0, number))
    keys.content["/raftlake/tier/x/nonsense"] = b""
    found = read_quorum(keys)  # type: ignore[arg-type]
    assert found.cluster_id == CLUSTER_ID
    assert [found.topics[id_to_text(bytes([n + 1] * 16))] for n in range(5)] == [(f"t{n}", 2) for n in range(5)]
    assert found.nodes == {0: None} | {number: f"127.0.0.1:{8000 + number}" for number in range(1, 5)}
    assert found.keys == {OTHER_ID: {number: tiered(0, number) for number in range(5)}}


def test_segments_are_told_with_their_partition(settings: TierSettings) -> None:
    known = keys_of(fill(settings))
    space = Keys()
    space.put_tier(TOPIC_ID, 2, known)
    space.content[tier_segment_key(TOPIC_ID, 2, 7)] = b"?"
    found = tier_keys((key, value) for key, value in space.content.items() if "/tier/" in key)[TOPIC_ID][2]
    assert found.tiered == known.tiered and isinstance(found.segments[7], Refused)
    assert {base: segment for base, segment in found.segments.items() if base != 7} == {
        base: segment for base, segment in known.segments.items() if base != 7
    }


def test_status_asks_every_node_and_tells_which_did_not_answer(keys: Keys) -> None:
    keys.put_topic("orders", OTHER_ID, 1)
    keys.put_tier(OTHER_ID, 0, tiered(0, 30, 3, 700))
    told = {"partitions": [answer_for("orders", 0, 30, 42, lagMs=7), {"broken": 1}], "deletedTopics": ["fares stays"]}
    told["unreadable"] = [{"broken": 1}]
    body = json.dumps(told).encode()
    with front(200, body) as good, front(404, b"{}") as without, front(200, b"no JSON") as broken:
        for node_id, port in enumerate((good, without, broken, 1), 1):
            keys.put_node(node_id, ("127.0.0.1", port))
        keys.put_node(5, None)
        lines = run("status").splitlines()
        facts = json.loads(run("status", "--json"))
    assert lines[0].split() == cli_tier.COLUMNS
    assert lines[1].split() == ["orders", "0", "30", "42", "12", "7", "3", "700", "-"]
    assert lines.pop(2) == f"node 1 (127.0.0.1:{good}): fares stays"
    assert lines[2] == f"node 2 (127.0.0.1:{without}): it has no remote tier: set tier.uri on all nodes"
    assert lines[3].startswith(f"node 3 (127.0.0.1:{broken}): no answer: ")
    assert lines[4].startswith("node 4 (127.0.0.1:1): no answer: ") and "refused" in lines[4]
    assert lines[5] == "node 5 (no http.listener): the partitions that it leads are not known here"
    assert len(lines) == 6
    assert facts["partitions"][0]["lag"] == 12
    (answered,) = (node for node in facts["nodes"] if node["error"] is None)
    assert (answered["nodeId"], answered["deletedTopics"]) == (1, ["fares stays"])


def test_a_node_that_does_not_answer_in_time_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def get(url: str, *, timeout: float, trust_env: bool) -> Any:
        assert (url, timeout, trust_env) == ("http://h:1/v1/tier", 0.5, False)
        raise httpx.ReadTimeout("timed out")

    monkeypatch.setattr(httpx, "get", get)
    assert tier_facts.ask_node(1, "h:1", 0.5) == NodeAnswer(1, "h:1", error="no answer: timed out")


# --- verify ----------------------------------------------------------------------------------------------------------------


def test_a_whole_table(settings: TierSettings) -> None:
    fill(settings, (2, 0))
    lines = run("verify", str(root_of(settings))).splitlines()
    assert lines[0] == f"{root_of(settings)} (topic flights, version 8)"
    assert lines[2].split() == ["0", "0", str(END), str(END), "4", "4", "9", "8", "0"]
    assert lines[3].split()[0] == "2" and lines[4] == "all is well"
    facts = json.loads(run("verify", "--tier-uri", settings.uri, "--json"))
    assert facts["ok"] is True
    (table,) = facts["tables"]
    assert (table["topic"], table["findings"], table["partitions"][1]["checkedBatches"]) == ("flights", [], 8)


def test_findings_are_output_and_an_error(settings: TierSettings) -> None:
    fill(settings)
    rewrite(settings, lambda rows: with_value(rows, "value", 8, b"other"))
    output, error = failed("verify", str(root_of(settings)))
    assert isinstance(error, cli_tier.TableWrong) and str(error) == "2 findings in 1 table"
    assert output.splitlines()[-1] == "2 findings"
    assert "partition 2 offset 7 partition=2/part-" in output.splitlines()[-3]
    assert "another program has changed it" in output.splitlines()[-2]
    output, error = failed("verify", str(root_of(settings)), "--json")
    facts = json.loads(output)
    finding, change = facts["tables"][0]["findings"]
    assert facts["ok"] is False and change["kind"] == "changed"
    assert (finding["kind"], finding["partition"], finding["offset"]) == ("crc", 2, 7)
    assert finding["file"].startswith("partition=2/") and finding["what"] and finding["advice"]


def test_all_tables_of_a_tier_or_of_a_topic(settings: TierSettings) -> None:
    fill(settings)
    (Path(settings.uri) / f"trains-{OTHER_ID}").mkdir()
    output, error = failed("verify", "--tier-uri", settings.uri)
    assert str(error) == "1 finding in 1 of 2 tables"
    assert "all is well" in output and f"trains-{OTHER_ID} (unreadable)" in output and "there is no Delta table" in output
    assert "all is well" in run("verify", "--tier-uri", settings.uri, "--topic", "flights")
    for arguments, words in ((["--topic", "ferries"], "no table of topic 'ferries'"), ([], "no table: is it the tier.uri")):
        uri = settings.uri if arguments else str(Path(settings.uri).parent / "empty")
        Path(uri).mkdir(exist_ok=True)
        _, error = failed("verify", "--tier-uri", uri, *arguments)
        assert isinstance(error, WrongState) and words in str(error)


def test_one_table_that_is_none_is_an_error_in_one_line(tmp_path: Path) -> None:
    output, error = failed("verify", str(tmp_path / "nowhere"))
    assert output == "" and isinstance(error, WrongState) and "\n" not in str(error)


@pytest.mark.parametrize("place", ["s3://me:pa55@b/t", "az://c/t?sig=pa55"])
@pytest.mark.parametrize("option", [[], ["--sql"], ["--tier-uri"]])
def test_a_secret_in_a_place_is_refused_and_not_repeated(place: str, option: list[str]) -> None:
    output, error = failed("verify", *option, place)
    assert output == "" and isinstance(error, WrongState) and "environment" in str(error) and "pa55" not in str(error)


def test_the_keys_of_a_quorum_are_compared(settings: TierSettings, keys: Keys) -> None:
    made = fill(settings)
    keys.put_topic("flights", TOPIC_ID, 3)
    keys.put_tier(TOPIC_ID, 2, keys_of(made))
    assert "all is well" in run("verify", str(root_of(settings)), "-b", "h:1")
    keys.put_tier(TOPIC_ID, 2, keys_of(made[:-1]))
    del keys.content[tier_segment_key(TOPIC_ID, 2, 22)]
    output, _ = failed("verify", str(root_of(settings)), "-b", "h:1")
    assert f"the quorum's key says that the table ends at 22, and it ends at {END}" in output
    assert "all is well" in run("verify", str(root_of(settings)))


@pytest.mark.parametrize("variable", ["RAFTLAKE_BOOTSTRAP_SERVER", "RAFTLAKE_BOOTSTRAP_SERVERS"])
@pytest.mark.parametrize("error", [NoReachableNode(["h:1"], {}), RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "no leader")])
def test_tables_are_read_where_the_environments_nodes_do_not_answer(
    settings: TierSettings, keys: Keys, monkeypatch: pytest.MonkeyPatch, error: RaftlakeError, variable: str
) -> None:
    """The first step after the loss of all disks, with README's variable in the environment."""
    fill(settings)
    (Path(settings.uri) / f"trains-{OTHER_ID}").mkdir()
    asked: list[str] = []

    def connect(bootstrap_server: str, timeout_ms: int) -> Any:
        asked.append(bootstrap_server)
        raise error

    monkeypatch.setattr(cli_tier, "connect", connect)
    monkeypatch.setenv(variable, "h:1")
    outcome = CliRunner().invoke(cli_tier.app, ["verify", "--tier-uri", settings.uri, "--topic", "flights"])
    assert (outcome.exit_code, outcome.stdout.splitlines()[-1]) == (0, "all is well")
    assert outcome.stderr == f"the quorum's keys are not compared, only the tables are read: {error}\n"
    asked.clear()
    outcome = CliRunner().invoke(cli_tier.app, ["verify", "--tier-uri", settings.uri])
    assert outcome.exit_code == 1 and isinstance(outcome.exception, cli_tier.TableWrong)
    assert asked == ["h:1"] and outcome.stderr.count("\n") == 1
    output, raised = failed("verify", "--tier-uri", settings.uri, "-b", "h:1")
    assert output == "" and raised is error


def test_copies_may_go_on_while_keys_are_read(settings: TierSettings, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first keys are older than the table, the second ones are newer."""
    made = fill(settings)
    steps = iter((made[:2], made))

    def read(client: Any) -> QuorumTier:
        known = {TOPIC_ID: {2: keys_of(next(steps))}}
        return QuorumTier(cluster_id=CLUSTER_ID, topics={TOPIC_ID: ("flights", 3)}, keys=known, nodes={})

    monkeypatch.setattr(tier_facts, "read_quorum", read)
    assert "all is well" in run("verify", str(root_of(settings)), "-b", "h:1")
    assert next(steps, None) is None


def test_a_table_of_another_cluster_and_one_of_a_topic_that_is_gone(settings: TierSettings, keys: Keys) -> None:
    fill(settings)
    outcome = CliRunner().invoke(cli_tier.app, ["verify", str(root_of(settings)), "-b", "h:1"])
    assert outcome.exit_code == 0 and f"no topic with the id {TOPIC_ID} (any more)" in outcome.stderr
    keys.content[CLUSTER_KEY] = json.dumps({"cluster_id": OTHER_ID}).encode()
    _, error = failed("verify", str(root_of(settings)), "-b", "h:1")
    assert str(error) == f"{root_of(settings)} is of cluster {CLUSTER_ID}, the nodes are of {OTHER_ID}"


def test_the_table_of_a_deleted_topic_is_no_finding(settings: TierSettings, keys: Keys) -> None:
    made = fill(settings)
    assert DeltaTier(settings).drop(GROUP, 3) is None
    lines = run("verify", "--tier-uri", settings.uri, "--topic", "flights").splitlines()
    assert lines[1:] == ["its topic was deleted, and it has no row any more", "all is well"]
    facts = json.loads(run("verify", "--tier-uri", settings.uri, "--json"))
    assert facts["ok"] is True and facts["tables"][0]["isDropped"] is True
    # The keys go after the rows.
    keys.put_tier(TOPIC_ID, 2, keys_of(made))
    assert "all is well" in run("verify", str(root_of(settings)), "-b", "h:1")
    keys.put_topic("flights", TOPIC_ID, 3)
    output, _ = failed("verify", str(root_of(settings)), "-b", "h:1")
    assert "it has no row" in output and "was deleted" not in output


def test_another_topics_table_is_a_finding_whatever_the_keys_say(settings: TierSettings, keys: Keys) -> None:
    made = fill(settings)
    keys.put_topic("flights", TOPIC_ID, 3)
    keys.put_tier(TOPIC_ID, 2, keys_of(made[:1]))
    place = Path(settings.uri) / f"trains-{OTHER_ID}"
    shutil.copytree(root_of(settings), place)
    for more in ([], ["-b", "h:1"]):
        output, error = failed("verify", "--tier-uri", settings.uri, "--topic", "trains", *more)
        assert str(error) == "1 finding in 1 table"
        assert f"{place}: the table here is that of topic flights" in output and "rebuild-metadata" not in output


def test_sql_is_printed_and_nothing_is_read(settings: TierSettings) -> None:
    fill(settings)
    root = root_of(settings)
    for path in root.glob("partition=*/*.parquet"):
        path.unlink()
    output = run("verify", str(root), "--sql")
    assert f"delta.`{root}`" in output and "HAVING COUNT(*) > 1" in output
    assert run("verify", "--tier-uri", settings.uri, "--sql") == output
    assert DeltaTable(root).version() == 4
    # A store may be one that only the engine can read.
    assert "delta.`s3://bucket/t`" in run("verify", "s3://bucket/t", "--sql")


def test_sql_names_a_table_that_is_there_from_everywhere(settings: TierSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(settings)
    root = root_of(settings)
    monkeypatch.chdir(root.parent)
    assert f"delta.`{root}`" in run("verify", root.name, "--sql")
    assert f"delta.`{root}`" in run("verify", "--tier-uri", ".", "--sql")
    output, error = failed("verify", "nowhere", "--sql")
    assert output == "" and isinstance(error, WrongState) and "there is no Delta table at" in str(error)


@pytest.mark.parametrize(("arguments", "key"), [(["--tier-uri"], "--tier-uri"), ([], "TABLE")])
def test_a_store_that_there_is_none_of_is_told_with_those_that_there_are(arguments: list[str], key: str) -> None:
    for more in ([], ["--sql"]):
        _, error = failed("verify", *arguments, "ftp://x/y", *more)
        assert isinstance(error, ConfigError) and str(error).startswith(f"{key}=ftp://x/y: unknown scheme ftp; accepted is")


@pytest.mark.parametrize("more", [[], ["--sql"]])
def test_the_place_of_the_tables_given_as_one_table(settings: TierSettings, more: list[str]) -> None:
    fill(settings)
    output, error = failed("verify", settings.uri, *more)
    assert output == "" and isinstance(error, WrongState)
    assert str(error).endswith(f"there are tables below it: give --tier-uri {settings.uri}")
    _, error = failed("verify", str(root_of(settings) / "partition=2"), *more)
    assert "--tier-uri" not in str(error)


def test_a_table_given_as_the_place_of_the_tables(settings: TierSettings) -> None:
    """Its own directories are no tables: nobody shall move them away."""
    fill(settings)
    for more in ([], ["--topic", "flights"], ["--sql"]):
        output, error = failed("verify", "--tier-uri", str(root_of(settings)), *more)
        assert output == "" and isinstance(error, WrongState)
        assert str(error) == f"{root_of(settings)} is a table itself, and not the place of the tables (tier.uri)"


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["verify", "x", "--tier-uri", "y"],
        ["verify", "x", "--topic", "t"],
        ["verify", "--sql"],
        ["verify", ""],
        ["verify", "--tier-uri", ""],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli.app, ["tier", *arguments]).exit_code == 2


def test_long_work_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(cli_tier, "note", said.append)
    clock = SimpleNamespace(now=0.0)
    watch = cli_tier._Watch(lambda: clock.now)
    for clock.now, rows, file in ((1.0, 0, "a"), (5.0, 0, "b"), (9.0, 5, None), (10.0, 8, None), (10.5, 9, None)):
        watch.tell(Progress(table="t", partition=2, rows=rows, rows_total=9, file=file))
    assert said == ["t: partition 2: file b", "t: partition 2: 8 of 9 rows"]


def test_without_the_packages_verify_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch, keys: Keys) -> None:
    for name in [name for name in sys.modules if name.startswith(("deltalake", "raftlake.tier.reader", "raftlake.tier.store"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    _, error = failed("verify", "somewhere")
    assert isinstance(error, MachineError) and "pip install 'raftlake[tier]'" in str(error) and "deltalake" in str(error)
    # The state of the tier can be asked for without them.
    keys.put_topic("orders", OTHER_ID, 1)
    assert "orders" in run("status")


def test_status_loads_neither_delta_nor_arrow() -> None:
    code = (
        "import raftlake.cli.main, sys; a = {'deltalake', 'pyarrow', 'numba', 'httpx'} & set(sys.modules)\n"
        "import raftlake.cli.tier_facts; print(sorted(a | {'deltalake', 'pyarrow', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
