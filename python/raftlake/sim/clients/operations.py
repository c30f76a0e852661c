"""What an operator sees of a cluster and does to its machines, beyond the requests that any client may send.

Owns the rule that keeps the plan honest: a disk is only replaced while every group on every node has the same voters, durably,
every node knows that they are committed, none of them is lost, and no topic is being created; so at most one voter of three is
ever lost at a time. A node that knows an older set only may still bring a group to it. Everything else that an operator asks
for may be refused by the nodes, and may come at the worst of moments.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage
from raftlake.raft.roles import Follower
from raftlake.raft.types import DirectoryId, NodeId, ReplicaKey, VoterSet
from raftlake.replica.config import BOOTSTRAP_ID_MAX, METADATA_GROUP, Endpoint
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.coverage import Coverage
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.tier import CommittedKeys
from raftlake.sim.machine import Machine

#: A request without an answer may still wait in a node that is paused; so long no disk is replaced.
UNANSWERED_US = 20_000 * US_PER_MS
#: A disk is replaced only where its loss leaves a majority of the others.
VOTERS_MIN_TO_LOSE_ONE = 3


def bootstrap_addresses(node_id: NodeId, voters: tuple[NodeId, ...]) -> dict[NodeId, NodeId]:
    """Whom a node finds at its bootstrap addresses: the first voters, other than itself."""
    others = [voter for voter in voters if voter != node_id]
    return {NodeId(BOOTSTRAP_ID_MAX - index): voter for index, voter in enumerate(others)}


def bootstrap_servers(node_id: NodeId, voters: tuple[NodeId, ...]) -> tuple[Endpoint, ...]:
    """The same as a setting."""
    return tuple(Endpoint(f"node{voter}", 9092) for voter in bootstrap_addresses(node_id, voters).values())


class Operations:
    """One per run."""

    def __init__(
        self, machines: Mapping[NodeId, Machine], view: ClusterView, committed: CommittedLogs, coverage: Coverage
    ) -> None:
        self._machines = machines
        self._view = view
        self._committed = committed
        self._keys = CommittedKeys(committed)
        self.coverage = coverage
        self._disks_replaced = 0
        #: Until then a change that a client asked for may be under way unseen: of voters, or a new topic with its own.
        self._unanswered_until_us: dict[str, int] = {}

    # --- what is known ---

    def committed_bytes(self, group: GroupId, start: int, end: int) -> tuple[bytes, int]:
        """The batches of a range as they were committed, the first one whole (a partition may begin amid a batch), and the end
        of all that is known to be committed."""
        log = self._committed.of(group)
        return b"".join(batch.data for batch in log.batches if start < batch.end <= end), log.end

    def table_start(self, group: GroupId) -> int:
        """Where the table of a partition begins, by all that is committed of the quorum's keys; 0 without one."""
        tiered = self._keys.tiered(Lineage(group, 0))
        return 0 if tiered is None else tiered.start_offset

    @property
    def voters(self) -> VoterSet | None:
        """The committed voters of the metadata group; None while they are static."""
        return self._committed.of(METADATA_GROUP).voters

    def key(self, node_id: NodeId) -> ReplicaKey:
        """Who a node is at present."""
        return ReplicaKey(node_id, self._view.directory_of(node_id))

    def address(self, node_id: NodeId) -> Endpoint:
        return self._machines[node_id].config.listener

    def leader_id(self) -> NodeId | None:
        """The newest leader of the metadata group that runs."""
        replicas = [machine.replicas.get(METADATA_GROUP) for machine in self._machines.values()]
        leaders = [replica for replica in replicas if replica is not None and replica.is_leader]
        return max(leaders, key=lambda replica: replica.epoch).node_id if leaders else None

    def fetched(self, node_id: NodeId) -> tuple[int, int, int]:
        """How far a node has come with the metadata log: its end, and of which snapshot how many bytes it has. It grows as long
        as the node gets on; (-1, -1, -1) while it is down or begins."""
        node = self._machines[node_id].node
        partition = None if node is None else node.partitions.get(METADATA_GROUP)
        replica = self._machines[node_id].replicas.get(METADATA_GROUP)
        if partition is None or replica is None:
            return -1, -1, -1
        role = partition.core.role
        download = role.download if isinstance(role, Follower) else None
        end = int(replica.log.end_offset)
        return (end, -1, -1) if download is None else (end, download.snapshot_id.offset, download.position)

    def lost(self) -> list[ReplicaKey]:
        """Voters whose disk is gone."""
        return [] if self.voters is None else [key for key in self.voters.voters.values() if self._view.is_lost(key)]

    def is_sound(self, node_id: NodeId) -> bool:
        """Whether no log of a node is damaged or impaired."""
        return all(log.decay.is_sound for log in self._machines[node_id].disk.logs.values())

    def may_remove(self, voter: ReplicaKey) -> bool:
        """Whether those who stay have a majority that can vote: a damaged one cannot until it is repaired."""
        voters = self.voters
        assert voters is not None
        staying = [node_id for node_id in voters.ids if node_id != voter.id]
        return sum(self.is_sound(node_id) for node_id in staying) >= len(staying) // 2 + 1

    def may_lose_a_disk(self, now_us: int) -> bool:
        """Whether a voter's disk, or what is on it, may go: no other's is gone or damaged, and nothing is being changed."""
        is_quiet = all(now_us >= until_us for until_us in self._unanswered_until_us.values())
        return is_quiet and self._is_settled() and all(map(self.is_sound, self._machines))

    def asked(self, client: str, deadline_us: int) -> None:
        """A client asks for a change, and hears of it before the deadline or never."""
        self._unanswered_until_us[client] = deadline_us + UNANSWERED_US

    def answered(self, client: str, now_us: int, *, is_known: bool) -> None:
        """`is_known` is False where the answer does not say what became of it."""
        self._unanswered_until_us[client] = now_us if is_known else now_us + UNANSWERED_US

    def _is_settled(self) -> bool:
        """Whether all groups on all nodes have the same voters, enough of them, on disk, and each node knows them committed."""
        voters = self.voters
        if voters is None or len(voters) < VOTERS_MIN_TO_LOSE_ONE:
            return False
        groups = dict.fromkeys(group for machine in self._machines.values() for group in machine.replicas)
        for group in (METADATA_GROUP, *groups):
            committed = self._committed.of(group).voters
            if committed is None or committed.voters != voters.voters:
                return False
            for node_id in self._machines:
                history, log = self._view.history_of(node_id, group), self._view.log_of(node_id, group)
                if history is None or log is None or history.latest.voters != voters.voters:
                    return False
                if history.latest_offset is None or log.durable_end <= history.latest_offset:
                    return False
                replica = self._machines[node_id].replicas.get(group)
                if replica is None or replica.high_watermark <= history.latest_offset:
                    return False
        return not self.lost()

    # --- what is done ---

    def replace_disk(self, node_id: NodeId) -> None:
        """The node goes down at once; it comes back by itself, empty, as another replica."""
        self._disks_replaced += 1
        directory_id = DirectoryId((self._disks_replaced << 32 | node_id).to_bytes(16, "big"))
        self._machines[node_id].wipe(directory_id, bootstrap_servers(node_id, self._view.voters))
        self.coverage.note("voter's disk replaced")
