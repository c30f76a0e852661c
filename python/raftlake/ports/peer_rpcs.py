"""What nodes say to each other about their groups, as values: each RPC and its reply, for one or many groups at once.

What is said about one group is the cores' (`raft.messages`); here it is put together as it travels between two nodes. The bytes
belong to `runtime.peers.codec`, the meaning to `replica`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raftlake.errors import ErrorCode
from raftlake.raft.messages import Request, Response
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.raft.value import value
from raftlake.wire.control import EndMarker
from raftlake.wire.sync_report import SyncReport


class GroupId(NamedTuple):
    """One Raft group: a topic partition. `topic_id` is the 16 bytes of the topic's UUID.

    A tuple, because it is the key of most dictionaries of a node and is hashed several times for every message.
    """

    topic: str
    partition: int
    topic_id: bytes = bytes(16)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """One group's part of an RPC."""

    group: GroupId
    body: Request | Response


@value
class ControlRpc:
    """A Vote, BeginQuorumEpoch or EndQuorumEpoch RPC: the same kind of request for one or more groups (KIP-595 multi-raft)."""

    cluster_id: str | None
    messages: tuple[PeerMessage, ...]


@value
class ControlReply:
    """`error` is the top-level one (INCONSISTENT_CLUSTER_ID, INVALID_REQUEST); then there are no messages."""

    error: ErrorCode
    messages: tuple[PeerMessage, ...] = ()


@value
class FetchRpc:
    """One Fetch round of a replica for all groups that it follows at one peer, as an incremental fetch session (KIP-227).

    `session_id` 0 with `session_epoch` 0 opens a session and lists every group; then `session_id` is the one that was given,
    the epoch counts up by one a round, and only groups whose position changed are listed. (0, -1) is a fetch without a
    session (Kafka's own Raft): every group is listed each time and the connection's order is the causal order.
    """

    cluster_id: str | None
    replica_id: NodeId
    session_id: int
    session_epoch: int
    wait_ms_max: int
    size_max: int
    messages: tuple[PeerMessage, ...]
    forgotten: tuple[GroupId, ...] = ()
    #: The replica's disk has less free than has to stay free.
    disk_is_low: bool = False


@value
class FetchReply:
    """Lists the groups that have something to say; a group of the session that is absent is unchanged and still led here."""

    error: ErrorCode
    session_id: int = 0
    messages: tuple[PeerMessage, ...] = ()
    #: In the first answer of a session, and when it is another one than before; else None.
    sync_report: SyncReport | None = None


@value
class ReadOffsetRpc:
    """KIP-650 ReadOffset: a follower asks the leader for a proven applied offset of each group."""

    cluster_id: str | None
    read_timestamp_ms: int
    groups: tuple[GroupId, ...]
    #: The asking node, or -1 for a client: only a client's question is passed on to the leader.
    replica_id: NodeId = NodeId(-1)


@value
class ReadOffsetResult:
    group: GroupId
    error: ErrorCode
    applied_offset: Offset
    leader_id: NodeId
    leader_epoch: Epoch


@value
class ReadOffsetReply:
    error: ErrorCode
    results: tuple[ReadOffsetResult, ...] = ()


@value
class ProposeRpc:
    """Key-value commands that a node forwards to the leader of the metadata log (a Produce to `__cluster_metadata-0`). `source`
    is the node that the request names, -1 where it names none."""

    batch: bytes
    source: NodeId = NodeId(-1)


@value
class ProposeReply:
    """`base_offset` is where the first command stands in the log, once it is committed. `message` says why it was refused,
    where the code alone does not."""

    error: ErrorCode
    base_offset: Offset = Offset(-1)
    message: str = ""


@value
class DescribeRpc:
    """A client's DescribeQuorum (KIP-595) that a node passes on to the group's leader, as Kafka's brokers do: the request as
    decoded from the wire, in the client's version."""

    request: object


@value
class DescribeReply:
    """The leader's answer to the client, of the same version."""

    response: object


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRpc:
    """A replica asks for pieces of snapshots, `size_max` bytes of all together."""

    cluster_id: str | None
    replica_id: NodeId
    size_max: int
    messages: tuple[PeerMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotReply:
    error: ErrorCode
    messages: tuple[PeerMessage, ...] = ()


@value
class LocalStartRpc:
    """A replica asks its leader where the group's log begins, as ListOffsets has it: with timestamp -2 wherever it is, with
    -4 on the leader's disk (KIP-405). Answered by an `OffsetReply` with the epoch of the record there."""

    group: GroupId
    replica_id: NodeId
    #: The epoch that the replica follows.
    leader_epoch: Epoch
    timestamp: int


@value
class EpochEndRpc:
    """A replica asks its leader for the largest epoch up to `epoch` and where it ends (OffsetForLeaderEpoch), wherever the
    records are. Answered by an `OffsetReply`."""

    group: GroupId
    replica_id: NodeId
    leader_epoch: Epoch
    epoch: Epoch


@value
class OffsetReply:
    """(-1, -1) where the leader does not know."""

    error: ErrorCode
    position: OffsetAndEpoch = OffsetAndEpoch(Offset(-1), Epoch(-1))


@value
class VoterRpc:
    """An AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter (KIP-853) by which a node asks the leader about its own vote: the
    request as it is on the wire."""

    request: object


@value
class VoterReply:
    """The leader's answer, as it is on the wire."""

    response: object


@value
class AskedMarker:
    """One partition's end of a transaction. `decided_at` is the end of the decision in the metadata log."""

    group: GroupId
    marker: EndMarker
    decided_at: Offset


@value
class MarkersRpc:
    """The coordinator of transactions asks the leader of partitions to write how transactions end there (KIP-98)."""

    cluster_id: str | None
    replica_id: NodeId
    markers: tuple[AskedMarker, ...]


@value
class MarkersReply:
    """`errors` are those of the markers, in their order. NONE: the marker is committed, or has nothing to end there."""

    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()


#: What a replica asks that builds its state from the remote tier.
OffsetRpc = LocalStartRpc | EpochEndRpc

PeerRpc = (
    ControlRpc | FetchRpc | FetchSnapshotRpc | ReadOffsetRpc | ProposeRpc | DescribeRpc | VoterRpc | OffsetRpc | MarkersRpc
)
PeerReply = (
    ControlReply
    | FetchReply
    | FetchSnapshotReply
    | ReadOffsetReply
    | ProposeReply
    | DescribeReply
    | VoterReply
    | OffsetReply
    | MarkersReply
)
