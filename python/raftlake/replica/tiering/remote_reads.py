"""Offsets before the local log, for consumers: read from the remote tier in pieces, which are kept for the next Fetch.

A consumer that reads on finds the next piece there already: the piece behind one that is read is asked for at once. `find`
never waits. Who finds nothing asks (`ask`), and is called when a look is worthwhile.

The asked-for pieces stand in a line: the partitions take turns, one piece each, and CALLS_MAX calls of the tier are under way
at a time. Pieces that somebody is reading have their room in the cache: further calls wait until one of them is read or
forgotten, but one call is always under way. What no waiting Fetch wants any more is read all the same if its turn comes soon,
since consumers ask again.

A read that failed is remembered for a while, with its offset: who asks for that offset is told at once. Other offsets of the
partition are read as ever. Operators are told of it until a read goes well (`unreadable`): after a while this node looks by
itself.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from raftlake.errors import CorruptBatch, DamagedData
from raftlake.ports.driver import Aside
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, ReadRequest, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.engine import Engine
from raftlake.replica.partition.intact import headers_from, require_epochs
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.pieces import Piece, Pieces
from raftlake.replica.tiering.read_tally import ReadTally
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.unreadable import Unreadable
from raftlake.wire.batches import iterate_headers
from raftlake.wire.shown import without_raft_records

CALLS_MAX = 4
#: So many pieces have room in the cache.
CACHE_PIECES = 16
#: Pieces that are asked for, under way or not.
LINE_MAX = 1024
#: How long a piece that nobody waits for stays in the line.
PATIENCE_MS = 10_000
BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 5_000
#: Where the table has no whole batch yet that may be shown here.
NOTHING_YET_MS = 200
FAILED_MAX = 1024
OFFSET_MAX = (1 << 63) - 1
#: Between two looks whether a place that consumers have left can be read again.
LOOK_AGAIN_MS = 300_000
NO_MEMORY = TierError(TierFailure.UNKNOWN, "a piece of the table could not be checked: the log says why")
GONE = TierError(TierFailure.UNKNOWN, "the partition is not here any more")

Key = tuple[Lineage, int]


@dataclass(slots=True, eq=False)
class Wanted:
    """A piece that is asked for."""

    lineage: Lineage
    offset: int
    asked_at_ms: int
    #: Nobody has asked for it yet, but a consumer reads what lies before it.
    is_ahead: bool
    #: Called once, when the piece is there or cannot be had.
    waiters: dict[Callable[[], None], None] = field(default_factory=dict)
    is_under_way: bool = False

    @property
    def key(self) -> Key:
        return self.lineage, self.offset

    def leave(self, waiter: Callable[[], None]) -> None:
        """Do not call it any more."""
        self.waiters.pop(waiter, None)


@dataclass(frozen=True, slots=True)
class _Failed:
    #: None: there was nothing yet.
    error: TierError | None
    retry_at_ms: int
    count: int


class RemoteReads:
    def __init__(self, engine: Engine, remote_log: RemoteLog, tier: RemoteTier | None, tally: ReadTally, aside: Aside) -> None:
        self._engine = engine
        self._remote_log = remote_log
        self._tier = tier
        self.tally = tally
        self._aside = aside
        self._piece_bytes = engine.config.tier_piece_bytes
        self._pieces = Pieces(CACHE_PIECES * self._piece_bytes)
        #: All that is asked for.
        self._wanted: dict[Key, Wanted] = {}
        #: What waits for its turn, by partition; the partitions in the order of their turns.
        self._line: OrderedDict[GroupId, deque[Wanted]] = OrderedDict()
        self._ahead: deque[Wanted] = deque()
        self._under_way = 0
        self._failed: OrderedDict[Key, _Failed] = OrderedDict()
        engine.closed.append(self._on_closed)

    def find(self, partition: Partition, offset: int, size_max: int, limit: int = OFFSET_MAX) -> bytes | TierError | None:
        """Batches from the one that holds `offset` on, up to what the table, the high watermark and `limit` allow; why they
        cannot be read; None where they are not here yet."""
        tiered = self._remote_log.tiered(partition)
        if tiered is None:
            return None
        lineage, now_ms = Lineage(partition.group, tiered.incarnation), self._engine.now_ms
        piece = self._pieces.find(lineage, offset)
        if piece is None:
            failed = self._failed.get((lineage, offset))
            if failed is None or failed.retry_at_ms <= now_ms:
                return None
            return b"" if failed.error is None else failed.error
        limit = min(tiered.end_offset, partition.high_watermark, limit)
        data = piece.cut(offset, limit, size_max)
        self._pieces.use(piece, now_ms)
        self.tally.hits += 1
        if piece.end_offset < min(limit, partition.log.start_offset):
            self._ask_ahead(lineage, piece.end_offset)
        self._go_on()
        return data

    def piece_at(self, partition: Partition, offset: int) -> Piece | TierError | None:
        """The piece that holds `offset`; why it cannot be read; None where it is not here yet."""
        tiered = self._remote_log.tiered(partition)
        if tiered is None:
            return None
        lineage = Lineage(partition.group, tiered.incarnation)
        piece = self._pieces.find(lineage, offset)
        if piece is not None:
            self._pieces.use(piece, self._engine.now_ms)
            return piece
        failed = self._failed.get((lineage, offset))
        return None if failed is None or failed.retry_at_ms <= self._engine.now_ms else failed.error

    def ask(self, partition: Partition, offset: int, waiter: Callable[[], None] | None = None) -> Wanted | None:
        """Have the piece at `offset` read, and `waiter` called when there is news. None where too much is asked for."""
        tiered = self._remote_log.tiered(partition)
        if tiered is None:
            return None
        lineage = Lineage(partition.group, tiered.incarnation)
        wanted = self._wanted.get((lineage, offset))
        if wanted is None:
            failed = self._failed.get((lineage, offset))
            if len(self._wanted) >= LINE_MAX or (failed is not None and self._engine.now_ms < failed.retry_at_ms):
                return None
            wanted = self._add(lineage, offset, is_ahead=False)
        elif wanted.is_ahead:
            wanted.is_ahead = False
            if not wanted.is_under_way:
                self._line_up(wanted)
        wanted.asked_at_ms = self._engine.now_ms
        if waiter is not None:
            wanted.waiters[waiter] = None
        self._go_on()
        return wanted

    # --- the line ---

    def _add(self, lineage: Lineage, offset: int, *, is_ahead: bool) -> Wanted:
        wanted = self._wanted[lineage, offset] = Wanted(lineage, offset, self._engine.now_ms, is_ahead)
        if is_ahead:
            self._ahead.append(wanted)
        else:
            self._line_up(wanted)
        return wanted

    def _line_up(self, wanted: Wanted) -> None:
        self._line.setdefault(wanted.lineage.group, deque()).append(wanted)

    def _ask_ahead(self, lineage: Lineage, offset: int) -> None:
        key = (lineage, offset)
        if key in self._wanted or key in self._failed or len(self._wanted) >= LINE_MAX:
            return
        if self._pieces.find(lineage, offset) is None:
            self._add(lineage, offset, is_ahead=True)

    def _next(self) -> Wanted | None:
        """Whose turn it is."""
        while self._line:
            group, waiting = self._line.popitem(last=False)
            wanted = waiting.popleft()
            if waiting:
                self._line[group] = waiting
            if wanted.waiters or self._engine.now_ms < wanted.asked_at_ms + PATIENCE_MS:
                return wanted
            del self._wanted[wanted.key]
        while self._ahead:
            wanted = self._ahead.popleft()
            if wanted.is_ahead:
                return wanted
        return None

    def _may_begin(self) -> bool:
        if self._under_way == 0:
            return True
        room = CACHE_PIECES * self._piece_bytes - self._pieces.awaited_bytes(self._engine.now_ms)
        return self._under_way < CALLS_MAX and (self._under_way + 1) * self._piece_bytes <= room

    def _go_on(self) -> None:
        while (self._line or self._ahead) and self._may_begin():
            wanted = self._next()
            if wanted is None:
                return
            self._begin(wanted)

    def _begin(self, wanted: Wanted) -> None:
        partition = self._engine.partitions.get(wanted.lineage.group)
        tiered = None if partition is None else self._remote_log.tiered(partition)
        is_here = self._pieces.find(wanted.lineage, wanted.offset) is not None
        if self._tier is None or partition is None or tiered is None or is_here or not self._is_there(partition, wanted):
            self._end(wanted)
            return
        wanted.is_under_way = True
        self._under_way += 1
        request = ReadRequest(
            lineage=wanted.lineage,
            offset=Offset(wanted.offset),
            end_offset=min(tiered.end_offset, partition.high_watermark),
            size_max=self._piece_bytes,
        )
        self._tier.read(request, lambda answer: self._on_read(wanted, answer))

    def _is_there(self, partition: Partition, wanted: Wanted) -> bool:
        """The quorum's keys still say that the table has it, and that it may be shown."""
        tiered = self._remote_log.tiered(partition)
        if tiered is None or tiered.incarnation != wanted.lineage.incarnation:
            return False
        return tiered.start_offset <= wanted.offset < min(tiered.end_offset, partition.high_watermark)

    # --- answers ---

    def _on_read(self, wanted: Wanted, answer: bytes | TierError) -> None:
        """What came is checked aside: a piece may have many small batches."""
        self._engine.begin_input()
        partition = self._engine.partitions.get(wanted.lineage.group)
        if isinstance(answer, TierError) or partition is None:
            self._settle(wanted, answer if isinstance(answer, TierError) else GONE)
            return
        epochs = self._remote_log.epochs(partition)
        self._aside.submit(lambda: _checked(wanted, answer, epochs), lambda found: self._settle(wanted, found or NO_MEMORY))

    def _settle(self, wanted: Wanted, found: Piece | TierError) -> None:
        self._engine.begin_input()
        self._under_way -= 1
        partition = self._engine.partitions.get(wanted.lineage.group)
        if partition is not None and isinstance(found, Piece):
            self._take(wanted, found)
        elif partition is not None and isinstance(found, TierError):
            self._fail(partition, wanted, found)
        self._end(wanted)
        self._go_on()

    def _take(self, wanted: Wanted, piece: Piece) -> None:
        self._failed.pop(wanted.key, None)
        self.tally.reads += 1
        self.tally.bytes += len(piece.data)
        if piece.data:
            self._pieces.add(piece, self._engine.now_ms)
            self.tally.unreadable.read(wanted.lineage.group, wanted.offset, piece.end_offset)
        else:
            self._remember(wanted, _Failed(None, self._engine.now_ms + NOTHING_YET_MS, 0))

    def _fail(self, partition: Partition, wanted: Wanted, error: TierError) -> None:
        if error.failure is TierFailure.ABSENT and not self._is_there(partition, wanted):
            # It was deleted meanwhile, as the keys say by now.
            return
        before = self._failed.get(wanted.key)
        count = 0 if before is None else before.count
        retry_at_ms = self._engine.now_ms + min(BACKOFF_MS << min(count, 10), BACKOFF_MS_MAX)
        self._remember(wanted, _Failed(error, retry_at_ms, count + 1))
        what = f"offset {wanted.offset} cannot be read from the tier"
        self._look_later(self.tally.fail(partition.group, what, error, wanted.offset), wanted)

    def _look_later(self, told: Unreadable, failed: Wanted) -> None:
        if not told.is_awaited:
            told.is_awaited = True
            self._engine.timers.schedule(self._engine.now_ms + LOOK_AGAIN_MS, lambda: self._look_again(told, failed))

    def _look_again(self, told: Unreadable, failed: Wanted) -> None:
        """Whether a place can be read by now that operators are told of."""
        told.is_awaited = False
        partition = self._engine.partitions.get(failed.lineage.group)
        if partition is None or told not in self.tally.unreadable:
            return
        if not self._is_there(partition, failed):
            self.tally.unreadable.forget(partition.group, told)
        else:
            self.ask(partition, failed.offset)
            self._look_later(told, failed)

    def _remember(self, wanted: Wanted, failed: _Failed) -> None:
        self._failed[wanted.key] = failed
        self._failed.move_to_end(wanted.key)
        if len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)

    def _end(self, wanted: Wanted) -> None:
        """Call those who wait, in an input of its own: their looks may find that a disk fails."""
        if self._wanted.get(wanted.key) is wanted:
            del self._wanted[wanted.key]
        for waiter in list(wanted.waiters):
            self._engine.timers.schedule(self._engine.now_ms, waiter)
        wanted.waiters.clear()

    def _on_closed(self, partition: Partition) -> None:
        group = partition.group
        self._pieces.drop(group)
        self._line.pop(group, None)
        for key in [key for key in self._failed if key[0].group == group]:
            del self._failed[key]
        for key in [key for key in self._wanted if key[0].group == group]:
            self._wanted.pop(key).waiters.clear()


def _checked(wanted: Wanted, data: bytes, epochs: Sequence[tuple[Epoch, Offset]]) -> Piece | TierError:
    """The batches are those that the log had, as far as CRCs, offsets and epochs tell. The piece holds what consumers are
    shown of them."""
    group = wanted.lineage.group
    try:
        headers = list(headers_from(group, data, wanted.offset))
        control = require_epochs(group, wanted.offset, headers, epochs)
    except DamagedData as damage:
        return TierError(TierFailure.DAMAGED, f"the tier gave other batches than the log had: {damage}")
    shown = without_raft_records(data, control)
    try:
        return Piece(wanted.lineage, shown, headers if shown is data else iterate_headers(shown))
    except CorruptBatch as corrupt:
        return TierError(TierFailure.DAMAGED, f"the tier gave a marker that cannot be read: {corrupt}")
