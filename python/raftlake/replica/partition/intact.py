"""Are log bytes what was written? The CRC of a batch covers neither its base offset nor its leader epoch nor its length.

So offsets are checked by their chain, epochs against the log's history, and the rest by CRC where asked: a replica checks CRCs
itself, so its leader leaves that out until it is asked for the same bytes again.

And do they complete what is left of a damaged log? Not where compaction has removed a record of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from raftlake.errors import CorruptBatch, DamagedData, UnfitBeginning
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.batch_header import CONTROL_BIT, BatchHeader, require_crc
from raftlake.wire.batches import iterate_headers


def headers_from(name: object, data: bytes, start: int, *, check_crc: bool = True) -> Iterator[BatchHeader]:
    """The headers of whole batches from the one that holds `start` on. Each begins where the one before ended.

    Raises DamagedData that names the log and the offset; who reads on to the end of a log relies on it to get there. Without
    the CRC nothing is known of what a header says of its producer, of its records or of being a control batch.
    """
    view = memoryview(data)
    offset, position = start, 0
    try:
        for header in iterate_headers(data):
            base, end = header.base_offset, header.end_offset
            if (base != offset and not (position == 0 and base < offset)) or end <= offset:
                raise CorruptBatch(f"the batch there has the offsets {base} to {end - 1}")
            if check_crc:
                require_crc(view, header)
            yield header
            offset, position = end, header.end_position
        if position != len(data):
            raise CorruptBatch(f"the batch there claims more than the {len(data) - position} bytes that are left")
    except CorruptBatch as error:
        raise DamagedData(f"{name}: damaged at offset {offset}: {error}", offset=offset) from error


def require_intact(
    name: object, data: bytes, start: int, epochs: Sequence[tuple[Epoch, Offset]], *, check_crc: bool
) -> list[BatchHeader]:
    """`data` are whole batches from the one that holds `start` on. Returns the headers of the control batches among them.
    Raises DamagedData that names the log and the offset."""
    return require_epochs(name, start, headers_from(name, data, start, check_crc=check_crc), epochs)


def require_epochs(
    name: object, start: int, headers: Iterable[BatchHeader], epochs: Sequence[tuple[Epoch, Offset]]
) -> list[BatchHeader]:
    """The batches from the one that holds `start` on are of the epochs that the history says. Returns the headers of the
    control batches. Raises DamagedData."""
    offset = start
    control: list[BatchHeader] = []
    for header in headers:
        index = bisect_right(epochs, header.base_offset, key=lambda entry: entry[1]) - 1
        if index >= 0 and header.leader_epoch != epochs[index][0]:
            reason = f"its leader epoch is {header.leader_epoch}, but the epoch history says {epochs[index][0]}"
            raise DamagedData(f"{name}: damaged at offset {offset}: {reason}", offset=offset)
        if header.attributes & CONTROL_BIT:
            control.append(header)
        offset = header.end_offset
    return control


def require_all_records(name: object, headers: Iterable[BatchHeader]) -> None:
    """These batches, which a leader sent, complete what an earlier one gave, or what is left of a log that was cut. Raises
    UnfitBeginning where a record of them is gone. It may have been the tombstone of a key in what is here, or the marker of a
    transaction. What the topic's policy is does not matter: this node may not know it, and it may have come and gone."""
    for header in headers:
        if header.record_count <= header.last_offset_delta:
            offset = header.base_offset
            reason = f"it is to be completed, and the leader has removed records from {offset} on, which the rest may need"
            raise UnfitBeginning(f"{name}: {reason}", offset=offset)
