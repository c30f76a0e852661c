"""What one node is told at start, as plain values.

Parsing and checking settings files belongs to `runtime.settings`. What a topic says over it is put together in `configs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raftlake.ports.driver import ClientConnection, ListenerUse
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.config import RaftConfig
from raftlake.raft.types import NO_DIRECTORY, DirectoryId, NodeId

METADATA_TOPIC = "__cluster_metadata"
#: Topics that the connectors keep for themselves begin so. Clients leave internal topics out of patterns.
INTERNAL_PREFIX = "__raftlake-"
#: Kafka's `Uuid(0, 1)`, the fixed id of the metadata topic.
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_GROUP = GroupId(METADATA_TOPIC, 0, METADATA_TOPIC_ID)
#: Of one cluster, with the partition of the quorum's own log.
PARTITIONS_MAX = 10_000
#: Of all topics of users.
TOPIC_PARTITIONS_MAX = PARTITIONS_MAX - 1
#: Twice the default fetch timeout: a node that leads has been replaced by then.
REPLICA_LAG_MS_MAX = 4_000
#: The defaults of `message.max.bytes` and `log.segment.bytes`.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
#: Addresses whose node is not known have numbers from here downwards, as in Kafka.
BOOTSTRAP_ID_MAX = -2


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientContext:
    """Who asks: the client id of the request header, the peer's host, for whom the listener is that it asks at, and on which
    connection."""

    client_id: str | None
    host: str
    listener: ListenerUse = ListenerUse.SHARED
    connection: ClientConnection = field(default_factory=ClientConnection, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Sizes in bytes, times in milliseconds, -1 for "no limit"."""

    node_id: NodeId
    voters: Mapping[NodeId, Endpoint]
    #: Where clients and peers reach this node.
    listener: Endpoint
    http_listener: Endpoint | None = None
    #: Where a node that is not among `voters` looks for the quorum (KIP-853).
    bootstrap_servers: tuple[Endpoint, ...] = ()
    #: Where peers reach this node when it is not among `voters`; None for `listener`.
    peer_listener: Endpoint | None = None
    #: Whether this node asks by itself to become a voter (Kafka's controller.quorum.auto.join.enable).
    auto_join: bool = False
    #: None until the first leader has made one (KIP-595 "Cluster Bootstrapping").
    cluster_id: str | None = None
    #: The log that the voters exist for. Any other than the metadata log is somebody else's, see `is_opaque`.
    quorum_group: GroupId = METADATA_GROUP
    directory_id: DirectoryId = NO_DIRECTORY
    raft: RaftConfig = field(default_factory=RaftConfig)
    #: Deleted are whole closed segments, below the high watermark only; with a remote tier whole files of it too.
    retention_bytes: int = -1
    retention_ms: int = -1
    #: What local disks keep of that with a remote tier; -2: the same.
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    retention_check_interval_ms: int = 5_000
    #: After a look that found no log to compact, this long passes before the next one (Kafka's log.cleaner.backoff.ms).
    cleaner_backoff_ms: int = 15_000
    #: As many keys one pass of compaction remembers.
    cleaner_keys_max: int = 1_000_000
    #: A snapshot of the key space is taken after so many bytes of records, or when this long has passed since the last one
    #: and there are any (Kafka's metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot.interval.ms).
    snapshot_bytes_between: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    #: How much of a snapshot one answer to FetchSnapshot carries.
    snapshot_fetch_bytes_max: int = 1024 * 1024
    #: What the key space may hold, by `kv.keyspace.entry_bytes`; a leader refuses commands that make it grow beyond.
    kv_quota_bytes: int = 1 << 30
    #: What has to stay free on the disk (`ports.Room.limit`); a leader refuses appends of clients while a majority has less.
    min_free_bytes: int = -1
    #: A producer id that has not written to a partition for so long is forgotten there (Kafka's producer.id.expiration.ms).
    producer_id_expiration_ms: int = 86_400_000
    #: As many producer ids all partitions of a node together remember; at that number a leader refuses batches of new ones.
    producer_ids_max: int = 1_000_000
    #: The longest time in which a producer may ask to have its transactions ended (Kafka's transaction.max.timeout.ms).
    transaction_timeout_ms_max: int = 900_000
    #: A transactional id with nothing under way is forgotten after so long (Kafka's transactional.id.expiration.ms).
    transactional_id_expiration_ms: int = 604_800_000
    #: As many transactional ids there may be; beyond, new ones are refused.
    transactional_ids_max: int = 100_000
    #: The largest record batch that a producer may send.
    message_bytes_max: int = MESSAGE_BYTES_MAX
    #: A segment of a log is closed at this size, where its topic says nothing else. The `LogDirectory` is told the same.
    segment_bytes: int = SEGMENT_BYTES
    #: How much of all logs together one answer to a replica's Fetch carries.
    replica_fetch_bytes_max: int = 8 * 1024 * 1024
    #: How long a Fetch round of a replica is held when there is nothing to say.
    replica_fetch_wait_ms: int = 500
    #: How long news of a high watermark waits for records to travel to a replica with.
    replica_fetch_linger_ms: int = 5
    #: The pause between two rounds with a replica that a majority can do without.
    replica_fetch_pause_ms: int = 20
    #: A replica that has not had its leader's end for so long is not in sync, and a node that has not fetched is gone.
    replica_lag_ms_max: int = REPLICA_LAG_MS_MAX
    #: A write that has not committed for this long is answered as unknown.
    propose_timeout_ms: int = 10_000
    #: A linearizable read that has no answer for this long is refused.
    read_timeout_ms: int = 10_000
    #: The leader forgets the address of a node that neither votes nor has fetched for this long.
    node_expiration_ms: int = 300_000
    #: With a remote tier an open segment is closed when it is so large, or holds records for half of that long.
    tier_flush_bytes: int = 32 * 1024 * 1024
    tier_target_lag_ms: int = 60_000
    #: What one call reads from the remote tier for consumers. The node keeps some of these pieces.
    tier_piece_bytes: int = 4 * 1024 * 1024
    #: Where the tables of the topics are, as clients are told. None: there is no remote tier, or it is not told.
    tier_uri: str | None = None
    #: The path of the data directory, as clients are told.
    log_dir: str = ""
    #: Clients that ask for a topic that does not exist, and allow it, bring it about (Kafka's auto.create.topics.enable).
    auto_create_topics: bool = False
    #: Partitions of all topics, with that of the quorum's own log.
    partitions_max: int = PARTITIONS_MAX

    @property
    def bootstrap_peers(self) -> tuple[NodeId, ...]:
        """The numbers that stand for `bootstrap_servers`."""
        return tuple(NodeId(BOOTSTRAP_ID_MAX - index) for index in range(len(self.bootstrap_servers)))

    @property
    def own_address(self) -> Endpoint:
        """Where this node is reached by its peers, as far as its settings know."""
        return self.voters.get(self.node_id) or self.peer_listener or self.listener

    @property
    def is_opaque(self) -> bool:
        """The quorum's log is not ours to interpret: this node votes on it, stores it and serves it, and that group is the only
        one. There is no key-value space, and so no topics, producer ids or addresses of nodes that would be keys in it."""
        return self.quorum_group != METADATA_GROUP
