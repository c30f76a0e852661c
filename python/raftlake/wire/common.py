"""Small values that several messages share.

The dataclasses of the hot messages (Produce, Fetch, ReadOffset, FindQuorum) are slotted but not frozen: one is made per
partition of every request, and a frozen dataclass takes three times as long to make. No code changes one after it was built.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlake.wire.primitives import (
    I32,
    BytesLike,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_nullable_string,
    write_tag,
    write_uvarint,
)

#: Partitions that one request or response may name, over all its topics: bounds the work that one frame can cause.
PARTITIONS_MAX = 1 << 17


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition as an answer names it; -1 for an unknown leader."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a node that an answer names as leader can be reached."""

    node_id: int
    host: str
    port: int


def write_node_endpoints(out: bytearray, endpoints: list[NodeEndpoint], more_tags: int = 0) -> None:
    """The tagged fields of a Produce or Fetch response: NodeEndpoints in tag 0, when there are any. The caller writes
    `more_tags` behind them."""
    out.append(bool(endpoints) + more_tags)
    if not endpoints:
        return
    content = bytearray()
    write_uvarint(content, len(endpoints) + 1)
    for node_id, host, port in endpoints:
        content += I32.pack(node_id)
        write_nullable_string(content, host, True)
        content += I32.pack(port)
        # No rack, no tagged fields.
        content += b"\x00\x00"
    write_tag(out, 0, content)


def read_node_endpoints(buffer: BytesLike, position: int) -> list[NodeEndpoint]:
    count, position = read_count(buffer, position, True, 11)
    endpoints: list[NodeEndpoint] = []
    for _ in range(count):
        (node_id,) = I32.unpack_from(buffer, position)
        host, position = read_string(buffer, position + 4, True)
        (port,) = I32.unpack_from(buffer, position)
        _, position = read_nullable_string(buffer, position + 4, True)
        position = skip_tags(buffer, position)
        endpoints.append(NodeEndpoint(node_id, host, port))
    return endpoints
