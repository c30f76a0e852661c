"""ListOffsets (2) and OffsetForLeaderEpoch (23) for replicas: what one needs that builds its state from the remote tier.

REPLICATED_END asks how far all replicas are (`compaction.floor`).

The leader answers before its own epoch has committed an entry, unlike to clients: perhaps nothing can be committed without the
replica that asks. What lies before the local log is committed, whoever leads.

A replica that is asked in no epoch tells where its own local log begins. It first applies all keys that the quorum had when it
was asked: what they forbid to delete stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import LocalStartRpc, OffsetReply, OffsetRpc, PeerReply
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.replica.apis.offsets import Special, fence
from raftlake.replica.compaction import floor
from raftlake.replica.compaction.floor import REPLICATED_END
from raftlake.replica.partition.partition import Partition
from raftlake.replica.services import Services
from raftlake.replica.tiering.local_start import ANY_EPOCH


def offset_for_peer(node: Services, rpc: OffsetRpc, reply: Callable[[PeerReply], None]) -> None:
    partition = node.engine.partitions.get(rpc.group)
    if partition is None:
        reply(OffsetReply(error=node.names.why_unknown(rpc.group)))
        return
    if isinstance(rpc, LocalStartRpc) and rpc.leader_epoch == ANY_EPOCH:
        node.kv.read(True, lambda result: reply(_own_start(node, rpc, result.error)))
        return
    error = fence(partition, rpc.leader_epoch)
    if error is ErrorCode.NONE and not partition.core.is_leader:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is not ErrorCode.NONE:
        reply(OffsetReply(error=error))
    elif isinstance(rpc, LocalStartRpc) and rpc.timestamp == REPLICATED_END:
        reply(floor.answer(node.engine, partition, node.membership.nodes))
    elif isinstance(rpc, LocalStartRpc):
        reply(_start(node, partition, rpc.timestamp))
    else:
        reply(OffsetReply(error=ErrorCode.NONE, position=_epoch_end(node, partition, rpc.epoch)))


def _own_start(node: Services, rpc: LocalStartRpc, error: ErrorCode) -> OffsetReply:
    partition = node.engine.partitions.get(rpc.group)
    if error is ErrorCode.NONE and partition is None:
        error = node.names.why_unknown(rpc.group)
    if error is not ErrorCode.NONE or partition is None:
        return OffsetReply(error=error)
    return _start(node, partition, rpc.timestamp)


def _start(node: Services, partition: Partition, timestamp: int) -> OffsetReply:
    local = partition.log.start_offset
    match timestamp:
        case Special.EARLIEST_LOCAL:
            history = partition.core.history
            # An empty local log goes on in an epoch that is not known yet: the last one stands for it.
            position = OffsetAndEpoch(local, _epoch_at(history.entries(), local, history.last_epoch))
        case Special.EARLIEST:
            # The state of the record before the local log is in the table, deleted or not.
            start = node.remote_log.first_offset(partition)
            position = OffsetAndEpoch(start, _epoch_at(node.remote_log.epochs(partition), start, Epoch(-1)))
        case _:
            return OffsetReply(error=ErrorCode.INVALID_REQUEST)
    return OffsetReply(error=ErrorCode.NONE, position=position)


def _epoch_at(epochs: Sequence[tuple[Epoch, Offset]], offset: Offset, otherwise: Epoch) -> Epoch:
    index = bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[index - 1][0] if index else otherwise


def _epoch_end(node: Services, partition: Partition, epoch: Epoch) -> OffsetAndEpoch:
    """Where the local log does not reach back far enough, the core still knows the epoch of the record before it."""
    history = partition.core.history
    first = history.entries()[:1]
    if history.start_epoch <= epoch and history.log_start > 0 and (not first or epoch < first[0][0]):
        return OffsetAndEpoch(history.log_start, history.start_epoch)
    return node.remote_log.epoch_end(partition, epoch)
