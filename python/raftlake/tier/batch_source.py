"""The batches of a copy, read in windows of whole batches: a segment is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from raftlake.errors import CorruptBatch
from raftlake.ports.tier import BatchSource, FileRange
from raftlake.wire.batch_header import HEADER_BYTES, parse_header
from raftlake.wire.primitives import BytesLike

WINDOW_BYTES = 32 << 20


def source_bytes(source: BatchSource) -> int:
    return source.size if isinstance(source, FileRange) else len(source)


def windows(source: BatchSource, window_bytes: int = WINDOW_BYTES) -> Iterator[BytesLike]:
    """All bytes of the source, cut between batches: into pieces of about `window_bytes`, or of one batch where that is larger.
    CorruptBatch where the file does not have them."""
    if not isinstance(source, FileRange):
        yield source
        return
    try:
        with open(source.path, "rb", buffering=0) as file:
            file.seek(source.position)
            left, rest = source.size, b""
            while left:
                part = file.read(min(window_bytes, left))
                if not part:
                    raise CorruptBatch(f"{source.path} ends {left} bytes before the end of the segment")
                left -= len(part)
                data = rest + part
                end = _end_of_whole_batches(data) if left else len(data)
                if end:
                    yield memoryview(data)[:end]
                rest = data[end:]
    except OSError as error:
        raise CorruptBatch(f"cannot read {source.path}: {error.strerror or error}") from error


def _end_of_whole_batches(data: bytes) -> int:
    """Where the last batch that is here as a whole ends. What is no batch is left to the decoder, which says what it is."""
    position, size = 0, len(data)
    while position + HEADER_BYTES <= size:
        header = parse_header(data, position)
        if header.length < 0 or header.end_position > size:
            break
        position = header.end_position
    return position
