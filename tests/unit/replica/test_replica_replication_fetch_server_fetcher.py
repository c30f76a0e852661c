"""Fetch sessions between nodes: what a round lists, when it is answered, and what it proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from compactkit import Asked, LogInTheMaking, compact
from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId, PeerMessage
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from raftlake.raft.types import Epoch, NodeId, Offset, ReplicaKey
from raftlake.replica.node import ReplicaNode
from raftlake.replica.replication.fetch_sessions import SESSIONS_MAX
from raftlake.replica.replication.fetcher import cut_into_batches
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import iterate_headers
from replica_cluster import Cluster, batch, produce_request

OBSERVER = NodeId(9)


def _request(node: ReplicaNode, group: GroupId, offset: int | None = None) -> FetchRequest:
    core = node.partitions[group].core
    return FetchRequest(
        replica=ReplicaKey(OBSERVER),
        leader_epoch=core.epoch,
        fetch_offset=Offset(core.log_end if offset is None else offset),
        last_fetched_epoch=Epoch(core.epoch if offset is None else 0),
        high_watermark=core.high_watermark,
    )


class Fetching:
    """An observer that speaks the session protocol by hand to the leader of one group."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        (self.group,) = self.cluster.create_topic("t")
        self.leader = self.cluster.leader(self.group)
        self.cluster.run(100)
        self.connection = PeerConnection()

    def send(
        self, session_id: int, epoch: int, *requests: FetchRequest, wait_ms: int = 500, group: GroupId | None = None
    ) -> list[FetchReply]:
        replies: list[FetchReply] = []
        rpc = FetchRpc(
            cluster_id=None,
            replica_id=OBSERVER,
            session_id=session_id,
            session_epoch=epoch,
            wait_ms_max=wait_ms,
            size_max=1 << 20,
            messages=tuple(PeerMessage(group or self.group, request) for request in requests),
        )
        self.leader.receive(self.connection, rpc, replies.append)  # type: ignore[arg-type]
        return replies

    def open(self) -> FetchReply:
        """The first round of a session, from the log's start: it gets the LeaderChange record."""
        replies = self.send(0, 0, _request(self.leader, self.group, 0))
        self.cluster.run(5, until=lambda: bool(replies))
        return replies[0]


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def test_a_session_is_opened_and_its_next_round_is_parked_until_there_is_news(fetching: Fetching) -> None:
    opened = fetching.open()
    assert opened.session_id > 0
    assert [message.group for message in opened.messages] == [fetching.group]
    replies = fetching.send(opened.session_id, 1, _request(fetching.leader, fetching.group))
    fetching.cluster.run(100)
    assert not replies
    fetching.cluster.produce(fetching.group, batch(b"x"))
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert message.body.batches


def test_a_round_without_news_ends_after_its_wait_and_lists_nothing(fetching: Fetching) -> None:
    opened = fetching.open()
    replies = fetching.send(opened.session_id, 1, _request(fetching.leader, fetching.group), wait_ms=50)
    fetching.cluster.run(60)
    assert replies == [FetchReply(error=ErrorCode.NONE, session_id=opened.session_id)]
    # The group is parked still: the next round does not have to list it to hear of an append.
    later = fetching.send(opened.session_id, 2)
    fetching.cluster.produce(fetching.group, batch(b"x"))
    assert [message.group for message in later[0].messages] == [fetching.group]


def behind(fetching: Fetching) -> tuple[FetchReply, FetchRequest]:
    """A session, and a fetch at the log end of a replica that knows an older high watermark."""
    request = _request(fetching.leader, fetching.group)
    return fetching.open(), replace(request, high_watermark=Offset(request.high_watermark - 1))


def test_news_of_a_high_watermark_alone_waits_a_little_for_records(fetching: Fetching) -> None:
    opened, request = behind(fetching)
    replies = fetching.send(opened.session_id, 1, request)
    linger_ms = fetching.leader.config.replica_fetch_linger_ms
    fetching.cluster.run(linger_ms - 1)
    assert not replies
    fetching.cluster.run(2)
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert (message.body.high_watermark, message.body.batches) == (request.high_watermark + 1, ())


def test_records_take_the_waiting_high_watermark_along_at_once(fetching: Fetching) -> None:
    opened, request = behind(fetching)
    fetching.cluster.run(fetching.leader.config.replica_fetch_pause_ms)
    replies = fetching.send(opened.session_id, 1, request)
    fetching.cluster.run(1)
    assert not replies
    fetching.cluster.send(fetching.leader, ApiKey.PRODUCE, produce_request(fetching.group, batch(b"x")), version=9)
    fetching.leader.run_turn()
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert message.body.batches
    assert message.body.high_watermark > request.high_watermark


def test_a_read_takes_the_waiting_high_watermark_along_at_once(fetching: Fetching) -> None:
    opened, request = behind(fetching)
    replies = fetching.send(opened.session_id, 1, request)
    fetching.cluster.run(1)
    assert not replies
    fetching.leader.engine.begin_input()
    fetching.leader.reads.read(fetching.group, lambda result: None)
    fetching.leader.run_turn()
    assert len(replies) == 1


def test_a_replica_that_waits_for_it_is_brought_a_high_watermark_at_once(fetching: Fetching) -> None:
    opened, request = behind(fetching)
    replies = fetching.send(opened.session_id, 1, request)
    fetching.leader.fetch_server.hasten(fetching.group, OBSERVER)
    fetching.cluster.run(1)
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse) and message.body.high_watermark > request.high_watermark


def test_a_replica_that_waits_is_brought_records_without_a_pause(fetching: Fetching) -> None:
    opened = fetching.open()
    replies = fetching.send(opened.session_id, 1, _request(fetching.leader, fetching.group))
    fetching.cluster.run(1)
    fetching.cluster.send(fetching.leader, ApiKey.PRODUCE, produce_request(fetching.group, batch(b"x")), version=9)
    fetching.leader.run_turn()
    assert not replies, "its last round was answered a moment ago, and a majority does without it"
    fetching.leader.fetch_server.hasten(fetching.group, OBSERVER)
    fetching.cluster.run(1)
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse) and message.body.batches


def test_a_replica_that_waits_and_is_on_its_way_is_answered_when_it_comes(fetching: Fetching) -> None:
    opened = fetching.open()
    fetching.leader.fetch_server.hasten(fetching.group, OBSERVER)
    fetching.cluster.run(1)
    request = _request(fetching.leader, fetching.group)
    fetching.cluster.run(100)
    replies = fetching.send(opened.session_id, 1, request)
    fetching.leader.run_turn()
    assert len(replies) == 1


def test_a_replica_that_has_all_is_left_parked_and_other_replicas_are_too(fetching: Fetching) -> None:
    opened, request = behind(fetching)
    replies = fetching.send(opened.session_id, 1, request)
    for stranger in (NodeId(8), NodeId(-1)):
        fetching.leader.fetch_server.hasten(fetching.group, stranger)
    fetching.cluster.run(1)
    assert not replies
    fetching.cluster.run(fetching.leader.config.replica_fetch_linger_ms + 1)
    parked = fetching.send(opened.session_id, 2, _request(fetching.leader, fetching.group))
    fetching.leader.fetch_server.hasten(fetching.group, OBSERVER)
    fetching.cluster.run(100)
    assert replies and not parked


@pytest.mark.parametrize("change", [(0, 5), (1, 1), (0, 0)], ids=["foreign session", "skipped round", "repeated round"])
def test_a_round_out_of_sequence_breaks_the_session(fetching: Fetching, change: tuple[int, int]) -> None:
    opened = fetching.open()
    replies = fetching.send(opened.session_id + change[0], change[1] or 0)
    assert replies[0].error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_new_session_ends_the_round_that_the_old_one_left(fetching: Fetching) -> None:
    opened = fetching.open()
    left = fetching.send(opened.session_id, 1, _request(fetching.leader, fetching.group))
    fetching.open()
    assert left[0].error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_group_that_is_not_hosted_is_answered_soon_but_not_at_once(fetching: Fetching) -> None:
    request = _request(fetching.leader, fetching.group, 0)
    replies = fetching.send(0, 0, request, group=GroupId("other", 0, bytes(15) + b"\x07"))
    fetching.cluster.run(10)
    assert not replies
    fetching.cluster.run(30)
    (message,) = replies[0].messages
    assert isinstance(message.body, FetchResponse)
    assert message.body.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_of_another_cluster_is_refused_at_the_top(fetching: Fetching) -> None:
    fetching.cluster.run(3000)
    replies: list[FetchReply] = []
    rpc = FetchRpc(
        cluster_id="foreign", replica_id=OBSERVER, session_id=0, session_epoch=0, wait_ms_max=0, size_max=1, messages=()
    )
    fetching.leader.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    assert replies[0].error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_what_does_not_fit_into_one_answer_comes_with_the_next(fetching: Fetching) -> None:
    others = fetching.cluster.create_topic("other", 3)
    other = next(group for group in others if fetching.cluster.leader(group) is fetching.leader)
    replies: list[FetchReply] = []
    parts = tuple(PeerMessage(group, _request(fetching.leader, group, 0)) for group in (fetching.group, other))
    rpc = FetchRpc(
        cluster_id=None, replica_id=OBSERVER, session_id=0, session_epoch=0, wait_ms_max=500, size_max=1, messages=parts
    )
    fetching.leader.receive(fetching.connection, rpc, replies.append)  # type: ignore[arg-type]
    fetching.cluster.run(5, until=lambda: bool(replies))
    assert [message.group for message in replies[0].messages] == [fetching.group]
    rest = fetching.send(replies[0].session_id, 1)
    fetching.cluster.run(5, until=lambda: bool(rest))
    assert [message.group for message in rest[0].messages] == [other]


def test_an_answer_tells_where_the_log_ends_whatever_it_brings(fetching: Fetching) -> None:
    """A follower that lost its own end goes by it (`raft.impairment`): room for one batch, a pause, or nothing to send must not
    make the log look shorter than it is."""
    for _ in range(3):
        fetching.cluster.produce(fetching.group, batch(b"x"))
    end = fetching.leader.partitions[fetching.group].core.log_end
    rpc = FetchRpc(
        cluster_id=None,
        replica_id=OBSERVER,
        session_id=0,
        session_epoch=0,
        wait_ms_max=500,
        size_max=1,
        messages=(PeerMessage(fetching.group, _request(fetching.leader, fetching.group, 0)),),
    )
    replies: list[FetchReply] = []
    fetching.leader.receive(fetching.connection, rpc, replies.append)  # type: ignore[arg-type]
    # It arrives while the answer waits for the end of the turn.
    fetching.cluster.send(fetching.leader, ApiKey.PRODUCE, produce_request(fetching.group, batch(b"late")), version=9)
    fetching.cluster.run(5, until=lambda: bool(replies))
    body = replies[0].messages[0].body
    assert isinstance(body, FetchResponse)
    (first,) = cut_into_batches(body).batches
    assert first.end_offset < end < body.leader_log_end == end + 1
    assert cut_into_batches(body).leader_log_end == body.leader_log_end
    # Of the same position with nothing to send: only a high watermark.
    opened, request = behind(fetching)
    news = fetching.send(opened.session_id, 1, request)
    fetching.cluster.run(20, until=lambda: bool(news))
    body = news[0].messages[0].body
    assert isinstance(body, FetchResponse)
    assert (body.batches, body.leader_log_end) == ((), end + 1)


def test_who_does_not_lead_tells_no_log_end(fetching: Fetching) -> None:
    follower = fetching.cluster.followers(fetching.group)[0]
    replies: list[FetchReply] = []
    rpc = FetchRpc(
        cluster_id=None,
        replica_id=OBSERVER,
        session_id=0,
        session_epoch=0,
        wait_ms_max=50,
        size_max=1,
        messages=(PeerMessage(fetching.group, _request(follower, fetching.group, 0)),),
    )
    follower.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    fetching.cluster.run(100, until=lambda: bool(replies))
    body = replies[0].messages[0].body
    assert isinstance(body, FetchResponse)
    assert (body.error, body.leader_log_end) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


# --- the causal clock ---


def _follows_of(fetching: Fetching, act: Callable[[], object]) -> int:
    """The `follows` that the core of the group is told when `act` sends a round."""
    seen: list[int] = []
    core = fetching.leader.partitions[fetching.group].core
    step = fetching.leader.engine.step

    def spy(partition: object, event: object) -> None:
        follows = getattr(event, "follows", None)
        if follows is not None:
            seen.append(follows)
        step(partition, event)  # type: ignore[arg-type]

    fetching.leader.engine.step = spy  # type: ignore[method-assign, assignment]
    act()
    fetching.leader.engine.step = step  # type: ignore[method-assign]
    assert core is fetching.leader.partitions[fetching.group].core
    return seen[-1]


def test_the_first_round_of_a_session_proves_nothing(fetching: Fetching) -> None:
    request = _request(fetching.leader, fetching.group, 0)
    assert _follows_of(fetching, lambda: fetching.send(0, 0, request)) == 0


def test_a_continued_session_follows_the_answer_to_its_last_round(fetching: Fetching) -> None:
    opened = fetching.open()
    answered = fetching.leader.fetch_server.answer_sequence
    request = _request(fetching.leader, fetching.group)
    assert 0 < _follows_of(fetching, lambda: fetching.send(opened.session_id, 1, request)) <= answered


def test_a_round_sent_before_the_last_answer_arrived_follows_an_older_one(fetching: Fetching) -> None:
    opened = fetching.open()
    first = _follows_of(fetching, lambda: fetching.send(opened.session_id, 1, _request(fetching.leader, fetching.group)))
    # The node answers round 1 to make room for round 2; its sender cannot have seen that answer.
    second = _follows_of(fetching, lambda: fetching.send(opened.session_id, 2, _request(fetching.leader, fetching.group)))
    assert second == first


def test_without_a_session_the_order_of_the_connection_is_the_clock(fetching: Fetching) -> None:
    request = _request(fetching.leader, fetching.group, 0)
    assert _follows_of(fetching, lambda: fetching.send(0, -1, request)) == 0
    fetching.cluster.run(10)
    answered = fetching.connection.answer_sequence
    assert answered > 0
    assert _follows_of(fetching, lambda: fetching.send(0, -1, _request(fetching.leader, fetching.group))) == answered


# --- the follower's side ---


def test_without_a_session_every_group_is_answered(fetching: Fetching) -> None:
    """Kafka's Raft takes an answer that does not name its log for a broken one."""
    core = fetching.leader.partitions[fetching.group].core
    for _ in range(2):
        replies = fetching.send(0, -1, _request(fetching.leader, fetching.group), wait_ms=200)
        fetching.cluster.run(150)
        assert not replies, "there is no news, so it waits"
        fetching.cluster.run(100)
        (message,) = replies[0].messages
        assert message.group == fetching.group
        body = message.body
        assert isinstance(body, FetchResponse)
        assert (body.error, body.leader_id, body.leader_epoch) == (ErrorCode.NONE, core.leader_id, core.epoch)
        assert (body.high_watermark, body.batches) == (core.high_watermark, ())
    # Records that come later are told by the next round, once.
    replies = fetching.send(0, -1, _request(fetching.leader, fetching.group))
    fetching.cluster.produce(fetching.group, batch(b"news"))
    fetching.cluster.run(50, until=lambda: bool(replies))
    assert len(replies) == 1 and replies[0].messages[0].body.batches  # type: ignore[union-attr]


def test_idle_groups_are_not_listed_in_rounds() -> None:
    cluster = Cluster()
    groups = cluster.create_topic("many", 9)
    cluster.run(2000)
    busy = groups[0]
    leader = cluster.leader(busy)
    listed: list[int] = []
    receive = leader.receive

    def spy(connection: object, rpc: object, reply: object) -> None:
        if isinstance(rpc, FetchRpc):
            listed.append(len(rpc.messages))
        receive(connection, rpc, reply)  # type: ignore[arg-type]

    leader.receive = spy  # type: ignore[method-assign, assignment]
    for _ in range(5):
        cluster.produce(busy, batch(b"x"))
    cluster.run(50)
    assert max(listed) == 1


def test_idle_groups_stay_with_their_leader_for_longer_than_any_timeout() -> None:
    cluster = Cluster()
    groups = cluster.create_topic("idle", 6)
    epochs = {group: cluster.leader(group).partitions[group].core.epoch for group in groups}
    cluster.run(20_000)
    assert {group: cluster.leader(group).partitions[group].core.epoch for group in groups} == epochs


def test_damaged_batches_in_an_answer_are_cut_off_with_what_follows_them() -> None:
    good, bad, behind = batch(b"a", base_offset=5), batch(b"b", base_offset=6), batch(b"c", base_offset=7)
    bad[-1] ^= 0xFF
    data = bytes(good + bad + behind)
    response = FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(1))
    whole = FetchedBatch(base_offset=Offset(5), end_offset=Offset(8), epoch=Epoch(1), payload=data)
    cut = cut_into_batches(
        FetchResponse(error=response.error, leader_id=response.leader_id, leader_epoch=response.leader_epoch, batches=(whole,))
    )
    assert [(part.base_offset, part.end_offset) for part in cut.batches] == [(5, 6)]
    assert len(list(iterate_headers(data))) == 3


def test_batches_that_compaction_has_left_are_taken() -> None:
    """A batch of three offsets with two records, and one of four offsets without any."""
    log = LogInTheMaking()
    log.data(("a", "1"), ("b", "1"), ("c", "1"))
    log.data(*[("a", "2")] * 4)
    log.data(("a", "3"))
    batches = compact(log.batches, Asked(until=log.end)).batches
    whole = FetchedBatch(base_offset=Offset(0), end_offset=Offset(8), epoch=Epoch(1), payload=b"".join(batches))
    response = FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(1), batches=(whole,))
    assert [(part.base_offset, part.end_offset) for part in cut_into_batches(response).batches] == [(0, 3), (3, 7), (7, 8)]
    damaged = b"".join(batches[:2]) + batches[2][:-1] + b"?"
    response = replace(response, batches=(replace(whole, payload=damaged),))
    assert [(part.base_offset, part.end_offset) for part in cut_into_batches(response).batches] == [(0, 3), (3, 7)]


def test_whoever_claims_to_be_a_replica_is_remembered_only_up_to_a_number() -> None:
    fetching = Fetching()
    server = fetching.leader.fetch_server
    replies: list[FetchReply] = []
    for stranger in range(1000, 1000 + 2 * SESSIONS_MAX):
        rpc = FetchRpc(
            cluster_id=None, replica_id=NodeId(stranger), session_id=0, session_epoch=0, wait_ms_max=60_000, size_max=1,
            messages=(),
        )  # fmt: skip
        fetching.leader.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    remembered = [session.replica_id for session in server.sessions.all()]
    assert len(remembered) == SESSIONS_MAX
    assert set(fetching.cluster.voters) - {fetching.leader.config.node_id} <= set(remembered), "voters stay"
    gone = [reply.error for reply in replies]
    assert gone and set(gone) == {ErrorCode.FETCH_SESSION_ID_NOT_FOUND}, "whoever waited was told"
    assert fetching.cluster.produce(fetching.group, batch(b"x")).error is ErrorCode.NONE


def test_an_answer_does_not_speak_for_a_group_that_was_asked_about_after_it() -> None:
    """A leader that had resigned kept followers of one group from campaigning: it went on answering rounds for other groups,
    and whenever a fetch timeout ended, the question about the one was on its way again."""
    cluster = Cluster()
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.run(1000)
    follower = next(node for node in cluster.nodes.values() if node is not leader)
    fetcher = follower.fetchers._fetchers[leader.config.node_id]
    assert fetcher.confirm(group)
    follower.engine.begin_input()
    fetcher.want(group, fetcher._parked[group])
    assert not fetcher.confirm(group), "the question has not left yet"
    cluster.run(600, until=lambda: group not in fetcher._wanted)
    assert not fetcher.confirm(group), "the round with the question is under way"
    cluster.run(600, until=lambda: not fetcher._under_way)
    cluster.run(600)
    assert fetcher.confirm(group)
