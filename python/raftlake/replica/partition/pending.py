"""Appends on their way into the log of a partition, and those in it that wait for their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raftlake.errors import ErrorCode
from raftlake.raft.types import Epoch
from raftlake.replica.partition.voter_log import NO_TIMESTAMP
from raftlake.wire.batches import BatchHeader, EndMarker

NO_EPOCH = Epoch(-1)
#: The base offset of a marker that was not written because it had nothing to end.
NOT_WRITTEN = -1


def _nothing_against_it() -> None:
    """A marker may be written."""


@dataclass(slots=True)
class PendingAppend:
    """Validated batches of one producer request for this partition, on their way into the log.

    `done(error, base_offset)` is called exactly once, with the errors of `Partition.admit` and `Partition.on_leadership_lost`.
    Where `Partition.admit` refuses it a third argument says why, in words.
    """

    buffer: bytearray | memoryview
    headers: Sequence[BatchHeader]
    deadline_ms: int
    done: Callable[..., None]
    #: A retry of these batches cannot be applied twice, so a lost leadership may be answered as "not leader".
    idempotent: bool
    #: Whether somebody wants to know when it is committed; else it is done as soon as it is written.
    waits: bool = True
    #: The leader writes its time into the batches, and says here which.
    stamps_time: bool = False
    append_time_ms: int = NO_TIMESTAMP
    #: Called instead of `done` where disks are too full for what clients append; None: it is the quorum's own.
    refuse: Callable[[str], None] | None = None
    #: Of the request that transactional batches came with, and its version.
    transactional_id: str | None = None
    version: int = 0
    #: The leader's epoch in which what the quorum's keys say of the transaction was looked up, after the batches had come.
    looked_up_in: Epoch = NO_EPOCH
    #: Why the partition could not be added to the transaction, where that was asked for; and in words.
    not_added: ErrorCode | None = None
    why_not_added: str = ""
    #: The one batch is this end of a transaction; and what is told instead where it must not be written.
    marker: EndMarker | None = None
    stale: Callable[[], ErrorCode | None] = _nothing_against_it


@dataclass(slots=True)
class WaitingAppend:
    """An appended request that is answered once everything below `end_offset` is committed."""

    end_offset: int
    base_offset: int
    pending: PendingAppend
