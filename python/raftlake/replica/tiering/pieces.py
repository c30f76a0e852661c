"""Pieces of partitions that were read from the remote tier: a cache that is bounded by its bytes. Pure.

A piece that a consumer reads stays until its last batch was given, or nobody has used it for a while. Other pieces go first: so
one that was read for nothing is the exception.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage
from raftlake.replica.tiering.piece_transactions import PieceTransactions
from raftlake.wire.batch_header import BatchHeader

#: How long a piece waits for the consumer that reads it.
KEPT_MS = 5_000
#: However small they are.
PIECES_MAX = 256


class Piece:
    """Whole batches, one behind the other."""

    __slots__ = (
        "_ends", "_positions", "base_offset", "data", "end_offset", "given_to", "lineage", "transactions", "used_at_ms",
    )  # fmt: skip

    def __init__(self, lineage: Lineage, data: bytes, headers: Iterable[BatchHeader]) -> None:
        """Raises CorruptBatch for a marker that cannot be read."""
        headers = list(headers)
        self.transactions = PieceTransactions(data, headers)
        self.lineage = lineage
        self.data = data
        #: Where each batch ends, by offset and by byte.
        self._ends = array("q")
        self._positions = array("q", [0])
        self.base_offset = -1
        for header in headers:
            if self.base_offset < 0:
                self.base_offset = header.base_offset
            self._ends.append(header.end_offset)
            self._positions.append(header.end_position)
        self.end_offset = self._ends[-1] if self._ends else -1
        #: Everything below this offset was given to some consumer.
        self.given_to = -1
        self.used_at_ms = 0

    def cut(self, offset: int, limit: int, size_max: int) -> bytes:
        """Batches from the one that holds `offset` on, none of which ends above `limit`: at most `size_max` bytes, or one
        batch. b"" where there is none."""
        first = bisect_right(self._ends, offset)
        below_limit = bisect_right(self._ends, limit)
        if first >= below_limit:
            return b""
        begin = self._positions[first]
        fitting = bisect_right(self._positions, begin + size_max) - 1
        last = min(below_limit, max(first + 1, fitting))
        self.given_to = max(self.given_to, self._ends[last - 1])
        return self.data[begin : self._positions[last]]

    def is_awaited(self, now_ms: int) -> bool:
        """Somebody will soon read what nobody has read yet."""
        return self.given_to < self.end_offset and now_ms < self.used_at_ms + KEPT_MS


class Pieces:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        #: The one that was used last at the end.
        self._pieces: OrderedDict[Piece, None] = OrderedDict()
        self._of: dict[Lineage, list[Piece]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def find(self, lineage: Lineage, offset: int) -> Piece | None:
        """The piece that holds an offset."""
        return next((piece for piece in self._of.get(lineage, ()) if piece.base_offset <= offset < piece.end_offset), None)

    def use(self, piece: Piece, now_ms: int) -> None:
        """It is read just now."""
        piece.used_at_ms = now_ms
        self._pieces.move_to_end(piece)

    def add(self, piece: Piece, now_ms: int) -> None:
        """Keep a piece, and let go of others for it."""
        piece.used_at_ms = now_ms
        self._pieces[piece] = None
        self._of.setdefault(piece.lineage, []).append(piece)
        self.size += len(piece.data)
        while len(self._pieces) > 1 and (self.size > self._bytes_max or len(self._pieces) > PIECES_MAX):
            others = [each for each in self._pieces if each is not piece]
            self._remove(next((each for each in others if not each.is_awaited(now_ms)), others[0]))

    def awaited_bytes(self, now_ms: int) -> int:
        """What others have to leave room for."""
        return sum(len(piece.data) for piece in self._pieces if piece.is_awaited(now_ms))

    def drop(self, group: GroupId) -> None:
        """The partition is no longer here."""
        for lineage in [lineage for lineage in self._of if lineage.group == group]:
            for piece in list(self._of[lineage]):
                self._remove(piece)

    def _remove(self, piece: Piece) -> None:
        del self._pieces[piece]
        self.size -= len(piece.data)
        left = self._of[piece.lineage]
        left.remove(piece)
        if not left:
            del self._of[piece.lineage]
