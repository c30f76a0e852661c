"""WriteMarkers between the wire and `ports`, both directions. Topics are named `name:id`, as in Vote: a topic that was deleted
and created again has other transactions. Knows no node: which group a name stands for is told."""

from __future__ import annotations

from raftlake.errors import WireError
from raftlake.ports.peer_rpcs import AskedMarker, MarkersReply, MarkersRpc
from raftlake.raft.types import NodeId, Offset
from raftlake.runtime.peers.control import ResolveGroup, group_named, name_of
from raftlake.wire import write_markers

WRITE_MARKERS_VERSION = 0


def encode_request(rpc: MarkersRpc, quorum_topic: str) -> write_markers.WriteMarkersRequest:
    return write_markers.WriteMarkersRequest(
        rpc.cluster_id,
        [
            write_markers.WrittenMarker(
                name_of(asked.group, quorum_topic), asked.group.partition, asked.marker, asked.decided_at
            )
            for asked in rpc.markers
        ],
    )


def decode_request(message: write_markers.WriteMarkersRequest, asking: NodeId, resolve: ResolveGroup) -> MarkersRpc:
    return MarkersRpc(
        cluster_id=message.cluster_id,
        replica_id=asking,
        markers=tuple(
            AskedMarker(
                group=group_named(written.topic, written.partition, resolve),
                marker=written.marker,
                decided_at=Offset(written.decided_at),
            )
            for written in message.markers
        ),
    )


def encode_reply(reply: MarkersReply) -> write_markers.WriteMarkersResponse:
    return write_markers.WriteMarkersResponse(reply.error, list(reply.errors))


def decode_reply(rpc: MarkersRpc, message: write_markers.WriteMarkersResponse) -> MarkersReply:
    """Raises WireError when it does not answer what was asked."""
    if message.errors and len(message.errors) != len(rpc.markers):
        raise WireError(f"answer to {len(rpc.markers)} markers has {len(message.errors)} errors")
    return MarkersReply(error=message.error, errors=tuple(message.errors))
