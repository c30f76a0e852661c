"""What a node asks the quorum's leader about its own vote, by itself (KIP-853).

A voter whose address is not the one in the log tells the new one (UpdateRaftVoter). A node that is told to join by itself
(`quorum.auto.join.enable`) asks to be added once it follows the leader; where its number votes with another directory, as
after a disk was replaced, that voter is removed first, as Kafka's nodes do it.

Owns when to ask: only with all that the leader has committed, for an older log tells of older voters. The leader decides, by
the rules for everybody; what it refuses is asked again after a fetch timeout. A node that has been a voter since it started and
is none any more was removed by somebody: it does not come back by itself before it is started again (Kafka's adds itself
at once, KAFKA-19850).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from importlib import import_module
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import PeerReply, VoterReply, VoterRpc
from raftlake.raft.core import RaftGroup
from raftlake.raft.events import FailureReason
from raftlake.raft.roles import Follower
from raftlake.raft.types import NO_DIRECTORY, ReplicaKey
from raftlake.replica.config import Endpoint
from raftlake.replica.engine import Engine
from raftlake.replica.quorum import LISTENER_NAME, Quorum, address_in
from raftlake.wire.control import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN
from raftlake.wire.ids import id_to_kio

#: Answers a request of a node about its own vote, as the leader (`apis.voters`).
ChangeHere = Callable[[VoterRpc, Callable[[PeerReply], None]], None]


class OwnVote:
    """`change_here` answers the request where this node leads itself."""

    def __init__(self, engine: Engine, quorum: Quorum, change_here: ChangeHere) -> None:
        self._engine = engine
        self._quorum = quorum
        self._change_here = change_here
        self._next_attempt_ms = 0
        self._under_way = False
        self._was_voter = False
        #: Called with what was asked for, and why it was refused or "" where it was not, whenever that is another.
        self.listeners: list[Callable[[str, str], None]] = []
        self._told: tuple[str, str] | None = None

    def tick(self) -> None:
        """Called a few times a second: ask for what is missing, one attempt at a time."""
        engine = self._engine
        partition = self._quorum.partition
        if partition is None:
            return
        core, committed = partition.core, self._quorum.committed
        if committed is None or core.local.directory_id == NO_DIRECTORY or not _is_current(core):
            return
        self._was_voter = self._was_voter or committed.has(core.local)
        if self._under_way or engine.is_resigning or engine.now_ms < self._next_attempt_ms:
            return
        wish = self._wish(core)
        if wish is not None:
            self._ask(core, *wish)

    def _wish(self, core: RaftGroup) -> tuple[str, object] | None:
        """What to ask for, for people, and the request; None where everything is as it should be."""
        me, voters, address = core.local, core.voters, self._engine.config.own_address
        if voters.has(me):
            known = address_in(voters, me.id)
            if not has_moved(known, address):
                return None
            return f"be reached at {address}", self._update(core, address)
        if not self._engine.config.auto_join or self._was_voter or core.is_leader:
            return None
        old = voters.voters.get(me.id)
        if old is not None:
            return "remove the voter that this node was with another directory", self._remove(old)
        return "become a voter", self._add(me, address)

    def _ask(self, core: RaftGroup, what: str, request: object) -> None:
        engine = self._engine
        self._under_way = True
        self._next_attempt_ms = engine.now_ms + core.config.fetch_timeout_ms
        rpc = VoterRpc(request=request)

        def answered(reply: PeerReply | FailureReason) -> None:
            engine.begin_input()
            self._under_way = False
            if isinstance(reply, VoterReply):
                self._tell(what, _refusal_in(reply.response))

        if core.is_leader:
            self._change_here(rpc, answered)
        else:
            engine.network.send(core.leader_id, rpc, answered)

    def _tell(self, what: str, refusal: str) -> None:
        if self._told != (what, refusal):
            self._told = (what, refusal)
            for listener in self.listeners:
                listener(what, refusal)

    # --- requests ---

    def _add(self, me: ReplicaKey, address: Endpoint) -> object:
        """Without waiting for the commit, which a majority with the new voter in it may have to make."""
        schema: Any = import_module("kio.schema.add_raft_voter.v1.request")
        return schema.AddRaftVoterRequest(
            cluster_id=self._engine.cluster_id,
            timeout=datetime.timedelta(milliseconds=self._engine.config.raft.request_timeout_ms),
            voter_id=me.id,
            voter_directory_id=id_to_kio(me.directory_id),
            listeners=(schema.Listener(name=LISTENER_NAME, host=address.host, port=address.port),),
            ack_when_committed=False,
        )

    def _remove(self, old: ReplicaKey) -> object:
        schema: Any = import_module("kio.schema.remove_raft_voter.v0.request")
        return schema.RemoveRaftVoterRequest(
            cluster_id=self._engine.cluster_id, voter_id=old.id, voter_directory_id=id_to_kio(old.directory_id)
        )

    def _update(self, core: RaftGroup, address: Endpoint) -> object:
        schema: Any = import_module("kio.schema.update_raft_voter.v0.request")
        versions = schema.KRaftVersionFeature(min_supported_version=KRAFT_VERSION_MIN, max_supported_version=KRAFT_VERSION_MAX)
        return schema.UpdateRaftVoterRequest(
            cluster_id=self._engine.cluster_id,
            current_leader_epoch=core.epoch,
            voter_id=core.local.id,
            voter_directory_id=id_to_kio(core.local.directory_id),
            listeners=(schema.Listener(name=LISTENER_NAME, host=address.host, port=address.port),),
            k_raft_version_feature=versions,
        )


def _is_current(core: RaftGroup) -> bool:
    """It has taken in everything that the leader of its epoch has said is committed."""
    role = core.role
    if isinstance(role, Follower):
        return 0 < role.leader_high_watermark <= core.high_watermark
    return core.is_serving_leader


def has_moved(known: Endpoint | None, address: Endpoint) -> bool:
    """Whether a voter is at another address than the log says, and one that others can use."""
    return known != address and (known is None or is_loopback(known.host) or not is_loopback(address.host))


def is_loopback(host: str) -> bool:
    """Whether a host means the machine that asks: no address to put in the place of one that others can use."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _refusal_in(response: object) -> str:
    answer: Any = response
    error = int(answer.error_code)
    if error == ErrorCode.NONE:
        return ""
    return getattr(answer, "error_message", None) or ErrorCode(error).name
