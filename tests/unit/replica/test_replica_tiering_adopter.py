"""The table of a partition after an unclean election: taken over once for each recovery, before anything else is done."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from copierkit import Keys, Tier
from enginekit import ORDERS, Ground
from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.kv.keys import INCARNATION_KEY, tier_key, tier_segment_key, topic_key
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.disk.findings import Findings
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.kv.tier_gate import refusal_of_tier
from raftlake.replica.partition.partition import Partition
from raftlake.replica.reserved import Topic
from raftlake.replica.tiering.led import LedPartition
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.step import RETRY_BACKOFF_MS, TierCounts
from raftlake.tier.entries import Tiered, decode_tiered, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

TOPIC_ID = id_to_text(ORDERS.topic_id)
KEY = tier_key(TOPIC_ID, 0)
FIRST, SECOND = id_to_text(b"first-recovery--"), id_to_text(b"second-recovery-")


def segment(base: int, end: int, name: str) -> RemoteSegment:
    return RemoteSegment(
        segment_id=name,
        base_offset=Offset(base),
        end_offset=Offset(end),
        leader_epoch=Epoch(1),
        epochs=((Epoch(1), Offset(base)),),
        timestamp_ms_max=7,
        log_bytes=10,
        size=100,
        crc=5,
        file=f"partition=0/{name}.parquet",
    )


def facts(start: int, *copies: RemoteSegment, incarnation: int = 1) -> LineageFacts:
    return LineageFacts(
        lineage=Lineage(ORDERS, incarnation),
        leader_epoch=Epoch(1),
        start_offset=Offset(start),
        end_offset=copies[-1].end_offset if copies else Offset(start),
        segments=len(copies),
        size=100 * len(copies),
        log_bytes=10 * len(copies),
        epochs=((Epoch(1), Offset(start)),) if copies else (),
        newest=copies,
    )


class World:
    """A partition that node 1 leads, with a control record at 0 and two records in a closed segment."""

    def __init__(self) -> None:
        self.ground = Ground()
        self.partition: Partition = self.ground.lead(ORDERS)
        self.ground.append(self.partition, b"x", b"x")
        self.partition.roll()
        self.keys, self.tier = Keys(), Tier()
        self.lead()

    def lead(self) -> None:
        keys: Any = self.keys
        remote_log = RemoteLog(self.ground.engine, keys, is_on=True)
        self.led = LedPartition(
            self.ground.engine, keys, self.tier, self.partition, remote_log, TierCounts(), Findings(self.ground.engine)
        )
        self.led.learn()

    def recovered(self, name: str) -> None:
        """`raftlake recover` has noted itself."""
        told = {"directoryId": name, "nodeId": 1, "epoch": 1001}
        self.keys.apply(Txn((), (Put(INCARNATION_KEY, json.dumps(told).encode()),)))

    def say(self, tiered: Tiered, *copies: RemoteSegment) -> None:
        puts = [Put(KEY, encode_tiered(tiered))]
        puts += [Put(tier_segment_key(TOPIC_ID, 0, each.base_offset), encode_segment(each)) for each in copies]
        self.keys.apply(Txn((), tuple(puts)))

    def go_on(self, later_ms: int = 0) -> None:
        self.ground.time.ms += later_ms
        self.ground.engine.begin_input()
        self.led.go_on()

    @property
    def tiered(self) -> Tiered:
        entry = self.keys.machine.get(KEY)
        assert entry is not None
        found = decode_tiered(entry.value)
        assert isinstance(found, Tiered)
        return found

    def segment_keys(self) -> list[str]:
        found, _ = self.keys.machine.list(f"{KEY}/", None, 100)
        return [key for key, _ in found]


@pytest.fixture
def world() -> World:
    return World()


def test_without_a_recovery_nothing_is_taken_over(world: World) -> None:
    world.go_on()
    world.keys.commit()
    assert world.tier.adoptions == [] and len(world.tier.copies) == 1
    assert world.tiered.recovery == ""


def test_a_table_is_taken_over_before_anything_is_copied(world: World) -> None:
    world.recovered(FIRST)
    world.go_on()
    assert (world.keys.proposed, world.tier.copies, world.tier.claims) == ([], [], [])
    ((request, done),) = world.tier.adoptions
    assert (request.group, request.recovery, request.leader_epoch) == (ORDERS, FIRST, world.partition.core.epoch)
    assert (request.log_start, request.end_offset, request.is_continued) == (0, 3, False)
    assert request.epochs == ((world.partition.core.epoch, 0),)
    world.go_on(60_000)
    assert len(world.tier.adoptions) == 1, "one call at a time"
    world.tier.adoptions.clear()
    done(facts(0))
    adopted = world.keys.commit()
    assert adopted.compares == (Compare(KEY, 0),)
    assert (world.tiered.incarnation, world.tiered.recovery, world.tiered.topic) == (1, FIRST, "orders")
    world.keys.commit()
    ((copy, _),) = world.tier.copies
    assert copy.lineage == Lineage(ORDERS, 1) and (copy.base_offset, copy.end_offset) == (0, 3)
    assert world.tier.adoptions == [], "once for each recovery"


def test_what_the_table_shows_then_takes_the_place_of_the_keys(world: World) -> None:
    kept, gone = segment(0, 1, "kept"), segment(1, 5, "gone")
    world.say(Tiered(start_offset=Offset(0), end_offset=Offset(5), checked_offset=Offset(5), segments=2), kept, gone)
    world.recovered(FIRST)
    world.go_on()
    (request, done) = world.tier.adoptions.pop()
    assert request.recovery == FIRST and request.is_continued, "a table that knows of no copy is not the one"
    done(facts(0, kept))
    txn = world.keys.commit()
    assert world.segment_keys() == [tier_segment_key(TOPIC_ID, 0, 0)]
    assert [type(operation) for operation in txn.ops] == [Put, Put, Delete]
    assert (world.tiered.end_offset, world.tiered.segments, world.tiered.checked_offset) == (1, 1, 0)
    assert world.tiered.epochs == ((1, 0),)


def test_the_next_recovery_takes_it_over_again(world: World) -> None:
    world.recovered(FIRST)
    world.say(Tiered(incarnation=1, recovery=FIRST, start_offset=Offset(0), end_offset=Offset(0)))
    world.go_on()
    assert world.tier.adoptions == []
    world = World()
    world.say(Tiered(incarnation=1, recovery=FIRST, start_offset=Offset(0), end_offset=Offset(0)))
    world.recovered(SECOND)
    world.go_on()
    assert world.tier.adoptions[0][0].recovery == SECOND


def test_a_tier_that_fails_is_asked_again_and_nothing_is_copied_meanwhile(world: World) -> None:
    world.recovered(FIRST)
    world.go_on()
    _, done = world.tier.adoptions.pop()
    done(TierError(TierFailure.UNKNOWN, "no answer"))
    assert world.led.error is not None and world.led.error.reason == "no answer"
    world.go_on(RETRY_BACKOFF_MS - 1)
    assert world.tier.under_way == 0 and world.keys.proposed == []
    world.go_on(1)
    _, done = world.tier.adoptions.pop()
    done(facts(0))
    assert world.led.error is None
    world.keys.answer(ProposeStatus.UNKNOWN)
    world.go_on(RETRY_BACKOFF_MS)
    world.keys.commit()
    assert world.tiered.recovery == FIRST, "the keys are proposed again"


def test_keys_that_are_made_anew_later_are_taken_over_with_what_the_table_shows_then(world: World) -> None:
    world.recovered(FIRST)
    world.go_on()
    _, done = world.tier.adoptions.pop()
    done(facts(0, segment(0, 1, "kept")))
    world.keys.commit()
    assert world.tiered.end_offset == 1
    world.keys.answer(ProposeStatus.UNKNOWN)  # COPY_STARTED
    copies = segment(0, 1, "kept"), segment(1, 3, "later")
    world.say(Tiered(incarnation=1, start_offset=Offset(0), end_offset=Offset(3), segments=2), *copies)
    world.go_on()
    assert world.keys.proposed == [], "the table was not asked yet"
    _, done = world.tier.adoptions.pop()
    done(facts(0, *copies))
    world.keys.commit()
    assert (world.tiered.end_offset, world.tiered.recovery) == (3, FIRST)


def test_an_answer_that_comes_behind_the_leadership_has_no_effect(world: World) -> None:
    world.recovered(FIRST)
    world.go_on()
    _, done = world.tier.adoptions.pop()
    world.led.close()
    done(facts(0))
    assert world.keys.proposed == []


# --- what another node may propose -----------------------------------------------------------------------------------


def proposal(world: World, tiered: Tiered, *operations: Put | Delete) -> str | None:
    world.keys.apply(Txn((), (Put(topic_key(ORDERS.topic), Topic(ORDERS.topic, ORDERS.topic_id, 1).encode()),)))
    entry = world.keys.machine.get(KEY)
    compare = Compare(KEY, 0 if entry is None else entry.version)
    return refusal_of_tier(Txn((compare,), (Put(KEY, encode_tiered(tiered)), *operations)), 2, world.keys.machine)  # type: ignore[arg-type]


WANTED = Tiered(topic=ORDERS.topic, incarnation=2, recovery=FIRST, start_offset=Offset(0), end_offset=Offset(4), segments=1)
COPY = segment(0, 4, "s")
PUT = Put(tier_segment_key(TOPIC_ID, 0, 0), encode_segment(COPY))


@pytest.fixture
def standing(world: World) -> World:
    world.say(Tiered(incarnation=1, recovery=SECOND, start_offset=Offset(0), end_offset=Offset(9), segments=2), COPY)
    world.recovered(FIRST)
    return world


def test_the_gate_lets_a_node_take_a_table_over(standing: World, world: World) -> None:
    assert proposal(standing, WANTED, PUT) is None
    assert proposal(standing, WANTED, PUT, Delete(tier_segment_key(TOPIC_ID, 0, 4))) is None
    bare = World()
    bare.recovered(FIRST)
    assert proposal(bare, WANTED) is None, "this quorum never copied it, another one may have"


@pytest.mark.parametrize(
    ("changes", "operations", "reason"),
    [
        ({"recovery": id_to_text(b"another-recovery")}, (PUT,), "after the last recovery"),
        ({"incarnation": 1}, (PUT,), "a new incarnation"),
        ({"checked_offset": Offset(1)}, (PUT,), "nothing is under way"),
        ({}, (Put(tier_segment_key(TOPIC_ID, 1, 0), PUT.value),), "of its own copies"),
        ({}, (Delete(tier_segment_key(TOPIC_ID, 1, 0)),), "of its own copies"),
        ({}, (Put(PUT.key, b"spoilt"),), "JSON|object|column"),
        ({}, (Put(tier_segment_key(TOPIC_ID, 0, 1), PUT.value),), "under its base offset"),
        ({"end_offset": Offset(3)}, (PUT,), "within what is shown"),
    ],
)
def test_the_gate_refuses_what_is_no_takeover(
    standing: World, changes: dict[str, Any], operations: tuple[Put | Delete, ...], reason: str
) -> None:
    refused = proposal(standing, replace(WANTED, **changes), *operations)
    assert refused is not None and re.search(reason, refused), refused


def test_the_gate_lets_a_node_take_over_a_table_whose_keys_were_made_anew() -> None:
    """Keys that are made anew from a spoilt one name no recovery. The table knows that this recovery began its incarnation, and
    answers the second call as the first one."""
    world = World()
    world.recovered(FIRST)
    world.say(Tiered(incarnation=2, start_offset=Offset(0), end_offset=Offset(4), segments=1), COPY)
    assert proposal(world, WANTED, PUT) is None
    refused = proposal(world, replace(WANTED, incarnation=1), PUT)
    assert refused is not None and "a new incarnation" in refused
    world.say(Tiered(incarnation=2, recovery=SECOND, start_offset=Offset(0), end_offset=Offset(4), segments=1), COPY)
    refused = proposal(world, WANTED, PUT)
    assert refused is not None and "a new incarnation" in refused, "each recovery begins one of its own"
