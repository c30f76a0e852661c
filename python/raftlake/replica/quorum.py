"""Who votes, as this node knows it: the static voters it was started with, and behind them what the quorum's log says.

Owns the questions that other parts ask about voters and their addresses. The latest set is what Raft counts by; the committed
one is what other groups and new topics are given. Knows nothing of how a set changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlake.raft.types import NO_LEADER, NodeId, Offset, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import Endpoint, NodeConfig
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.wire.ids import id_to_text

#: The name of the peers' listener: Kafka's own nodes look for the endpoint of their CONTROLLER listener.
LISTENER_NAME = "CONTROLLER"


def endpoints_of(address: Endpoint) -> tuple[VoterEndpoint, ...]:
    """How a voter set says where a node's peers reach it."""
    return (VoterEndpoint(LISTENER_NAME, address.host, address.port),)


def address_in(voters: VoterSet, node_id: NodeId) -> Endpoint | None:
    """Where a set says that a voter is reached."""
    return endpoint_of(voters.endpoints.get(node_id, ()))


def endpoint_of(places: Sequence[VoterEndpoint]) -> Endpoint | None:
    """The CONTROLLER listener of a voter, or its first one."""
    chosen = next((place for place in places if place.name == LISTENER_NAME), places[0] if places else None)
    return None if chosen is None else Endpoint(chosen.host, chosen.port)


def static_voters(config: NodeConfig) -> VoterSet:
    """`quorum.voters`; the directory ids are not known."""
    ids = sorted(config.voters)
    return VoterSet(
        {node_id: ReplicaKey(node_id) for node_id in ids},
        {node_id: endpoints_of(config.voters[node_id]) for node_id in ids},
    )


def voters_to_json(voters: VoterSet) -> list[dict[str, object]]:
    """A set inside the value of a key, by ascending id."""
    return [
        {
            "id": node_id,
            "directory": id_to_text(voters.voters[node_id].directory_id),
            "endpoints": [[place.name, place.host, place.port] for place in voters.endpoints.get(node_id, ())],
        }
        for node_id in voters.ids
    ]


class Quorum:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.static = static_voters(engine.config)
        #: The quorum's log as it was when it was closed last: what it said of the voters holds until it is open again.
        self._before: Partition | None = None

    def let_go(self, partition: Partition) -> None:
        """The group is closed, perhaps for as long as there is no room to open it again."""
        if partition.group == self._engine.config.quorum_group:
            self._before = partition

    @property
    def partition(self) -> Partition | None:
        """The quorum's log; None before it is opened, and while it is opened anew: at once, or when there is room for that."""
        return self._engine.partitions.get(self._engine.config.quorum_group)

    @property
    def leader_id(self) -> NodeId:
        """The leader of the quorum's log (Kafka's "controller"), NO_LEADER when none is known."""
        partition = self.partition
        return NO_LEADER if partition is None else partition.core.leader_id

    def is_ready(self) -> bool:
        """The leader of the quorum's log is there and this node has applied up to its high watermark at least once."""
        partition = self.partition
        return partition is not None and partition.core.hears_leader and partition.high_watermark > 0

    @property
    def latest(self) -> VoterSet:
        """Who votes on the quorum's log, committed or not."""
        partition = self.partition or self._before
        return self.static if partition is None else partition.core.voters

    @property
    def committed(self) -> VoterSet | None:
        """Who votes on the quorum's log for good; None while that is not in the log (kraft.version 0)."""
        partition = self.partition or self._before
        return None if partition is None else partition.core.voter_history.at(partition.high_watermark)

    def finalized_kraft_version(self) -> tuple[int, Offset]:
        """The kraft.version by the log of the quorum, as Kafka tells it to clients, and the high watermark that goes with it;
        (0, -1) where the log was not opened yet."""
        partition = self.partition or self._before
        if partition is None:
            return 0, Offset(-1)
        return partition.core.voter_history.kraft_version, partition.high_watermark

    def addresses(self) -> dict[NodeId, Endpoint]:
        """Where the voters are reached by their peers, by ascending id; what the log says goes before the settings."""
        latest = self.latest
        found = {node_id: address_in(latest, node_id) or self._engine.config.voters.get(node_id) for node_id in latest.ids}
        return {node_id: address for node_id, address in found.items() if address is not None}
