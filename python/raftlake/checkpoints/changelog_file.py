"""A version's changes as Spark's RocksDB provider keeps them in files: `<version>.changelog`, `<version>_<id>.changelog`. Pure.

Of the forms that Spark 4.2 reads, v2 has all kinds of changes, and v4 the ids of the versions before, too. A change is its
kind, then key and value, each behind its size; integers are big endian. The whole is compressed as the query's settings say.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence

import cramjam

from raftlake.checkpoints import lz4_blocks
from raftlake.client.types import Record
from raftlake.errors import WrongState

CODEC = "spark.sql.streaming.stateStore.compression.codec"
CODEC_DEFAULT = "lz4"

_END, _PUT, _DELETE, _MERGE, _RANGE = b"\x00", b"\x01", b"\x10", b"\x11", b"\x20"
_KINDS = {None: _PUT, b"merge": _MERGE, b"range": _RANGE}
#: The header of a record that names a rarer kind.
_OP = "op"
_I32 = struct.Struct(">i")
_U16 = struct.Struct(">H")
_TEXT_BYTES_MAX = 0xFFFF
_NO_VALUE = _I32.pack(-1)


def _zstd(content: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(content))


_CODECS = {CODEC_DEFAULT: lz4_blocks.compress, "zstd": _zstd}


def encode(changes: Iterable[Record], lineage: Sequence[tuple[int, str]] | None, codec: str) -> bytes:
    """The file of a version. `lineage`: versions before it, with their ids; None in Spark's checkpoint format 1.

    WrongState: a codec that is not written here, or a record that is no change of state.
    """
    if codec not in _CODECS:
        raise WrongState(f"the query has {CODEC}={codec}, and changes can be copied with one of {', '.join(_CODECS)} alone")
    out = bytearray(_text("v2" if lineage is None else "v4"))
    if lineage is not None:
        names = [{"version": version, "checkpointUniqueId": unique_id} for version, unique_id in lineage]
        out += _text(json.dumps(names, separators=(",", ":")))
    for change in changes:
        _add(out, change)
    out += _END
    return _CODECS[codec](bytes(out))


def _add(out: bytearray, change: Record) -> None:
    key, value = change.key, change.value
    if key is None:
        raise WrongState(f"offset {change.offset} of {change.topic}-{change.partition} is no change of state")
    if value is None:
        out += _DELETE + _I32.pack(len(key)) + key + _NO_VALUE
        return
    op = dict(change.headers).get(_OP)
    kind = _KINDS.get(op)
    if kind is None:
        raise WrongState(f"offset {change.offset} of {change.topic}-{change.partition} has an unknown header {_OP}: {op!r}")
    out += kind + _I32.pack(len(key)) + key + _I32.pack(len(value)) + value


def _text(text: str) -> bytes:
    """As Java's DataOutputStream.writeUTF writes ASCII."""
    content = text.encode("ascii")
    if len(content) > _TEXT_BYTES_MAX:
        raise WrongState("the ids of the versions behind the newest snapshot take over 65,535 bytes, which Spark cannot read")
    return _U16.pack(len(content)) + content
