"""How far the key space may grow: what is there, what is under way, and whether one more command fits.

Owns the count of commands that were let through and are not applied yet, so that a burst cannot pass a quota that each command
alone would keep. What a command adds is judged at its worst: any of those before it may fail or succeed, so a key counts as the
least that it may be then. Below a prefix that is being deleted a key counts as nothing. Refuses to know who asks and what is
committed. Invariant: what was let through brings the space at most up to the limit, except by commands that do not make it
grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keys import TRANSACTIONS_PREFIX, is_reserved
from raftlake.kv.keyspace import entry_bytes

#: Beyond the quota, for the quorum's own keys (addresses, topics, producer ids): clients cannot keep it from working.
OWN_ROOM_BYTES = 64 << 20
#: What a step of a transaction adds to the value of its key, at most, if no partition is added: longer words, more digits, and
#: fields that were not there. The most is added by EndTxn of version 5 for a transaction in which nothing was done: 13 bytes of
#: words ("Empty" to "CompleteAbort", "abort"), a digit of the epoch, "last_epoch" (18), "last_producer_id" (39), "raised" (14),
#: "started_ms" and "updated_ms" (33 each). The decision with another producer id adds one byte less.
END_GROWTH_BYTES = 151
#: How the value of an open transaction says so. No text in a value does: its quotes are escaped there.
OPEN = b'"state":"Ongoing"'
#: One part of so many of the quorum's room is for partitions that are added to transactions a few at a time.
ADDITIONS_PART = 4
#: Prefixes under way that keys are compared with; beyond them each key counts as one that is being deleted.
PREFIXES_TOLD_APART_MAX = 100
#: Percent of the quota at which somebody should be told.
LEVELS = (85, 95)
#: A level is told again once the space has been so many percent below it.
LEVEL_MARGIN = 5


class Sizes(Protocol):
    """The key space as it is applied."""

    @property
    def size(self) -> int: ...

    def size_of(self, key: str) -> int: ...


@dataclass(slots=True, eq=False)
class Reservation:
    """One command that was let through: what it may add, the keys that it changes, and the prefixes that it deletes."""

    growth: int
    keys: tuple[str, ...]
    prefixes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Touched:
    """A key that commands under way change: how many, and the least that it may count for behind one of them."""

    count: int
    floor: int


class Quota:
    """Each `reserve` that succeeds is followed by one `release`, when the command is applied or certainly never will be."""

    def __init__(self, bytes_max: int, own_room: int = OWN_ROOM_BYTES) -> None:
        self.bytes_max = bytes_max
        self._own_room = own_room
        #: What the commands under way may add.
        self.under_way = 0
        self._touched: dict[str, _Touched] = {}
        #: Prefixes whose keys commands under way delete, and how many of these do.
        self._prefixes: Counter[str] = Counter()

    def reserve(self, sizes: Sizes, txn: Txn) -> Reservation | None:
        """Let the command through; None when it would make the space grow beyond the quota."""
        after = [(op.key, entry_bytes(op.key, len(op.value)) if isinstance(op, Put) else 0) for op in txn.changes]
        growth = END_GROWTH_BYTES * len(txn.endings)
        # A transaction ends in a space that clients have filled, but for what the command puts beside.
        is_own = not after
        for change, (key, size) in zip(txn.changes, after, strict=True):
            growth += size - self._floor(sizes, key)
            is_own = is_own or self._is_own(sizes, change, size)
        limit = self.bytes_max + (self._own_room if is_own else 0)
        if growth > 0 and sizes.size + self.under_way + growth > limit:
            return None
        for key, size in after:
            touched = self._touched.get(key)
            if touched is None:
                self._touched[key] = _Touched(1, size)
            else:
                touched.count += 1
                touched.floor = min(touched.floor, size)
        reservation = Reservation(max(growth, 0), tuple([key for key, _ in after]), txn.deleted_prefixes)
        if reservation.prefixes:
            self._prefixes.update(reservation.prefixes)
        self.under_way += reservation.growth
        return reservation

    def _is_own(self, sizes: Sizes, change: Put | Delete, size: int) -> bool:
        """Whether a change may go beyond the quota. New transactional ids and many partitions may not: clients name these. A
        few partitions may, up to a part of the room. The rest is for what is open to end, and for the quorum's own keys."""
        key = change.key
        if not key.startswith(TRANSACTIONS_PREFIX):
            return is_reserved(key)
        before = sizes.size_of(key)
        if size > 0 and (before == 0 or size - before > END_GROWTH_BYTES):
            return False
        may_add_partitions = isinstance(change, Put) and OPEN in change.value
        return not may_add_partitions or sizes.size + self.under_way <= self.bytes_max + self._own_room // ADDITIONS_PART

    def _floor(self, sizes: Sizes, key: str) -> int:
        """The least that the key may count for when the next command is applied."""
        if self._prefixes and self._may_be_deleted(key):
            return 0
        touched, size = self._touched.get(key), sizes.size_of(key)
        return size if touched is None else min(size, touched.floor)

    def _may_be_deleted(self, key: str) -> bool:
        """By a prefix under way."""
        return len(self._prefixes) > PREFIXES_TOLD_APART_MAX or key.startswith(tuple(self._prefixes))

    def release(self, reservation: Reservation) -> None:
        self.under_way -= reservation.growth
        for key in reservation.keys:
            touched = self._touched[key]
            touched.count -= 1
            if touched.count == 0:
                del self._touched[key]
        for prefix in reservation.prefixes:
            self._prefixes[prefix] -= 1
            if self._prefixes[prefix] == 0:
                del self._prefixes[prefix]


class Levels:
    """Which of some levels, in percent, has been reached: each is news once, and again after it was left by a margin."""

    def __init__(self, levels: Sequence[int] = LEVELS, margin: int = LEVEL_MARGIN) -> None:
        self._levels = tuple(levels)
        self._margin = margin
        #: The highest one that was reached and not left, 0 for none.
        self.reached = 0

    def look(self, used: int, size: int) -> bool:
        """Whether a level has been reached that is above those that were told."""
        percent = 100 * used / size
        kept = [level for level in self._levels if level <= self.reached and percent > level - self._margin]
        now = max([*kept, *(level for level in self._levels if percent >= level)], default=0)
        is_news = now > self.reached
        self.reached = now
        return is_news
