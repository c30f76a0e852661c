"""Waiting for the first leaders of a new topic, so that who created it finds them in Metadata at once.

Owns what waits, and until when. Which leader clients are told of changes with elections, which are followed as they happen. It
also changes with the addresses of nodes, which are looked at a few times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.reserved import Topic
from raftlake.replica.timers import Timer


def leader_for_clients(partition: Partition | None, nodes: Container[NodeId]) -> NodeId:
    """The leader of a group as clients are told, NO_LEADER where they are told of none. `nodes` are those whose addresses they
    are told too: a leader elsewhere is not available to them yet."""
    if partition is None or partition.core.leader_id not in nodes:
        return NO_LEADER
    return partition.core.leader_id


@dataclass(slots=True)
class _Waiting:
    topic: Topic
    #: Those that had no leader when they were looked at last; more of the others may have lost theirs.
    without: list[GroupId]
    done: Callable[[bool], None]
    timer: Timer | None = None


class FirstLeaders:
    """`nodes` are those whose addresses clients are told."""

    def __init__(self, engine: Engine, kv: KvService, nodes: Callable[[], Container[NodeId]]) -> None:
        self._engine = engine
        self._kv = kv
        self._nodes = nodes
        self._waiting: dict[bytes, list[_Waiting]] = {}

    def wait(self, topic: Topic, deadline_ms: int, done: Callable[[bool], None]) -> None:
        """Call `done` once: with True when every partition has a leader or the topic is gone, with False at the deadline."""
        waiting = _Waiting(topic, topic.groups(), done)
        if self._is_over(waiting):
            done(True)
        elif deadline_ms <= self._engine.now_ms:
            done(False)
        else:
            waiting.timer = self._engine.timers.schedule(deadline_ms, lambda: self._end(waiting, False))
            self._waiting.setdefault(topic.topic_id, []).append(waiting)

    def on_role(self, group: GroupId, _report: ReportRole) -> None:
        """A group has another role, and perhaps a leader."""
        for waiting in list(self._waiting.get(group.topic_id, ())):
            self._look_at(waiting)

    def tick(self) -> None:
        """Called a few times a second."""
        for waiting in [each for of_topic in self._waiting.values() for each in of_topic]:
            self._look_at(waiting)

    def _look_at(self, waiting: _Waiting) -> None:
        if self._is_over(waiting):
            self._end(waiting, True)

    def _is_over(self, waiting: _Waiting) -> bool:
        topic = waiting.topic
        current = self._kv.state.topics.get(topic.name)
        if current is None or current.topic_id != topic.topic_id:
            return True
        nodes = self._nodes()
        # One group without a leader is enough, so that a thousand elections do not cost a million looks.
        while waiting.without and self._has_leader(waiting.without[-1], nodes):
            waiting.without.pop()
        if not waiting.without:
            waiting.without = [group for group in topic.each_group() if not self._has_leader(group, nodes)]
        return not waiting.without

    def _has_leader(self, group: GroupId, nodes: Container[NodeId]) -> bool:
        return leader_for_clients(self._engine.partitions.get(group), nodes) != NO_LEADER

    def _end(self, waiting: _Waiting, has_leaders: bool) -> None:
        assert waiting.timer is not None
        waiting.timer.cancel()
        of_topic = self._waiting[waiting.topic.topic_id]
        of_topic.remove(waiting)
        if not of_topic:
            del self._waiting[waiting.topic.topic_id]
        waiting.done(has_leaders)
