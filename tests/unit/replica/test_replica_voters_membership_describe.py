"""The services about voters, each alone on an engine: addresses in keys, changes, the own vote, a description."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import DIRECTORY, ME, METADATA_GROUP, ORDERS, THREE, TWO, Ground, Noted
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Put, Txn, encode, put
from raftlake.kv.keys import CLUSTER_KEY, node_key
from raftlake.ports.peer_rpcs import VoterRpc
from raftlake.raft.actions import AnswerVoterChange
from raftlake.raft.events import FetchRequestReceived
from raftlake.raft.messages import AddVoter, FetchRequest
from raftlake.raft.types import DirectoryId, ReplicaKey
from raftlake.replica.config import Endpoint
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.quorum import Quorum, endpoints_of
from raftlake.replica.voters.changes import VoterChanges
from raftlake.replica.voters.cluster_identity import ClusterIdentity
from raftlake.replica.voters.describe import CLOCK_MS, Describer
from raftlake.replica.voters.membership import (
    RETRY_INTERVAL_MS,
    SPOILT_WAIT_MS,
    Membership,
    addresses_value,
    cluster_value,
)
from raftlake.replica.voters.own_vote import OwnVote
from raftlake.wire.ids import id_to_text

NEW = Endpoint("h", 9094)


class Keys:
    """Stands for the key-value service: what is proposed is noted, what the test commits is applied."""

    def __init__(self) -> None:
        self.state = KvState()
        self.machine = self.state.machine
        self.listeners: list[Any] = []
        self.proposed: list[Any] = []

    def propose_anywhere(self, txn: Any, done: Any) -> None:
        self.proposed.append((txn, done))

    def commit(self, record: bytes) -> None:
        self.machine.apply(max(1, self.machine.applied_offset), record)
        for listener in self.listeners:
            listener(self.machine.applied_offset)


def member(ground: Ground) -> tuple[Membership, Keys]:
    keys, quorum = Keys(), Quorum(ground.engine)
    identity = ClusterIdentity(ground.engine, quorum, Noted())  # type: ignore[arg-type]
    return Membership(ground.engine, quorum, keys, Noted(), identity), keys  # type: ignore[arg-type]


def test_the_address_of_a_node_is_known_from_its_key_until_that_is_deleted() -> None:
    membership, keys = member(Ground(3))
    assert list(membership.nodes()) == [ME]
    keys.commit(encode(put(node_key(TWO), b'{"host": "two", "port": 7, "http_host": "two", "http_port": 8}', 0)))
    assert membership.nodes() == {ME: Endpoint("h", 9091), TWO: Endpoint("two", 7)}
    assert (membership.endpoint(TWO), membership.http_endpoint(TWO)) == (Endpoint("two", 7), Endpoint("two", 8))
    keys.commit(encode(put(node_key(TWO), b"nonsense")))
    assert list(membership.nodes()) == [ME] and membership.http_endpoint(TWO) is None


def test_the_clusters_id_is_learned_once() -> None:
    ground = Ground()
    _, keys = member(ground)
    first, second = id_to_text(b"1" * 16), id_to_text(b"2" * 16)
    for cluster_id in (first, second):
        keys.commit(encode(put(CLUSTER_KEY, cluster_value(cluster_id))))
        assert ground.engine.cluster_id == first


def test_a_node_writes_its_own_address_one_attempt_at_a_time() -> None:
    ground = Ground(cluster_id="known")
    membership, keys = member(ground)
    keys.commit(encode(put(CLUSTER_KEY, cluster_value("known"))))
    membership.tick()
    assert keys.proposed == [], "no leader has been heard of"
    ground.lead()
    membership.tick()
    ground.run(RETRY_INTERVAL_MS)
    membership.tick()
    ((txn, done),) = keys.proposed
    assert [operation.key for operation in txn.ops] == [node_key(ME)]
    keys.commit(encode(txn))
    done(ProposeOutcome(ProposeStatus.DONE))
    membership.tick()
    assert len(keys.proposed) == 1, "it stands there"


def test_the_leader_of_a_quorum_without_an_id_gives_it_one_at_once() -> None:
    ground = Ground(cluster_id=None)
    membership, keys = member(ground)
    ground.lead()
    membership.tick()
    ((txn, done),) = keys.proposed
    keys.commit(encode(txn))
    done(ProposeOutcome(ProposeStatus.DONE))
    assert ground.engine.cluster_id is not None
    assert txn == Txn((Compare(CLUSTER_KEY, 0),), (Put(CLUSTER_KEY, cluster_value(ground.engine.cluster_id)),))


def test_a_node_that_does_not_serve_as_leader_gives_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(cluster_id=None)
    membership, keys = member(ground)
    ground.lead()
    monkeypatch.setattr(Partition, "is_serving", False)
    membership.tick()
    assert keys.proposed == []


@pytest.mark.parametrize(
    ("standing", "is_led", "is_written"),
    [
        (None, True, True),
        (None, False, False),
        (cluster_value("another"), True, True),
        (cluster_value("another"), False, False),
        (cluster_value("known"), True, False),
        (b"{}", True, True),
        (b"{}", False, True),
    ],
)
def test_an_id_that_is_known_stands_under_the_key_where_the_leader_has_another_or_none(
    standing: bytes | None, is_led: bool, is_written: bool
) -> None:
    """A node that was formatted without an id never learned that of a quorum whose nodes were formatted with one. It told no
    client where it is, and gave the quorum a second id when it led."""
    ground = Ground(cluster_id="known")
    membership, keys = member(ground)
    if standing is not None:
        keys.commit(encode(put(CLUSTER_KEY, standing)))
    keys.commit(encode(put(node_key(ME), addresses_value(ground.engine.config))))
    partition = ground.lead()
    entry = keys.machine.get(CLUSTER_KEY)
    if not is_led:
        membership._led_ms = lambda: -1  # type: ignore[method-assign]
    assert partition.high_watermark > 0
    membership.tick()
    wanted = Txn((Compare(CLUSTER_KEY, 0 if entry is None else entry.version),), (Put(CLUSTER_KEY, cluster_value("known")),))
    assert [txn for txn, _ in keys.proposed] == ([wanted] if is_written else [])


def test_an_id_that_no_key_can_hold_is_not_proposed_again_and_again() -> None:
    ground = Ground(cluster_id="a:b")
    membership, keys = member(ground)
    keys.commit(encode(put(node_key(ME), addresses_value(ground.engine.config))))
    ground.lead()
    membership.tick()
    assert keys.proposed == []


def test_a_leader_leaves_nonsense_to_others_as_long_in_each_of_its_epochs() -> None:
    ground = Ground(cluster_id=None)
    membership, keys = member(ground)
    keys.commit(encode(put(CLUSTER_KEY, b"{}")))
    for _ in range(2):
        # The second time it has led before.
        ground.lead()
        for _ in range(SPOILT_WAIT_MS):
            membership.tick()
            ground.run(1)
        assert keys.proposed == []
    membership.tick()
    assert len(keys.proposed) == 1


def test_nonsense_in_the_place_of_an_id_that_nobody_knows_is_replaced_after_a_while() -> None:
    """No node could tell its address before. A follower leaves it to the leader, and the leader to nodes that know the id."""
    ground = Ground(cluster_id=None)
    membership, keys = member(ground)
    keys.commit(encode(put(CLUSTER_KEY, b"{}")))
    membership.tick()
    ground.run(2 * SPOILT_WAIT_MS)
    membership.tick()
    assert keys.proposed == [], "it does not lead"
    ground.lead()
    for _ in range(SPOILT_WAIT_MS):
        membership.tick()
        ground.run(1)
    assert keys.proposed == []
    membership.tick()
    ((txn, done),) = keys.proposed
    keys.commit(encode(txn))
    done(ProposeOutcome(ProposeStatus.DONE))
    assert ground.engine.cluster_id is not None


# --- changes ---


def test_the_network_is_told_where_the_voters_are_when_they_are_others() -> None:
    ground = Ground(3)
    changes = VoterChanges(ground.engine, Quorum(ground.engine), Noted(), Noted())  # type: ignore[arg-type]
    changes.meet_voters()
    assert ground.wires.met == {node_id: Endpoint("h", 9090 + node_id) for node_id in (ME, TWO, THREE)}
    ground.wires.met.clear()
    changes.meet_voters()
    assert ground.wires.met == {}


def test_a_new_voter_is_asked_at_its_endpoint_before_the_core_is() -> None:
    ground = Ground(directory_id=DIRECTORY)
    partition = ground.lead()
    released = Noted()
    changes = VoterChanges(ground.engine, Quorum(ground.engine), released, Noted())  # type: ignore[arg-type]
    answers: list[AnswerVoterChange] = []
    voter = ReplicaKey(TWO, DirectoryId(b"\2" * 16))
    partition.core.role.observers[TWO] = SimpleNamespace(key=voter)  # type: ignore[union-attr, index]
    changes.admit(partition, AddVoter(voter=voter, endpoints=endpoints_of(Endpoint("h", 9091))), answers.append)
    assert [answer.error for answer in answers] == [ErrorCode.INVALID_REQUEST], "that is this node's address"
    changes.admit(partition, AddVoter(voter=voter, endpoints=endpoints_of(NEW)), answers.append)
    changes.admit(partition, AddVoter(voter=voter, endpoints=endpoints_of(NEW)), answers.append)
    assert [answer.error for answer in answers[1:]] == [ErrorCode.REQUEST_TIMED_OUT], "one endpoint is asked at a time"
    ((address, done),) = ground.wires.probed
    assert address == NEW
    stepped: list[Any] = []
    ground.engine.step = lambda partition, event: stepped.append(event)  # type: ignore[method-assign]
    done((0, 1))
    assert [(event.change.voter, event.change.kraft_versions) for event in stepped] == [(voter, (0, 1))]
    assert released.names == ["release_replica", "confirm"]


def test_whoever_waits_is_answered_when_the_group_is_closed() -> None:
    ground = Ground(3)
    partition = ground.host(ORDERS)
    changes = VoterChanges(ground.engine, Quorum(ground.engine), Noted(), Noted())  # type: ignore[arg-type]
    answers: list[AnswerVoterChange] = []
    ground.engine.step = lambda partition, event: None  # type: ignore[method-assign]
    changes.request(partition, AddVoter(voter=ReplicaKey(TWO), endpoints=()), answers.append)
    changes.drop(partition)
    changes.drop(partition)
    assert [answer.error for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


# --- the own vote ---


def test_a_leader_that_has_moved_asks_itself_and_tells_what_came_of_it() -> None:
    ground = Ground(directory_id=DIRECTORY)
    ground.lead()
    asked: list[tuple[VoterRpc, Any]] = []
    own_vote = OwnVote(ground.engine, Quorum(ground.engine), lambda rpc, reply: asked.append((rpc, reply)))
    own_vote.tick()
    assert asked == [], "the log says where it is"
    moved = Ground(directory_id=DIRECTORY, voters={ME: NEW})
    moved.disk.logs, moved.disk.elections = ground.disk.logs, ground.disk.elections
    moved.lead()
    own_vote = OwnVote(moved.engine, Quorum(moved.engine), lambda rpc, reply: asked.append((rpc, reply)))
    own_vote.tick()
    own_vote.tick()
    ((rpc, _),) = asked
    request: Any = rpc.request
    assert (request.voter_id, [each.port for each in request.listeners]) == (ME, [NEW.port])
    assert moved.wires.sent == []


# --- the description ---


def test_a_leader_describes_its_replicas_and_a_follower_only_who_votes() -> None:
    ground = Ground()
    describer = Describer(ground.engine, Names(ground.engine.config), Quorum(ground.engine), Noted())  # type: ignore[arg-type]
    assert describer.describe() is None
    partition = ground.lead()
    described = describer.describe()
    assert described is not None and described.leader_id == ME
    assert [voter.log_end_offset for voter in described.voters] == [partition.core.log_end]
    assert describer.describe("none", 0) is None
    other = Ground(3)
    following = Describer(other.engine, Names(other.engine.config), Quorum(other.engine), Noted()).of(other.host())  # type: ignore[arg-type]
    assert [(voter.replica_id, voter.log_end_offset) for voter in following.voters] == [(ME, -1), (TWO, -1), (THREE, -1)]
    assert METADATA_GROUP in other.engine.partitions


def test_the_time_of_a_fetch_does_not_move_by_itself() -> None:
    """The two clocks are read one after the other, in whole ms. A node that was gone seemed to fetch 1 ms later."""
    ground = Ground()
    partition = ground.lead()
    describer = Describer(ground.engine, Names(ground.engine.config), Quorum(ground.engine), Noted())  # type: ignore[arg-type]
    ground.run(100)
    wall_ms, end, epoch = ground.time.wall_ms(), partition.core.log_end, partition.core.epoch
    fetch = FetchRequest(
        replica=ReplicaKey(TWO, DIRECTORY),
        leader_epoch=epoch,
        fetch_offset=end,
        last_fetched_epoch=epoch,
        high_watermark=end,
    )
    ground.engine.step(partition, FetchRequestReceived(request=fetch, follows=0))

    def told(moved_ms: int) -> int:
        ground.time.wall_ms = lambda: wall_ms + moved_ms  # type: ignore[method-assign]
        described = describer.describe()
        assert described is not None
        (observer,) = described.observers
        return observer.last_fetch_timestamp_ms

    assert {told(moved_ms) for moved_ms in (0, 1, -1, CLOCK_MS)} == {wall_ms}
    assert told(60_000) == wall_ms + 60_000, "somebody set the wall clock"
    assert told(60_000 - CLOCK_MS) == wall_ms + 60_000
