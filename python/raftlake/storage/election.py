"""`quorum-state`: what each group's replica must never forget about an election, in Kafka's JSON file.

Kafka has two versions of it and so have we: 1 when the vote names a directory id (KIP-853), else 0. Both are read.
Promise: `save` returns when every state is durable; a file is replaced by rename, so it is the old or the new one, never a
mix. A file that is damaged, or absent from a directory (which is made with one), is an error and never epoch 0: a replica that
forgot its vote could vote twice.

The quorum's own log has the file. The states of data partitions go to one file for all of them and its copy instead
(`election_journal`): from its first election on a partition's state is there, and what its directory was made with is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_DIRECTORY, DirectoryId, ElectionState, Epoch, NodeId, ReplicaKey
from raftlake.storage.election_journal import FILE_NAME as JOURNAL_NAME
from raftlake.storage.election_journal import ElectionJournal
from raftlake.storage.files import read_file, replace_file, storage_error
from raftlake.storage.partition import ensure_partition, parse_uuid, partition_path, seal, uuid_text
from raftlake.storage.room import KeptRoom

FILE_NAME = "quorum-state"
#: Kafka's tools read the file of this topic.
METADATA_TOPIC = "__cluster_metadata"
INT32_MAX = (1 << 31) - 1
BEGIN_ANEW = (
    "Without it this node could vote twice in one epoch. Restore the file, or let the node begin anew with an empty data "
    "directory that `raftlake format` makes: it then is another replica, which the others add as a voter"
)


class FileElectionStore:
    """`ports.ElectionStore` over the data directory `root`. `voters` are written into version 0 files for Kafka's tools;
    `filed` is the topic of the quorum's own log."""

    def __init__(
        self, root: Path, *, voters: Sequence[NodeId] = (), filed: str = METADATA_TOPIC, room: KeptRoom | None = None
    ) -> None:
        self._root = root
        self._room = room or KeptRoom()
        self._voters = tuple(voters)
        self._filed = filed
        self._journal = self._room.retrying(self._open_journal)

    def _open_journal(self) -> ElectionJournal:
        root = self._root
        return ElectionJournal(
            root,
            encode=lambda group, state: encode_entry(group, state, self._voters),
            decode=decode_entry,
            is_alive=lambda group: partition_path(root, group).is_dir(),
        )

    @property
    def repaired(self) -> str | None:
        """What was found wrong with one of the files of the data partitions and was put right by the other."""
        return self._journal.repaired

    def load(self, group: GroupId) -> ElectionState | None:
        directory = partition_path(self._root, group)
        journaled = self._journal.states.get(group)
        if journaled is not None:
            return journaled if directory.is_dir() else None
        path = directory / FILE_NAME
        data = read_file(path)
        if data is None:
            if directory.is_dir():
                elsewhere = "" if group.topic == self._filed else f", and {self._root / JOURNAL_NAME} has no state of {group}"
                raise StorageError(f"{path} is missing{elsewhere}. {BEGIN_ANEW}")
            return None
        try:
            return decode(data)
        except ValueError as error:
            raise StorageError(f"{path} is damaged: {error}. {BEGIN_ANEW}") from error

    def save(self, states: Mapping[GroupId, ElectionState]) -> None:
        self._room.retrying(lambda: self._save(states))

    def _save(self, states: Mapping[GroupId, ElectionState]) -> None:
        of_partitions = {group: state for group, state in states.items() if group.topic != self._filed}
        if of_partitions:
            self._save_in_journal(of_partitions)
        for group, state in states.items():
            if group.topic == self._filed:
                replace_file(ensure_partition(self._root, group) / FILE_NAME, seal(encode(state, self._voters)))

    def _save_in_journal(self, states: Mapping[GroupId, ElectionState]) -> None:
        outdated = [ensure_partition(self._root, group) / FILE_NAME for group in states if group not in self._journal.states]
        self._journal.append(states)
        # Should the journal be lost, these must not be taken for the truth.
        for path in outdated:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise storage_error("delete", path, error) from error

    def forget_past(self) -> None:
        """What was saved before the last state of each group is not read again, should a file be damaged later: an epoch that a
        recovery took back must not return. Raises StorageError."""
        self._journal.forget_past()

    def close(self) -> None:
        self._journal.close()


def encode(state: ElectionState, voters: Iterable[NodeId]) -> bytes:
    """The file's one line of JSON."""
    return _to_json(_fields_of(state, voters))


def _to_json(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def encode_entry(group: GroupId, state: ElectionState, voters: Iterable[NodeId]) -> bytes:
    """A group's object in the journal: what its file would hold, and whose it is."""
    whose = {"topic": group.topic, "partition": group.partition, "topicId": uuid_text(group.topic_id)}
    return _to_json({**whose, **_fields_of(state, voters)})


def decode_entry(fields: object) -> tuple[GroupId, ElectionState]:
    """Raises ValueError."""
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    topic, topic_id = fields.get("topic"), fields.get("topicId")
    if not isinstance(topic, str) or not isinstance(topic_id, str):
        raise ValueError(f"topic is {topic!r}, topicId {topic_id!r}")
    return GroupId(topic, _int32(fields, "partition", 0), parse_uuid(topic_id)), _state_of(fields)


def _fields_of(state: ElectionState, voters: Iterable[NodeId]) -> dict[str, object]:
    leader_id = -1 if state.leader_id is None else state.leader_id
    voted_id = -1 if state.voted_key is None else state.voted_key.id
    fields: dict[str, object]
    if state.voted_key is not None and state.voted_key.directory_id != NO_DIRECTORY:
        fields = {
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_text(state.voted_key.directory_id),
            "data_version": 1,
        }
    else:
        fields = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    return fields


def decode(data: bytes) -> ElectionState:
    """The state in a quorum-state file of either version, sealed or as Kafka writes it. Raises ValueError when damaged."""
    line, newline, rest = data.partition(b"\n")
    if newline and rest and seal(line) != data:
        raise ValueError("its checksum does not fit")
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return _state_of(fields)


def _state_of(fields: Mapping[str, object]) -> ElectionState:
    version = fields.get("data_version")
    if version not in (0, 1) or isinstance(version, bool):
        raise ValueError(f"data_version {version!r} is neither 0 nor 1")
    epoch = _int32(fields, "leaderEpoch", 0)
    leader_id = _int32(fields, "leaderId", -1)
    voted_id = _int32(fields, "votedId", -1)
    directory_id = NO_DIRECTORY
    if version == 1:
        text = fields.get("votedDirectoryId")
        if not isinstance(text, str):
            raise ValueError(f"votedDirectoryId is {text!r}")
        directory_id = DirectoryId(parse_uuid(text))
    return ElectionState(
        epoch=Epoch(epoch),
        leader_id=None if leader_id < 0 else NodeId(leader_id),
        voted_key=None if voted_id < 0 else ReplicaKey(NodeId(voted_id), directory_id),
    )


def _int32(fields: Mapping[str, object], name: str, minimum: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= INT32_MAX:
        raise ValueError(f"{name} is {value!r}")
    return value
