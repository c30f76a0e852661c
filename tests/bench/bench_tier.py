"""The remote tier: rows that one worker uploads, what uploads cost the live log, a new follower, and the size of a table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from bench_bulk import PARTITIONS, produce
from bench_records import make_values
from load import run_load
from measure import Result, Rounds, median, percentile, rounded
from our_nodes import create_topic, our_quorum, partition_address
from processes import HOST, free_ports, wait_until
from raftlake import LocalQuorum
from raftlake.arrow.records import LOADER, encode_from_arrow
from raftlake.client import Client
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, Lineage, RemoteSegment
from raftlake.quickstart import data, history
from raftlake.raft.types import Epoch, Offset
from raftlake.runtime.format import format_data_dir
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.wire.batches import iterate_headers, stamp
from raw_producer import ProduceConnection, produce_request

ROWS = 1_000_000
ROW_BYTES = 100
ROUNDS = 5
APPENDS = 4_000
BULK_BYTES = 200 << 20
#: Of the history of a new follower, and of what its leader has locally.
TIERED_BYTES = 1 << 30
LOCAL_BYTES = 100 << 20
FOLLOWED = "followed"
LIVE = "live"


def measure(directory: Path) -> Iterator[Result]:
    yield upload(directory / "upload")
    yield live_appends(directory)
    yield flights(directory / "flights")
    yield new_follower(directory)


# --- upload -----------------------------------------------------------------------------------------------------------


def upload(directory: Path) -> Result:
    """Decode, Parquet, sync and commit of a million rows, in this process as in the worker's."""
    batches = segment()
    headers = list(iterate_headers(batches))
    end = headers[-1].end_offset
    taken: list[float] = []
    for number in range(ROUNDS + 1):
        request = CopyRequest(
            lineage=Lineage(GroupId("rows", number, bytes(range(16))), 0),
            segment_id=f"segment-{number}",
            base_offset=Offset(0),
            end_offset=Offset(end),
            leader_epoch=Epoch(1),
            epochs=((Epoch(1), Offset(0)),),
            sources=(batches,),
            auxiliary=b"",
        )
        tier = DeltaTier(TierSettings(uri=str(directory), cluster_id="bench"))
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = tier.copy(request)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        assert isinstance(answer, RemoteSegment), answer
        if number:
            # The first one loads the compiled loops.
            taken.append(seconds)
    return Result(
        name="upload to the tier, one worker",
        value=end / median(taken),
        unit="rows/s",
        method=f"{end:,} rows of {ROW_BYTES} B in batches of 64 KiB: decode, Parquet, sync, commit; median of {ROUNDS}",
        at_least=500_000,
        details={"seconds": rounded(taken), "cpu_seconds_of_the_last": round(cpu, 3), "bytes_in_the_table": answer.size},
    )


def segment() -> bytes:
    values = make_values(ROWS, ROW_BYTES, seed=1)
    found = encode_from_arrow(None, values, timestamp_ms=1_700_000_000_000, batch_bytes_max=64 << 10, loader=LOADER)
    offset = 0
    for batch in found:
        (header,) = iterate_headers(batch)
        stamp(batch, 0, offset, 1)
        offset += header.record_count
    return b"".join(found)


# --- what uploads cost the live log -------------------------------------------------------------------------------------


def live_appends(
    directory: Path,
    *,
    prepare: Callable[[LocalQuorum], None] | None = None,
    nodes: str = "",
    ratio_at_most: float | None = 1.3,
) -> Result:
    """The same appends while a bulk is uploaded from the same nodes, and where the nodes have no tier.

    Args:
        directory: where the quorums and the tables go.
        prepare: called with the quorum that uploads, before it has anything to upload.
        nodes: how the nodes run, for the name of the result.
        ratio_at_most: the budget of the ratio; None reports only.
    """
    tier = {"tier.uri": str(directory / "tables"), "tier.flush.bytes": "33554432"}
    uploaded: list[int] = []
    with our_quorum(directory / "with", tier) as ours, our_quorum(directory / "without") as plain:
        for quorum in (ours, plain):
            create_topic(quorum, LIVE, 1)
        if prepare is not None:
            prepare(ours)
        bulks = (f"bulk-{number}" for number in count())

        def p99(quorum: LocalQuorum) -> float:
            bulk = next(bulks)
            create_topic(quorum, bulk, PARTITIONS)
            produce(quorum.bootstrap_servers, bulk, BULK_BYTES)
            before = copied_bytes(quorum)
            found = append_p99(quorum)
            if quorum is ours:
                uploaded.append(copied_bytes(quorum) - before)
            with Client(quorum.bootstrap_servers) as client:
                client.delete_topic(bulk)
            return found

        return (
            Rounds()
            .alternate(3, lambda: p99(ours), lambda: p99(plain))
            .result(
                name="append p99 while history is uploaded" + nodes,
                unit="ms",
                method=f"100 B, 1 in flight, {APPENDS:,} a round, right behind a bulk of {BULK_BYTES >> 20} MiB; the peer is a "
                "quorum without a tier",
                peer="no tier",
                ratio_at_most=ratio_at_most,
                details={"bytes_uploaded_meanwhile": uploaded},
            )
        )


def append_p99(quorum: LocalQuorum) -> float:
    """Milliseconds of an append to the topic `live`, one at a time."""
    new = partial(ProduceConnection, produce_request(LIVE, 0, bytes(100)), 1)
    load = run_load(partition_address(quorum, LIVE), new, connections=1, requests=APPENDS)
    return percentile(load.latencies_ms, 99)


def copied_bytes(quorum: LocalQuorum) -> int:
    """What all nodes have copied since their start, by their metrics."""
    total = 0
    for node in quorum.nodes.values():
        page = urllib.request.urlopen(f"http://{node.http_address}/metrics", timeout=10).read().decode()
        lines = [line for line in page.splitlines() if line.startswith("raftlake_tier_log_bytes_total ")]
        total += sum(int(float(line.split()[1])) for line in lines)
    return total


# --- size on disk -------------------------------------------------------------------------------------------------------


def flights(directory: Path) -> Result:
    """All flights of the quickstart as JSON records, each batch not compressed: the log of one node, and the table."""
    table = data.load_flights()
    tables = directory / "tables"
    with our_quorum(directory / "quorum", history.settings(tables)) as quorum, Client(quorum.bootstrap_servers) as client:
        client.create_topic("flights", partitions=4)
        rows = table.to_pylist()
        for first in range(0, len(rows), 1000):
            values = [json.dumps(row).encode() for row in rows[first : first + 1000]]
            client.append_many("flights", values, partition=first // 1000 % 4)
        ends = client.read_offset("flights", [0, 1, 2, 3])
        wait_until(lambda: copied_ends(tables) == ends, "the table of the flights", 120)
        log = history.log_bytes(sorted(Path(quorum.data_dir).glob("node-*")), "flights")
    size = sum(path.stat().st_size for path in tables.rglob("*.parquet"))
    shutil.rmtree(directory)
    return Result(
        name="size of the flights' table against the log",
        value=size / log,
        unit="x",
        method=f"{len(rows):,} JSON records, batches of 1,000, not compressed; zstd in the table",
        details={"table_bytes": size, "log_bytes": log},
    )


def copied_ends(tables: Path) -> dict[int, int]:
    from raftlake.errors import WrongState
    from raftlake.tier.reader import TopicHistory, tables_at

    try:
        (uri,) = tables_at(str(tables), "flights")
        found = TopicHistory(uri)
    except (WrongState, ValueError):
        return {}
    return {partition: known.end for partition in range(4) if (known := found.offsets(partition)) is not None}


# --- a new follower -----------------------------------------------------------------------------------------------------


def new_follower(directory: Path) -> Result:
    """A node that joins a quorum with a long history in the table, and one that joins where there is only the local part."""
    tier = {
        "tier.uri": str(directory / "history"),
        "tier.target.lag.ms": "2000",
        "log.segment.bytes": str(8 << 20),
        "tier.flush.bytes": str(8 << 20),
        "local.retention.bytes": str(LOCAL_BYTES // PARTITIONS),
    }
    with our_quorum(directory / "long", tier) as long, our_quorum(directory / "short") as short:
        create_topic(long, FOLLOWED, PARTITIONS)
        produce(long.bootstrap_servers, FOLLOWED, TIERED_BYTES)
        local = settled_local_bytes(long)
        create_topic(short, FOLLOWED, PARTITIONS)
        produce(short.bootstrap_servers, FOLLOWED, local)
        joined = iter(range(4, 100))
        rounds = Rounds().alternate(
            3,
            lambda: join(long, next(joined), {"tier.uri": tier["tier.uri"]}),
            lambda: join(short, next(joined), {}),
        )
        return rounds.result(
            name="new follower with a history in the tier",
            unit="s",
            method=f"{TIERED_BYTES >> 20} MiB in {PARTITIONS} partitions, {local >> 20} MiB of them local, from the start of "
            "the node until it has everything; the peer is a quorum with as much as the local part, and no tier",
            peer="the local part alone",
            ratio_at_most=1.3,
            details={"local_bytes": local_bytes(long)},
        )


def settled_local_bytes(quorum: LocalQuorum) -> int:
    """What a node has locally when all that may go has gone: whole segments stay."""
    seen: list[int] = []

    def settled() -> bool:
        seen.append(local_bytes(quorum))
        # Retention looks each five seconds.
        return seen[-1] < 2 * LOCAL_BYTES and len(set(seen[-20:])) == 1 and len(seen) > 20

    wait_until(settled, "short local logs", 300, poll_s=0.5)
    return seen[-1]


def local_bytes(quorum: LocalQuorum) -> int:
    return history.log_bytes(sorted(Path(quorum.data_dir).glob("node-*")), FOLLOWED)


def join(quorum: LocalQuorum, node_id: int, more: dict[str, str]) -> float:
    """Seconds until a new node has all that the leaders have."""
    directory = Path(quorum.data_dir) / f"new-{node_id}"
    with Client(quorum.bootstrap_servers) as client:
        cluster_id = client.describe_cluster().cluster_id
        format_data_dir(directory, node_id, cluster_id)
        port, http_port = free_ports(2)
        config = directory.with_suffix(".properties")
        settings = {
            "node.id": str(node_id),
            "log.dirs": str(directory),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "http.listener": f"{HOST}:{http_port}",
            "quorum.bootstrap.servers": quorum.bootstrap_servers,
            **more,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        began = time.perf_counter()
        node = subprocess.Popen([sys.executable, "-m", "raftlake", "serve", "--config", str(config)], stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: has_all(client, node_id), f"node {node_id} to have everything", 300, poll_s=0.05)
            return time.perf_counter() - began
        finally:
            node.terminate()
            node.wait()
            shutil.rmtree(directory)


def has_all(client: Client, node_id: int) -> bool:
    for partition in range(PARTITIONS):
        described = client.describe_quorum(FOLLOWED, partition)
        ends = {each.replica_id: each.log_end_offset for each in described.observers}
        if ends.get(node_id, -1) < described.high_watermark:
            return False
    return True
