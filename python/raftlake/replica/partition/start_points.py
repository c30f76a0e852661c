"""What a log's records say of producers and voters, kept beside it at some offsets, so that a start reads only what follows.

A point is saved where a segment begins and at a clean stop. Owns the content of both its parts, the choice of the one to begin
with, and the reading of the rest: headers only, each checked by its CRC, once, for producers and voters together. Points that
the reading passes and that are missing are saved again. A point of many producers is written in slices, one at a time, from
what was frozen where its segment begins; a segment that begins meanwhile has none. Invariant: what is restored is what reading
the whole log would give, and for a log that retention has trimmed also what its lost beginning said of producers.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from crc32c import crc32c

from raftlake.errors import CorruptBatch, DamagedData, DiskFull, StorageError
from raftlake.ports.driver import LogStore
from raftlake.raft.types import Epoch, Offset, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition.intact import headers_from
from raftlake.replica.partition.producer_state import (
    NO_PRODUCER,
    SLICE_PRODUCERS,
    FrozenProducers,
    ProducerStates,
    ProducerTally,
    closed_rows,
)
from raftlake.replica.partition.transactions import EndedTransaction
from raftlake.replica.partition.voter_log import NO_TIMESTAMP, entries_of, read_batch_voters
from raftlake.wire import producer_snapshot
from raftlake.wire.aborted_index import AbortedTransaction, marker_offset_of
from raftlake.wire.batches import BatchHeader, EndMarker, read_end_marker, validate, voters_batch

T = TypeVar("T")
logger = logging.getLogger("raftlake.start_points")

READ_BYTES = 1024 * 1024
VERSION = 2
#: Without transactions.
VERSION_PLAIN = 1
#: Version, CRC-32C of all that follows, whether producers were forgotten, from which offset on the voters are complete.
_NOTES = struct.Struct(">hI?q")
_COUNTED_FROM = 6
#: Of version 2: how many transactions were ended and not known to be committed, and of how many segments the aborted ones are
#: counted. These follow, and then what version 1 holds.
_TRANSACTIONS = struct.Struct(">ii")
_ENDED = struct.Struct(">qq")
_COUNTED = struct.Struct(">qi")
#: How a record of a snapshot begins that tells the producers.
_PRODUCERS_MARK = b"producers-1:"
#: Rows in one such record. A snapshot holds no batch above `wire.snapshots.BATCH_BYTES_MAX`.
RECORD_BYTES = (1 << 14) * producer_snapshot.ENTRY.size

#: Sets by their offset, each with the batch that says it.
EncodedVoters = dict[Offset, tuple[VoterSet, bytes]]

#: Work that yields after each small piece of it.
Slices = Generator[None, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Our own part of a point."""

    has_forgotten: bool
    #: Of the records before it nothing is said: a snapshot stands for them.
    voters_from: Offset
    voters: tuple[tuple[Offset, VoterSet], ...]
    #: Whose markers are below the point, and were not known to be committed. The open ones are in the rows of the producers.
    ended: tuple[EndedTransaction, ...] = ()
    #: See `AbortedIndex.counts`.
    aborted: tuple[tuple[Offset, int], ...] = ()

    def encode(self, known: EncodedVoters | None = None) -> bytes:
        """`known`: batches that were made before, to be used again and added to; what is of no use any more is dropped."""
        version = VERSION if self.ended or self.aborted else VERSION_PLAIN
        data = bytearray(_NOTES.pack(version, 0, self.has_forgotten, self.voters_from))
        if version == VERSION:
            data += _TRANSACTIONS.pack(len(self.ended), len(self.aborted))
            data += b"".join([_ENDED.pack(*each) for each in self.ended])
            data += b"".join([_COUNTED.pack(*each) for each in self.aborted])
        used: EncodedVoters = {}
        for offset, voters in self.voters:
            entry = None if known is None else known.get(offset)
            if entry is None or entry[0] is not voters:
                batch = voters_batch(offset, Epoch(0), NO_TIMESTAMP, entries_of(voters), kraft_version=1)
                entry = (voters, bytes(batch))
            used[offset] = entry
            data += entry[1]
        if known is not None:
            known.clear()
            known.update(used)
        struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_COUNTED_FROM:]))
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> Notes:
        """Raises CorruptBatch."""
        if len(data) < _NOTES.size:
            raise CorruptBatch(f"{len(data)} bytes are no notes of voters")
        version, crc, has_forgotten, voters_from = _NOTES.unpack_from(data)
        if version not in (VERSION_PLAIN, VERSION) or crc != crc32c(memoryview(data)[_COUNTED_FROM:]):
            raise CorruptBatch(f"notes of voters: version {version}, or a CRC that does not match")
        batches = memoryview(data)[_NOTES.size :]
        ended: tuple[EndedTransaction, ...] = ()
        aborted: tuple[tuple[Offset, int], ...] = ()
        if version == VERSION:
            ended, aborted, batches = _read_transactions(batches)
        voters = []
        for header in validate(batches):
            found = read_batch_voters(batches[header.position : header.end_position])
            if found is None:
                raise CorruptBatch(f"notes of voters: none at {header.base_offset}")
            voters.append((Offset(header.base_offset), found))
        return cls(
            has_forgotten=has_forgotten,
            voters_from=Offset(voters_from),
            voters=tuple(voters),
            ended=ended,
            aborted=aborted,
        )


def _read_transactions(
    data: memoryview,
) -> tuple[tuple[EndedTransaction, ...], tuple[tuple[Offset, int], ...], memoryview]:
    """What notes of version 2 say of transactions, and the rest of them. Their CRC was right. Raises CorruptBatch."""
    try:
        ended_count, counted = _TRANSACTIONS.unpack_from(data)
        ended_end = _TRANSACTIONS.size + ended_count * _ENDED.size
        end = ended_end + counted * _COUNTED.size
        ended = tuple(EndedTransaction(*each) for each in _ENDED.iter_unpack(data[_TRANSACTIONS.size : ended_end]))
        aborted = tuple((Offset(base), count) for base, count in _COUNTED.iter_unpack(data[ended_end:end]))
    except struct.error as error:
        raise CorruptBatch(f"notes of voters: {error}") from error
    return ended, aborted, data[end:]


@dataclass(frozen=True, slots=True)
class KnownProducers:
    """What all records below an offset say of producers: data records in the snapshot that stands for them, mostly one."""

    #: As in Kafka's file.
    encoded: bytes
    has_forgotten: bool

    @property
    def packed(self) -> memoryview:
        """The encoded rows."""
        return producer_snapshot.packed_rows(self.encoded)

    def without_transactions(self) -> KnownProducers:
        """The same for a log that begins behind all of it: a batch there opens its transaction anew. What was open is
        forgotten."""
        closed = closed_rows(self.packed)
        return KnownProducers(producer_snapshot.encode_packed(closed), self.has_forgotten or closed != bytes(self.packed))

    def records(self) -> Iterator[bytes]:
        """The records; `decode` reads each of them."""
        rows = self.packed
        for start in range(0, len(rows) or 1, RECORD_BYTES):
            encoded = producer_snapshot.encode_packed(rows[start : start + RECORD_BYTES])
            yield b"".join((_PRODUCERS_MARK, bytes([self.has_forgotten]), encoded))

    @classmethod
    def join(cls, parts: Sequence[KnownProducers]) -> KnownProducers | None:
        """What the records of one snapshot say together; None where there are none."""
        if len(parts) < 2:
            return parts[0] if parts else None
        rows = b"".join(part.packed for part in parts)
        return cls(producer_snapshot.encode_packed(rows), has_forgotten=any(part.has_forgotten for part in parts))

    @classmethod
    def decode(cls, value: bytes) -> KnownProducers | None:
        """None where the record is something else. Raises CorruptBatch."""
        if not value.startswith(_PRODUCERS_MARK) or len(value) == len(_PRODUCERS_MARK):
            return None
        start = len(_PRODUCERS_MARK)
        encoded = value[start + 1 :]
        producer_snapshot.packed_rows(encoded)
        return cls(encoded, has_forgotten=value[start] != 0)


class LogFacts:
    """Of one open log: its producers, and from where on `history` knows all of its voters."""

    def __init__(
        self,
        name: object,
        log: LogStore,
        history: VoterHistory,
        voters_from: Offset,
        inherited: KnownProducers | None = None,
        *,
        tally: ProducerTally | None = None,
        in_slices: Callable[[Slices], None] | None = None,
    ) -> None:
        """`inherited` is what the snapshot at the log's start tells. `in_slices` does work a little at a time; without it all
        is done at once."""
        self._name = name
        self._log = log
        self._history = history
        self._voters_from = voters_from
        self._tally = tally
        self.producers = ProducerStates(tally)
        self._in_slices = in_slices
        #: The point that is being written in slices.
        self._saving: Slices | None = None
        self._inherited = inherited
        self._inherited_at = log.start_offset
        #: Of the point saved last: the next one, a segment later, says nearly the same.
        self._encoded_voters: EncodedVoters = {}
        #: Aborted transactions that are not in the index of the log yet. The last markers may be about to be written.
        self._aborted: list[AbortedTransaction] = []

    def remember(self, header: BatchHeader, now_ms: int, marker: EndMarker | None = None) -> None:
        """Note the sequence numbers of a batch that is in the log, or the `marker` that it holds."""
        if marker is not None:
            self.end_transaction(marker, header.base_offset, now_ms)
        elif header.producer_id != NO_PRODUCER and not header.is_control:
            self.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                # Records that compaction has removed had numbers too.
                header.last_offset_delta + 1,
                header.base_offset,
                now_ms,
                header.is_transactional,
            )

    def end_transaction(self, marker: EndMarker, offset: int, now_ms: int) -> None:
        """Note a marker that is in the log at `offset`, or is about to be."""
        aborted = self.producers.end_transaction(marker, offset, now_ms)
        if aborted is not None:
            self._aborted.append(aborted)

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """See `AbortedIndex.find`."""
        # Of those below nothing is left but perhaps a marker. A consumer must not wait for one that is gone.
        compacted_until = self._log.compacted_until or 0
        found = [each for each in self._log.aborted.find(start, end) if each.last_offset >= compacted_until]
        return found + [each for each in self._aborted if each.last_offset >= start and each.first_offset < end]

    # --- saving ---

    def _save_aborted(self, end_offset: Offset) -> None:
        """Put the transactions into the index whose markers are below `end_offset`. Raises StorageError. After a DiskFull they
        are still kept here."""
        if self._aborted:
            count = bisect_left(self._aborted, int(end_offset), key=marker_offset_of)
            if count:
                self._log.aborted.append(self._aborted[:count])
                del self._aborted[:count]

    def save(self, offset: Offset, *, sync: bool = True) -> None:
        """Save a point at `offset`, which the log reaches. Raises StorageError."""
        self._require_aborted(offset)
        producers = producer_snapshot.encode_packed(self.producers.packed(offset))
        self._log.start_points.save(offset, producers, self._notes(offset), sync=sync)

    def _require_aborted(self, offset: Offset) -> None:
        """A point relies on the index up to there. Raises StorageError."""
        self._save_aborted(offset)
        self._log.aborted.sync()

    def _notes(self, offset: Offset) -> bytes:
        voters_from = max(self._voters_from, self._log.start_offset)
        notes = Notes(
            has_forgotten=self.producers.has_forgotten,
            voters_from=voters_from,
            voters=tuple(each for each in self._history.entries if voters_from <= each[0] < offset),
            ended=self.producers.transactions.ended_below(offset),
            aborted=tuple(self._log.aborted.counts(offset)),
        )
        return notes.encode(self._encoded_voters)

    def _save_if_room(self, offset: Offset, *, sync: bool = True) -> bool:
        """A start reads more where a point is missing, and saves it then. Raises StorageError, but not for want of room."""
        try:
            self.save(offset, sync=sync)
        except DiskFull as full:
            self._note_no_room(offset, full)
            return False
        return True

    def _note_no_room(self, offset: Offset, full: DiskFull) -> None:
        logger.warning("%s: the state at offset %d is not saved: %s", self._name, offset, full)

    def save_at_stop(self) -> None:
        """Save a point at the log's end unless there is one; nothing else relies on it. Raises StorageError."""
        end = self._log.end_offset
        self.stop_saving()
        is_missing = end > self._log.start_offset and end not in self._log.start_points.offsets
        if is_missing and self._save_if_room(end, sync=False):
            self._drop_strays(end)

    def appended(self, begun: Sequence[Offset]) -> None:
        """The log has grown, and began segments at `begun`. Raises StorageError."""
        for offset in begun:
            self._save_at_base(offset)
        if self._aborted:
            # Without room for the index the next append tries again, and meanwhile no point is saved.
            with suppress(DiskFull):
                self._save_aborted(self._log.end_offset)
        self.producers.settle(self._log.end_offset)

    def _save_at_base(self, offset: Offset) -> None:
        """Save a point where a segment begins. Of many producers one point at a time is written; a start reads more where one
        is missing."""
        if self._in_slices is None or len(self.producers) <= SLICE_PRODUCERS:
            if self._save_if_room(offset):
                self._drop_strays(offset)
        elif self._saving is None and not self.producers.is_stirred:
            try:
                self._require_aborted(offset)
            except DiskFull as full:
                self._note_no_room(offset, full)
                return
            self._saving = self._save_slowly(offset, self.producers.freeze(offset), self._notes(offset))
            self._in_slices(self._saving)

    def _save_slowly(self, offset: Offset, frozen: FrozenProducers, notes: bytes) -> Slices:
        digest = producer_snapshot.Digest(frozen.row_count)
        try:
            writer = self._log.start_points.begin(offset, producer_snapshot.HEAD_BYTES)
            try:
                for rows in frozen.slices():
                    digest.add(rows)
                    writer.append(rows)
                    yield
                writer.finish(digest.head(), notes)
            finally:
                writer.abandon()
            self._drop_strays(offset)
        except DiskFull as full:
            self._note_no_room(offset, full)
        finally:
            merging = frozen.release()
        self._saving = None
        yield from merging

    def stop_saving(self) -> None:
        """The log is about to be cut, emptied or left alone: what is being written would tell of another one."""
        if self._saving is not None:
            self._saving.close()
            self._saving = None

    def close(self) -> None:
        """No more questions come."""
        self.stop_saving()
        self.producers.drop()

    def can_begin_at(self, offset: Offset) -> Offset:
        """Up to where the log may be trimmed, at most to `offset`, the base of a segment: where a point tells the producers.
        Whoever forgets producers appends batches that come again. So a point that found no room is waited for too."""
        log, points = self._log, self._log.start_points.offsets
        if offset in points:
            return offset
        return max((base for base in log.segment_bases if base <= offset and base in points), default=log.start_offset)

    def _drop_strays(self, saved: Offset) -> None:
        """Of the points of clean stops only one behind the last segment's start is worth anything."""
        bases = self._log.segment_bases
        points = self._log.start_points
        points.delete([each for each in points.offsets if each < saved and each > self._log.start_offset and each not in bases])

    # --- restoring ---

    def reset(self, inherited: KnownProducers | None) -> None:
        """The log was emptied, and begins behind a snapshot that tells the voters, and the producers too if it can."""
        self._voters_from = self._inherited_at = self._log.start_offset
        self._inherited = inherited
        self._begin_anew()
        self._inherit()

    def _begin_anew(self) -> None:
        self.close()
        self.producers = ProducerStates(self._tally)
        self._aborted.clear()

    def _inherit(self) -> None:
        if self._inherited is not None and self._inherited_at == self._log.start_offset:
            self.producers.restore(self._inherited.packed)
            self.producers.has_forgotten = self._inherited.has_forgotten
        elif self._log.start_offset > 0:
            # Of what was before nothing is known: no room for the point here, or a snapshot that does not tell.
            self.producers.has_forgotten = True

    def producers_at(self, offset: Offset) -> KnownProducers | None:
        """What the point at `offset`, or the snapshot there, tells of producers; None where neither does."""
        if offset not in self._log.start_points.offsets:
            return self._inherited if self._inherited_at == offset else None
        try:
            producers, notes = self._log.start_points.load(offset)
            producer_snapshot.packed_rows(producers)
            return KnownProducers(producers, Notes.decode(notes).has_forgotten)
        except (CorruptBatch, StorageError) as error:
            logger.warning("%s: the state saved at offset %d is of no use: %s", self._name, offset, error)
            return None

    def restore(self, now_ms: int, *, with_voters: bool) -> None:
        """Begin with the newest intact point and read on. `with_voters`: record in the history what the log says from where it
        is complete. Raises DamagedData, StorageError."""
        self._begin_anew()
        try:
            self._restore(now_ms, with_voters=with_voters)
        except (DamagedData, StorageError):
            self.close()
            raise

    def _restore(self, now_ms: int, *, with_voters: bool) -> None:
        log, read_voters_from = self._log, self._voters_from
        point = self._begin()
        producers_from = log.start_offset
        if point is not None:
            producers_from, rows, notes = point
            self.producers.restore(rows, notes.ended)
            self.producers.has_forgotten = notes.has_forgotten
            if notes.voters_from <= self._voters_from:
                read_voters_from = max(producers_from, self._voters_from)
                for offset, voters in notes.voters if with_voters else ():
                    if offset >= self._voters_from:
                        self._history.record(offset, voters)
        else:
            self._inherit()
        log.aborted.truncate_to(producers_from)
        if not with_voters:
            read_voters_from = log.end_offset
        missing = [base for base in log.segment_bases if base > producers_from and base not in log.start_points.offsets]
        for chunk, header in self._read(min(producers_from, read_voters_from)):
            if missing and header.base_offset == missing[0]:
                self._save_missing(missing.pop(0), is_last=not missing)
            if header.position == 0:
                self.producers.settle(header.base_offset)
            if header.base_offset >= producers_from:
                self.remember(header, now_ms, self._read_control(chunk, header, read_end_marker))
            if header.is_control and header.base_offset >= read_voters_from:
                self._read_voters(chunk, header)
        # A point told of them. Their markers are gone: each transaction is decided that begins below what is compacted.
        self.producers.close_transactions(log.compacted_until or Offset(0))
        with suppress(DiskFull):
            self._save_aborted(log.end_offset)
        self.producers.settle(log.end_offset)
        if missing and missing[0] == log.end_offset:
            self._save_missing(missing.pop(0), is_last=True)

    def _save_missing(self, base: Offset, *, is_last: bool) -> None:
        """Of many producers the last point only."""
        if len(self.producers) <= SLICE_PRODUCERS:
            self._save_if_room(base)
        elif is_last:
            self._save_at_base(base)

    def _begin(self) -> tuple[Offset, memoryview, Notes] | None:
        """The newest intact point within the log; those that are of no use are deleted."""
        log, points = self._log, self._log.start_points
        useless = [offset for offset in points.offsets if not log.start_offset <= offset <= log.end_offset]
        points.delete(useless)
        for offset in reversed(points.offsets):
            try:
                producers, encoded = points.load(offset)
                rows, notes = producer_snapshot.packed_rows(producers), Notes.decode(encoded)
                if log.aborted.agrees(offset, notes.aborted):
                    return offset, rows, notes
                logger.warning("%s: the index of aborted transactions below offset %d is damaged", self._name, offset)
                points.delete([offset])
            except (CorruptBatch, StorageError) as error:
                logger.warning("%s: the state saved at offset %d is of no use: %s", self._name, offset, error)
                points.delete([offset])
        return None

    def _read(self, offset: Offset) -> Iterator[tuple[bytes, BatchHeader]]:
        """The headers from `offset` on, each with the bytes that it stands in."""
        end = self._log.end_offset
        while offset < end:
            chunk = self._log.read(offset, end, READ_BYTES)
            if not chunk:
                return
            for header in headers_from(self._name, chunk, offset):
                yield chunk, header
                offset = Offset(header.end_offset)

    def _read_control(self, chunk: bytes, header: BatchHeader, read: Callable[[memoryview], T | None]) -> T | None:
        """What a control batch says; None for other batches."""
        if not header.is_control:
            return None
        try:
            return read(memoryview(chunk)[header.position : header.end_position])
        except CorruptBatch as error:
            offset = header.base_offset
            raise DamagedData(f"{self._name}: damaged at offset {offset}: {error}", offset=offset) from error

    def _read_voters(self, chunk: bytes, header: BatchHeader) -> None:
        voters = self._read_control(chunk, header, read_batch_voters)
        if voters is not None:
            self._history.record(Offset(header.base_offset), voters)
