"""The quorum's keys of a partition made anew from its table, whatever stands there, and whatever happens meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from copierkit import Keys, Tier
from enginekit import ORDERS
from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.kv.keys import INCARNATION_KEY, start_key, tier_key, tier_segment_key
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.replica.kv.outcomes import ProposeStatus
from raftlake.replica.reserved import RecordStart
from raftlake.replica.tiering.local_start import LocalStarts
from raftlake.replica.tiering.rebuild import TRIES, Rebuild, Rebuilt
from raftlake.tier.entries import Tiered, adopted, decode_segment, decode_tiered, encode_tiered
from raftlake.wire.ids import id_to_text

TOPIC_ID = id_to_text(ORDERS.topic_id)
KEY = tier_key(TOPIC_ID, 0)
RECOVERY = id_to_text(b"the-one-recovery")
COPY = RemoteSegment(
    segment_id="s",
    base_offset=Offset(4),
    end_offset=Offset(9),
    leader_epoch=Epoch(3),
    epochs=((Epoch(2), Offset(4)),),
    timestamp_ms_max=7,
    log_bytes=10,
    size=100,
    crc=5,
    file="partition=0/s.parquet",
)
FACTS = LineageFacts(
    lineage=Lineage(ORDERS, 1),
    leader_epoch=Epoch(3),
    start_offset=Offset(0),
    end_offset=Offset(9),
    segments=2,
    size=150,
    log_bytes=20,
    epochs=((Epoch(1), Offset(0)), (Epoch(2), Offset(4))),
    newest=(COPY,),
)


class World:
    def __init__(self) -> None:
        self.keys, self.tier = Keys(), Tier()
        #: Where the table has to begin, as the last call said.
        self.begin: Offset | None = None
        #: How far it has to reach.
        self.reach: Offset | None = None
        #: Where the logs of the voters begin.
        self.starts = LocalStarts(Offset(2))
        self.ends: list[Rebuilt] = []
        keys: Any = self.keys
        self.rebuild = Rebuild(keys, self.tier, ORDERS, lambda told: told(self.starts), self.ends.append)

    def say(self, value: bytes) -> None:
        self.keys.apply(Txn((), (Put(KEY, value),)))

    def told(self, outcome: LineageFacts | TierError = FACTS) -> None:
        group, self.begin, self.reach, done = self.tier.accepts.pop()
        assert group == ORDERS, "of its newest incarnation"
        done(outcome)


@pytest.fixture
def world() -> World:
    world = World()
    world.rebuild.begin()
    return world


def test_keys_that_are_lost_are_made_anew(world: World) -> None:
    world.told()
    txn = world.keys.commit()
    assert txn.compares == (Compare(KEY, 0),)
    assert world.ends == [Rebuilt(tiered=adopted(FACTS, ""))]
    assert [operation.key for operation in txn.ops] == [KEY, tier_segment_key(TOPIC_ID, 0, 4)]
    assert decode_tiered(txn.ops[0].value) == world.ends[0].tiered  # type: ignore[union-attr]
    assert decode_segment(txn.ops[1].value) == COPY  # type: ignore[union-attr]


def test_spoilt_keys_and_keys_of_copies_that_are_not_there_go() -> None:
    world = World()
    world.say(b"spoilt")
    spoilt, strange = tier_segment_key(TOPIC_ID, 0, 4), tier_segment_key(TOPIC_ID, 0, 8)
    world.keys.apply(Txn((), (Put(spoilt, b"spoilt"), Put(strange, b"spoilt"))))
    other = tier_segment_key(TOPIC_ID, 1, 8)
    world.keys.apply(Txn((), (Put(other, b"of another partition"),)))
    world.rebuild.begin()
    world.told()
    txn = world.keys.commit()
    assert Delete(strange) in txn.ops and txn.compares[0].version > 0
    left, _ = world.keys.machine.list("/raftlake/tier/", None, 10)
    assert [key for key, _ in left] == [KEY, spoilt, other]
    assert world.ends[0].tiered is not None


def test_the_recovery_that_took_the_table_over_stays_known() -> None:
    world = World()
    standing = Tiered(recovery="a-recovery", start_offset=Offset(0), end_offset=Offset(3), checked_offset=Offset(3))
    world.say(encode_tiered(standing))
    world.rebuild.begin()
    world.told()
    world.keys.commit()
    tiered = world.ends[0].tiered
    assert tiered is not None and (tiered.recovery, tiered.checked_offset) == ("a-recovery", 0)


@pytest.mark.parametrize(
    ("known", "recovery", "begin", "reach"),
    [
        (Tiered(start_offset=Offset(3), end_offset=Offset(9)), "", 3, 2),
        (Tiered(start_offset=Offset(3), end_offset=Offset(9), recovery=RECOVERY), RECOVERY, 3, 2),
        (Tiered(start_offset=Offset(3), end_offset=Offset(9)), RECOVERY, None, None),
        (None, "", None, 2),
    ],
)
def test_a_table_that_lost_its_beginning_or_ends_before_the_log_is_refused(
    known: Tiered | None, recovery: str, begin: int | None, reach: int | None
) -> None:
    """The keys tell where it began. Those from before a recovery do not: the table is not taken over yet."""
    world = World()
    if recovery:
        noted = {"directoryId": recovery, "nodeId": 1, "epoch": 1001}
        world.keys.apply(Txn((), (Put(INCARNATION_KEY, json.dumps(noted).encode()),)))
    world.say(b"spoilt" if known is None else encode_tiered(known))
    world.rebuild.begin()
    world.told()
    assert (world.begin, world.reach) == (begin, reach)


@pytest.mark.parametrize(("deleted", "begin"), [(2, 3), (3, 3), (7, 7)])
def test_deleted_records_need_no_rows(deleted: int, begin: int) -> None:
    """Where files of the table are lost for good, the partition begins behind them."""
    world = World()
    starts = [(0, deleted), (1, 9)]
    puts = [Put(start_key(TOPIC_ID, index), RecordStart(Offset(offset), "").encode()) for index, offset in starts]
    world.keys.apply(Txn((), tuple(puts)))
    world.say(encode_tiered(Tiered(start_offset=Offset(3), end_offset=Offset(9))))
    world.rebuild.begin()
    world.told()
    assert (world.begin, world.reach) == (begin, 2)


def test_without_a_key_nothing_is_changed_where_a_voter_does_not_tell_where_its_log_begins() -> None:
    world = World()
    world.starts = LocalStarts(Offset(2), "node 2 (timed out)")
    world.rebuild.begin()
    (ended,) = world.ends
    assert world.tier.accepts == [] and world.keys.proposed == []
    assert ended.error is not None and ended.error.failure is TierFailure.UNKNOWN
    assert "node 2 (timed out)" in ended.error.reason and "try again" in ended.error.reason


@pytest.mark.parametrize(("checked", "last", "reach"), [(7, 2, 7), (7, 8, 8), (0, 2, 3)])
def test_a_voter_that_does_not_answer_may_have_deleted_all_that_was_read_back(checked: int, last: int, reach: int) -> None:
    world = World()
    world.say(encode_tiered(Tiered(start_offset=Offset(3), end_offset=Offset(9), checked_offset=Offset(checked))))
    world.starts = LocalStarts(Offset(last), "node 2 (timed out)")
    world.rebuild.begin()
    world.told(TierError(TierFailure.CHANGED, "too short"))
    (ended,) = world.ends
    assert (world.begin, world.reach) == (3, reach)
    assert ended.error == TierError(TierFailure.CHANGED, "too short. No answer came from node 2 (timed out)")


def test_a_table_that_lost_what_was_read_back_counts_only_once_nothing_more_is_deleted() -> None:
    """A voter deleted up to the old end after it was asked, and led next: nobody was served what lay between."""
    world = World()
    standing = Tiered(start_offset=Offset(0), end_offset=Offset(12), checked_offset=Offset(10))
    world.say(encode_tiered(standing))
    world.rebuild.begin()
    world.told()
    world.starts = LocalStarts(Offset(10))
    held = world.keys.commit()
    assert [decode_tiered(put.value) for put in held.ops if isinstance(put, Put)] == [replace(standing, is_held=True)]
    assert world.ends == []
    world.told(TierError(TierFailure.CHANGED, "too short"))
    assert world.reach == 10 and len(world.ends) == 1


@pytest.mark.parametrize("standing", [
    Tiered(start_offset=Offset(0), end_offset=Offset(12), checked_offset=Offset(9)),
    Tiered(start_offset=Offset(0), end_offset=Offset(12), checked_offset=Offset(10), is_held=True),
])  # fmt: skip
def test_where_nothing_more_can_be_deleted_the_keys_are_replaced_at_once(standing: Tiered) -> None:
    world = World()
    world.say(encode_tiered(standing))
    world.rebuild.begin()
    world.told()
    world.keys.commit()
    assert [ended.tiered for ended in world.ends] == [adopted(FACTS, "")]


def test_the_quorum_may_not_take_the_word_that_nothing_more_is_deleted() -> None:
    world = World()
    world.say(encode_tiered(Tiered(start_offset=Offset(0), end_offset=Offset(12), checked_offset=Offset(10))))
    world.rebuild.begin()
    world.told()
    world.keys.answer(ProposeStatus.UNKNOWN)
    (ended,) = world.ends
    assert ended.tiered is None and ended.outcome is not None and ended.outcome.status is ProposeStatus.UNKNOWN


def test_a_copy_that_is_finished_meanwhile_is_not_forgotten(world: World) -> None:
    world.told()
    world.say(encode_tiered(Tiered(start_offset=Offset(0), end_offset=Offset(12))))
    world.keys.commit()
    assert world.ends == []
    newer = replace(FACTS, end_offset=Offset(12), newest=())
    world.told(newer)
    world.keys.commit()
    assert world.ends == [Rebuilt(tiered=adopted(newer, ""))]


def test_a_partition_whose_keys_change_each_time_is_left_alone(world: World) -> None:
    for _ in range(TRIES):
        world.told()
        world.say(b"changed")
        world.keys.commit()
    assert world.tier.accepts == [] and len(world.ends) == 1
    error = world.ends[0].error
    assert error is not None and "orders-0" in error.reason and "try again" in error.reason


@pytest.mark.parametrize("failure", list(TierFailure))
def test_a_table_that_cannot_be_read_changes_nothing(world: World, failure: TierFailure) -> None:
    error = TierError(failure, "why")
    world.told(error)
    assert world.ends == [Rebuilt(error=error)] and world.keys.proposed == []


@pytest.mark.parametrize("status", [ProposeStatus.UNKNOWN, ProposeStatus.NOT_LEADER, ProposeStatus.REFUSED])
def test_a_quorum_that_does_not_take_it_is_told(world: World, status: ProposeStatus) -> None:
    world.told()
    world.keys.answer(status)
    (ended,) = world.ends
    assert ended.tiered is None and ended.outcome is not None and ended.outcome.status is status
