"""Fetch sessions of replicas: several of one replica at one node, and what a group's replica hears in which of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId, PeerMessage
from raftlake.raft.messages import FetchRequest, FetchResponse
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey
from raftlake.replica.replication.fetch_server import LEADERLESS_WAIT_MS, ROUND_WAIT_MS_MAX
from raftlake.replica.replication.fetch_sessions import (
    NEVER_MS,
    SESSION_ID_MAX,
    SESSIONS_MAX,
    SESSIONS_OF_REPLICA_MAX,
    FetchSessions,
    Session,
)
from raftlake.wire.sync_report import SyncReport
from replica_cluster import Cluster, batch

REPLICA = NodeId(9)


def round_of(session_id: int, epoch: int, *messages: PeerMessage, replica_id: NodeId = REPLICA) -> FetchRpc:
    return FetchRpc(
        cluster_id=None, replica_id=replica_id, session_id=session_id, session_epoch=epoch, wait_ms_max=500, size_max=1 << 20,
        messages=messages,
    )  # fmt: skip


# --- the registry ---


class Registry:
    def __init__(self, start: int = 0, voters: tuple[NodeId, ...] = ()) -> None:
        self.ended: list[Session] = []
        self.sessions = FetchSessions(start, voters, self.ended.append)

    def open(self, replica_id: NodeId = REPLICA, connection: PeerConnection | None = None, at_ms: int = 0) -> Session:
        session = self.sessions.of_round(connection or PeerConnection(), round_of(0, 0, replica_id=replica_id))
        assert session is not None
        session.last_round_ms = at_ms
        return session


def test_each_connection_of_a_replica_has_a_session_of_its_own() -> None:
    registry = Registry()
    first, second = registry.open(), registry.open()
    assert first.session_id != second.session_id
    for epoch in (1, 2):
        for session in (first, second):
            assert registry.sessions.of_round(PeerConnection(), round_of(session.session_id, epoch)) is session
    assert registry.sessions.of(REPLICA) == [first, second]
    assert not registry.ended


def test_a_session_that_is_opened_anew_on_its_connection_takes_the_place_of_the_old_one() -> None:
    registry, connection = Registry(), PeerConnection()
    old = registry.open(connection=connection)
    new = registry.open(connection=connection)
    assert registry.ended == [old]
    assert registry.sessions.of(REPLICA) == [new]
    assert registry.sessions.of_round(connection, round_of(old.session_id, 1)) is None


def test_a_session_belongs_to_one_replica() -> None:
    registry, connection = Registry(), PeerConnection()
    session = registry.open(connection=connection)
    assert registry.sessions.of_round(connection, round_of(session.session_id, 1, replica_id=NodeId(8))) is None
    other = registry.open(NodeId(8), connection)
    assert not registry.ended, "whoever speaks behind a connection later does not end what it does not own"
    assert registry.sessions.of(NodeId(8)) == [other]


def test_a_session_without_an_id_cannot_be_continued() -> None:
    """Its replica lists everything each time (Kafka's own Raft)."""
    registry, connection = Registry(), PeerConnection()
    session = registry.sessions.of_round(connection, round_of(0, -1))
    assert session is not None and session.session_id == 0
    assert registry.sessions.of_round(connection, round_of(0, -1)) is session
    assert registry.sessions.of_round(connection, round_of(session.number, 1)) is None
    assert registry.sessions.of_round(connection, round_of(0, 1)) is None


def test_of_too_many_sessions_of_a_replica_the_longest_silent_one_goes() -> None:
    registry = Registry()
    sessions = [registry.open(at_ms=100 - index) for index in range(SESSIONS_OF_REPLICA_MAX)]
    registry.open(at_ms=200)
    assert registry.ended == [sessions[-1]]
    assert len(registry.sessions.of(REPLICA)) == SESSIONS_OF_REPLICA_MAX


def test_of_too_many_sessions_none_of_a_voter_goes_while_there_is_another() -> None:
    voter, stranger = NodeId(1), NodeId(500)
    registry = Registry(voters=(voter,))
    kept = registry.open(voter, at_ms=1)
    first = registry.open(stranger, at_ms=2)
    for index in range(SESSIONS_MAX - 1):
        registry.open(NodeId(1000 + index), at_ms=3 + index)
    assert registry.ended == [first]
    assert registry.sessions.of(voter) == [kept]
    assert not registry.sessions.of(stranger)


def test_even_where_everybody_claims_to_be_a_voter_there_is_a_bound() -> None:
    voters = tuple(NodeId(index) for index in range(SESSIONS_MAX + 1))
    registry = Registry(voters=voters)
    for voter in voters:
        registry.open(voter, at_ms=int(voter))
    assert [session.replica_id for session in registry.ended] == [voters[0]]
    assert len(list(registry.sessions.all())) == SESSIONS_MAX


def test_numbers_of_sessions_begin_again_behind_the_largest() -> None:
    registry = Registry(start=SESSION_ID_MAX - 1)
    assert [registry.open().session_id, registry.open().session_id] == [SESSION_ID_MAX, 1]


# --- two sessions of one replica at a leader ---


class TwoWays:
    """A replica that reaches the leader of a group on two connections."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        (self.group,) = self.cluster.create_topic("t")
        self.cluster.run(100)
        self.leader = self.cluster.leader(self.group)
        self.ways = (PeerConnection(), PeerConnection())

    def request(self) -> FetchRequest:
        core = self.leader.partitions[self.group].core
        return FetchRequest(
            replica=ReplicaKey(REPLICA),
            leader_epoch=core.epoch,
            fetch_offset=Offset(core.log_end),
            last_fetched_epoch=Epoch(core.epoch),
            high_watermark=core.high_watermark,
        )

    def send(self, way: int, session_id: int, epoch: int, *requests: FetchRequest) -> list[FetchReply]:
        replies: list[FetchReply] = []
        rpc = round_of(session_id, epoch, *(PeerMessage(self.group, request) for request in requests))
        self.leader.receive(self.ways[way], rpc, replies.append)  # type: ignore[arg-type]
        return replies

    def open(self, way: int) -> int:
        """A session that lists nothing yet."""
        replies = self.send(way, 0, 0)
        self.cluster.run(600, until=lambda: bool(replies))
        return replies[0].session_id

    def told(self, replies: list[FetchReply]) -> list[FetchResponse]:
        return [message.body for reply in replies for message in reply.messages if isinstance(message.body, FetchResponse)]


@pytest.fixture
def two_ways() -> TwoWays:
    return TwoWays()


def test_a_group_is_told_in_the_session_that_asked_for_it_last(two_ways: TwoWays) -> None:
    first, second = two_ways.open(0), two_ways.open(1)
    left = two_ways.send(0, first, 1, two_ways.request())
    asked = two_ways.send(1, second, 1, two_ways.request())
    two_ways.cluster.produce(two_ways.group, batch(b"news"))
    two_ways.cluster.run(50, until=lambda: bool(asked))
    (told,) = two_ways.told(asked)
    assert told.batches
    assert all(reply.error is ErrorCode.NONE for reply in left), "the other session goes on"
    assert two_ways.send(0, first, 2) == []


def test_a_late_round_on_one_way_does_not_leave_the_replica_waiting_on_the_other(two_ways: TwoWays) -> None:
    """The replica asks in the second session; its older round in the first one arrives behind it. The second session's round
    would otherwise end without a word about the group, which its replica takes for "nothing new"."""
    first, second = two_ways.open(0), two_ways.open(1)
    asked = two_ways.send(1, second, 1, two_ways.request())
    two_ways.send(0, first, 1, two_ways.request())
    two_ways.cluster.run(LEADERLESS_WAIT_MS - 2)
    assert not asked, "not at once: two processes that go by one number would take turns without a pause"
    two_ways.cluster.run(4)
    (told,) = two_ways.told(asked)
    assert told.error is ErrorCode.REQUEST_TIMED_OUT
    again = two_ways.send(1, second, 2, two_ways.request())
    two_ways.cluster.produce(two_ways.group, batch(b"news"))
    two_ways.cluster.run(50, until=lambda: bool(again))
    assert two_ways.told(again)[0].batches


def test_an_answer_to_an_older_question_is_not_given_for_a_newer_one(two_ways: TwoWays) -> None:
    """Both rounds arrive within one turn: what the core has said to the first is about another position."""
    first, second = two_ways.open(0), two_ways.open(1)
    core = two_ways.leader.partitions[two_ways.group].core
    behind = FetchRequest(
        replica=ReplicaKey(REPLICA), leader_epoch=core.epoch, fetch_offset=Offset(0), last_fetched_epoch=Epoch(0),
        high_watermark=Offset(0),
    )  # fmt: skip
    two_ways.send(0, first, 1, behind)
    asked = two_ways.send(1, second, 1, two_ways.request())
    two_ways.leader.run_turn()
    two_ways.cluster.run(100)
    assert not asked, "it is at the end of the log and waits"


def test_a_position_that_the_core_has_not_judged_is_told_nothing_of(two_ways: TwoWays) -> None:
    """The first session asks beyond the end of this log, behind records that diverge; before it is told so the second one asks.
    A high watermark would let the replica commit what diverges."""
    first, second = two_ways.open(0), two_ways.open(1)
    request = two_ways.request()
    diverged = replace(request, fetch_offset=Offset(request.fetch_offset + 3), last_fetched_epoch=Epoch(0))
    asked = two_ways.send(0, first, 1, diverged)
    two_ways.send(1, second, 1, request)
    two_ways.cluster.run(2 * LEADERLESS_WAIT_MS)
    (told,) = two_ways.told(asked)
    assert (told.error, told.high_watermark, told.batches) == (ErrorCode.REQUEST_TIMED_OUT, -1, ())


def test_a_read_is_proven_in_whichever_session_waits_for_the_group(two_ways: TwoWays) -> None:
    first, second = two_ways.open(0), two_ways.open(1)
    rounds = [two_ways.send(0, first, 1, two_ways.request()), two_ways.send(1, second, 1)]
    two_ways.leader.engine.begin_input()
    two_ways.leader.reads.read(two_ways.group, lambda result: None)
    two_ways.leader.run_turn()
    assert [len(replies) for replies in rounds] == [1, 1]


def test_a_round_is_not_held_for_as_long_as_it_likes() -> None:
    """Whoever says that it is a replica could have rounds held for weeks."""
    cluster = Cluster()
    leader = cluster.leader()
    replies: list[FetchReply] = []
    rpc = replace(round_of(0, -1), wait_ms_max=(1 << 31) - 1)
    leader.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    cluster.run(ROUND_WAIT_MS_MAX - 1_000)
    assert not replies
    cluster.run(1_000)
    assert [reply.error for reply in replies] == [ErrorCode.NONE]


# --- what a replica is told of others ---


def test_a_session_is_told_each_report_once() -> None:
    session = Registry().open()
    first, second = SyncReport((), ()), SyncReport((3,), ())
    told = [session.news_of(report) for report in (first, first, second, second, first)]
    assert told == [first, None, second, None, first]


def test_a_replica_without_sessions_is_told_nothing() -> None:
    """Kafka's own nodes would only pass it over, in each of their rounds."""
    assert Session(REPLICA, 5, 0).news_of(SyncReport((3,), ())) is None


def test_when_a_replica_was_heard_last_over_all_its_sessions() -> None:
    registry = Registry()
    assert registry.sessions.heard_ms(REPLICA) == NEVER_MS
    registry.open(at_ms=70)
    registry.open(at_ms=90)
    registry.open(at_ms=80)
    assert registry.sessions.heard_ms(REPLICA) == 90
    assert registry.sessions.heard_ms(NodeId(8)) == NEVER_MS


def test_a_round_covers_a_group_that_waits_in_the_same_epoch() -> None:
    registry = Registry()
    session = registry.open(at_ms=90)
    group = GroupId("t", 0, bytes(range(16)))
    assert registry.sessions.covered_ms(REPLICA, group, Epoch(3)) == NEVER_MS
    session.parked[group] = FetchRequest(
        replica=ReplicaKey(REPLICA), leader_epoch=Epoch(3), fetch_offset=Offset(5), last_fetched_epoch=Epoch(3),
        high_watermark=Offset(5), log_start_offset=Offset(0),
    )  # fmt: skip
    assert registry.sessions.covered_ms(REPLICA, group, Epoch(3)) == 90
    assert registry.sessions.covered_ms(REPLICA, group, Epoch(4)) == NEVER_MS
