"""`raftlake recover`: after a majority of the voters is lost for good, make one surviving data directory a quorum by itself.

What the lost nodes had acknowledged without this one is gone; so nothing is done but by an operator who says which cluster it
is. Each group's log gets a control batch (kraft.version, voters: this node alone) in an epoch far above any that the others
can have reached, and its election state that epoch; the directory gets a new id, and the metadata log a key that tells of it.
An old node that comes back is no voter here and follows the higher epoch: its log is cut to what this one says.

Where epochs come to an end (2^31 - 2 is the last), a new line of them begins behind the records of the log, which holds none of
the epochs that are given up. An old node that still names one of them leaps too far to be believed (`raft.leaps`): it is no
voter here, and what it says does not add up. It stays outside until it begins anew with a new, empty directory.

Owns the order: a plan is written durably first, under `recovery-pending`, and each step can be done again, so that a recovery
that was killed anywhere is finished by the next one. Until then `serve` refuses the directory. Nothing is cut or deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from raftlake.errors import ConfigError, StorageError, WrongState
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import (
    EPOCH_LEAP_MAX,
    EPOCH_MAX,
    DirectoryId,
    ElectionState,
    Epoch,
    NodeId,
    Offset,
    ReplicaKey,
)
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, first_free_producer_id
from raftlake.runtime.recovery.beginning import OnlyVoter, begin_epoch, beginning_of
from raftlake.runtime.recovery.comparison import NO_TABLES, Comparison, Shown, compare
from raftlake.runtime.recovery.key_space import copied_partitions, key_space, starts_within
from raftlake.runtime.recovery.lost_majority import require_lost_majority, survey
from raftlake.runtime.settings.settings import Settings
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.files import read_file, replace_file, storage_error, sync_directory
from raftlake.storage.meta import MetaProperties, random_uuid, require_meta, write_meta
from raftlake.storage.partition import parse_uuid, uuid_text
from raftlake.tier.entries import Tiered

PENDING_NAME = "recovery-pending"
#: What it says of a directory that is being made from the remote tier (`from_tier`).
FROM_TIER = "fromTier"
VERSION = 0
#: The others may have held elections that this node never heard of, but not so many while a majority is lost.
EPOCHS_AHEAD = 1_000
#: A log is not recovered in an epoch above this one: as many have to be left as one leap may take.
EPOCH_USABLE_MAX = EPOCH_MAX - EPOCH_LEAP_MAX
#: With a tier the directory id picks the epoch out of so many. Another survivor may have been recovered before, and the tables
#: know nothing of it yet. Records of one epoch at one offset are taken for the same record.
EPOCHS_SCATTERED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group as it stands on this node."""

    group: GroupId
    log_start: Offset
    log_end: Offset
    last_epoch: Epoch
    election_epoch: Epoch
    #: What is known to have been committed: what a snapshot covers or retention has deleted; None where neither is there. How
    #: far more was, the lost nodes knew.
    committed: Offset | None
    #: Records are missing already that this node once had.
    impaired: str | None
    #: The epoch that the recovery gives it.
    new_epoch: Epoch
    #: Its table; None where there is none.
    table: Shown | None = None

    @property
    def is_new_line(self) -> bool:
        """The epochs had come to an end, and begin again behind the records."""
        return self.new_epoch < self.election_epoch


def epoch_behind(group: GroupId, last_epoch: Epoch, election_epoch: Epoch, ahead: int = EPOCHS_AHEAD) -> Epoch:
    """The epoch that a group is recovered in. `last_epoch` is that of its newest record, here or in its table. Raises
    WrongState where none is left."""
    following = Epoch(max(last_epoch, election_epoch) + ahead)
    if following <= EPOCH_USABLE_MAX:
        return following
    new_line = Epoch(last_epoch + ahead)
    if new_line + EPOCH_LEAP_MAX < election_epoch:
        return new_line
    raise WrongState(
        f"{group}: it holds records of epoch {last_epoch}, and there are none above {EPOCH_MAX} to go on with; nothing was "
        "changed. Its records can be read with `raftlake dump --records`: append them to a quorum that begins anew"
    )


def require_not_pending(data_dir: Path) -> None:
    """Raises StorageError when a recovery of the directory was begun and not finished."""
    if (data_dir / PENDING_NAME).exists():
        raise StorageError(
            f"{data_dir / PENDING_NAME} exists: a `raftlake recover` of {data_dir} was interrupted. Run it again to finish it"
        )


class Recovery:
    """Of one data directory, which is locked from the construction to `close`. Raises StorageError: it is in use, foreign or
    damaged."""

    def __init__(
        self, data_dir: Path, node_id: NodeId, endpoint: Endpoint, quorum_group: GroupId, *, made_from: str | None = None
    ) -> None:
        """`made_from`: the directory was just made from the tables there, and what says so is to be replaced by the plan."""
        self.data_dir = data_dir
        self._endpoint = endpoint
        self._quorum_group = quorum_group
        self._made_from = made_from
        self.meta = require_meta(data_dir, node_id=node_id)
        self._pending = None if made_from is not None else _read_pending(data_dir)
        self._logs = FileLogDirectory(data_dir, post=None)
        self._elections = FileElectionStore(data_dir, voters=(node_id,), filed=quorum_group.topic)

    def close(self) -> None:
        self._elections.close()
        self._logs.close()

    @property
    def is_resumed(self) -> bool:
        """An earlier recovery was interrupted; only finishing it makes sense."""
        return self._pending is not None

    def copied(self) -> Mapping[GroupId, Tiered]:
        """The partitions of which the quorum's keys, as this directory has them, tell copies. Raises StorageError."""
        return copied_partitions(key_space(self._logs)) if METADATA_GROUP in self._logs.groups() else {}

    def examine(self, tables: Comparison = NO_TABLES) -> list[GroupFacts]:
        """Read every log through, and compare it with its table. Raises StorageError at the first damage, and WrongState for a
        log without an epoch left."""
        groups = self._logs.groups()
        if self._quorum_group not in groups:
            raise StorageError(f"{self.data_dir} holds no log of {self._quorum_group}: there is nothing to recover from")
        # The quorum's own log last: with it the recovery takes effect.
        ordered = [group for group in groups if group != self._quorum_group] + [self._quorum_group]
        return [self._examine(group, tables) for group in ordered]

    def require_lost_majority(self, settings: Settings) -> None:
        """Raises WrongState unless a majority of the voters that this directory's log names is gone, and this node is one of
        them. A recovery that was interrupted behind the quorum's log has been through this."""
        if self._quorum_group not in self._logs.groups():
            raise StorageError(f"{self.data_dir} holds no log of {self._quorum_group}: there is nothing to recover from")
        me = ReplicaKey(self.meta.node_id, self.meta.directory_id)
        survivor = survey(self._logs, self._quorum_group, me, self.meta.cluster_id)
        if self._pending is not None and survivor.voters is not None:
            (*others, last) = survivor.voters.voters.values()
            if not others and last == ReplicaKey(me.id, DirectoryId(self._pending.directory_id)):
                return
        own = [each for each in (settings.advertised_listener, settings.controller_listener) if each is not None]
        require_lost_majority(survivor, static=settings.voters, bootstrap_servers=settings.bootstrap_servers, own=own)

    def _examine(self, group: GroupId, tables: Comparison) -> GroupFacts:
        log = self._logs.open(group)
        log.verify()
        election = self._elections.load(group) or ElectionState()
        noted = self._logs.impairment(group)
        last_epoch = log.epochs[-1][0] if log.epochs else Epoch(0)
        planned = (self._pending or _Pending(b"", {})).epochs.get(group)
        highest = Epoch(max(last_epoch, tables.epoch_of(group, self._quorum_group)))
        ahead = EPOCHS_AHEAD + (0 if tables is NO_TABLES else crc32c(self.meta.directory_id) % EPOCHS_SCATTERED)
        shown = tables.facts_of(group)
        return GroupFacts(
            group=group,
            log_start=log.start_offset,
            log_end=log.end_offset,
            last_epoch=last_epoch,
            election_epoch=election.epoch,
            committed=max([log.start_offset, *(known.offset for known in self._logs.snapshots.ids(group))]) or None,
            impaired=None if noted is None else noted[1],
            new_epoch=planned or epoch_behind(group, highest, election.epoch, ahead),
            table=None if shown is None else compare(shown, log.start_offset, log.end_offset, log.epochs),
        )

    def require_cluster(self) -> None:
        """Raises WrongState for a directory that no cluster id was written into."""
        if self.meta.cluster_id is None:
            raise WrongState(f"{self.data_dir} belongs to no cluster yet; there is nothing to recover")

    def require_confirmed(self, confirmed: str) -> None:
        """Raises ConfigError unless `confirmed` is the cluster id."""
        self.require_cluster()
        if confirmed != self.meta.cluster_id:
            raise ConfigError(
                f"--confirm={confirmed}: expected is the id of this directory's cluster, {self.meta.cluster_id}; nothing was "
                "changed"
            )

    def perform(self, facts: Sequence[GroupFacts], confirmed: str) -> DirectoryId:
        """Do it; `confirmed` is the cluster id as the operator gave it. Returns the new directory id."""
        self.require_confirmed(confirmed)
        pending = self._pending
        if pending is None:
            pending = _Pending(random_uuid(), {each.group: each.new_epoch for each in facts}, self._made_from)
            replace_file(self.data_dir / PENDING_NAME, pending.encode())
            self._pending = pending
        directory_id = DirectoryId(pending.directory_id)
        values = self._values(facts, directory_id) if self._quorum_group == METADATA_GROUP else {}
        for each in facts:
            self._begin_epoch(each.group, each.new_epoch, directory_id, values)
        self._elections.forget_past()
        write_meta(
            self.data_dir,
            MetaProperties(node_id=self.meta.node_id, directory_id=directory_id, cluster_id=self.meta.cluster_id),
        )
        try:
            (self.data_dir / PENDING_NAME).unlink()
            sync_directory(self.data_dir)
        except OSError as error:
            raise storage_error("delete", self.data_dir / PENDING_NAME, error) from error
        return directory_id

    def _values(self, facts: Sequence[GroupFacts], directory_id: DirectoryId) -> Mapping[str, bytes]:
        """The keys that the recovery changes."""
        ends = {(each.group.topic_id, each.group.partition): each.log_end for each in facts}
        (epoch,) = (each.new_epoch for each in facts if each.group == METADATA_GROUP)
        begin = beginning_of(self._logs.open(METADATA_GROUP), epoch)
        keys = key_space(self._logs)
        # The lost nodes may have taken blocks of which this log does not know, and nobody knows how many. No command gives out
        # more than a block, and most give out none. Half of what can have been given out is left out now; the rest stays for a
        # later recovery.
        known = first_free_producer_id(keys.get(PRODUCERS_NEXT_KEY))
        next_id = known + (PRODUCER_IDS_BLOCK * begin - known) // 2
        return {PRODUCERS_NEXT_KEY: b"%d" % next_id, **starts_within(keys, ends, uuid_text(directory_id))}

    def _begin_epoch(self, group: GroupId, epoch: Epoch, directory_id: DirectoryId, values: Mapping[str, bytes]) -> None:
        voter = OnlyVoter(node_id=self.meta.node_id, directory_id=directory_id, endpoint=self._endpoint)
        is_quorum = group == self._quorum_group
        begin_epoch(self._logs, self._elections, group, epoch, voter, is_quorum=is_quorum, values=values)


@dataclass(frozen=True, slots=True)
class _Pending:
    """The content of PENDING_NAME."""

    directory_id: bytes
    epochs: dict[GroupId, Epoch]
    #: Where the tables are that the directory is made from; None for a survivor.
    made_from: str | None = None

    def encode(self) -> bytes:
        groups = [[group.topic, group.partition, uuid_text(group.topic_id), epoch] for group, epoch in self.epochs.items()]
        fields = {"version": VERSION, "directoryId": uuid_text(self.directory_id), "groups": groups}
        if self.made_from is not None:
            fields[FROM_TIER] = self.made_from
        return (json.dumps(fields) + "\n").encode()


def _read_pending(data_dir: Path) -> _Pending | None:
    path = data_dir / PENDING_NAME
    data = read_file(path)
    if data is None:
        return None
    try:
        fields = json.loads(data)
        if FROM_TIER in fields:
            raise WrongState(
                f"{path} exists: a `raftlake recover --from-tier` of {data_dir} was interrupted. Run it again to finish it"
            )
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}")
        epochs = {GroupId(topic, number, parse_uuid(known)): Epoch(epoch) for topic, number, known, epoch in fields["groups"]}
        return _Pending(parse_uuid(fields["directoryId"]), epochs)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} is damaged: {error}. Remove it and run the recovery again: it begins a new epoch of its own"
        ) from error
