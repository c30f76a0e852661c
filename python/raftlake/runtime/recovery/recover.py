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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import ConfigError, StorageError, WrongState
from raftlake.kv.commands import encode, put
from raftlake.kv.keys import INCARNATION_KEY
from raftlake.ports.driver import BatchSpan
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
from raftlake.replica.config import Endpoint
from raftlake.runtime.recovery.lost_majority import require_lost_majority, survey
from raftlake.runtime.settings.settings import Settings
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.files import read_file, replace_file, storage_error, sync_directory
from raftlake.storage.log import FileLog
from raftlake.storage.meta import MetaProperties, random_uuid, require_meta, write_meta
from raftlake.storage.partition import parse_uuid, uuid_text
from raftlake.wire.batches import Record, VoterEntry, build_batch, iterate_headers
from raftlake.wire.control import voters_batch

PENDING_NAME = "recovery-pending"
VERSION = 0
#: The others may have held elections that this node never heard of, but not so many while a majority is lost.
EPOCHS_AHEAD = 1_000
#: A log is not recovered in an epoch above this one: as many have to be left as one leap may take.
EPOCH_USABLE_MAX = EPOCH_MAX - EPOCH_LEAP_MAX
NO_TIMESTAMP = -1
LISTENER = "PLAINTEXT"


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

    @property
    def is_new_line(self) -> bool:
        """The epochs had come to an end, and begin again behind the records."""
        return self.new_epoch < self.election_epoch


def epoch_behind(group: GroupId, last_epoch: Epoch, election_epoch: Epoch) -> Epoch:
    """The epoch that a group is recovered in. Raises WrongState where none is left."""
    following = Epoch(max(last_epoch, election_epoch) + EPOCHS_AHEAD)
    if following <= EPOCH_USABLE_MAX:
        return following
    new_line = Epoch(last_epoch + EPOCHS_AHEAD)
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

    def __init__(self, data_dir: Path, node_id: NodeId, endpoint: Endpoint, quorum_group: GroupId) -> None:
        self.data_dir = data_dir
        self._endpoint = endpoint
        self._quorum_group = quorum_group
        self.meta = require_meta(data_dir, node_id=node_id)
        self._pending = _read_pending(data_dir)
        self._logs = FileLogDirectory(data_dir, post=None)
        self._elections = FileElectionStore(data_dir, voters=(node_id,), filed=quorum_group.topic)

    def close(self) -> None:
        self._elections.close()
        self._logs.close()

    @property
    def is_resumed(self) -> bool:
        """An earlier recovery was interrupted; only finishing it makes sense."""
        return self._pending is not None

    def examine(self) -> list[GroupFacts]:
        """Read every log through. Raises StorageError at the first damage, and WrongState for a log without an epoch left."""
        groups = self._logs.groups()
        if self._quorum_group not in groups:
            raise StorageError(f"{self.data_dir} holds no log of {self._quorum_group}: there is nothing to recover from")
        # The quorum's own log last: with it the recovery takes effect.
        ordered = [group for group in groups if group != self._quorum_group] + [self._quorum_group]
        return [self._examine(group) for group in ordered]

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

    def _examine(self, group: GroupId) -> GroupFacts:
        log = self._logs.open(group)
        log.verify()
        election = self._elections.load(group) or ElectionState()
        noted = self._logs.impairment(group)
        last_epoch = log.epochs[-1][0] if log.epochs else Epoch(0)
        planned = (self._pending or _Pending(b"", {})).epochs.get(group)
        return GroupFacts(
            group=group,
            log_start=log.start_offset,
            log_end=log.end_offset,
            last_epoch=last_epoch,
            election_epoch=election.epoch,
            committed=max([log.start_offset, *(known.offset for known in self._logs.snapshots.ids(group))]) or None,
            impaired=None if noted is None else noted[1],
            new_epoch=planned or epoch_behind(group, last_epoch, election.epoch),
        )

    def require_confirmed(self, confirmed: str) -> None:
        """Raises ConfigError unless `confirmed` is the cluster id."""
        if self.meta.cluster_id is None:
            raise WrongState(f"--confirm={confirmed}: {self.data_dir} belongs to no cluster yet; there is nothing to recover")
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
            pending = _Pending(random_uuid(), {each.group: each.new_epoch for each in facts})
            replace_file(self.data_dir / PENDING_NAME, pending.encode())
            self._pending = pending
        directory_id = DirectoryId(pending.directory_id)
        for each in facts:
            self._begin_epoch(self._logs.open(each.group), each.new_epoch, directory_id)
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

    def _begin_epoch(self, log: FileLog, epoch: Epoch, directory_id: DirectoryId) -> None:
        """Give the log its new epoch and voters, whatever an interrupted recovery has left of them."""
        self._elections.save({log.group: ElectionState(epoch=epoch)})
        begin = next((start for known, start in log.epochs if known == epoch), log.end_offset)
        batches, end_offset = self._batches(log.group, begin, epoch, directory_id)
        if log.end_offset != end_offset:
            log.truncate_to(begin)
            spans = [
                BatchSpan(header.base_offset, header.end_offset, epoch, header.timestamp_ms_max, header.size)
                for batch in batches
                for header in iterate_headers(batch)
            ]
            log.append(batches, spans)
            self._sync(log)
        self._logs.mend(log.group)

    def _batches(self, group: GroupId, begin: Offset, epoch: Epoch, directory_id: DirectoryId) -> tuple[list[bytes], Offset]:
        endpoint = (LISTENER, self._endpoint.host, self._endpoint.port)
        voter = VoterEntry(node_id=self.meta.node_id, directory_id=directory_id, endpoints=(endpoint,))
        batches = [voters_batch(begin, epoch, NO_TIMESTAMP, [voter], kraft_version=1)]
        end_offset = next(iterate_headers(batches[0])).end_offset
        if group == self._quorum_group:
            told = {"directoryId": uuid_text(directory_id), "nodeId": self.meta.node_id, "epoch": epoch}
            record = Record(key=None, value=encode(put(INCARNATION_KEY, json.dumps(told).encode())))
            batches.append(bytes(build_batch([record], base_offset=end_offset, leader_epoch=epoch, timestamp_ms=NO_TIMESTAMP)))
            end_offset += 1
        return batches, Offset(end_offset)

    def _sync(self, log: FileLog) -> None:
        errors: list[StorageError | None] = []
        self._logs.flush([log], errors.append)
        for error in errors:
            if error is not None:
                raise error


@dataclass(frozen=True, slots=True)
class _Pending:
    """The content of PENDING_NAME."""

    directory_id: bytes
    epochs: dict[GroupId, Epoch]

    def encode(self) -> bytes:
        groups = [[group.topic, group.partition, uuid_text(group.topic_id), epoch] for group, epoch in self.epochs.items()]
        fields = {"version": VERSION, "directoryId": uuid_text(self.directory_id), "groups": groups}
        return (json.dumps(fields) + "\n").encode()


def _read_pending(data_dir: Path) -> _Pending | None:
    path = data_dir / PENDING_NAME
    data = read_file(path)
    if data is None:
        return None
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}")
        epochs = {GroupId(topic, number, parse_uuid(known)): Epoch(epoch) for topic, number, known, epoch in fields["groups"]}
        return _Pending(parse_uuid(fields["directoryId"]), epochs)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} is damaged: {error}. Remove it and run the recovery again: it begins a new epoch of its own"
        ) from error
