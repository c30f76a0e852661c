"""Where the local log of a partition begins at its leader, for a node that may only follow it."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, LocalStartRpc, OffsetReply, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NO_LEADER, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.tiering.remote_log_aux import EARLIEST_LOCAL

#: Gets the offset, or why nobody tells it.
Told = Callable[[Offset | str], None]


def ask_local_start(engine: Engine, group: GroupId, done: Told) -> None:
    """Ask the leader that this node follows, or look into the own log."""
    partition = engine.partitions.get(group)
    if partition is None or (not partition.core.is_leader and partition.core.leader_id == NO_LEADER):
        done("this node knows no leader of it")
        return
    core = partition.core
    if core.is_leader:
        done(partition.log.start_offset)
        return
    leader_id = core.leader_id

    def on_reply(reply: PeerReply | FailureReason) -> None:
        engine.begin_input()
        if not isinstance(reply, OffsetReply):
            why = reply.value if isinstance(reply, FailureReason) else "an answer to something else"
            done(f"node {leader_id}: {why}")
        elif reply.error is not ErrorCode.NONE:
            done(f"node {leader_id}: {reply.error.name}")
        else:
            done(reply.position.offset)

    me = engine.config.node_id
    rpc = LocalStartRpc(group=group, replica_id=me, leader_epoch=core.epoch, timestamp=EARLIEST_LOCAL)
    engine.network.send(leader_id, rpc, on_reply)
