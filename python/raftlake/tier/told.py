"""What the tables of a tier tell, as plain values: for recoveries, which have no quorum to ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import LineageFacts
from raftlake.raft.types import Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldPartition:
    """One partition of which a table knows."""

    #: None where the table never showed a row of it.
    facts: LineageFacts | None
    #: The highest one of a leader that wrote to the table or claimed it, in any incarnation.
    leader_epoch: Epoch
    #: The state beside the newest copy; None where there is none, or it is lost.
    auxiliary: bytes | None
    #: Why it is lost; "" where it is not.
    lacking: str
    #: Of the newest record, milliseconds since 1970; -1 where none has a time.
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTable:
    """The table of one topic."""

    uri: str
    cluster_id: str
    topic: str
    topic_id: bytes
    #: By number: those that the table knows.
    partitions: Mapping[int, ToldPartition]
    #: The topic is deleted: no copy is shown in the table any more.
    is_dropped: bool

    def groups(self) -> list[tuple[GroupId, ToldPartition]]:
        return [(GroupId(self.topic, index, self.topic_id), told) for index, told in sorted(self.partitions.items())]
