"""How far streaming queries are: the keys that sources in Spark write below `/sources/`, and what they say together. Pure.

| key | value, JSON |
|---|---|
| `/sources/<query>/<topic>` | which topic the query reads under this name: `topic_id`, 32 hexadecimal digits |
| `/sources/<query>/positions/<source>` | what one source of the query has finished: `offsets` by topic and partition, each the next offset to read; `batch_ms`, when they changed last; `seen_ms`, when Spark asked last; `run`, Spark's id of the run; `writer`, a name of the source in this run; `generation`, one more with each run; `name` of the query, empty without one; `reads`, its option; `host`, `pid` of the driver |

`<query>` is the id of the query, `<source>` a digest of what the source reads (`source_name`); both percent-encoded. A source that
reads the same as another one of its query has `.1` and so on behind the digest. Times are ms since 1970 by the clock of the
driver. Members that are not known are kept by nobody. Who writes a value that is none of these hinders nobody.
"""  # noqa: E501 -- a row of a table

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from raftlake.kv.lenient_json import facts_of, number_of, text_of

ROOT = "/sources/"
_POSITIONS = "positions/"
#: Characters of a digest. Two sources of one query are told apart by it.
_DIGEST = 16
#: Of what a source reads, in a value: for people.
READS_CHARACTERS_MAX = 200
_OFFSET_MAX = 2**63 - 1
#: A longer value is no position: decoding it would take too long. Ten thousand partitions need less.
BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """What one source of a query has finished."""

    #: By topic and partition, the next offset to read.
    offsets: Mapping[str, Mapping[int, int]]
    batch_ms: int = 0
    seen_ms: int = 0
    run: str = ""
    writer: str = ""
    generation: int = 0
    name: str = ""
    reads: str = ""
    host: str = ""
    pid: int = 0


class Standing(NamedTuple):
    """How far a query is in one partition."""

    query: str
    topic: str
    partition: int
    #: The next offset to read.
    offset: int
    #: Of the topic that it reads under this name, in hexadecimal digits; None where that is not known.
    topic_id: str | None
    #: The source that says so.
    source: SourcePosition


def query_prefix(query: str) -> str:
    """What the keys of a query begin with."""
    return f"{ROOT}{quote(query, safe='')}/"


def query_of(key: str) -> str:
    """The query of a key below `ROOT`."""
    return unquote(key.removeprefix(ROOT).partition("/")[0])


def topic_key(query: str, topic: str) -> str:
    return query_prefix(query) + quote(topic, safe="")


def position_key(query: str, reads: str, number: int = 0) -> str:
    """Of the source with this number among those of a query that read the same."""
    behind = f".{number}" if number else ""
    return f"{query_prefix(query)}{_POSITIONS}{source_name(reads)}{behind}"


def source_name(reads: str) -> str:
    """The digest of what a source reads: `subscribe a,b`, `subscribePattern a.*` or `assign a-0,a-1`, sorted."""
    return hashlib.sha256(reads.encode()).hexdigest()[:_DIGEST]


def encode(position: SourcePosition) -> bytes:
    facts = {
        "offsets": {
            topic: {str(partition): offset for partition, offset in sorted(partitions.items())}
            for topic, partitions in sorted(position.offsets.items())
        },
        "batch_ms": position.batch_ms,
        "seen_ms": position.seen_ms,
        "run": position.run,
        "writer": position.writer,
        "generation": position.generation,
        "name": position.name,
        "reads": position.reads[:READS_CHARACTERS_MAX],
        "host": position.host,
        "pid": position.pid,
    }
    return json.dumps(facts, separators=(",", ":")).encode()


def decode(value: bytes | None) -> SourcePosition | None:
    """None where the value is no position."""
    if value is not None and len(value) > BYTES_MAX:
        return None
    facts = facts_of(value)
    offsets = _offsets(facts.get("offsets"))
    if offsets is None:
        return None
    return SourcePosition(
        offsets=offsets,
        batch_ms=_number(facts, "batch_ms"),
        seen_ms=_number(facts, "seen_ms"),
        run=text_of(facts, "run"),
        writer=text_of(facts, "writer"),
        generation=_number(facts, "generation"),
        name=text_of(facts, "name"),
        reads=text_of(facts, "reads"),
        host=text_of(facts, "host"),
        pid=_number(facts, "pid"),
    )


def decode_topic_id(value: bytes | None) -> str | None:
    """The id of a topic in hexadecimal digits; None where the value is none."""
    found = facts_of(value).get("topic_id")
    if not isinstance(found, str) or len(found) != 32:
        return None
    return found if all(digit in "0123456789abcdef" for digit in found) else None


@dataclass(slots=True)
class _Query:
    topic_ids: dict[str, str] = field(default_factory=dict)
    sources: list[tuple[int, SourcePosition]] = field(default_factory=list)


class Sources:
    """What all keys below `ROOT` say together. Values are decoded where their versions have changed since the last time."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, SourcePosition | str | None]] = {}
        self._known: dict[str, tuple[int, SourcePosition | str | None]] = {}

    def begin(self) -> None:
        """Forget the keys, to `take` those that there are now."""
        self._before, self._known = self._known, {}

    def take(self, key: str, version: int, value: bytes | None) -> None:
        found = self._before.get(key)
        if found is None or found[0] != version:
            found = version, decode(value) if _below(key).startswith(_POSITIONS) else decode_topic_id(value)
        self._known[key] = found

    def standings(self) -> Iterator[Standing]:
        """One for each query and partition, sorted; the work is done query by query.

        Of several sources that read a partition those of the run that wrote last count, and of these the one that is farthest
        behind. So what an earlier run has read otherwise is no word about this one."""
        queries: dict[str, _Query] = {}
        for key, (version, found) in self._known.items():
            of_query = queries.setdefault(query_of(key), _Query())
            if isinstance(found, SourcePosition):
                of_query.sources.append((version, found))
            elif found is not None:
                of_query.topic_ids[unquote(_below(key))] = found
        for query in sorted(queries):
            yield from _standings(query, queries[query])


def _below(key: str) -> str:
    """The key without its query."""
    return key.removeprefix(ROOT).partition("/")[2]


def _standings(query: str, known: _Query) -> list[Standing]:
    #: The newest version that each run has written.
    newest: dict[str, int] = {}
    for version, source in known.sources:
        newest[source.run] = max(version, newest.get(source.run, 0))
    found: dict[tuple[str, int], Standing] = {}
    for _, source in known.sources:
        for topic, partitions in source.offsets.items():
            for partition, offset in partitions.items():
                before = found.get((topic, partition))
                if before is not None:
                    mine, its = newest[source.run], newest[before.source.run]
                    if mine < its or (mine == its and before.offset <= offset):
                        continue
                found[topic, partition] = Standing(query, topic, partition, offset, known.topic_ids.get(topic), source)
    return [found[place] for place in sorted(found)]


def _offsets(found: object) -> dict[str, dict[int, int]] | None:
    if not isinstance(found, dict):
        return None
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not topic.isascii():
            return None
        for partition, offset in partitions.items():
            is_number = partition.isascii() and partition.isdigit() and len(partition) < 10
            if not is_number or type(offset) is not int or not 0 <= offset <= _OFFSET_MAX:
                return None
            offsets.setdefault(topic, {})[int(partition)] = offset
    return offsets


def _number(facts: Mapping[str, Any], name: str) -> int:
    found = number_of(facts, name)
    return found if 0 <= found <= _OFFSET_MAX else 0
