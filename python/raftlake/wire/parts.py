"""A frame under construction as a list of pieces, so that record bytes are sent from where they lie.

Small pieces are gathered in one bytearray; a piece above `COPY_BYTES_MAX` becomes a part of its own, by reference. The first
four bytes of the first part are the size prefix, written by `finish`.
"""

from __future__ import annotations

from raftlake.wire.primitives import I32, BytesLike, write_uvarint

#: Below this a copy is cheaper than one more buffer in a gathering write.
COPY_BYTES_MAX = 2048


class Parts:
    """`tail` takes bytes directly; `add_records` places a records field without copying a large one."""

    __slots__ = ("_head", "_parts", "_size", "tail")

    def __init__(self) -> None:
        self._head = self.tail = bytearray(4)
        self._parts: list[BytesLike] = []
        self._size = 0

    def add_records(self, records: BytesLike | None, flexible: bool) -> None:
        """A records field: length, then the bytes; `None` is a null field."""
        if records is None:
            self.tail += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        length = len(records)
        if flexible:
            write_uvarint(self.tail, length + 1)
        else:
            self.tail += I32.pack(length)
        if length <= COPY_BYTES_MAX:
            self.tail += records
            return
        self._size += len(self.tail) + length
        self._parts += (self.tail, records)
        self.tail = bytearray()

    def finish(self) -> list[BytesLike]:
        """The parts in order, the size prefix in place. The object may not be used afterwards."""
        if self.tail:
            self._parts.append(self.tail)
            self._size += len(self.tail)
        I32.pack_into(self._head, 0, self._size - 4)
        return self._parts
