"""Which group a name or a topic id stands for, at this node, and why one stands for none.

Owns the names: the topics that the keys describe (`hosting.topics` adds and removes them) and the directories on disk. One
directory, of a name and a partition, holds one incarnation of a topic. A group that was found on disk is known by name before
its topic's key is replayed. Knows nothing of the groups that run.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_TOPIC, NodeConfig
from raftlake.replica.reserved import Topic

#: The id of a topic that is not known.
NO_TOPIC_ID = bytes(16)


class Names:
    """`own` is the topic of the quorum's own log. No key says that it exists."""

    def __init__(self, config: NodeConfig) -> None:
        own = config.quorum_group
        self.own = Topic(own.topic, own.topic_id, own.partition + 1)
        self._by_name: dict[str, Topic] = {own.topic: self.own}
        self._by_id: dict[bytes, Topic] = {own.topic_id: self.own}
        #: The topic id whose data each directory (topic, partition) holds.
        self._directories: dict[tuple[str, int], bytes] = {}
        self._names_on_disk: dict[bytes, str] = {}

    # --- topics ---

    def topic(self, name: str) -> Topic | None:
        """The topic of that name, as far as it is known here."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of that id, as far as it is known here."""
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        """Every topic for clients, by name: all but the metadata log."""
        return [self._by_name[name] for name in sorted(self._by_name) if name != METADATA_TOPIC]

    def add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.topic_id]

    # --- groups ---

    def resolve_topic(self, topic_id: bytes) -> str | None:
        """The name of a topic that this node knows by its id (16 bytes), be it only from a directory on disk."""
        topic = self._by_id.get(topic_id)
        return self._names_on_disk.get(topic_id) if topic is None else topic.name

    def resolve_group(self, topic: str, partition: int) -> GroupId:
        """The group that a name stands for today; with a zero id where the topic is unknown."""
        known = self._by_name.get(topic)
        if known is not None:
            return GroupId(topic, partition, known.topic_id)
        return GroupId(topic, partition, self._directories.get((topic, partition), NO_TOPIC_ID))

    def group_of(self, name: str | None, topic_id: bytes | None, partition: int) -> GroupId:
        """The group that a request names by topic name or by topic id."""
        if topic_id is not None:
            return GroupId(self.resolve_topic(topic_id) or "", partition, topic_id)
        return self.resolve_group(name or "", partition)

    def why_unknown(self, group: GroupId) -> ErrorCode:
        """The error for a group that this node does not host."""
        topic = self._by_name.get(group.topic)
        if topic is not None and topic.topic_id != group.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def told_unknown(self, group: GroupId) -> str:
        """`why_unknown` in words."""
        topic = self._by_name.get(group.topic)
        if not group.topic:
            return "no topic of that id exists, as far as this node knows"
        if topic is None:
            return f"topic {group.topic!r} does not exist, as far as this node knows"
        if topic.topic_id != group.topic_id:
            return f"topic {group.topic!r} was deleted and created again: ask for its metadata"
        return f"topic {group.topic!r} has {topic.partitions} partitions from 0 on, and {group.partition} is not served here"

    # --- directories ---

    def found(self, groups: Iterable[GroupId]) -> None:
        """At start: the groups that have directories."""
        for group in groups:
            self._directories[group.topic, group.partition] = group.topic_id
            self._names_on_disk[group.topic_id] = group.topic

    def directories(self) -> list[GroupId]:
        """Every group that has a directory, or may have one, hosted or not."""
        return [GroupId(topic, index, topic_id) for (topic, index), topic_id in self._directories.items()]

    def is_taken(self, group: GroupId) -> bool:
        """Whether the group's directory holds another incarnation of the topic."""
        return self._directories.get((group.topic, group.partition), group.topic_id) != group.topic_id

    def has_directory(self, group: GroupId) -> bool:
        return self._directories.get((group.topic, group.partition)) == group.topic_id

    def prepared(self, groups: Iterable[GroupId]) -> None:
        """The groups may have directories now, unless another incarnation has them."""
        for group in groups:
            self._directories.setdefault((group.topic, group.partition), group.topic_id)

    def opened(self, group: GroupId) -> None:
        """The group has a directory now."""
        self._directories[group.topic, group.partition] = group.topic_id

    def deleted(self, group: GroupId) -> None:
        """The group's directory is gone."""
        del self._directories[group.topic, group.partition]
