"""What another node may propose for the tier's keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from raftlake.kv.commands import ANY, Compare, Delete, Put, Txn, encode
from raftlake.kv.keys import INCARNATION_KEY, tier_key, tier_segment_key, topic_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.kv.tier_gate import refusal_of_tier
from raftlake.replica.reserved import Topic
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.tier.entries import Copying, Deleting, Tiered, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

TWO = NodeId(2)
TOPIC_ID = bytes(range(16))
TOPIC = id_to_text(TOPIC_ID)
KEY = tier_key(TOPIC, 0)
NOTHING = Tiered(topic="flights", start_offset=Offset(5), end_offset=Offset(5))
COPYING = Copying(segment_id="s", base_offset=Offset(5), end_offset=Offset(9), leader_epoch=Epoch(1), node_id=TWO)
SEGMENT = RemoteSegment(
    segment_id="s",
    base_offset=Offset(5),
    end_offset=Offset(9),
    leader_epoch=Epoch(1),
    epochs=((Epoch(1), Offset(5)),),
    timestamp_ms_max=-1,
    log_bytes=10,
    size=20,
    crc=3,
    file="f",
)
STARTED, FINISHED = NOTHING.start(COPYING), NOTHING.start(COPYING).finish(SEGMENT)
SHOWN = Put(tier_segment_key(TOPIC, 0, 5), encode_segment(SEGMENT))
FLIGHTS = Topic("flights", TOPIC_ID, 2)


def put(tiered: Tiered, key: str = KEY) -> Put:
    return Put(key, encode_tiered(tiered))


def refusal(
    *operations: Put | Delete,
    standing: Tiered | bytes | None,
    version: int | None = None,
    source: NodeId = TWO,
    topic: Topic | None = FLIGHTS,
) -> str | None:
    machine = StateMachine(rules=ReservedRules)
    if topic is not None:
        machine.apply(6, encode(Txn((), (Put(topic_key(topic.name), topic.encode()),))))
    if standing is not None:
        value = standing if isinstance(standing, bytes) else encode_tiered(standing)
        machine.apply(7, encode(Txn((), (Put(KEY, value),))))
    if version is None:
        version = 0 if standing is None else 7
    key = operations[0].key if standing is None else KEY
    return refusal_of_tier(Txn((Compare(key, version),), operations), source, machine)


def test_the_first_copy_the_next_one_and_their_ends() -> None:
    assert refusal(put(STARTED), standing=None) is None
    assert refusal(put(STARTED), standing=NOTHING) is None
    assert refusal(put(STARTED), standing=replace(STARTED, copying=replace(COPYING, node_id=NodeId(1)))) is None
    assert refusal(put(FINISHED), SHOWN, standing=STARTED) is None
    assert refusal(put(FINISHED), SHOWN, Delete(tier_segment_key(TOPIC, 0, 1)), standing=STARTED) is None


def test_what_its_condition_will_refuse_passes() -> None:
    assert refusal(put(FINISHED), SHOWN, standing=STARTED, version=6) is None
    assert refusal(put(STARTED), standing=None, version=3) is None


THREE_COPIES = replace(
    FINISHED,
    end_offset=Offset(30),
    segments=3,
    size=60,
    log_bytes=30,
    epochs=((Epoch(1), Offset(5)),),
    checked_offset=Offset(9),
)
DELETING = Deleting(leader_epoch=Epoch(1), node_id=TWO)
ENDED = THREE_COPIES.start_deleting(Offset(20), DELETING)
LEFT = replace(ENDED, segments=1, size=20, log_bytes=10, deleting=None)
OLD, NEW = Delete(tier_segment_key(TOPIC, 0, 5)), Delete(tier_segment_key(TOPIC, 0, 20))


def test_copies_are_checked_with_their_end_or_later() -> None:
    assert refusal(put(FINISHED.check(SEGMENT)), SHOWN, standing=STARTED) is None
    assert refusal(put(FINISHED.check(SEGMENT)), standing=FINISHED) is None
    assert refusal(put(replace(THREE_COPIES, checked_offset=Offset(30))), standing=THREE_COPIES) is None
    copying = replace(COPYING, base_offset=Offset(30), end_offset=Offset(31))
    under_way = THREE_COPIES.start(copying)
    assert refusal(put(replace(under_way, checked_offset=Offset(30))), standing=under_way) is None


def test_a_hold_begins_and_ends_beside_anything() -> None:
    for standing in (STARTED, THREE_COPIES, ENDED):
        held = replace(standing, is_held=True)
        assert refusal(put(held), standing=standing) is None
        assert refusal(put(standing), standing=held) is None
    assert refusal(put(replace(THREE_COPIES, is_held=True, checked_offset=Offset(30))), standing=THREE_COPIES) is not None
    assert refusal(put(replace(THREE_COPIES, is_held=True, end_offset=Offset(40))), standing=THREE_COPIES) is not None
    assert refusal(put(replace(FINISHED, is_held=True)), SHOWN, standing=STARTED) is not None
    held = replace(THREE_COPIES, is_held=True)
    assert refusal(put(replace(held, checked_offset=Offset(30))), standing=held) is None, "others go on"


def test_the_check_of_a_copy_does_not_cover_one_before_it() -> None:
    copying = replace(COPYING, base_offset=Offset(9), end_offset=Offset(12))
    later = replace(SEGMENT, base_offset=Offset(9), end_offset=Offset(12), epochs=((Epoch(1), Offset(9)),))
    standing = FINISHED.start(copying)
    shown = Put(tier_segment_key(TOPIC, 0, 9), encode_segment(later))
    assert refusal(put(standing.finish(later)), shown, standing=standing) is None
    assert refusal(put(replace(standing.finish(later), checked_offset=Offset(12))), shown, standing=standing) is not None


def test_removals_begin_and_end_also_beside_a_copy() -> None:
    copying = replace(COPYING, base_offset=Offset(30), end_offset=Offset(31))
    for standing, ended, left in (
        (THREE_COPIES, ENDED, LEFT),
        (THREE_COPIES.start(copying), ENDED.start(copying), LEFT.start(copying)),
    ):
        assert refusal(put(ended), standing=standing) is None
        assert refusal(put(left), standing=ended) is None
        assert refusal(put(left), OLD, standing=ended, source=NodeId(1)) is None, "the next leader ends it"
    assert refusal(put(ENDED.start(copying)), standing=ENDED) is None, "a copy begins beside a removal"


WRONG_STEPS: list[Callable[[], str | None]] = [
    # CHECKED
    lambda: refusal(put(replace(THREE_COPIES, checked_offset=Offset(8))), standing=THREE_COPIES),
    lambda: refusal(put(replace(THREE_COPIES, checked_offset=Offset(0))), standing=THREE_COPIES),
    lambda: refusal(put(replace(THREE_COPIES, checked_offset=Offset(12), size=1)), standing=THREE_COPIES),
    lambda: refusal(put(replace(THREE_COPIES, checked_offset=Offset(31))), standing=THREE_COPIES),
    lambda: refusal(put(replace(THREE_COPIES, checked_offset=Offset(12))), OLD, standing=THREE_COPIES),
    lambda: refusal(put(replace(FINISHED, checked_offset=Offset(8))), SHOWN, standing=STARTED),
    # DELETE_STARTED
    lambda: refusal(put(ENDED), standing=THREE_COPIES, source=NodeId(1)),
    lambda: refusal(put(replace(ENDED, deleting=None)), standing=THREE_COPIES),
    lambda: refusal(put(THREE_COPIES.start_deleting(Offset(30), DELETING)), standing=THREE_COPIES),
    lambda: refusal(put(THREE_COPIES), standing=ENDED),
    lambda: refusal(put(replace(ENDED, start_offset=Offset(6), epochs=((Epoch(1), Offset(6)),))), standing=ENDED),
    lambda: refusal(put(replace(ENDED, segments=1)), standing=THREE_COPIES),
    lambda: refusal(put(replace(ENDED, end_offset=Offset(31))), standing=THREE_COPIES),
    lambda: refusal(put(ENDED), OLD, standing=THREE_COPIES),
    lambda: refusal(put(ENDED), standing=None),
    # DELETE_FINISHED
    lambda: refusal(put(replace(LEFT, start_offset=Offset(21), epochs=((Epoch(1), Offset(21)),))), standing=ENDED),
    lambda: refusal(put(replace(LEFT, end_offset=Offset(31))), standing=ENDED),
    lambda: refusal(put(replace(LEFT, checked_offset=Offset(30))), standing=ENDED),
    lambda: refusal(put(replace(LEFT, topic="x")), standing=ENDED),
    lambda: refusal(put(LEFT), NEW, standing=ENDED),
    lambda: refusal(put(LEFT), Delete(tier_segment_key(TOPIC, 1, 5)), standing=ENDED),
    lambda: refusal(put(LEFT), OLD, Put(tier_segment_key(TOPIC, 0, 7), b""), standing=ENDED),
    lambda: refusal(put(LEFT), Delete("/users/key"), standing=ENDED),
]


@pytest.mark.parametrize("number", range(len(WRONG_STEPS)))
def test_a_step_that_changes_anything_else_is_refused(number: int) -> None:
    assert WRONG_STEPS[number]() is not None


WRONG: list[Callable[[], str | None]] = [
    lambda: refusal(put(STARTED), standing=None, source=NodeId(1)),
    lambda: refusal(put(replace(STARTED, size=7)), standing=None),
    lambda: refusal(put(replace(STARTED, segments=1)), standing=None),
    lambda: refusal(put(replace(STARTED, incarnation=1)), standing=None),
    lambda: refusal(put(replace(STARTED, start_offset=Offset(4))), standing=None),
    lambda: refusal(put(replace(STARTED, size=7)), standing=NOTHING),
    lambda: refusal(put(replace(STARTED, start_offset=Offset(4))), standing=NOTHING),
    lambda: refusal(put(STARTED), SHOWN, standing=NOTHING),
    lambda: refusal(put(FINISHED), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, standing=None),
    lambda: refusal(put(NOTHING), standing=STARTED),
    lambda: refusal(put(replace(FINISHED, size=21)), SHOWN, standing=STARTED),
    lambda: refusal(put(replace(FINISHED, end_offset=Offset(10))), SHOWN, standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, standing=FINISHED),
    lambda: refusal(put(FINISHED), Put(tier_segment_key(TOPIC, 0, 6), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), Put(tier_segment_key(TOPIC, 1, 5), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), Put(SHOWN.key, b"garbage"), standing=STARTED),
    lambda: refusal(put(FINISHED), Delete(SHOWN.key), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Put(tier_segment_key(TOPIC, 0, 9), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete(tier_segment_key(TOPIC, 1, 1)), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete("/users/key"), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete(f"{KEY}/1"), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete("0" * 20), standing=STARTED),
    lambda: refusal(Put(KEY, b"garbage"), standing=STARTED),
    lambda: refusal(Delete(KEY), standing=STARTED),
    lambda: refusal(put(STARTED), standing=b"garbage"),
    lambda: refusal(put(STARTED), standing=NOTHING, version=ANY),
    lambda: refusal(put(STARTED, f"/raftlake/tier/{TOPIC}/00"), standing=None),
    lambda: refusal(put(STARTED, "/raftlake/tier/short/0"), standing=None),
    lambda: refusal(put(STARTED, tier_key(TOPIC, 1)), standing=NOTHING),
    lambda: refusal(put(STARTED, tier_segment_key(TOPIC, 0, 5)), standing=None),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_anything_else_is_refused(number: int) -> None:
    assert WRONG[number]() is not None


def test_a_start_behind_another_end_than_that_of_the_copies_is_refused() -> None:
    """It is no error of the leader that judges it."""
    ahead = replace(COPYING, base_offset=Offset(9), end_offset=Offset(12))
    assert refusal(put(replace(NOTHING, end_offset=Offset(9)).start(ahead)), standing=NOTHING) is not None
    assert refusal(put(replace(THREE_COPIES, end_offset=Offset(40))), standing=THREE_COPIES) is not None


#: 22 characters, and no id: the last one has bits beyond the 16 bytes.
NO_ID = "A" * 21 + "B"


@pytest.mark.parametrize("topic", [FLIGHTS, Topic("flights", TOPIC_ID, 1)])
def test_the_first_copy_is_one_of_a_partition_of_the_topic(topic: Topic) -> None:
    """A key of no topic would be taken for one of a deleted topic, and nobody could take it back."""
    assert refusal(put(STARTED), standing=None, topic=topic) is None
    outcome = refusal(put(STARTED, tier_key(TOPIC, 1)), standing=None, topic=topic)
    assert (outcome is None) is (topic.partitions == 2)
    assert refusal(put(STARTED, tier_key(TOPIC, topic.partitions)), standing=None, topic=topic) is not None


@pytest.mark.parametrize(
    ("key", "name", "topic"),
    [
        (KEY, "flights", None),
        # It was deleted and created again.
        (KEY, "flights", Topic("flights", b"another topic id", 1)),
        (KEY, "flights", Topic("orders", TOPIC_ID, 1)),
        (KEY, "", FLIGHTS),
        (KEY, "../flights", FLIGHTS),
        (KEY, "../../elsewhere", None),
        (tier_key(NO_ID, 0), "flights", FLIGHTS),
        (tier_key(NO_ID, 0), "flights", None),
    ],
)
def test_the_first_copy_of_no_topic_is_refused(key: str, name: str, topic: Topic | None) -> None:
    assert refusal(put(replace(STARTED, topic=name), key), standing=None, topic=topic) is not None


def test_a_copy_that_was_begun_goes_on_without_its_topic() -> None:
    """This leader may be behind with the topic, or ahead with its end. What is copied then is removed."""
    assert refusal(put(STARTED), standing=NOTHING, topic=None) is None
    assert refusal(put(FINISHED), SHOWN, standing=STARTED, topic=None) is None


def test_a_table_is_not_taken_over_in_the_name_of_another_topic() -> None:
    taken = Tiered(topic="flights", start_offset=Offset(5), end_offset=Offset(5), incarnation=1, recovery=id_to_text(TOPIC_ID))
    recovered = Put(INCARNATION_KEY, json.dumps({"directoryId": taken.recovery, "nodeId": 2, "epoch": 6}).encode())

    def proposed(name: str, standing: Tiered | None) -> str | None:
        machine = StateMachine(rules=ReservedRules)
        known = () if standing is None else (put(standing),)
        topics = [Put(topic_key(topic.name), topic.encode()) for topic in (FLIGHTS, Topic("orders", b"another topic id", 1))]
        machine.apply(7, encode(Txn((), (*topics, recovered, *known))))
        compare = Compare(KEY, 0 if standing is None else 7)
        return refusal_of_tier(Txn((compare,), (put(replace(taken, topic=name)),)), TWO, machine)

    for standing in (None, NOTHING, replace(NOTHING, topic="")):
        assert proposed("flights", standing) is None
        assert proposed("orders", standing) is not None
        assert proposed("../flights", standing) is not None
