"""Very many producers that open a transaction and leave it: what the nodes hold, whom they keep waiting, and what is left.

The time limits abort all of it, over a killed coordinator. A thousand transactions here; `pytest -m bench` with this file has
ten thousand, and prints its measures. A time limit has to outlast the opening of all of them, however busy the machine is. So
the time limit follows from how long the first ones took.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from pathlib import Path

import httpx
import pytest
from crowdkit import Crowd
from siegekit import Footprint, HonestProducer, Siege, p99_s

from raftlake import Client, LocalQuorum
from raftlake.client import IsolationLevel
from raftlake.errors import ErrorCode
from raftlake.replica.transaction_entry import ID_BYTES_MAX
from raftlake.wire.batches import BatchHeader, Record, decode_records, iterate_headers
from waitkit import wait_until

pytestmark = pytest.mark.process

PARTITIONS = 3
PATIENCE_S = 240
#: Of the resident memory of one node: what comes with the work itself, and with each open transaction.
GROWTH_MIB, GROWTH_KIB_EACH = 64, 8
LOOP_LAG_MS_MAX = 1_000
#: The time limit, beside how long the opening of all should take.
SLACK = 2
LIMIT_MS_MIN = 6_000
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


def loop_lag_ms(quorum: LocalQuorum) -> float:
    """The longest pause of any node's loop in the last 30 s."""
    found = []
    for node_id in quorum.running():
        url = f"http://{quorum.nodes[node_id].http_address}/metrics"
        text = httpx.get(url, trust_env=False, timeout=PATIENCE_S).text
        found += [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("raftlake_loop_lag_ms_max")]
    return max(found)


def memory_mib(quorum: LocalQuorum) -> dict[int, float]:
    return {node_id: Footprint.of(quorum.pid(node_id)).memory_mib for node_id in quorum.running()}


def _records(buffer: memoryview, header: BatchHeader) -> list[Record]:
    return [] if header.is_control else decode_records(buffer[header.position : header.end_position])


def committed(client: Client) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        end, position = client.read_stable_offset("t", [partition])[partition], 0
        while position < end:
            fetched = client.fetch_raw("t", partition, position, isolation=IsolationLevel.READ_COMMITTED)
            for buffer in fetched.buffers:
                found += [record.value or b"" for header in iterate_headers(buffer) for record in _records(buffer, header)]
            position = fetched.next_offset
    return found


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.bench)])
def test_open_transactions_that_are_left_are_all_aborted_over_a_killed_coordinator(tmp_path: Path, count: int) -> None:
    with LocalQuorum(nodes=3, data_dir=tmp_path) as quorum, contextlib.ExitStack() as stack:
        with Client(quorum.bootstrap_servers) as client:
            client.create_topic("t", partitions=PARTITIONS)
        honest = HonestProducer.to_a_new_topic(quorum)
        in_peace = p99_s(honest)[0]
        crowd = Crowd(quorum, "t", PARTITIONS)
        stack.enter_context(crowd.connected())
        before, began = memory_mib(quorum), time.monotonic()
        with honest.beside():
            kept = crowd.begin(count // 10, timeout_ms=600_000)
            timeout_ms = max(LIMIT_MS_MIN, int(1_000 * SLACK * (time.monotonic() - began) * count / len(kept)))
            patience_s = PATIENCE_S + timeout_ms / 1_000
            left = crowd.begin(count - len(kept), timeout_ms=timeout_ms)
        opened_s = time.monotonic() - began
        assert crowd.states() == {"Ongoing": count}
        open_mib, lags = memory_mib(quorum), [loop_lag_ms(quorum)]
        beside = p99_s(honest)[0]
        began = time.monotonic()
        with honest.beside():
            wait_until(lambda: crowd.states()["Ongoing"] <= len(kept) + len(left) // 2, "half are aborted", patience_s)
            half_s = time.monotonic() - began
            lags.append(loop_lag_ms(quorum))
            killed = quorum.leader()
            quorum.kill(killed)
            began = time.monotonic()
            wait_until(lambda: crowd.states().get("Ongoing", 0) == len(kept), "all are aborted that were left", patience_s)
            rest_s = time.monotonic() - began
            assert set(crowd.end(kept, commit=True)) == {ErrorCode.NONE}
            quorum.start(killed)
            done = {"CompleteAbort": len(left), "CompleteCommit": len(kept)}
            wait_until(lambda: crowd.states() == done, "all markers are written", PATIENCE_S)
            assert set(crowd.end(left[::50], commit=True)) <= FENCED
        lags.append(loop_lag_ms(quorum))
        after = memory_mib(quorum)
        honest.check()
        with Client(quorum.bootstrap_servers) as client:
            assert sorted(committed(client)) == sorted(producer.value for producer in kept)
            ends = client.read_offset("t", list(range(PARTITIONS)))
            assert client.read_stable_offset("t", list(range(PARTITIONS))) == ends
        grown_mib = max(open_mib[node_id] - before[node_id] for node_id in before)
        print(
            f"\n{count} transactions, {len(kept)} of them kept: open in {opened_s:.1f} s, "
            f"half aborted {half_s:.1f} s after, the rest {rest_s:.1f} s after the kill (time limit {timeout_ms} ms)\n"
            f"memory MiB before {_mib(before)}, open {_mib(open_mib)}, after {_mib(after)}: "
            f"{grown_mib * 1024 / count:.2f} KiB a transaction at most\n"
            f"p99 of plain appends: {in_peace * 1e3:.1f} ms before, {beside * 1e3:.1f} ms with all of them open\n"
            f"longest pauses of a loop: {lags} ms (open, half, end), median {statistics.median(lags):.0f}"
        )
        assert grown_mib <= GROWTH_MIB + GROWTH_KIB_EACH * count / 1024
        assert max(lags) <= LOOP_LAG_MS_MAX


def test_the_longest_id_a_second_end_and_a_deleted_topic(siege: Siege) -> None:
    """The coordinator's key of a long id stands under its hash. A marker that has no partition any more is done."""
    quorum = siege.quorum
    with siege.attack("transactions that are odd"), Client(quorum.bootstrap_servers) as client, contextlib.ExitStack() as stack:
        crowds = [Crowd(quorum, topic, partitions=1) for topic in ("stays", "goes")]
        for crowd, topic in zip(crowds, ("stays", "goes"), strict=True):
            client.create_topic(topic)
            stack.enter_context(crowd.connected())
        stays, goes = (crowd.begin(20, timeout_ms=600_000, id_bytes=ID_BYTES_MAX) for crowd in crowds)
        assert {len(producer.transactional_id) for producer in stays + goes} == {ID_BYTES_MAX}
        client.delete_topic("goes")
        for crowd, producers in zip(crowds, (stays, goes), strict=True):
            for commit, told in ((True, ErrorCode.NONE), (True, ErrorCode.NONE), (False, ErrorCode.INVALID_TXN_STATE)):
                assert set(crowd.end(producers, commit=commit)) == {told}
        wait_until(lambda: crowds[0].states() == {"CompleteCommit": 40}, "all of them are complete", PATIENCE_S)
        records = client.read("stays", 0, 0, max_bytes=8 << 20)
        assert sorted(record.value or b"" for record in records) == sorted(producer.value for producer in stays)


def _mib(found: dict[int, float]) -> str:
    return "/".join(f"{mib:.0f}" for mib in found.values())
