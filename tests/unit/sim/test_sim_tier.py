"""The simulated tier: what each fate of a call does, and what it takes for a broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.keys import tier_key, topic_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    CopyRequest,
    FoundRecord,
    Lineage,
    LineageEnd,
    RemoteSegment,
    SearchRequest,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.reserved import Topic
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.invariants.base import Violation
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.tier import check_tier, uncopied, undropped
from raftlake.sim.tier import STALL_MS_MAX, TIMEOUT_MS, ObjectStore, SimulatedTier
from raftlake.sim.tier_table import NOT_OURS
from raftlake.sim.trace import Trace
from raftlake.tier.entries import Deleting, Tiered, encode_tiered
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
        self.tiers[node].copy(self.request(base, end, epoch, f"s{base}"), answers.append)
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


@pytest.mark.parametrize(
    ("time", "start", "end", "found"),
    [(7, 0, 10, 0), (7, 4, 10, 4), (7, 4, 4, None), (8, 0, 10, None), (None, 2, 10, 2), (7, 8, 10, None)],
)
def test_a_search_by_time_finds_the_first_record_of_its_range(
    time: int | None, start: int, end: int, found: int | None
) -> None:
    """More in contract/tier_search_contract.py."""
    world = World()
    world.copy(0, 8)
    answers: list[object] = []
    request = SearchRequest(lineage=LINEAGE, timestamp_ms=time, start_offset=Offset(start), end_offset=Offset(end))
    world.tiers[2].search(request, answers.append)
    world.run()
    expected = None if found is None else FoundRecord(offset=Offset(found), timestamp_ms=7, epoch=Epoch(1))
    assert answers == [expected]


# --- the keys and the logs --------------------------------------------------------------------------------------------------


def say(world: World, *operations: Put | Delete) -> None:
    """Commit it to the metadata log."""
    log: Any = world.committed.of(METADATA_GROUP)
    offset = log.batches[-1].end if log.batches else 1
    data = bytes(build_batch([Record(value=encode(Txn((), operations)))], base_offset=offset, leader_epoch=1, timestamp_ms=7))
    log.batches.append(SimpleNamespace(base=offset, end=offset + 1, data=data))


def key(start: int, end: int, *, checked: int = 0, deleting: bool = False) -> Put:
    """What is copied, as the keys say it."""
    tiered = Tiered(
        start_offset=Offset(start),
        end_offset=Offset(end),
        checked_offset=Offset(checked),
        deleting=Deleting(leader_epoch=Epoch(1), node_id=NodeId(1)) if deleting else None,
    )
    return Put(tier_key(id_to_text(GROUP.topic_id), 0), encode_tiered(tiered))


def node(tiered_end: int | None, log_start: int = 0, checked: int = 0, error: TierError | None = None) -> Any:
    machine = StateMachine()
    if tiered_end is not None:
        machine.apply(1, encode(Txn((), (key(0, tiered_end, checked=checked),))))
    partition = SimpleNamespace(log=SimpleNamespace(start_offset=log_start))
    status = SimpleNamespace(group=GROUP, error=error)
    return SimpleNamespace(
        config=SimpleNamespace(node_id=1),
        kv=SimpleNamespace(machine=machine),
        partitions={GROUP: partition},
        tiering=SimpleNamespace(statuses=lambda: [status]),
    )


def check(world: World, *nodes: Any) -> None:
    check_tier(nodes, world.store.lineages, world.store.keys)


def read_back(world: World, index: int) -> TierError | None:
    answers: list[TierError | None] = []
    world.tiers[1].check(LINEAGE, world.store.of(LINEAGE).segments[index], answers.append)
    world.run()
    (answer,) = answers
    return answer


def test_keys_and_logs_follow_the_table() -> None:
    world = World()
    world.copy(0, 3)
    for good in (node(None), node(0), node(3)):
        check(world, good)
    with pytest.raises(Violation, match="tell of no copy"):
        check(world, node(4))


def test_no_leader_tells_of_a_gap_where_there_is_none() -> None:
    world = World()
    world.copy(0, 3)
    for passing in (TierError(TierFailure.UNKNOWN, "no answer"), NOT_OURS):
        check(world, node(3, error=passing))
    with pytest.raises(Violation, match=r"asks an operator to mend what is well: node 1: .*the table ends at 0"):
        check(world, node(3, error=TierError(TierFailure.UNUSABLE, "the table ends at 0, and the log begins at 3")))


def test_local_logs_keep_what_was_not_read_back() -> None:
    world = World()
    for base, end in ((0, 3), (3, 5), (5, 6)):
        world.copy(base, end)
    assert read_back(world, 1) is None
    with pytest.raises(Violation, match="nothing is deleted here"):
        check(world, node(6, log_start=1))
    assert read_back(world, 0) is None
    check(world, node(6), node(6, log_start=5))
    with pytest.raises(Violation, match="nothing is deleted here"):
        check(world, node(6, log_start=6))
    shown = world.store.of(LINEAGE)
    shown.batches[2] = b"spoilt"
    damaged = read_back(world, 2)
    assert damaged is not None and damaged.failure is TierFailure.DAMAGED and shown.checked_end(Offset(0)) == 5


def test_what_retention_has_ended_needs_no_check() -> None:
    world = World()
    for base, end in ((0, 3), (3, 5), (5, 6)):
        world.copy(base, end)
    say(world, key(3, 6, deleting=True))
    check(world, node(6, log_start=3))
    with pytest.raises(Violation, match="nothing is deleted here"):
        check(world, node(6, log_start=4))
    assert read_back(world, 1) is None
    check(world, node(6, log_start=5))


def test_the_table_shows_what_the_keys_say() -> None:
    world = World()
    for base, end in ((0, 3), (3, 5), (5, 6)):
        world.copy(base, end)
    shown = world.store.of(LINEAGE)
    say(world, key(3, 6, deleting=True))
    check(world)
    say(world, key(3, 6))
    with pytest.raises(Violation, match="without a gap"):
        check(world)
    shown.remove(1)
    check(world)
    shown.remove(1)
    with pytest.raises(Violation, match="without a gap"):
        check(world)
    say(world, key(5, 7))
    with pytest.raises(Violation, match="without a gap"):
        check(world)


def test_a_copy_in_the_middle_that_is_gone_is_a_gap() -> None:
    world = World()
    for base, end in ((0, 3), (3, 5), (5, 6)):
        world.copy(base, end)
    shown = world.store.of(LINEAGE)
    del shown.segments[1]
    with pytest.raises(Violation, match="5 follows 3"):
        check(world)


def test_a_removal_before_the_keys_say_so_is_a_broken_promise() -> None:
    world = World()
    world.copy(0, 3)
    world.copy(3, 5)
    say(world, key(0, 5))
    world.tiers[1].delete(LINEAGE, Epoch(1), Offset(3), lambda answer: None)
    with pytest.raises(Violation, match="nothing leaves a table before"):
        world.run()
    say(world, key(3, 5, deleting=True))
    world.tiers[1].delete(LINEAGE, Epoch(1), Offset(3), lambda answer: None)
    world.run()
    assert world.store.of(LINEAGE).start_offset == 3


def test_all_is_copied_when_table_keys_and_log_agree() -> None:
    world = World()
    world.copy(0, 10)
    tables = world.store.lineages
    assert uncopied([node(10, checked=10)], tables, world.committed) == []
    assert len(uncopied([node(10, checked=10), node(9, checked=9)], tables, world.committed)) == 1
    assert len(uncopied([node(10, checked=9)], tables, world.committed)) == 1, "not read back"
    log: Any = world.committed.of(GROUP)
    log._ends.append(11)
    assert uncopied([node(10, checked=10)], tables, world.committed) == ["orders-0 is copied up to 10 of 11"]


def test_a_deleted_topic_shows_nothing_in_the_end() -> None:
    world = World()
    world.copy(0, 10)
    topic = Put(topic_key("orders"), Topic("orders", GROUP.topic_id, 1, {}, None).encode())
    say(world, topic, key(0, 10))
    tables, keys = world.store.lineages, world.store.keys
    assert undropped(tables, keys) == []
    say(world, Delete(topic.key))
    assert len(undropped(tables, keys)) == 2
    world.tiers[1].drop(GROUP, 1, lambda answer: None)
    world.run()
    assert len(undropped(tables, keys)) == 1
    say(world, Delete(key(0, 10).key))
    assert undropped(tables, keys) == []
