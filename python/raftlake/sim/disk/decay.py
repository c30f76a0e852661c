"""What a simulated disk does to records that it holds: bits flip, places become unreadable.

`Decay` is the state of one log: which of its batches are damaged. The batches themselves stay as they were, because the
invariants speak of what was written; only the process gets to see the damage, by a read or at a start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlake.errors import DamagedData, StorageError, UnfitBeginning
from raftlake.raft.types import Epoch, Impairment, Offset
from raftlake.sim.disk.log_image import LogImage, StoredBatch

#: A start looks at the newest batches of a log and nowhere else.
SEEN_AT_START = 3
#: More than any simulated log will hold.
UNKNOWN_END = Offset((1 << 62) - 1)


@dataclass(frozen=True, slots=True)
class Found:
    """Damage in a log, as it was when somebody looked first: what is cut is found by no second look."""

    reason: str
    #: The first damaged batch; None where all of the log goes.
    batch: StoredBatch | None
    #: None in an empty log.
    newest: StoredBatch | None
    #: The newest batch is not damaged itself.
    is_end_known: bool

    def end_lost(self, epoch: Epoch) -> Offset:
        """Up to where the replica may have acknowledged records in `epoch`. The place of a damaged end is not known."""
        if self.newest is None:
            return Offset(0)
        if not self.is_end_known:
            return UNKNOWN_END
        return Offset(self.newest.end) if self.newest.epoch >= epoch else Offset(0)


@dataclass(slots=True)
class Decay:
    """The damaged batches of one log, by (base offset, epoch): a byte to flip, or unreadable (-1)."""

    damaged: dict[tuple[int, int], int] = field(default_factory=dict)
    #: What the replica has lost, and why: the durable marker.
    impairment: tuple[Impairment, str] | None = None
    #: Up to this offset the scrub has read.
    scrubbed: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.damaged and self.impairment is None

    def seen(self, batch: StoredBatch) -> bytes:
        """What a read of the batch gives. Raises DamagedData where the disk cannot read it."""
        flipped = self.damaged.get((batch.base, batch.epoch))
        if flipped is None:
            return batch.data
        if flipped < 0:
            raise DamagedData(f"simulated: the batch at {batch.base} cannot be read", offset=batch.base)
        data = bytearray(batch.data)
        data[flipped % len(data)] ^= 0x10
        return bytes(data)

    def forget_from(self, end_offset: int) -> None:
        """The log was cut."""
        for key in [key for key in self.damaged if key[0] >= end_offset]:
            del self.damaged[key]

    def forget_below(self, start_offset: int) -> None:
        """Retention deleted the beginning of the log."""
        for key in [key for key in self.damaged if key[0] < start_offset]:
            del self.damaged[key]

    def first_of(self, batches: Sequence[StoredBatch]) -> StoredBatch | None:
        """The first damaged batch."""
        if not self.damaged:
            return None
        return next((batch for batch in batches if (batch.base, batch.epoch) in self.damaged), None)

    def look_at_start(self, image: LogImage) -> None:
        """Raises DamagedData when what a start reads is damaged."""
        found = self.first_of(image.batches[-SEEN_AT_START:])
        if found is not None:
            raise DamagedData(f"simulated: damage at {found.base} found at the start", offset=found.base)

    def look(self, image: LogImage, damage: DamagedData, *, is_whole_lost: bool = False) -> Found:
        """What is wrong with a log. All of it goes where the damage lies before it, or where it `is_whole_lost`. Raises
        StorageError where nothing is wrong."""
        batch = self.first_of(image.batches)
        if batch is None and damage.offset >= image.start and not isinstance(damage, UnfitBeginning):
            raise StorageError("simulated: damage that is not there")
        newest = image.batches[-1] if image.batches else None
        is_end_known = newest is None or (newest.base, newest.epoch) not in self.damaged
        reason = str(damage) if batch is None else f"damaged at {batch.base}"
        return Found(reason, None if is_whole_lost else batch, newest, is_end_known)

    def mark(self, found: Found, epoch: Epoch) -> None:
        """Note durably what the replica has lost when it is in `epoch`; never less than before."""
        known = self.impairment[0] if self.impairment is not None else Impairment(Epoch(0), Offset(0))
        self.impairment = Impairment(max(known.epoch, epoch), max(known.end_offset, found.end_lost(epoch))), found.reason

    def cut(self, image: LogImage, found: Found) -> LogImage:
        """The image without the damage and all behind it. Once more it changes nothing."""
        if found.batch is None:
            self.damaged.clear()
            return LogImage()
        if found.batch not in image.batches:
            return image
        self.forget_from(found.batch.base)
        image = image.cut(image.batches.index(found.batch))
        image.synced_end = image.end
        return image

    def scrub(self, image: LogImage, closed_end: int, size_max: int) -> int:
        """Read the closed segments on. Raises DamagedData."""
        read = 0
        for index in range(bisect_right(image.ends, self.scrubbed), len(image.batches)):
            batch = image.batches[index]
            if batch.end > closed_end:
                break
            if read >= size_max:
                return read
            if (batch.base, batch.epoch) in self.damaged:
                raise DamagedData(f"simulated: the scrub found damage at {batch.base}", offset=batch.base)
            self.scrubbed = batch.end
            read += len(batch.data)
        self.scrubbed = 0
        return read
