"""What the driver needs of the remote tier (KIP-405): copies of closed segments, as rows of one table for each topic.

The leader of a partition decides what is copied and when. A tier makes the copy and shows it to readers in one step. Any number
of nodes use one table at the same time, and each of them may be killed, cut off or stopped at any moment.

Guarantees of every tier. `tests/contract/tier_contract.py` tests them by their numbers.

1. **Once.** The copies that a table shows of one lineage (partition and incarnation) follow one another without a gap and
   without an overlap. A copy is shown only where the one before it ends.
2. **Whole.** A copy is shown with all its rows, or not at all, whenever the process that makes it ends.
3. **Fenced.** Once a call with leader epoch E was answered without an error, no call with a lower epoch shows anything in that
   lineage. Such a call fails with `TierFailure.FENCED`.
4. **Exact.** The rows of a copy are the records of its batches: offsets, epochs, timestamps, headers, control records. What is
   damaged, or is not the range that was asked for, is not shown.
5. **Answered.** `done` is called once for each call, later, on the driver's thread, within the time that the settings allow. A
   failure says whether the call may have had its effect. `claim` tells then.
6. **Its own.** A table of another topic, or one with a foreign schema, is never written to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Epoch, Offset


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


@dataclass(frozen=True, slots=True)
class TierError:
    failure: TierFailure
    #: For the operator: which file or setting, and what to do.
    reason: str


@dataclass(frozen=True, slots=True)
class LineageEnd:
    """What a table shows of a lineage. `last` is None where it shows nothing."""

    last: RemoteSegment | None


class RemoteTier(Protocol):
    """Calls of different lineages may be done in any order; one lineage has one call under way at a time."""

    def copy(self, request: CopyRequest, done: Callable[[RemoteSegment | TierError], None]) -> None:
        """Copy the range and show it."""

    def claim(self, lineage: Lineage, leader_epoch: Epoch, done: Callable[[LineageEnd | TierError], None]) -> None:
        """Fence off the leaders before `leader_epoch`, and tell how far the lineage is shown. Calls of theirs that are under
        way, whatever became of them, have had their effect by then or have none."""
