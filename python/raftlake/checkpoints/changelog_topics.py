"""The changes of a query's state in topics, as `QuorumStateStoreProvider` in Java writes them (docs/checkpoints.md, "State").

A partition has the versions of one store. A version is one batch or several; each ends with a trailer, a record without a key
that says what the batch holds. A reader goes back from trailer to trailer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raftlake.client.errors import GONE
from raftlake.client.types import EARLIEST, Record
from raftlake.errors import RequestRejected, WrongState

FORMAT = 1
_PREFIX = "__raftlake-state-"
_DEFAULT_STORE = "default"


class Topics(Protocol):
    """The part of `Client` that is used here."""

    def list_offsets(self, topic: str, timestamps: Mapping[int, int]) -> dict[int, int]: ...

    def read_offset(self, topic: str, partitions: Iterable[int]) -> dict[int, int]: ...

    def read(self, topic: str, partition: int, offset: int, *, max_records: int, max_wait_ms: int) -> list[Record]: ...


#: The offsets of a batch's first record and of its trailer; the batches of a version, in their order.
Piece = tuple[int, int]
Place = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Trailer:
    """`lineage`: versions since the newest snapshot that the writer knew, with their ids. `unique_id` is None in Spark's
    checkpoint format 1."""

    version: int
    unique_id: str | None
    place: Place
    lineage: tuple[tuple[int, str], ...]

    @property
    def parent(self) -> str | None:
        """The id of the version before."""
        return next((unique_id for version, unique_id in self.lineage if version == self.version - 1), None)


def topic_of(changelog_id: str, store: str) -> tuple[str, int]:
    """The topic and the partition of a store, as in `state/0/1` or `state/0/1/left-keyToNumValues`."""
    _, operator, partition, *name = store.split("/")
    told = "".join(
        c if c.isascii() and (c.isalnum() or c in "-_") else f".{ord(c):04x}" for c in "/".join(name) or _DEFAULT_STORE
    )
    return f"{_PREFIX}{changelog_id}-{operator}-{told}", int(partition)


class StoreLog:
    """The versions of one store."""

    def __init__(self, topics: Topics, changelog_id: str, store: str) -> None:
        self._topics = topics
        self._topic, self._partition = topic_of(changelog_id, store)
        #: Where versions were seen to end, and how far back was looked.
        self._trailers: dict[tuple[int, str], Trailer] = {}
        self._looked_to: int | None = None
        self._start = 0

    def find(self, version: int, unique_id: str) -> Trailer | None:
        """The end of a version; None where it does not lie here, or not whole."""
        name = version, unique_id
        older = self._back()
        while name not in self._trailers and (trailer := next(older, None)) is not None:
            if trailer.unique_id is not None:
                self._trailers[trailer.version, trailer.unique_id] = trailer
        return self._trailers.get(name)

    def _back(self) -> Iterator[Trailer]:
        """Versions that were not looked at before, the newest first."""
        if self._looked_to is None:
            try:
                self._start = self._topics.list_offsets(self._topic, {self._partition: EARLIEST})[self._partition]
                self._looked_to = self._topics.read_offset(self._topic, [self._partition])[self._partition]
            except RequestRejected as refused:
                if refused.code not in GONE:
                    raise
                # There is no such topic, or no such partition: nothing was ever committed.
                self._looked_to = 0
        while self._looked_to > self._start:
            offset = self._looked_to - 1
            record = self._at(offset)
            facts = None if record is None or record.key is not None else self._facts(record)
            if facts is None:
                # A gap, which a change of leaders may leave.
                self._looked_to = offset
                continue
            self._looked_to = offset - int(facts["changes"])
            if facts["last"]:
                yield _trailer(facts, offset)

    def of_place(self, version: int, pieces: Sequence[Piece]) -> Trailer:
        """The version that ends at a place that is known. WrongState where it is not there any more."""
        offset = pieces[-1][1]
        record = self._at(offset)
        facts = None if record is None or record.key is not None else self._facts(record)
        if facts is None or not facts["last"] or facts["version"] != version:
            raise WrongState(f"version {version} is not at offset {offset} of {self._topic}-{self._partition}: it was deleted")
        return _trailer(facts, offset)

    def changes(self, trailer: Trailer) -> Iterator[Record]:
        """The changes of a version, in the order in which they were made."""
        for first, last in trailer.place:
            offset = first
            while offset < last:
                records = self._read(offset, last - offset)
                if not records or records[0].offset != offset:
                    at = f"offset {offset} of {self._topic}-{self._partition}"
                    raise WrongState(f"version {trailer.version} has no record at {at}: Spark deleted it meanwhile, try again")
                yield from records
                offset += len(records)

    def _at(self, offset: int) -> Record | None:
        records = self._read(offset, 1)
        return records[0] if records and records[0].offset == offset else None

    def _read(self, offset: int, count: int) -> list[Record]:
        try:
            return self._topics.read(self._topic, self._partition, offset, max_records=count, max_wait_ms=0)
        except RequestRejected as refused:
            if refused.code not in GONE:
                raise
            # Older changes go with older snapshots.
            return []

    def _facts(self, record: Record) -> dict[str, Any]:
        facts = json.loads(record.value or b"{}")
        if facts.get("format") != FORMAT:
            raise WrongState(
                f"the record at offset {record.offset} of {self._topic}-{self._partition} has format {facts.get('format')}, "
                f"and this release reads format {FORMAT}"
            )
        return dict(facts)


def _trailer(facts: Mapping[str, Any], offset: int) -> Trailer:
    pieces = [(int(first), int(last)) for first, last in facts["pieces"]]
    lineage = tuple((int(version), str(unique_id)) for version, unique_id, *_ in facts["lineage"])
    return Trailer(int(facts["version"]), facts.get("id"), (*pieces, (offset - int(facts["changes"]), offset)), lineage)
