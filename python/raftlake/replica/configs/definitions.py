"""The configs that a topic can have: name, type, accepted values, default, documentation.

Owns the table `DEFINITIONS`. Names and meanings are Kafka's (org.apache.kafka.common.config.TopicConfig); what is accepted is
narrower where this log cannot obey, and the refusal says why. A default comes from a setting of the node, where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from raftlake.errors import ErrorCode, RequestRejected, printable
from raftlake.replica.config import MESSAGE_BYTES_MAX, SEGMENT_BYTES, NodeConfig

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
#: As `log.segment.bytes`: each segment costs its node some waits for the disk.
SEGMENT_BYTES_MIN = 16 * 1024
#: What a refusal repeats of a value.
SHOWN_CHARACTERS_MAX = 100
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
#: What `cleanup.policy` lists.
DELETE, COMPACT = "delete", "compact"
DAY_MS = 86_400_000
#: `local.retention.*`: as much as `retention.*`.
AS_RETENTION = -2
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_RATIO = re.compile(r"(?:0|1)(?:\.[0-9]{1,17})?|\.[0-9]{1,17}")


class ConfigType(IntEnum):
    """Kafka's ConfigDef.Type, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a node knows of itself that decides which values a topic can have."""

    node: NodeConfig
    #: So many voters have to have a record before it is acknowledged.
    majority: int
    #: The node copies topics to a remote tier.
    is_tiered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One config. `check` gives the value as it is stored, and raises ValueError that says what is accepted."""

    name: str
    type: ConfigType
    documentation: str
    check: Callable[[str, Surroundings], str]
    #: The value where the topic says nothing: of this node, and of a node without any setting.
    default: Callable[[Surroundings], str]
    built_in: Callable[[Surroundings], str]
    #: The setting of `node.properties` that gives the default; None where no setting does.
    setting: str | None = None


def number_of(value: str) -> int | None:
    """The number that a text is, as Java reads it; None for any other text."""
    text = value.strip()
    return int(text) if _INTEGER.fullmatch(text) else None


def _numbers(
    unit: str, low: int, high: Callable[[Surroundings], int], why_high: str = ""
) -> Callable[[str, Surroundings], str]:
    def check(value: str, around: Surroundings) -> str:
        number, most = number_of(value), high(around)
        if number is None or not low <= number <= most:
            raise ValueError(f"accepted is a number of {unit} from {low} to {most}{why_high}")
        return str(number)

    return check


def _up_to(most: int) -> Callable[[Surroundings], int]:
    return lambda _around: most


def _check_cleanup(value: str, _around: Surroundings) -> str:
    policies = list_of(value)
    if not policies or len(set(policies)) < len(policies) or not {COMPACT, DELETE}.issuperset(policies):
        raise ValueError("accepted is delete, compact, or compact,delete")
    return ",".join(sorted(policies))


def _check_ratio(value: str, _around: Surroundings) -> str:
    text = value.strip()
    if _RATIO.fullmatch(text) is None or float(text) > 1:
        raise ValueError("accepted is a number from 0 to 1, as 0.5")
    return str(float(text))


def _check_compression(value: str, _around: Surroundings) -> str:
    if value.strip() != "producer":
        raise ValueError("accepted is producer: nodes keep batches as they were sent, and compress nothing anew")
    return "producer"


def _check_time(value: str, _around: Surroundings) -> str:
    if value.strip() not in (CREATE_TIME, LOG_APPEND_TIME):
        raise ValueError(f"accepted is {CREATE_TIME} or {LOG_APPEND_TIME}")
    return value.strip()


def _check_in_sync(value: str, around: Surroundings) -> str:
    number = number_of(value)
    if number is None or not 1 <= number <= around.majority:
        raise ValueError(
            f"accepted is a number of voters from 1 to {around.majority}, the majority: a record is acknowledged once a "
            "majority has it, never sooner and never later"
        )
    return str(number)


def list_of(value: str) -> list[str]:
    """The entries of a value of type LIST."""
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _retention(name: str, unit: str, documentation: str, of: Callable[[NodeConfig], int]) -> Definition:
    return Definition(
        name=name,
        type=ConfigType.LONG,
        documentation=documentation,
        check=_numbers(unit, -1, _up_to(LONG_MAX)),
        default=lambda around: str(of(around.node)),
        built_in=lambda _around: "-1",
        setting=name,
    )


def _fixed(name: str, default: int, low: int, documentation: str) -> Definition:
    """Milliseconds, whose default no setting changes."""
    return Definition(
        name=name,
        type=ConfigType.LONG,
        documentation=documentation,
        check=_numbers("milliseconds", low, _up_to(LONG_MAX)),
        default=lambda _around: str(default),
        built_in=lambda _around: str(default),
    )


def _local(name: str, unit: str, of: Callable[[NodeConfig], int]) -> Definition:
    return Definition(
        name=name,
        type=ConfigType.LONG,
        documentation=(
            f"What local disks keep of a partition that has a remote tier, at most {name.removeprefix('local.')}; -2: the same."
        ),
        check=_numbers(unit, AS_RETENTION, _up_to(LONG_MAX)),
        default=lambda around: str(of(around.node)),
        built_in=lambda _around: str(AS_RETENTION),
        setting=name,
    )


_ALL = (
    Definition(
        name="cleanup.policy",
        type=ConfigType.LIST,
        documentation="What becomes of old records. delete: they go when they are too old or too many. compact: the newest "
        "record of each key stays, and older ones go. compact,delete: both.",
        check=_check_cleanup,
        default=lambda _around: DELETE,
        built_in=lambda _around: DELETE,
    ),
    Definition(
        name="compression.type",
        type=ConfigType.STRING,
        documentation="producer: batches stay compressed as their producer sent them. There is no other value.",
        check=_check_compression,
        default=lambda _around: "producer",
        built_in=lambda _around: "producer",
    ),
    _fixed(
        "delete.retention.ms",
        DAY_MS,
        0,
        "With cleanup.policy=compact: how long a tombstone, a record without a value, stays after it was compacted, in "
        "milliseconds. A reader that takes longer from the start of the log to its end may miss deletions.",
    ),
    _local("local.retention.bytes", "bytes", lambda node: node.local_retention_bytes),
    _local("local.retention.ms", "milliseconds", lambda node: node.local_retention_ms),
    Definition(
        name="max.message.bytes",
        type=ConfigType.INT,
        documentation="The largest record batch that a producer may send, compressed as it is, in bytes. It is at most "
        "message.max.bytes of the nodes.",
        check=_numbers(
            "bytes",
            0,
            lambda around: min(around.node.message_bytes_max, INT_MAX),
            ", which is message.max.bytes of node.properties",
        ),
        default=lambda around: str(around.node.message_bytes_max),
        built_in=lambda _around: str(MESSAGE_BYTES_MAX),
        setting="message.max.bytes",
    ),
    Definition(
        name="message.timestamp.type",
        type=ConfigType.STRING,
        documentation="CreateTime: records keep the time that their producer gave them. LogAppendTime: all records of a batch "
        "have the time at which the leader appended it.",
        check=_check_time,
        default=lambda _around: CREATE_TIME,
        built_in=lambda _around: CREATE_TIME,
    ),
    Definition(
        name="min.cleanable.dirty.ratio",
        type=ConfigType.DOUBLE,
        documentation="With cleanup.policy=compact: a log is compacted when this part of its closed segments was not compacted "
        "yet.",
        check=_check_ratio,
        default=lambda _around: "0.5",
        built_in=lambda _around: "0.5",
    ),
    _fixed(
        "min.compaction.lag.ms",
        0,
        0,
        "With cleanup.policy=compact: a record stays for so long in any case, in milliseconds.",
    ),
    Definition(
        name="min.insync.replicas",
        type=ConfigType.INT,
        documentation="Kept for programs that look for it. It changes nothing: a record is acknowledged once a majority of the "
        "voters has it on disk, with any acks.",
        check=_check_in_sync,
        default=lambda around: str(around.majority),
        built_in=lambda around: str(around.majority),
    ),
    _retention(
        "retention.bytes",
        "bytes",
        "A partition keeps at least so many bytes; -1: everything. Whole closed segments are deleted, the oldest first.",
        lambda node: node.retention_bytes,
    ),
    _retention(
        "retention.ms",
        "milliseconds",
        "A segment is deleted when its newest record is older, in milliseconds; -1: never.",
        lambda node: node.retention_ms,
    ),
    Definition(
        name="segment.bytes",
        type=ConfigType.INT,
        documentation="A segment of a log is closed at this size, in bytes.",
        check=_numbers("bytes", SEGMENT_BYTES_MIN, _up_to(INT_MAX)),
        default=lambda around: str(around.node.segment_bytes),
        built_in=lambda _around: str(SEGMENT_BYTES),
        setting="log.segment.bytes",
    ),
    _fixed(
        "segment.ms",
        LONG_MAX,
        1,
        "A segment is closed when it has held records for so long, in milliseconds, also when no record comes.",
    ),
)
#: By name, sorted.
DEFINITIONS: Mapping[str, Definition] = MappingProxyType({each.name: each for each in _ALL})
#: What DescribeConfigs tells of a topic and nobody sets there.
READ_ONLY: Mapping[str, str] = MappingProxyType(
    {
        "remote.storage.enable": "it follows tier.uri of node.properties",
        "raftlake.tier.table.uri": "it follows tier.uri of node.properties",
    }
)


def checked(name: str, value: str, around: Surroundings) -> str:
    """The value of a config as it is stored. Raises RequestRejected(INVALID_CONFIG), which names the config, the value and what
    is accepted."""
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise RequestRejected(ErrorCode.INVALID_CONFIG, why_unknown(name))
    try:
        return definition.check(value, around)
    except ValueError as error:
        raise refusal(name, value, str(error)) from error


def compacts(configs: Mapping[str, str]) -> bool:
    """Whether a topic with these configs is compacted."""
    return COMPACT in list_of(configs.get("cleanup.policy", DELETE))


def refusal(name: str, value: str, why: str) -> RequestRejected:
    """What a client is told of a value that is not accepted."""
    return RequestRejected(ErrorCode.INVALID_CONFIG, f"topic config {name}={shown(value)}: {why}")


def shown(text: str) -> str:
    """What a refusal repeats of a name or of a value."""
    return printable(text[:SHOWN_CHARACTERS_MAX])


def why_unknown(name: str) -> str:
    """Why nobody sets a config of this name on a topic."""
    if name in READ_ONLY:
        return f"topic config {name} cannot be set: {READ_ONLY[name]}"
    return f"topic config {shown(name)} is not known here; accepted are {', '.join(DEFINITIONS)}"


def value_in_force(name: str, configs: Mapping[str, str], around: Surroundings) -> str:
    """The value of a config: the topic's, if it is one, else the node's."""
    definition = DEFINITIONS[name]
    if name in configs:
        try:
            return definition.check(configs[name], around)
        except ValueError:
            # Another release, or a node with other settings, took it.
            pass
    return definition.default(around)
