"""Who writes the position of a source into the quorum, so that an older driver does not write over a newer one's.

The key of a source belongs to the run that took it last. A run takes it once, as it begins, with a generation one higher than
it finds, and every later write compares the version. A run that finds a generation that is not below its own was replaced: it
looks from now on, and writes nothing. Only where the other run has fallen silent while this one goes on reading, this one takes
the key again: two runs that began at nearly the same time may have taken the key in the wrong order.

Two sources of one query that read the same have keys of their own, with numbers. No clock of another machine is compared.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from raftlake.client import Put
from raftlake.client import query_positions as keys
from raftlake.client.errors import KvConflict
from raftlake.client.query_positions import SourcePosition

if TYPE_CHECKING:
    from raftlake.client.types import KvEntry, KvPage

#: One command or question, ms. Nothing waits for it but the next one.
TRY_MS = 5_000
#: A run that was replaced takes the key again once nobody has written it for so long, by its own clock, ms.
SILENT_MS = 180_000
#: Sources of one query that read the same and have keys.
EQUALS_MAX = 8
ABSENT = 0
_LOOKS_MAX = 10


class Keys(Protocol):
    """The part of `raftlake.client.Client.kv` that is needed here."""

    def get(self, key: str, *, timeout_ms: float | None = None) -> KvEntry | None: ...

    def list(
        self, prefix: str = "", *, after: str | None = None, values: bool = False, timeout_ms: float | None = None
    ) -> KvPage: ...

    def txn(self, compare: Mapping[str, int], ops: Sequence[Put], *, timeout_ms: float | None = None) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOfRun:
    """One source of one run of a query."""

    query: str
    run: str
    #: The name of the query, empty without one.
    name: str
    #: What it reads: the option and its value.
    reads: str
    host: str
    pid: int
    #: Tells it from other sources of its run.
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class _Held:
    """The key, and the version that this source has put."""

    key: str
    version: int
    generation: int


@dataclass(slots=True)
class _Replaced:
    """Another run owns the key: at which version, seen first at which time, and where this one was then."""

    key: str
    version: int
    generation: int
    since_ms: float
    offsets: Mapping[str, Mapping[int, int]]


class PositionWriter:
    """`now_ms` is a clock that only goes forward."""

    def __init__(self, kv: Keys, source: SourceOfRun, now_ms: Callable[[], float]) -> None:
        self._kv = kv
        self._source = source
        self._now_ms = now_ms
        self._held: _Held | None = None
        self._replaced: _Replaced | None = None

    def write(self, offsets: Mapping[str, Mapping[int, int]], batch_ms: int, seen_ms: int) -> bool:
        """False where another run owns the key. RaftlakeError where the keys cannot be read or written."""
        if self._replaced is not None and not self._may_return(self._replaced, offsets):
            return False
        position = self._position(offsets, batch_ms, seen_ms)
        if self._held is not None and self._put(self._held.key, self._held.version, self._held.generation, position):
            return True
        return self._take(position)

    def claim(self, offsets: Mapping[str, Mapping[int, int]], now_ms: int) -> None:
        """Take the key, where the source has written nothing yet. What it has written is newer than this."""
        self._take(self._position(offsets, 0, now_ms), only_first=True)

    def _position(self, offsets: Mapping[str, Mapping[int, int]], batch_ms: int, seen_ms: int) -> SourcePosition:
        source = self._source
        return SourcePosition(
            offsets=offsets,
            batch_ms=batch_ms,
            seen_ms=seen_ms,
            run=source.run,
            writer=source.writer,
            name=source.name,
            reads=source.reads,
            host=source.host,
            pid=source.pid,
        )

    def _take(self, position: SourcePosition, *, only_first: bool = False) -> bool:
        """The key as it stands decides: a conflict, a command whose outcome is not known, or the first write."""
        number = 0
        for _ in range(_LOOKS_MAX + EQUALS_MAX):
            key = self._held.key if self._held is not None else self._key(number)
            entry = self._kv.get(key, timeout_ms=TRY_MS)
            found = None if entry is None else keys.decode(entry.value)
            version = ABSENT if entry is None else entry.version
            mine = 1 if self._held is None else self._held.generation
            if found is None:
                generation = mine
            elif found.writer == position.writer:
                if only_first:
                    return True
                generation = found.generation
            elif self._held is None:
                if found.run == position.run and number + 1 < EQUALS_MAX:
                    # Another source of this run, which reads the same.
                    number += 1
                    continue
                generation = found.generation + 1
            elif found.generation >= mine:
                self._held = None
                self._replaced = _Replaced(key, version, found.generation, self._now_ms(), position.offsets)
                return False
            else:
                generation = mine
            if found is not None and found.offsets == position.offsets and found.batch_ms:
                # A run that has read nothing yet had no batch.
                position = replace(position, batch_ms=found.batch_ms)
            if self._put(key, version, generation, position):
                return True
        raise KvConflict({self._key(0): ABSENT})

    def _put(self, key: str, version: int, generation: int, position: SourcePosition) -> bool:
        value = keys.encode(replace(position, generation=generation))
        try:
            put = self._kv.txn({key: version}, [Put(key, value)], timeout_ms=TRY_MS)
        except KvConflict:
            return False
        self._held = _Held(key, put, generation)
        return True

    def _may_return(self, replaced: _Replaced, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        entry = self._kv.get(replaced.key, timeout_ms=TRY_MS)
        version = ABSENT if entry is None else entry.version
        if version != replaced.version:
            replaced.version, replaced.since_ms, replaced.offsets = version, self._now_ms(), offsets
        if replaced.offsets == offsets or self._now_ms() - replaced.since_ms < SILENT_MS:
            return False
        self._replaced = None
        return True

    def _key(self, number: int) -> str:
        return keys.position_key(self._source.query, self._source.reads, number)


def find_source(kv: Keys, writer: str) -> tuple[str, SourcePosition] | None:
    """The query of the source that has this name as a writer, and what the source has written. Looks through all queries."""
    after: str | None = None
    while True:
        page = kv.list(keys.ROOT, after=after, values=True, timeout_ms=TRY_MS)
        for entry in page.entries:
            found = keys.decode(entry.value)
            if found is not None and found.writer == writer:
                return keys.query_of(entry.key), found
        if not page.more:
            return None
        after = page.last
