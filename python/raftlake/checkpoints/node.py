"""What a key under `/fs/` holds: a directory, an inline file, or a file whose content is a blob. The Java class `Node` has the
same format, byte for byte.

Bytes: 1 (the format), the kind D, I or B, u32 length of the JSON (big endian), the JSON, and for I the content. JSON: `mtime`
(ms since 1970) and `id` of all; `length` and `crc32c` of files; `blob` with `uri`, `chunk_bytes` and `chunk_crc32c`.
"""

from __future__ import annotations

import json
import struct
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Any

from crc32c import crc32c

from raftlake.errors import InvalidInput
from raftlake.kv.commands import VALUE_BYTES_MAX
from raftlake.kv.lenient_json import text_of

#: Bytes of the content of the largest inline file: content and head stay below the largest value.
INLINE_BYTES_MAX = VALUE_BYTES_MAX - 4096
#: Readers check, and hold in memory, so many bytes of a blob at a time.
CHUNK_BYTES = 512 * 1024

_FORMAT = 1
_HEAD = struct.Struct(">BcI")


class Kind(Enum):
    DIRECTORY = b"D"
    INLINE = b"I"
    BLOB = b"B"


@dataclass(frozen=True, slots=True)
class Node:
    """`content` is that of an inline file. `facts` is the JSON, with members of later releases too."""

    kind: Kind
    facts: dict[str, Any]
    content: bytes = b""

    @staticmethod
    def directory(now_ms: int) -> Node:
        return Node(Kind.DIRECTORY, {"mtime": now_ms, "id": str(uuid.uuid4())})

    @staticmethod
    def inline(now_ms: int, content: bytes) -> Node:
        facts = {"mtime": now_ms, "id": str(uuid.uuid4()), "length": len(content), "crc32c": crc32c(content)}
        return Node(Kind.INLINE, facts, content)

    @staticmethod
    def blob(now_ms: int, blob_id: str, uri: str, content: bytes) -> Node:
        """A file whose content was written to `uri`."""
        chunks = [crc32c(content[at : at + CHUNK_BYTES]) for at in range(0, len(content), CHUNK_BYTES)]
        facts = {"mtime": now_ms, "id": blob_id, "length": len(content), "crc32c": crc32c(content)}
        return Node(Kind.BLOB, {**facts, "blob": {"uri": uri, "chunk_bytes": CHUNK_BYTES, "chunk_crc32c": chunks}})

    @staticmethod
    def decode(key: str, value: bytes) -> Node:
        """InvalidInput names the key whose value is no node of this format."""
        if len(value) < _HEAD.size or value[0] != _FORMAT:
            raise _spoilt(key, "it begins with no format that this version of raftlake knows")
        _, code, length = _HEAD.unpack_from(value)
        if length < 2 or length > len(value) - _HEAD.size:
            raise _spoilt(key, f"its head says {length} bytes of JSON")
        try:
            kind = Kind(code)
            facts = json.loads(value[_HEAD.size : _HEAD.size + length])
        except (ValueError, RecursionError) as error:
            raise _spoilt(key, f"its head is damaged: {error}") from error
        wanted = ["mtime"] if kind is Kind.DIRECTORY else ["mtime", "length", "crc32c"]
        if not isinstance(facts, dict) or any(type(facts.get(name)) is not int for name in wanted):
            raise _spoilt(key, f"it lacks one of {', '.join(wanted)}")
        if kind is Kind.BLOB and not isinstance(facts.get("blob"), dict):
            raise _spoilt(key, "it says of no blob where it is")
        if kind is not Kind.INLINE:
            return Node(kind, facts)
        content = value[_HEAD.size + length :]
        require_content(key, facts, content)
        return Node(kind, facts, content)

    def encode(self) -> bytes:
        text = json.dumps(self.facts, separators=(",", ":"), ensure_ascii=False).encode()
        return _HEAD.pack(_FORMAT, self.kind.value, len(text)) + text + self.content

    @property
    def is_directory(self) -> bool:
        return self.kind is Kind.DIRECTORY

    @property
    def is_blob(self) -> bool:
        return self.kind is Kind.BLOB

    @property
    def length(self) -> int:
        """Bytes of the content; 0 for a directory."""
        return int(self.facts.get("length", 0))

    @property
    def uri(self) -> str:
        """Where the blob is; empty where a later release says it in another way."""
        return text_of(self.facts.get("blob", {}), "uri")


def require_content(what: str, facts: dict[str, Any], content: bytes) -> None:
    """InvalidInput unless this is the content that the facts of a file tell of."""
    if len(content) != facts["length"]:
        raise _spoilt(what, f"it has {len(content)} bytes of content and says {facts['length']}")
    if crc32c(content) != facts["crc32c"]:
        raise _spoilt(what, "the checksum of its content is wrong")


def _spoilt(what: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{what!r} is no file: {reason}")
