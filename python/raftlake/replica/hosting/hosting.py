"""Which groups this node hosts: opening and closing them.

One directory holds one incarnation of a topic partition. After a restart the groups found on disk are opened at once,
before the metadata log has been replayed up to their topics: they can vote and elect meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from raftlake.errors import CorruptBatch, StorageError
from raftlake.ports.driver import LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.core import RaftGroup
from raftlake.raft.events import DeadlineReached, ResignRequested, Started
from raftlake.raft.types import NO_VOTERS, ElectionState, OffsetAndEpoch, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.closed import ClosedGroups
from raftlake.replica.kv.service import KvService
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.snapshot_files import StartSnapshot, check, choose_at_start, describe
from raftlake.replica.partition.start_points import LogFacts
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.reports import Reports
from raftlake.replica.reserved import Topic
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.wire.ids import id_to_text


class Hosting:
    def __init__(
        self,
        engine: Engine,
        *,
        names: Names,
        quorum: Quorum,
        reports: Reports,
        producers: ProducerCare,
        disk: DiskWatch,
        damage: DamageControl,
        kv: KvService,
        snapshots: Snapshots,
    ) -> None:
        self._engine = engine
        self._names = names
        self._quorum = quorum
        self._reports = reports
        self._producers = producers
        self._disk = disk
        self._damage = damage
        self._kv = kv
        self._snapshots = snapshots
        self.closed = ClosedGroups(engine, disk)
        #: Counts openings and closings, for those who watch the node's groups.
        self.changes = 0

    # --- opening and closing ---

    def open_all(self) -> None:
        """At start: the quorum's log and every group found on disk."""
        found = self._engine.logs.groups()
        config = self._engine.config
        strangers = [str(group) for group in found if group != config.quorum_group]
        if config.is_opaque and strangers:
            raise StorageError(
                f"the data directory holds {', '.join(strangers)}, but quorum.topic={config.quorum_group.topic} with "
                f"quorum.topic.id={id_to_text(config.quorum_group.topic_id)} is a quorum of that log alone: give this node a "
                "directory of its own"
            )
        self._names.found(found)
        for group in dict.fromkeys((config.quorum_group, *found)):
            self.closed.open(group, partial(self.open_found, group))

    def open_found(self, group: GroupId, *, election_delay_ms: int = 0) -> bool:
        """Host a group that is on disk. Should its log be empty, those vote in it who stand in its topic's key: until that key
        is read it stays closed, and this returns False."""
        topic = self._names.by_id(group.topic_id)
        initial = None if topic is None else topic.voters_of(group.partition)
        return self.open(group, election_delay_ms=election_delay_ms, initial=initial, is_found=topic is None)

    def has(self, group: GroupId) -> bool:
        """Whether the group is hosted, or will be once there is room to open it."""
        return group in self._engine.partitions or group in self.closed

    def open(
        self, group: GroupId, *, election_delay_ms: int = 0, initial: VoterSet | None = None, is_found: bool = False
    ) -> bool:
        """Host a group; False when its directory holds another incarnation of the topic, whose end is still to be replayed.

        `initial` are the voters that it begins with where its log says nothing; without them these are the static ones. A group
        that `is_found` on disk with an empty log is left alone: who votes in it stands in its topic's key."""
        if self._names.is_taken(group):
            return False
        engine = self._engine
        partition = self._damage.opening(group, lambda: self._read(group, initial))
        if is_found and partition.core.log_end == 0 and partition.core.impairment is None:
            return False
        topic = self._names.by_id(group.topic_id)
        if topic is not None:
            partition.obey(in_force(topic.configs, engine.config))
        engine.partitions[group] = partition
        self.changes += 1
        engine.step(partition, Started(election_delay_ms=election_delay_ms))
        if engine.is_resigning:
            engine.step(partition, ResignRequested())
        return True

    def _read(self, group: GroupId, initial: VoterSet | None) -> Partition:
        """The group as its files have it. Raises DamagedData, CorruptBatch, StorageError."""
        engine = self._engine
        log = engine.logs.open(group)
        self._names.opened(group)
        snapshot = choose_at_start(engine.logs.snapshots, group, log)
        voters = VoterHistory(self._quorum.static)
        if initial is not None and snapshot is None:
            voters.begin_with(initial)
        voters_from = log.start_offset
        if snapshot is not None:
            voters_from = snapshot.snapshot_id.offset
            voters.reset(voters_from, snapshot.voters)
        at_start = snapshot is not None and snapshot.snapshot_id.offset == log.start_offset
        inherited = snapshot.producers if snapshot is not None and at_start and group != engine.config.quorum_group else None
        facts = LogFacts(
            group, log, voters, voters_from, inherited, tally=self._producers.tally, in_slices=self._producers.in_slices
        )
        try:
            facts.restore(engine.clock.wall_ms(), with_voters=True)
            partition = self._begin(group, log, facts, voters, snapshot)
            if snapshot is not None and group == METADATA_GROUP:
                self._kv.restore(snapshot.snapshot_id)
        except Exception:
            # Its producers are counted.
            facts.close()
            raise
        return partition

    def _begin(
        self, group: GroupId, log: LogStore, facts: LogFacts, voters: VoterHistory, snapshot: StartSnapshot | None
    ) -> Partition:
        """With what its log says, and how it voted. Raises StorageError."""
        engine = self._engine
        if voters.kraft_version and group != engine.config.quorum_group:
            # Were its log cut to nothing, then not the static voters would count but those of its topic (`begin_with`).
            voters.initial = NO_VOTERS
        election = engine.elections.load(group) or ElectionState()
        core = RaftGroup(
            engine.config.raft,
            ReplicaKey(engine.config.node_id, engine.config.directory_id),
            voters,
            epochs=log.epochs,
            log_start=log.start_offset,
            log_end=log.end_offset,
            election=election,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            rng=engine.rng,
            now_ms=engine.now_ms,
            bootstrap_peers=engine.config.bootstrap_peers,
            impairment=self._damage.impairment(group, election.epoch),
            told_log_start=log.noted_start,
            shares_log_start=group != engine.config.quorum_group,
        )
        partition = Partition(group, core, log, facts, engine.clock.wall_ms)
        partition.on_appended = self._disk.spend
        return partition

    def reset(self, partition: Partition, start: OffsetAndEpoch) -> None:
        """Begin anew behind the snapshot `start`, which is durable here: the leader no longer has what lies before it."""
        inherited = None
        if partition.group != self._engine.config.quorum_group:
            try:
                inherited = check(self._engine.logs.snapshots, partition.group, start).producers
            except CorruptBatch as error:
                raise StorageError(
                    f"{partition.group}: the snapshot {describe(start)} was whole a moment ago: {error}"
                ) from error
        partition.reset(start, inherited)
        self._snapshots.on_reset(partition)
        if partition.group == METADATA_GROUP:
            self._kv.restore(start)

    def begin_with(self, group: GroupId, initial: VoterSet) -> None:
        """The topic's key says which voters a group began with that was opened from disk before."""
        partition = self._engine.partitions.get(group)
        if partition is not None and partition.core.voter_history.begin_with(initial):
            partition.core.use_latest_voters()
            # One that knew of nobody to ask for the leader, and so waits for nothing, asks now.
            self._engine.step(partition, DeadlineReached())

    def obey(self, topic: Topic) -> None:
        """The topic's key asks for this from now on. A group that is opened later asks the names."""
        asked = in_force(topic.configs, self._engine.config)
        for group in topic.each_group():
            partition = self._engine.partitions.get(group)
            if partition is not None:
                partition.obey(asked)

    def close(self, groups: Iterable[GroupId]) -> list[GroupId]:
        """Their topic was deleted: forget the groups. Those are returned that have a directory, which is to be deleted."""
        doomed: list[GroupId] = []
        for group in groups:
            partition = self._engine.partitions.get(group)
            if partition is not None:
                self.let_go(partition)
                partition.on_deleted()
            self.closed.forget(group)
            self._reports.forget(group)
            self._damage.forget(group)
            if self._names.has_directory(group):
                doomed.append(group)
        return doomed

    def discard(self, is_over: Callable[[str, bytes], bool]) -> list[GroupId]:
        """`close` for those groups that this node has a directory for, hosted or not, whose topics (name and id) are over."""
        found = [group for group in self._names.directories() if is_over(group.topic, group.topic_id)]
        return self.close(group for group in found if group != self._engine.config.quorum_group)

    def delete(self, groups: Iterable[GroupId]) -> None:
        """Delete the directories of closed groups. One may be named twice, or be gone already."""
        present = [group for group in dict.fromkeys(groups) if self._names.has_directory(group)]
        self._engine.logs.delete(present)
        for group in present:
            self._names.deleted(group)

    def let_go(self, partition: Partition) -> None:
        """Nothing more happens to the group as it is now."""
        del self._engine.partitions[partition.group]
        self._quorum.let_go(partition)
        partition.deleted = True
        partition.close_facts()
        self.changes += 1
        partition.on_leadership_lost()
        self._engine.forget(partition)

    def save_start_points(self) -> None:
        """The node stops in good order: what the next start wants to know of each log. Raises StorageError."""
        for partition in self._engine.partitions.values():
            partition.save_start_point()
