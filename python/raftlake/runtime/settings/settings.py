"""The settings of one node: `node.properties`, then `RAFTLAKE_QUORUM_VOTERS`-style environment, then `--set key=value`.

Owns: what each setting means, its default where it has one of its own, and how the settings relate. The names are the seeds'
and Kafka's. Refuses values out of range and settings that contradict one another. Reads the environment only
through the mapping that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, TypeVar

from raftlake.errors import ConfigError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.config import RaftConfig
from raftlake.raft.types import DirectoryId, NodeId
from raftlake.replica.config import BOOTSTRAP_ID_MAX, METADATA_GROUP, METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint, NodeConfig
from raftlake.runtime.admission import AddressLimit
from raftlake.runtime.http.hosts import AllowedHosts
from raftlake.runtime.settings.names import NUMBERS, Given, gather
from raftlake.runtime.settings.parsing import (
    NODE_ID_MAX,
    fail,
    is_wildcard,
    parse_bool,
    parse_endpoint,
    parse_hosts,
    parse_int,
    parse_listeners,
    parse_networks,
    parse_servers,
    parse_topic,
    parse_topic_id,
    parse_voters,
)
from raftlake.runtime.settings.tier import TierLocation, parse_tier_uri, require_packages

T = TypeVar("T")

#: How long a leader holds the fetch of a replica that has everything.
REPLICA_FETCH_WAIT_MS_MAX = 500

#: What a key takes in the memory of a pass of compaction: a digest, an offset, and their entry in a dict.
KEY_BYTES = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes in bytes, times in milliseconds; -1 means no limit for the retention settings."""

    node_id: NodeId
    voters: Mapping[NodeId, Endpoint]
    #: Where to look for the quorum when the voters are not listed: quorum.bootstrap.servers.
    bootstrap_servers: tuple[Endpoint, ...]
    #: Whether the node asks by itself to become a voter.
    auto_join: bool
    #: The log that the voters exist for.
    quorum_group: GroupId
    data_dir: Path
    #: Bound for clients, and for peers unless `controller_listener` is set.
    listener: Endpoint
    #: What Metadata and the like tell clients.
    advertised_listener: Endpoint
    #: A second listener that serves peers alone.
    controller_listener: Endpoint | None
    http_listener: Endpoint
    advertised_http_listener: Endpoint
    #: A second HTTP listener, for health and metrics.
    http_ops_listener: Endpoint | None
    #: Above so many partitions they have no series of their own in the metrics.
    metrics_partitions_max: int
    #: Names that the HTTP front is asked under, beside its own; `*`: any.
    http_hosts: tuple[str, ...]
    raft: RaftConfig
    replica_lag_ms_max: int
    segment_bytes: int
    #: -1: 1 GiB, or 5 % of the disk if that is less.
    min_free_bytes: int
    retention_bytes: int
    retention_ms: int
    #: -2: the same.
    local_retention_bytes: int
    local_retention_ms: int
    cleaner_backoff_ms: int
    #: Memory that one pass of compaction takes for its keys, in bytes.
    cleaner_buffer_bytes: int
    producer_id_expiration_ms: int
    producer_ids_max: int
    transaction_timeout_ms_max: int
    transactional_id_expiration_ms: int
    transactional_ids_max: int
    snapshot_bytes_between: int
    snapshot_interval_ms: int
    snapshot_fetch_bytes_max: int
    kv_quota_bytes: int
    connections_max: int
    #: Of one address; None: half of `connections_max`, and loopback is spared.
    connections_per_address: int | None
    #: Where peers may be; empty: anywhere.
    peer_networks: tuple[IPv4Network | IPv6Network, ...]
    #: Clients' connections that are idle for longer are closed.
    connections_idle_ms: int
    request_bytes_max: int
    #: Large request frames that are on their way, over all connections.
    queued_request_bytes_max: int
    message_bytes_max: int
    #: Topics that clients ask for come about.
    auto_create_topics: bool
    #: None: there is no remote tier.
    tier: TierLocation | None

    @property
    def peers(self) -> dict[NodeId, Endpoint]:
        """The addresses to start from: the voters, this node itself, and as negative numbers those whose node is not known."""
        unknown = {NodeId(BOOTSTRAP_ID_MAX - index): address for index, address in enumerate(self.bootstrap_servers)}
        own = self.controller_listener or self.advertised_listener
        if is_wildcard(own.host):
            own = Endpoint(self.advertised_listener.host, own.port)
        return {self.node_id: own, **self.voters, **unknown}

    @property
    def allowed_hosts(self) -> AllowedHosts:
        """The names under which the HTTP front is asked."""
        listeners = (self.listener, self.advertised_listener, self.http_listener, self.advertised_http_listener)
        own = [listener.host for listener in (*listeners, self.http_ops_listener) if listener is not None and listener.host]
        return AllowedHosts([*self.http_hosts, *own])

    def new_address_limit(self) -> AddressLimit:
        """How many connections one address may have at one listener."""
        given = self.connections_per_address
        return AddressLimit(max(1, self.connections_max // 2) if given is None else given, spares_loopback=given is None)

    def node_config(self, *, cluster_id: str | None, directory_id: bytes) -> NodeConfig:
        """What the driver is told; the ids come from the data directory's meta.properties."""
        return NodeConfig(
            node_id=self.node_id,
            log_dir=str(self.data_dir.absolute()),
            voters=self.voters,
            bootstrap_servers=self.bootstrap_servers,
            peer_listener=self.peers[self.node_id],
            auto_join=self.auto_join,
            quorum_group=self.quorum_group,
            listener=self.advertised_listener,
            http_listener=self.advertised_http_listener,
            cluster_id=cluster_id,
            directory_id=DirectoryId(directory_id),
            raft=self.raft,
            # An idle follower hears of its leader each time its round ends: several times before it would take it for lost.
            replica_fetch_wait_ms=min(REPLICA_FETCH_WAIT_MS_MAX, max(1, self.raft.fetch_timeout_ms // 4)),
            replica_lag_ms_max=self.replica_lag_ms_max,
            retention_bytes=self.retention_bytes,
            retention_ms=self.retention_ms,
            local_retention_bytes=self.local_retention_bytes,
            local_retention_ms=self.local_retention_ms,
            cleaner_backoff_ms=self.cleaner_backoff_ms,
            cleaner_keys_max=self.cleaner_buffer_bytes // KEY_BYTES,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            producer_ids_max=self.producer_ids_max,
            transaction_timeout_ms_max=self.transaction_timeout_ms_max,
            transactional_id_expiration_ms=self.transactional_id_expiration_ms,
            transactional_ids_max=self.transactional_ids_max,
            snapshot_bytes_between=self.snapshot_bytes_between,
            snapshot_interval_ms=self.snapshot_interval_ms,
            snapshot_fetch_bytes_max=self.snapshot_fetch_bytes_max,
            kv_quota_bytes=self.kv_quota_bytes,
            min_free_bytes=self.min_free_bytes,
            message_bytes_max=self.message_bytes_max,
            segment_bytes=self.segment_bytes,
            auto_create_topics=self.auto_create_topics,
            **self._tier_config(),
        )

    def _tier_config(self) -> dict[str, Any]:
        if self.tier is None:
            return {}
        return {
            "tier_flush_bytes": self.tier.flush_bytes,
            "tier_target_lag_ms": self.tier.target_lag_ms,
            "tier_uri": self.tier.uri,
        }


def load_settings(path: Path | None, *, environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()) -> Settings:
    """Settings from a file, the environment and `key=value` overrides; the later ones win. Raises `ConfigError`."""
    return _build(_Reader(gather(path, environ or {}, overrides)))


class _Reader:
    """Typed access to what was given, errors in the spelling that the user chose."""

    def __init__(self, given: Mapping[str, Given]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        """The value, or None when it is not set or empty."""
        given = self._given.get(name)
        return given.value or None if given is not None else None

    def spelling(self, name: str) -> str:
        given = self._given.get(name)
        return given.spelling if given is not None else name

    def number(self, name: str) -> int:
        entry = NUMBERS[name]
        value = self.text(name)
        return entry.default if value is None else parse_int(self.spelling(name), value, low=entry.low, high=entry.high)

    def require(self, name: str, accepted: str) -> str:
        value = self.text(name)
        if value is None:
            raise ConfigError(f"{self.spelling(name)} is not set; accepted is {accepted}")
        return value

    def require_at_most(self, small: str, large: str) -> None:
        """Two numbers whose order matters."""
        if self.number(small) > self.number(large):
            raise ConfigError(
                f"{self.spelling(small)}={self.number(small)} must not exceed {self.spelling(large)}={self.number(large)}"
            )

    def parse(self, name: str, parser: Callable[[str, str], T]) -> T | None:
        value = self.text(name)
        return None if value is None else parser(self.spelling(name), value)


def _build(reader: _Reader) -> Settings:
    node_id = NodeId(
        parse_int("node.id", reader.require("node.id", f"a whole number from 0 to {NODE_ID_MAX}"), low=0, high=NODE_ID_MAX)
    )
    bootstrap_servers = reader.parse("quorum.bootstrap.servers", parse_servers) or ()
    if bootstrap_servers and reader.text("quorum.voters") is None:
        voters: Mapping[NodeId, Endpoint] = {}
    else:
        voters_text = reader.require("quorum.voters", "a list like 1@host:9092,2@host:9093,3@host:9094")
        voters = parse_voters(reader.spelling("quorum.voters"), voters_text)
    listener, controller_listener = _listeners(reader, voters.get(node_id))
    advertised = _advertised(reader, listener, voters.get(node_id))
    _require_peers_address(reader, voters.get(node_id), (listener, advertised), controller_listener)
    http = reader.parse("http.listener", _parse_http) or Endpoint(listener.host, 8092)
    ops = reader.parse("http.ops.listener", _parse_http)
    _require_distinct(reader, listener, controller_listener, http, ops)
    return Settings(
        node_id=node_id,
        voters=voters,
        bootstrap_servers=bootstrap_servers,
        auto_join=reader.parse("quorum.auto.join.enable", parse_bool) or False,
        quorum_group=_quorum_group(reader),
        data_dir=_data_dir(reader),
        listener=listener,
        advertised_listener=advertised,
        controller_listener=controller_listener,
        http_listener=http,
        advertised_http_listener=_advertised_http(reader, http, advertised),
        http_ops_listener=ops,
        metrics_partitions_max=reader.number("metrics.max.partitions"),
        http_hosts=reader.parse("http.allowed.hosts", parse_hosts) or (),
        raft=_raft(reader),
        replica_lag_ms_max=reader.number("replica.lag.time.max.ms"),
        segment_bytes=reader.number("log.segment.bytes"),
        retention_bytes=reader.number("retention.bytes"),
        retention_ms=reader.number("retention.ms"),
        local_retention_bytes=_local_retention(reader, "retention.bytes"),
        local_retention_ms=_local_retention(reader, "retention.ms"),
        cleaner_backoff_ms=reader.number("log.cleaner.backoff.ms"),
        cleaner_buffer_bytes=reader.number("log.cleaner.dedupe.buffer.size"),
        producer_id_expiration_ms=reader.number("producer.id.expiration.ms"),
        producer_ids_max=reader.number("producer.ids.max"),
        transaction_timeout_ms_max=reader.number("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=reader.number("transactional.id.expiration.ms"),
        transactional_ids_max=reader.number("transactional.ids.max"),
        snapshot_bytes_between=reader.number("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=reader.number("metadata.log.max.snapshot.interval.ms"),
        snapshot_fetch_bytes_max=reader.number("quorum.fetch.snapshot.max.bytes"),
        kv_quota_bytes=reader.number("kv.quota.bytes"),
        min_free_bytes=reader.number("log.dir.min.free.bytes"),
        connections_max=reader.number("max.connections"),
        connections_per_address=reader.parse("max.connections.per.ip", _parse_connections),
        peer_networks=reader.parse("peer.address.allow", parse_networks) or (),
        connections_idle_ms=reader.number("connections.max.idle.ms"),
        request_bytes_max=_request_bytes_max(reader),
        queued_request_bytes_max=reader.number("queued.max.request.bytes"),
        message_bytes_max=reader.number("message.max.bytes"),
        auto_create_topics=reader.parse("auto.create.topics.enable", parse_bool) or False,
        tier=_tier(reader),
    )


def _quorum_group(reader: _Reader) -> GroupId:
    """The metadata log, unless both name and id of another one are given."""
    topic, topic_id = reader.parse("quorum.topic", parse_topic), reader.parse("quorum.topic.id", parse_topic_id)
    if topic is None and topic_id is None:
        return METADATA_GROUP
    if topic is None or topic_id is None:
        given, missing = ("quorum.topic.id", "quorum.topic") if topic is None else ("quorum.topic", "quorum.topic.id")
        raise fail(given, reader.text(given) or "", f"needs {missing} too; accepted are both or neither")
    if (topic == METADATA_TOPIC) != (topic_id == METADATA_TOPIC_ID):
        contradicted = f"does not go with quorum.topic.id={reader.text('quorum.topic.id')}"
        raise fail("quorum.topic", topic, f"{contradicted}; that id belongs to {METADATA_TOPIC} and to no other topic")
    return GroupId(topic, 0, topic_id)


def _listeners(reader: _Reader, voter: Endpoint | None) -> tuple[Endpoint, Endpoint | None]:
    """The clients' listener and the peers'. Without settings a voter listens where the voter list says that it does."""
    listeners = reader.parse("listeners", parse_listeners) or {}
    controller = reader.parse("controller.listener", _parse_controller)
    if controller is not None and "CONTROLLER" in listeners:
        raise fail(
            reader.spelling("controller.listener"),
            str(controller),
            f"contradicts the CONTROLLER entry of {reader.spelling('listeners')}={reader.text('listeners')}; keep one",
        )
    controller = controller or listeners.get("CONTROLLER")
    main = listeners.get("PLAINTEXT")
    if main is None:
        main = voter if voter is not None and controller is None else Endpoint("127.0.0.1", 9092)
    return main, controller


def _advertised(reader: _Reader, listener: Endpoint, voter: Endpoint | None) -> Endpoint:
    def parse(key: str, value: str) -> Endpoint:
        listeners = parse_listeners(key, value)
        if len(listeners) > 1:
            raise fail(key, value, "accepted is one PLAINTEXT://host:port; peers use quorum.voters")
        if is_wildcard(listeners["PLAINTEXT"].host):
            raise fail(key, value, "no client can connect to that address; accepted is a host name or address of this machine")
        return listeners["PLAINTEXT"]

    advertised = reader.parse("advertised.listeners", parse)
    if advertised is not None:
        return advertised
    if not is_wildcard(listener.host):
        return listener
    if voter is not None:
        return Endpoint(voter.host, listener.port)
    raise ConfigError(
        f"advertised.listeners is not set, but listeners={listener} means every interface; "
        "accepted is the host:port that clients shall connect to"
    )


def _advertised_http(reader: _Reader, http: Endpoint, advertised: Endpoint) -> Endpoint:
    given = reader.parse("advertised.http.listener", _parse_http)
    if given is not None:
        return given
    return Endpoint(advertised.host, http.port) if is_wildcard(http.host) else http


def _parse_connections(key: str, value: str) -> int:
    return parse_int(key, value, low=1, high=NUMBERS["max.connections"].high)


def _parse_http(key: str, value: str) -> Endpoint:
    return parse_endpoint(key, value, scheme="http")


def _parse_controller(key: str, value: str) -> Endpoint:
    return parse_endpoint(key, value, scheme="CONTROLLER")


def _require_distinct(
    reader: _Reader, listener: Endpoint, controller: Endpoint | None, http: Endpoint, ops: Endpoint | None
) -> None:
    """No two of our own listeners on one port of one address (port 0 is a new one each time)."""
    named = [("listeners", listener), ("http.listener", http)]
    if controller is not None:
        named.append(("listeners" if reader.text("controller.listener") is None else "controller.listener", controller))
    if ops is not None:
        named.append(("http.ops.listener", ops))
    for index, (name, endpoint) in enumerate(named):
        for other_name, other in named[:index]:
            if endpoint == other and endpoint.port != 0:
                accepted = f"the same address as {reader.spelling(other_name)}; accepted is another port"
                raise fail(reader.spelling(name), str(endpoint), accepted)


def _require_peers_address(
    reader: _Reader, voter: Endpoint | None, for_clients: tuple[Endpoint, Endpoint], controller: Endpoint | None
) -> None:
    """Other voters would be sent to a listener that refuses them."""
    if controller is not None and voter != controller and voter in for_clients:
        given = "listeners" if reader.text("controller.listener") is None else "controller.listener"
        raise fail(
            reader.spelling("quorum.voters"),
            reader.text("quorum.voters") or "",
            f"{voter} is this node's listener for clients; accepted is where peers reach {reader.spelling(given)}={controller}",
        )


def _raft(reader: _Reader) -> RaftConfig:
    reader.require_at_most("quorum.retry.backoff.ms", "quorum.retry.backoff.max.ms")
    reader.require_at_most("quorum.election.jitter.max.ms", "quorum.election.timeout.ms")
    return RaftConfig(
        election_timeout_ms=reader.number("quorum.election.timeout.ms"),
        fetch_timeout_ms=reader.number("quorum.fetch.timeout.ms"),
        election_jitter_ms_max=reader.number("quorum.election.jitter.max.ms"),
        retry_backoff_ms=reader.number("quorum.retry.backoff.ms"),
        retry_backoff_ms_max=reader.number("quorum.retry.backoff.max.ms"),
        request_timeout_ms=reader.number("quorum.request.timeout.ms"),
        voters_in_log=_voters_in_log(reader),
    )


def _voters_in_log(reader: _Reader) -> bool:
    """quorum.kraft.version: the voters of somebody else's log stay static unless that is asked for."""
    version = reader.parse("quorum.kraft.version", lambda key, value: parse_int(key, value, low=0, high=1))
    return _quorum_group(reader) == METADATA_GROUP if version is None else version > 0


def _data_dir(reader: _Reader) -> Path:
    key = reader.spelling("log.dirs")
    value = reader.require("log.dirs", "the one directory that holds this node's data")
    if "," in value:
        raise fail(key, value, "several directories; accepted is exactly one")
    if "\0" in value:
        raise fail(key, value, "no path; accepted is exactly one directory")
    return Path(value).expanduser()


def _local_retention(reader: _Reader, name: str) -> int:
    """What local disks keep. Without a tier there is one copy, so a local retention of its own would delete the only one."""
    whole, local = reader.number(name), reader.number(f"local.{name}")
    if local in (-2, whole):
        return -2
    told = reader.spelling(f"local.{name}")
    if reader.text("tier.uri") is None:
        raise fail(
            told,
            str(local),
            f"differs from {reader.spelling(name)}={whole}, which needs a remote tier (tier.uri); "
            f"accepted is -2 (the same as {name})",
        )
    if local == -1 or 0 <= whole < local:
        raise fail(told, str(local), f"is more than {reader.spelling(name)}={whole}: nothing is kept longer here than in all")
    return local


def _tier(reader: _Reader) -> TierLocation | None:
    uri = reader.parse("tier.uri", parse_tier_uri)
    if uri is None:
        for name in ("tier.target.lag.ms", "tier.flush.bytes", "tier.request.timeout.ms"):
            if (value := reader.text(name)) is not None:
                raise fail(reader.spelling(name), value, "has no meaning without tier.uri; set that too, or remove it")
        return None
    require_packages(reader.spelling("tier.uri"), uri)
    return TierLocation(
        uri=uri,
        target_lag_ms=reader.number("tier.target.lag.ms"),
        flush_bytes=reader.number("tier.flush.bytes"),
        request_timeout_ms=reader.number("tier.request.timeout.ms"),
    )


def _request_bytes_max(reader: _Reader) -> int:
    """A frame holds at least one batch and its headers; the largest one must be able to come in."""
    reader.require_at_most("socket.request.max.bytes", "queued.max.request.bytes")
    request, message = reader.number("socket.request.max.bytes"), reader.number("message.max.bytes")
    if message + 4096 > request:
        raise fail(
            reader.spelling("message.max.bytes"),
            str(message),
            f"does not fit into {reader.spelling('socket.request.max.bytes')}={request}; accepted is at most {request - 4096}",
        )
    return request
