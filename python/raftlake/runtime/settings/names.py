"""Which settings exist, and who may give them: the names with their ranges, and the three sources of values.

Owns: the table of names, Kafka's synonyms, unknown names (with a suggestion) and doubled ones. `quorum.*` is accepted with
`controller.` in front too, and `controller.quorum.election.backoff.max.ms` is Kafka's name for our jitter. Knows no value's
meaning.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import ConfigError, without_secrets
from raftlake.raft.config import RaftConfig
from raftlake.replica.config import REPLICA_LAG_MS_MAX, SEGMENT_BYTES
from raftlake.runtime.settings.parsing import fail
from raftlake.runtime.settings.properties import parse_properties

MIB = 1024 * 1024
ENVIRONMENT_PREFIX = "RAFTLAKE_"
#: Variables with our prefix that are not settings.
_ENVIRONMENT_RESERVED = frozenset({"RAFTLAKE_PARENT_FD"})
#: Of options of the Spark source, which a node does not have.
_STORE_PREFIX = "tier.storage."
#: Kafka's spellings of our names, after `controller.` is gone.
SYNONYMS = {
    "quorum.election.backoff.max.ms": "quorum.election.jitter.max.ms",
    "log.dir": "log.dirs",
    "broker.id": "node.id",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
}
#: That of the storage, whose import would take long: positions in an index file are 32 bits wide.
_SEGMENT_BYTES_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric setting: its default and the range that is accepted."""

    default: int
    low: int
    high: int


_RAFT = RaftConfig()
NUMBERS: Mapping[str, Number] = {
    "quorum.election.timeout.ms": Number(_RAFT.election_timeout_ms, 10, 600_000),
    "quorum.fetch.timeout.ms": Number(_RAFT.fetch_timeout_ms, 10, 600_000),
    "quorum.election.jitter.max.ms": Number(_RAFT.election_jitter_ms_max, 1, 600_000),
    "quorum.retry.backoff.ms": Number(_RAFT.retry_backoff_ms, 1, 60_000),
    "quorum.retry.backoff.max.ms": Number(_RAFT.retry_backoff_ms_max, 1, 600_000),
    "quorum.request.timeout.ms": Number(_RAFT.request_timeout_ms, 10, 600_000),
    "replica.lag.time.max.ms": Number(REPLICA_LAG_MS_MAX, 1_000, 600_000),
    "log.segment.bytes": Number(SEGMENT_BYTES, 16 * 1024, _SEGMENT_BYTES_MAX),
    "retention.bytes": Number(-1, -1, _LONG_MAX),
    "retention.ms": Number(-1, -1, _LONG_MAX),
    "log.cleaner.backoff.ms": Number(15_000, 100, _LONG_MAX),
    "log.cleaner.dedupe.buffer.size": Number(128 * MIB, MIB, 16 * 1024 * MIB),
    "producer.id.expiration.ms": Number(86_400_000, 1, _LONG_MAX),
    "producer.ids.max": Number(1_000_000, 1, _LONG_MAX),
    "transaction.max.timeout.ms": Number(900_000, 1, 2**31 - 1),
    "transactional.id.expiration.ms": Number(604_800_000, 1, _LONG_MAX),
    "transactional.ids.max": Number(100_000, 1, _LONG_MAX),
    "local.retention.bytes": Number(-2, -2, _LONG_MAX),
    "local.retention.ms": Number(-2, -2, _LONG_MAX),
    "metadata.log.max.record.bytes.between.snapshots": Number(20 * MIB, 1, _LONG_MAX),
    "metadata.log.max.snapshot.interval.ms": Number(3_600_000, 1, _LONG_MAX),
    "quorum.fetch.snapshot.max.bytes": Number(MIB, 1024, 8 * MIB),
    "log.dir.min.free.bytes": Number(-1, -1, _LONG_MAX),
    "kv.quota.bytes": Number(1024 * MIB, 64 * 1024, _LONG_MAX),
    "max.connections": Number(2000, 1, 1_000_000),
    "metrics.max.partitions": Number(1000, 0, 1_000_000),
    "connections.max.idle.ms": Number(600_000, 1_000, _LONG_MAX),
    "socket.request.max.bytes": Number(100 * MIB, 64 * 1024, 2**31 - 1),
    "queued.max.request.bytes": Number(256 * MIB, 64 * 1024, _LONG_MAX),
    "message.max.bytes": Number(8 * MIB, 1024, 1024 * MIB),
    "tier.target.lag.ms": Number(60_000, 1_000, _LONG_MAX),
    "tier.flush.bytes": Number(32 * MIB, 64 * 1024, _LONG_MAX),
    "tier.request.timeout.ms": Number(120_000, 1_000, 3_600_000),
}
TEXTS = frozenset(
    {
        "node.id",
        "quorum.voters",
        "quorum.kraft.version",
        "quorum.bootstrap.servers",
        "quorum.auto.join.enable",
        "auto.create.topics.enable",
        "quorum.topic",
        "quorum.topic.id",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "controller.listener",
        "http.listener",
        "advertised.http.listener",
        "http.allowed.hosts",
        "http.ops.listener",
        "max.connections.per.ip",
        "peer.address.allow",
        "tier.uri",
    }
)
KNOWN = frozenset(NUMBERS) | TEXTS


@dataclass(frozen=True, slots=True)
class Given:
    """One setting as somebody wrote it: the spelling, and where, are for the error message."""

    spelling: str
    value: str
    source: str


def gather(path: Path | None, environ: Mapping[str, str], overrides: Sequence[str]) -> dict[str, Given]:
    """Every setting that was given, under its canonical name; the later sources win. Raises `ConfigError`."""
    given: dict[str, Given] = {}
    if path is not None:
        given.update(_canonical(_read_file(path)))
    given.update(_canonical(_from_environment(environ)))
    given.update(_canonical(_from_overrides(overrides)))
    return given


def _read_file(path: Path) -> list[Given]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the settings file {path} is not UTF-8 (byte {error.start})") from error
    return [Given(key, value.strip(), str(path)) for key, value in parse_properties(text, str(path)).items()]


def canonical(values: Mapping[str, str], source: str) -> dict[str, Given]:
    """Settings that a program gives, under their canonical names. Raises `ConfigError`, which names `source`."""
    return _canonical([Given(key.strip(), value.strip(), source) for key, value in values.items()])


def variables(environ: Mapping[str, str]) -> list[str]:
    """The names of the variables that are settings of a node."""
    return [name for name, key in _keys(environ) if canonical_name(key) in KNOWN]


def _keys(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The variables with our prefix, and the key that each one would be."""
    names = [name for name in sorted(environ) if name.startswith(ENVIRONMENT_PREFIX) and name not in _ENVIRONMENT_RESERVED]
    return [(name, name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")) for name in names]


def _from_environment(environ: Mapping[str, str]) -> list[Given]:
    """`RAFTLAKE_QUORUM_VOTERS` is quorum.voters. A name that is nearly one of ours is refused; others are ignored: container
    platforms add variables such as RAFTLAKE_SERVICE_HOST by themselves."""
    found = []
    for name, key in _keys(environ):
        if canonical_name(key) not in KNOWN:
            if close := difflib.get_close_matches(key, _spellings(), n=1, cutoff=0.85):
                meant = ENVIRONMENT_PREFIX + close[0].upper().replace(".", "_")
                raise ConfigError(f"{name}: unknown setting in the environment; did you mean {meant}?")
            continue
        found.append(Given(key, environ[name].strip(), f"environment variable {name}"))
    return found


def _from_overrides(overrides: Sequence[str]) -> list[Given]:
    found = []
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--set {override}: accepted is --set key=value")
        found.append(Given(key.strip(), value.strip(), "--set"))
    return found


def canonical_name(key: str) -> str:
    """Our spelling of a setting that may be in Kafka's."""
    name = key.removeprefix("controller.") if key.startswith("controller.quorum.") else key
    return SYNONYMS.get(name, name)


def _canonical(layer: Sequence[Given]) -> dict[str, Given]:
    """Known names only, each at most once within a layer."""
    found: dict[str, Given] = {}
    for given in layer:
        name = canonical_name(given.spelling)
        if name not in KNOWN:
            # What nobody knows may be a secret of another program: its value is not shown.
            raise ConfigError(f"{given.spelling}: unknown setting in {given.source}{_suggestion(given.spelling)}")
        other = found.get(name)
        if other is not None and other.value != given.value:
            raise fail(
                given.spelling,
                given.value,
                without_secrets(f"contradicts {other.spelling}={other.value} in {given.source}; keep one"),
            )
        found[name] = given
    return found


def _spellings() -> list[str]:
    names = sorted(KNOWN | frozenset(SYNONYMS))
    return names + [f"controller.{name}" for name in names if name.startswith("quorum.")]


def _suggestion(key: str) -> str:
    if key.startswith(_STORE_PREFIX):
        return (
            "; a node takes what its store needs from its environment, in the words of delta-rs, such as AWS_SECRET_ACCESS_KEY"
        )
    close = difflib.get_close_matches(key, _spellings(), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; the known ones are {', '.join(sorted(KNOWN))}"
