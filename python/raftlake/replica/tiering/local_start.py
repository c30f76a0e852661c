"""Where the local logs of a partition begin at its voters: any of them may lead it next."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId, LocalStartRpc, OffsetReply, PeerReply
from raftlake.raft.events import FailureReason
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.tiering.remote_log_aux import EARLIEST_LOCAL

#: The replica that is asked answers for itself, whoever leads.
ANY_EPOCH = Epoch(-1)


@dataclass(frozen=True, slots=True)
class LocalStarts:
    """What the voters have told."""

    #: The largest start. 0 where nobody told one.
    last: Offset
    #: Those who told nothing, and why; "" where all did.
    silent: str = ""


def ask_local_starts(engine: Engine, group: GroupId, voters: Collection[NodeId], done: Callable[[LocalStarts], None]) -> None:
    """Ask each of `voters`, and look into the own log. `done` is called once."""
    starts: list[Offset] = []
    silent: list[str] = []

    def told(node_id: NodeId, answer: Offset | str) -> None:
        if isinstance(answer, str):
            silent.append(f"node {node_id} ({answer})")
        else:
            starts.append(answer)
        if len(starts) + len(silent) == len(voters):
            done(LocalStarts(max(starts, default=Offset(0)), ", ".join(sorted(silent))))

    if not voters:
        done(LocalStarts(Offset(0), "no node: this one knows no voters"))
    for node_id in voters:
        if node_id == engine.config.node_id:
            partition = engine.partitions.get(group)
            told(node_id, "it has no such log" if partition is None else partition.log.start_offset)
        else:
            rpc = LocalStartRpc(group=group, replica_id=engine.config.node_id, leader_epoch=ANY_EPOCH, timestamp=EARLIEST_LOCAL)
            engine.network.send(node_id, rpc, partial(_on_reply, engine, partial(told, node_id)))


def _on_reply(engine: Engine, told: Callable[[Offset | str], None], reply: PeerReply | FailureReason) -> None:
    engine.begin_input()
    if not isinstance(reply, OffsetReply):
        told(reply.value if isinstance(reply, FailureReason) else "an answer to something else")
    else:
        told(reply.position.offset if reply.error is ErrorCode.NONE else reply.error.name)
