"""History as a Delta table while leaders die: each committed offset once, with what was written, whoever copied it."""

from __future__ import annotations

import http.client
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import waitkit
from leaderkit import leader_of
from raftlake import Client, LocalQuorum
from raftlake.errors import RaftlakeError

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=60)
SETTINGS = {"tier.target.lag.ms": "1000", "tier.flush.bytes": "65536"}


def statuses(quorum: LocalQuorum) -> list[dict[str, Any]]:
    """What the running nodes say of the partitions that they lead."""
    found: list[dict[str, Any]] = []
    for node_id in quorum.running():
        connection = http.client.HTTPConnection(quorum.nodes[node_id].http_address, timeout=5)
        try:
            connection.request("GET", "/v1/tier")
            found += json.loads(connection.getresponse().read())["partitions"]
        except (OSError, http.client.HTTPException):
            return []
        finally:
            connection.close()
    return found


def all_is_copied(quorum: LocalQuorum, partitions: int) -> bool:
    found = statuses(quorum)
    return len(found) == partitions and all(each["copiedEndOffset"] == each["highWatermark"] for each in found)


def rows(uri: Path) -> dict[int, list[tuple[int, int, bytes | None]]]:
    """By partition: offset, kind and value of each row, in the order of offsets."""
    from deltalake import DeltaTable, QueryBuilder

    (table,) = uri.iterdir()
    query = 'select "partition", "offset", kind, value from t order by "partition", "offset"'
    found: dict[int, list[tuple[int, int, bytes | None]]] = {}
    for batch in QueryBuilder().register("t", DeltaTable(table)).execute(query):
        columns = [batch[index].to_pylist() for index in range(4)]
        for index, offset, kind, value in zip(*columns, strict=True):
            found.setdefault(index, []).append((offset, kind, value))
    return found


def test_each_committed_record_is_in_the_table_once_whatever_is_killed(tmp_path: Path) -> None:
    uri = tmp_path / "tables"
    acknowledged: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
    with LocalQuorum(3, data_dir=tmp_path / "quorum", settings={"tier.uri": str(uri), **SETTINGS}) as quorum:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("orders", partitions=2)
            for round_number in range(6):
                for number in range(40):
                    index, value = number % 2, b"%d-%d" % (round_number, number)
                    try:
                        offset = client.append("orders", value, partition=index).offset
                    except RaftlakeError:
                        continue
                    acknowledged[index][offset] = value
                wait_until(lambda: any(uri.glob("*/partition=*/*.parquet")), "a first copy")
                victim = leader_of(client, "orders", round_number % 2)
                quorum.kill(victim)
                quorum.start(victim)
            wait_until(lambda: all_is_copied(quorum, 2), "everything is copied")
            ends = client.read_offset("orders", [0, 1])
    found = rows(uri)
    assert {index: [offset for offset, _, _ in rows] for index, rows in found.items()} == {
        index: list(range(end)) for index, end in ends.items()
    }
    for index, expected in acknowledged.items():
        values = {offset: value for offset, kind, value in found[index] if kind == 0}
        assert len(expected) > 100 and {offset: values[offset] for offset in expected} == expected
