"""The simulated tier after an unclean election: guarantee 10, with the offsets and epochs of the seed's scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    AdoptRequest,
    CopyRequest,
    Lineage,
    LineageFacts,
    ReadRequest,
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.sim.clock import US_PER_MS, Scheduler
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.tier import TIMEOUT_MS, ObjectStore, SimulatedTier
from raftlake.sim.tier_table import batches_of
from raftlake.sim.trace import Trace
from raftlake.tier.plan import Range, epochs_within
from raftlake.wire.batches import Record, build_batch, decode_records

GROUP = GroupId("orders", 0, bytes(range(16)))

#: A history: the epoch and the text of each record, by offset.
History = list[tuple[int, str]]


class World:
    """One store, and one node that makes the calls of whoever leads."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.committed = CommittedLogs()
        self.store = ObjectStore(self.scheduler, Random(1), self.committed, Trace(self.scheduler, None))
        self.store.is_healed = True
        caller: Any = SimpleNamespace(node_id=NodeId(1), incarnation=1, deliver=lambda incarnation, call: call())
        self.tier = SimulatedTier(self.store, caller)

    def ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        begin(answers.append)
        self.scheduler.run_until(self.scheduler.now_us + TIMEOUT_MS * US_PER_MS, 10_000)
        (answer,) = answers
        return answer

    def copy(self, history: History, base: int, end: int, incarnation: int, name: str) -> Any:
        """The leader of this history copies a range of it."""
        batches = [batch_of(offset, *history[offset]) for offset in range(len(history))]
        log: Any = self.committed.of(GROUP)
        log.batches = [SimpleNamespace(base=offset, end=offset + 1, data=data) for offset, data in enumerate(batches)]
        log._ends = list(range(1, len(batches) + 1))
        request = CopyRequest(
            lineage=Lineage(GROUP, incarnation),
            segment_id=name,
            base_offset=Offset(base),
            end_offset=Offset(end),
            leader_epoch=Epoch(history[-1][0]),
            epochs=epochs_within(epochs_of(history), Range(Offset(base), Offset(end))),
            sources=tuple(batches[base:end]),
            auxiliary=f"state at {end}".encode(),
        )
        return self.ask(lambda done: self.tier.copy(request, done))

    def adopt(self, history: History, recovery: str, log_start: int = 0) -> LineageFacts | TierError:
        request = AdoptRequest(
            group=GROUP,
            leader_epoch=Epoch(history[-1][0]),
            recovery=recovery,
            epochs=tuple(epochs_of(history)),
            log_start=Offset(log_start),
            end_offset=Offset(len(history)),
        )
        answer = self.ask(lambda done: self.tier.adopt(request, done))
        assert isinstance(answer, LineageFacts | TierError)
        return answer

    def shown(self, incarnation: int) -> list[tuple[int, str]]:
        """What a reader finds: offsets and texts."""
        found = batches_of(self.store.of(Lineage(GROUP, incarnation)).batches)
        records = [record for _, batch in found for record in decode_records(batch)]
        return [(record.offset, (record.value or b"").decode()) for record in records]


def batch_of(offset: int, epoch: int, text: str) -> bytes:
    return bytes(build_batch([Record(value=text.encode())], base_offset=offset, leader_epoch=epoch, timestamp_ms=7))


def epochs_of(history: History) -> list[tuple[Epoch, Offset]]:
    return [(Epoch(epoch), Offset(n)) for n, (epoch, _) in enumerate(history) if n == 0 or history[n - 1][0] != epoch]


#: The seed's scenario 5. Its LE-0 is epoch 1 here: a log has no records of epoch 0.
OF_A: History = [(1, f"msg {n}") for n in range(5)]
OF_B: History = [*OF_A[:2], (2, "msg 4"), (2, "msg 5"), (2, "msg 6")]
OF_A_AGAIN: History = [*OF_A, (3, "msg 7"), (3, "msg 8")]


def begun() -> World:
    """Scenario 5 up to its step 3: A copied offsets 0 to 3, then B did."""
    world = World()
    world.copy(OF_A, 0, 4, 0, "uuid1")
    facts = world.adopt(OF_B, "of B")
    assert isinstance(facts, LineageFacts)
    assert (facts.lineage.incarnation, facts.start_offset, facts.end_offset, facts.newest) == (1, 0, 0, ())
    world.copy(OF_B, 0, 4, 1, "uuid2")
    return world


def test_after_an_unclean_election_the_table_is_of_the_new_leader() -> None:
    world = begun()
    assert world.shown(1) == [(0, "msg 0"), (1, "msg 1"), (2, "msg 4"), (3, "msg 5")]
    assert [copy[0].segment_id for copy in world.store.superseded[GROUP]] == ["uuid1"]


def test_a_leader_of_the_older_history_is_fenced() -> None:
    world = begun()
    answer = world.copy(OF_A, 4, 5, 0, "late")
    assert isinstance(answer, TierError) and answer.failure is TierFailure.FENCED
    answer = world.ask(lambda done: world.tier.claim(Lineage(GROUP, 0), Epoch(99), done))
    assert isinstance(answer, TierError) and answer.failure is TierFailure.FENCED


def test_scenario_5_brings_back_what_an_election_superseded() -> None:
    world = begun()
    facts = world.adopt(OF_A_AGAIN, "of A", log_start=4)
    assert isinstance(facts, LineageFacts)
    assert (facts.lineage.incarnation, facts.start_offset, facts.end_offset, facts.epochs) == (2, 0, 4, ((1, 0),))
    assert [segment.segment_id for segment in facts.newest] == ["uuid1"]
    world.copy(OF_A_AGAIN, 4, 6, 2, "uuid3")
    assert [text for _, text in world.shown(2)] == ["msg 0", "msg 1", "msg 2", "msg 3", "msg 4", "msg 7"]
    assert [copy[0].segment_id for copy in world.store.superseded[GROUP]] == ["uuid2"]


def test_a_copy_is_cut_where_the_histories_part_and_the_next_one_has_the_state() -> None:
    world = World()
    world.copy(OF_A, 0, 4, 0, "uuid1")
    facts = world.adopt(OF_B, "of B", log_start=1)
    assert isinstance(facts, LineageFacts)
    assert (facts.end_offset, facts.epochs, [each.end_offset for each in facts.newest]) == (2, ((1, 0),), [2])
    assert world.shown(1) == [(0, "msg 0"), (1, "msg 1")]
    lineage = Lineage(GROUP, 1)
    answer = world.ask(lambda done: world.tier.find(lineage, Offset(1), done))
    assert isinstance(answer, TierError) and answer.failure is TierFailure.ABSENT
    world.copy(OF_B, 2, 4, 1, "uuid2")
    answer = world.ask(lambda done: world.tier.find(lineage, Offset(1), done))
    assert isinstance(answer, RemoteState)
    assert (answer.segment.end_offset, answer.auxiliary) == (4, b"state at 4")


def test_a_repeated_call_of_one_recovery_answers_as_before() -> None:
    world = begun()
    again = world.adopt(OF_B, "of B")
    assert isinstance(again, LineageFacts)
    assert (again.lineage.incarnation, again.end_offset) == (1, 4)
    assert world.shown(1)[3] == (3, "msg 5")


def test_where_nothing_leads_to_the_log_the_table_begins_where_the_log_does() -> None:
    world = World()
    world.copy(OF_A, 0, 4, 0, "uuid1")
    facts = world.adopt([(5, "else")] * 9, "of B", log_start=6)
    assert isinstance(facts, LineageFacts)
    assert (facts.start_offset, facts.end_offset, facts.segments) == (6, 6, 0)
    nothing = world.adopt(OF_B, "first", log_start=0)
    assert isinstance(nothing, TierError), "a leader of a lower epoch does not come behind"


def test_a_table_that_was_never_begun_is_adopted_too() -> None:
    world = World()
    facts = world.adopt(OF_A, "of A", log_start=2)
    assert isinstance(facts, LineageFacts)
    assert (facts.start_offset, facts.end_offset, facts.segments) == (2, 2, 0)
    copied = world.copy(OF_A, 2, 4, facts.lineage.incarnation, "uuid1")
    assert not isinstance(copied, TierError)
    read = ReadRequest(lineage=facts.lineage, offset=Offset(3), end_offset=Offset(4), size_max=1)
    assert world.ask(lambda done: world.tier.read(read, done)) == batch_of(3, *OF_A[3])
    early = replace(read, offset=Offset(1))
    answer = world.ask(lambda done: world.tier.read(early, done))
    assert isinstance(answer, TierError) and answer.failure is TierFailure.ABSENT
