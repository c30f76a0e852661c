"""The names of the keys that the quorum keeps for itself, all under one reserved prefix.

Users may read them and watch them; only nodes write them. Every other key belongs to users.
"""

from __future__ import annotations

RESERVED_PREFIX = "/raftlake/"
#: `/raftlake/topics/<name>`: JSON {"id": base64url of the topic id, "partitions": n, "configs": {}, "voters": [...]}; without
#: `voters`, who begin the logs of its partitions, these begin with the static ones.
TOPICS_PREFIX = RESERVED_PREFIX + "topics/"
#: `/raftlake/nodes/<id>`: JSON {"host", "port", "http_host", "http_port"}; each node registers itself after its start.
NODES_PREFIX = RESERVED_PREFIX + "nodes/"
#: The next free producer id, as decimal digits; nodes reserve blocks of ids by compare-and-set.
PRODUCERS_NEXT_KEY = RESERVED_PREFIX + "producers/next"
#: JSON {"cluster_id": ...}, written once.
CLUSTER_KEY = RESERVED_PREFIX + "cluster"

#: JSON {"directoryId", "nodeId", "epoch"}: since when and by which directory a quorum goes on that had lost its majority.
INCARNATION_KEY = RESERVED_PREFIX + "incarnation"


def topic_key(name: str) -> str:
    return TOPICS_PREFIX + name


def node_key(node_id: int) -> str:
    return f"{NODES_PREFIX}{node_id}"


def is_reserved(key: str) -> bool:
    """True for keys that only nodes may write. The prefix itself without its last slash is reserved too."""
    return key.startswith(RESERVED_PREFIX) or key == RESERVED_PREFIX[:-1]
