"""What is told of topics that were created or deleted, once for each node that has something to tell.

The leader of the metadata log tells each change when it applies it. A node that a client asked tells who asked. Where both are
the same node, there is one line. What a node learns of topics while it starts is no news.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.replica.engine import Engine
from raftlake.replica.reserved import Topic


@dataclass(frozen=True, slots=True)
class TopicNews:
    """`client` asked for it, here; None where nobody did, or another node was asked."""

    topic: Topic
    is_created: bool
    client: ClientContext | None


class TopicChanges:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.listeners: list[Callable[[TopicNews], None]] = []
        #: Who asked for what was proposed and not told yet, by topic id.
        self._asked: dict[tuple[bytes, bool], ClientContext] = {}

    def proposed(self, topic: Topic, client: ClientContext | None, *, is_created: bool) -> None:
        """A client's request goes into the metadata log."""
        if client is not None:
            self._asked.setdefault((topic.topic_id, is_created), client)

    def over(self, topic: Topic, *, is_created: bool, is_done: bool) -> None:
        """The proposal was carried out, or (`is_done` is False) was not, as far as this node knows."""
        client = self._asked.pop((topic.topic_id, is_created), None)
        if client is not None and is_done:
            self._tell(topic, client, is_created=is_created)

    def applied(self, topic: Topic, version: int, *, is_created: bool, is_current: bool) -> None:
        """The change of a topic's key at offset `version` was applied. `is_current`: the node had caught up before."""
        metadata = self._engine.partitions.get(METADATA_GROUP)
        if metadata is None or not metadata.core.is_leader:
            return
        if is_current or version > metadata.core.epoch_start_offset:
            self._tell(topic, self._asked.pop((topic.topic_id, is_created), None), is_created=is_created)

    def _tell(self, topic: Topic, client: ClientContext | None, *, is_created: bool) -> None:
        for listener in self.listeners:
            listener(TopicNews(topic, is_created, client))
