"""Writes into the logs of real nodes what no gate has seen: while all are stopped, into each copy alike."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from raftlake import Client, LocalQuorum
from raftlake.kv.commands import Txn, encode
from raftlake.ports.driver import BatchSpan
from raftlake.replica.config import METADATA_GROUP
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import Record, build_batch
from waitkit import wait_until

PATIENCE_S = 30


def kill_with_equal_logs(quorum: LocalQuorum) -> None:
    """End all nodes once their metadata logs are equal."""
    with Client(quorum.bootstrap_servers) as client:
        wait_until(
            lambda: len({voter.log_end_offset for voter in client.describe_quorum().voters}) == 1,
            "all copies are equal",
            PATIENCE_S,
        )
        leader = client.describe_quorum().leader_id
    # The leader last, so that no other node is elected meanwhile.
    for node_id in sorted(quorum.nodes, key=lambda node_id: node_id == leader):
        quorum.kill(node_id)


def spoil(directories: Iterable[Path], *txns: Txn) -> None:
    """Append these commands to the metadata logs of nodes that are stopped, whoever leads next commits them."""
    assert len({_append(directory, txns) for directory in directories}) == 1, "the logs are not equal"


def _append(directory: Path, txns: tuple[Txn, ...]) -> int:
    """Returns where the log ends then."""
    logs = FileLogDirectory(directory, post=None)
    log = logs.open(METADATA_GROUP)
    epoch, at = log.epochs[-1][0], log.end_offset
    records = [Record(offset=number, value=encode(txn)) for number, txn in enumerate(txns)]
    batch = bytes(build_batch(records, base_offset=at, leader_epoch=epoch, timestamp_ms=1))
    log.append([batch], [BatchSpan(at, at + len(txns), epoch, 1, len(batch))])
    end = log.end_offset
    logs.close()
    return end
