"""What the driver needs of the remote tier (KIP-405): copies of closed segments, as rows of one table for each topic.

The leader of a partition decides what is copied and when. A tier makes the copy and shows it to readers in one step. Any number
of nodes use one table at the same time, and each of them may be killed, cut off or stopped at any moment.

Guarantees of every tier. `tests/contract/tier_contract.py` tests them by their numbers.

1. **Once.** The copies that a table shows of one lineage (partition and incarnation) follow one another without a gap and
   without an overlap. A copy is shown only where the one before it ends, and where that one is known.
2. **Whole.** A copy is shown with all its rows, or not at all, whenever the process that makes it ends.
3. **Fenced.** Once a call with leader epoch E was answered without an error, no call with a lower epoch shows anything in that
   lineage. Such a call fails with `TierFailure.FENCED`.
4. **Exact.** The rows of a copy are the records of its batches: offsets, epochs, timestamps, headers, control records. What is
   damaged, or is not the range that was asked for, is not shown.
5. **Answered.** `done` is called once for each call, later, on the driver's thread, within the time that the settings allow. A
   failure says whether the call may have had its effect. `claim` tells then.
6. **Its own.** A table of another topic, or one with a foreign schema, is never written to.
7. **Read exactly.** `read` gives the batches that the log had: records, offsets, epochs, timestamps, headers, control records,
   and a CRC that fits. `find` gives the auxiliary bytes of the copy that holds an offset. What is damaged is not given. An
   offset that no copy holds is `TierFailure.ABSENT`.
   `read` may go by what the table showed some seconds ago.
8. **Checked.** `check` reads the file of a copy as the store has it. The answer is DAMAGED where one byte is not as it was
   written. Where another program has rewritten the file, the answer goes by its rows. `claim` tells of a copy what it was when
   it was written, as long as the facts beside it are there.
9. **Deleted whole.** `delete` removes files whose rows all lie below an offset, in one commit, fenced as copies are. Nothing
   else goes. A copy goes on where the newest one ended, also where a delete left none. `drop` empties the table of a deleted
   topic for good: no copy is shown in it any more.
10. **One history.** After `adopt` the table shows rows of the new leader's history alone: a gapless run of offsets that its log
   goes on from. Rows of another history are superseded: no reader of the table sees them, and their files stay beside it, by
   incarnation. Leaders of older incarnations are fenced.
11. **Searched.** `search` tells of a record what the log had: offset, time and epoch. Control records have no time.
12. **Nobody else's.** Where another program has added or removed rows of a partition, `copy`, `claim`, `check`, `delete` and
   `adopt` of it answer CHANGED and have no effect, until the rows are as the tier left them. `accept` goes by what the table
   shows instead, where that is a gapless run with each offset once that reaches the log. Programs may rewrite files,
   as long as the rows stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.aborted_index import AbortedTransaction

#: Record times that a tier can hold, and as many before 1970: the columns of tables have microseconds in 64 bits. That is the
#: year 294,000.
TIME_MS_MAX = (2**63 - 1) // 1000 - 1


@dataclass(frozen=True, slots=True)
class FileRange:
    """`size` bytes from `position` on of a file that does not change there. They are whole batches."""

    path: str
    position: int
    size: int


#: Where the batches of a copy are to be read: in a file, or here.
BatchSource = FileRange | bytes


@dataclass(frozen=True, slots=True)
class Lineage:
    """The copies of one partition that make one offset space. An unclean election begins a new incarnation."""

    group: GroupId
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A copy that a table shows. Kafka: RemoteLogSegmentMetadata."""

    #: Unique for each attempt to make it.
    segment_id: str
    base_offset: Offset
    #: Exclusive.
    end_offset: Offset
    #: Of the leader that made it.
    leader_epoch: Epoch
    #: The leader epochs of its records, each with the first offset of it here (Kafka: segmentLeaderEpochs).
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: Milliseconds since 1970; -1 where no record has a time.
    timestamp_ms_max: int
    #: Bytes in the log.
    log_bytes: int
    #: Bytes of the file.
    size: int
    #: CRC-32C of the file.
    crc: int
    #: The file, relative to the table.
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """A range of committed batches that is to be shown behind everything else of its lineage."""

    lineage: Lineage
    segment_id: str
    base_offset: Offset
    #: Exclusive; a boundary of batches.
    end_offset: Offset
    leader_epoch: Epoch
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: One behind the other.
    sources: tuple[BatchSource, ...]
    #: What a replica has to know that begins at `end_offset`: kept beside the rows, its meaning is the driver's.
    auxiliary: bytes
    #: The aborted transactions with records in the range. No transaction that begins below its end is undecided.
    aborted: tuple[AbortedTransaction, ...] = ()
    #: Copies of the lineage were shown before. A tier that knows of none has lost its table.
    is_continued: bool = False


class TierFailure(Enum):
    #: A later leader has written there. The call had no effect.
    FENCED = "fenced"
    #: The lineage ends elsewhere. The call had no effect.
    ELSEWHERE = "elsewhere"
    #: The batches are damaged or are not those that were asked for. The call had no effect.
    DAMAGED = "damaged"
    #: Something that a retry does not mend: credentials, a foreign table, a missing package. The call had no effect.
    UNUSABLE = "unusable"
    #: The store did not answer, or not in time. The call may have had its effect, or have it later.
    UNKNOWN = "unknown"
    #: The table shows no copy with that offset. The call had no effect.
    ABSENT = "absent"
    #: Another program has added or removed rows. The call had no effect.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class TierError:
    failure: TierFailure
    #: For the operator: which file or setting, and what to do.
    reason: str


@dataclass(frozen=True, slots=True)
class LineageEnd:
    """What a table shows of a lineage. `last` is None where it shows nothing."""

    last: RemoteSegment | None


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What a replica has to know that begins at `segment.end_offset` (KIP-405: remote log auxiliary state)."""

    segment: RemoteSegment
    #: As `CopyRequest.auxiliary` gave it.
    auxiliary: bytes
    #: The copy that holds the offset, where that is another one: an unclean election cut it.
    cut: RemoteSegment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Batches from the one that holds `offset` on."""

    lineage: Lineage
    offset: Offset
    #: Exclusive: copies behind it are not read.
    end_offset: Offset
    #: Bytes of the answer. The first batch comes also where it is larger.
    size_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record of a client that a search by time found."""

    offset: Offset
    #: Milliseconds since 1970.
    timestamp_ms: int
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """By time, among the records of clients in [start_offset, end_offset)."""

    lineage: Lineage
    #: The first record of this time or a later one; None for the record with the latest time, the first of several.
    timestamp_ms: int | None
    start_offset: Offset
    #: Exclusive.
    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file that the table shows, as retention sees it. Files that somebody rewrote (OPTIMIZE) hold rows of several copies."""

    base_offset: Offset
    #: Exclusive. Rows behind it are of a batch that ends in another file: such a file goes with that one.
    end_offset: Offset
    #: Milliseconds since 1970; -1 where no record has a time.
    timestamp_ms_max: int
    #: Bytes of the file.
    size: int
    #: Bytes in the log; an estimate where somebody rewrote the file.
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageFacts:
    """All that the keys of the quorum say of a lineage, as its table tells it."""

    lineage: Lineage
    #: Of the last leader that wrote or claimed.
    leader_epoch: Epoch
    start_offset: Offset
    #: Exclusive.
    end_offset: Offset
    #: Copies that the table shows, their bytes there, and in the log.
    segments: int
    size: int
    #: An estimate where there are more than some hundred copies.
    log_bytes: int
    #: The leader epochs of all rows, each with its first offset.
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: The newest copies, in the order of offsets.
    newest: tuple[RemoteSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """The leader of an unclean election makes the table its own (KIP-405: scenarios 3 to 5)."""

    group: GroupId
    leader_epoch: Epoch
    #: Names the recovery. A repeated call with the same name answers as the first one.
    recovery: str
    #: The leader epochs of its history, each with its first offset: also of what lies before its log's start.
    epochs: tuple[tuple[Epoch, Offset], ...]
    #: Where its log begins, and where its committed records end (exclusive).
    log_start: Offset
    end_offset: Offset
    #: Copies were shown before. A tier that knows of none has lost its table.
    is_continued: bool = False


class RemoteTier(Protocol):
    """Calls of different lineages may be done in any order. One lineage has one call that changes it under way at a time; calls
    that only read come beside it."""

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        """Copy the range and show it."""

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        """Fence off the leaders before `leader_epoch`, and tell how far the lineage is shown. Calls of theirs that are under
        way, whatever became of them, have had their effect by then or have none."""

    def check(self, lineage: Lineage, segment: RemoteSegment, done: Callable[[TierError | None], None]) -> None:
        """Read a copy back. None: each byte of its file is as it was written. ABSENT where the table shows it no more."""

    def delete(self, lineage: Lineage, leader_epoch: Epoch, until: Offset, done: Callable[[Offset | TierError], None]) -> None:
        """Remove the files whose rows all lie below `until`. The answer is the first offset that the table still shows, or the
        end of the lineage where that is none. A repeated call finds nothing to do, and answers the same."""

    def drop(self, group: GroupId, partitions: int, done: Callable[[TierError | None], None]) -> None:
        """The topic is deleted: remove all files of partitions 0 to below `partitions`, and show nothing of them any more."""

    def adopt(self, request: AdoptRequest, done: Callable[[LineageFacts | TierError], None]) -> None:
        """Begin a new incarnation, the one behind the newest that the table knows. Its facts; with start and end at the log's
        start where nothing of the table is of the leader's history. ELSEWHERE where the table shows rows of this history from
        before the log, and does not lead up to it."""

    def accept(
        self,
        group: GroupId,
        begin: Offset | None,
        reach: Offset | None,
        done: Callable[[LineageFacts | TierError], None],
    ) -> None:
        """The operator's word: go by what the table shows of the newest incarnation, and tell it. CHANGED where that has a gap
        or an offset twice, begins behind `begin`, or ends before `reach`. ABSENT as `facts`."""

    def read(self, request: ReadRequest, done: Callable[[bytes | TierError], None]) -> None:
        """Whole batches, one behind the other, as the log had them."""

    def search(self, request: SearchRequest, done: Callable[[FoundRecord | TierError | None], None]) -> None:
        """The record that is searched for; None where the table shows no such record."""

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        """The copy that holds `offset`, and its auxiliary bytes; the first one behind it that has them where a copy was cut."""

    def oldest(self, lineage: Lineage, count: int, done: Callable[[tuple[RemoteFile, ...] | TierError], None]) -> None:
        """The first files that the table shows of a lineage, in the order of offsets, at most `count`."""

    def facts(self, lineage: Lineage | GroupId, done: Callable[[LineageFacts | TierError], None]) -> None:
        """What the table tells of a lineage: of the newest incarnation where a group is given. ABSENT where it never showed a
        row, and no election began it."""
