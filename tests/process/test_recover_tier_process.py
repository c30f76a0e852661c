"""Recoveries of node processes beside real Delta tables: all disks are lost, or a survivor lacks what its table shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import waitkit
from contract.tier_contract import request_for
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.client.reader import records_from
from raftlake.errors import WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, TierError, TierFailure
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.reader import TopicHistory, tables_at
from raftlake.wire.batches import Record, build_batch
from votekit import changed, start_node

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=90)
SETTINGS = {"tier.target.lag.ms": "1000", "tier.flush.bytes": "65536"}
TOPIC = "orders"


def raftlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftlake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


@contextmanager
def served(config: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "raftlake", "serve", "--config", str(config)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def history_of(tables: Path, topic: str) -> TopicHistory:
    (uri,) = tables_at(str(tables), topic)
    return TopicHistory(uri)


def ends(client: Client, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
    found = {topic: client.read_offset(topic, list(range(count))) for topic, count in partitions.items()}
    return {(topic, index): end for topic, each in found.items() for index, end in each.items()}


def wait_for_copies(client: Client, tables: Path, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Until the tables show all that is committed; where each partition ends then."""

    def copied() -> dict[tuple[str, int], int] | None:
        wanted = ends(client, partitions)
        try:
            shown = {(topic, index): history_of(tables, topic).offsets(index) for topic, index in wanted}
        except (WrongState, ValueError):
            # No directory of the table yet, or one without its first commit.
            return None
        return wanted if all(each is not None and each.end == wanted[key] for key, each in shown.items()) else None

    return wait_until(copied, "copies of everything")  # type: ignore[no-any-return]


def values_of(client: Client, topic: str, partition: int = 0) -> list[bytes | None]:
    """From the beginning, as a consumer reads it."""
    end = client.read_offset(topic, [partition])[partition]
    found: list[bytes | None] = []
    offset = 0
    while offset < end:
        fetched = client.fetch_raw(topic, partition, offset, limit_offset=end)
        found += [record.value for record in records_from(fetched, topic, partition, offset)]
        offset = fetched.next_offset
    return found


def shown(tables: Path, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that the table shows of clients' records."""
    batches = history_of(tables, topic).read(partition, columns=["kind", "value"])
    pairs = [pair for batch in batches for pair in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return [value for kind, value in pairs if kind == 0]


def require_clean(tables: Path, bootstrap: str) -> None:
    done = raftlake("tier", "verify", "--tier-uri", str(tables), "-b", bootstrap)
    assert (done.returncode, done.stdout.count("all is well")) == (0, len(tables_at(str(tables)))), done.stdout + done.stderr


def config_of(source: Path, to: Path, directory: Path) -> str:
    """The settings of a node with a new directory, in which it votes alone; the address of the node."""
    lines = dict(line.split("=", 1) for line in source.read_text().splitlines() if line and not line.startswith("#"))
    (alone,) = [voter for voter in lines["quorum.voters"].split(",") if voter.startswith(lines["node.id"] + "@")]
    lines |= {"log.dirs": str(directory), "quorum.voters": alone}
    to.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return alone.partition("@")[2]


def fill(client: Client, topic: str, partition: int, what: str, count: int) -> list[bytes | None]:
    values = [f"{what} {partition} {number}".encode() for number in range(count)]
    client.append_many(topic, values, partition=partition)
    return list(values)


def test_a_quorum_that_lost_all_disks_goes_on_where_its_tables_end(tmp_path: Path) -> None:
    tables, partitions = tmp_path / "tables", {TOPIC: 2, "clicks": 1}
    tables.mkdir()
    values: dict[tuple[str, int], list[bytes | None]] = {}
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings={"tier.uri": str(tables), **SETTINGS}) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            cluster_id = client.describe_cluster().cluster_id
            for topic, count in partitions.items():
                topic_id = client.create_topic(topic, partitions=count).topic_id
                for index in range(count):
                    values[topic, index] = fill(client, topic, index, topic, 300)
            client.kv.put("k", b"lost with the disks")
            copied = wait_for_copies(client, tables, partitions)
            client.create_topic("never-copied")
        config = tmp_path / "one.properties"
        address = config_of(quorum.nodes[1].properties, config, tmp_path / "one")
    shutil.rmtree(tmp_path / "quorum")
    told = raftlake("recover", "--from-tier", "--config", str(config))
    assert told.returncode == 0 and not (tmp_path / "one").exists(), told.stderr
    rows = {(line[0], int(line[1])): int(line[3]) for line in map(str.split, told.stdout.splitlines()[1:4])}
    assert rows == copied
    assert told.stdout.rstrip().endswith(f"raftlake recover --from-tier --config {config} --confirm {cluster_id}")
    done = raftlake("recover", "--from-tier", "--config", str(config), "--confirm", str(cluster_id))
    assert done.returncode == 0, done.stderr
    with served(config), Client(address, request_timeout_ms=60_000) as client:
        wait_until(lambda: {topic.name for topic in client.topics()} == set(partitions), "the topics that have tables")
        assert client.describe_cluster().cluster_id == cluster_id and client.kv.get("k") is None
        for (topic, index), expected in values.items():
            assert values_of(client, topic, index) == expected
            assert client.append(topic, b"afterwards", partition=index).offset >= copied[topic, index]
            expected.append(b"afterwards")
        wait_for_copies(client, tables, partitions)
        assert {key: values_of(client, *key) for key in values} == values
        assert {key: shown(tables, *key) for key in values} == values
        require_clean(tables, address)
        stale = request_for(
            bytes(build_batch([Record(value=b"stale")], base_offset=copied["clicks", 0], leader_epoch=1, timestamp_ms=0)),
            "stale",
            1,
            Lineage(GroupId("clicks", 0, topic_id), 0),
        )
        answer = DeltaTier(TierSettings(uri=str(tables), cluster_id=str(cluster_id))).copy(stale)
        assert isinstance(answer, TierError) and answer.failure is TierFailure.FENCED, "a leader from before"
        join_another(tmp_path, str(cluster_id), address, tables)


def join_another(place: Path, cluster_id: str, address: str, tables: Path) -> None:
    """A new, empty node votes, and has what the first one has behind the table."""
    process, other = start_node(place / "node-2", 2, cluster_id, address, **{"tier.uri": str(tables), **SETTINGS})
    try:
        assert changed(address, "add", f"2@{other}") == [1, 2]
        with Client(other) as client:
            assert client.append("clicks", b"with two voters").offset > 0
            assert values_of(client, "clicks")[-2:] == [b"afterwards", b"with two voters"]
    finally:
        process.kill()
        process.wait()


def test_a_survivor_that_lacks_what_its_table_shows_needs_the_operators_word(tmp_path: Path) -> None:
    tables, home = tmp_path / "tables", tmp_path / "quorum"
    tables.mkdir()
    with LocalQuorum(3, data_dir=home, settings={"tier.uri": str(tables), **SETTINGS}) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic(TOPIC)
            kept = fill(client, TOPIC, 0, "kept", 200)
            wait_for_copies(client, tables, {TOPIC: 1})

            def followed() -> bool:
                voters = client.describe_quorum(TOPIC, 0).voters
                return len({voter.log_end_offset for voter in voters}) == 1

            wait_until(followed, "equal logs")
            survivor = next(node for node in (1, 2, 3) if node != leader_of(client, TOPIC))
            quorum.kill(survivor)
            leader_of(client, TOPIC)
            lost = fill(client, TOPIC, 0, "lost", 100)
            wait_for_copies(client, tables, {TOPIC: 1})
            cluster_id = str(client.describe_cluster().cluster_id)
        config = tmp_path / "survivor.properties"
        address = config_of(quorum.nodes[survivor].properties, config, home / f"node-{survivor}")
    assert shown(tables, TOPIC) == [*kept, *lost]
    end = json.loads(raftlake("recover", "--config", str(config), "--json").stdout)[0]["logEnd"]
    refused = raftlake("recover", "--config", str(config), "--confirm", cluster_id)
    assert refused.returncode == 1
    assert f"{TOPIC}-0: its table shows offsets up to" in refused.stderr and f"this log ends at {end}: " in refused.stderr
    assert "Nothing was changed" in refused.stderr and "`--unclean`" in refused.stderr and "`--from-tier`" in refused.stderr
    assert json.loads(raftlake("recover", "--config", str(config), "--json").stdout)[0]["logEnd"] == end
    done = raftlake("recover", "--config", str(config), "--unclean", "--confirm", cluster_id)
    assert done.returncode == 0, done.stderr
    with served(config), Client(address, request_timeout_ms=60_000) as client:
        wait_until(lambda: [topic.name for topic in client.topics()] == [TOPIC], "the topic")
        after = fill(client, TOPIC, 0, "after", 50)
        wait_until(lambda: values_of(client, TOPIC) == [*kept, *after], "the survivor's history")
        wait_until(lambda: shown(tables, TOPIC) == [*kept, *after], "the same in the table")
        wait_for_copies(client, tables, {TOPIC: 1})
        require_clean(tables, address)
        history = history_of(tables, TOPIC)
        files = history.superseded(0)
        batches = [batch for file in files for batch in history.read_superseded(file, ["kind", "value"])]
        found = {
            value for batch in batches for kind, value in zip(*map(list, batch.to_pydict().values()), strict=True) if not kind
        }
        assert set(lost) <= found <= {*kept, *lost}, "what left the table is reachable"
