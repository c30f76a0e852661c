"""A node's client id names the node. Whatever else a client calls itself names none."""

from __future__ import annotations

import pytest

from raftlake.runtime.peers.codec import parse_peer_client_id


@pytest.mark.parametrize(
    ("client_id", "node_id"),
    [
        ("raftlake-node-7", 7),
        ("raftlake-node-0", 0),
        ("raftlake-node-2147483647", 2**31 - 1),
        ("raftlake-node-12345678901", None),
        ("raftlake-node-", None),
        ("raftlake-node--1", None),
        ("raftlake-node-7 ", None),
        ("raftlake-node-7a", None),
        ("raftlake-node-\u0667", None),
        ("raftlake-node-\u00b2", None),
        ("raftlake-7", None),
        ("my raftlake-node-7", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_nodes_client_id_names_a_node(client_id: str | None, node_id: int | None) -> None:
    assert parse_peer_client_id(client_id) == node_id
