"""The options of a query, parsed once on the driver into frozen values that cross to the executors by pickle.

Nothing below this module sees a raw option. Names are case-insensitive; unknown, contradictory and unsupported ones are refused
by name (see `option_names`), so that a misspelt option never changes silently what a job does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from pyspark_raftlake import errors
from pyspark_raftlake import option_names as names
from pyspark_raftlake.offsets import (
    EARLIEST,
    LATEST,
    OWN_TOPICS,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    Position,
    TopicPartition,
    parse_offsets,
    parse_partitions,
    topics_of,
)
from pyspark_raftlake.raw_options import RawOptions
from raftlake.errors import ConfigError, without_secrets

_DELAY_MS_DEFAULT = 15 * 60_000
#: As Kafka's default.api.timeout.ms.
ASK_MS_DEFAULT = 60_000
#: How often a stream writes down how far it is.
POSITION_INTERVAL_MS_DEFAULT = 5_000
#: An outage of two minutes, and time for the nodes to start and to elect.
OUTAGE_MS_MAX = 150_000
#: The longest that nodes allow by default (transaction.max.timeout.ms).
TRANSACTION_MS_MAX = 900_000
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Consistency(Enum):
    """What a plan knows of the log's end."""

    #: The high watermark: all of it is committed, and it never goes back; the newest acknowledged appends may be missing.
    COMMITTED = "committed"
    #: ReadOffset (KIP-650): every append that was acknowledged before the batch was planned is in it.
    LINEARIZABLE = "linearizable"


class Tier(Enum):
    """Where the records of a topic with a remote tier are read."""

    #: History from its Delta table, and the log from where that ends: one offset space.
    AUTO = "auto"
    #: Only what the nodes have on local disks.
    LOCAL = "local"
    #: Only the Delta table: it ends where the table ends.
    REMOTE = "remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOptions:
    mode: Tier = Tier.AUTO
    #: Where the tables of the topics are; None: where the nodes say.
    uri: str | None = None
    #: Options of their store.
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def is_strict(self) -> bool:
        """The user asked for tables: one that cannot be read is an error, and no reason to ask the nodes."""
        return self.mode is Tier.REMOTE or self.uri is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an outage of the quorum is waited for."""

    #: How long one question is asked, ms.
    ask_ms: int = ASK_MS_DEFAULT
    #: How often a question that was not answered is asked once more, and the pause before it, ms.
    retries_max: int = 3
    interval_ms: int = 1_000
    #: One request on one connection, ms; None: as the client thinks right.
    request_ms: int | None = None
    #: The option that makes a wait that was too short longer.
    setting: str = names.FETCH_RETRIES

    @property
    def total_ms(self) -> int:
        """All that a question may take."""
        return self.ask_ms * (self.retries_max + 1) + self.interval_ms * self.retries_max


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """Where the nodes are. One client per worker process and value of this class."""

    bootstrap_servers: str
    client_id: str
    patience: Patience = Patience()
    #: A query runs, and the nodes were there when it began: to find none of them is an outage. Else the address may be wrong.
    is_running: bool = True


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]
    option: ClassVar[str] = names.SUBSCRIBE

    def names(self, partition: TopicPartition) -> bool:
        """Whether the query is to read this partition, where it exists."""
        return partition.topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Topics whose whole name matches a regular expression; new ones are found while the query runs.

    Those that raftlake keeps for itself match no expression but one that begins as they do: a stateful query of all topics
    would read the changes of its own state, and so change it again.
    """

    pattern: str
    option: ClassVar[str] = names.SUBSCRIBE_PATTERN

    def names(self, partition: TopicPartition) -> bool:
        """As `Subscribe.names`."""
        return self.matches(partition.topic)

    def matches(self, topic: str) -> bool:
        is_meant = not topic.startswith(OWN_TOPICS) or self.pattern.startswith(OWN_TOPICS)
        return is_meant and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]
    option: ClassVar[str] = names.ASSIGN

    def names(self, partition: TopicPartition) -> bool:
        """As `Subscribe.names`."""
        return partition in self.partitions


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    quorum: Quorum
    selection: Selection
    #: None: the default, which is latest for a stream and earliest for a batch query.
    starting: Position | None
    #: None: latest.
    ending: Position | None
    #: Where no record is as late as a starting timestamp: begin at the end, or refuse.
    starts_at_latest_without_match: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    consistency: Consistency
    tier: TierOptions
    #: Only what transactions have committed, up to the first one that is not decided.
    reads_committed: bool = True
    #: How often a stream writes down how far it is; 0: never.
    position_interval_ms: int = POSITION_INTERVAL_MS_DEFAULT

    def for_stream(self) -> SourceOptions:
        """These options with a stream's defaults; ConfigError for what only a batch query can have."""
        match self.ending:
            case None:
                return replace(self, starting=self.starting or Latest())
            case AtTimestamp() | AtTimestamps():
                raise ConfigError("ending timestamp not valid in streaming queries")
            case _:
                raise ConfigError("ending offset not valid in streaming queries")

    def for_batch(self) -> SourceOptions:
        """These options with a batch query's defaults; ConfigError for a start at the end or an end at the start."""
        starting, ending = self.starting or Earliest(), self.ending or Latest()
        if isinstance(starting, Latest):
            raise ConfigError("starting offset can't be latest for batch queries on raftlake")
        if isinstance(ending, Earliest):
            raise ConfigError("ending offset can't be earliest for batch queries on raftlake")
        if isinstance(starting, AtOffsets):
            _forbid(starting, LATEST, "startingOffsets for {} can't be latest for batch queries on raftlake")
        if isinstance(ending, AtOffsets):
            _forbid(ending, EARLIEST, "ending offset for {} can't be earliest for batch queries on raftlake")
        if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
            _require_order(starting, ending)
        if isinstance(starting, AtTimestamp | AtTimestamps) and isinstance(ending, AtTimestamp | AtTimestamps):
            _require_time_order(starting, ending)
        return replace(self, starting=starting, ending=ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    quorum: Quorum
    #: Takes precedence over a topic column; None: every row names its topic.
    topic: str | None
    compression: str
    #: From the submission of a batch on, retries included, ms.
    delivery_ms_max: int = OUTAGE_MS_MAX
    #: Of a batch write that is to happen once: for whom it is, and its number, which only rises.
    app: str | None = None
    app_version: int = -1
    #: How long the rows of a task may wait for the commit of their batch, ms.
    transaction_ms_max: int = TRANSACTION_MS_MAX


def parse_source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError, naming the option."""
    options = RawOptions(raw, names.SOURCE_OPTIONS, names.SOURCE_OPTIONS_WITHOUT_EFFECT, names.TIER_STORAGE_PREFIX)
    isolation = options.choice(names.ISOLATION_LEVEL, ("read_committed", "read_uncommitted"), "read_committed")
    selection = _selection(options)
    strategy = options.choice(names.TIMESTAMP_STRATEGY, ("error", "latest"), "error")
    offsets_max = options.positive(names.MAX_OFFSETS)
    offsets_min = options.positive(names.MIN_OFFSETS)
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise ConfigError(
            f"The value of minOffsetsPerTrigger({offsets_min}) is higher than the maxOffsetsPerTrigger({offsets_max})."
        )
    patience = Patience(
        ask_ms=options.positive(names.API_TIMEOUT) or ASK_MS_DEFAULT,
        retries_max=options.count(names.FETCH_RETRIES, Patience().retries_max),
        interval_ms=options.count(names.FETCH_RETRY_INTERVAL, Patience().interval_ms),
        request_ms=options.positive(names.REQUEST_TIMEOUT),
    )
    return SourceOptions(
        quorum=_quorum(options, patience),
        selection=selection,
        starting=_position(options, names.STARTS, selection),
        ending=_position(options, names.ENDS, selection),
        starts_at_latest_without_match=strategy == "latest",
        offsets_per_trigger_max=offsets_max,
        offsets_per_trigger_min=offsets_min,
        trigger_delay_ms_max=options.duration_ms(names.MAX_TRIGGER_DELAY, _DELAY_MS_DEFAULT),
        partitions_min=options.positive(names.MIN_PARTITIONS),
        records_per_partition_max=options.positive(names.MAX_RECORDS_PER_PARTITION),
        fail_on_data_loss=options.flag(names.FAIL_ON_DATA_LOSS, default=True),
        include_headers=options.flag(names.INCLUDE_HEADERS, default=False),
        consistency=Consistency(
            options.choice(names.CONSISTENCY, tuple(level.value for level in Consistency), Consistency.COMMITTED.value)
        ),
        tier=_tier(options),
        reads_committed=isolation == "read_committed",
        position_interval_ms=options.count(names.POSITION_INTERVAL, POSITION_INTERVAL_MS_DEFAULT),
    )


def parse_sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError, naming the option."""
    options = RawOptions(raw, names.SINK_OPTIONS, names.SINK_OPTIONS_WITHOUT_EFFECT)
    topic = options.get(names.TOPIC)
    if topic == "":
        raise errors.wrong_value(names.TOPIC, topic, "the name of a topic")
    app = options.get(names.TXN_APP)
    if (app is None) != (options.get(names.TXN_VERSION) is None) or app == "":
        raise ConfigError(f"Options '{names.TXN_APP}' and '{names.TXN_VERSION}' go together: who writes, and a rising number")
    # Without effect here, and a wrong value is wrong here too.
    options.choice(names.REAL_TIME_DELIVERY, names.REAL_TIME_DELIVERIES, names.REAL_TIME_DELIVERIES[0])
    patience = Patience(
        ask_ms=options.positive(names.BLOCK_TIMEOUT) or OUTAGE_MS_MAX,
        retries_max=0,
        request_ms=options.positive(names.REQUEST_TIMEOUT),
        setting=names.BLOCK_TIMEOUT,
    )
    return SinkOptions(
        quorum=_quorum(options, patience),
        topic=topic,
        compression=options.choice(names.COMPRESSION, _COMPRESSIONS, "none"),
        app=app,
        app_version=options.count(names.TXN_VERSION, -1),
        delivery_ms_max=options.positive(names.DELIVERY_TIMEOUT) or OUTAGE_MS_MAX,
        transaction_ms_max=options.positive(names.TRANSACTION_TIMEOUT) or TRANSACTION_MS_MAX,
    )


def _quorum(options: RawOptions, patience: Patience) -> Quorum:
    given = options.given((names.SERVERS, names.SERVERS_SHORT))
    values = {options.require(name) for name in given} or {os.environ.get(names.SERVERS_ENVIRONMENT, "")}
    if len(values) > 1:
        raise errors.exclusive_options(given)
    servers = values.pop()
    if not servers:
        raise errors.missing_servers()
    from raftlake.client.types import parse_servers

    parse_servers(servers)
    return Quorum(bootstrap_servers=servers, client_id=options.get(names.CLIENT_ID) or "pyspark-raftlake", patience=patience)


def _tier(options: RawOptions) -> TierOptions:
    uri = options.get(names.TIER_URI)
    if uri == "":
        raise errors.wrong_value(names.TIER_URI, uri, "where the tables of the topics are, as tier.uri of the nodes")
    if uri is not None and (shown := without_secrets(uri)) != uri:
        raise errors.wrong_value(names.TIER_URI, shown, "a place without password and query; tier.storage.<option> takes them")
    return TierOptions(
        mode=Tier(options.choice(names.TIER, tuple(mode.value for mode in Tier), Tier.AUTO.value)),
        uri=uri,
        storage=options.behind(names.TIER_STORAGE_PREFIX),
    )


def _selection(options: RawOptions) -> Selection:
    name = options.only_one(names.SELECTIONS)
    if name is None:
        raise errors.no_selection()
    value = options.require(name)
    if name == names.SUBSCRIBE:
        topics = tuple(sorted({topic.strip() for topic in value.split(",")} - {""}))
        if not topics:
            raise errors.wrong_value(name, value, "topics separated by commas")
        return Subscribe(topics)
    if name == names.SUBSCRIBE_PATTERN:
        try:
            re.compile(value)
        except re.error as error:
            raise errors.wrong_value(name, value, f"a regular expression ({error})") from error
        if not value:
            raise errors.wrong_value(name, value, "a regular expression")
        return SubscribePattern(value)
    partitions = parse_partitions(value)
    if not partitions:
        raise errors.wrong_value(name, value, 'partitions by topic, as {"topicA":[0,1]}')
    return Assign(partitions)


def _position(options: RawOptions, candidates: Sequence[str], selection: Selection) -> Position | None:
    name = options.only_one(candidates)
    if name is None:
        return None
    if name in (names.STARTING_TIMESTAMP, names.ENDING_TIMESTAMP):
        return AtTimestamp(options.timestamp_ms(name))
    value = options.require(name)
    if name in (names.STARTING_OFFSETS_BY_TIMESTAMP, names.ENDING_OFFSETS_BY_TIMESTAMP):
        timestamps_ms = parse_offsets(value)
        _require_selected(name, timestamps_ms, selection)
        if any(timestamp < 0 for timestamp in timestamps_ms.values()):
            raise errors.wrong_value(name, value, "milliseconds since 1970 for each partition")
        return AtTimestamps(timestamps_ms)
    match value.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    if not value.startswith("{"):
        raise errors.wrong_value(name, value, 'earliest, latest or offsets as {"topicA":{"0":23,"1":-2}}')
    offsets = parse_offsets(value)
    _require_selected(name, offsets, selection)
    return AtOffsets(offsets)


def _require_selected(name: str, offsets: Mapping[TopicPartition, int], selection: Selection) -> None:
    """Offsets of what the query does not read are a mistake; a pattern's topics are not known yet."""
    match selection:
        case Subscribe(topics):
            foreign = sorted(set(topics_of(offsets)) - set(topics))
        case Assign(partitions):
            foreign = [str(partition) for partition in sorted(set(offsets) - set(partitions))]
        case SubscribePattern():
            foreign = [topic for topic in topics_of(offsets) if not selection.matches(topic)]
    if foreign:
        raise ConfigError(f"Option '{name}' names what the query does not read: {', '.join(foreign)}")


def _forbid(position: AtOffsets, offset: int, text: str) -> None:
    for partition, found in position.offsets.items():
        if found == offset:
            raise ConfigError(text.format(partition))


def _require_order(starting: AtOffsets, ending: AtOffsets) -> None:
    if set(starting.offsets) != set(ending.offsets):
        raise ConfigError("startingOffsets and endingOffsets must name the same partitions")
    for partition, start in starting.offsets.items():
        end = ending.offsets[partition]
        if end >= 0 and start > end:
            raise errors.start_after_end(partition, start, end)


def _require_time_order(starting: AtTimestamp | AtTimestamps, ending: AtTimestamp | AtTimestamps) -> None:
    for partition in [*_partitions_of(starting), *_partitions_of(ending), None]:
        start_ms, end_ms = _time_of(starting, partition), _time_of(ending, partition)
        if start_ms is not None and end_ms is not None and start_ms > end_ms:
            raise errors.start_time_after_end_time(start_ms, end_ms)


def _partitions_of(position: AtTimestamp | AtTimestamps) -> list[TopicPartition]:
    return [] if isinstance(position, AtTimestamp) else list(position.timestamps_ms)


def _time_of(position: AtTimestamp | AtTimestamps, partition: TopicPartition | None) -> int | None:
    if isinstance(position, AtTimestamp):
        return position.timestamp_ms
    return None if partition is None else position.timestamps_ms.get(partition)
