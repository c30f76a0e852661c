"""The three forms of a topic or directory id: 16 bytes (ours), base64url text (Kafka's), and what kio's messages hold.

kio holds ids as objects of the standard UUID class, or None for the zero id. This package may not make random ids, and so
does not import that class: kio's own constant leads to it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from kio.static.constants import uuid_zero

from raftlake.errors import WireError
from raftlake.wire.primitives import ID_BYTES, ZERO_ID

__all__ = [
    "ZERO_ID",
    "KioId",
    "id_from_kio",
    "id_from_text",
    "id_to_kio",
    "id_to_text",
    "is_cluster_id",
    "table_of",
    "table_uri",
]

_T = TypeVar("_T")
#: Of an id as text.
_ID_CHARS = 22
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class KioId(Protocol):
    """What is needed of kio's ids."""

    @property
    def bytes(self) -> bytes: ...


def _null_for_zero(convert: Callable[[bytes], _T]) -> Callable[[bytes], _T | None]:
    def to_nullable(raw: bytes) -> _T | None:
        return None if raw == ZERO_ID else convert(raw)

    return to_nullable


#: 16 bytes -> a kio id; None for the zero id.
id_to_kio = _null_for_zero(lambda raw: type(uuid_zero)(bytes=raw))


def id_from_kio(value: KioId | None) -> bytes:
    """A kio id -> 16 bytes; the zero id for None."""
    return ZERO_ID if value is None else value.bytes


def id_to_text(raw: bytes) -> str:
    """22 characters of base64url without padding, as Kafka prints ids."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def id_from_text(text: str) -> bytes:
    """The counterpart of `id_to_text`; WireError when the text is not an id."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(f"{text!r} is not an id: {error}") from error
    if len(raw) != ID_BYTES or id_to_text(raw) != text:
        raise WireError(f"{text!r} is not an id of {ID_BYTES} bytes")
    return raw


def is_cluster_id(text: str) -> bool:
    """Whether a cluster may be named so: by such an id, or by another name without spaces."""
    return _CLUSTER_ID.fullmatch(text) is not None


def table_uri(tier_uri: str, topic: str, topic_id: bytes) -> str:
    """Where the Delta table of a topic is. A topic that is deleted and created again has another table."""
    return f"{tier_uri.rstrip('/')}/{topic}-{id_to_text(topic_id)}"


def table_of(uri: str) -> tuple[str, bytes] | None:
    """Name and id of the topic whose table a place is named after; None where it is named after none. See `table_uri`."""
    name = uri.rstrip("/").rpartition("/")[2]
    topic, dash, topic_id = name[: -_ID_CHARS - 1], name[-_ID_CHARS - 1 : -_ID_CHARS], name[-_ID_CHARS:]
    if not topic or dash != "-":
        return None
    try:
        return topic, id_from_text(topic_id)
    except WireError:
        return None
