"""What a node tells its log of its roles, its damage, its voters, its topics and its refusals, one line per event."""

from __future__ import annotations

import logging

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NodeId
from raftlake.replica.config import ClientContext
from raftlake.replica.hosting.topic_news import TopicNews
from raftlake.replica.node import ReplicaNode
from raftlake.replica.refused_for_good import Refusal
from raftlake.runtime.log import event
from raftlake.runtime.refusal_log import cut
from raftlake.wire.ids import id_to_text

logger = logging.getLogger("raftlake.node")


class NodeLog:
    def __init__(self, node_id: NodeId, quorum_group: GroupId) -> None:
        self._node_id = node_id
        self._quorum_group = quorum_group

    def listen_to(self, node: ReplicaNode) -> None:
        node.reports.role_listeners.append(self.role)
        node.damage.listeners.append(self.damage)
        node.own_vote.listeners.append(self.own_vote)
        node.kv.room.listeners.append(self.warning)
        node.disk.listeners.append(self.warning)
        node.cluster_identity.listeners.append(self.warning)
        node.topics.changes.listeners.append(self.topic)
        node.refused_for_good.listeners.append(self.refused)
        node.refused_for_good.overflow_listeners.append(self.warning)

    def role(self, group: GroupId, report: ReportRole) -> None:
        """The quorum's own role is news; those of partitions, by the thousand, are for who asks for them."""
        level = logging.INFO if group == self._quorum_group else logging.DEBUG
        event(
            logger, level, "role", node=self._node_id, group=group, role=report.role, epoch=report.epoch,
            leader=report.leader_id, reason=report.reason,
        )  # fmt: skip

    def damage(self, group: GroupId, reason: str | None) -> None:
        """A log is damaged, or, without a reason, repaired."""
        if reason is None:
            event(logger, logging.INFO, "repaired", node=self._node_id, group=group)
        else:
            event(
                logger, logging.ERROR, "damaged log: it is repaired from other nodes and gives no vote until then",
                node=self._node_id, group=group, reason=reason,
            )  # fmt: skip

    def own_vote(self, what: str, refusal: str) -> None:
        """What this node asked the leader about its own vote."""
        outcome = {"refused": refusal} if refusal else {}
        level = logging.WARNING if refusal else logging.INFO
        event(logger, level, f"asked the leader to {what}", node=self._node_id, **outcome)

    def warning(self, what: str) -> None:
        """Something that an operator has to see to before it stops something."""
        event(logger, logging.WARNING, what, node=self._node_id)

    def topic(self, news: TopicNews) -> None:
        """A topic was created or deleted."""
        event(
            logger, logging.INFO, f"topic {'created' if news.is_created else 'deleted'}", node=self._node_id,
            topic=news.topic.name, id=id_to_text(news.topic.topic_id), partitions=news.topic.partitions, **_asker(news.client),
        )  # fmt: skip

    def refused(self, refusal: Refusal) -> None:
        """A client asked for something that it can never have."""
        facts = {refusal.kind.subject: refusal.subject, **_asker(refusal.client), "reason": cut(refusal.why)}
        event(logger, logging.WARNING, f"refused to {refusal.kind.what}", node=self._node_id, **facts)

    def moved(self, what: str) -> None:
        """The voters may all have moved."""
        event(logger, logging.WARNING, "no leader", node=self._node_id, reason=what)


def _asker(client: ClientContext | None) -> dict[str, object]:
    """Who asked. A client id may be as long as a request."""
    return {} if client is None else {"client": cut(client.client_id or ""), "host": client.host}
