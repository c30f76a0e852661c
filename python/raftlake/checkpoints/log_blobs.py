"""Large files in the quorum: chunks as records of the compacted topic `__raftlake-blobs`, in the format of `LogBlobStore`
in Java.

A blob's name is `quorum:<topic>/<partition>/[<first>-<last>/]<chunks>x<bytes of a chunk>/<id>`, without the offsets while the
blob is written. Chunk n has the key `<id>/<n>`. Where other records stand between the chunks, a record `<id>/index` at the last
offset has the offsets of all, as u64 in big endian. A blob goes by tombstones of its keys.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raftlake.checkpoints.node import CHUNK_BYTES
from raftlake.client.errors import GONE
from raftlake.client.types import AppendRecord, AppendResult, NewRecord, Record
from raftlake.errors import RequestRejected, UnknownOutcome, WrongState

TOPIC = "__raftlake-blobs"
SCHEME = "quorum:"
#: What `LogBlobStore` makes the topic with.
PARTITIONS = 6
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(32 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "3600000",
}
_FORM = re.compile(
    r"quorum:([A-Za-z0-9._-]{1,249})/([0-9]{1,9})/(?:([0-9]{1,18})-([0-9]{1,18})/)?([0-9]{1,9})x([1-9][0-9]{0,8})/([^/]+)",
    re.ASCII,
)
#: An append whose offset a node no longer remembers is made again, at most so often.
_TRIES = 5


class Logs(Protocol):
    """The part of `Client` that is used here."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str], *, exist_ok: bool) -> Any: ...

    def append(self, topic: str, value: AppendRecord, *, partition: int) -> AppendResult: ...

    def append_many(self, topic: str, records: Iterable[AppendRecord], *, partition: int) -> Sequence[AppendResult]: ...

    def read(self, topic: str, partition: int, offset: int, *, max_records: int, max_wait_ms: int) -> list[Record]: ...


@dataclass(frozen=True, slots=True)
class BlobName:
    """`first` is -1 while the blob is written; `chunks` bounds their number then."""

    topic: str
    partition: int
    first: int
    last: int
    chunks: int
    chunk_bytes: int
    blob_id: str

    @staticmethod
    def parse(uri: str) -> BlobName | None:
        """None for what is no such name."""
        found = _FORM.fullmatch(uri)
        if found is None:
            return None
        first, last = (-1, -1) if found[3] is None else (int(found[3]), int(found[4]))
        return BlobName(found[1], int(found[2]), first, last, int(found[5]), int(found[6]), found[7])

    @property
    def is_contiguous(self) -> bool:
        """Whether the offsets of the chunks follow one another."""
        return self.last - self.first + 1 == self.chunks

    def __str__(self) -> str:
        offsets = f"{self.first}-{self.last}/" if self.first >= 0 else ""
        return f"{SCHEME}{self.topic}/{self.partition}/{offsets}{self.chunks}x{self.chunk_bytes}/{self.blob_id}"


class LogBlobs:
    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def name(self, blob_id: str, size: int) -> BlobName:
        """The name of a blob of `size` bytes before it is written."""
        chunks = max(1, -(-size // CHUNK_BYTES))
        return BlobName(TOPIC, sum(blob_id.encode()) % PARTITIONS, -1, -1, chunks, CHUNK_BYTES, blob_id)

    def write(self, name: BlobName, content: bytes) -> str:
        """Write a blob; its URI. UnknownOutcome where a chunk may still come: the name is announced, so it goes in time."""
        self._logs.create_topic(TOPIC, PARTITIONS, CONFIGS, exist_ok=True)
        offsets = [
            self._append(name, f"{name.blob_id}/{number}", content[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
            for number in range(name.chunks)
        ]
        last = offsets[-1]
        if last - offsets[0] + 1 != name.chunks:
            last = self._append(name, f"{name.blob_id}/index", struct.pack(f">{len(offsets)}Q", *offsets))
        written = BlobName(name.topic, name.partition, offsets[0], last, name.chunks, name.chunk_bytes, name.blob_id)
        return str(written)

    def _append(self, name: BlobName, key: str, value: bytes) -> int:
        """The offset of the newest record with the key."""
        for _ in range(_TRIES):
            result = self._logs.append(name.topic, NewRecord(key=key.encode(), value=value), partition=name.partition)
            if result.offset >= 0:
                return result.offset
        raise UnknownOutcome(f"{key} was appended to {name.topic}-{name.partition}, at offsets that no node remembers")

    def read(self, uri: str) -> bytes:
        """The content; WrongState where a chunk is not there."""
        name = BlobName.parse(uri)
        if name is None or name.first < 0:
            raise WrongState(f"{uri} names no blob that was written")
        offsets: Sequence[int] = range(name.first, name.last + 1)
        if not name.is_contiguous:
            index = self._read(name, "index", name.last)
            if len(index) != 8 * name.chunks:
                raise WrongState(f"the index of {uri} is damaged: it has {len(index)} bytes")
            offsets = struct.unpack(f">{name.chunks}Q", index)
        return b"".join(self._read(name, str(number), offset) for number, offset in enumerate(offsets))

    def _read(self, name: BlobName, what: str, offset: int) -> bytes:
        key = f"{name.blob_id}/{what}".encode()
        try:
            records = self._logs.read(name.topic, name.partition, offset, max_records=1, max_wait_ms=0)
        except RequestRejected as error:
            if error.code not in GONE:
                raise
            raise WrongState(f"{key.decode()} is not at offset {offset} of {name.topic}-{name.partition}: {error}") from error
        if not records or records[0].offset != offset or records[0].key != key or records[0].value is None:
            raise WrongState(f"{key.decode()} is not at offset {offset} of {name.topic}-{name.partition}: it was removed")
        return records[0].value

    def delete(self, uri: str) -> bool:
        """Write the tombstones of a blob. False for what is no blob of a log."""
        name = BlobName.parse(uri)
        if name is None:
            return False
        keys = [f"{name.blob_id}/{number}" for number in range(name.chunks)]
        if name.first < 0 or not name.is_contiguous:
            keys.append(f"{name.blob_id}/index")
        self._logs.append_many(name.topic, [NewRecord(key=key.encode(), value=None) for key in keys], partition=name.partition)
        return True
