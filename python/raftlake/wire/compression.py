"""The five compression codecs of record batches, with bounded output and bounded work.

Owns the framings that Kafka's Java classes read and write: snappy as xerial blocks (raw snappy is read as well), lz4 as frames
of independent 64 KiB blocks (Java refuses linked ones), gzip (one member) and zstd as they come. Invariant: a decompression
never fills more memory than about twice its output, nor more than `size_max`, whatever the bytes claim. (zstd may reserve,
without touching it, a window of up to 128 MiB: its highest levels legally ask for that.)

Blocks and frames may hold nothing and still take time. So a payload has a cost: its content, each xerial block as at least
BLOCK_COST_MIN, and what it is larger than its content EXCESS_TIMES. No compressor's output costs much more than its content.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from enum import IntEnum

import cramjam

from raftlake.errors import CorruptBatch
from raftlake.wire.primitives import I32, BytesLike

#: What one batch may decompress to unless the caller says otherwise.
DECOMPRESSED_BYTES_MAX = 64 << 20


class Compression(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

#: Magic, FLG (version 1, independent blocks), BD (64 KiB blocks) and the checksum byte that belongs to these two.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_UNCOMPRESSED = 0x80000000
_LE_U32 = struct.Struct("<I")

#: Above this size an output gets memory of its own: it goes back to the system at once, and nothing but the content is written
#: to it. (Zeroing 64 MiB takes longer than decompressing them.)
UNTOUCHED_BYTES_MIN = 1 << 20
#: gzip is taken in pieces of this size where the whole is larger.
_GZIP_PIECE_BYTES = 256 * 1024

#: A xerial block is decompressed by a call of its own, which takes as long as so many bytes.
BLOCK_COST_MIN = 1024
#: A byte that brings no content costs up to 80 ns (a gzip block with tables of its own and nothing behind them), one that is
#: decompressed 1 to 4.
EXCESS_TIMES = 8
#: What every framing adds to a small content.
EXCESS_FREE_BYTES = 256

#: How cramjam says that the output did not fit (pinned by a test: the growth below depends on it).
_OUTPUT_FULL = "failed to write whole buffer"


def compress(codec: Compression, data: BytesLike) -> bytes:
    """`data` in the framing of `codec`."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, 6, wbits=31)
        case Compression.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Compression.LZ4:
            return _compress_lz4(memoryview(data))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3))


def decompress(codec: Compression, data: BytesLike, size_max: int = DECOMPRESSED_BYTES_MAX) -> BytesLike:
    """The content; CorruptBatch when it is damaged, PayloadTooLarge when it is larger than `size_max` bytes, or has as many
    blocks as would be. MemoryError where the system has no memory for it."""
    return decompress_counting(codec, data, size_max)[0]


def decompress_counting(codec: Compression, data: BytesLike, size_max: int, *, is_new: bool = False) -> tuple[BytesLike, int]:
    """The content and what it cost, in bytes. Raises as `decompress` does; the cost may be more than `size_max`. A payload that
    `is_new` is refused for bytes behind its end: logs may hold such ones of a time when they were taken."""
    view = memoryview(data)
    try:
        match codec:
            case Compression.NONE:
                return view, len(view)
            case Compression.GZIP:
                content = _decompress_gzip(view, size_max, is_new=is_new)
            case Compression.SNAPPY:
                content, blocks_cost = _decompress_snappy(view, size_max)
                return content, max(blocks_cost, _cost(view, content))
            case Compression.LZ4:
                content = _decompress_growing(cramjam.lz4, view, size_max)
            case Compression.ZSTD:
                content = _decompress_growing(cramjam.zstd, view, size_max)
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        raise CorruptBatch(f"{codec.name.lower()} payload is damaged: {error}") from error
    return content, _cost(view, content)


def _cost(view: memoryview, content: BytesLike) -> int:
    return len(content) + EXCESS_TIMES * max(0, len(view) - len(content) - EXCESS_FREE_BYTES)


class PayloadTooLarge(CorruptBatch):
    """A compressed payload holds more than its caller allows."""


def _too_large(size_max: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"compressed payload holds more than the allowed {size_max} bytes, or more blocks than they need")


def _output(size: int) -> memoryview:
    """Memory for `size` bytes, whatever they are. MemoryError where the system has none, in the words of either call."""
    if size < UNTOUCHED_BYTES_MIN:
        return memoryview(bytearray(size))
    try:
        return memoryview(mmap.mmap(-1, size))
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes that are to be decompressed") from error


def _decompress_gzip(view: memoryview, size_max: int, *, is_new: bool) -> BytesLike:
    stream = zlib.decompressobj(wbits=31)
    content = stream.decompress(view, min(size_max, UNTOUCHED_BYTES_MIN) + 1)
    pieces: list[BytesLike] = [content]
    size = len(content)
    while content and size <= size_max and not stream.eof:
        content = stream.decompress(stream.unconsumed_tail, _GZIP_PIECE_BYTES)
        pieces.append(content)
        size += len(content)
    if size > size_max:
        raise _too_large(size_max)
    if not stream.eof:
        raise CorruptBatch("gzip payload ends early")
    if is_new and (stream.unused_data or stream.unconsumed_tail):
        # Java would read on in it, librdkafka would not.
        raise CorruptBatch("bytes follow the end of the gzip payload")
    return _joined(pieces, size)


# cramjam ships no types: `codec` is one of its modules.
def _decompress_growing(codec: object, view: memoryview, size_max: int) -> memoryview:
    """Decompress into memory that doubles until the content fits: sizes that a frame states are not believed."""
    decompress_into = codec.decompress_into  # type: ignore[attr-defined]
    capacity = min(size_max, max(64 * 1024, 4 * len(view)))
    while True:
        output = _output(capacity)
        try:
            return output[: decompress_into(view, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise
        if capacity == size_max:
            raise _too_large(size_max)
        capacity = min(size_max, 2 * capacity)


def _decompress_snappy(view: memoryview, size_max: int) -> tuple[BytesLike, int]:
    """The content, and what its blocks cost."""
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max), 0
    output: list[BytesLike] = []
    size = cost = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        (length,) = I32.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"snappy block of {length} bytes, {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + length], size_max - size)
        size += len(block)
        cost += max(len(block), BLOCK_COST_MIN)
        if cost - BLOCK_COST_MIN > size_max:
            raise _too_large(size_max)
        if len(block):
            output.append(block)
        position += length
    return _joined(output, size), cost


def _joined(pieces: list[BytesLike], size: int) -> BytesLike:
    if len(pieces) == 1:
        return pieces[0]
    output, position = _output(size), 0
    for piece in pieces:
        output[position : position + len(piece)] = piece
        position += len(piece)
    return output


def _decompress_snappy_block(block: memoryview, size_max: int) -> BytesLike:
    """Raw snappy states its size up front, and the decoder allocates that much: check it first."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise _too_large(size_max)
    output = _output(size)
    return output[: cramjam.snappy.decompress_raw_into(block, output)]


def _compress_xerial(view: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += I32.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(view: memoryview) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        block = cramjam.lz4.compress_block(raw, store_size=False)
        if len(block) < len(raw):
            out += _LE_U32.pack(len(block))
            out += block
        else:
            out += _LE_U32.pack(len(raw) | _LZ4_UNCOMPRESSED)
            out += raw
    out += bytes(4)
    return bytes(out)
