"""A line in the log for the operator whose voters have all moved: nodes with `quorum.bootstrap.servers` alone look for each
other at the addresses in the log, and no node is there any more.

Owns the judgement. It is made only where all of it is certain: this node votes, is itself at another address than the log
says, was given no `quorum.voters`, and has for a while neither heard of a leader nor been connected to enough voters for one.
That the others have moved too is for the operator to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.quorum import address_in
from raftlake.replica.voters.own_vote import has_moved

#: Several elections' time.
TELL_AFTER_MS = 10_000


class MovedVoters:
    """`connected` names the peers that a connection leads to; `tell` is called once in each spell without a leader."""

    def __init__(self, node: ReplicaNode, connected: Callable[[], Iterable[NodeId]], tell: Callable[[str], None]) -> None:
        self._node = node
        self._connected = connected
        self._tell = tell
        self._since_ms: int | None = None
        self._is_told = False

    def sample(self, now_ms: int) -> None:
        """Called about once a second."""
        text = explain(self._node, self._connected())
        if text is None:
            self._since_ms, self._is_told = None, False
        elif self._since_ms is None:
            self._since_ms = now_ms
        elif not self._is_told and now_ms - self._since_ms >= TELL_AFTER_MS:
            self._is_told = True
            self._tell(text)


def explain(node: ReplicaNode, connected: Iterable[NodeId]) -> str | None:
    """What to tell; None where the voters' addresses are not what keeps them from electing a leader."""
    partition = node.partitions.get(node.config.quorum_group)
    if partition is None or node.config.voters or partition.core.hears_leader:
        return None
    core, here = partition.core, node.config.own_address
    known = address_in(core.voters, core.local.id) if core.voters.has(core.local) else None
    if known is None or not has_moved(known, here):
        return None
    reached = {core.local.id, *connected}
    missing = [node_id for node_id in core.voters.ids if node_id not in reached]
    if len(core.voters) - len(missing) >= core.voters.majority:
        return None
    places = ", ".join(f"{node_id}@{address_in(core.voters, node_id)}" for node_id in missing)
    return (
        f"no node leads; this node is at {here}, its log has it at {known}, and the voters {places} are not reached there. If "
        "they have moved too, set quorum.voters to all voters at their present addresses, on each of them: "
        f"quorum.voters={core.local.id}@{here},..."
    )
