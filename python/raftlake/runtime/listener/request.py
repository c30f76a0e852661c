"""One request of a connection, from its frame to its encoded answer; and which requests take long to decode, serve and answer.

What is dear is judged before anything is decoded, by API and size: some 2 ms and more. A small request for Metadata of large
topics is judged by what it asks for. Produce has bounds of its own, and what nodes ask one another never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raftlake.wire.api import API_TABLE, ApiKey, RequestHeader, peek_api_key
from raftlake.wire.primitives import BytesLike

#: A consumer's Fetch of a few hundred partitions has more.
DEAR_FETCH_BYTES = 8 * 1024
#: A thousand short names.
DEAR_BYTES = 2 * 1024
#: Partitions that an answer to Metadata lists.
DEAR_PARTITIONS = 200
#: Small requests of one connection that came at once: 64 KiB hold thousands. What is behind them takes turns.
AT_ONCE_MAX = 32
_NEVER_DEAR = frozenset(
    {ApiKey.PRODUCE, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT}
)
_DEAR_BYTES: Mapping[int, int] = {
    **dict.fromkeys(API_TABLE.keys() - _NEVER_DEAR, DEAR_BYTES),
    ApiKey.FETCH: DEAR_FETCH_BYTES,
}


def is_dear(frame: BytesLike, waiting: int) -> bool:
    """Whether a client's request takes long, as far as its frame tells, or those do together that wait before it."""
    if waiting < AT_ONCE_MAX and len(frame) <= DEAR_BYTES:
        return False
    dear_bytes = _DEAR_BYTES.get(peek_api_key(frame))
    return dear_bytes is not None and (waiting >= AT_ONCE_MAX or len(frame) > dear_bytes)


class Request:
    """A request that waits, or is being served; `parts` is its encoded answer once there is one, empty for "no answer"
    (acks=0). One that needs no serving has its answer from the beginning."""

    __slots__ = ("header", "is_answered", "is_dear", "is_fetch", "message", "parts", "size")

    def __init__(self, header: RequestHeader, message: object, size: int, parts: list[BytesLike] | None = None) -> None:
        self.header = header
        self.is_fetch = header.api_key == ApiKey.FETCH
        self.is_dear = False
        self.message = message
        self.size = size
        self.parts = parts
        self.is_answered = parts is not None


class DearFrame:
    """A dear request that is decoded when its turn comes."""

    __slots__ = ("frame", "is_behind_fetch", "is_fetch", "size")

    #: Where a `Request` says it of itself.
    is_dear = True

    def __init__(self, frame: bytearray, has_fetch: Callable[[], bool]) -> None:
        self.frame = frame
        self.size = len(frame)
        self.is_fetch = peek_api_key(frame) == ApiKey.FETCH
        #: A Fetch before it is not answered.
        self.is_behind_fetch = self.is_fetch and has_fetch()
