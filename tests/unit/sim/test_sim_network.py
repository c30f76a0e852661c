"""The simulated network: each call ends once, faults do what they say, connections order and forget as real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchReply,
    FetchRpc,
    GroupId,
    PeerReply,
    PeerRpc,
    ProposeReply,
    ProposeRpc,
)
from raftlake.raft.events import FailureReason
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.network import NetworkSettings, SimulatedNetwork

CONTROL = ControlRpc(cluster_id=None, messages=())
FETCH = FetchRpc(cluster_id=None, replica_id=NodeId(1), session_id=0, session_epoch=0, wait_ms_max=500, size_max=1, messages=())
OK = ControlReply(error=ErrorCode.NONE)
ONE, TWO = NodeId(1), NodeId(2)


class FakePeer:
    """Answers everything at once unless told to hold."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.holding = False
        self.requests: list[tuple[NodeId, PeerRpc, PeerConnection]] = []
        self.held: list[Callable[[PeerReply], None]] = []
        self.unreachable: list[NodeId] = []
        self.epoch = 5
        self.told_epochs: list[Mapping[GroupId, int]] = []

    def port_call(self, name: str) -> None:
        """Never crashes."""

    def epochs(self) -> dict[GroupId, int]:
        return {METADATA_GROUP: self.epoch}

    def deliver_request(
        self,
        incarnation: int,
        source: NodeId,
        connection: PeerConnection,
        rpc: PeerRpc,
        reply: Callable[[PeerReply], None],
        epochs: Mapping[GroupId, int],
    ) -> None:
        assert incarnation == self.incarnation
        self.requests.append((source, rpc, connection))
        self.told_epochs.append(epochs)
        if self.holding:
            self.held.append(reply)
        else:
            reply(FetchReply(error=ErrorCode.NONE) if isinstance(rpc, FetchRpc) else OK)

    def deliver_answer(
        self,
        incarnation: int,
        source: NodeId,
        answer: PeerReply | FailureReason,
        done: Callable[[PeerReply | FailureReason], None],
    ) -> None:
        if incarnation == self.incarnation:
            done(answer)

    def deliver_unreachable(self, incarnation: int, peer: NodeId) -> None:
        if incarnation == self.incarnation:
            self.unreachable.append(peer)

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None:
        if incarnation == self.incarnation:
            call()


class Wires:
    """Two peers and a network between them."""

    def __init__(self, **settings: int) -> None:
        self.scheduler = Scheduler()
        self.network = SimulatedNetwork(self.scheduler, Random(1), NetworkSettings(**settings))
        self.one, self.two = FakePeer(), FakePeer()
        self.network.peers = {ONE: self.one, TWO: self.two}
        self.results: list[PeerReply | FailureReason] = []

    def send(self, rpc: PeerRpc = CONTROL) -> None:
        before = len(self.results)
        self.network.endpoint(ONE).send(TWO, rpc, self.results.append)
        assert len(self.results) == before, "done was called from within send"

    def run(self, ms: int = 10_000) -> None:
        self.scheduler.run_until(self.scheduler.now_us + ms * US_PER_MS)


def test_a_call_is_answered_once() -> None:
    wires = Wires()
    wires.send()
    wires.run()
    assert wires.results == [OK]
    assert [(source, rpc) for source, rpc, _ in wires.two.requests] == [(ONE, CONTROL)]


def test_a_probe_connects_before_it_asks_and_hears_what_nodes_know() -> None:
    wires = Wires(delay_us_min=1_000, delay_us_mean=0, connect_us=2_000)
    wires.network.places[("two", 9092)] = TWO
    answers: list[object] = []
    for kraft_versions in ((0, 1), (0, 0)):
        wires.network.kraft_versions = kraft_versions
        wires.network.endpoint(ONE).probe("two", 9092, answers.append)
        before = len(answers)
        wires.run(3)
        assert len(answers) == before
        wires.run(1)
    assert answers == [(0, 1), (0, 0)]


def test_a_fetch_round_tells_what_its_sender_knew_when_it_was_sent() -> None:
    wires = Wires()
    wires.one.epoch = 7
    wires.send(FETCH)
    wires.one.epoch = 8
    wires.run()
    wires.send()
    wires.run()
    assert wires.two.told_epochs == [{METADATA_GROUP: 7}, {}]


def test_a_lost_message_times_out() -> None:
    wires = Wires(loss_ppm=1_000_000, request_timeout_ms=700)
    wires.send()
    wires.run(699)
    assert wires.results == []
    wires.run(2)
    assert wires.results == [FailureReason.TIMED_OUT]


def test_a_fetch_may_wait_longer_than_other_requests() -> None:
    wires = Wires(loss_ppm=1_000_000, request_timeout_ms=700)
    wires.send(FETCH)
    wires.run(1_199)
    assert wires.results == []
    wires.run(2)
    assert wires.results == [FailureReason.TIMED_OUT]


def test_each_call_times_out_in_its_own_time_whatever_becomes_of_the_others() -> None:
    wires = Wires(request_timeout_ms=700)
    wires.two.holding = True
    for _ in range(4):
        wires.send()
        wires.run(100)
    wires.two.held[0](OK)
    wires.two.held[2](OK)
    wires.run(100)
    assert wires.results == [OK, OK]
    wires.run(299)
    assert wires.results == [OK, OK], "the second call was sent after 100 ms"
    wires.run(1)
    assert wires.results == [OK, OK, FailureReason.TIMED_OUT]
    wires.run(199)
    assert len(wires.results) == 3
    wires.run(1)
    assert wires.results == [OK, OK, FailureReason.TIMED_OUT, FailureReason.TIMED_OUT]
    wires.send()
    wires.run(700)
    assert len(wires.results) == 5, "a call after all the others were over"


def test_a_request_that_arrives_twice_is_answered_once_to_its_sender() -> None:
    wires = Wires(duplicate_ppm=1_000_000)
    wires.send()
    wires.run()
    assert len(wires.two.requests) == 2
    first, second = (connection for _, _, connection in wires.two.requests)
    assert first is not second
    assert wires.results == [OK]


def test_a_proposal_never_arrives_twice() -> None:
    """It is not idempotent, and TCP repeats nothing."""
    wires = Wires(duplicate_ppm=1_000_000)
    wires.two.holding = True
    wires.send(ProposeRpc(batch=b"x"))
    wires.run(100)
    assert len(wires.two.requests) == 1
    wires.two.held[0](ProposeReply(error=ErrorCode.NONE))
    wires.run(100)
    assert wires.results == [ProposeReply(error=ErrorCode.NONE)]


@pytest.mark.parametrize("direction", [(ONE, TWO), (TWO, ONE)])
def test_a_link_cut_in_either_direction_loses_the_call(direction: tuple[NodeId, NodeId]) -> None:
    wires = Wires()
    wires.network.cut_link(*direction)
    wires.send()
    wires.run()
    assert len(wires.two.requests) == (1 if direction == (TWO, ONE) else 0)
    assert wires.results == [FailureReason.TIMED_OUT]
    wires.network.heal_links()
    wires.send()
    wires.run()
    assert wires.results[1:] == [OK]


def test_a_node_that_is_down_refuses_and_the_sender_hears_of_it() -> None:
    wires = Wires()
    wires.two.incarnation = 0
    wires.send()
    wires.run(100)
    assert wires.results == [FailureReason.DISCONNECTED]
    assert wires.one.unreachable == [TWO]


def test_a_node_that_does_not_exist_cannot_be_reached() -> None:
    """A leader asks who was refused, in whose name anybody may have asked (seed 16)."""
    wires = Wires()
    del wires.network.peers[TWO]
    wires.send()
    wires.run(100)
    assert wires.results == [FailureReason.DISCONNECTED]


def test_a_refusal_does_not_pass_a_cut_link() -> None:
    wires = Wires()
    wires.two.incarnation = 0
    wires.network.cut_link(TWO, ONE)
    wires.send()
    wires.run()
    assert wires.results == [FailureReason.TIMED_OUT]
    assert wires.one.unreachable == []


def test_a_crash_breaks_the_calls_to_it() -> None:
    wires = Wires()
    wires.two.holding = True
    wires.send()
    wires.run(100)
    wires.two.incarnation = 0
    wires.network.on_crash(TWO)
    wires.run(100)
    assert wires.results == [FailureReason.DISCONNECTED]
    assert wires.one.unreachable == [TWO]
    wires.two.held[0](OK)
    wires.run()
    assert wires.results == [FailureReason.DISCONNECTED]


def test_nothing_reaches_the_next_incarnation_of_a_sender() -> None:
    wires = Wires()
    wires.two.holding = True
    wires.send()
    wires.run(100)
    wires.network.on_crash(ONE)
    wires.one.incarnation = 2
    wires.two.held[0](OK)
    wires.run()
    assert wires.results == []


def test_a_request_to_an_earlier_incarnation_is_never_served_by_the_next() -> None:
    wires = Wires(delay_us_min=50_000)
    wires.send()
    wires.network.on_crash(TWO)
    wires.two.incarnation = 2
    wires.run()
    assert wires.two.requests == []
    assert wires.results == [FailureReason.DISCONNECTED]


def test_fetch_rounds_share_a_connection_until_it_breaks() -> None:
    wires = Wires()
    for _ in range(2):
        wires.send(FETCH)
        wires.run(100)
    first, second = (connection for _, _, connection in wires.two.requests)
    assert first is second
    wires.network.reset_connection(ONE, TWO)
    wires.run(100)
    wires.send(FETCH)
    wires.run(100)
    assert wires.two.requests[2][2] is not first
    assert wires.one.unreachable == [TWO]


def test_a_timed_out_fetch_gives_its_connection_up() -> None:
    wires = Wires(request_timeout_ms=100)
    wires.two.holding = True
    wires.send(FETCH)
    wires.run(1_000)
    wires.send(FETCH)
    wires.run(100)
    first, second = (connection for _, _, connection in wires.two.requests)
    assert first is not second
    assert wires.results == [FailureReason.TIMED_OUT]


def test_stragglers_overtake_each_other() -> None:
    wires = Wires(straggle_ppm=500_000, straggle_us_max=100_000)
    order: list[int] = []
    for number in range(20):
        wires.network.endpoint(ONE).send(TWO, CONTROL, lambda _, number=number: order.append(number))  # type: ignore[misc]
    wires.run()
    assert sorted(order) == list(range(20))
    assert order != sorted(order)
