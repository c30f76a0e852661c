"""Below which offset the tombstones of a partition may go: where all voters and observers have them in their logs.

A voter that was away may hold an older value of a key. It must see the tombstone in the log of its leader, however long it was
away. (In Kafka it brings the value back when it was away for longer than delete.retention.ms.) Only the leader knows how far
each replica is. A follower asks it with ListOffsets, by a timestamp that stands for that place.

An observer counts while its address is among the keys of the quorum: each node hosts each partition, with or without a vote.
The keys outlive leaders. So an observer of which a new leader has not heard yet holds back all tombstones. The leader of the
quorum's log deletes the address of an observer that is gone (`voters.membership`). From then on no tombstone waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import LocalStartRpc, OffsetReply, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId, Offset, OffsetAndEpoch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition

#: The timestamp by which a replica asks for it. No client asks so, and Kafka uses no number near it.
REPLICATED_END = -1_000

#: The nodes that have an address.
Registered = Callable[[], Collection[NodeId]]


def answer(engine: Engine, partition: Partition, registered: Registered) -> OffsetReply:
    """What the leader tells a replica that asks for it."""
    end = _replicated_end(engine, partition, registered())
    return OffsetReply(error=ErrorCode.NONE, position=OffsetAndEpoch(end, partition.core.epoch))


def ask(engine: Engine, partition: Partition, registered: Registered, done: Callable[[Offset], None]) -> None:
    """Call `done` once, now or later, with the floor as the leader knows it now; with the log's start where that is not to be
    learnt."""
    core = partition.core
    start = partition.log.start_offset
    if core.is_leader:
        done(max(start, _replicated_end(engine, partition, registered())))
    elif core.leader_id is None or core.leader_id < 0:
        done(start)
    else:
        rpc = LocalStartRpc(
            group=partition.group, replica_id=engine.config.node_id, leader_epoch=core.epoch, timestamp=REPLICATED_END
        )
        engine.network.send(core.leader_id, rpc, partial(_on_reply, engine, start, done))


def _replicated_end(engine: Engine, partition: Partition, registered: Collection[NodeId]) -> Offset:
    """The lowest end of the logs of all voters, and of the observers that are registered, or were heard of lately. 0 before all
    of these have fetched from this leader, and before it knows the topic: then it does not know the nodes either."""
    gone_since_ms = engine.now_ms - engine.config.node_expiration_ms
    known = {status.key.id: status for status in partition.core.replica_progress()}
    ends = [
        max(status.log_end, 0)
        for node_id, status in known.items()
        if status.is_voter or node_id == engine.config.node_id or node_id in registered or status.last_fetch_ms >= gone_since_ms
    ]
    if partition.in_force is None or any(node_id not in known for node_id in registered):
        return Offset(0)
    return Offset(min(ends))


def _on_reply(engine: Engine, start: Offset, done: Callable[[Offset], None], reply: PeerReply | FailureReason) -> None:
    engine.begin_input()
    is_known = isinstance(reply, OffsetReply) and reply.error is ErrorCode.NONE
    done(max(start, reply.position.offset) if is_known else start)  # type: ignore[union-attr]
