"""The first records of a group after a recovery: its only voter, and in the quorum's own log a key that tells of it, and
those keys that told of more than was left.

Owns what is written and where. It knows neither files nor plans, so a simulated disk takes the same records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from raftlake.errors import StorageError
from raftlake.kv.commands import encode, put
from raftlake.kv.keys import INCARNATION_KEY
from raftlake.ports.driver import BatchSpan, ElectionStore, LogDirectory, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, Offset
from raftlake.replica.config import Endpoint
from raftlake.storage.partition import uuid_text
from raftlake.wire.batches import Record, VoterEntry, build_batch, iterate_headers
from raftlake.wire.control import voters_batch

NO_TIMESTAMP = -1
NO_VALUES: Mapping[str, bytes] = MappingProxyType({})
LISTENER = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyVoter:
    """The node that goes on alone, with the directory id that the recovery gives it."""

    node_id: NodeId
    directory_id: DirectoryId
    endpoint: Endpoint


def begin_epoch(
    logs: LogDirectory,
    elections: ElectionStore,
    group: GroupId,
    epoch: Epoch,
    voter: OnlyVoter,
    *,
    is_quorum: bool,
    values: Mapping[str, bytes] = NO_VALUES,
) -> None:
    """Give the log its new epoch and voters, whatever an interrupted recovery has left of them. `is_quorum`: the group is the
    quorum's own, and `values` are keys that it changes."""
    log = logs.open(group)
    elections.save({group: ElectionState(epoch=epoch)})
    begin = beginning_of(log, epoch)
    batches, end_offset = _batches(begin, epoch, voter, values if is_quorum else None)
    if log.end_offset != end_offset:
        log.truncate_to(begin)
        spans = [
            BatchSpan(header.base_offset, header.end_offset, epoch, header.timestamp_ms_max, header.size)
            for batch in batches
            for header in iterate_headers(batch)
        ]
        log.append(batches, spans)
        _sync(logs, log)
    logs.mend(group)


def beginning_of(log: LogStore, epoch: Epoch) -> Offset:
    """Where the log begins that epoch, or has begun it in a recovery that was interrupted."""
    return next((start for known, start in log.epochs if known == epoch), log.end_offset)


def _sync(logs: LogDirectory, log: LogStore) -> None:
    errors: list[StorageError | None] = []
    logs.flush([log], errors.append, may_wait=True)
    for error in errors:
        if error is not None:
            raise error


def _batches(begin: Offset, epoch: Epoch, only: OnlyVoter, values: Mapping[str, bytes] | None) -> tuple[list[bytes], Offset]:
    """With `values` those of the quorum's own log."""
    endpoint = (LISTENER, only.endpoint.host, only.endpoint.port)
    voter = VoterEntry(node_id=only.node_id, directory_id=only.directory_id, endpoints=(endpoint,))
    batches = [voters_batch(begin, epoch, NO_TIMESTAMP, [voter], kraft_version=1)]
    end_offset = next(iterate_headers(batches[0])).end_offset
    if values is not None:
        told = {"directoryId": uuid_text(only.directory_id), "nodeId": only.node_id, "epoch": epoch}
        puts = [(INCARNATION_KEY, json.dumps(told).encode()), *sorted(values.items())]
        for key, value in puts:
            record = Record(key=None, value=encode(put(key, value)))
            batches.append(bytes(build_batch([record], base_offset=end_offset, leader_epoch=epoch, timestamp_ms=NO_TIMESTAMP)))
            end_offset = Offset(end_offset + 1)
    return batches, Offset(end_offset)
