"""The stream of LZ4 blocks that Spark's codec `lz4` reads: that of lz4-java's LZ4BlockOutputStream. Pure.

A block has a head of 21 bytes, little endian: `LZ4Block`, the method with the size of blocks, the bytes that follow, the bytes
of the content, and 28 bits of the content's xxHash (XXH32). An empty block ends the stream.
"""

from __future__ import annotations

import struct

import cramjam
import numpy as np

BLOCK_BYTES = 32 << 10

_HEAD = struct.Struct("<8sBIII")
_MAGIC = b"LZ4Block"
_RAW, _LZ4 = 0x10, 0x20
#: Blocks have at most 2 ** (10 + this) bytes.
_LEVEL = BLOCK_BYTES.bit_length() - 1 - 10
_SEED = 0x9747B28C
_CHECK_MASK = 0x0FFFFFFF
#: The primes of XXH32.
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_U32 = 0xFFFFFFFF


def compress(content: bytes) -> bytes:
    """The whole stream."""
    out = bytearray()
    whole = len(content) - len(content) % BLOCK_BYTES
    blocks = [content[start : start + BLOCK_BYTES] for start in range(0, len(content), BLOCK_BYTES)]
    # Blocks of one size are hashed side by side.
    hashes = _hashes(content[:whole], BLOCK_BYTES) if whole else []
    if whole < len(content):
        hashes.append(xxh32(content[whole:]))
    for block, found in zip(blocks, hashes, strict=True):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        method, body = (_LZ4, packed) if len(packed) < len(block) else (_RAW, block)
        out += _HEAD.pack(_MAGIC, method | _LEVEL, len(body), len(block), found & _CHECK_MASK)
        out += body
    out += _HEAD.pack(_MAGIC, _RAW | _LEVEL, 0, 0, 0)
    return bytes(out)


def xxh32(content: bytes) -> int:
    """XXH32 with lz4-java's seed."""
    whole = len(content) - len(content) % 16
    total = _lanes(content[:whole], max(whole, 1))[0] if whole else (_SEED + _P5) & _U32
    return _end(total, content[whole:], len(content))


def _hashes(content: bytes, size: int) -> list[int]:
    return [_end(total, b"", size) for total in _lanes(content, size)]


def _lanes(content: bytes, size: int) -> list[int]:
    """What the four lanes of each block of `size` bytes, a multiple of 16, come to."""
    words = np.frombuffer(content, dtype="<u4").reshape(-1, size // 16, 4)
    begin = [(_SEED + _P1 + _P2) & _U32, (_SEED + _P2) & _U32, _SEED, (_SEED - _P1) & _U32]
    lanes = np.tile(np.array(begin, dtype=np.uint32), (len(words), 1))
    for stripe in range(size // 16):
        lanes += words[:, stripe, :] * np.uint32(_P2)
        lanes = (lanes << np.uint32(13)) | (lanes >> np.uint32(19))
        lanes *= np.uint32(_P1)
    rotated = ((lane.item(index), bits) for lane in lanes for index, bits in enumerate((1, 7, 12, 18)))
    parts = [_rotated(value, bits) for value, bits in rotated]
    return [sum(parts[start : start + 4]) & _U32 for start in range(0, len(parts), 4)]


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _U32


def _end(total: int, rest: bytes, size: int) -> int:
    """`rest` are fewer than 16 bytes, behind the lanes."""
    total = (total + size) & _U32
    words = len(rest) // 4
    for word in struct.unpack_from(f"<{words}I", rest):
        total = _rotated((total + word * _P3) & _U32, 17) * _P4 & _U32
    for byte in rest[4 * words :]:
        total = _rotated((total + byte * _P5) & _U32, 11) * _P1 & _U32
    total = (total ^ total >> 15) * _P2 & _U32
    total = (total ^ total >> 13) * _P3 & _U32
    return total ^ total >> 16
