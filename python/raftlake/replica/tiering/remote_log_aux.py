"""A follower whose leader's log begins behind its own makes its state of what the remote tier keeps (KIP-405).

Owns the attempts: each is a chain of questions, one at a time, to the leader and then to the tier.

1. ListOffsets EARLIEST_LOCAL and EARLIEST of the leader: where its log begins on its disk, and where the records begin.
2. OffsetForLeaderEpoch of the leader: which epoch the record just before its local start has. Epochs may have gaps.
3. The tier: the copy that holds that record. A copy that has another epoch there is of a leader that was fenced.
4. OffsetForLeaderEpoch of the leader, where the copy goes on behind its local start: whether its log holds all of the copy.
   After an unclean election the table shows another history, until the leader has taken it over.
5. A snapshot of what the copy's auxiliary state says, at the copy's end. When it is durable, the core begins behind it.

Until then nothing of the group is changed. An attempt that fails leaves nothing behind; the core says when the next one begins,
and for which leader. Where this node can use no tier, the core fetches the leader's own snapshot. Invariant: the core hears of
each attempt's end once, unless it has abandoned it before.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raftlake.errors import CorruptBatch, DiskFull, ErrorCode, StorageError
from raftlake.ports.peer_rpcs import EpochEndRpc, GroupId, LocalStartRpc, OffsetReply, OffsetRpc, PeerReply
from raftlake.ports.tier import Lineage, LineageFacts, RemoteState, RemoteTier, TierError, TierFailure
from raftlake.raft.actions import AbandonRemoteLogAux, BuildRemoteLogAux
from raftlake.raft.events import FailureReason, HistoryTiered, RemoteLogAuxBuilt, RemoteLogAuxFailed
from raftlake.raft.types import UNKNOWN_OFFSET, Epoch, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.snapshot_files import SnapshotMaker, write_producers
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.replica.tiering.remote_log import RemoteLog

logger = logging.getLogger("raftlake.tier")

#: Attempts of a node that are under way at a time; others wait for their turn.
BUILDS_MAX = 4
#: Between two looks at what the tier shows.
TELL_INTERVAL_MS = 1_000
#: ListOffsets: the first record wherever it is, and the first on the leader's disk.
EARLIEST, EARLIEST_LOCAL = -2, -4
#: The leader is no leader, or not in that epoch.
REFUSALS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass(slots=True)
class AuxCounts:
    """Since the start of the node."""

    built: int = 0
    failures: int = 0


class RemoteLogAux:
    def __init__(
        self,
        engine: Engine,
        *,
        producers: ProducerCare,
        disk: DiskWatch,
        snapshots: Snapshots,
        remote_log: RemoteLog,
        tier: RemoteTier | None,
    ) -> None:
        self._engine = engine
        self._producers = producers
        self._disk = disk
        self._remote_log = remote_log
        self._tier = tier
        self.counts = AuxCounts()
        #: The attempts, of one group one at a time, in the order in which they were asked for.
        self._builds: dict[GroupId, _Build] = {}
        self._next_tell_ms = engine.now_ms
        engine.closed.append(self._on_closed)
        snapshots.start_listeners.append(self.tell)

    # --- what the cores are told of the tier ---

    def tick(self) -> None:
        """Called a few times a second."""
        engine = self._engine
        if self._tier is None or engine.now_ms < self._next_tell_ms:
            return
        self._next_tell_ms = engine.now_ms + TELL_INTERVAL_MS
        for partition in list(engine.partitions.values()):
            self.tell(partition)

    def tell(self, partition: Partition) -> None:
        """Tell a group what the tier shows of its log, as far as this node knows: nothing of a history that is over. Also when
        it begins to lead, and before its log begins later: its followers are sent to the tier from then on."""
        if self._tier is None or partition.group == METADATA_GROUP:
            return
        tiered, core = self._remote_log.of_this_history(partition), partition.core
        shown = (UNKNOWN_OFFSET, UNKNOWN_OFFSET) if tiered is None else (tiered.start_offset, tiered.end_offset)
        if shown != (core.tiered_start, core.tiered_end):
            self._engine.step(partition, HistoryTiered(start_offset=shown[0], end_offset=shown[1]))

    # --- attempts ---

    def perform(self, partition: Partition, action: BuildRemoteLogAux | AbandonRemoteLogAux) -> None:
        group = partition.group
        self._drop(group)
        if isinstance(action, AbandonRemoteLogAux):
            self._begin_next()
            return
        if self._tier is None:
            logger.warning("%s: node %d sends us to the remote tier, and this node has no tier.uri", group, action.leader_id)
            self.counts.failures += 1
            self._engine.step(partition, RemoteLogAuxFailed(leader_epoch=action.leader_epoch, is_unusable=True))
            return
        self._builds[group] = _Build(self, partition, action, self._tier)
        self._begin_next()

    def _begin_next(self) -> None:
        under_way = sum(build.is_begun for build in self._builds.values())
        for build in list(self._builds.values()):
            if under_way >= BUILDS_MAX:
                return
            if not build.is_begun:
                under_way += 1
                build.begin()

    def _drop(self, group: GroupId) -> _Build | None:
        build = self._builds.pop(group, None)
        if build is not None:
            build.abandon()
        return build

    def _on_closed(self, partition: Partition) -> None:
        if self._drop(partition.group) is not None:
            self._begin_next()

    def is_current(self, build: _Build) -> bool:
        """Whether the core still waits for that attempt."""
        return self._builds.get(build.partition.group) is build

    def end(self, build: _Build, event: RemoteLogAuxBuilt | RemoteLogAuxFailed) -> None:
        """An attempt is over."""
        if self.is_current(build):
            del self._builds[build.partition.group]
        if isinstance(event, RemoteLogAuxBuilt):
            self.counts.built += 1
        else:
            self.counts.failures += 1
        if not build.partition.deleted:
            self._engine.step(build.partition, event)
        self._begin_next()

    # --- what attempts need ---

    @property
    def engine(self) -> Engine:
        return self._engine

    def incarnation_of(self, partition: Partition) -> int | None:
        """Of the table's rows of a partition; None where this node has not applied the key yet."""
        tiered = self._remote_log.tiered(partition)
        return None if tiered is None else tiered.incarnation

    def in_slices(self, work: Slices) -> None:
        self._producers.in_slices(work)

    def on_full(self, error: DiskFull) -> None:
        self._disk.on_full(error)


class _Build:
    """One attempt, from the core's wish to its end."""

    __slots__ = ("_epoch", "_is_freezing", "_is_over", "_leader_id", "_maker", "_service", "_tier", "is_begun", "partition")

    def __init__(self, service: RemoteLogAux, partition: Partition, action: BuildRemoteLogAux, tier: RemoteTier) -> None:
        self._service = service
        self.partition = partition
        self._leader_id = action.leader_id
        self._epoch = action.leader_epoch
        self._tier = tier
        self._maker: SnapshotMaker | None = None
        self.is_begun = False
        self._is_over = self._is_freezing = False

    def begin(self) -> None:
        self.is_begun = True
        self._ask_start(EARLIEST_LOCAL, self._on_local_start)

    def abandon(self) -> None:
        """The core waits for it no more. A snapshot that is being synced becomes durable all the same, like a fetched one."""
        self._is_over = True
        if self._maker is not None and (self.partition.deleted or not self._is_freezing):
            self._maker.writer.abandon()

    def _fail(self, reason: str, *, is_refused: bool = False, is_unusable: bool = False) -> None:
        self._is_over = True
        logger.info("%s: no state from the remote tier: %s", self.partition.group, reason)
        event = RemoteLogAuxFailed(leader_epoch=self._epoch, is_refused=is_refused, is_unusable=is_unusable)
        self._service.end(self, event)

    def _fail_by(self, error: TierError) -> None:
        self._fail(error.reason, is_unusable=error.failure is TierFailure.UNUSABLE)

    # --- the leader ---

    def _ask_start(self, timestamp: int, done: Callable[[OffsetAndEpoch], None]) -> None:
        engine, group = self._service.engine, self.partition.group
        self._ask(
            LocalStartRpc(group=group, replica_id=engine.config.node_id, leader_epoch=self._epoch, timestamp=timestamp), done
        )

    def _ask(self, rpc: OffsetRpc, done: Callable[[OffsetAndEpoch], None]) -> None:
        engine = self._service.engine

        def on_reply(reply: PeerReply | FailureReason) -> None:
            engine.begin_input()
            if self._is_over:
                return
            if not isinstance(reply, OffsetReply):
                why = reply.value if isinstance(reply, FailureReason) else "an answer to something else"
                self._fail(f"node {self._leader_id}: {why}")
            elif reply.error is not ErrorCode.NONE:
                self._fail(f"node {self._leader_id}: {reply.error.name}", is_refused=reply.error in REFUSALS)
            else:
                done(reply.position)

        engine.network.send(self._leader_id, rpc, on_reply)

    def _on_local_start(self, local: OffsetAndEpoch) -> None:
        self._ask_start(EARLIEST, lambda start: self._on_start(local, start))

    def _on_start(self, local: OffsetAndEpoch, start: OffsetAndEpoch) -> None:
        if not 0 <= start.offset < local.offset:
            self._fail(f"the leader has no records before {local.offset}")
            return
        if local.epoch <= 0:
            self._look_up(local, local.epoch)
            return
        group, me = self.partition.group, self._service.engine.config.node_id
        asked = EpochEndRpc(group=group, replica_id=me, leader_epoch=self._epoch, epoch=Epoch(local.epoch - 1))
        # Its end is exclusive. The epoch of the answer counts: that before `local.epoch` may have no records.
        self._ask(asked, lambda end: self._look_up(local, end.epoch if end.offset >= local.offset else local.epoch))

    # --- the tier ---

    def _look_up(self, local: OffsetAndEpoch, epoch: Epoch) -> None:
        """`epoch` is that of the record just before `local`."""
        incarnation = self._service.incarnation_of(self.partition)
        if incarnation is not None:
            self._find(incarnation, local, epoch)
            return

        def on_facts(facts: LineageFacts | TierError) -> None:
            if isinstance(facts, TierError):
                self._fail_by(facts)
            else:
                self._find(facts.lineage.incarnation, local, epoch)

        self._tier.facts(self.partition.group, self._input(on_facts))

    def _find(self, incarnation: int, local: OffsetAndEpoch, epoch: Epoch) -> None:
        last = Offset(local.offset - 1)
        lineage = Lineage(self.partition.group, incarnation)

        def on_found(found: RemoteState | TierError) -> None:
            if isinstance(found, TierError):
                self._fail_by(found)
            elif found.segment.base_offset <= last:
                is_inside = last < found.segment.end_offset
                self._judge(found, local, epoch_at(found.segment.epochs, last) if is_inside else None, epoch)
            else:
                # The copy with that record was cut by an unclean election, and another one behind it has its state.
                self._tier.facts(lineage, self._input(lambda facts: on_facts(found, facts)))

        def on_facts(found: RemoteState, facts: LineageFacts | TierError) -> None:
            if isinstance(facts, TierError):
                self._fail_by(facts)
            else:
                self._judge(found, local, epoch_at(facts.epochs, last), epoch)

        self._tier.find(lineage, last, self._input(on_found))

    def _judge(self, found: RemoteState, local: OffsetAndEpoch, copied: Epoch | None, epoch: Epoch) -> None:
        """`copied` is the epoch that the table has where the leader had `epoch`, just before `local`."""
        segment = found.segment
        if copied != epoch:
            self._fail(f"{segment.file}: the table has epoch {copied} before the leader's log, and the leader had {epoch}")
        elif segment.epochs[-1][0] > self._epoch:
            # No log may hold what is of a later epoch than its election state.
            self._fail(f"{segment.file} is of a later leader than node {self._leader_id}")
        elif segment.end_offset > local.offset:
            self._ask_rest(found)
        else:
            self._write(found)

    def _ask_rest(self, found: RemoteState) -> None:
        """Go on if the leader's log holds the rest of the copy. Else this replica would take for committed what the leader asks
        it to truncate. A leader that lost nothing holds all copies behind its start: they are of committed records."""
        segment = found.segment
        group, me, epoch = self.partition.group, self._service.engine.config.node_id, segment.epochs[-1][0]

        def on_end(end: OffsetAndEpoch) -> None:
            if end.epoch == epoch and end.offset >= segment.end_offset:
                self._write(found)
            else:
                ends = f"epoch {end.epoch} ends at {end.offset} there"
                self._fail(f"{segment.file} goes on behind what node {self._leader_id} has: {ends}", is_unusable=True)

        self._ask(EpochEndRpc(group=group, replica_id=me, leader_epoch=self._epoch, epoch=epoch), on_end)

    def _input(self, done: Callable[..., None]) -> Callable[..., None]:
        """`done`, unless the attempt is over by then."""

        def on_answer(answer: object) -> None:
            self._service.engine.begin_input()
            if not self._is_over:
                done(answer)

        return on_answer

    # --- the snapshot ---

    def _write(self, found: RemoteState) -> None:
        segment = found.segment
        try:
            auxiliary = Auxiliary.decode(found.auxiliary)
        except CorruptBatch as error:
            self._fail(f"the auxiliary state of {segment.file}: {error}")
            return
        service, partition = self._service, self.partition
        engine = service.engine
        snapshot_id = OffsetAndEpoch(segment.end_offset, segment.epochs[-1][0])
        try:
            self._maker = SnapshotMaker(
                engine.logs.snapshots.create(partition.group, snapshot_id),
                snapshot_id,
                auxiliary.voters,
                engine.clock.wall_ms(),
                segment.timestamp_ms_max,
            )
            service.in_slices(self._write_slices(self._maker, auxiliary))
        except DiskFull as full:
            service.on_full(full)
            self._fail(str(full))
        except StorageError as error:
            engine.fail(error)

    def _write_slices(self, maker: SnapshotMaker, auxiliary: Auxiliary) -> Slices:
        for _ in write_producers(maker, auxiliary.producers):
            if self._is_over:
                return
            yield
        if self._is_over:
            return
        self._is_freezing = True
        maker.writer.freeze(lambda error: self._on_durable(maker, auxiliary, error))

    def _on_durable(self, maker: SnapshotMaker, auxiliary: Auxiliary, error: StorageError | None) -> None:
        """An attempt that was abandoned meanwhile tells the core too: the snapshot is there."""
        engine = self._service.engine
        engine.begin_input()
        if isinstance(error, DiskFull):
            self._service.on_full(error)
            if not self._is_over:
                self._fail(str(error))
            return
        if error is not None:
            engine.fail(error)
            return
        self._is_over = True
        logger.info("%s: begins at %d, with the state from the remote tier", self.partition.group, maker.snapshot_id.offset)
        built = RemoteLogAuxBuilt(leader_epoch=self._epoch, snapshot_id=maker.snapshot_id, voters=auxiliary.voters)
        self._service.end(self, built)


def epoch_at(epochs: Sequence[tuple[Epoch, Offset]], offset: Offset) -> Epoch | None:
    """The leader epoch of a record; None before the first one."""
    index = bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[index - 1][0] if index else None
