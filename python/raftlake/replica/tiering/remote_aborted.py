"""Which transactions are aborted among the records of the remote tier, for consumers that read what is committed.

A table keeps the batches as they were, with their markers, and no list of aborted transactions. The tier has only what is
below the last stable offset. So each of its transactions has a marker: in the same piece mostly, else in a later piece or in
the local log. Pieces are looked through one behind the other until it is found. What was looked through is not looked at again:
the next Fetch goes on there, be it of another consumer.

Owns what is known of transactions that go on behind their piece. Invariant: nothing is told of records whose outcome is not
known here; they are given later.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from raftlake.ports.tier import Lineage, TierError
from raftlake.raft.types import Offset
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.piece_transactions import Ended
from raftlake.replica.tiering.pieces import Piece
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.wire.fetch_response import AbortedTransaction

#: Searches that are remembered, ended or not.
SEARCHES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NotKnown:
    """`missing`: the piece at this offset has to be read first; -1: the local log does not have the marker yet."""

    missing: int = -1


@dataclass(slots=True)
class _Search:
    """For the marker of a producer, from the end of a piece on."""

    position: int
    ended: Ended | None = None


class RemoteAborted:
    def __init__(self, reads: RemoteReads) -> None:
        self._reads = reads
        self._searches: OrderedDict[tuple[Lineage, int, int], _Search] = OrderedDict()

    def find(self, partition: Partition, start: int, end: int) -> list[AbortedTransaction] | NotKnown | TierError:
        """Of the batches that begin in [start, end), which one piece holds. The first offset of a transaction is that of its
        first batch among them. Raises StorageError of the local log."""
        piece = self._reads.piece_at(partition, start)
        if not isinstance(piece, Piece):
            return NotKnown(start) if piece is None else piece
        ends: dict[int, Ended] = {}
        aborted: list[AbortedTransaction] = []
        for offset, producer_id in piece.transactions.between(start, end):
            ended = ends.get(producer_id)
            if ended is not None and offset < ended.marker_offset:
                continue
            found = piece.transactions.end_of(producer_id, offset) or self._search(partition, piece, producer_id, offset)
            if not isinstance(found, Ended):
                return found
            ends[producer_id] = found
            if found.is_aborted:
                aborted.append(AbortedTransaction(producer_id, offset))
        return aborted

    def _search(self, partition: Partition, piece: Piece, producer_id: int, offset: int) -> Ended | NotKnown | TierError:
        """Behind the piece."""
        key = (piece.lineage, producer_id, piece.end_offset)
        search = self._searches.setdefault(key, _Search(piece.end_offset))
        self._searches.move_to_end(key)
        if len(self._searches) > SEARCHES_MAX:
            self._searches.popitem(last=False)
        while search.ended is None and search.position < partition.log.start_offset:
            following = self._reads.piece_at(partition, search.position)
            if not isinstance(following, Piece):
                return NotKnown(search.position) if following is None else following
            search.ended = following.transactions.end_of(producer_id, search.position)
            search.position = following.end_offset
        return search.ended or _ended_here(partition, producer_id, offset, Offset(search.position))


def _ended_here(partition: Partition, producer_id: int, offset: int, position: Offset) -> Ended | NotKnown:
    """How the local log says that a transaction has ended which has a batch at `offset`, and no marker below `position`."""
    first = partition.producers.open_transaction(producer_id)
    if first is not None and first <= offset:
        return NotKnown()
    for aborted in partition.aborted(position, Offset(position + 1)):
        if aborted.producer_id == producer_id and aborted.first_offset <= offset:
            return Ended(aborted.last_offset, is_aborted=True)
    # A later batch of the producer may be of another transaction, which is looked for by itself.
    return Ended(position, is_aborted=False)
