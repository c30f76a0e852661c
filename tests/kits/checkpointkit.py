"""Checkpoints in memory: a key space with the real state machine of a node, and checkpoints as Spark lays them out.

`MemoryKv` applies each transaction as a node does, after it was written and read as a log record. Its script can lose answers,
refuse, or let another writer come first.
"""

from __future__ import annotations

import io
import itertools
import json
import weakref
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raftlake.checkpoints.layout import METADATA
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.log_blobs import TOPIC, LogBlobs
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.owner import Owner
from raftlake.checkpoints.space import Space
from raftlake.checkpoints.steps import Tools
from raftlake.checkpoints.tree import Tree
from raftlake.client.errors import KvConflict
from raftlake.client.types import EARLIEST, AppendRecord, AppendResult, KvEntry, KvPage, NewRecord, Record, to_record
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.kv.commands import Compare, ComparePrefix, Delete, DeletePrefix, Put, Txn, encode
from raftlake.kv.machine import StateMachine

NOW_MS = 1_700_000_000_000
QUERY = "5f1e8a30-6f3c-4d92-9c8e-0e6f2b6f9a10"
FORK = "00000000-0000-4000-8000-000000000001"
#: A page ends here, as one of a node may end anywhere.
PAGE_KEYS = 7


class Crash(BaseException):
    """The command is gone: it is no error of the program, so nothing handles it."""


@dataclass
class MemoryKv:
    """Of `Client.kv` what checkpoints need. `before` is called with the number of each transaction, before it is applied;
    `loses_answers` of that many transactions, after they were applied."""

    machine: StateMachine = field(default_factory=StateMachine)
    transactions: list[Txn] = field(default_factory=list)
    before: Callable[[int], None] = lambda number: None
    loses_answers: frozenset[int] = frozenset()
    _tried: itertools.count[int] = field(default_factory=itertools.count)

    def get(self, key: str) -> KvEntry | None:
        entry = self.machine.get(key)
        return None if entry is None else KvEntry(key=key, version=entry.version, size=len(entry.value), value=entry.value)

    def list(self, prefix: str, *, after: str | None, limit: int, values: bool) -> KvPage:
        rows, more = self.machine.list(prefix, after, min(limit, PAGE_KEYS))
        entries = tuple(
            KvEntry(key=key, version=entry.version, size=len(entry.value), value=entry.value if values else None)
            for key, entry in rows
        )
        return KvPage(entries=entries, more=more, version=self.machine.applied_offset)

    def txn(
        self, compare: Mapping[str, int], ops: Sequence[Put | Delete | DeletePrefix], *, newest: Mapping[str, int] | None
    ) -> int:
        number = next(self._tried)
        self.before(number)
        compares = [Compare(key, version) for key, version in compare.items()]
        ranges = [ComparePrefix(prefix, version) for prefix, version in (newest or {}).items()]
        txn = Txn((*compares, *ranges), tuple(ops))
        result = self.machine.apply(self.machine.applied_offset or 1, encode(txn))
        self.transactions.append(txn)
        if number in self.loses_answers:
            raise UnknownOutcome("no answer came")
        if not result.succeeded:
            found = result.ranges.newest if result.ranges is not None else ()
            raise KvConflict(dict(result.current), newest=dict(found))
        return result.offset

    def names(self, prefix: str = "") -> set[str]:
        return {entry.key for entry in Space(self).scan(prefix, values=False)}


@dataclass
class MemoryLogs:
    """Of `Client` what blobs in the quorum need. `others_write`: a record of somebody else comes before each append.
    `forgets`: so many appends are told without their offset, as a node does that remembers no more."""

    records: dict[tuple[str, int], list[NewRecord]] = field(default_factory=dict)
    others_write: bool = False
    forgets: int = 0
    #: A read gives so many records at most.
    page: int = 1000
    #: By partition: what lies below was deleted.
    starts: dict[tuple[str, int], int] = field(default_factory=dict)

    def list_offsets(self, topic: str, timestamps: Mapping[int, int]) -> dict[int, int]:
        assert set(timestamps.values()) == {EARLIEST}
        return {partition: self.starts.get((topic, partition), 0) for partition in self._known(topic, timestamps)}

    def read_offset(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return {partition: len(self.records[topic, partition]) for partition in self._known(topic, partitions)}

    def _known(self, topic: str, partitions: Iterable[int]) -> list[int]:
        asked = list(partitions)
        if any((topic, partition) not in self.records for partition in asked):
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return asked

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str], *, exist_ok: bool) -> None:
        assert configs["cleanup.policy"] == "compact"
        for partition in range(partitions):
            self.records.setdefault((name, partition), [])

    def append(self, topic: str, value: AppendRecord, *, partition: int) -> AppendResult:
        log = self.records[topic, partition]
        log += [NewRecord(value=b"other", key=b"other/0")] * self.others_write
        log.append(to_record(value))
        offset = len(log) - 1 if self.forgets == 0 else -1
        self.forgets = max(0, self.forgets - 1)
        return AppendResult(topic=topic, partition=partition, offset=offset, count=1)

    def append_many(self, topic: str, records: Iterable[AppendRecord], *, partition: int) -> list[AppendResult]:
        return [self.append(topic, record, partition=partition) for record in records]

    def read(self, topic: str, partition: int, offset: int, *, max_records: int, max_wait_ms: int) -> list[Record]:
        log = self.records.get((topic, partition), [])
        if offset < self.starts.get((topic, partition), 0):
            raise RequestRejected(ErrorCode.OFFSET_OUT_OF_RANGE)
        gone = {record.key for record in log if record.value is None}
        is_compacted = topic == TOPIC
        left = [(at, record) for at, record in enumerate(log) if at >= offset and not (is_compacted and record.key in gone)]
        return [
            Record(
                topic=topic,
                partition=partition,
                offset=at,
                timestamp_ms=0,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
            )
            for at, record in left[: min(max_records, self.page)]
        ]


#: The logs of each key space.
_LOGS: weakref.WeakKeyDictionary[StateMachine, MemoryLogs] = weakref.WeakKeyDictionary()


def logs(kv: MemoryKv) -> MemoryLogs:
    return _LOGS.setdefault(kv.machine, MemoryLogs())


def tools(kv: MemoryKv, ids: Sequence[str] = (FORK,)) -> Tools:
    return Tools(Space(kv), LogBlobs(logs(kv)), logs(kv), lambda: NOW_MS, iter(ids).__next__, lambda what, done, count: None)


def put(kv: MemoryKv, key: str, value: bytes) -> None:
    """Whatever is there, by another program."""
    kv.machine.apply(kv.machine.applied_offset or 1, encode(Txn((), (Put(key, value),))))


def remove(kv: MemoryKv, key: str) -> None:
    kv.machine.apply(kv.machine.applied_offset, encode(Txn((), (Delete(key),))))


def write(kv: MemoryKv, root: str, files: Mapping[str, bytes]) -> None:
    """Put files and their directories, as a Spark job does."""
    at = Location.parse(root)
    for name, content in files.items():
        location = at.below(name)
        for around in reversed(list(_around(location))):
            if kv.get(around.key) is None:
                put(kv, around.key, Node.directory(NOW_MS).encode())
        put(kv, location.key, Node.inline(NOW_MS, content).encode())


def _around(location: Location) -> list[Location]:
    found = []
    while not (location := location.parent).is_root:
        found.append(location)
    return found


def own(kv: MemoryKv, root: str, run: str = "a-run") -> None:
    put(kv, Location.parse(root).owner_key, Owner.here(run, QUERY, NOW_MS).encode())


def read(kv: MemoryKv, root: str) -> dict[str, bytes]:
    """The files of a checkpoint with their content."""
    tree: Tree = tools(kv).read(Location.parse(root))
    return {name: tree.content(name) for name in tree.files}


def metadata(query: str = QUERY) -> bytes:
    return json.dumps({"id": query}, separators=(",", ":")).encode()


def offsets(batch: int, *sources: str) -> bytes:
    lines = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": NOW_MS + batch, "conf": {}})]
    return "\n".join([*lines, *(sources or (json.dumps({"logOffset": batch}),))]).encode()


def commit(ids: Sequence[str] = ()) -> bytes:
    """With unique ids of one operator: of one store in each partition."""
    if not ids:
        return b'v1\n{"nextBatchWatermarkMs":0}'
    facts = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [[one] for one in ids]}}
    return f"v2\n{json.dumps(facts)}".encode()


def operator(partitions: int = 2, stores: Sequence[str] = ("default",)) -> bytes:
    infos = [{"storeName": name, "numColsPrefixKey": 0, "numPartitions": partitions} for name in stores]
    facts = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": infos}
    return f"v1\n{json.dumps(facts)}".encode()


def snapshot(*tables: str) -> bytes:
    """A snapshot of RocksDB that names these data files."""
    files = [{"localFileName": name[:6], "dfsSstFileName": name, "sizeBytes": 1} for name in tables]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps({'sstFiles': files, 'logFiles': []})}")
    return content.getvalue()


def stateless(batches: int) -> dict[str, bytes]:
    """Of a query without state that has committed so many batches."""
    files = {METADATA: metadata(), "sources/0/0": b"v1\n{}"}
    for batch in range(batches):
        files[f"offsets/{batch}"] = offsets(batch)
        files[f"commits/{batch}"] = commit()
    return files


def stateful(batches: int, *, partitions: int = 2, snapshots: Sequence[int] = (), first: int = 1) -> dict[str, bytes]:
    """Of an aggregation with RocksDB: a changelog for each version from `first` on, and snapshots of some versions."""
    files = {**stateless(batches), "state/0/_metadata/metadata": operator(partitions)}
    for partition in range(partitions):
        home = f"state/0/{partition}"
        files[f"{home}/_metadata/schema"] = b"schema"
        for version in range(first, batches + 1):
            files[f"{home}/{version}.changelog"] = f"changes of {version} in {partition}".encode()
        for version in snapshots:
            table = f"00000{version}-{partition}.sst"
            files[f"{home}/{version}.zip"] = snapshot(table)
            files[f"{home}/SSTs/{table}"] = f"table of {version} in {partition}".encode()
    return files


def to_directory(files: Mapping[str, bytes], directory: Path) -> Path:
    """The same as files, with those that Hadoop keeps beside."""
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.with_name(f".{file.name}.crc").write_bytes(b"crc")
    return directory


def from_directory(directory: Path) -> dict[str, bytes]:
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
