"""Which replicas are in sync, and which nodes are gone, as a node tells clients (Metadata) and operators (`/metrics`).

A replica is in sync when it had all of its leader's log at some moment of the last `NodeConfig.replica_lag_ms_max`. The leader
alone sees that, in the Fetch rounds. A node is gone when the leader of the quorum's log has heard no Fetch of it for that long.
Leaders tell both to all who fetch from them (`wire.sync_report`), and only what has changed: while all is well, nothing is
said. So every node answers at once from what it has heard last. What nobody has told it counts as well.

A replica that a new leader has not heard of yet keeps the state that it had, where this node knows that state. Otherwise it
counts as in sync for `replica_lag_ms_max`. Decides nothing: what is committed is Raft's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.roles import Leader, ReplicaProgress
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.config import Endpoint
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import Quorum
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.wire.sync_report import Lagging, SyncReport

#: How often a leader looks at all groups that it leads.
LOOK_INTERVAL_MS = 1_000
#: Groups that are looked at together: about a millisecond.
LOOKED_AT_MAX = 1_000

Nodes = tuple[NodeId, ...]
#: By the topic's id and the partition: who hears of a group may not know the topic's name yet.
ByPartition = dict[tuple[bytes, int], tuple[int, ...]]


class InSync:
    """`nodes` are those that have said where clients reach them. `fetch_server` sends the report that is given to it."""

    def __init__(
        self,
        engine: Engine,
        *,
        quorum: Quorum,
        fetch_server: FetchServer,
        fetchers: Fetchers,
        nodes: Callable[[], Mapping[NodeId, Endpoint]],
    ) -> None:
        self._engine = engine
        self._quorum = quorum
        self._fetch_server = fetch_server
        self._fetchers = fetchers
        self._nodes = nodes
        #: Each group that is led here: the epoch, and since when.
        self._led: dict[GroupId, tuple[Epoch, int]] = {}
        #: Of those the ones with replicas that lag.
        self._lagging: dict[GroupId, Nodes] = {}
        #: What each peer has said last.
        self._told: dict[NodeId, ByPartition] = {}
        self._told_gone: dict[NodeId, Nodes] = {}
        #: Those that are gone, as the leader of the quorum's log says, or said last; and when this node last heard of it.
        self._gone: Nodes = ()
        self._in_touch_ms = engine.now_ms
        self._next_look_ms = engine.now_ms
        #: Of the look that is under way: the groups that are still to be looked at.
        self._line: list[Partition] = []
        self._tells_soon = False
        fetchers.on_sync_report = self._on_report

    # --- what is known ---

    @property
    def under_replicated(self) -> int:
        """How many of the groups that are led here have replicas that lag."""
        return sum(group in self._led for group in self._lagging)

    def gone(self) -> frozenset[NodeId]:
        """The nodes that nobody hears of. Never this node, nor one that this node has heard itself."""
        return frozenset(node_id for node_id in self._gone if not self._hears(node_id))

    def present(self) -> dict[NodeId, Endpoint]:
        """Where clients reach each node that is not gone, by ascending id. This node is always among them."""
        gone = self.gone()
        return {node_id: endpoint for node_id, endpoint in self._nodes().items() if node_id not in gone}

    def lagging(self, partition: Partition) -> tuple[int, ...]:
        """The replicas of a group that are not in sync, as its leader says. While this node hears of no leader: those that are
        gone, and those that lagged before."""
        group, core = partition.group, partition.core
        if core.is_leader:
            return self._lagging.get(group, ())
        told = self._told.get(core.leader_id) if core.hears_leader else None
        if told is None:
            return self._missed() + self._lagged_before(group)
        return told.get((group.topic_id, group.partition), ()) if told else ()

    def _missed(self) -> Nodes:
        """Those that are gone. A node that has heard of no leader of the quorum's log for long speaks for itself alone."""
        if self._engine.now_ms - self._in_touch_ms <= self._engine.config.replica_lag_ms_max:
            return self._gone
        return self._unheard()

    def _unheard(self) -> Nodes:
        known = sorted({*self._nodes(), *self._quorum.latest.ids})
        return tuple(node_id for node_id in known if not self._hears(node_id))

    def _hears(self, node_id: NodeId) -> bool:
        """Whether the node has fetched from this one, or has answered it, within `replica_lag_ms_max`."""
        engine = self._engine
        heard_ms = max(self._fetch_server.sessions.heard_ms(node_id), self._fetchers.heard_ms(node_id))
        return node_id == engine.config.node_id or engine.now_ms - heard_ms <= engine.config.replica_lag_ms_max

    def _on_report(self, peer: NodeId, report: SyncReport) -> None:
        self._told[peer] = {(topic_id, partition): nodes for topic_id, partition, nodes in report.lagging}
        self._told_gone.pop(peer, None)
        if report.gone is not None:
            self._told_gone[peer] = tuple(map(NodeId, report.gone))

    # --- looking ---

    def tick(self) -> None:
        """Called a few times a second."""
        now_ms, gone = self._engine.now_ms, self._gone
        self._look_for_gone()
        if not self._line and now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_INTERVAL_MS
            self._begin_look()
        is_over = bool(self._line) and self._look_on()
        if is_over or gone != self._gone:
            self._tell()

    def _begin_look(self) -> None:
        partitions = self._engine.partitions
        self._led = {group: since for group, since in self._led.items() if group in partitions}
        self._lagging = {group: nodes for group, nodes in self._lagging.items() if group in partitions}
        self._line = list(partitions.values())

    def _look_on(self) -> bool:
        """Whether all have been looked at."""
        for partition in self._line[:LOOKED_AT_MAX]:
            if self._engine.partitions.get(partition.group) is partition:
                self._look_at(partition)
        del self._line[:LOOKED_AT_MAX]
        return not self._line

    def on_role(self, group: GroupId, _report: ReportRole) -> None:
        """A new leader looks at once: its predecessor's report says nothing any more."""
        partition = self._engine.partitions.get(group)
        if partition is None:
            return
        self._look_at(partition)
        is_news = group in self._lagging or partition is self._quorum.partition
        if is_news and not self._tells_soon:
            # Once for all groups that change their leader together.
            self._tells_soon = True
            self._engine.timers.schedule(self._engine.now_ms, self._tell)

    def _look_at(self, partition: Partition) -> None:
        group, core = partition.group, partition.core
        if not isinstance(core.role, Leader):
            self._led.pop(group, None)
            if core.hears_leader:
                # Before, what this node knew as leader is the newest that anybody knows.
                self._lagging.pop(group, None)
            return
        epoch, since_ms = self._led.get(group, (None, 0))
        if epoch == core.epoch:
            lagged = self._lagging.get(group, ())
        else:
            since_ms = self._engine.now_ms
            self._led[group] = core.epoch, since_ms
            lagged = self._lagged_before(group)
        lagging = tuple(
            node_id
            for node_id in self._quorum.latest.ids
            if node_id != core.local.id and self._lags(partition, core.role, node_id, since_ms, node_id in lagged)
        )
        if lagging:
            self._lagging[group] = lagging
        else:
            self._lagging.pop(group, None)

    def _lagged_before(self, group: GroupId) -> Nodes:
        """Who lagged under earlier leaders, or is gone. One that has caught up since then shows it with its first fetch."""
        key = group.topic_id, group.partition
        told = tuple(NodeId(node_id) for told in self._told.values() for node_id in told.get(key, ()))
        return self._gone + self._lagging.get(group, ()) + told

    def _lags(self, partition: Partition, leader: Leader, node_id: NodeId, since_ms: int, lagged: bool) -> bool:
        engine = self._engine
        caught_up_ms = self._caught_up_ms(partition, _progress(leader, node_id))
        if caught_up_ms < 0:
            if lagged:
                return True
            caught_up_ms = since_ms
        return engine.now_ms - caught_up_ms > engine.config.replica_lag_ms_max

    def _caught_up_ms(self, partition: Partition, progress: ReplicaProgress | None) -> int:
        """When the replica last had everything in this epoch, -1 for never. The core does not hear of rounds without news of
        its group (`ReplicaConfirmed`), so these are looked up."""
        if progress is None or not progress.has_fetched:
            return -1
        core = partition.core
        if progress.end_offset < core.log_end:
            return progress.caught_up_at_ms
        covered_ms = self._fetch_server.sessions.covered_ms(progress.key.id, partition.group, core.epoch)
        return max(progress.caught_up_at_ms, covered_ms)

    def _look_for_gone(self) -> None:
        partition, now_ms = self._quorum.partition, self._engine.now_ms
        if partition is None or not partition.core.hears_leader:
            return
        self._in_touch_ms = now_ms
        if not partition.core.is_leader:
            self._gone = self._told_gone.get(partition.core.leader_id, self._gone)
            return
        _, since_ms = self._led.get(partition.group, (None, now_ms))
        is_new = now_ms - since_ms <= self._engine.config.replica_lag_ms_max
        self._gone = tuple(node_id for node_id in self._unheard() if not is_new or node_id in self._gone)

    # --- telling ---

    def _tell(self) -> None:
        """Give the fetch server another report where there is another one, and have it sent at once."""
        self._tells_soon = False
        partition = self._quorum.partition
        gone = self._gone if partition is not None and partition.core.is_leader else None
        lagging = tuple(Lagging(group.topic_id, group.partition, nodes) for group, nodes in self._lagging.items())
        report = SyncReport(gone, lagging)
        if report != self._fetch_server.sync_report:
            self._fetch_server.sync_report = report
            self._fetch_server.release()


def _progress(leader: Leader, node_id: NodeId) -> ReplicaProgress | None:
    """Of a voter, or of its number on a new disk, which is an observer until it is added (KIP-853)."""
    progress = leader.voters.get(node_id)
    return progress if progress is not None and progress.has_fetched else leader.observers.get(node_id)
