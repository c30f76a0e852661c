"""The simulated tier: what each fate of a call does, and what it takes for a broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.kv.commands import Put, Txn, encode
from raftlake.kv.keys import tier_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, Lineage, LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.tier import check_tier, uncopied
from raftlake.sim.tier import STALL_MS_MAX, TIMEOUT_MS, ObjectStore, SimulatedTier
from raftlake.sim.trace import Trace
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.ids import id_to_text

GROUP = GroupId("orders", 0, bytes(range(16)))
LINEAGE = Lineage(GROUP, 0)


class Caller:
    """A machine that is on."""

    def __init__(self, node_id: int) -> None:
        self.node_id = NodeId(node_id)
        self.incarnation = 1

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None:
        if incarnation == self.incarnation:
            call()


class World:
    """One store, two nodes, and a log of ten batches of one record each."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.committed = CommittedLogs()
        self.store = ObjectStore(self.scheduler, Random(1), self.committed, Trace(self.scheduler, None))
        self.callers = {node_id: Caller(node_id) for node_id in (1, 2)}
        self.tiers = {node_id: SimulatedTier(self.store, caller) for node_id, caller in self.callers.items()}
        self.fate("quick")
        self.batches = [
            bytes(build_batch([Record(value=b"x")], base_offset=offset, leader_epoch=1, timestamp_ms=7)) for offset in range(10)
        ]
        log: Any = self.committed.of(GROUP)
        log.batches = [SimpleNamespace(base=offset, end=offset + 1, data=data) for offset, data in enumerate(self.batches)]
        log._ends = list(range(1, 11))

    def fate(self, fate: str) -> None:
        self.store.draw_fate = lambda: fate  # type: ignore[method-assign]

    def request(self, base: int, end: int, epoch: int = 1, name: str = "s") -> CopyRequest:
        return CopyRequest(
            lineage=LINEAGE,
            segment_id=name,
            base_offset=Offset(base),
            end_offset=Offset(end),
            leader_epoch=Epoch(epoch),
            epochs=((Epoch(1), Offset(base)),),
            sources=tuple(self.batches[base:end]),
            auxiliary=b"",
        )

    def run(self, ms: int = TIMEOUT_MS) -> None:
        self.scheduler.run_until(self.scheduler.now_us + ms * US_PER_MS, 10_000)

    def copy(self, base: int, end: int, epoch: int = 1, node: int = 1) -> list[RemoteSegment | TierError]:
        answers: list[RemoteSegment | TierError] = []
        self.tiers[node].copy(self.request(base, end, epoch), answers.append)
        assert answers == []
        self.run()
        return answers

    def claim(self, epoch: int, node: int = 2) -> LineageEnd | TierError:
        answers: list[LineageEnd | TierError] = []
        self.tiers[node].claim(LINEAGE, Epoch(epoch), answers.append)
        self.run()
        (answer,) = answers
        return answer

    @property
    def end(self) -> int:
        last = self.store.of(LINEAGE).end.last
        return 0 if last is None else last.end_offset


def failure(answers: list[RemoteSegment | TierError]) -> TierFailure:
    (answer,) = answers
    assert isinstance(answer, TierError)
    return answer.failure


def test_copies_follow_one_another_and_are_answered_once() -> None:
    world = World()
    (first,), (second,) = world.copy(0, 3), world.copy(3, 5)
    assert isinstance(first, RemoteSegment) and isinstance(second, RemoteSegment)
    assert (first.base_offset, first.end_offset, second.end_offset, world.end) == (0, 3, 5, 5)
    assert failure(world.copy(3, 6)) is failure(world.copy(6, 7)) is TierFailure.ELSEWHERE
    assert world.end == 5


def test_an_older_leader_is_fenced_off_by_a_claim_and_by_a_copy() -> None:
    world = World()
    world.copy(0, 3, epoch=2)
    assert failure(world.copy(3, 5, epoch=1)) is TierFailure.FENCED
    claimed = world.claim(4)
    assert isinstance(claimed, LineageEnd) and claimed.last is not None and claimed.last.end_offset == 3
    assert failure(world.copy(3, 5, epoch=3)) is TierFailure.FENCED
    refused = world.claim(3)
    assert isinstance(refused, TierError) and refused.failure is TierFailure.FENCED


@pytest.mark.parametrize(("fate", "end"), [("answer lost", 3), ("stalls for ever", 0)])
def test_a_call_without_an_answer_is_unknown_whatever_it_has_done(fate: str, end: int) -> None:
    world = World()
    world.fate(fate)
    assert failure(world.copy(0, 3)) is TierFailure.UNKNOWN
    world.run(2 * STALL_MS_MAX)
    assert world.end == end


def test_a_stalled_call_has_its_effect_later_unless_a_later_leader_has_claimed() -> None:
    for claims in (False, True):
        world = World()
        world.fate("stalls")
        world.store.rng = SimpleNamespace(randrange=lambda stop: stop - 1)  # type: ignore[assignment]
        assert failure(world.copy(0, 3)) is TierFailure.UNKNOWN
        if claims:
            world.fate("quick")
            assert world.claim(2) == LineageEnd(None)
        world.run(2 * STALL_MS_MAX)
        assert world.end == (0 if claims else 3)


def test_an_answer_is_not_given_to_the_next_process() -> None:
    world = World()
    answers: list[object] = []
    world.tiers[1].copy(world.request(0, 3), answers.append)
    world.callers[1].incarnation = 2
    world.run()
    assert answers == [] and world.end == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda world: {"end_offset": Offset(4)},
        lambda world: {"base_offset": Offset(1)},
        lambda world: {"epochs": ((Epoch(2), Offset(0)),)},
        lambda world: {"sources": (world.batches[0], world.batches[2])},
        lambda world: {"sources": (*world.batches[:2], world.batches[2][:-1] + b"?")},
    ],
)
def test_what_is_not_the_range_that_was_asked_for_is_damaged(change: Callable[[World], dict[str, Any]]) -> None:
    world = World()
    answers: list[RemoteSegment | TierError] = []
    world.tiers[1].copy(replace(world.request(0, 3), **change(world)), answers.append)
    world.run()
    assert failure(answers) is TierFailure.DAMAGED and world.end == 0


def test_a_copy_of_what_is_not_committed_is_a_broken_promise() -> None:
    world = World()
    log: Any = world.committed.of(GROUP)
    log._ends, log.batches = log._ends[:2], log.batches[:2]
    with pytest.raises(Violation, match="the tier is exact"):
        world.copy(0, 3)


# --- the keys and the logs --------------------------------------------------------------------------------------------------


def node(tiered_end: int | None, log_start: int = 0) -> Any:
    machine = StateMachine()
    if tiered_end is not None:
        value = encode_tiered(Tiered(start_offset=Offset(0), end_offset=Offset(tiered_end)))
        machine.apply(1, encode(Txn((), (Put(tier_key(id_to_text(GROUP.topic_id), 0), value),))))
    partition = SimpleNamespace(log=SimpleNamespace(start_offset=log_start))
    return SimpleNamespace(
        config=SimpleNamespace(node_id=1), kv=SimpleNamespace(machine=machine), partitions={GROUP: partition}
    )


def test_keys_and_logs_follow_the_table() -> None:
    world = World()
    world.copy(0, 3)
    ends = world.store.ends
    for good in (node(None), node(0), node(3), node(3, log_start=3)):
        check_tier([good], ends)
    with pytest.raises(Violation, match="tell of no copy"):
        check_tier([node(4)], ends)
    with pytest.raises(Violation, match="nothing is deleted here"):
        check_tier([node(3), node(3, log_start=4)], ends)


def test_all_is_copied_when_table_keys_and_log_agree() -> None:
    world = World()
    world.copy(0, 10)
    assert uncopied([node(10)], world.store.ends, world.committed) == []
    assert len(uncopied([node(10), node(9)], world.store.ends, world.committed)) == 1
    log: Any = world.committed.of(GROUP)
    log._ends.append(11)
    assert uncopied([node(10)], world.store.ends, world.committed) == ["orders-0 is copied up to 10 of 11"]
