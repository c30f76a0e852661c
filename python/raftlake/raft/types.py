"""The small values that the core is built from.

Owns: numbers with a meaning (epochs, offsets, node ids) and their pairs. Knows nothing of topics, sockets or files: one
instance of the core is one Raft group. End offsets are exclusive everywhere, `high_watermark` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType, Protocol

Epoch = NewType("Epoch", int)
Offset = NewType("Offset", int)
NodeId = NewType("NodeId", int)
#: A replica's directory id (KIP-853): the 16 bytes of a UUID; all zero means "not known".
DirectoryId = NewType("DirectoryId", bytes)

NO_DIRECTORY = DirectoryId(bytes(16))
NO_LEADER = NodeId(-1)
#: One bump below what the wire's int32 holds. Nothing but damage or malice gets near; a message above it is refused.
EPOCH_MAX = Epoch(2**31 - 2)
#: By how much the word of one voter may raise the epoch of a replica at once (`raft.leaps`).
EPOCH_LEAP_MAX = 1_000_000
#: The voter of a request that does not say whom it is meant for.
ANY_VOTER = NodeId(-1)
UNKNOWN_OFFSET = Offset(-1)
FIRST_OFFSET = Offset(0)


@dataclass(frozen=True, slots=True, order=True)
class OffsetAndEpoch:
    """A position in the log: `offset` is exclusive (the next offset), `epoch` that of the record just before it."""

    offset: Offset
    epoch: Epoch


#: Says "no snapshot" where a message has to say something.
NO_SNAPSHOT = OffsetAndEpoch(UNKNOWN_OFFSET, Epoch(-1))


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """Who a replica is: its node id and the id of the directory (disk) it speaks for."""

    id: NodeId
    directory_id: DirectoryId = NO_DIRECTORY


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a node must never forget about an election: `quorum-state` on disk, in Kafka's format."""

    epoch: Epoch = Epoch(0)
    leader_id: NodeId | None = None
    voted_key: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, order=True)
class VoterEndpoint:
    """Where a voter listens, under the name of its listener. The core only passes it on."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters of the group, by node id. In kraft.version 0 they are static and their directory ids unknown, all zero; in
    version 1 the log says who they are (KIP-853)."""

    voters: Mapping[NodeId, ReplicaKey]
    #: Where each voter is reached, as far as the set says so.
    endpoints: Mapping[NodeId, tuple[VoterEndpoint, ...]] = field(default_factory=dict)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self.voters

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """The voters' node ids in ascending order."""
        return tuple(sorted(self.voters))

    @property
    def majority(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1

    def has(self, key: ReplicaKey) -> bool:
        """Whether this very replica, node and directory, is a voter. An unknown directory in the set stands for any."""
        voter = self.voters.get(key.id)
        return voter is not None and voter.directory_id in (NO_DIRECTORY, key.directory_id)

    def with_voter(self, key: ReplicaKey, endpoints: tuple[VoterEndpoint, ...]) -> VoterSet:
        """This set and `key` (in place of an entry for the same node)."""
        voters = {**self.voters, key.id: key}
        places = {**self.endpoints, key.id: endpoints}
        return VoterSet({node_id: voters[node_id] for node_id in sorted(voters)}, {i: places[i] for i in sorted(places)})

    def without(self, node_id: NodeId) -> VoterSet:
        """This set without a node."""
        return VoterSet(
            {voter: key for voter, key in self.voters.items() if voter != node_id},
            {voter: places for voter, places in self.endpoints.items() if voter != node_id},
        )


NO_VOTERS = VoterSet({})


@dataclass(frozen=True, slots=True)
class Impairment:
    """Records that a replica had synced are lost (see `raft.impairment`)."""

    #: The epoch it was in when the loss was found.
    epoch: Epoch
    #: It may have acknowledged records below this offset in that epoch; 0 when it had none of that epoch.
    end_offset: Offset


class Rng(Protocol):
    """The only source of randomness of the core; the caller seeds it."""

    def randrange(self, stop: int, /) -> int:
        """A whole number in [0, stop)."""
