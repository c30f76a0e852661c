"""The Fetch sessions (KIP-227) that a node keeps for replicas that fetch from it.

A session belongs to the connection it was opened on, so a replica may have several: a node that knows only addresses may ask
for one group at an address and for another by the number of the very node behind it, and were there one session for
each replica, the two would end each other without end.

Owns the numbers of sessions and which of them go when there are too many; knows nothing of answers. Invariant, kept with
`FetchServer`: at most one session of a replica waits for a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId
from raftlake.raft.actions import AnswerFetch
from raftlake.raft.events import ReplicaConfirmed
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Epoch, NodeId
from raftlake.replica.timers import Timer
from raftlake.wire.sync_report import SyncReport

NO_SESSION_EPOCH = -1
#: Sessions that a node remembers. Anybody may claim to be a replica.
SESSIONS_MAX = 256
#: Sessions of one replica. Those whose connections are gone are thrown out by newer ones.
SESSIONS_OF_REPLICA_MAX = 8
#: When something happened that has not: longer ago than any limit.
NEVER_MS = -(1 << 62)
SESSION_ID_START_MAX = 1 << 30
SESSION_ID_MAX = (1 << 31) - 1


@dataclass(slots=True)
class Round:
    """A FetchRpc that has not been answered."""

    rpc: FetchRpc
    connection: PeerConnection
    reply: Callable[[FetchReply], None]
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class Session:
    """What this node remembers of a replica that fetches on one connection."""

    replica_id: NodeId
    #: By which this node knows the session.
    number: int
    #: By which the replica knows it: the number, or 0 where each of its rounds lists everything.
    session_id: int
    epoch: int = 0
    #: The groups whose fetch is parked in their core. A group leaves when its core answers and comes back with its next fetch:
    #: a round says nothing about the others.
    parked: dict[GroupId, FetchRequest] = field(default_factory=dict)
    #: Answers of the cores that have not been sent yet.
    ready: dict[GroupId, AnswerFetch] = field(default_factory=dict)
    #: Answers that bring nothing, held until the round ends so that the other side does not spin.
    held: dict[GroupId, AnswerFetch] = field(default_factory=dict)
    round: Round | None = None
    #: Where the records began that the last answer brought of each group: who asks for them again could not use them.
    given: dict[GroupId, int] = field(default_factory=dict)
    #: Answer the next round at once: a read waits for it, or what is ready has waited long enough.
    release_next: bool = False
    #: Runs while what is ready waits for more to travel with.
    linger: Timer | None = None
    #: When news of a high watermark is sent without records at the latest, None where there is none.
    news_due_ms: int | None = None
    #: Since when records wait that a majority can do without, None where there are none.
    records_since_ms: int | None = None
    last_round_ms: int = 0
    #: `follows` of the round that is being handled or was handled last.
    follows: int = 0
    #: The answer counter at this session's last answer.
    answered_sequence: int = 0
    #: The report that the replica was told last.
    told_report: SyncReport | None = None

    def confirms(self, group: GroupId) -> ReplicaConfirmed | None:
        """What the last round says of a group that it covers. The core judges the epoch of the parked Fetch."""
        parked = self.parked.get(group)
        if parked is None:
            return None
        return ReplicaConfirmed(
            replica_id=self.replica_id, at_ms=self.last_round_ms, follows=self.follows, leader_epoch=parked.leader_epoch
        )

    def news_of(self, report: SyncReport) -> SyncReport | None:
        """The report, where the replica is one of ours and has not been told it."""
        if self.session_id == 0 or self.told_report is report:
            return None
        self.told_report = report
        return report


class FetchSessions:
    """All sessions of a node. `voters` are never thrown out for others; `ended` is called with a session that ends."""

    def __init__(self, number_start: int, voters: Iterable[NodeId], ended: Callable[[Session], None]) -> None:
        self._counter = number_start
        self._voters = frozenset(voters)
        self._ended = ended
        self._by_number: dict[int, Session] = {}
        self._of_replica: dict[NodeId, list[Session]] = {}

    def of(self, replica_id: NodeId) -> list[Session]:
        """The sessions of one replica, the oldest first."""
        return self._of_replica.get(replica_id, [])

    def all(self) -> Iterable[Session]:
        """Every session, in the order in which they were opened."""
        return self._by_number.values()

    def waiting(self, replica_id: NodeId, group: GroupId) -> Session | None:
        """The session in which a replica waits for news of a group."""
        for session in self._of_replica.get(replica_id, ()):
            if group in session.parked:
                return session
        return None

    def heard_ms(self, replica_id: NodeId) -> int:
        """When the last round of a replica came, `NEVER_MS` where none came."""
        return max((session.last_round_ms for session in self.of(replica_id)), default=NEVER_MS)

    def covered_ms(self, replica_id: NodeId, group: GroupId, epoch: Epoch) -> int:
        """When the last round of a replica came in which its fetch of the group waits in that epoch; `NEVER_MS` for none."""
        session = self.waiting(replica_id, group)
        if session is None or session.parked[group].leader_epoch != epoch:
            return NEVER_MS
        return session.last_round_ms

    def of_round(self, connection: PeerConnection, rpc: FetchRpc) -> Session | None:
        """The session that a round belongs to, with its `follows` worked out; None for a broken session."""
        if rpc.session_epoch == NO_SESSION_EPOCH:
            session = self._on(connection, rpc.replica_id)
            if session is None or session.session_id != 0:
                session = self._open(connection, rpc.replica_id, has_id=False)
            session.follows = connection.answer_sequence
            return session
        if rpc.session_id == 0:
            return self._open(connection, rpc.replica_id, has_id=True) if rpc.session_epoch == 0 else None
        session = self._by_number.get(rpc.session_id)
        if (
            session is None
            or (session.replica_id, session.session_id) != (rpc.replica_id, rpc.session_id)
            or rpc.session_epoch != session.epoch + 1
        ):
            return None
        session.epoch = rpc.session_epoch
        # A sender that did not wait for the answer to its last round has seen nothing newer than the one before it.
        if session.round is None:
            session.follows = session.answered_sequence
        return session

    def _on(self, connection: PeerConnection, replica_id: NodeId) -> Session | None:
        session = self._by_number.get(connection.fetch_session)
        return session if session is not None and session.replica_id == replica_id else None

    def _open(self, connection: PeerConnection, replica_id: NodeId, *, has_id: bool) -> Session:
        """A new session, in place of the one that the replica had on this connection. Of too many, the one goes that was heard
        of longest ago."""
        old = self._on(connection, replica_id)
        if old is not None:
            self._end(old)
        of_replica = self._of_replica.setdefault(replica_id, [])
        if len(of_replica) >= SESSIONS_OF_REPLICA_MAX:
            self._end(_oldest(of_replica))
        if len(self._by_number) >= SESSIONS_MAX:
            self._end(_oldest([each for each in self.all() if each.replica_id not in self._voters] or self.all()))
            of_replica = self._of_replica.setdefault(replica_id, [])
        self._counter = self._counter % SESSION_ID_MAX + 1
        session = Session(replica_id, self._counter, self._counter if has_id else 0)
        self._by_number[session.number] = session
        of_replica.append(session)
        connection.fetch_session = session.number
        return session

    def _end(self, session: Session) -> None:
        del self._by_number[session.number]
        of_replica = self._of_replica[session.replica_id]
        of_replica.remove(session)
        if not of_replica:
            del self._of_replica[session.replica_id]
        self._ended(session)


def _oldest(sessions: Iterable[Session]) -> Session:
    return min(sessions, key=lambda session: (session.last_round_ms, session.number))
