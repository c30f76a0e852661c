"""One offset space over the remote tier and the local log of a partition, as this node has applied the quorum's keys.

The log of a partition begins where its table begins, or behind what was deleted (DeleteRecords). Its leader epochs are those of
the copies, and behind them those of the local log (KIP-405: the leader epoch sequence goes on before the local start).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from raftlake.kv.keys import tier_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import FIRST_OFFSET, Epoch, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.reserved import recovery_of
from raftlake.replica.tiering.current_keys import CurrentKeys
from raftlake.tier.entries import Tiered, decode_tiered
from raftlake.wire.ids import id_to_text

#: No such epoch.
NOWHERE = OffsetAndEpoch(Offset(-1), Epoch(-1))


class RemoteLog:
    """`is_on`: this node has a remote tier. Without one, everything is local."""

    def __init__(self, engine: Engine, kv: KvService, *, is_on: bool) -> None:
        self._engine = engine
        self._kv = kv
        self.is_on = is_on
        #: What was decoded last, with the version of the key.
        self._decoded: dict[GroupId, tuple[int, Tiered | None]] = {}
        self._knows_deletions = False
        #: Where a local log begins to which no copies reach, and whether the keys were read since then.
        self._keys_since: dict[GroupId, tuple[Offset, CurrentKeys]] = {}
        engine.closed.append(self._on_closed)

    def _on_closed(self, partition: Partition) -> None:
        self._decoded.pop(partition.group, None)
        self._keys_since.pop(partition.group, None)

    def tiered(self, partition: Partition) -> Tiered | None:
        """What is copied of a partition; None where nothing is, where the key cannot be read, or where the copies do not reach
        the local log."""
        if not self.is_on:
            return None
        group = partition.group
        entry = self._kv.machine.get(tier_key(id_to_text(group.topic_id), group.partition))
        if entry is None:
            return None
        known = self._decoded.get(group)
        if known is None or known[0] != entry.version:
            found = decode_tiered(entry.value)
            known = self._decoded[group] = (entry.version, found if isinstance(found, Tiered) else None)
        tiered = known[1]
        return tiered if tiered is not None and tiered.end_offset >= partition.log.start_offset else None

    def of_this_history(self, partition: Partition) -> Tiered | None:
        """As `tiered`; None also after an unclean election, until its leader has taken the table over. The key may tell of rows
        that this log does not share."""
        tiered = self.tiered(partition)
        if tiered is None or tiered.recovery != recovery_of(self._kv.machine):
            return None
        return tiered

    @property
    def knows_deletions(self) -> bool:
        """All that was deleted before this node started is known here. Until then its log may show what is deleted."""
        if not self._knows_deletions:
            config, metadata = self._engine.config, self._engine.partitions.get(METADATA_GROUP)
            caught_up = metadata is not None and metadata.core.has_caught_up(Offset(self._kv.machine.applied_offset))
            self._knows_deletions = config.is_opaque or caught_up
        return self._knows_deletions

    def knows_start(self, partition: Partition) -> bool:
        """Whether `start_offset` is where the partition begins, and not only what this node has heard of so far."""
        if not self.knows_deletions:
            return False
        return partition.log.start_offset == 0 or self.tiered(partition) is not None or self._has_keys_since_start(partition)

    def _has_keys_since_start(self, partition: Partition) -> bool:
        """Whether the keys that are applied here are not older than the start of the local log. The log may begin where its
        leader's does, by a state from the tier or a snapshot, before the key is here that tells of the records below."""
        if not self.is_on:
            return True
        start = partition.log.start_offset
        known = self._keys_since.get(partition.group)
        if known is None or known[0] != start:
            known = self._keys_since[partition.group] = (start, CurrentKeys(self._engine, self._kv))
        known[1].ask()
        return known[1].are_here

    def start_offset(self, partition: Partition) -> Offset:
        """Where the partition begins: its first record that is not deleted is in the table, or in the local log."""
        if not self.is_on:
            # Each answer to a Produce tells it.
            return max(partition.log.start_offset, self.deleted_below(partition))
        return max(self.first_offset(partition), self.deleted_below(partition))

    def first_offset(self, partition: Partition) -> Offset:
        """Where table and local log together begin. What is deleted may still be there."""
        tiered = self.tiered(partition)
        local = partition.log.start_offset
        return local if tiered is None else min(tiered.start_offset, local)

    def deleted_below(self, partition: Partition) -> Offset:
        """The records below it are deleted, though table and log may have them still; 0 where none were. DeleteRecords deleted
        them, or the retention of a leader."""
        return max(self._kv.state.records_from(partition.group), self.adopted_start(partition))

    def adopted_start(self, partition: Partition) -> Offset:
        """Where a leader said that its log begins; 0 where none did. A partition with a table begins where the table does:
        retention has ended what was before, though a segment here may reach below."""
        if not self.is_on or partition.is_compacted:
            return partition.core.told_log_start
        tiered = self.of_this_history(partition)
        if tiered is None:
            return FIRST_OFFSET
        return tiered.start_offset

    def local_start(self, partition: Partition) -> Offset:
        """The first offset of the local log that is not deleted."""
        return max(partition.log.start_offset, self.deleted_below(partition))

    def copied_end(self, partition: Partition) -> Offset | None:
        """The offset behind the last copied record; None where nothing is copied."""
        tiered = self.tiered(partition)
        return None if tiered is None or tiered.end_offset == tiered.start_offset else tiered.end_offset

    def epoch_at(self, partition: Partition, offset: Offset) -> int:
        """The leader epoch of the record at `offset`, or of the last one before the end; -1 where none is known."""
        epochs = self.epochs(partition)
        index = bisect_right(epochs, offset, key=lambda entry: entry[1])
        return epochs[index - 1][0] if index else -1

    def epochs(self, partition: Partition) -> Sequence[tuple[Epoch, Offset]]:
        """The leader epochs of all records, each with its first offset."""
        tiered, local = self.tiered(partition), partition.log.epochs
        if tiered is None or not tiered.epochs:
            return local
        start = partition.log.start_offset
        before = [entry for entry in tiered.epochs if entry[1] < start]
        if before and local and local[0][0] == before[-1][0]:
            return (*before, *local[1:])
        return (*before, *local)

    def epoch_end(self, partition: Partition, epoch: Epoch) -> OffsetAndEpoch:
        """The largest epoch up to `epoch` and where it ends; NOWHERE where all epochs are later, or it is not known yet. See
        `RaftGroup.epoch_end`."""
        end = partition.core.epoch_end(epoch)
        if end.offset >= 0:
            return end
        epochs = self.epochs(partition)
        index = bisect_right(epochs, epoch, key=lambda entry: entry[0])
        if index == 0 or index == len(epochs):
            return NOWHERE
        return OffsetAndEpoch(epochs[index][1], epochs[index - 1][0])

    def before_first(self, partition: Partition, epoch: Epoch) -> OffsetAndEpoch:
        """What a client is told of an epoch before the first one that is known: `epoch` itself, with the first offset whose
        epoch is known (Kafka's `LeaderEpochFileCache.endOffsetFor`). NOWHERE for a later epoch, and where no epoch is known.

        Retention has removed the records of such an epoch, or there were none. Of very many epochs the keys of a table tell the
        last ones only: the records of the others are still there, and end at the same offset or before it."""
        first = next(iter(self.epochs(partition)), None)
        if first is None or epoch >= first[0]:
            return NOWHERE
        return OffsetAndEpoch(first[1], epoch)
