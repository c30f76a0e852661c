"""Are log bytes what was written? The CRC of a batch covers neither its base offset nor its leader epoch nor its length.

So offsets are checked by their chain, epochs against the log's history, and the rest by CRC where asked: whoever sends bytes to
a replica, which checks CRCs itself, leaves that out until it is asked for the same bytes again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from raftlake.errors import CorruptBatch, DamagedData
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.batch_header import BatchHeader, require_crc
from raftlake.wire.batches import iterate_headers


def require_intact(name: object, data: bytes, start: int, epochs: Sequence[tuple[Epoch, Offset]], *, check_crc: bool) -> None:
    """`data` are whole batches from the one that holds `start` on. Raises DamagedData that names the log and the offset."""
    offset, position = start, 0
    view = memoryview(data)
    try:
        for header in iterate_headers(view):
            _require_place(header, offset, epochs, is_first=offset == start)
            if check_crc:
                require_crc(view, header)
            offset, position = header.end_offset, header.end_position
        if position != len(data):
            raise CorruptBatch(f"the batch there claims more than the {len(data) - position} bytes that are left")
    except CorruptBatch as error:
        raise DamagedData(f"{name}: damaged at offset {offset}: {error}", offset=offset) from error


def _require_place(header: BatchHeader, offset: int, epochs: Sequence[tuple[Epoch, Offset]], *, is_first: bool) -> None:
    base = header.base_offset
    if base != offset and not (is_first and base <= offset < header.end_offset):
        raise CorruptBatch(f"the batch there begins with offset {base}")
    index = bisect_right(epochs, base, key=lambda entry: entry[1]) - 1
    if index >= 0 and header.leader_epoch != epochs[index][0]:
        raise CorruptBatch(f"its leader epoch is {header.leader_epoch}, but the epoch history says {epochs[index][0]}")
