"""The tables of deleted topics: found by their keys, emptied, and then forgotten, whoever leads and however often it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from copierkit import Keys, Tier
from enginekit import Ground
from raftlake.kv.commands import Delete, Put, Txn
from raftlake.kv.keys import TIER_PREFIX, tier_key, tier_segment_key, topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic
from raftlake.replica.reserved_rules import PARTITIONS_MAX
from raftlake.replica.tiering.gone_topics import KEYS_PER_TXN, LOOKS_PER_TICK, TOLD_MAX, GoneTopics
from raftlake.replica.tiering.step import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS, TierCounts
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Tiered, encode_tiered
from raftlake.wire.ids import id_to_text

LOST = TierError(TierFailure.UNKNOWN, "no answer")
COPIED = Tiered(topic="flights", start_offset=Offset(0), end_offset=Offset(5))


def topic_id(number: int) -> bytes:
    return bytes([7]) * 15 + bytes([number])


class World:
    """Node 1 leads the metadata log."""

    def __init__(self, *, leads: bool = True) -> None:
        self.ground = Ground()
        self.metadata = self.ground.lead() if leads else self.ground.host()
        self.keys, self.tier, self.counts = Keys(), Tier(), TierCounts()
        self.begin()

    def begin(self) -> None:
        keys: Any = self.keys
        self.gone = GoneTopics(self.ground.engine, keys, Quorum(self.ground.engine), self.tier, self.counts)

    def put(self, key: str, value: bytes) -> None:
        self.keys.apply(Txn((), (Put(key, value),)))

    def topic(self, name: str, number: int) -> None:
        self.put(topic_key(name), Topic(name, topic_id(number), 1, {}, None).encode())

    def delete(self, name: str) -> None:
        self.keys.apply(Txn((), (Delete(topic_key(name)),)))

    def copied(self, number: int, *partitions: int, tiered: Tiered = COPIED, segments: int = 2) -> None:
        """Keys of so many copies of each partition."""
        text = id_to_text(topic_id(number))
        for partition in partitions:
            self.put(tier_key(text, partition), encode_tiered(tiered))
            for index in range(segments):
                self.put(tier_segment_key(text, partition, index), b"{}")

    def tick(self, times: int = 1, later_ms: int = 1_000) -> None:
        for _ in range(times):
            self.ground.time.ms += later_ms
            self.ground.engine.begin_input()
            self.gone.tick()

    def dropped(self, answer: TierError | None = None) -> tuple[GroupId, int]:
        group, partitions, done = self.tier.drops.pop(0)
        done(answer)
        return group, partitions

    @property
    def left(self) -> list[str]:
        return [key for key, _ in self.keys.machine.list(TIER_PREFIX, None, 10_000)[0]]


def test_the_table_is_emptied_before_its_keys_go() -> None:
    world = World()
    world.topic("flights", 1)
    world.copied(1, 0, 2, 10)
    world.tick(3)
    assert world.tier.drops == [], "the topic is there"
    world.delete("flights")
    world.tick()
    assert len(world.left) == 9 and world.keys.proposed == []
    world.tick(5)
    assert len(world.tier.drops) == 1, "one call at a time"
    assert world.dropped() == (GroupId("flights", 0, topic_id(1)), 11)
    world.keys.commit()
    assert world.left == [] and world.counts.drops == 1
    world.tick(3)
    assert world.tier.under_way == 0 and world.keys.proposed == []


def test_other_topics_stay_and_one_of_the_same_name_with_another_id_too() -> None:
    world = World()
    for number in (1, 3):
        world.copied(number, 0)
    world.topic("flights", 3)
    world.topic("orders", 2)
    world.copied(2, 0)
    world.tick()
    assert world.dropped()[0].topic_id == topic_id(1)
    world.keys.commit()
    world.tick(5)
    assert world.tier.drops == [] and len(world.left) == 6


def test_a_drop_that_fails_is_told_and_tried_again_and_nothing_is_forgotten() -> None:
    world = World()
    world.copied(1, 0)
    world.tick()
    world.dropped(LOST)
    (warning,) = world.gone.warnings
    assert "flights" in warning and "no answer" in warning
    world.tick(later_ms=RETRY_BACKOFF_MS - 1)
    assert world.tier.drops == [] and len(world.left) == 3
    world.tick(2, later_ms=1)
    world.dropped()
    assert world.gone.warnings == ()
    world.keys.commit()
    assert world.left == []


def test_a_table_that_cannot_be_emptied_holds_up_no_other_one() -> None:
    """It may be another one's, which no retry mends."""
    world = World()
    for number in (1, 2, 3):
        world.copied(number, 0)
    foreign = TierError(TierFailure.UNUSABLE, "the table is not ours")
    gone: list[int] = []
    for _ in range(40):
        world.tick()
        if world.tier.drops and world.tier.drops[0][0].topic_id == topic_id(1):
            world.dropped(foreign)
        elif world.tier.drops:
            gone.append(world.dropped()[0].topic_id[-1])
        elif world.keys.proposed:
            world.keys.commit()
        if gone:
            assert len(world.gone.warnings) == 1 and "not ours" in world.gone.warnings[0], "others do not hide it"
    assert gone == [2, 3] and len(world.left) == 3
    while not world.tier.drops:
        world.tick()
    world.dropped()
    assert world.gone.warnings == ()
    world.keys.commit()
    assert world.left == []


def test_what_is_told_of_tables_that_cannot_be_emptied_is_bounded() -> None:
    world = World()
    for number in range(TOLD_MAX + 5):
        world.copied(number, 0)
    for _ in range(200):
        world.tick(later_ms=RETRY_BACKOFF_MAX_MS)
        if world.tier.drops:
            world.dropped(LOST)
    assert len(world.gone.warnings) == TOLD_MAX


def test_the_next_leader_goes_on() -> None:
    world = World()
    world.copied(1, 0)
    world.tick()
    world.dropped()
    world.keys.answer(ProposeStatus.NOT_LEADER)
    world.begin()
    world.tick()
    world.dropped()
    world.keys.commit()
    assert world.left == []


def test_an_answer_for_an_epoch_that_is_over_has_no_effect() -> None:
    world = World()
    world.copied(1, 0)
    world.tick()
    world.metadata.core.epoch = Epoch(world.metadata.core.epoch + 1)
    world.tick()
    assert len(world.tier.drops) == 2, "the new epoch begins anew"
    world.dropped()
    assert world.keys.proposed == []
    world.dropped()
    assert len(world.keys.proposed) == 1


def test_only_the_leader_of_the_metadata_log_looks() -> None:
    world = World(leads=False)
    world.copied(1, 0)
    world.tick(3)
    assert world.tier.drops == []


def test_keys_that_somebody_wrote_meanwhile_are_looked_at_anew() -> None:
    """A copier that did not know of the end: what it may have begun is dropped too."""
    world = World()
    world.copied(1, 0)
    world.tick()
    world.dropped()
    world.copied(1, 0, 4)
    world.keys.commit()
    assert len(world.left) == 6
    world.tick(2)
    assert world.dropped()[1] == 5
    world.keys.commit()
    assert world.left == []


def test_many_keys_go_in_pieces() -> None:
    world = World()
    world.copied(1, *range(LOOKS_PER_TICK + 20), segments=3)
    world.tick()
    assert world.tier.drops == [], "a tick reads a bounded number of partitions"
    world.tick()
    assert world.dropped()[1] == LOOKS_PER_TICK + 20
    pieces = 0
    while world.left:
        if world.keys.proposed:
            assert len(world.keys.commit().ops) <= KEYS_PER_TXN
            pieces += 1
        else:
            world.tick()
    assert pieces == -(-4 * (LOOKS_PER_TICK + 20) // KEYS_PER_TXN)


def ended(world: World) -> None:
    """Everything goes, without a warning."""
    for _ in range(40):
        world.tick(later_ms=60_000)
        if world.tier.drops:
            world.dropped()
        if world.keys.proposed:
            world.keys.commit()
    assert world.left == [] and world.gone.warnings == ()


@pytest.mark.parametrize(
    ("segments", "whole", "left"),
    [
        (SEGMENT_KEYS_MAX, 5, 1 + SEGMENT_KEYS_MAX),
        # The first page ends right behind a partition, of which more might follow.
        (19, 4, 2 * 20),
        (98, 1, 5 * 99),
        # One partition fills the page, or more than that.
        (99, 1, 5 * 100),
        (100, 0, 5 * 101 + 1),
    ],
)
def test_a_piece_ends_between_partitions(segments: int, whole: int, left: int) -> None:
    """Where the key of a partition went before the keys of its copies, the next leader did not find the name of the topic: the
    keys stayed for ever, and a warning with them."""
    world = World()
    world.copied(1, *range(6), segments=segments)
    world.tick()
    world.dropped()
    world.keys.commit()
    assert len(world.left) == left
    indexes = sorted({key.removeprefix(f"{TIER_PREFIX}{id_to_text(topic_id(1))}/").partition("/")[0] for key in world.left})
    assert indexes == [str(number) for number in range(whole, 6)]


@pytest.mark.parametrize("is_answered", [False, True])
def test_what_a_piece_leaves_over_goes_whoever_leads(*, is_answered: bool) -> None:
    world = World()
    world.copied(1, *range(6), segments=SEGMENT_KEYS_MAX)
    world.tick()
    world.dropped()
    world.keys.commit()
    assert world.left
    if is_answered:
        while not world.keys.proposed:
            world.tick()
        world.keys.answer(ProposeStatus.UNKNOWN)
    else:
        world.begin()
    ended(world)


def test_a_tick_looks_at_a_bounded_number_of_topics_and_all_have_their_turn() -> None:
    world = World()
    for number in range(150):
        world.topic(f"t{number}", number)
        world.copied(number, 0, segments=0)
    world.delete("t149")
    world.tick()
    assert world.tier.drops == []
    world.tick()
    assert world.dropped()[0].topic_id == topic_id(149)


def test_a_topic_whose_key_is_spoilt_keeps_its_table() -> None:
    world = World()
    world.copied(1, 0)
    world.put(topic_key("flights"), b"garbage")
    world.tick(5)
    assert world.tier.drops == [] and world.gone.warnings == ()


@pytest.mark.parametrize("value", [b"garbage", encode_tiered(replace(COPIED, topic=""))])
def test_keys_that_name_no_topic_are_told_and_stay(value: bytes) -> None:
    world = World()
    world.put(tier_key(id_to_text(topic_id(1)), 0), value)
    world.tick()
    assert world.tier.drops == [] and len(world.left) == 1
    (warning,) = world.gone.warnings
    assert id_to_text(topic_id(1)) in warning


def test_one_readable_key_is_enough_for_the_name() -> None:
    world = World()
    world.copied(1, 0, 1, segments=0)
    world.put(tier_key(id_to_text(topic_id(1)), 1), b"garbage")
    world.tick()
    assert world.dropped() == (GroupId("flights", 0, topic_id(1)), 2)


def test_a_partition_that_no_topic_can_have_makes_no_call_endless() -> None:
    """A drop fences each partition up to the highest one."""
    world = World()
    world.copied(1, 0, PARTITIONS_MAX - 1, PARTITIONS_MAX, 4_294_967_295, segments=0)
    world.tick()
    assert world.dropped()[1] == PARTITIONS_MAX
    world.keys.commit()
    assert world.left == []


@pytest.mark.parametrize("name", ["A" * 21 + "B", "short", "", "é" * 22, "A" * 21 + "!"])
def test_a_key_of_no_topic_id_is_passed_over(name: str) -> None:
    """Of an id's 22 characters the last one has bits that no id sets. Each leader stopped at such a key."""
    world = World()
    for index in range(LOOKS_PER_TICK):
        world.put(f"{TIER_PREFIX}{name}/{index}", encode_tiered(COPIED))
    world.copied(1, 0, segments=0)
    world.tick(3)
    assert world.dropped() == (GroupId("flights", 0, topic_id(1)), 1)
    world.keys.commit()
    assert len(world.left) == LOOKS_PER_TICK and world.gone.warnings == ()


@pytest.mark.parametrize("name", ["../../elsewhere", "..%2felsewhere", "a/b", "/", "a?b", "a#b"])
def test_a_key_that_names_a_path_for_a_topic_makes_no_table_there(name: str) -> None:
    """The drop of a table that is not there makes it."""
    world = World()
    world.copied(1, 0, tiered=replace(COPIED, topic=name), segments=0)
    world.tick(3)
    assert world.tier.drops == [] and len(world.left) == 1
    (warning,) = world.gone.warnings
    assert id_to_text(topic_id(1)) in warning
