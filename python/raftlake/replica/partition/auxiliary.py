"""What a replica has to know that begins at an offset, in one piece; the remote tier keeps it beside the copy that ends there.

KIP-405 calls it the auxiliary state: the producers with their last sequence numbers, and here the voters too (KIP-853). A
replica that has lost, or never had, the records before that offset goes on from it as if it had read them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raftlake.errors import CorruptBatch
from raftlake.raft.types import Offset, VoterSet
from raftlake.replica.partition.start_points import KnownProducers, Notes
from raftlake.wire import producer_snapshot

#: The length of the producers' part, which comes first. The notes follow.
_HEAD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Auxiliary:
    producers: KnownProducers
    #: None where the log says nothing of them (kraft.version 0).
    voters: VoterSet | None

    def encode(self, offset: Offset) -> bytes:
        """For the copy that ends at `offset`."""
        before = Offset(offset - 1)
        notes = Notes(
            has_forgotten=self.producers.has_forgotten,
            voters_from=before,
            voters=() if self.voters is None else ((before, self.voters),),
        )
        return b"".join((_HEAD.pack(len(self.producers.encoded)), self.producers.encoded, notes.encode()))

    @classmethod
    def decode(cls, data: bytes) -> Auxiliary:
        """Raises CorruptBatch."""
        if len(data) < _HEAD.size:
            raise CorruptBatch(f"{len(data)} bytes are no auxiliary state")
        (length,) = _HEAD.unpack_from(data)
        end = _HEAD.size + length
        if len(data) < end:
            raise CorruptBatch(f"auxiliary state of {len(data)} bytes claims {length} bytes of producers")
        notes = Notes.decode(data[end:])
        producers = KnownProducers(data[_HEAD.size : end], notes.has_forgotten)
        producer_snapshot.packed_rows(producers.encoded)
        return cls(producers, notes.voters[-1][1] if notes.voters else None)
