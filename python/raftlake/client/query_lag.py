"""How far streaming queries of Spark are behind: what their sources have written down, beside where the logs end.

Nothing here waits for a query. A query that is down is told of as well: its position is where it goes on. The keys are those of
`kv/query_positions.py`, which both connectors write.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from raftlake.client.deadline import Deadline
from raftlake.client.errors import QueryMissing
from raftlake.client.types import LATEST, IsolationLevel, QueryLag
from raftlake.errors import RaftlakeError
from raftlake.kv.query_positions import ROOT, Sources, Standing, query_prefix

if TYPE_CHECKING:
    from raftlake.client.kv import AsyncKv
    from raftlake.client.types import KvEntry, Record, TopicDescription

#: Partitions that are asked at once for the time of a record.
_READS_MAX = 16
#: Of a read for the time of one record. Whole batches come anyway.
_READ_BYTES = 4096


class Asked(Protocol):
    """What is asked of the client."""

    @property
    def kv(self) -> AsyncKv: ...

    async def topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = ...
    ) -> tuple[TopicDescription, ...]: ...

    async def list_offsets(
        self,
        topic: str,
        timestamps: Mapping[int, int],
        *,
        isolation: IsolationLevel = ...,
        timeout_ms: float | None = ...,
    ) -> dict[int, int]: ...

    async def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = ...,
        max_records: int | None = ...,
        max_wait_ms: int = ...,
        isolation: IsolationLevel = ...,
        timeout_ms: float | None = ...,
    ) -> list[Record]: ...


async def query_lags(
    client: Asked, query: str | None, topic: str | None, *, with_times: bool, timeout_ms: float
) -> tuple[QueryLag, ...]:
    """Of the queries with this id or name, or of all. `timeout_ms` is the time of all that is asked for it."""
    deadline = Deadline(timeout_ms)
    prefix = ROOT if query is None else await _prefix_of(client, query, deadline)
    standings = _standings(await _entries(client, prefix, deadline))
    if query is not None:
        standings = [each for each in standings if query in (each.query, each.source.name)]
        if not standings:
            raise QueryMissing(f"no streaming query has the id or the name {query!r}; `raftlake lag` names them")
    if topic is not None:
        standings = [each for each in standings if each.topic == topic]
        if not standings:
            raise QueryMissing(f"no streaming query{'' if query is None else f' {query!r}'} reads a topic {topic!r}")
    lags = await _with_ends(client, standings, deadline)
    return tuple(await _with_times(client, lags, deadline) if with_times else lags)


async def forget_query(client: Asked, query: str, timeout_ms: float) -> tuple[QueryLag, ...]:
    """Deletes the keys of a query, and returns what they said, without ends. `timeout_ms` is the time of both."""
    deadline = Deadline(timeout_ms)
    prefix = query_prefix(query)
    entries = await _entries(client, prefix, deadline)
    if not entries:
        raise QueryMissing(f"no streaming query has the id {query!r}; `raftlake lag` names them")
    newest = max(entry.version for entry in entries)
    await client.kv.delete_prefix(prefix, if_newest=newest, timeout_ms=deadline.remaining_ms())
    return tuple(_lag(each) for each in _standings(entries))


async def _prefix_of(client: Asked, query: str, deadline: Deadline) -> str:
    """What the keys begin with that tell of a query: those of its own, unless that is the name of some."""
    prefix = query_prefix(query)
    page = await client.kv.list(prefix, limit=1, timeout_ms=deadline.remaining_ms())
    return prefix if page.entries else ROOT


async def _entries(client: Asked, prefix: str, deadline: Deadline) -> list[KvEntry]:
    found: list[KvEntry] = []
    after: str | None = None
    while True:
        page = await client.kv.list(prefix, after=after, values=True, timeout_ms=deadline.remaining_ms())
        found += page.entries
        if not page.more:
            return found
        after = page.last


def _standings(entries: Iterable[KvEntry]) -> list[Standing]:
    sources = Sources()
    for entry in entries:
        sources.take(entry.key, entry.version, entry.value)
    return list(sources.standings())


async def _with_ends(client: Asked, standings: list[Standing], deadline: Deadline) -> list[QueryLag]:
    """With the high watermarks. A topic that was deleted has none, nor has one that was created again under its name: its
    offsets mean other records."""
    asked: dict[str, set[int]] = defaultdict(set)
    for each in standings:
        asked[each.topic].add(each.partition)
    described = await client.topics(sorted(asked), timeout_ms=deadline.remaining_ms()) if asked else ()
    topics = {topic.name: topic for topic in described}

    async def ask(topic: TopicDescription) -> dict[int, int]:
        existing = asked[topic.name] & {each.partition for each in topic.partitions}
        latest = dict.fromkeys(sorted(existing), LATEST)
        if not latest:
            return {}
        isolation = IsolationLevel.READ_UNCOMMITTED
        return await client.list_offsets(topic.name, latest, isolation=isolation, timeout_ms=deadline.remaining_ms())

    answers = await asyncio.gather(*(ask(topic) for topic in topics.values()))
    ends = dict(zip(topics, answers, strict=True))
    lags = []
    for each in standings:
        topic = topics.get(each.topic)
        is_it = topic is not None and each.topic_id in (None, topic.topic_id.hex())
        lags.append(_lag(each, ends[each.topic].get(each.partition) if is_it else None))
    return lags


def _lag(standing: Standing, end: int | None = None) -> QueryLag:
    source = standing.source
    return QueryLag(
        query=standing.query,
        name=source.name,
        topic=standing.topic,
        partition=standing.partition,
        position=standing.offset,
        end=end,
        batch_ms=source.batch_ms,
        seen_ms=source.seen_ms,
        host=source.host,
        pid=source.pid,
    )


async def _with_times(client: Asked, lags: list[QueryLag], deadline: Deadline) -> list[QueryLag]:
    """With the times of the first records that wait, as far as they can be had in time."""
    room = asyncio.Semaphore(_READS_MAX)

    async def ask(lag: QueryLag) -> QueryLag:
        if not lag.records:
            return lag
        async with room:
            # A partition without a leader takes all of the time, and those behind it have none left.
            return lag if deadline.is_over() else replace(lag, waiting_since_ms=await _time_at(client, lag, deadline))

    return list(await asyncio.gather(*(ask(lag) for lag in lags)))


async def _time_at(client: Asked, lag: QueryLag, deadline: Deadline) -> int | None:
    """Of the first record at or behind a position. None where it cannot be read: it was deleted, or only markers are there."""
    try:
        records = await client.read(
            lag.topic,
            lag.partition,
            lag.position,
            max_bytes=_READ_BYTES,
            max_records=1,
            max_wait_ms=0,
            isolation=IsolationLevel.READ_UNCOMMITTED,
            timeout_ms=deadline.remaining_ms(),
        )
    except RaftlakeError:
        return None
    return records[0].timestamp_ms if records else None
