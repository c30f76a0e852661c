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
#: `/raftlake/tier/<topic id>/<partition>`: JSON, how far the partition is copied to the remote tier, and what is under way
#: (`raftlake.tier.entries`). Below it, `/<base offset, 20 digits>`: one of the newest copies each.
TIER_PREFIX = RESERVED_PREFIX + "tier/"
#: `/raftlake/starts/<topic id>/<partition>`: JSON {"offset", "recovery"}: the records below the offset are deleted. The
#: recovery is the last one of the quorum when that was decided, "" for none.
STARTS_PREFIX = RESERVED_PREFIX + "starts/"
#: `/raftlake/transactions/<name of a transactional id>`: JSON, who has the id and how far the transaction is
#: (`raftlake.replica.transaction_entry`).
TRANSACTIONS_PREFIX = RESERVED_PREFIX + "transactions/"


def topic_key(name: str) -> str:
    return TOPICS_PREFIX + name


def node_key(node_id: int) -> str:
    return f"{NODES_PREFIX}{node_id}"


def tier_key(topic_id: str, partition: int) -> str:
    """`topic_id` as in the keys of topics' values: base64url."""
    return f"{TIER_PREFIX}{topic_id}/{partition}"


def tier_segment_key(topic_id: str, partition: int, base_offset: int) -> str:
    return f"{tier_key(topic_id, partition)}/{base_offset:020}"


def start_key(topic_id: str, partition: int) -> str:
    """`topic_id` as in `tier_key`."""
    return f"{STARTS_PREFIX}{topic_id}/{partition}"


def is_reserved(key: str) -> bool:
    """True for keys that only nodes may write. The prefix itself without its last slash is reserved too."""
    return key.startswith(RESERVED_PREFIX) or key == RESERVED_PREFIX[:-1]


def touches_reserved(prefix: str) -> bool:
    """True where some key that begins with `prefix` may be reserved."""
    return prefix.startswith(RESERVED_PREFIX) or RESERVED_PREFIX.startswith(prefix)
