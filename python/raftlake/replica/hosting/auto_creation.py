"""Topics that come about because a client asks for them (auto.create.topics.enable): off unless the node's settings say so.

A client that asks for the metadata of a topic that does not exist, and allows its creation, is told to ask again. Meanwhile the
topic is created as CreateTopics creates it, with one partition and the node's defaults. Owns which creations are under way.
"""

from __future__ import annotations

from functools import partial

from raftlake.errors import ErrorCode
from raftlake.replica.config import ClientContext
from raftlake.replica.engine import Engine
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.refused_for_good import CREATE, RefusedForGood
from raftlake.replica.reserved import Topic, fault_of_name

#: Creations under way at a time. Clients that want more topics ask again.
AT_ONCE_MAX = 100
PARTITIONS = 1
#: Kafka's own topics have such names: nobody brings them about by asking.
INTERNAL = "__"


class AutoCreation:
    def __init__(self, engine: Engine, topics: TopicRegistry, refused_for_good: RefusedForGood) -> None:
        self._engine = engine
        self._topics = topics
        self._refused_for_good = refused_for_good
        self._under_way: set[str] = set()

    def want(self, name: str, client: ClientContext | None) -> bool:
        """A client asks for a topic that is not known here, and allows its creation. Returns whether it shall ask again."""
        if not self._engine.config.auto_create_topics or name.startswith(INTERNAL) or fault_of_name(name) is not None:
            return False
        if name not in self._under_way and len(self._under_way) < AT_ONCE_MAX:
            refused: list[ErrorCode] = []
            self._under_way.add(name)
            self._topics.create(name, PARTITIONS, {}, partial(self._on_done, name, client, refused), client)
            # What cannot be had is said at once.
            return not refused
        return True

    def _on_done(
        self,
        name: str,
        client: ClientContext | None,
        refused: list[ErrorCode],
        _topic: Topic | None,
        error: ErrorCode,
        message: str,
    ) -> None:
        """A creation that failed is tried again when somebody asks again. Metadata has no room for a reason."""
        self._under_way.discard(name)
        self._refused_for_good.note_error(CREATE, name, error, message, client)
        if error is not ErrorCode.NONE:
            refused.append(error)
