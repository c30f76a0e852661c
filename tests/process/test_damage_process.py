"""Node processes whose files were damaged while they were down, and while they ran, under a client that writes."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

import waitkit
from raftlake import Client, LocalQuorum
from raftlake.errors import UnknownOutcome
from waitkit import attempt

pytestmark = pytest.mark.process
wait_until = partial(waitkit.wait_until, seconds=30)

METADATA = "__cluster_metadata-0"
SETTINGS = {
    "log.segment.bytes": "16384",
    "log.retention.bytes": "40000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "quorum.fetch.snapshot.max.bytes": "4096",
}


class Writer:
    """Puts keys in turn and appends to `trimmed`; `keys` has what was acknowledged last, without a key whose last write may or
    may not have happened."""

    def __init__(self, quorum: LocalQuorum) -> None:
        self.keys: dict[str, int] = {}
        self._quorum = quorum
        self._is_over = threading.Event()

    def _write(self) -> None:
        with Client(self._quorum.bootstrap_servers) as client:
            number = 0
            while not self._is_over.is_set():
                number += 1
                key = f"key{number % 20}"
                client.append("trimmed", b"%d" % number + os.urandom(400))
                self.keys.pop(key, None)
                try:
                    client.kv.put(key, b"%d " % number + bytes(300))
                except UnknownOutcome:
                    # The node that passed it on went away.
                    continue
                self.keys[key] = number

    @contextmanager
    def writing(self) -> Iterator[None]:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._write()
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        self._is_over.clear()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
        assert errors == []


def terminate(quorum: LocalQuorum, node_id: int) -> None:
    os.kill(quorum.pid(node_id), signal.SIGTERM)
    wait_until(lambda: node_id not in quorum.running(), "the node stops")


def snapshots(quorum: LocalQuorum, node_id: int, partition: str) -> list[Path]:
    found = quorum.nodes[node_id].directory.joinpath(partition).glob("*.checkpoint")
    return sorted(path for path in found if int(path.name[:20]) > 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def ask(quorum: LocalQuorum, node_id: int, path: str) -> bytes | None:
    """A 200 answer of one node; it may be too busy to give one."""
    try:
        answer = httpx.get(f"http://{quorum.nodes[node_id].http_address}{path}", trust_env=False)
    except httpx.HTTPError:
        return None
    return answer.content if answer.status_code == 200 else None


def is_whole(quorum: LocalQuorum, node_id: int) -> bool:
    said = ask(quorum, node_id, "/health/live")
    return said is not None and not json.loads(said).get("impaired")


def stale(quorum: LocalQuorum, node_id: int, key: str) -> int:
    """The number in a key's value as one node has applied it."""
    value = ask(quorum, node_id, f"/v1/kv/{key}?consistency=stale")
    return 0 if value is None else int(value.split()[0])


def repair(quorum: LocalQuorum, client: Client) -> tuple[int, int] | None:
    """Damage the files of a node that leads nothing, and see it repair them. The leader of `quiet`, which must be the same
    throughout, and the node; None where it is not the same."""
    wait_until(
        lambda: all(snapshots(quorum, node, part) for node in (1, 2, 3) for part in (METADATA, "trimmed-0")),
        "all nodes have snapshots of both kinds",
    )
    before = client.describe_quorum("quiet", 0)
    damaged = next(node for node in (1, 2, 3) if node not in (before.leader_id, quorum.leader()))
    terminate(quorum, damaged)
    directory = quorum.nodes[damaged].directory
    for path in snapshots(quorum, damaged, METADATA) + snapshots(quorum, damaged, "trimmed-0"):
        flip(path)
    # The end of a log that nobody writes to: how far did it reach?
    (segment,) = directory.joinpath("quiet-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 5)
    quorum.start(damaged)
    wait_until(lambda: is_whole(quorum, damaged), "the node is whole again")
    assert {path.parent.name for path in directory.glob("*/damaged-*")} == {METADATA, "trimmed-0", "quiet-0"}
    after = client.describe_quorum("quiet", 0)
    is_same = (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    return (before.leader_id, damaged) if is_same else None


def test_damaged_snapshots_and_a_damaged_end_are_repaired_and_the_node_votes(tmp_path: Path) -> None:
    with LocalQuorum(3, data_dir=tmp_path, settings=SETTINGS) as quorum, Client(quorum.bootstrap_servers) as client:
        for topic in ("trimmed", "quiet"):
            client.create_topic(topic)
        kept = [b"record %d" % number for number in range(20)]
        for value in kept:
            client.append("quiet", value)
        writer = Writer(quorum)
        with writer.writing():
            # A leader may lose its office for other reasons; then the node is damaged once more.
            leader_id, damaged = attempt(partial(repair, quorum, client), "a repair that disturbs no leader")

        def has_all(node_id: int) -> bool:
            return all(stale(quorum, node_id, key) == number for key, number in writer.keys.items())

        wait_until(lambda: has_all(damaged), f"the repaired node has applied all keys: {writer.keys}")

        # With the leader gone the repaired node's vote is needed, in all groups.
        gone = leader_id
        quorum.kill(gone)
        assert client.append("quiet", b"after").offset > 0
        assert [record.value for record in client.read("quiet", 0, 0)] == [*kept, b"after"]
        # Now the leader's file, while it runs: the node that comes back needs it, and no newer one will be written.
        for path in snapshots(quorum, gone, METADATA):
            flip(path)
        flip(snapshots(quorum, quorum.leader(), METADATA)[-1])
        quorum.start(gone)
        wait_until(lambda: is_whole(quorum, gone), "the other node is whole again")
        wait_until(lambda: has_all(gone), f"it has applied all keys: {writer.keys}")
